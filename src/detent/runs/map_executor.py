"""The executor of map steps: each attempt drives an ordered run, whose chunks are jobs that supervisors compute as any other.

An attempt takes a thread and no worker. It holds nothing that is not on the ledger: the process that resumes the step after a kill
finds the same run and goes on at its first item that is not committed. The executor is never full, because a supervisor claims nothing
while one of its executors is, and then no worker would compute the chunks that are waited for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.canon import json_encode_trusted
from detent.contract.words import parse_duration
from detent.errors import DetentError, InvalidInput, StoreUnavailable
from detent.executor.assignment import Assignment
from detent.jobs.status import ErrorCategory, category_of
from detent.jobs.work import CANCELLED, FAILED, SUCCEEDED, TIMED_OUT, Failure, Result, WorkStream
from detent.kernel import Job
from detent.ordered import Summary
from detent.runs import map_step
from detent.runs.map_step import StepTarget, rest_of, whole
from detent.runs.ordered.driver import DestinationFailed
from detent.runs.ordered.handle import OrderedHandle, RuntimeParts
from detent.runs.ordered.recovery import end_run
from detent.targets import CommitFailed, parse_target
from detent.targets.api import CommitTarget
from detent.words import states

if TYPE_CHECKING:
    from detent.runs.ordered.recorded import RecordedOrdered
    from detent.runs.ordered.recovery import FailedItem
    from detent.runs.ordered.spec import Items, OrderedSpec

UNDER_WAY_MAX: Final = 4
"""Ordered runs that are driven at once; steps beyond that wait, with their leases kept alive."""
ITEMS_FAILED: Final = "ITEMS_FAILED"
WALL: Final = "LIMIT_WALL"
TOLD_MAX: Final = 10
"""Failed items that the step's stderr lists."""


class MapExecutor:
    """Drives the ordered runs of map steps, each on a thread of its own."""

    def __init__(self, work: RuntimeParts, wake: Callable[[], None]) -> None:
        self._work = work
        self._wake = wake
        self._waiting: deque[_Attempt] = deque()
        self._under_way: dict[int, _Attempt] = {}
        self._ended: deque[tuple[int, Result | BaseException]] = deque()

    def wanted(self) -> int:
        """There is always room for one more."""
        return 1

    def take(self, assignment: Assignment) -> None:
        """Begin an attempt, or keep it until another has ended."""
        self._waiting.append(_Attempt(self._work, assignment, self._tell))
        self._begin()

    def cancel(self, number: int) -> None:
        """End an attempt; its ordered run ends too, where its destination stands."""
        if number in self._under_way:
            self._under_way[number].cancel()
        for attempt in [one for one in self._waiting if one.number == number]:
            self._waiting.remove(attempt)
            self._ended.append((number, Result(status=CANCELLED)))

    def finished(self) -> Sequence[tuple[int, Result]]:
        """What has come back. Raises what no step is to blame for."""
        back: list[tuple[int, Result]] = []
        while self._ended:
            number, ended = self._ended.popleft()
            self._under_way.pop(number, None)
            if not isinstance(ended, Result):
                raise ended
            back.append((number, ended))
        if back:
            self._begin()
        return back

    def close(self) -> None:
        """Leave every ordered run as it stands, but for those that are being cancelled; wait until they are left."""
        self._waiting.clear()
        for attempt in self._under_way.values():
            attempt.leave()
        for attempt in self._under_way.values():
            attempt.join()

    def _begin(self) -> None:
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            attempt = self._waiting.popleft()
            self._under_way[attempt.number] = attempt
            attempt.start()

    def _tell(self, number: int, ended: Result | BaseException) -> None:
        self._ended.append((number, ended))
        self._wake()


