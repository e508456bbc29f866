"""What the platform shows of a job: the contract's seven statuses as a projection of the kernel's six states (A.3).

There is no second stored status. A status is computed from the kernel's state, from whether a worker ever had the job,
and from the code it failed with; so it cannot disagree with the ledger, and workers, who write no states, cannot move it
backwards. Two points make the seven legal moves the only ones that are ever seen:

* It is *monotone*: a job that waits for another attempt stays ``RUNNING``, with the detail ``retrying`` (X-004).
* It is evaluated at the *end of a commit batch*. A waiting job is cancelled by a batch that passes through the kernel's
  RUNNING; a status taken in its middle would show work that never ran (A.4).

The kernel writes CANCELED, this contract CANCELLED. `project_status` is the only place that translates (X-002).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvariantBroken
from detent.kernel.job import Job
from detent.kernel.outcome import JobState
from detent.kernel.table import State


class JobStatus(StrEnum):
    """The state of a job in the platform's words (two Ls in CANCELLED)."""

    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMED_OUT = "TIMED_OUT"


STATUS_MOVES: Final[Mapping[JobStatus, frozenset[JobStatus]]] = {
    JobStatus.PENDING: frozenset({JobStatus.QUEUED}),
    JobStatus.QUEUED: frozenset({JobStatus.RUNNING, JobStatus.CANCELLED}),
    JobStatus.RUNNING: frozenset(
        {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.TIMED_OUT},
    ),
    JobStatus.SUCCEEDED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELLED: frozenset(),
    JobStatus.TIMED_OUT: frozenset(),
}
"""The moves a watcher may see; staying where it is aside, no other is ever shown."""

TERMINAL_STATUSES: Final = frozenset(status for status, moves in STATUS_MOVES.items() if not moves)

TIMEOUT_CODES: Final = frozenset({"WATCHDOG_WALL", "WATCHDOG_IDLE", "LIMIT_WALL", "LIMIT_CPU"})
"""Failure codes of a deadline. A job that failed with one is shown as TIMED_OUT, with any other as FAILED (X-146)."""

RETRYING: Final = "retrying"
"""Detail of a RUNNING job whose last attempt is over and whose next one has not begun."""

_ENDED: Final = {
    State.SUCCEEDED: JobStatus.SUCCEEDED,
    State.FAILED: JobStatus.FAILED,
    State.CANCELED: JobStatus.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class StatusView:
    """A job's status with what the platform's answer says beside it."""

    status: JobStatus
    detail: str | None = None
    """``retrying``, or None."""
    attempt: int = 0
    """The kernel's ``attempt_id``: 0 for the first attempt."""
    reason_code: str | None = None
    """Why the job ended, once it has."""


def project_status(
    state: State | str | None, ever_dispatched: bool = False, failure_code: str | None = None
) -> JobStatus:
    """The status of a job whose kernel state, at the end of a commit batch, is ``state``.

    ``None`` means that the platform has a row and the kernel no job yet. ``failure_code`` counts only in FAILED.
    """
    if state is None:
        return JobStatus.PENDING
    if state not in State.__members__:
        raise InvariantBroken(f"{show(state)} is not a kernel state")
    state = State(state)
    if state is State.FAILED and failure_code in TIMEOUT_CODES:
        return JobStatus.TIMED_OUT
    if state in _ENDED:
        return _ENDED[state]
    if state is State.QUEUED and not ever_dispatched:
        return JobStatus.QUEUED
    return JobStatus.RUNNING


def project_job(job: JobState | Job | None) -> StatusView:
    """The status of a job as the kernel shows it between two commands, which is always the end of a batch."""
    if job is None:
        return StatusView(JobStatus.PENDING)
    status = project_status(job.state, job.ever_dispatched, job.reason_code)
    retrying = status is JobStatus.RUNNING and job.state != State.RUNNING
    return StatusView(
        status,
        RETRYING if retrying else None,
        job.attempt_id,
        job.reason_code if status in TERMINAL_STATUSES else None,
    )
