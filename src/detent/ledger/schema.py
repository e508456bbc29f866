"""The shape of records, evidence and manifests: exact fields, exact types, exact bytes.

Evidence and manifests are read in two ways. The fast one recognises bytes that differ from ones the kernel's own strict
parser has accepted before only in places where anything may stand. What it does not recognise goes the slow way, through
that parser, which decides and says why. Records that are not what they must be are read by `read_record`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from detent.canon import RECORD_BYTES_MAX, UINT64_MAX, NotCanonical, decode
from detent.canon.crypto import is_signature
from detent.canon.late import NamedTuple, pattern
from detent.errors import InvalidInput, Refused
from detent.kernel import RECORD_FIELDS, RUN_STATUSES, Evidence, Manifest, State, open_envelope
from detent.kernel import evidence as ev
from detent.kernel.manifest import JOB_KINDS, id_fault
from detent.kernel.operators import is_action, is_object_kind
from detent.kernel.policy import QUOTA_OK
from detent.kernel.records import DIGESTS_PER_ERASED_MAX, EXCEPTED_STEPS_MAX, OPTIONAL_FIELDS
from detent.ledger.templates import uint
from detent.ledger.trust_config import TrustFault

EVIDENCE_BYTES_MAX: Final = 2 * RECORD_BYTES_MAX
"""Evidence of any record; that of a transition is far smaller."""
VERDICTS: Final = frozenset({QUOTA_OK, "QUOTA_GPU_TIME", "QUOTA_CPU_TIME", "QUOTA_IO_BYTES", "QUOTA_MEMORY_BYTES"})
SCHEDULER: Final = "scheduler:"


class Grounds(NamedTuple):
    """Evidence of a transition, read: why it happened."""

    kind: str
    reason_code: str
    lease_id: bytes | None
    replica_id: str | None
    category: str | None
    detail_digest: bytes | None

    @property
    def names_report(self) -> bool:
        """Whether the executor signed a report of it: of every result, and of an array whose worker was lost when some had ended."""
        return self.kind == ev.RESULT or (self.kind == ev.WORKER_LOST and self.detail_digest is not None)


class SubmittedManifest(NamedTuple):
    """A signed manifest, read but not yet verified: the parts that records and rules refer to."""

    body: bytes
    key_id: bytes
    signature: bytes
    job_id: str
    payload_digest: bytes
    fields: Mapping[str, Any]
    """The fields it shares with other manifests; those of one job alone (payload, tick of its making) may be missing."""


# -- evidence and manifests ---------------------------------------------------------------------------------------------


def read_evidence(data: bytes) -> Grounds | TrustFault:
    """A transition's evidence; refused unless it is exactly what the kernel writes.

    Evidence differs from record to record only in two digests, the lease and the detail. What is left of it when they are
    cut out takes few forms; each is parsed strictly once, with zeros in the holes, and remembered. Any 32 bytes are as
    good as zeros there, so a known form with other digests needs no parsing.
    """
    place = data.find(_LEASE)
    if place >= 0:
        begin = place + _LEASE_SIZE
        end = begin + 32
        last = len(data)
        if has_detail := data[-_DETAIL_SIZE - 32 : -32] == _DETAIL:
            last -= 32
        if end <= last and (form := _form(data[:begin], data[end:last], has_detail)) is not None:
            detail = data[last:] if has_detail else None
            return Grounds(form.kind, form.reason_code, data[begin:end], form.replica_id, form.category, detail)
    return _read_evidence_slowly(data)


_LEASE: Final = b"\x68lease_id\x58\x20"
_LEASE_SIZE: Final = len(_LEASE)
_DETAIL: Final = b"\x6ddetail_digest\x58\x20"
_DETAIL_SIZE: Final = len(_DETAIL)
_HOLE: Final = bytes(32)


@lru_cache(maxsize=4096)
def _form(before: bytes, after: bytes, has_detail: bool) -> Evidence | None:
    """Evidence with zeros for its digests, if that is valid evidence and the holes are where they seem to be."""
    try:
        evidence = Evidence.decode(before + _HOLE + after + (_HOLE if has_detail else b""))
    except (InvalidInput, TypeError):
        return None
    holes = (evidence.lease_id, evidence.detail_digest) == (_HOLE, _HOLE if has_detail else None)
    return evidence if holes else None


def _read_evidence_slowly(data: bytes) -> Grounds | TrustFault:
    try:
        evidence = Evidence.decode(data)
    except (InvalidInput, TypeError) as exc:
        return TrustFault("EVIDENCE_INVALID", str(exc))
    return Grounds(
        evidence.kind,
        evidence.reason_code,
        evidence.lease_id,
        evidence.replica_id,
        evidence.category,
        evidence.detail_digest,
    )


_SIG: Final = b"\xa2\x63sig\xa3\x63alg\x67Ed25519\x63sig"
_KEY_ID: Final = b"\x66key_id\x58\x20"
_BODY: Final = b"\x64body\x59"
_SIG_SIZE: Final = len(_SIG)


def read_submitted(data: bytes) -> SubmittedManifest | TrustFault:
    """The signed manifest beside a ``submitted`` record; refused unless envelope and manifest are exact.

    The envelope's encoding is a fixed text with three holes: signature, key id and, at the end, the body.
    """
    if len(data) <= EVIDENCE_BYTES_MAX and data.startswith(_SIG):
        # A plain signature has 64 bytes, a shared one more; either is written behind the size of its size.
        head = data[_SIG_SIZE : _SIG_SIZE + 1]
        wide = head == b"\x59"
        begin = _SIG_SIZE + 2 + wide
        end = begin + int.from_bytes(data[_SIG_SIZE + 1 : begin], "big")
        signature, key_id, place = data[begin:end], data[end + 9 : end + 41], end + 47
        # A manifest has between 256 and 65535 bytes; one that has not is sent the slow way.
        if data[end : end + 9] == _KEY_ID and data[end + 41 : place] == _BODY and is_signature(signature):
            body = data[place + 2 :]
            size = int.from_bytes(data[place : place + 2], "big")
            minimal = end - begin > 255 if wide else head == b"\x58"
            if minimal and len(body) == size > 255 and (known := _read_manifest(body)) is not None:
                return SubmittedManifest(body, key_id, signature, *known)
    return _read_submitted_slowly(data)


def _read_submitted_slowly(data: bytes) -> SubmittedManifest | TrustFault:
    opened = open_envelope(data)
    if isinstance(opened, Refused):
        return TrustFault("MANIFEST_INVALID", opened.message)
    body, key_id, signature = opened
    manifest = parse_manifest(body)
    if isinstance(manifest, Refused):
        return TrustFault("MANIFEST_INVALID", manifest.message)
    return SubmittedManifest(body, key_id, signature, manifest.job_id, manifest.payload_digest, decode(body))


def parse_manifest(body: bytes) -> Manifest | Refused:
    """`Manifest.parse` for bytes of strangers: values it cannot even compare are a refusal too."""
    try:
        return Manifest.parse(body)
    except TypeError as exc:
        return Refused("MANIFEST_SCHEMA_INVALID", f"the manifest has a field of a wrong type: {exc}")


_FIRST: Final = frozenset(
    bytes((0xA0 + len(Manifest.REQUIRED) + beside,)) + b"\x66job_id" for beside in range(len(Manifest.OPTIONAL) + 1)
)
"""How a manifest begins: with its thirteen fields alone, or with some of the optional ones beside them."""
_TICK: Final = b"\x6ccreated_tick"
_PAYLOAD: Final = b"\x6epayload_digest\x58\x20"
_WIDTHS: Final = {0x18: 2, 0x19: 3, 0x1A: 5, 0x1B: 9}


def _read_manifest(body: bytes) -> tuple[str, bytes, Mapping[str, Any]] | None:
    """A manifest's job, its payload and its other fields, if it is of a known or a knowable form; None sends it the slow way.

    The idea is that of `read_evidence`: the job's id, the tick and the payload's digest are cut out and looked at, and what
    is left takes few forms.
    """
    head = body[8]
    begin, size = (9, head - 0x60) if head < 0x78 else (10, body[9])
    end = begin + size
    tick = body.find(_TICK, end) + len(_TICK)
    if (
        body[:8] not in _FIRST
        or not 0x61 <= head <= 0x78
        or (head == 0x78 and size < 24)
        or not len(_TICK) <= tick < len(body)
    ):
        return None
    payload = tick + _WIDTHS.get(body[tick], 1)
    rest = payload + len(_PAYLOAD) + 32
    number = body[tick] if payload == tick + 1 else int.from_bytes(body[tick + 1 : payload], "big")
    if rest > len(body) or body[payload : rest - 32] != _PAYLOAD or body[tick:payload] != uint(number):
        return None
    fields = _manifest_form(body[:8], body[end : tick - len(_TICK)], body[rest:])
    try:
        job_id = body[begin:end].decode()
    except UnicodeDecodeError:
        return None
    return (
        None if fields is None or id_fault("job_id", job_id) is not None else (job_id, body[rest - 32 : rest], fields)
    )


@lru_cache(maxsize=4096)
def _manifest_form(first: bytes, before: bytes, after: bytes) -> Mapping[str, Any] | None:
    """The fields of a sample manifest, if it is valid and the holes are where they seem to be."""
    body = first + b"\x61x" + before + _TICK + b"\x00" + _PAYLOAD + _HOLE + after
    manifest = parse_manifest(body)
    if isinstance(manifest, Refused):
        return None
    holes = (manifest.job_id, manifest.created_tick, manifest.payload_digest) == ("x", 0, _HOLE)
    return decode(body) if holes else None


# -- records ------------------------------------------------------------------------------------------------------------


def read_record(body: bytes) -> dict[str, Any] | TrustFault:
    """A record's fields, strictly: canonical bytes, a known kind, exactly its fields, each of its type."""
    if len(body) > RECORD_BYTES_MAX:
        return TrustFault("RECORD_TOO_LARGE", f"the record has {len(body)} bytes, {RECORD_BYTES_MAX} are allowed")
    try:
        fields = decode(body, bytes_max=RECORD_BYTES_MAX)
    except NotCanonical as exc:
        return TrustFault("RECORD_NOT_CANONICAL", f"the record is not canonical CBOR: {exc}")
    fault = record_fault(fields)
    return fields if fault is None else TrustFault("RECORD_FIELDS_WRONG", fault)


