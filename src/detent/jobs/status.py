"""How a job stands and why it failed, as the platform shows it.

What the platform shows of a job: the contract's seven statuses as a projection of the kernel's six states (A.3).

There is no second stored status. A status is computed from the kernel's state, from whether a worker ever had the job,
and from the code it failed with; so it cannot disagree with the ledger, and workers, who write no states, cannot move it
backwards. Two points make the seven legal moves the only ones that are ever seen:

* It is *monotone*: a job that waits for another attempt stays ``RUNNING``, with the detail ``retrying`` (X-004).
* It is evaluated at the *end of a commit batch*. A waiting job is cancelled by a batch that passes through the kernel's
  RUNNING; a status taken in its middle would show work that never ran (A.4).

The kernel writes CANCELED, this contract CANCELLED. `project_status` is the only place that translates (X-002).

Why a job failed, in the contract's six words, and which of them may be tried again (A.7, A.8).

The codes themselves stand once, in `detent.errors.CODES`, with their category. An executor may use further codes for what
went wrong inside the user's code (``PYTHON_EXCEPTION``); these are not in the registry and always come with a category.

A job's status and times, rebuilt from its records: what the platform answers is what the ledger says (JOB-018, X-033).

Records are the bodies of the job's ``submitted`` record and its transitions, in their order. Commit batches are looked at
whole, so the lease that a scheduler holds for an instant while it cancels a waiting job leaves no start time and no
queue time (A.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from detent.canon import tick_to_iso
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import CODES, InvalidInput, InvariantBroken
from detent.kernel.job import Job
from detent.kernel.outcome import JobState
from detent.kernel.records import SUBMITTED, TRANSITION
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


class ErrorCategory(StrEnum):
    """The kinds of failure a result may report."""

    USER_CODE_ERROR = "USER_CODE_ERROR"
    """The user's code raised, was given invalid inputs, or failed an assertion."""
    VALIDATION_ERROR = "VALIDATION_ERROR"
    """The payload does not fit its schema, or the type of object is not supported."""
    RESOURCE_LIMIT = "RESOURCE_LIMIT"
    """Too much memory, time, output, or too many artifacts."""
    SANDBOX_VIOLATION = "SANDBOX_VIOLATION"
    """A forbidden system call, file or network access was attempted."""
    DEPENDENCY_ERROR = "DEPENDENCY_ERROR"
    """A dataset is missing or its bytes do not have the digest."""
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """A worker crashed, or the platform itself failed."""


def category_of(code: str) -> ErrorCategory | None:
    """The category of a registered code; None for a code that never ends a job or is not registered."""
    entry = CODES.get(code)
    return None if entry is None or entry.category is None else ErrorCategory(entry.category)


def code_fault(code: str, category: ErrorCategory) -> str | None:
    """Say why a failure cannot carry this code with this category, or nothing.

    A guest must not choose how its failure is read: a registered code comes with its registered category.
    """
    if code not in CODES:
        return None
    expected = category_of(code)
    if expected is None:
        return f"{code} is not a code a job can fail with"
    return None if expected is category else f"{code} belongs to {expected.value}, not to {category.value}"


@dataclass(frozen=True, slots=True)
class Timeline:
    """A job as its records tell it. Ticks are None where the thing has not happened."""

    status: JobStatus = JobStatus.PENDING
    detail: str | None = None
    attempt: int = 0
    reason_code: str | None = None
    history: tuple[JobStatus, ...] = (JobStatus.PENDING,)
    """Every status the job has had, without repeats: always a path of `STATUS_MOVES`."""
    submitted_tick: int | None = None
    queued_tick: int | None = None
    """Last entry into the queue."""
    first_started_tick: int | None = None
    started_tick: int | None = None
    """Start of the last attempt, which is the one a result is about."""
    finished_tick: int | None = None
    queue_ticks: int | None = None
    """Last stay in the queue that ended with a start."""
    ever_dispatched: bool = False

    def answer(self, *, tick_ms: int, epoch_base_ms: int) -> dict[str, Any]:
        """The status as a client gets it, with times in ISO 8601."""
        times = {
            name: None if tick is None else tick_to_iso(tick, tick_ms, epoch_base_ms)
            for name, tick in (
                ("submitted_at", self.submitted_tick),
                ("first_started_at", self.first_started_tick),
                ("started_at", self.started_tick),
                ("finished_at", self.finished_tick),
            )
        }
        return {
            "status": self.status.value,
            "detail": self.detail,
            "attempt": self.attempt,
            "reason_code": self.reason_code,
            **times,
            "queue_time_ms": None if self.queue_ticks is None else self.queue_ticks * tick_ms,
        }


def timeline(bodies: Iterable[Mapping[str, Any]]) -> Timeline:
    """Fold a job's records; no record at all is a job that the platform knows and the kernel does not yet."""
    told = Timeline()
    state: str | None = None
    for body in bodies:
        if state is None:
            if body["kind"] != SUBMITTED:
                raise InvalidInput("a job's records begin with the one of its submission")
            state, tick = State.QUEUED.value, body["tick"]
            told = replace(told, submitted_tick=tick, queued_tick=tick)
        else:
            if body["kind"] != TRANSITION or body["from_state"] != state:
                raise InvalidInput(f"the record after {state} is not a transition from it")
            state, told = body["to_state"], _moved(told, body)
            if body["batch_index"] + 1 < body["batch_len"]:
                continue
        told = _shown(told, state, body)
    return told


def _moved(told: Timeline, body: Mapping[str, Any]) -> Timeline:
    """The times after one transition."""
    tick, to_state = body["tick"], body["to_state"]
    if to_state == State.QUEUED:
        told = replace(told, attempt=body["attempt_id"] + 1)
        return told if body["batch_len"] > 1 else replace(told, queued_tick=tick)
    if to_state == State.RUNNING and body["dispatch"]:
        first = tick if told.first_started_tick is None else told.first_started_tick
        waited = tick - (told.queued_tick or 0)
        return replace(told, first_started_tick=first, started_tick=tick, queue_ticks=waited, ever_dispatched=True)
    return told


def _shown(told: Timeline, state: str, body: Mapping[str, Any]) -> Timeline:
    """What is shown once a commit batch is over."""
    reason = body.get("reason_code")
    status = project_status(state, told.ever_dispatched, reason)
    history = told.history if told.history[-1] is status else (*told.history, status)
    ended = status in TERMINAL_STATUSES
    return replace(
        told,
        status=status,
        detail=RETRYING if status is JobStatus.RUNNING and state != State.RUNNING else None,
        reason_code=reason if ended else None,
        history=history,
        finished_tick=body["tick"] if ended else None,
    )
