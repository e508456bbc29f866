"""What comes of tasks that did not succeed, and of clients that are closed early: the same for a home here and behind a server."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from detent.errors import DetentError
from detent.words.quantities import count_text

if TYPE_CHECKING:
    from detent.runs.single_jobs import Ticket


class Failure(Protocol):
    """Why an attempt failed, as its report says it."""

    @property
    def category(self) -> str:
        """One of the categories of errors."""

    @property
    def code(self) -> str:
        """The code of the reason."""

    @property
    def message(self) -> str:
        """What was said."""

    @property
    def type(self) -> str | None:
        """The class of the exception."""

    @property
    def traceback(self) -> str | None:
        """Of the user's code."""

    @property
    def line(self) -> int | None:
        """Of the user's file."""


class TaskFailed(DetentError):
    """A task did not succeed; ``details`` has its category, code and traceback."""

    code = "WORK_FAILED"


class TaskCancelled(TaskFailed):
    """A task was cancelled before it ended."""

    code = "WORK_CANCELLED"


@dataclass(frozen=True, slots=True)
class Left:
    """What a client left when it was closed; empty, and so false, when all had ended."""

    interrupted: tuple[str, ...] = ()
    """Jobs that were running here. They are in the queue again, and begin anew with the next worker."""
    queued: tuple[str, ...] = ()
    """Jobs that this client submitted and that have not begun, or not here."""
    runs: tuple[str, ...] = ()
    """Runs of flows, to be taken up where they stand."""

    def __bool__(self) -> bool:
        return bool(self.interrupted or self.queued or self.runs)

    def __str__(self) -> str:
        counts = (
            (self.interrupted, "interrupted job", None),
            (self.queued, "job in the queue", "jobs in the queue"),
            (self.runs, "unfinished run", None),
        )
        said = [
            f"{count_text(len(ids), one, many)} ({ids[0]}{', ...' if ids[1:] else ''})"
            for ids, one, many in counts
            if ids
        ]
        return ", ".join(said) or "nothing"


def ticket_failure(ticket: Ticket, reason_code: str | None = None) -> TaskFailed:
    """What is raised for a job that failed; ``reason_code`` is the ledger's, for one whose end its worker did not report."""
    error = None if ticket.report is None else ticket.report.result.failure
    return task_failure(ticket.name, error, reason_code or ticket.state)


def task_failure(job_id: str, error: Failure | None, reason_code: str) -> TaskFailed:
    """The same by the job's id and what its last report says of why it failed."""
    hint = f"`detent explain {job_id}` and `detent logs {job_id}` tell more"
    if error is None:
        from detent.workers.next_attempt import unreported, unreported_category  # noqa: PLC0415

        code = reason_code
        return TaskFailed(
            f"{code}: {unreported(code, 'it ended without a report')}",
            hint=hint,
            details={"job_id": job_id, "category": unreported_category(code), "code": code},
        )
    from detent.runs.record.outcome import users_line  # noqa: PLC0415

    name = error.type or error.code
    failure = TaskFailed(
        f"{name}: {error.message}" if error.message else name,
        hint=hint,
        details={
            "job_id": job_id,
            "category": error.category,
            "code": error.code,
            "traceback": error.traceback,
            "line": error.line,
        },
    )
    if error.traceback and (place := users_line(error.traceback, os.getcwd())) is not None:  # noqa: PTH109
        failure.__notes__.insert(0, f"at {place}")  # Before the hint, as a traceback would have it.
    return failure