class _Attempt:
    """One attempt at a map step, on a thread of its own."""

    def __init__(
        self, work: RuntimeParts, assignment: Assignment, tell: Callable[[int, Result | BaseException], None]
    ) -> None:
        self.number = assignment.number
        self._work = work
        self._job_id, self._order, self._load = assignment.job_id, assignment.order, assignment.load
        self._tell = tell
        self._handle: OrderedHandle | None = None
        self._cancelled = self._left = self._timed_out = False
        self._thread = threading.Thread(target=self._run, name="detent-map", daemon=True)
        wall_ms = assignment.order.limits.wall_ms
        self._timer = None if wall_ms is None else threading.Timer(wall_ms / 1000, self._time_over)

    def start(self) -> None:
        self._thread.start()
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def join(self) -> None:
        self._thread.join()

    def cancel(self) -> None:
        """The step is cancelled."""
        self._cancelled = True
        self._stop()

    def leave(self) -> None:
        """The process ends: the run is left to the next one."""
        self._left = True
        self._stop()

    def _time_over(self) -> None:
        self._timed_out = True
        self._stop()

    def _stop(self) -> None:
        if self._handle is not None:
            self._handle.stop()

    @property
    def _stopping(self) -> bool:
        return self._cancelled or self._left or self._timed_out

    # -- on its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        now, job_id = self._work.backend.now_ms, self._job_id
        began = now()
        try:
            try:
                said = self._drive()
            except DetentError as exc:
                said = self._broken_off() if self._stopping else {"status": FAILED, "failure": _error(exc)}
            finally:
                self._work.progress.pop(job_id, None)
                if self._timer is not None:
                    self._timer.cancel()
            self._tell(self.number, Result(started_ms=began, finished_ms=now(), **said))
        except BaseException as exc:  # noqa: BLE001 - raised on the supervisor's thread, where it is seen
            self._tell(self.number, exc)

    def _drive(self) -> dict[str, Any]:
        work, order, backend = self._work, self._order, self._work.backend
        spec = map_step.spec_of(order)
        items, files = map_step.items_of(backend, order, self._load)
        target = self._target(anew=map_step.anew(backend, order.label))
        handle = self._handle_of(spec, items, target, files)
        row = backend.reader.job(self._job_id)
        since = 0 if row is None else Job.decode(row.body).submitted_tick
        if (known := map_step.ended_since(backend, handle.inputs, since)) is not None:
            return self._recalled(*known)
        if (rest := rest_of(backend, order, handle.inputs, target)) is not None:
            if not rest.seqs:
                return self._ended(rest.before, whole(backend, rest.before), ", ended before")
            handle = self._handle_of(rest.spec, rest.items, self._target(seqs=rest.seqs), files)
        for run_id in map_step.outdated(backend, order, handle.inputs):
            end_run(backend, run_id, "the step has changed since")
        self._handle = handle
        if self._stopping:
            return self._broken_off()
        map_step.make_directory(order)
        handle.open()
        work.progress[self._job_id] = partial(_progress, handle, rest.seqs[0] if rest is not None else 0)
        ended = handle.run()
        if ended.status == states.STOPPED:
            return self._broken_off()
        how = f", resumed at item {ended.resumed_at:,}" if handle.resumed else ""
        if rest is None:
            return self._ended(handle.run_id, ended.summary, how, ended.failures, handle.item_text)
        failures = [replace(one, seq=rest.seqs[one.seq]) for one in ended.failures]
        how = f", {rest.seqs[0]:,} of them before by run {rest.before}{how}"
        return self._ended(
            handle.run_id,
            whole(backend, handle.run_id),
            how,
            failures,
            lambda seq: handle.item_text(seq - rest.seqs[0]),
        )

    def _target(self, **said: Any) -> StepTarget:
        base = Path(self._order.call.base or Path.cwd())
        return parse_target(self._order.call.target["commit"], base=base, content=self._work.backend.files, **said)

    def _handle_of(
        self, spec: OrderedSpec, items: Items, target: CommitTarget, files: tuple[str, ...]
    ) -> OrderedHandle:
        order = self._order
        kept = {name: order.origin.ingredients[name] for name in map_step.KEPT if name in order.origin.ingredients}
        limit = order.call.target.get("commit_timeout")
        return OrderedHandle(
            self._work,
            spec,
            items,
            target,
            files=files,
            ingredients=kept or None,
            step_of=order.origin.run_id,
            commit_ms=None if limit is None else parse_duration(limit),
        )

    def _recalled(self, run_id: str, recorded: RecordedOrdered) -> dict[str, Any]:
        """The outcome of a run that had ended before the step could report it."""
        summary = recorded.summary or {}
        counts = {name: summary[name] for name in ("total", "success", "skip", "fail", "cancel")}
        return self._ended(run_id, Summary(**counts, root=bytes.fromhex(summary["root"])), ", ended before")

    def _ended(
        self,
        run_id: str,
        came_to: Summary,
        how: str,
        failures: Sequence[FailedItem] = (),
        item_text: Callable[[int], str] = str,
    ) -> dict[str, Any]:
        order = self._order
        counts = {name: getattr(came_to, name) for name in ("total", "success", "skip", "fail", "cancel")}
        words = [(came_to.success, "committed"), (came_to.skip, states.SKIPPED), (came_to.fail, states.FAILED)]
        told = ", ".join(f"{count:,} {word}" for count, word in [*words, (came_to.cancel, states.CANCELLED)] if count)
        stdout = f"ordered run {run_id}: {told or 'nothing'}, of {came_to.total:,} items{how}\n".encode()
        stderr = "".join(
            f"item {one.seq} {item_text(one.seq)}: {one.type or one.code}: {one.message}\n"
            for one in failures[:TOLD_MAX]
        ).encode("utf-8", "backslashreplace")
        said: dict[str, Any] = {"stdout": WorkStream(stdout), "stderr": WorkStream(stderr)}
        if not came_to.cancel and (not came_to.fail or order.call.target.get("on_error") == "continue"):
            file = map_step.left_file(self._work.backend, order)
            value = json_encode_trusted(map_step.result_of(order, counts, came_to.digest().hex(), file))
            return {**said, "status": SUCCEEDED, "value": value, "files": () if file is None else (file,)}
        return {**said, "status": FAILED, "failure": _failure(run_id, counts, failures)}

    def _broken_off(self) -> dict[str, Any]:
        """The attempt was stopped: by a cancellation, by its time, or because the process ends."""
        if self._cancelled:
            for run_id in map_step.open_runs(self._work.backend, self._order):
                end_run(self._work.backend, run_id, "the step was cancelled")
            return {"status": CANCELLED}
        if self._timed_out:
            wall = f"ran longer than its limit of {self._order.limits.wall_ms} ms; the next attempt goes on where it stands"
            return {"status": TIMED_OUT, "failure": Failure("RESOURCE_LIMIT", WALL, wall)}
        return {"status": FAILED, "lost": True}


