"""How each command about a job is decided. The kernel calls these; nothing else does.

Each handler looks, refuses or commits; the first failing check decides the code, in the order of the decisions'
table A.5, so that the same bad request always gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from detent.canon import UINT64_MAX, add_uint64, decode
from detent.canon.show import show
from detent.errors import Refused
from detent.kernel import commands as cmd
from detent.kernel import evidence as ev
from detent.kernel import identity, operators, run_handlers
from detent.kernel.history import Record
from detent.kernel.identity import chain_genesis, lease_key, partition_of
from detent.kernel.job import Job
from detent.kernel.manifest import JOB_KINDS, Manifest, RefusedManifest, VerifiedManifest, digest_fault, id_fault
from detent.kernel.moves import cancel_by_batch, conflict, extend_lease, over_quota, succeed
from detent.kernel.outcome import (
    CONFLICT,
    CONTRACT_VIOLATION,
    DEDUPLICATED,
    DENIED_QUOTA,
    REFUSED,
    Grant,
    HeartbeatRecord,
    JobState,
    Outcome,
)
from detent.kernel.policy import QUOTA_OK, RULES_ORIGIN_NAMED, RULES_STALE_TRACED
from detent.kernel.queue import Arrival, Enqueued
from detent.kernel.quota import add_used
from detent.kernel.records import submitted_record
from detent.kernel.retry import end_attempt
from detent.kernel.transition import transition
from detent.kernel.usage import leased_job, report_usage

if TYPE_CHECKING:
    from detent.kernel.partition_state import PartitionState

CLAIM_LIMIT_MAX = 10_000
"""Most leases one claim may ask for."""
CLAIM_NAMES_MAX = 256
"""Most workspaces, or kinds of jobs, that one claim may name."""
REQUEST_BYTES_MAX = 16 * 1024
"""Size of what a job may ask of the place where it runs."""
ORDER_BYTES_MAX = 48 * 1024
"""The most a scheduler is given at once."""


def submit(kernel: PartitionState, command: cmd.Submit, out: Outcome) -> None:
    """``JobSubmit_v1``: make a job in QUEUED, or say why not."""
    verified = command.manifest
    if isinstance(verified, RefusedManifest):
        return kernel.refuse_with(out, verified.refusal, identity.JOB_SUBMIT)
    if not isinstance(verified, VerifiedManifest):
        return kernel.refuse(
            out, "MANIFEST_SIGNATURE_INVALID", "the manifest has not been verified", identity.JOB_SUBMIT
        )
    manifest = verified.manifest
    if partition_of(manifest.job_id, kernel.config.partitions) != kernel.config.partition_id:
        return kernel.refuse(
            out, "NOT_PARTITION_OWNER", f"job {manifest.job_id!r} belongs to another partition", identity.JOB_SUBMIT
        )
    known = kernel.jobs.get(manifest.job_id) or kernel.history.ended_job(manifest.job_id)
    if known is not None:
        return _repeat_submit(kernel, known, verified, out)
    if refusal := _new_job_refusal(kernel, command, manifest):
        return kernel.refuse_with(out, refusal, identity.JOB_SUBMIT)
    placed = kernel.queue.admit(
        Arrival(
            manifest.job_id,
            manifest.priority,
            manifest.job_kind,
            manifest.may_be_evicted,
            manifest.pool_pin,
            command.request,
            kernel.crowded(),
            manifest.tenant_id,
            kernel.queued.get(manifest.tenant_id, 0),
        )
    )
    if not isinstance(placed, Enqueued):
        return kernel.refuse_with(out, placed, identity.JOB_SUBMIT)
    return _enter(kernel, command, verified, placed, out)


def _new_job_refusal(kernel: PartitionState, command: cmd.Submit, manifest: Manifest) -> Refused | None:
    """Why a job that is new here may not even be put to the queue."""
    if manifest.origin is None and kernel.config.rules >= RULES_ORIGIN_NAMED:
        message = (
            f"the manifest of job {manifest.job_id!r} does not name its ledger: sign it again with the ledger's origin"
        )
        return Refused("MANIFEST_ORIGIN_MISSING", message)
    if fault := manifest.policy_fault(kernel.config):
        return Refused("MANIFEST_SCHEMA_INVALID", fault)
    if command.run_id is not None:
        if fault := id_fault("run_id", command.run_id):
            return Refused("INVALID_PARAMS", fault)
        if refusal := run_handlers.run_elsewhere(kernel, command.run_id):
            return refusal
        run = kernel.runs.get(command.run_id)
        if run is None or run.tenant_id != manifest.tenant_id:
            message = f"tenant {manifest.tenant_id!r} has no open run {command.run_id!r}"
            return Refused("UNKNOWN_RUN", message, {"run_id": command.run_id})
    if command.request is not None and (type(command.request) is not bytes or len(command.request) > REQUEST_BYTES_MAX):
        return Refused("INVALID_PARAMS", f"request must be at most {REQUEST_BYTES_MAX} bytes")
    return None


def _enter(
    kernel: PartitionState, command: cmd.Submit, verified: VerifiedManifest, placed: Enqueued, out: Outcome
) -> None:
    """Make the job that the queue has taken, with its record, and cancel those that had to leave for it."""
    decided = out.decide(placed.decision)
    job = _new_job(kernel, verified, command.run_id)
    kernel.add_job(job)
    if command.run_id is not None:
        run = kernel.runs[command.run_id]
        run.jobs += 1
        run.live_jobs += 1
        kernel.touch_run(run)
    record = submitted_record(
        job,
        verified.envelope(),
        decision_digest=decided,
        partition_id=kernel.config.partition_id,
        tick=kernel.tick,
        signer_key_id=kernel.signer_key_id,
    )
    out.records.append(record)
    out.record = record
    for evicted, why in zip_longest(placed.evicted, placed.evictions):
        cancel_by_batch(kernel, kernel.jobs[evicted], ev.CANCEL, placed.reason_code, out.decide(why), out)
    out.job = JobState.of(job)


def _new_job(kernel: PartitionState, verified: VerifiedManifest, run_id: str | None) -> Job:
    manifest = verified.manifest
    manifest_hash = verified.hash
    return Job(
        job_id=manifest.job_id,
        tenant_id=manifest.tenant_id,
        run_id=run_id,
        job_kind=manifest.job_kind,
        manifest_hash=manifest_hash,
        payload_digest=manifest.payload_digest,
        priority=manifest.priority,
        lease_policy_id=manifest.lease_policy_id,
        backoff_schedule_id=manifest.backoff_schedule_id,
        quota_policy_hash=manifest.quota_policy_hash,
        max_retries=manifest.max_retries,
        max_interruptions=manifest.max_interruptions,
        retry_categories=manifest.retry_categories,
        submitted_tick=kernel.tick,
        head=chain_genesis(manifest.tenant_id, manifest.job_id, manifest_hash),
        queued_tick=kernel.tick,
    )


def _repeat_submit(kernel: PartitionState, known: Job, verified: VerifiedManifest, out: Outcome) -> None:
    """The same manifest again gets the job it made; another one under the same id is a conflict (PIPE-076)."""
    if known.tenant_id != verified.manifest.tenant_id or known.manifest_hash != verified.hash:
        return kernel.refuse(
            out,
            "CONFLICT",
            f"job {known.job_id!r} exists with another manifest",
            identity.JOB_SUBMIT,
            status=CONFLICT,
            job_id=known.job_id,
        )
    out.status = DEDUPLICATED
    out.job = JobState.of(known)
    return None


def claim(kernel: PartitionState, command: cmd.Claim, out: Outcome) -> None:
    """Dequeue and lease up to ``limit`` jobs to one replica; a job over its quota is cancelled instead (X-018)."""
    if fault := id_fault("replica_id", command.replica_id):
        return kernel.refuse(out, "INVALID_PARAMS", fault, identity.JOB_TRANSITION)
    if command.lease is not None and (fault := id_fault("lease", command.lease)):
        return kernel.refuse(out, "INVALID_PARAMS", fault, identity.JOB_TRANSITION)
    tenants, kinds, without, labels = command.tenants, command.kinds, command.without, command.labels
    if tenants is None and kinds is None and without is None and labels is None:
        return _lease_next(kernel, command.replica_id, command.limit, out, lease=command.lease)
    if fault := _suiting_fault(tenants, kinds, without, labels):
        return kernel.refuse(out, "INVALID_PARAMS", fault, identity.JOB_TRANSITION)
    offered = frozenset(labels or ())

    def suits(job_id: str) -> bool:
        job = kernel.jobs[job_id]
        if (without is not None and job_id in without) or not kernel.queue.labels_of(job_id) <= offered:
            return False
        return (tenants is None or job.tenant_id in tenants) and (kinds is None or job.job_kind in kinds)

    return _lease_next(kernel, command.replica_id, command.limit, out, suits, command.lease)


def _suiting_fault(tenants: object, kinds: object, without: object, labels: object) -> str | None:
    for name, value, known in (
        *(("tenants", tenants, None), ("kinds", kinds, JOB_KINDS)),
        *(("without", without, None), ("labels", labels, None)),
    ):
        if value is None:
            continue
        if type(value) is not tuple or not 1 <= len(value) <= CLAIM_NAMES_MAX:
            return f"{name} must be 1 to {CLAIM_NAMES_MAX} names, or left out"
        for one in value:
            if fault := id_fault(name, one):
                return fault
            if known is not None and one not in known:
                return f"{name} must be of {', '.join(sorted(known))}, not {show(one)}"
    return None


def dispatch(kernel: PartitionState, command: cmd.Dispatch, out: Outcome) -> None:
    """Dequeue and lease up to ``limit`` jobs to the replicas chosen for them."""
    _lease_next(kernel, None, command.limit, out)


def _lease_next(
    kernel: PartitionState,
    replica_id: str | None,
    limit: int,
    out: Outcome,
    suits: Callable[[str], bool] | None = None,
    lease: str | None = None,
) -> None:
    if type(limit) is not int or not 1 <= limit <= CLAIM_LIMIT_MAX:
        message = f"limit must be an integer from 1 to {CLAIM_LIMIT_MAX}, not {show(limit)}"
        return kernel.refuse(out, "INVALID_PARAMS", message, identity.JOB_TRANSITION)
    while len(out.grants) < limit and (placed := kernel.queue.take(replica_id, suits)) is not None:
        if isinstance(placed, Refused):
            return kernel.refuse_with(out, placed, identity.JOB_TRANSITION)
        job = kernel.jobs[placed.job_id]
        verdict = kernel.verdict(job)
        if verdict != QUOTA_OK:
            kernel.trace(out, job, "RUNNING", DENIED_QUOTA, verdict=verdict, reason=verdict)
            cancel_by_batch(kernel, job, ev.QUOTA, verdict, None, out)
            continue
        lease_id = lease_key(job.tenant_id, job.job_id, job.attempt_id, job.transition_seq)
        decided = out.decide(placed.decision)
        evidence = ev.encode_evidence(ev.DISPATCH, ev.REASON_DISPATCHED, lease_id, placed.replica_id, decided, None)
        out.record = kernel.move(
            out,
            job,
            "RUNNING",
            evidence,
            kind=ev.DISPATCH,
            reason=ev.REASON_DISPATCHED,
            verdict=verdict,
            dispatch=True,
            holder=placed.replica_id,
        )
        if (policy := kernel.config.leases.get(lease or "")) is not None:
            job.lease_expiry = max(job.lease_expiry or 0, add_uint64(kernel.tick, policy.lease_ttl_ticks))
        out.grants.append(Grant.of(job))
    return None


def finish(kernel: PartitionState, command: cmd.Finish, out: Outcome) -> None:
    """Close a leased attempt: SUCCEEDED, or what `end_attempt` decides for one that did not succeed."""
    operator = identity.JOB_TRANSITION
    ended = ev.Evidence(
        command.kind,
        command.reason_code,
        command.lease_id,
        detail_digest=command.detail_digest,
        category=command.category,
    )
    if fault := id_fault("job_id", command.job_id) or ended.fault() or _finish_fault(command):
        return kernel.refuse(out, "INVALID_PARAMS", fault, operator)
    evidence = ended.encode()
    job = kernel.jobs.get(command.job_id) or kernel.history.ended_job(command.job_id)
    if job is None:
        return kernel.refuse(out, "UNKNOWN_JOB", f"there is no job {command.job_id!r}", operator, job_id=command.job_id)
    if job.state != "RUNNING" or job.lease_id != command.lease_id:
        return _late_finish(kernel, job, command, evidence, out)
    if command.used is not None:
        after = add_used(job.usage, command.used)
        if isinstance(after, Refused):
            return kernel.refuse_with(out, after, operator)
        job.usage = after
    if command.ok:
        return succeed(kernel, job, evidence, command.reason_code, out)
    if command.used is not None and (verdict := kernel.verdict(job)) != QUOTA_OK:
        return over_quota(kernel, job, verdict, out)
    end = end_attempt(job, command.kind, command.category, kernel.config)
    out.record = kernel.move(out, job, end.to_state, evidence, kind=command.kind, reason=command.reason_code)
    out.job = JobState.of(job)
    return None


def _finish_fault(command: cmd.Finish) -> str | None:
    if type(command.ok) is not bool:
        return f"ok must be true or false, not {show(command.ok)}"
    if command.lease_id is None:
        return "lease_id must be a 32-byte digest"
    if command.kind not in ({ev.RESULT} if command.ok else {ev.RESULT, ev.WATCHDOG, *ev.INTERRUPTIONS}):
        return f"evidence {command.kind!r} does not end an attempt so"
    return None


def _late_finish(kernel: PartitionState, job: Job, command: cmd.Finish, evidence: bytes, out: Outcome) -> None:
    """A result for a lease that is not active: a repeat of the one that closed it, or stale, or contradicting it.

    Success and failure can carry the same evidence, so a repeat must also agree on which of them it was (X-035). A result that
    is not a repeat asked for a transition and got none: that leaves its event and counts (PIPE-007, PIPE-110).
    """
    closing = kernel.history.record(job.job_id, job.exit_seq) if job.exit_seq is not None else None
    if closing is not None and closing.evidence == evidence and _succeeded(closing) == command.ok:
        out.status = DEDUPLICATED
        out.record = closing
        out.job = JobState.of(job)
        return
    if kernel.config.rules >= RULES_STALE_TRACED:
        kernel.trace(out, job, "SUCCEEDED" if command.ok else "FAILED", REFUSED, reason="LEASE_INVALID")
    kernel.refuse(
        out,
        "LEASE_INVALID",
        f"the lease is not the active one of job {job.job_id!r}, which is {job.state}",
        identity.JOB_TRANSITION,
        job_id=job.job_id,
        state=job.state,
    )


def _succeeded(record: Record) -> bool:
    body = decode(record.body)
    return isinstance(body, dict) and body["to_state"] == "SUCCEEDED"


def cancel(kernel: PartitionState, command: cmd.Cancel, out: Outcome) -> None:
    """``JobCancel_v1``: end a job in CANCELED by legal moves, from wherever it stands."""
    operator = identity.JOB_CANCEL
    expected = command.expected_transition_seq
    fault = id_fault("tenant_id", command.tenant_id) or id_fault("job_id", command.job_id)
    fault = fault or ev.reason_fault(command.reason_code)
    if expected is not None and (type(expected) is not int or not 0 <= expected <= UINT64_MAX):
        fault = fault or f"expected_transition_seq must be an integer from 0 to 2^64-1, not {show(expected)}"
    if command.detail_digest is not None:
        fault = fault or digest_fault("detail_digest", command.detail_digest)
    if fault:
        return kernel.refuse(out, "INVALID_PARAMS", fault, operator)
    job = kernel.find(command.tenant_id, command.job_id)
    if job is None:
        message = f"tenant {command.tenant_id!r} has no job {command.job_id!r}"
        return kernel.refuse(out, "UNKNOWN_JOB", message, operator, job_id=command.job_id)
    if job.state == "CANCELED":
        out.status = DEDUPLICATED
        out.record = kernel.history.record(job.job_id, job.transition_seq - 1)
        out.job = JobState.of(job)
        return None
    if job.terminal:
        kernel.trace(out, job, "CANCELED", CONTRACT_VIOLATION, reason=command.reason_code)
        message = f"job {job.job_id!r} has already ended in {job.state}"
        return kernel.refuse(
            out, "CONTRACT_VIOLATION", message, operator, status=CONTRACT_VIOLATION, job_id=job.job_id, state=job.state
        )
    if expected is not None and expected != job.transition_seq:
        return conflict(kernel, job, expected, "CANCELED", operator, out)
    if job.state == "RUNNING":
        evidence = ev.encode_evidence(ev.CANCEL, command.reason_code, job.lease_id, None, command.detail_digest, None)
        out.record = kernel.move(out, job, "CANCELED", evidence, kind=ev.CANCEL, reason=command.reason_code)
    else:
        if job.state == "QUEUED":
            kernel.forget_queue(job.job_id)
        out.record = cancel_by_batch(kernel, job, ev.CANCEL, command.reason_code, command.detail_digest, out)
    out.job = JobState.of(job)
    return None


def heartbeat(kernel: PartitionState, command: cmd.Heartbeat, out: Outcome) -> None:
    """``JobHeartbeat_v1``: extend the lease of the active attempt (PIPE-073, PIPE-074)."""
    if command.lease is not None and (fault := id_fault("lease", command.lease)):
        return kernel.refuse(out, "INVALID_PARAMS", fault, identity.JOB_HEARTBEAT)
    if type(command.progress) is not bool:
        message = f"progress must be true or false, not {show(command.progress)}"
        return kernel.refuse(out, "INVALID_PARAMS", message, identity.JOB_HEARTBEAT)
    job = leased_job(kernel, command, out)
    if job is None:
        return None
    extended = extend_lease(kernel, job, command.tick, command.lease)
    out.changed = extended
    if command.progress:
        kernel.queue.progressed(job.job_id, kernel.tick)
        out.changed = True
    expiry = job.lease_expiry or 0
    out.heartbeat = HeartbeatRecord(job.job_id, command.lease_id, command.tick, expiry, extended)
    return None


_BEATS = ((str, bytes), (str, bytes, str))


def take_beats(kernel: PartitionState, command: cmd.Resume, out: Outcome) -> bool:
    """Extend the leases whose heartbeats came during the owner's own stall, before time moves on (X-180).

    A beat for a lease that is not active is not an error: its worker will learn that by its next request.
    """
    for beat in command.beats if isinstance(command.beats, tuple) else (None,):
        if type(beat) is not tuple or tuple(map(type, beat)) not in _BEATS:
            message = "beats are pairs of job_id and lease_id, or these with a lease policy"
            kernel.refuse(out, "INVALID_PARAMS", message, identity.JOB_HEARTBEAT)
            return False
    for job_id, lease_id, *named in command.beats:
        job = kernel.jobs.get(job_id)
        if job is not None and job.state == "RUNNING" and job.lease_id == lease_id:
            extend_lease(kernel, job, max(command.tick, kernel.tick), named[0] if named else None)
    return True


def due_fault(command: cmd.AdvanceTick | cmd.Resume) -> str | None:
    """Say what is wrong with the bound of a command that lets time pass, or nothing."""
    if type(command.due_max) is not int or not 1 <= command.due_max <= UINT64_MAX:
        return f"due_max must be an integer from 1 to 2^64-1, not {show(command.due_max)}"
    return None


def order(kernel: PartitionState, command: cmd.Order, out: Outcome) -> None:
    """Hand the scheduler what is meant for it; what it refuses changes nothing."""
    if type(command.name) is not str or type(command.data) is not bytes or len(command.data) > ORDER_BYTES_MAX:
        message = f"an order has a name and at most {ORDER_BYTES_MAX} bytes"
        return kernel.refuse(out, "INVALID_PARAMS", message, identity.JOB_TRANSITION)
    answer = kernel.queue.order(command.name, command.data, kernel.tick)
    if isinstance(answer, Refused):
        return kernel.refuse_with(out, answer, identity.JOB_TRANSITION)
    out.answer = answer
    out.changed = True
    return None


def advance(kernel: PartitionState, command: cmd.AdvanceTick | cmd.Resume, out: Outcome) -> None:  # noqa: ARG001 - time has passed already
    """Nothing is left to decide: time passed before this was called."""
    out.changed = True


HANDLERS: dict[type, Callable[[PartitionState, Any, Outcome], None]] = {
    cmd.Submit: submit,
    cmd.Transition: transition,
    cmd.Heartbeat: heartbeat,
    cmd.Cancel: cancel,
    cmd.Claim: claim,
    cmd.Dispatch: dispatch,
    cmd.Order: order,
    cmd.Finish: finish,
    cmd.ReportUsage: report_usage,
    cmd.AdvanceTick: advance,
    cmd.Resume: advance,
    cmd.StartRun: run_handlers.start_run,
    cmd.ReuseStep: run_handlers.reuse_step,
    cmd.ReuseRun: run_handlers.reuse_run,
    cmd.EndRun: run_handlers.end_run,
    cmd.RaiseEpoch: run_handlers.raise_epoch,
    cmd.ChangeTrust: run_handlers.change_trust,
    cmd.Erase: run_handlers.erase,
    cmd.Operate: operators.operate,
    cmd.EnrollWorker: operators.enroll_worker,
    cmd.RetireWorker: operators.retire_worker,
}