def record_fault(fields: object) -> str | None:
    """Say what is wrong with a decoded record's fields, or nothing."""
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str) or fields["kind"] not in RECORD_FIELDS:
        return "the record is not a map of a known kind"
    kind = fields["kind"]
    if missing := sorted(RECORD_FIELDS[kind] - fields.keys()):
        return f"the {kind} record lacks {', '.join(missing)}"
    if unknown := sorted(fields.keys() - RECORD_FIELDS[kind] - OPTIONAL_FIELDS.get(kind, frozenset())):
        return f"the {kind} record has unknown fields: {', '.join(unknown)}"
    for name in sorted(fields.keys() - {"kind"}):
        if not _CHECKS[name](fields[name]):
            return f"the {name} of the {kind} record is not what it must be"
    for name, (what, without) in _MAY_BE_EMPTY.items():
        if kind != without and fields.get(name, "") is None:
            return f"the {kind} record names no {what}"
    return None


_MAY_BE_EMPTY: Final = {"run_id": ("run", "submitted"), "tenant_id": ("tenant", "operated")}
"""Names that one kind of record alone may leave empty."""


def is_digest(value: object) -> bool:
    """Whether a value is the 32 bytes of a digest."""
    return type(value) is bytes and len(value) == 32


def _is_uint64(value: object) -> bool:
    return type(value) is int and 0 <= value <= UINT64_MAX


