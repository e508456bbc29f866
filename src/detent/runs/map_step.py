"""What a map step is, between a step's order and an ordered run: its items, its run, its destination, its result.

The ordered run of a step is called like the step's work, ``workflow/step``, and is a run of its own on the ledger. It is found
again by what it is (the same function, items, destination and settings), so a later attempt, or the same step of a later run,
goes on with one that has not ended. See docs/decisions/0013.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from detent.canon import digest_text, json_encode_trusted
from detent.canon.destinations import SQLITE, file_of
from detent.canon.strict_json import JsonValue
from detent.contract.durations import parse_duration
from detent.errors import InvalidInput
from detent.executor.file import type_of
from detent.jobs.order import Order, Retries
from detent.jobs.values import RESULT, file_reference, files_named, is_result
from detent.jobs.work import WorkFile
from detent.kernel import Run
from detent.kernel.run import RUNNING
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.reuse.path_arguments import expanded
from detent.reuse.work_keys import WorkKeys
from detent.runs.ordered.items import Items, file_lines, matched_files, row_lines, spool
from detent.runs.ordered.recorded import RecordedOrdered, is_step_of, ordered_inputs, recorded_ordered
from detent.runs.ordered.resume import left_by
from detent.runs.ordered.spec import WINDOW, OrderedInputs, OrderedSpec
from detent.store.api import RunRow, StoreReader
from detent.targets.api import Anew

STEP_KEY: Final = "step"
"""What tells the ordered run of a step from one that a user began by hand under the same name."""
KEPT: Final = ("code", "version")
"""Ingredients of a step that say which functions it calls."""
DESTINATION: Final = "destination"


def spec_of(order: Order) -> OrderedSpec:
    """The ordered run that a step's order asks for, the items apart."""
    said: Mapping[str, Any] = order.call.target
    retries = said.get("retries", 0)
    return OrderedSpec(
        compute=said["compute"],
        base=order.call.base or str(Path.cwd()),
        filter=said.get("filter"),
        commit=said["commit"],
        files="files" in said,
        name=order.label,
        key=STEP_KEY,
        on_error=said.get("on_error", "stop"),
        window=said.get("window", WINDOW),
        chunk=said.get("chunk"),
        retries=Retries(retries, ("USER_CODE_ERROR",)) if retries else Retries(0, ()),
        item_ms=parse_duration(said["item_timeout"]) if "item_timeout" in said else None,
    )


def items_of(backend: Backend, order: Order, load: Callable[[str], JsonValue]) -> tuple[Items, tuple[str, ...]]:
    """The items of a step, written down, and the digests of the files that they name. ``load`` gives a result's value.

    Raises `InvalidInput` for a value that is not a list.
    """
    said, base = order.call.target, Path(order.call.base or Path.cwd())
    if "files" in said:
        return spool(backend.files, file_lines(matched_files(said["files"], base), base)), ()
    listed = order.call.keywords["items"]
    if type(listed) is str:
        try:
            with (base / listed).open("rb") as stream:
                return spool(backend.files, row_lines(stream, listed)), ()
        except OSError as exc:
            raise InvalidInput(
                f"the items cannot be read from {listed}: {exc.strerror}", code="DEPENDENCY_MISSING"
            ) from exc
    listed = _inlined(listed, load)
    if type(listed) is not list:
        raise InvalidInput(
            f"what step {order.origin.step!r} goes through is not a list", hint="items needs a list of values"
        )
    files: dict[str, None] = {}
    return spool(backend.files, _lines(listed, files)), tuple(files)


def _lines(listed: list[JsonValue], files: dict[str, None]) -> Iterator[bytes]:
    for item in listed:
        line = json_encode_trusted(item)
        if b'"$file"' in line:
            files.update(dict.fromkeys(files_named(item)))
        yield line


def _inlined(value: JsonValue, load: Callable[[str], JsonValue]) -> JsonValue:
    """A stored value with the values of results in the place of their names."""
    if type(value) is dict:
        if is_result(value):
            return _inlined(load(value[RESULT]), load)
        return {key: _inlined(item, load) for key, item in value.items()}
    if type(value) is list:
        return [_inlined(item, load) for item in value]
    return value


# -- runs of the step ----------------------------------------------------------------------------------------------------


def runs_of(reader: StoreReader, tenant: str, label: str, status: str | None = None) -> Iterator[RunRow]:
    """The ordered runs of a step, or those of one status, newest first."""
    return (row for row in reader.runs(status=status) if row.name == label and row.tenant_id == tenant)


def ended_since(backend: Backend, inputs: OrderedInputs, since_tick: int) -> tuple[str, RecordedOrdered] | None:
    """The run that did this very work and ended after that tick, if there is one.

    A process that was killed after its run had ended, and before its step had, finds the outcome of the run here.
    """
    ended = (
        row for row in runs_of(backend.reader, backend.tenant, inputs.spec.name) if (row.ended_tick or 0) >= since_tick
    )
    for run, recorded in _recorded(backend, ended):
        if run.status != RUNNING and _is_same(run, recorded.inputs, inputs) and recorded.summary is not None:
            return run.run_id, recorded
    return None


