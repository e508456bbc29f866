"""The attempt that follows one that did not succeed: why there is one, which it is, and when it begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from detent.canon.late import dataclass
from detent.jobs.status import ErrorCategory, category_of
from detent.jobs.work import WorkReport
from detent.kernel import Job
from detent.kernel import evidence as ev
from detent.kernel.table import State
from detent.store.api import JobRow
from detent.words.quantities import duration_text

_WITHOUT_REPORT: Final[Mapping[str, str]] = {
    ev.REASON_WORKER_LOST: "was killed (out of memory?)",
    ev.REASON_INTERRUPTED: "was interrupted",
    ev.REASON_LEASE_EXPIRED: "stopped responding",
}
_FINAL_WITHOUT_REPORT: Final[Mapping[str, str]] = {
    ev.REASON_WORKER_LOST: "its worker was killed each time it ran (out of memory?): give it less data or the machine more"
    " memory, or run fewer workers at once",
    # A job's own limits are its executor's to enforce (LIMIT_WALL); the watchdog has the operator's.
    "WATCHDOG_WALL": "it ran longer than watchdog_wall_ms under [scheduling] in config.toml allows an attempt",
    "QUOTA_GPU_TIME": "it used more GPU time than its quota allows",
    "QUOTA_CPU_TIME": "it used more CPU time than its quota allows",
    "QUOTA_IO_BYTES": "it read and wrote more bytes than its quota allows",
    "QUOTA_MEMORY_BYTES": "it held more memory than its quota allows",
    "WATCHDOG_IDLE": "it reported no progress for longer than watchdog_idle_ms under [scheduling] in config.toml allows",
}


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """What follows an attempt that is repeated."""

    why: str
    attempt: int
    """Which attempt follows, counted from 1."""
    of: int | None
    """How many there may be; None after an interruption, which takes no retry."""
    at_ms: int
    """When it goes back to the queue."""

    def text(self, now_ms: int) -> str:
        """``failed (ConnectionError: 503); attempt 2 of 5 in 1 s``."""
        which = f"attempt {self.attempt}" + ("" if self.of is None else f" of {self.of}")
        left_ms = self.at_ms - now_ms
        when = f"in {duration_text(left_ms, whole_seconds=True)}" if left_ms > 0 else "follows"
        return f"{self.why}; {which} {when}"


def next_attempt(row: JobRow, report: WorkReport | None, now_ms: int) -> NextAttempt:
    """The attempt that follows, by the job's row as the end of the last attempt left it."""
    job = Job.decode(row.body)
    resting = job.state == State.RETRYING
    reason = job.reason_code or ""
    why = None if report is not None and report.result.failure is not None else _WITHOUT_REPORT.get(reason)
    attempt = job.attempt_id + (2 if resting else 1)
    of = None if why is not None and reason != ev.REASON_LEASE_EXPIRED else attempt + job.max_retries - job.failures
    pause = max(0, (job.ready_tick or 0) - row.tick) if resting else 0
    return NextAttempt(why or f"failed ({why_failed(report)})", attempt, of, now_ms + pause)


def unreported(reason_code: str | None, message: str) -> str:
    """Why a job failed whose last attempt ended without a report: by its reason, or else by the message given."""
    return _FINAL_WITHOUT_REPORT.get(reason_code or "", message)


def unreported_category(reason_code: str) -> str:
    """The category of such an end: its code's own, such as RESOURCE_LIMIT for a deadline (X-146)."""
    return (category_of(reason_code) or ErrorCategory.INTERNAL_ERROR).value


def why_failed(report: WorkReport | None) -> str:
    """A failure in one line, as its report tells it."""
    if report is None or report.result.failure is None:
        return "it ended without a report"
    error = report.result.failure
    name = error.type or error.code
    first = error.message.strip().splitlines()[0] if error.message.strip() else ""
    if first.startswith(name):  # What comes from the sandbox says its type itself.
        return first
    return f"{name}: {first}" if first else name
