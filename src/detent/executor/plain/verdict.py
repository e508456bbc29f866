"""Decides the outcome of a task, from its worker's message or from how the worker ended. Pure: every input is an argument."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Final

from detent.canon.late import dataclass
from detent.executor.assignment import Assignment
from detent.executor.plain import heard
from detent.executor.plain.wire import ERR_CUT, OK, OUT_CUT, DoneRead
from detent.jobs.status import ErrorCategory
from detent.jobs.work import (
    CANCELLED,
    EMPTY,
    SUCCEEDED,
    Failure,
    Result,
    Usage,
    WorkFile,
    WorkStream,
    status_after,
)

USER: Final = ErrorCategory.USER_CODE_ERROR.value
_FROM_OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that a process never gets for its own faults: a user, or the kernel short of memory, ended it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker ended, as the host tells it."""

    status: int = signal.SIGKILL
    """As ``wait`` gives it; without any word, it was killed with its host."""
    stopped: bool = False
    """Whether we ended it."""
    over_memory: int | None = None
    """The task for whose memory we did."""
    garbled: str | None = None
    """What it said that no worker says, for which we did."""
    started_us: int = 0
    ended_us: int = 0
    cpu_us: int = 0
    memory_bytes: int = 0
    stdout: WorkStream = EMPTY
    stderr: WorkStream = EMPTY


def told(
    read: DoneRead, process: str, wall_ms: int | None, message: str | None = None, garbled: str | None = None
) -> Result:
    """What a worker said. ``wall_ms`` is the limit of a task that was told to stop for being over it.

    What no worker says is a failure of the task that said it; ``garbled`` is such a word that came before.
    """
    flags = read.flags
    value: bytes | None = None
    failure: Failure | None = None
    files: tuple[WorkFile, ...] = ()
    try:
        if garbled is not None:
            raise heard.Garbled(garbled)
        if flags & OK:
            value = heard.value(read.value)
        else:
            failure = _over_time(wall_ms) if wall_ms is not None else heard.failure(read.error, message)
        files = heard.files(read.files) if read.files else ()
    except heard.Garbled as exc:
        value, failure = None, misused(str(exc))
    return Result(
        status=SUCCEEDED if failure is None else status_after(failure),
        value=value,
        failure=failure,
        stdout=heard.stream(read.stdout, bool(flags & OUT_CUT)),
        stderr=heard.stream(read.stderr, bool(flags & ERR_CUT)),
        files=files,
        usage=heard.usage(read),
        started_ms=read.started // 1000,
        finished_ms=(read.started + read.wall) // 1000,
        process=process,
    )


def ended(task: Assignment, end: Ended, process: str, *, over_time: bool) -> Result:
    """What becomes of the task that a worker was running when it ended."""
    failure, lost = _end_failure(task, end, over_time=over_time)
    wall_us = max(0, end.ended_us - end.started_us) if end.started_us else 0
    return Result(
        status=status_after(failure),
        failure=failure,
        stdout=end.stdout,
        stderr=end.stderr,
        usage=Usage(end.cpu_us // 1000, wall_us // 1000, end.memory_bytes, unmeasured=(heard.IO,)),
        started_ms=end.started_us // 1000,
        finished_ms=end.ended_us // 1000,
        process=process,
        lost=lost,
    )


def seen(result: Result, usage: Usage | None) -> Result:
    """The same with what was seen of the task while it ran: its tree, its GPU, and what a worker that is gone no longer tells."""
    if usage is None:
        return result
    told, peak = result.usage, max(result.usage.memory_bytes_peak, usage.memory_bytes_peak)
    moved = usage if heard.IO in told.unmeasured else told
    return replace(
        result,
        usage=replace(
            told,
            memory_bytes_peak=peak,
            io_bytes_read=moved.io_bytes_read,
            io_bytes_written=moved.io_bytes_written,
            gpu_ms=usage.gpu_ms,
            unmeasured=moved.unmeasured,
        ),
    )


def cancelled(result: Result) -> Result:
    """The same for a task that was asked to end: what only followed from that is not a failure of its own."""
    failure = result.failure
    if failure is None or not (failure.code == "CANCELLED" or result.lost):
        return result
    return replace(result, status=CANCELLED, failure=None, lost=False)


DROPPED: Final = Result(status=CANCELLED)
"""Of a task that was never begun."""


def misused(why: str) -> Failure:
    """The failure of a task whose worker said what no worker says."""
    return Failure(USER, heard.MISUSED, f"wrote to the channel of its own worker: {why}; leave that descriptor alone")


def _end_failure(task: Assignment, end: Ended, *, over_time: bool) -> tuple[Failure, bool]:
    """Why, and whether it was lost, which is not a failure of the task (X-163)."""
    if over_time and end.stopped:
        return _over_time(task.order.limits.wall_ms or 0), False
    if end.over_memory == task.number:
        return Failure(ErrorCategory.RESOURCE_LIMIT.value, "LIMIT_MEMORY", "used more memory than it may"), False
    if end.garbled is not None:
        return misused(end.garbled), False
    if end.stopped:
        return Failure(USER, "CANCELLED", "it was ended"), False
    if os.WIFEXITED(end.status):
        status = os.WEXITSTATUS(end.status)
        return Failure(
            USER, "PROCESS_EXITED", f"the process left with exit status {status} in the middle of the task"
        ), False
    number = os.WTERMSIG(end.status)
    if number in _FROM_OUTSIDE:
        message = f"its process was ended from outside by {_signal_name(number)}"
        return Failure(ErrorCategory.INTERNAL_ERROR.value, "WORKER_LOST", message), True
    return Failure(USER, "PROCESS_CRASHED", f"the process crashed: {_signal_name(number)}"), False


def _over_time(wall_ms: int) -> Failure:
    return Failure(ErrorCategory.RESOURCE_LIMIT.value, "LIMIT_WALL", f"ran longer than its limit of {wall_ms} ms")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