def _progress(handle: OrderedHandle, before: int) -> tuple[int, int, int]:
    """Items committed, failed and to be done, at this moment; so many were done before."""
    view = handle.view()
    return before + view.committed - view.failed, view.failed, before + view.total


def _failure(run_id: str, counts: Any, failures: Sequence[FailedItem]) -> Failure:
    first = failures[0] if failures else None
    if not counts["fail"]:
        return Failure("DEPENDENCY_ERROR", "WORK_CANCELLED", f"its ordered run {run_id} was cancelled")
    message = f"{counts['fail']:,} of {counts['total']:,} items failed"
    if first is None:
        return Failure("USER_CODE_ERROR", ITEMS_FAILED, f"{message}; `detent show {run_id}` tells more")
    category = category_of(first.code) or ErrorCategory.USER_CODE_ERROR
    said = f"{message}; item {first.seq}: {first.type or first.code}: {first.message}"
    return Failure(category.value, ITEMS_FAILED, said, first.type, first.traceback)


def _error(exc: DetentError) -> Failure:
    """Why a step could not be driven to its end."""
    hint = f"; {exc.hint}" if exc.hint else ""
    if isinstance(exc, CommitFailed | DestinationFailed):
        category = ErrorCategory.DEPENDENCY_ERROR
    elif isinstance(exc, StoreUnavailable):
        category = ErrorCategory.INTERNAL_ERROR
    else:
        fallback = ErrorCategory.VALIDATION_ERROR if isinstance(exc, InvalidInput) else ErrorCategory.INTERNAL_ERROR
        category = category_of(exc.code) or fallback
    return Failure(category.value, exc.code, f"{exc}{hint}", type(exc).__name__)
