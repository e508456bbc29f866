"""`detent.ordered_map`: a function over a collection on all cores, its results strictly in order, each exactly once.

    for tokens in detent.ordered_map(texts, tokenize):
        ...
    detent.ordered_map(texts, tokenize, "jsonl:tokens.jsonl")

Killed at any moment and called again with the same items, function and destination, it goes on at the first item that is not
committed. The loop has no destination that could remember, so it gets everything from the start again, but computes nothing
twice (X-184).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from detent.errors import DetentError, InvalidInput
from detent.sdk.options import check_duration, duration, milliseconds
from detent.sdk.recording import current
from detent.sdk.run import RunFailed
from detent.sdk.user_code import refuse_while_loading
from detent.words.states import CANCELLED, FAILED, STOPPED, word_of

if TYPE_CHECKING:
    from detent.runs.ordered.handle import OrderedHandle, OrderedResult
    from detent.runs.ordered.resume import Beginning
    from detent.runs.ordered.spec import OrderedSpec
    from detent.runs.runtime import Runtime
    from detent.sdk.bound import BoundAlone
    from detent.sdk.options import Duration
    from detent.targets.api import Anew, CommitTarget

WINDOW = 2048
TOGETHER = 64
"""Items that are looked at together before they are written down; one may be large, so they are few."""
_PLAIN_INT = 1 << 60
_INTEGER = frozenset({int})
_NESTED = frozenset({dict, list})


class OrderedSummary:
    """The result of an ordered run."""

    def __init__(self, result: OrderedResult, home: Path) -> None:
        self._result = result
        self.home = home

    @property
    def run_id(self) -> str:
        """What `detent show` and `detent verify` call it."""
        return self._result.run_id

    @property
    def status(self) -> str:
        """``succeeded``, ``failed`` or ``cancelled``."""
        return word_of(self._result.status)

    @property
    def done_before(self) -> bool:
        """Whether an earlier run is the answer: nothing was computed now, and the destination was left alone."""
        return self._result.done_before

    @property
    def total(self) -> int:
        """Items."""
        return self._result.summary.total

    @property
    def succeeded(self) -> int:
        """Items whose result was committed."""
        return self._result.summary.success

    @property
    def skipped(self) -> int:
        """Items that had nothing to commit."""
        return self._result.summary.skip

    @property
    def failed(self) -> int:
        """Items that failed."""
        return self._result.summary.fail

    @property
    def cancelled(self) -> int:
        """Items behind the boundary at which the run was cut."""
        return self._result.summary.cancel

    @property
    def digest(self) -> str:
        """Of every item's outcome and value in order: the same on every run that comes to the same."""
        return f"sha256:{self._result.summary.digest().hex()}"

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The failed items in order, the first thousand: seq, code, message and the job that has the traceback."""
        return [
            {"seq": one.seq, "code": one.code, "type": one.type, "message": one.message, "job_id": one.job_id}
            for one in self._result.failures
        ]

    def __repr__(self) -> str:
        return f"<ordered run {self.run_id}: {self.status}, {self.succeeded} of {self.total}>"


class OrderedResults(Iterator[Any]):
    """The results of an ordered run, in order, as they come. Leaving the loop early leaves the run to be resumed.

    Work begins with the first result that is asked for. ``summary`` is there when the loop has ended.
    """

    def __init__(self, results: Iterator[Any], box: dict[str, Any]) -> None:
        self._results = results
        self._box = box

    def __iter__(self) -> OrderedResults:
        return self

    def __next__(self) -> Any:
        return next(self._results)

    def close(self) -> None:
        """Leave the run as it stands."""
        self._results.close()  # type: ignore[attr-defined]  # it is a generator

    @property
    def summary(self) -> OrderedSummary:
        """The result of the run; only when it has ended."""
        if "summary" not in self._box:
            raise InvalidInput("the run has not ended yet", hint="take all of its results first")
        summary: OrderedSummary = self._box["summary"]
        return summary


@overload
def ordered_map(
    items: Iterable[Any],
    compute: Callable[[Any], Any],
    commit: None = None,
    *,
    workers: int | None = None,
    window: int = WINDOW,
    chunk: int | None = None,
    on_error: str = "stop",
    item_timeout: Duration | None = None,
    commit_timeout: Duration | None = None,
    home: str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    force: bool = False,
    append: bool = False,
) -> OrderedResults: ...
@overload
def ordered_map(
    items: Iterable[Any],
    compute: Callable[[Any], Any],
    commit: str | Callable[..., Any] | CommitTarget,
    *,
    workers: int | None = None,
    window: int = WINDOW,
    chunk: int | None = None,
    on_error: str = "stop",
    item_timeout: Duration | None = None,
    commit_timeout: Duration | None = None,
    home: str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    force: bool = False,
    append: bool = False,
) -> OrderedSummary: ...
def ordered_map(  # noqa: PLR0913 - how a run is to go, each by its name
    items: Iterable[Any],
    compute: Callable[[Any], Any],
    commit: str | Callable[..., Any] | CommitTarget | None = None,
    *,
    workers: int | None = None,
    window: int = WINDOW,
    chunk: int | None = None,
    on_error: str = "stop",
    item_timeout: Duration | None = None,
    commit_timeout: Duration | None = None,
    home: str | Path | None = None,
    name: str | None = None,
    key: str | None = None,
    force: bool = False,
    append: bool = False,
) -> OrderedResults | OrderedSummary:
    """Compute every item on all cores, and commit the results strictly in order, each exactly once.

    * ``items``: JSON values and `detent.File`, in the order that counts; a generator is written down first
    * ``compute``: a function at the top of a module, or a task; it may return `detent.SKIP`
    * ``commit``: ``"append:FILE"``, ``"jsonl:FILE"``, ``"sqlite:FILE#TABLE"``, a function ``f(value, token)``, or a target of
      your own. Without it the results are iterated over
    * ``window``: items that may be computed ahead of the slowest one, twice; ``chunk``: items of one job
    * ``on_error``: ``"stop"`` ends the run behind the windows of the first failure, ``"continue"`` goes on without it
    * ``item_timeout``: how long one item may take, in seconds or as "90s"; one that takes longer fails with ``LIMIT_WALL``.
      Otherwise the ``timeout`` of a task counts
    * ``commit_timeout``: how long the destination may take over one commit, an hour by default; then `DetentError` with the code
      ``COMMIT_TIMEOUT`` is raised, and the same call goes on there
    * ``key``: tells this run from another one that is otherwise the same
    * ``force``: begin anew, and replace what earlier runs of the same map left at the destination; ``append``: add to what the
      destination holds. Without them the same call is answered by the run that did it (``summary.done_before``), and a
      destination that holds anything else is refused with ``DESTINATION_NOT_EMPTY``. A function object as the destination is
      called each time: what it did before may have gone with the process that it did it in

    Inside a flow the call records a step, which needs a destination; its result is a mapping with the totals, the digest and,
    where the destination is a file, that file.

    With ``commit`` it returns a summary, and raises `RunFailed` if items failed and ``on_error`` is ``"stop"``.
    """
    recording = current()
    if recording is not None:
        from detent.sdk.calls import record_map  # noqa: PLC0415 - a map on its own loads the engine later

        settings: dict[str, Any] = {} if window == WINDOW else {"window": window}
        settings |= {} if chunk is None else {"chunk": chunk}
        settings |= {} if on_error == "stop" else {"on_error": on_error}
        check_duration("item_timeout", item_timeout)
        check_duration("commit_timeout", commit_timeout)
        settings |= {} if item_timeout is None else {"item_timeout": duration(item_timeout)}
        settings |= {} if commit_timeout is None else {"commit_timeout": duration(commit_timeout)}
        of_the_run = {"workers": workers, "home": home, "key": key, "force": force or None, "append": append or None}
        step = record_map(recording, items, compute, commit, settings=settings, name=name, of_the_run=of_the_run)
        return cast("OrderedSummary", step)
    refuse_while_loading("starts an ordered run")
    if commit is None and (force or append):
        raise InvalidInput(f"{'force' if force else 'append'} needs a destination: a loop gets everything each time")
    if commit_timeout is not None and commit is None:
        raise InvalidInput("commit_timeout needs a destination: a loop takes its results at its own pace")
    request = _Request(
        compute, workers, window, chunk, on_error, item_timeout, commit_timeout, home, name, key, force, append
    )
    if commit is not None:
        return _committed(request, items, commit)
    box: dict[str, Any] = {}
    return OrderedResults(_streamed(request, items, box), box)


class _Request:
    """The options of a call, and what is opened from them."""

    def __init__(  # noqa: PLR0913, PLR0917 - the options of `ordered_map`, once
        self,
        compute: Callable[[Any], Any],
        workers: int | None,
        window: int,
        chunk: int | None,
        on_error: str,
        item_timeout: Duration | None,
        commit_timeout: Duration | None,
        home: str | Path | None,
        name: str | None,
        key: str | None,
        force: bool,
        append: bool,
    ) -> None:
        self._compute = compute
        self.workers = workers
        self._window = window
        self._chunk = chunk
        self._on_error = on_error
        self._item_ms = None if item_timeout is None else milliseconds("item_timeout", item_timeout)
        self._commit_ms = None if commit_timeout is None else milliseconds("commit_timeout", commit_timeout)
        self.home = None if home is None else Path(home)
        self._name = name
        self._key = key
        self.force, self.append = force, append

    def spec(self, commit: str | None) -> OrderedSpec:
        """What is asked for, without the items."""
        from detent.jobs.order import Retries  # noqa: PLC0415 - `import detent` stays cheap
        from detent.runs.ordered.spec import OrderedSpec  # noqa: PLC0415

        bound = _bound(self._compute)
        return OrderedSpec(
            compute=bound.target,
            base=bound.base,
            commit=commit,
            name=self._name or bound.name,
            key=self._key,
            on_error=self._on_error,
            window=self._window,
            chunk=self._chunk,
            retries=Retries(0, ()) if bound.retries is None else Retries(*bound.retries),
            item_ms=bound.timeout_ms if self._item_ms is None else self._item_ms,
        )

    def beginning(self, commit: object) -> Beginning:
        """What earlier runs mean to this one."""
        from detent.runs.ordered.resume import Beginning  # noqa: PLC0415

        return Beginning(force=self.force, append=self.append, answers=isinstance(commit, str))

    def handle(
        self,
        work: Runtime,
        items: Iterable[Any],
        spec: OrderedSpec,
        target: CommitTarget,
        beginning: Beginning | None = None,
    ) -> OrderedHandle:
        """The run, with its items written down."""
        from detent.runs.ordered.handle import OrderedHandle  # noqa: PLC0415
        from detent.runs.ordered.spec import spool  # noqa: PLC0415

        files: dict[str, None] = {}
        spooled = spool(work.backend.files, _lines(items, work.backend.files, files))
        return OrderedHandle(
            work, spec, spooled, target, files=tuple(files), commit_ms=self._commit_ms, beginning=beginning
        )


def _bound(compute: Callable[[Any], Any]) -> BoundAlone:
    from detent.sdk.bound import BoundAlone  # noqa: PLC0415
    from detent.sdk.reference import refer  # noqa: PLC0415
    from detent.sdk.task import Task  # noqa: PLC0415

    if isinstance(compute, Task):
        from detent.sdk.calls import bound_alone  # noqa: PLC0415 - what was said about a task is read as a contract

        return bound_alone(compute)
    task = Task(compute)
    reference = refer(task.__wrapped__)
    return BoundAlone(task.__name__, reference.target, reference.base, None, None)


def _lines(items: Iterable[Any], kept: Any, files: dict[str, None]) -> Iterator[bytes]:
    from detent.canon import json_encode_trusted  # noqa: PLC0415
    from detent.jobs.values import files_named  # noqa: PLC0415
    from detent.sdk.bound import stored_value  # noqa: PLC0415

    taken = iter(items)
    place = 0
    while some := list(islice(taken, TOGETHER)):
        if _INTEGER.issuperset(map(type, some)) and min(some) > -_PLAIN_INT and max(some) < _PLAIN_INT:
            yield from (b"%d\n" * len(some) % tuple(some)).splitlines()
        else:
            for number, item in enumerate(some, place):
                line = json_encode_trusted(stored := stored_value(item, f"item {number}", kept))
                if b'"$file"' in line:
                    files.update(dict.fromkeys(files_named(stored)))
                yield line
        place += len(some)


def _committed(
    request: _Request, items: Iterable[Any], commit: str | Callable[..., Any] | CommitTarget
) -> OrderedSummary:
    from detent.runs.ahead import host_ahead  # noqa: PLC0415

    host = host_ahead(request.home, reuses=False)  # Before all else is loaded.
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415

    where = home_at(request.home)
    with Runtime(where, workers=request.workers, host=host) as work:
        beginning = request.beginning(commit)
        spec = request.spec(_named(commit))
        target = _target(commit, work, beginning.anew(work.backend, spec))
        handle = request.handle(work, items, spec, target, beginning)
        summary = OrderedSummary(handle.run(), where.path)
    _insist_on_end(summary, handle)
    return summary


def _streamed(request: _Request, items: Iterable[Any], box: dict[str, Any]) -> Iterator[Any]:
    from detent.runs.ahead import host_ahead  # noqa: PLC0415

    host = host_ahead(request.home, reuses=False)  # Before all else is loaded.
    from detent.jobs.values import restored  # noqa: PLC0415
    from detent.reuse.work_keys import no_results  # noqa: PLC0415
    from detent.runs.ordered.loop_target import HandOver  # noqa: PLC0415
    from detent.runs.runtime import Runtime, home_at  # noqa: PLC0415
    from detent.sdk.run import file_maker  # noqa: PLC0415

    where = home_at(request.home)
    file = file_maker(where.path)
    with Runtime(where, workers=request.workers, host=host) as work:
        target = HandOver()
        handle = request.handle(work, items, request.spec(None), target)
        ended: list[BaseException | OrderedResult] = []

        def drive() -> None:
            try:
                ended.append(handle.run())
            except BaseException as exc:  # noqa: BLE001 - raised where the results are taken
                ended.append(exc)
            finally:
                target.end()

        driving = threading.Thread(target=drive, name="detent-ordered", daemon=True)
        driving.start()
        try:
            for values in target.batches():
                if _NESTED.isdisjoint(map(type, values)):
                    yield from values
                    continue
                for value in values:
                    yield restored(value, no_results, file) if type(value) in _NESTED else value
        finally:
            target.leave()
            handle.stop()
            driving.join()
    result = ended[0]
    if isinstance(result, BaseException):
        raise result
    box["summary"] = summary = OrderedSummary(result, where.path)
    if summary.status == CANCELLED:  # A loop that simply ended would look as if it had had everything.
        raise _failure(summary)
    _insist_on_end(summary, handle)


def _named(commit: str | Callable[..., Any] | CommitTarget) -> str:
    """What a destination is called in the inputs of a run."""
    if isinstance(commit, str):
        return commit
    if callable(commit):
        module, name = getattr(commit, "__module__", None), getattr(commit, "__qualname__", type(commit).__qualname__)
        return f"{module}:{name}"
    return str(getattr(commit, "spec", ""))


def _target(commit: str | Callable[..., Any] | CommitTarget, work: Runtime, anew: Anew | None) -> CommitTarget:
    from detent.jobs.values import restored  # noqa: PLC0415
    from detent.reuse.work_keys import no_results  # noqa: PLC0415
    from detent.sdk.run import file_maker  # noqa: PLC0415
    from detent.targets import FunctionTarget, parse_target  # noqa: PLC0415
    from detent.targets.function_target import SLICE_SECONDS  # noqa: PLC0415

    file = file_maker(work.home.path)

    def restore(value: Any) -> Any:
        return restored(value, no_results, file)

    if isinstance(commit, str):
        target = parse_target(commit, base=Path.cwd(), content=work.backend.files, restore=restore, anew=anew)
        target.check()
        return target
    if callable(commit):
        return FunctionTarget(_named(commit), lambda: commit, restore, SLICE_SECONDS)
    if not all(hasattr(commit, part) for part in ("spec", "is_recorded", "open", "begin", "write", "close")):
        from detent.canon.show import a_or_an  # noqa: PLC0415 - for mistakes alone

        raise InvalidInput(
            f"{a_or_an(type(commit))} is not a destination", hint="give a text such as jsonl:FILE, or a function"
        )
    return commit


def _insist_on_end(summary: OrderedSummary, handle: OrderedHandle) -> None:
    """Raise for a run that failed and was to stop then, and for one that was left because its destination did not answer."""
    if summary.status == STOPPED:
        raise RunFailed(
            f"run {summary.run_id!r} has not ended: {handle.view().note or 'it was left as it stands'}",
            hint="fix the destination; the same call resumes there",
            details={"run_id": summary.run_id},
        )
    if summary.status == FAILED and handle.inputs.spec.on_error == "stop":
        raise _failure(summary)


def _failure(summary: OrderedSummary) -> DetentError:
    if summary.status == CANCELLED and not summary.failed:
        return RunFailed(
            f"run {summary.run_id!r} was cancelled from item {summary.succeeded + summary.skipped} on",
            code="WORK_CANCELLED",
            hint="the same call begins anew",
            details={"run_id": summary.run_id},
        )
    first = summary.failures[0] if summary.failures else None
    said = "" if first is None else f"; item {first['seq']}: {first['type'] or first['code']}: {first['message']}"
    return RunFailed(
        f"{summary.failed} of {summary.total} items failed{said}",
        hint=f"`detent show {summary.run_id}` tells more; `detent retry {summary.run_id}` runs what did not succeed",
        details={"run_id": summary.run_id, "digest": summary.digest, "failed": summary.failures[:10]},
    )
