"""Who may try again: the one place where the end of an attempt becomes RETRYING or the end of the job (A.7).

Two bounds, because interruptions are not the job's fault (X-163): ``max_retries`` counts attempts that failed,
``max_interruptions`` those cut short by the death of the owner or of a worker that is provably gone.
"""

from __future__ import annotations

from detent.canon.late import NamedTuple
from detent.kernel import evidence as ev
from detent.kernel.job import Job
from detent.kernel.policy import KernelConfig


class AttemptEnd(NamedTuple):
    """What the end of an attempt leads to."""

    to_state: str
    refusal: str | None
    """Why it is not RETRYING: ``NOT_RETRYABLE`` or ``RETRIES_EXHAUSTED``; None when it is."""


def end_attempt(job: Job, kind: str, category: str | None, config: KernelConfig) -> AttemptEnd:
    """Decide what follows an attempt that did not succeed."""
    if kind == ev.QUOTA:
        retryable = config.quotas[job.quota_policy_hash].retries_allowed
        final = "CANCELED" if config.on_quota_running == "cancel" else "FAILED"
    else:
        retryable = (
            kind == ev.EXPIRY or kind in ev.INTERRUPTIONS or (kind == ev.RESULT and category in job.retry_categories)
        )
        final = "FAILED"
    if not retryable:
        return AttemptEnd(final, "NOT_RETRYABLE")
    spent = job.interruptions >= job.max_interruptions if kind in ev.INTERRUPTIONS else job.failures >= job.max_retries
    if spent:
        return AttemptEnd(final, "RETRIES_EXHAUSTED")
    return AttemptEnd("RETRYING", None)


def retry_delay_ticks(job: Job, kind: str, config: KernelConfig) -> int:
    """Ticks a job stays in RETRYING: the entry for this failure or interruption of the schedule it counts by (X-041, X-191)."""
    if kind in ev.INTERRUPTIONS:
        return config.interruption_ticks(job.interruptions)
    return config.backoff_ticks(job.backoff_schedule_id, job.failures)
