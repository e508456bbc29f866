"""The fold: what a job's next record must say, and what the job is afterwards.

A transition record leaves its writer hardly any freedom. Given where the job stands and the evidence, everything in it is
determined but the target state, the tick and the quota verdict. So a record is checked by building the record that would
be right and comparing bytes: one comparison covers canonical form, exact fields, chain, sequence, attempt, formulas,
lease, signer. Only when the bytes differ is it asked which of these it was (`differences`).

`rule_faults` then asks what bytes alone cannot show: whether the kernel would have decided so. The rules are written here
a second time, on purpose, from the decisions and not from the kernel's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from detent.canon import UINT64_MAX
from detent.canon.late import dataclass
from detent.kernel import LEGAL, KernelConfig, State, lease_key, request_digest, transition_key
from detent.kernel import evidence as ev
from detent.kernel.policy import QUOTA_OK
from detent.ledger.schema import SCHEDULER, Grounds
from detent.ledger.tables import JobFold
from detent.ledger.templates import OwnerParts, job_parts, transition_body
from detent.ledger.trust_config import TrustFault

CANCEL_PATHS: Final[Mapping[int, tuple[str, ...]]] = {
    2: ("RUNNING", "CANCELED"),
    3: ("QUEUED", "RUNNING", "CANCELED"),
}
"""The ways of a cancel batch, by its length (A.4)."""

_STATES: Final = frozenset(state.value for state in State)
_LEASE_ENDERS: Final = frozenset({ev.CANCEL, ev.WATCHDOG})
"""Evidence that ends a lease without naming it."""
_KERNEL_DECIDES: Final = frozenset({ev.EXPIRY, ev.QUOTA})
"""Ends of an attempt for which only the kernel chooses the next state."""


@dataclass(slots=True)
class CancelBatch:
    """A cancel batch that has begun and must go on with the very next record."""

    job_id: str
    batch_id: bytes
    length: int
    next_index: int
    next_position: int
    evidence_ref: str


def expected_transition(
    fold: JobFold,
    fields: Mapping[str, Any],
    evidence_hex: str,
    reason: str,
    batch: CancelBatch | None,
    owner: OwnerParts,
) -> tuple[bytes, bytes] | None:
    """The bytes that the job's next record must have, and its key; None when a free field is not even of its type.

    ``fields`` are the record's own, decoded loosely: only the target state, tick, verdict and length of a cancel batch are
    taken from there.
    """
    get = fields.get
    to_state, tick, verdict, length = get("to_state"), get("tick"), get("quota_verdict"), get("batch_len")
    if type(to_state) is not str or type(tick) is not int or type(length) is not int or type(verdict) is not str:
        return None
    owner_verdict = owner.verdicts.get(verdict)
    if owner_verdict is None or to_state not in _STATES or tick < 0 or length < 0:
        return None
    parts = fold.parts
    if parts is None:
        parts = fold.parts = job_parts(fold.tenant_id, fields["job_id"], fold.manifest_hash, fold.quota_policy_hash)
    return transition_body(
        parts,
        owner_verdict,
        (fold.state, to_state, length, 0 if batch is None else batch.next_index),
        fold.attempt_id,
        fold.transition_seq,
        tick,
        evidence_hex,
        reason,
        fold.lease_id,
        None if batch is None else batch.batch_id,
        fold.head,
    )


def rule_faults(
    fold: JobFold, fields: Mapping[str, Any], grounds: Grounds, config: KernelConfig | None, partition: int
) -> list[TrustFault]:
    """What the kernel would not have decided so. Empty for every record of an honest owner."""
    to_state, kind, verdict = fields["to_state"], grounds.kind, fields["quota_verdict"]
    kinds = ev.KINDS_FOR.get((fold.state, to_state))
    if kinds is None:
        return [TrustFault("TRANSITION_ILLEGAL", f"{fold.state}->{to_state} is not a legal transition")]
    if kind not in kinds:
        return [TrustFault("EVIDENCE_INVALID", f"{kind} does not justify {fold.state}->{to_state}")]
    if fields["batch_len"] != 1:
        faults = list(_cancel_batch_faults(fold, fields, grounds, partition))
    elif to_state == "RUNNING":
        if kind == ev.DISPATCH and verdict == QUOTA_OK and grounds.replica_id is not None:
            return []
        faults = list(_dispatch_faults(grounds, verdict))
    elif to_state == "SUCCEEDED":
        if verdict == QUOTA_OK and grounds.lease_id == fold.lease_id:
            return []
        faults = list(_exit_faults(fold, fields, grounds, config))
    elif to_state == "QUEUED":
        faults = list(_requeue_faults(fold, fields["tick"], grounds))
    else:
        faults = list(_exit_faults(fold, fields, grounds, config))
    if kind == ev.QUOTA and (verdict == QUOTA_OK or verdict != grounds.reason_code):
        message = f"ended over quota with reason {grounds.reason_code}, verdict {verdict}"
        faults.append(TrustFault("QUOTA_WRONG", message))
    return faults


def advance(
    fold: JobFold,
    fields: Mapping[str, Any],
    key: bytes,
    grounds: Grounds | None,
    head: bytes,
    config: KernelConfig | None,
) -> None:
    """Make the fold what it is after the record."""
    to_state, tick = fields["to_state"], fields["tick"]
    fold.head = head
    fold.transition_seq += 1
    fold.state = to_state
    fold.moved_tick = tick
    fold.reason = fields["reason_code"]
    if to_state == "RUNNING":
        fold.lease_id = key
        fold.holder = None if grounds is None else grounds.replica_id
        fold.dispatched = fold.dispatched or fields["dispatch"]
        policy = None if config is None else config.leases.get(fold.lease_policy_id)
        fold.due = min(UINT64_MAX, tick + (0 if policy is None else policy.lease_ttl_ticks))
        return
    if to_state == "QUEUED":
        fold.attempt_id += 1
        return
    fold.lease_id = fold.holder = None
    fold.exit_seq = fold.transition_seq - 1
    if to_state == "RETRYING":
        if grounds is not None and grounds.kind in ev.INTERRUPTIONS:
            pause = config.interruption_ticks(fold.interruptions) if config is not None else 0
            fold.due = min(UINT64_MAX, tick + pause)
            fold.interruptions += 1
        else:
            known = config is not None and fold.backoff_schedule_id in config.backoffs
            delay = config.backoff_ticks(fold.backoff_schedule_id, fold.failures) if config and known else 0
            fold.due = min(UINT64_MAX, tick + delay)
            fold.failures += 1


def differences(
    fold: JobFold, fields: Mapping[str, Any], reference: str | None, batch: CancelBatch | None, place: tuple[int, bytes]
) -> Iterator[TrustFault]:
    """Which of a record's fields are not what they must be. ``fields`` have passed the schema.

    Formulas are held against the record's own words, the rest against the job: a record that was removed shows as a gap
    in sequence and chain, not as a dozen wrong digests.
    """
    partition, signer = place
    if fields["partition_id"] != partition:
        yield TrustFault("RECORD_PARTITION_WRONG", f"the record is of partition {fields['partition_id']}")
    if fields["signer_key_id"] != signer:
        yield TrustFault("RECORD_SIGNER_WRONG", f"the record names signer {fields['signer_key_id'].hex()[:16]}")
    for name, ours in (
        ("tenant_id", fold.tenant_id),
        ("job_manifest_hash", fold.manifest_hash),
        ("quota_policy_hash", fold.quota_policy_hash),
    ):
        if ours and fields[name] != ours:
            yield TrustFault("JOB_MIXED", f"the record's {name} is not the job's")
    if fields["transition_seq"] != fold.transition_seq:
        yield TrustFault("SEQ_WRONG", f"transition {fields['transition_seq']} where {fold.transition_seq} is due")
    if fields["prev_chain_hash"] != fold.head:
        yield TrustFault("CHAIN_BROKEN", "the record does not follow the job's last record")
    if fields["attempt_id"] != fold.attempt_id:
        yield TrustFault("ATTEMPT_WRONG", f"attempt_id {fields['attempt_id']} where {fold.attempt_id} is due")
    if fields["from_state"] != fold.state:
        yield TrustFault("STATE_WRONG", f"the record starts from {fields['from_state']}, the job is {fold.state}")
    yield from _formula_differences(fold, fields, reference)
    yield from _batch_differences(fields, batch)


def _formula_differences(fold: JobFold, fields: Mapping[str, Any], reference: str | None) -> Iterator[TrustFault]:
    if (fields["from_state"], fields["to_state"]) not in LEGAL:
        yield TrustFault(
            "TRANSITION_ILLEGAL", f"{fields['from_state']}->{fields['to_state']} is not a legal transition"
        )
    key = transition_key(fields["tenant_id"], fields["job_id"], fields["attempt_id"], fields["transition_seq"])
    if fields["idempotency_key"] != key:
        yield TrustFault("TRANSITION_KEY_WRONG", "the idempotency key is not that of the transition")
    if fields["request_digest"] != request_digest(fields["from_state"], fields["to_state"], fields["evidence_ref"]):
        yield TrustFault("REQUEST_DIGEST_WRONG", "the request digest is not that of the request")
    if reference is not None and fields["evidence_ref"] != reference:
        yield TrustFault(
            "EVIDENCE_DIGEST_WRONG", f"the record names {fields['evidence_ref'][:80]}, the evidence is {reference}"
        )
    lease_id = key if fields["to_state"] == "RUNNING" else fold.lease_id
    if fields["lease_id"] != lease_id:
        yield TrustFault("LEASE_WRONG", "the record's lease is not the job's")
    if fields["dispatch"] != (fields["to_state"] == "RUNNING" and fields["batch_len"] == 1):
        yield TrustFault("DISPATCH_WRONG", f"dispatch is {fields['dispatch']} for a move to {fields['to_state']}")


def _batch_differences(fields: Mapping[str, Any], batch: CancelBatch | None) -> Iterator[TrustFault]:
    if batch is None:
        expected = (fields["idempotency_key"], 0, fields["batch_len"] if fields["batch_len"] in {1, 2, 3} else 1)
    else:
        expected = (batch.batch_id, batch.next_index, batch.length)
    if (fields["batch_id"], fields["batch_index"], fields["batch_len"]) != expected:
        message = f"place {fields['batch_index']} of {fields['batch_len']} where {expected[1]} of {expected[2]} is due"
        yield TrustFault("CANCEL_BATCH_BROKEN", message)


def _dispatch_faults(grounds: Grounds, verdict: str) -> Iterator[TrustFault]:
    if grounds.kind != ev.DISPATCH or grounds.replica_id is None:
        yield TrustFault("EVIDENCE_INVALID", "a dispatch needs evidence that names a replica")
    if verdict != QUOTA_OK:
        yield TrustFault("QUOTA_WRONG", f"dispatched although the verdict is {verdict}")


def _requeue_faults(fold: JobFold, tick: int, grounds: Grounds) -> Iterator[TrustFault]:
    if grounds.kind != ev.RETRY_READY or grounds.reason_code != ev.REASON_RETRY_READY:
        yield TrustFault("EVIDENCE_INVALID", "a job goes back to the queue because its wait is over, not otherwise")
    if tick < fold.due:
        yield TrustFault("LEASE_TIME_WRONG", f"back in the queue at tick {tick}, its wait lasts until {fold.due}")


def _exit_faults(
    fold: JobFold, fields: Mapping[str, Any], grounds: Grounds, config: KernelConfig | None
) -> Iterator[TrustFault]:
    """Leaving RUNNING by an own record: lease, verdict, retry rules, expiry."""
    kind, to_state = grounds.kind, fields["to_state"]
    if kind not in _LEASE_ENDERS and grounds.lease_id != fold.lease_id:
        yield TrustFault("LEASE_WRONG", "the evidence does not name the active lease")
    if to_state == "SUCCEEDED" and fields["quota_verdict"] != QUOTA_OK:
        yield TrustFault("QUOTA_WRONG", f"succeeded although the verdict is {fields['quota_verdict']}")
    if kind == ev.EXPIRY:
        if grounds.reason_code != ev.REASON_LEASE_EXPIRED:
            yield TrustFault("EVIDENCE_INVALID", f"a lease expired with reason {grounds.reason_code}")
        if fields["tick"] < fold.due:
            yield TrustFault("LEASE_TIME_WRONG", f"expired at tick {fields['tick']}, the lease lasts until {fold.due}")
    if to_state == "RETRYING" or kind in _KERNEL_DECIDES:
        right = _attempt_end(fold, grounds, config)
        if right is not None and right != to_state:
            yield TrustFault("RETRY_NOT_ALLOWED", f"the attempt ended in {to_state}, the rules say {right}")


def _attempt_end(fold: JobFold, grounds: Grounds, config: KernelConfig | None) -> str | None:
    """The state that an attempt which did not succeed leads to (A.7); None when the configuration is not known."""
    kind, final = grounds.kind, "FAILED"
    if kind == ev.QUOTA:
        policy = None if config is None else config.quotas.get(fold.quota_policy_hash)
        if config is None or policy is None:
            return None
        retryable = policy.retries_allowed
        final = "CANCELED" if config.on_quota_running == "cancel" else "FAILED"
    elif kind == ev.RESULT:
        retryable = grounds.category in fold.retry_categories
    else:
        retryable = kind == ev.EXPIRY or kind in ev.INTERRUPTIONS
    if kind in ev.INTERRUPTIONS:
        spent = fold.interruptions >= fold.max_interruptions
    else:
        spent = fold.failures >= fold.max_retries
    return "RETRYING" if retryable and not spent else final


def _cancel_batch_faults(
    fold: JobFold, fields: Mapping[str, Any], grounds: Grounds, partition: int
) -> Iterator[TrustFault]:
    """Conditions 1 to 7 of A.4, as far as one record shows them."""
    length, index, to_state = fields["batch_len"], fields["batch_index"], fields["to_state"]
    path = CANCEL_PATHS.get(length)
    if path is None or index >= length or path[index] != to_state:
        yield TrustFault("CANCEL_BATCH_BROKEN", f"{to_state} is not step {index} of a cancel batch of {length}")
        return
    if grounds.kind not in {ev.CANCEL, ev.QUOTA} or grounds.replica_id != f"{SCHEDULER}{partition}":
        yield TrustFault("EVIDENCE_INVALID", "a cancel batch runs under the scheduler's own lease")
    if to_state == "RUNNING":
        lease_id = lease_key(fold.tenant_id, fields["job_id"], fold.attempt_id, fold.transition_seq)
        if grounds.lease_id != lease_id:
            yield TrustFault("LEASE_WRONG", "the evidence does not name the scheduler's lease")
