"""A job's status and times, rebuilt from its records: what the platform answers is what the ledger says (JOB-018, X-033).

Records are the bodies of the job's ``submitted`` record and its transitions, in their order. Commit batches are looked at
whole, so the lease that a scheduler holds for an instant while it cancels a waiting job leaves no start time and no
queue time (A.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from detent.canon import tick_to_iso
from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.jobs.status import RETRYING, TERMINAL_STATUSES, JobStatus, project_status
from detent.kernel.records import SUBMITTED, TRANSITION
from detent.kernel.table import State


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
