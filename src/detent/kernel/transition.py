"""``JobTransition_v1``: one legal move of one job, checked in a fixed order (A.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.canon import UINT64_MAX, decode
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel import evidence as ev
from detent.kernel import identity
from detent.kernel.commands import Transition
from detent.kernel.evidence import Evidence
from detent.kernel.history import Record
from detent.kernel.identity import lease_key, partition_of, request_digest, transition_key
from detent.kernel.job import Job
from detent.kernel.manifest import id_fault
from detent.kernel.moves import cancel_by_batch, conflict, succeed
from detent.kernel.outcome import (
    CONTRACT_VIOLATION,
    DEDUPLICATED,
    DENIED_QUOTA,
    REFUSED,
    Grant,
    JobState,
    Outcome,
)
from detent.kernel.policy import QUOTA_OK
from detent.kernel.retry import end_attempt
from detent.kernel.table import LEGAL, State

if TYPE_CHECKING:
    from detent.kernel.partition_state import PartitionState

OPERATOR = identity.JOB_TRANSITION
ATTEMPT_MISMATCH = "ATTEMPT_MISMATCH"


def transition(kernel: PartitionState, command: Transition, out: Outcome) -> None:
    """Commit the move, or refuse it by the first check of table A.5 that fails."""
    pair = (command.from_state, command.to_state)
    if fault := _argument_fault(command):
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    if pair not in LEGAL:
        return _violation(kernel, command, f"{pair[0]}->{pair[1]} is not a legal transition", out)
    raw = command.evidence if command.evidence is not None else _known_evidence(kernel, command)
    if raw is None:
        message = f"evidence_ref {show(command.evidence_ref)} names no evidence of this job"
        return kernel.refuse(out, "INVALID_PARAMS", message, OPERATOR)
    evidence = Evidence.decode(raw)
    if fault := _kind_fault(command, evidence):
        return kernel.refuse(out, "INVALID_PARAMS", fault, OPERATOR)
    job = kernel.find(command.tenant_id, command.job_id)
    if job is None:
        message = f"tenant {command.tenant_id!r} has no job {command.job_id!r}"
        return kernel.refuse(out, "UNKNOWN_JOB", message, OPERATOR, job_id=command.job_id)
    if not _owned(kernel, command):
        message = f"job {command.job_id!r} belongs to another owner"
        return kernel.refuse(out, "NOT_PARTITION_OWNER", message, OPERATOR, job_id=command.job_id)
    if command.expected_transition_seq < job.transition_seq:
        return _known_key(kernel, job, command, raw, out)
    if command.expected_transition_seq != job.transition_seq:
        return conflict(kernel, job, command.expected_transition_seq, command.to_state, OPERATOR, out)
    if command.attempt_id != job.attempt_id:
        return conflict(
            kernel,
            job,
            command.expected_transition_seq,
            command.to_state,
            OPERATOR,
            out,
            detail=ATTEMPT_MISMATCH,
            stored_attempt_id=job.attempt_id,
        )
    if command.from_state != job.state:
        return _violation(kernel, command, f"job {job.job_id!r} is {job.state}, not {command.from_state}", out)
    return _decide(kernel, job, command, raw, evidence, out)


def _decide(
    kernel: PartitionState, job: Job, command: Transition, raw: bytes, evidence: Evidence, out: Outcome
) -> None:
    """Checks 9 to 12: lease, retry, quota, commit."""
    if job.state == "RUNNING" and (fault := _lease_fault(job, evidence)):
        return _refuse(kernel, job, command, "LEASE_INVALID", fault, out)
    if command.to_state == "RETRYING":
        end = end_attempt(job, evidence.kind, evidence.category, kernel.config)
        if end.refusal is not None:
            message = f"job {job.job_id!r} may not be retried after {evidence.reason_code}"
            return _refuse(kernel, job, command, end.refusal, message, out)
    if command.to_state == "QUEUED":
        # A retry that is ready and has room was moved before this command was looked at, so this one comes too early.
        message = f"job {job.job_id!r} waits until tick {job.ready_tick} and for room in the queue"
        return _refuse(kernel, job, command, "NOT_RETRYABLE", message, out)
    if command.to_state == "SUCCEEDED":
        return succeed(kernel, job, raw, evidence.reason_code, out)
    if command.to_state == "RUNNING":
        granted = lease_key(job.tenant_id, job.job_id, job.attempt_id, job.transition_seq)
        if evidence.lease_id not in {None, granted}:
            message = f"the evidence names another lease than the one job {job.job_id!r} would get"
            return _refuse(kernel, job, command, "LEASE_INVALID", message, out)
        return _start(kernel, job, raw, evidence, out)
    out.record = kernel.move(out, job, command.to_state, raw, kind=evidence.kind, reason=evidence.reason_code)
    out.job = JobState.of(job)
    return None


def _start(kernel: PartitionState, job: Job, raw: bytes, evidence: Evidence, out: Outcome) -> None:
    """QUEUED->RUNNING by request: a dispatch, denied when the job is over its quota."""
    kernel.forget_queue(job.job_id)
    verdict = kernel.verdict(job)
    if verdict != QUOTA_OK:
        kernel.trace(out, job, "RUNNING", DENIED_QUOTA, verdict=verdict, reason=verdict)
        out.record = cancel_by_batch(kernel, job, ev.QUOTA, verdict, None, out)
        kernel.refuse(out, verdict, f"job {job.job_id!r} is over its quota", OPERATOR, status=DENIED_QUOTA)
        out.job = JobState.of(job)
        return
    out.record = kernel.move(
        out,
        job,
        "RUNNING",
        raw,
        kind=ev.DISPATCH,
        reason=evidence.reason_code,
        verdict=verdict,
        dispatch=True,
        holder=evidence.replica_id,
    )
    out.grants.append(Grant.of(job))
    out.job = JobState.of(job)


def _argument_fault(command: Transition) -> str | None:
    if fault := id_fault("tenant_id", command.tenant_id) or id_fault("job_id", command.job_id):
        return fault
    for name in ("attempt_id", "expected_transition_seq"):
        value = getattr(command, name)
        if type(value) is not int or not 0 <= value <= UINT64_MAX:
            return f"{name} must be an integer from 0 to 2^64-1, not {show(value)}"
    for name in ("from_state", "to_state"):
        value = getattr(command, name)
        if not isinstance(value, str) or value not in State.__members__:
            return f"{name} must be one of {', '.join(State.__members__)}, not {show(value)}"
    if command.epoch is not None and type(command.epoch) is not int:
        return f"epoch must be an integer, not {show(command.epoch)}"
    return _evidence_fault(command)


def _evidence_fault(command: Transition) -> str | None:
    """Say what is wrong with the evidence as such, independent of its move."""
    if command.evidence_ref is not None and not isinstance(command.evidence_ref, str):
        return f"evidence_ref must be a text, not {show(command.evidence_ref)}"
    if command.evidence is None:
        return None
    if type(command.evidence) is not bytes:
        return f"evidence must be bytes, not {show(command.evidence)}"
    if command.evidence_ref is not None and command.evidence_ref != ev.evidence_ref(command.evidence):
        return "evidence_ref is not the digest of the evidence given with it"
    try:
        Evidence.decode(command.evidence)
    except InvalidInput as exc:
        return str(exc)
    return None


def _kind_fault(command: Transition, evidence: Evidence) -> str | None:
    """Say why the evidence cannot justify the move, or nothing (X-064)."""
    if evidence.kind not in ev.KINDS_FOR[command.from_state, command.to_state]:
        return f"evidence of kind {evidence.kind!r} cannot justify {command.from_state}->{command.to_state}"
    if command.to_state == "RUNNING" and (evidence.kind != ev.DISPATCH or evidence.replica_id is None):
        return "QUEUED->RUNNING needs evidence of kind 'dispatch' that names a replica_id"
    return None


def _known_evidence(kernel: PartitionState, command: Transition) -> bytes | None:
    """Evidence that an earlier record of the job carries under this reference: how a repeat may name it."""
    job = kernel.find(command.tenant_id, command.job_id)
    if job is None or command.expected_transition_seq >= job.transition_seq:
        return None
    record = kernel.history.record(command.job_id, command.expected_transition_seq)
    if record is None or record.evidence is None or ev.evidence_ref(record.evidence) != command.evidence_ref:
        return None
    return record.evidence


def _owned(kernel: PartitionState, command: Transition) -> bool:
    if command.epoch is not None and command.epoch != kernel.epoch:
        return False
    return partition_of(command.job_id, kernel.config.partitions) == kernel.config.partition_id


def _known_key(kernel: PartitionState, job: Job, command: Transition, raw: bytes, out: Outcome) -> None:
    """The sequence is taken: the same request is a repeat and gets its record, another one is a conflict (X-035)."""
    record = kernel.history.record(job.job_id, command.expected_transition_seq)
    if record is not None and _is_repeat(record, job, command, raw):
        out.status = DEDUPLICATED
        out.record = record
        out.job = JobState.of(job)
        kernel.trace(
            out,
            job,
            command.to_state,
            DEDUPLICATED,
            from_state=command.from_state,
            seq=command.expected_transition_seq,
            attempt_id=command.attempt_id,
        )
        return
    conflict(kernel, job, command.expected_transition_seq, command.to_state, OPERATOR, out)


def _is_repeat(record: Record, job: Job, command: Transition, raw: bytes) -> bool:
    committed = decode(record.body)
    if not isinstance(committed, dict):
        return False
    key = transition_key(job.tenant_id, job.job_id, command.attempt_id, command.expected_transition_seq)
    asked = request_digest(command.from_state, command.to_state, ev.evidence_ref(raw))
    return (committed["idempotency_key"], committed["request_digest"]) == (key, asked)


def _lease_fault(job: Job, evidence: Evidence) -> str | None:
    """Leaving RUNNING needs the active lease, or a reason that ends leases by itself (check 9).

    Such a reason need not name the lease; but evidence that names another one speaks of another attempt.
    """
    if evidence.kind in {ev.CANCEL, ev.WATCHDOG} and evidence.lease_id is None:
        return None
    if evidence.kind in {ev.EXPIRY, ev.QUOTA}:
        return f"the lease of job {job.job_id!r} has not ended by {evidence.kind}: the kernel itself decides that"
    if evidence.lease_id != job.lease_id:
        return f"the evidence does not name the active lease of job {job.job_id!r}"
    return None


def _violation(kernel: PartitionState, command: Transition, message: str, out: Outcome) -> None:
    """Refuse an illegal move; it leaves a trace event when there is a job to speak of (PIPE-037)."""
    job = kernel.find(command.tenant_id, command.job_id)
    if job is not None:
        kernel.trace(out, job, command.to_state, CONTRACT_VIOLATION, from_state=command.from_state)
    kernel.refuse(
        out,
        "CONTRACT_VIOLATION",
        message,
        OPERATOR,
        status=CONTRACT_VIOLATION,
        job_id=command.job_id,
        from_state=command.from_state,
        to_state=command.to_state,
    )


def _refuse(kernel: PartitionState, job: Job, command: Transition, code: str, message: str, out: Outcome) -> None:
    kernel.trace(out, job, command.to_state, REFUSED, reason=code)
    kernel.refuse(out, code, message, OPERATOR, job_id=job.job_id, state=job.state)