def outdated(backend: Backend, order: Order, inputs: OrderedInputs) -> list[str]:
    """The runs of the step that have not ended and never will be gone on with: something about the step has changed.

    Two runs of one workflow that differ in a parameter may have a destination each, and what another open one needs is left to
    it. What goes to the same place is not, because a destination has one run at a time.
    """
    return [
        run.run_id
        for run, began, needed_by in _open(backend.reader, Content(backend.reader, backend.files), _workflow(order))
        if (run.name, run.tenant_id) == (order.label, backend.tenant)
        and not _is_same(run, began, inputs)
        and (began.spec.commit == order.call.target["commit"] or needed_by <= {order.origin.run_id})
    ]


def open_runs(backend: Backend, order: Order) -> list[str]:
    """The runs of the step that have not ended, and that no other open run needs."""
    content = Content(backend.reader, backend.files)
    return left_open(backend.reader, content, _workflow(order), order.origin.run_id or "", order.label)


def left_open(reader: StoreReader, content: Content, workflow: str, run_id: str, label: str | None = None) -> list[str]:
    """The ordered runs of this run's steps, or of one step, that have not ended, and that no other open run needs."""
    return [
        run.run_id
        for run, _, needed_by in _open(reader, content, workflow, run_id)
        if needed_by == {run_id} and label in {None, run.name}
    ]


def _open(
    reader: StoreReader, content: Content, workflow: str, *ended: str
) -> Iterator[tuple[Run, OrderedInputs, set[str]]]:
    """The open ordered runs of steps, each with the runs of the workflow whose step it is: open ones, and those that ended."""
    still_open = list(reader.runs(status=RUNNING))
    parents = {*ended, *(row.run_id for row in still_open if row.name == workflow)}
    for row in still_open:
        run = Run.decode(row.body) if row.name.startswith(f"{workflow}/") else None
        began = None if run is None else ordered_inputs(content, run)
        if run is not None and began is not None and began.spec.key == STEP_KEY:
            yield run, began, {one for one in parents if is_step_of(reader, run, began, one)}


def _workflow(order: Order) -> str:
    return order.label.removesuffix(f"/{order.origin.step}")


def _recorded(backend: Backend, rows: Iterable[RunRow]) -> Iterator[tuple[Run, RecordedOrdered]]:
    content = Content(backend.reader, backend.files)
    for row in list(rows):
        run = Run.decode(row.body)
        recorded = recorded_ordered(backend.reader, content, run)
        if recorded is not None:
            yield run, recorded


def _is_same(run: Run, began: OrderedInputs, wanted: OrderedInputs) -> bool:
    same_work = (run.contract_digest, run.bindings_digest) == wanted.digests()
    return same_work and not WorkKeys.difference(began.ingredients, wanted.ingredients)


# -- the destination and the result --------------------------------------------------------------------------------------


def anew(backend: Backend, label: str) -> Anew:
    """A destination that a new run of the step begins empty, as far as what is there is the step's own."""
    return left_by(backend, lambda: runs_of(backend.reader, backend.tenant, label))


def make_directory(order: Order) -> None:
    """Make the directory of a destination, if it is not there: in a fresh project ``out`` does not exist yet."""
    written: str = order.call.target["commit"]
    kind, _, rest = written.partition(":")
    path = file_of(written) or (rest.rpartition("#")[0] if kind == SQLITE else None)
    if path is not None:
        with suppress(OSError):  # Opening the destination reports what is in the way.
            (Path(order.call.base or Path.cwd()) / expanded(path)).parent.mkdir(parents=True, exist_ok=True)


def left_file(backend: Backend, order: Order) -> WorkFile | None:
    """The file that a step has filled, kept as content like any declared output; None for another destination."""
    written = file_of(order.call.target["commit"])
    if written is None:
        return None
    path = os.path.normpath(expanded(written))
    try:
        with (Path(order.call.base or Path.cwd()) / path).open("rb", buffering=0) as file:
            digest, size = backend.files.put_from(file)
    except OSError as exc:
        raise InvalidInput(f"the destination {path} cannot be read: {exc.strerror}", code="DEPENDENCY_MISSING") from exc
    return WorkFile(os.fsencode(path).decode("utf-8", "backslashreplace"), digest, size, type_of(path), DESTINATION)


def result_of(order: Order, counts: Mapping[str, int], digest: str, file: WorkFile | None) -> dict[str, Any]:
    """What a step gives: the same for every run that comes to the same, so it names no run."""
    said: dict[str, Any] = {
        "total": counts["total"],
        "succeeded": counts["success"],
        "skipped": counts["skip"],
        "failed": counts["fail"],
        "digest": f"sha256:{digest}",
        DESTINATION: order.call.target["commit"],
    }
    if file is not None:
        name = os.path.basename(file.name)  # noqa: PTH119
        said["file"] = file_reference(
            digest_text(file.digest), size=file.size_bytes, name=name, content_type=file.content_type
        )
    return said