@lru_cache(maxsize=4096)
def is_reason(value: str) -> bool:
    """Whether a text may be a reason code."""
    return ev.reason_fault(value) is None


def _is_id(value: object) -> bool:
    return type(value) is str and id_fault("id", value) is None


def _is_erased_digests(value: object) -> bool:
    return type(value) is list and 1 <= len(value) <= DIGESTS_PER_ERASED_MAX and all(map(is_digest, value))


def _is_excepted_steps(value: object) -> bool:
    if type(value) is not list or len(value) > EXCEPTED_STEPS_MAX or not all(map(_is_id, value)):
        return False
    return sorted(set(value)) == value


_STATES: Final = frozenset(state.value for state in State)
_REFERENCE: Final = pattern("sha256:[0-9a-f]{64}")
"""The only way to name evidence: there is no other algorithm to downgrade to."""


def _is_state(value: object) -> bool:
    return type(value) is str and value in _STATES


def _is_reason(value: object) -> bool:
    return type(value) is str and is_reason(value)


_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "tenant_id": lambda value: value is None or _is_id(value),
    "job_id": _is_id,
    "run_id": lambda value: value is None or _is_id(value),
    "step_id": _is_id,
    "reused_run_id": _is_id,
    "except_steps": _is_excepted_steps,
    "name": _is_id,
    "operation_id": _is_id,
    "job_kind": lambda value: type(value) is str and value in JOB_KINDS,
    "job_manifest_hash": is_digest,
    "quota_policy_hash": is_digest,
    "queue_policy_hash": is_digest,
    "chain_hash": is_digest,
    "decision_digest": lambda value: value is None or is_digest(value),
    "prev_chain_hash": is_digest,
    "idempotency_key": is_digest,
    "request_digest": is_digest,
    "signer_key_id": is_digest,
    "batch_id": is_digest,
    "contract_digest": is_digest,
    "bindings_digest": is_digest,
    "inputs_digest": is_digest,
    "ingredients_digest": is_digest,
    "jobs_digest": is_digest,
    "config_digest": is_digest,
    "replay_token": is_digest,
    "lease_id": lambda value: value is None or is_digest(value),
    "attempt_id": _is_uint64,
    "transition_seq": _is_uint64,
    "tick": _is_uint64,
    "partition_id": _is_uint64,
    "batch_index": _is_uint64,
    "batch_len": _is_uint64,
    "element": _is_uint64,
    "job_count": _is_uint64,
    "steps_reused": _is_uint64,
    "erasure_seq": _is_uint64,
    "epoch": _is_uint64,
    "version": _is_uint64,
    "from_state": _is_state,
    "to_state": _is_state,
    "evidence_ref": lambda value: type(value) is str and _REFERENCE.fullmatch(value) is not None,
    "dispatch": lambda value: type(value) is bool,
    "reason_code": _is_reason,
    "quota_verdict": lambda value: type(value) is str and value in VERDICTS,
    "status": lambda value: type(value) is str and value in RUN_STATUSES,
    "orchestrator_version": _is_id,
    "digests": _is_erased_digests,
    "principal_id": _is_id,
    "credential_id": _is_id,
    "action": is_action,
    "object_kind": is_object_kind,
    "object_id": _is_id,
    "outcome_code": _is_reason,
    "evidence_digest": lambda value: value is None or is_digest(value),
    "worker_id": _is_id,
    "key_id": is_digest,
    "certificate_digest": is_digest,
}
