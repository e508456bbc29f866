"""Evidence: the stored map that says why a transition happened, named by its digest in the record (X-064).

The transition operator's signature has no room for a reason, a lease or a dispatch target; they stand here, and the
record's fields of these names are read from here.
"""

from __future__ import annotations

from detent.canon import NotCanonical, decode, decode_trusted, encode_trusted, sha256
from detent.canon.late import dataclass, pattern
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.kernel.manifest import CATEGORY, digest_fault, id_fault

DISPATCH = "dispatch"
RESULT = "result"
EXPIRY = "expiry"
WATCHDOG = "watchdog"
CANCEL = "cancel"
RETRY_READY = "retry_ready"
QUOTA = "quota"
INTERRUPTED = "interrupted"
WORKER_LOST = "worker_lost"

KINDS_FOR: dict[tuple[str, str], frozenset[str]] = {
    ("QUEUED", "RUNNING"): frozenset({DISPATCH, CANCEL, QUOTA}),
    ("RUNNING", "SUCCEEDED"): frozenset({RESULT}),
    ("RUNNING", "FAILED"): frozenset({RESULT, EXPIRY, WATCHDOG, QUOTA, INTERRUPTED, WORKER_LOST}),
    ("RUNNING", "CANCELED"): frozenset({CANCEL, QUOTA}),
    ("RUNNING", "RETRYING"): frozenset({RESULT, EXPIRY, QUOTA, INTERRUPTED, WORKER_LOST}),
    ("RETRYING", "QUEUED"): frozenset({RETRY_READY, CANCEL}),
}
"""Which kinds of evidence can justify which move."""

KINDS = frozenset().union(*KINDS_FOR.values())
INTERRUPTIONS = frozenset({INTERRUPTED, WORKER_LOST})
"""Ends of an attempt that are not the job's fault: counted by a bound of their own (X-163)."""

CUT_SHORT = frozenset({CANCEL, QUOTA, WATCHDOG})
"""Ends of an attempt that its worker has not reported and may not know of yet (X-092)."""

EVICTIONS = frozenset({"DROPPED_LRU", "SHED_LOW_PRIORITY"})
"""Reasons of a cancellation that the queue itself asks for."""

REASON_DISPATCHED = "DISPATCHED"
REASON_COMPLETED = "COMPLETED"
REASON_RETRY_READY = "RETRY_READY"
REASON_LEASE_EXPIRED = "LEASE_EXPIRED"
REASON_INTERRUPTED = "INTERRUPTED"
REASON_WORKER_LOST = "WORKER_LOST"

EVIDENCE_BYTES_MAX = 4 * 1024

_REASON = pattern(r"[A-Z][A-Z0-9_]{0,63}")
_OPTIONAL = frozenset({"lease_id", "replica_id", "detail_digest", "category"})


def reason_fault(reason_code: object) -> str | None:
    """Say what is wrong with a reason code, or nothing."""
    if not isinstance(reason_code, str) or not _REASON.fullmatch(reason_code):
        return f"reason_code must be upper-case words joined by _ (at most 64 characters), not {show(reason_code)}"
    return None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a transition happened."""

    kind: str
    reason_code: str
    lease_id: bytes | None = None
    replica_id: str | None = None
    detail_digest: bytes | None = None
    category: str | None = None

    def fault(self) -> str | None:
        """Say which field is not what it must be, or nothing."""
        return _fault(
            _fields(self.kind, self.reason_code, self.lease_id, self.replica_id, self.detail_digest, self.category)
        )

    @property
    def names_decision(self) -> bool:
        """Whether its detail is a decision record, ours to keep, and not content of the user's."""
        return self.kind == DISPATCH or self.reason_code in EVICTIONS

    def encode(self) -> bytes:
        """Canonical bytes; absent fields are left out."""
        return encode_evidence(
            self.kind, self.reason_code, self.lease_id, self.replica_id, self.detail_digest, self.category
        )

    @classmethod
    def decode(cls, data: bytes) -> Evidence:
        """Read evidence from its stored bytes; refuse what is not exactly such a map."""
        if len(data) > EVIDENCE_BYTES_MAX:
            raise InvalidInput(f"evidence has {len(data)} bytes, the limit is {EVIDENCE_BYTES_MAX}")
        try:
            fields = decode(data)
        except NotCanonical as exc:
            raise InvalidInput(f"evidence is not canonical CBOR: {exc}") from exc
        if not isinstance(fields, dict) or not {"kind", "reason_code"} <= fields.keys() <= {
            *_OPTIONAL,
            "kind",
            "reason_code",
        }:
            raise InvalidInput(
                "evidence is a map of kind, reason_code and optional lease_id, replica_id, detail_digest, category"
            )
        if fault := _fault(fields):
            raise InvalidInput(fault)
        return cls(**fields)


def detail_of(data: bytes) -> bytes | None:
    """The digest of the detail that stored evidence names; for evidence that was checked when it was recorded."""
    try:
        fields = decode_trusted(data)
    except ValueError as exc:
        raise InvalidInput(f"evidence is not CBOR: {exc}") from exc
    detail = fields.get("detail_digest") if isinstance(fields, dict) else None
    return detail if type(detail) is bytes else None


def encode_evidence(
    kind: str,
    reason_code: str,
    lease_id: bytes | None,
    replica_id: str | None,
    detail_digest: bytes | None,
    category: str | None,
) -> bytes:
    """Encode evidence without building the object: the hot path of every transition."""
    return encode_trusted(_fields(kind, reason_code, lease_id, replica_id, detail_digest, category))


def _fields(
    kind: str,
    reason_code: str,
    lease_id: bytes | None,
    replica_id: str | None,
    detail_digest: bytes | None,
    category: str | None,
) -> dict[str, object]:
    fields: dict[str, object] = {"kind": kind, "reason_code": reason_code}
    if lease_id is not None:
        fields["lease_id"] = lease_id
    if replica_id is not None:
        fields["replica_id"] = replica_id
    if detail_digest is not None:
        fields["detail_digest"] = detail_digest
    if category is not None:
        fields["category"] = category
    return fields


def evidence_ref(data: bytes) -> str:
    """The text by which a record names its evidence."""
    return "sha256:" + sha256(data).hex()


def _fault(fields: dict[str, object]) -> str | None:
    if not isinstance(fields["kind"], str) or fields["kind"] not in KINDS:
        return f"evidence kind must be one of {', '.join(sorted(KINDS))}, not {show(fields['kind'])}"
    if fault := reason_fault(fields["reason_code"]):
        return fault
    for name in ("lease_id", "detail_digest"):
        if name in fields and (fault := digest_fault(name, fields[name])):
            return f"evidence {fault}"
    if "replica_id" in fields and (fault := id_fault("replica_id", fields["replica_id"])):
        return fault
    category = fields.get("category")
    if "category" in fields and not (isinstance(category, str) and CATEGORY.fullmatch(category)):
        return f"evidence category must be a name such as INTERNAL_ERROR, not {show(category)}"
    return None
