"""What a map step is, between a step's order and an ordered run: its items, its run, its destination, its result.

The ordered run of a step is called like the step's work, ``workflow/step``, and is a run of its own on the ledger. It is found
again by what it is (the same function, items, destination and settings), so a later attempt, or the same step of a later run,
goes on with one that has not ended. See docs/decisions/0013.

What a map step goes on with: the items that an ordered run of it, cancelled or failed, did not bring to the destination.

An ordered run that has ended is not touched. The rest of its items is an ordered run of its own, which names the one that it
retries and the seqs that its items had there (X-183), and whose results are added to what the destination holds. The step
gives what both came to together, the same as one run of all items would have given.

Only the end of a run can be gone on with: results are added behind those that are there, so a gap before them would leave the
destination out of order. An item that failed and has committed ones behind it stays as it ended with ``on_error: continue``;
otherwise the step could never succeed, and all of it is done anew.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from detent.canon import digest_text, json_encode_trusted
from detent.canon.grammar import SQLITE, file_of
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract.words import parse_duration
from detent.errors import DetentError, InvalidInput, StoreCorrupt
from detent.executor.file import type_of
from detent.jobs.order import Order, Retries
from detent.jobs.values import RESULT, file_reference, files_named, is_result
from detent.jobs.work import WorkFile
from detent.kernel import Run
from detent.kernel.run import RUNNING
from detent.ordered import Envelope, SeqState, Summary
from detent.ordered.actions import BlockTree, count_failure
from detent.ordered.digests import item_bytes
from detent.ordered.states import OUTCOME_WORDS
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.reuse.path_arguments import expanded
from detent.reuse.work_keys import WorkKeys
from detent.runs.ordered.recorded import RecordedOrdered, is_step_of, ordered_inputs, recorded_ordered
from detent.runs.ordered.recovery import committed, standing
from detent.runs.ordered.resume import AGAIN, Earlier, earlier_run, first_seqs, left_by
from detent.runs.ordered.spec import (
    WINDOW,
    Items,
    OrderedInputs,
    OrderedSpec,
    file_lines,
    matched_files,
    open_spool,
    row_lines,
    spool,
)
from detent.runs.record.inputs import RETRY_OF
from detent.store.api import RunRow, StoreReader
from detent.targets.api import Anew, CommitTarget, Mark

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


class StepTarget(CommitTarget, Protocol):
    """A destination that a step can have: it knows whether it still has what a run left there."""

    def holds(self, run_id: str, recorded: Mark | None, rows: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rest:
    """The items of a step that are still to be done."""

    before: str
    """The ordered run that is gone on with."""
    spec: OrderedSpec
    items: Items
    seqs: list[int]
    """The numbers of the items in the step; none when a retry by hand has done them all."""


def rest_of(backend: Backend, order: Order, inputs: OrderedInputs, target: StepTarget) -> Rest | None:
    """The rest of a step; None where all of it is to be done: nothing was done before, or what was done is gone or unwanted."""
    if not _is_wanted(backend, order) or _is_open(backend, inputs):
        return None
    with suppress(DetentError):  # A run whose notes, items or results were erased: it cannot be gone on with.
        earlier, mark = earlier_run(backend, inputs), None
        while earlier is not None and (mark := standing(backend, earlier.run.run_id).mark) is None:
            earlier = _origin(backend, earlier)  # It never began to write.
        if earlier is None or mark is None or not _is_made_of(earlier, inputs):
            return None
        rest = _rest(backend, earlier)
        if rest is None or _is_open(backend, replace(inputs, spec=rest.spec, items=rest.items.digest)):
            return rest
        path = file_of(order.call.target["commit"])
        if path is not None and _size(Path(inputs.spec.base or "", expanded(path))) != mark.offset:
            return None
        if target.holds(earlier.run.run_id, mark, earlier.delivered):
            return rest
    return None


def whole(backend: Backend, run_id: str) -> Summary:
    """The outcome of a run together with those that it continues."""
    content = Content(backend.reader, backend.files)
    ended: dict[int, Envelope] = {}
    total, named = 0, run_id
    while named:
        row = backend.reader.run(named)
        inputs = None if row is None else ordered_inputs(content, Run.decode(row.body))
        if inputs is None:
            raise StoreCorrupt(f"what run {named!r} was started with is gone", hint="begin a new run")
        total = inputs.config.total
        known = replace(standing(backend, named), cursor=total)
        seqs = first_seqs(backend.reader, content, inputs.spec) or range(total)
        for seq, envelope in zip(seqs, committed(backend, named, inputs.config, known), strict=True):
            ended.setdefault(seq, envelope)
        named = inputs.spec.origin.get("run_id", "")
    return _summary([ended[seq] for seq in range(total)])


def _summary(ended: list[Envelope]) -> Summary:
    tree, failures = BlockTree(), dict[str, int]()
    tree.extend([item_bytes(seq, one.outcome, one.payload_digest) for seq, one in enumerate(ended)])
    counts = Counter(OUTCOME_WORDS[one.outcome] for one in ended)
    for one in ended:
        if OUTCOME_WORDS[one.outcome] == "fail":
            count_failure(failures, one.code or "UNKNOWN")
    said = {word: counts[word] for word in OUTCOME_WORDS.values()}
    return Summary(total=len(ended), **said, root=tree.root(), failures=failures)


def _rest(backend: Backend, earlier: Earlier) -> Rest | None:
    run_id, inputs = earlier.run.run_id, earlier.recorded.inputs
    total = inputs.config.total
    seqs = first_seqs(backend.reader, Content(backend.reader, backend.files), inputs.spec)
    if seqs is not None and seqs != list(range(seqs[0], seqs[0] + total)):
        return None  # A retry by hand of items that failed here and there: they stand behind the others.
    ended = list(committed(backend, run_id, inputs.config, replace(standing(backend, run_id), cursor=total)))
    first = total
    while first and ended[first - 1].outcome in AGAIN:
        first -= 1
    is_stuck = inputs.spec.on_error == "stop" and any(one.outcome is SeqState.TERMINAL_FAIL for one in ended[:first])
    if is_stuck or (first == total and seqs is None):
        return None
    own = list(range(first, total))
    spec = replace(inputs.spec, origin={"run_id": run_id, "origin_seq": own})
    items = open_spool(backend.files, inputs.items)
    rest = spool(backend.files, (items.lines(seq, seq)[0] for seq in own))
    return Rest(run_id, spec, rest, own if seqs is None else seqs[first:])


def _origin(backend: Backend, earlier: Earlier) -> Earlier | None:
    """The run that a run retries, without what that one delivered itself."""
    named = earlier.recorded.inputs.spec.origin.get("run_id")
    row = None if named is None else backend.reader.run(named)
    run = None if row is None else Run.decode(row.body)
    recorded = None if run is None else recorded_ordered(backend.reader, Content(backend.reader, backend.files), run)
    return None if run is None or recorded is None else Earlier(run, recorded, earlier.delivered)


def _is_wanted(backend: Backend, order: Order) -> bool:
    """Whether what was done before may stay: in a retry always, else unless the step is never reused, or `--force` was given."""
    row = None if order.origin.run_id is None else backend.reader.run(order.origin.run_id)
    said: Any = None if row is None else backend.unsealed(Run.decode(row.body).inputs_digest)
    if not isinstance(said, dict):
        return False
    return RETRY_OF in said.get("about", {}) or (
        bool(order.origin.ingredients) and not said.get("options", {}).get("force")
    )


def _is_open(backend: Backend, inputs: OrderedInputs) -> bool:
    """Whether a run that does this has not ended: then it is gone on with, wherever its destination stands."""
    runs = (Run.decode(row.body) for row in backend.reader.runs(status=RUNNING) if row.tenant_id == backend.tenant)
    return any((run.contract_digest, run.bindings_digest) == inputs.digests() for run in runs)


def _is_made_of(earlier: Earlier, inputs: OrderedInputs) -> bool:
    """Whether a run called the same functions, in the words of a step; one that was begun by hand may say more."""
    known = earlier.recorded.inputs.ingredients
    made = {name: value for name, value in inputs.ingredients.items() if name in KEPT}
    return not WorkKeys.difference({name: known[name] for name in KEPT if name in known}, made)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
