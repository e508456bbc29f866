"""What the kernel is called, and the digests that name what it makes.

What the kernel is called, and the six operators it is made of (PIPE-001 to PIPE-003).

The digests that name things: transitions, leases, requests, chains, the whole log.

The formulas are the contract's (or fixed beside it in the decisions), so they carry no domain label of ours.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, count

from detent.canon import UINT64_MAX, encode, encode_trusted, sha256
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput

ORCHESTRATOR_VERSION = "UML_OS.Pipeline.Orchestrator_v1"
SPEC_DATE = "2026-02-18"
SPEC_AUTHOR = "Olejar Damir"
EQC_COMPLIANCE = "EQC v1.1 Option A (single merged specification)"

JOB_SUBMIT = "UML_OS.Pipeline.JobSubmit_v1"
JOB_TRANSITION = "UML_OS.Pipeline.JobTransition_v1"
JOB_HEARTBEAT = "UML_OS.Pipeline.JobHeartbeat_v1"
JOB_CANCEL = "UML_OS.Pipeline.JobCancel_v1"
JOB_QUERY = "UML_OS.Pipeline.JobQuery_v1"
ERROR_EMIT = "UML_OS.Error.Emit_v1"


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as its contract describes it: what goes in, what comes out, how it behaves."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    category: str = "Orchestration"
    purity: str = "IO"
    determinism: str = "deterministic"


OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        Operator(JOB_SUBMIT, ("tenant_id", "signed_manifest"), ("job_state", "submit_record")),
        Operator(
            JOB_TRANSITION,
            (
                "tenant_id",
                "job_id",
                "attempt_id",
                "expected_transition_seq",
                "from_state",
                "to_state",
                "evidence_ref",
            ),
            ("transition_record",),
        ),
        Operator(JOB_HEARTBEAT, ("job_id", "lease_id", "tick"), ("heartbeat_record",)),
        Operator(
            JOB_CANCEL,
            ("tenant_id", "job_id", "expected_transition_seq?", "reason_code", "evidence_ref"),
            ("transition_record",),
        ),
        Operator(JOB_QUERY, ("tenant_id", "job_id"), ("job_state",)),
        Operator(
            ERROR_EMIT,
            ("t", "failure_code", "failure_operator", "replay_token", "diagnostics"),
            ("error_record",),
            category="Error",
        ),
    )
}


def transition_key(tenant_id: str, job_id: str, attempt_id: int, transition_seq: int) -> bytes:
    """Name one transition of one attempt: the contract's ``idempotency_key`` (PIPE-063)."""
    for number in (attempt_id, transition_seq):
        if type(number) is not int or not 0 <= number <= UINT64_MAX:
            raise InvalidInput(f"attempt_id and transition_seq are integers from 0 to 2^64-1, not {show(number)}")
    return sha256(encode_trusted([tenant_id, job_id, attempt_id, transition_seq]))


def lease_key(tenant_id: str, job_id: str, attempt_id: int, granting_seq: int) -> bytes:
    """Name a job lease by the transition that granted it (X-036).

    Computable by anyone: it says which lease is meant, it is not a credential.
    """
    return transition_key(tenant_id, job_id, attempt_id, granting_seq)


def request_digest(from_state: str, to_state: str, evidence_ref: str) -> bytes:
    """Digest of what a transition request asks for beyond its key: tells a repeat from a conflict (X-035)."""
    return sha256(encode_trusted([from_state, to_state, evidence_ref]))


def chain_genesis(tenant_id: str, job_id: str, job_manifest_hash: bytes) -> bytes:
    """The hash a job's chain of records starts from (X-050)."""
    return sha256(encode_trusted(["chain/v1", tenant_id, job_id, job_manifest_hash]))


def partition_of(job_id: str, partitions: int) -> int:
    """The partition that owns a job: its id's digest as a big-endian number, modulo P (PIPE-061)."""
    if partitions < 1:
        raise InvalidInput(f"there is at least one partition, not {partitions}")
    if partitions == 1:
        return 0
    return int.from_bytes(sha256(job_id.encode("utf-8")), "big") % partitions


def same_partition(anchor: str, partitions: int) -> Callable[[str], bool] | None:
    """Whether an id lies in the partition of another one; None where every id does."""
    if partitions == 1:
        return None
    wanted = partition_of(anchor, partitions)
    return lambda name: partition_of(name, partitions) == wanted


def chosen(candidates: Iterable[str], suits: Callable[[str], bool] | None) -> str:
    """The first id that suits, such as one in the partition of a run: it is the same each time it is chosen."""
    return next(name for name in candidates if suits is None or suits(name))


def id_in_run(run_id: str, name: str, partitions: int) -> str:
    """The id of a job that a run names: ``run/name``, or ``run/name~1`` and so on, the first in the partition of the run."""
    own = f"{run_id}/{name}"
    if partitions == 1:
        return own
    return chosen(chain([own], (f"{own}~{number}" for number in count(1))), same_partition(run_id, partitions))


def name_in_run(run_id: str, job_id: str) -> str:
    """What a run calls a job whose id `id_in_run` gave it."""
    name, mark, number = job_id.removeprefix(f"{run_id}/").rpartition("~")
    return name if mark and number.isdigit() else job_id.removeprefix(f"{run_id}/")


def transition_log_hash(count: int, heads: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Hash of the whole log by its job heads: equal iff every job's history is equal (X-050).

    ``heads`` are (job id, number of transitions, last record hash) in the order of the ids' UTF-8 bytes and must be
    ``count`` many. The value is hashed piece by piece, so a log of millions of jobs needs no memory for it.
    """
    hasher = hashlib.sha256()
    hasher.update(b"\x82" + encode("log/v1") + _array_header(count))
    seen = 0
    previous = b""
    for job_id, transitions, head in heads:
        name = job_id.encode("utf-8")
        if seen and name <= previous:
            raise ValueError(f"job heads out of order: {job_id!r}")
        previous = name
        seen += 1
        hasher.update(encode_trusted([job_id, transitions, head]))
    if seen != count:
        raise ValueError(f"{count} job heads announced, {seen} given")
    return hasher.digest()


def _array_header(length: int) -> bytes:
    for limit, prefix, width in ((24, 0x80, 0), (1 << 8, 0x98, 1), (1 << 16, 0x99, 2), (1 << 32, 0x9A, 4)):
        if length < limit:
            return bytes([prefix + length]) if width == 0 else bytes([prefix]) + length.to_bytes(width, "big")
    return b"\x9b" + length.to_bytes(8, "big")
