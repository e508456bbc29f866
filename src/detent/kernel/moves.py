"""Compound moves: what several commands and the passing of time do alike.

Each of them commits one or more legal transitions through `Kernel.move`, or refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.canon import add_uint64, ms_to_ticks
from detent.kernel import evidence as ev
from detent.kernel import identity
from detent.kernel.history import Record
from detent.kernel.identity import lease_key
from detent.kernel.job import Job
from detent.kernel.outcome import CONFLICT, DENIED_QUOTA, JobState, Outcome
from detent.kernel.policy import QUOTA_OK
from detent.kernel.retry import end_attempt

if TYPE_CHECKING:
    from detent.kernel.partition_state import PartitionState


def succeed(kernel: PartitionState, job: Job, evidence: bytes, reason: str, out: Outcome) -> None:
    """Commit RUNNING->SUCCEEDED unless the quota denies it; then the attempt ends over quota (X-018)."""
    verdict = kernel.verdict(job)
    if verdict == QUOTA_OK:
        out.record = kernel.move(out, job, "SUCCEEDED", evidence, kind=ev.RESULT, reason=reason, verdict=verdict)
        out.job = JobState.of(job)
        return
    kernel.trace(out, job, "SUCCEEDED", DENIED_QUOTA, verdict=verdict, reason=verdict)
    over_quota(kernel, job, verdict, out)


def over_quota(kernel: PartitionState, job: Job, verdict: str, out: Outcome) -> None:
    """End the attempt of a job over its quota, and refuse the end that was asked for."""
    end_over_quota(kernel, job, verdict, out)
    kernel.refuse(out, verdict, f"job {job.job_id!r} is over its quota", identity.JOB_TRANSITION, status=DENIED_QUOTA)
    out.job = JobState.of(job)


def end_over_quota(kernel: PartitionState, job: Job, verdict: str, out: Outcome) -> None:
    """End a running attempt whose job has used up a budget."""
    evidence = ev.encode_evidence(ev.QUOTA, verdict, job.lease_id, None, None, None)
    end = end_attempt(job, ev.QUOTA, None, kernel.config)
    out.record = kernel.move(out, job, end.to_state, evidence, kind=ev.QUOTA, reason=verdict, verdict=verdict)


def expire(kernel: PartitionState, job: Job, out: Outcome) -> None:
    """A lease ran out without a heartbeat: try again, or fail when the retries are used up (X-039)."""
    evidence = ev.encode_evidence(ev.EXPIRY, ev.REASON_LEASE_EXPIRED, job.lease_id, None, None, None)
    end = end_attempt(job, ev.EXPIRY, None, kernel.config)
    kernel.move(out, job, end.to_state, evidence, kind=ev.EXPIRY, reason=ev.REASON_LEASE_EXPIRED)


def abort(kernel: PartitionState, job: Job, code: str, out: Outcome) -> None:
    """A running job's own limit is reached: it ends now and is not tried again (X-091)."""
    evidence = ev.encode_evidence(ev.WATCHDOG, code, job.lease_id, None, None, None)
    end = end_attempt(job, ev.WATCHDOG, None, kernel.config)
    kernel.move(out, job, end.to_state, evidence, kind=ev.WATCHDOG, reason=code)


def cancel_by_batch(
    kernel: PartitionState, job: Job, kind: str, reason: str, detail_digest: bytes | None, out: Outcome
) -> Record:
    """End a waiting job in CANCELED by one atomic batch of legal moves under the scheduler's own lease (A.4).

    The job has left the queue already. Nothing of the batch is ever dispatched, and its last record answers every
    repeat of the cancellation.
    """
    path = ["RUNNING", "CANCELED"] if job.state == "QUEUED" else ["QUEUED", "RUNNING", "CANCELED"]
    first_key = lease_key(job.tenant_id, job.job_id, job.attempt_id, job.transition_seq)
    holder = kernel.own_holder
    attempt = job.attempt_id + (job.state == "RETRYING")
    lease_id = lease_key(job.tenant_id, job.job_id, attempt, job.transition_seq + len(path) - 2)
    evidence = ev.encode_evidence(kind, reason, lease_id, holder, detail_digest, None)
    committed = [
        kernel.move(
            out,
            job,
            to_state,
            evidence,
            kind=kind,
            reason=reason,
            holder=holder,
            batch=(first_key, index, len(path)),
        )
        for index, to_state in enumerate(path)
    ]
    return committed[-1]


def extend_lease(kernel: PartitionState, job: Job, tick: int, lease: str | None = None) -> bool:
    """Move a lease's end to ``tick`` plus its policy's extension, never backwards; says whether that changed anything.

    ``lease`` is a policy beside the job's own; of the two the longer one counts, and one that is not configured does not.
    """
    if job.heartbeat_tick is None or job.lease_expiry is None or tick < job.heartbeat_tick:
        return False
    job.heartbeat_tick = tick
    leases = kernel.config.leases
    named = [policy for name in (job.lease_policy_id, lease) if name is not None and (policy := leases.get(name))]
    ticks = max(policy.heartbeat_extension_ticks for policy in named)
    job.lease_expiry = max(job.lease_expiry, add_uint64(tick, ticks))
    return True


def conflict(
    kernel: PartitionState, job: Job, expected: int, to_state: str, operator: str, out: Outcome, **details: object
) -> None:
    """Refuse a request that expects another sequence, with what the caller needs to go on (PIPE-067, PIPE-068)."""
    # The schedule of a job that has ended may be gone from the configuration; then no retry is due.
    schedule = kernel.config.backoffs.get(job.backoff_schedule_id)
    if schedule is not None:
        details["retry_after_ms"] = delay_ms = schedule.delay_ms(job.conflicts)
        details["retry_after_ticks"] = ms_to_ticks(delay_ms, kernel.config.tick_ms)
    kernel.trace(out, job, to_state, CONFLICT)
    if not job.terminal:
        job.conflicts += 1
    kernel.refuse(
        out,
        "CONFLICT",
        f"job {job.job_id!r} stands at transition_seq {job.transition_seq}, attempt {job.attempt_id}: "
        f"the request for transition_seq {expected} does not fit",
        operator,
        status=CONFLICT,
        job_id=job.job_id,
        expected_transition_seq=expected,
        stored_transition_seq=job.transition_seq,
        committed_state=job.state,
        **details,
    )
