"""Job manifests: the signed description of a job, its schema, and "verified" as a type.

The kernel never sees a signature being checked. It is handed a `VerifiedManifest`, which only the two places that may
vouch for one construct: the trust check of the ledger, and the signer itself, for what this process signed.
"""

from __future__ import annotations

from operator import attrgetter

from detent.canon import UINT64_MAX, NotCanonical, decode, encode, encode_trusted, sha256
from detent.canon.crypto import is_signature
from detent.canon.grammar import PRIORITY_MAX, PRIORITY_MIN
from detent.canon.late import dataclass, pattern
from detent.canon.show import show
from detent.errors import Refused
from detent.kernel.policy import KernelConfig

MANIFEST_VERSION = 1
MANIFEST_LABEL = b"UML_OS.Pipeline.JobManifest_v1\x00"
"""What stands before the body when a manifest is signed (X-046)."""

SIGNATURE_ALG = "Ed25519"
PLATFORM = "platform"
"""The kind of the jobs of the job contract: payloads with a workspace and a document (X-016)."""
JOB_KINDS = frozenset({PLATFORM, "action", "seq", "inference", "task"})
EVICTABLE_KINDS = JOB_KINDS - {"action", "seq"}
"""Workflow and ordered work is never dropped from a full queue: its callers are held back instead (X-031)."""

MAX_RETRIES_DEFAULT = 2
"""Of steps, tasks, platform jobs and ordered runs alike (A.10). What the planner's own model has (WF-187) counts where it is written."""
MAX_INTERRUPTIONS_DEFAULT = 10
RETRY_CATEGORIES_DEFAULT = ("INTERNAL_ERROR",)
RETRY_CATEGORIES_MAX = 32
ID_BYTES_MAX = 200

CATEGORY = pattern(r"[A-Z][A-Za-z0-9_.]{0,99}")
"""How an error category is written, in a manifest and in evidence."""

# Written out, because `str.isprintable` changes with the Unicode tables of each Python, and a decision must not.
_UNFIT_FOR_ID = pattern(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def id_fault(name: str, value: object) -> str | None:
    """Say what is wrong with an id (job, tenant, run), or nothing."""
    if type(value) is not str or not value:
        return f"{name} must be a non-empty text, not {show(value)}"
    if _UNFIT_FOR_ID.search(value):
        return f"{name} must not contain control characters or marks of direction: {show(value)}"
    if len(value) > ID_BYTES_MAX or (not value.isascii() and len(value.encode()) > ID_BYTES_MAX):
        return f"{name} must have at most {ID_BYTES_MAX} bytes"
    return None


def digest_fault(name: str, value: object) -> str | None:
    """Say that a value is no SHA-256 digest, or nothing."""
    if type(value) is bytes and len(value) == 32:
        return None
    return f"{name} must be a 32-byte digest"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A job as its submitter describes and signs it (PIPE-049, X-163, X-164)."""

    tenant_id: str
    job_id: str
    job_kind: str
    payload_digest: bytes
    priority: int
    quota_policy_hash: bytes
    created_tick: int
    lease_policy_id: str = "default"
    backoff_schedule_id: str = "default"
    max_retries: int = MAX_RETRIES_DEFAULT
    max_interruptions: int = MAX_INTERRUPTIONS_DEFAULT
    retry_categories: tuple[str, ...] = RETRY_CATEGORIES_DEFAULT
    pool_pin: str | None = None
    evictable: bool = True
    """Whether its submitter allows a full queue to drop it; written down only where it does not (X-187)."""
    origin: str | None = None
    """The ledger that it was signed for: no other one may hold the job (X-197). Manifests of before name none."""
    manifest_version: int = MANIFEST_VERSION

    REQUIRED = (
        "manifest_version",
        "tenant_id",
        "job_id",
        "job_kind",
        "payload_digest",
        "priority",
        "lease_policy_id",
        "max_retries",
        "max_interruptions",
        "retry_categories",
        "backoff_schedule_id",
        "quota_policy_hash",
        "created_tick",
    )
    OPTIONAL = ("pool_pin", "evictable", "origin")

    def body(self) -> bytes:
        """Canonical bytes: what is hashed and signed."""
        return encode(self._fields())

    def body_trusted(self) -> bytes:
        """The same for a manifest that this program put together out of checked parts."""
        return encode_trusted(self._fields())

    def _fields(self) -> dict[str, object]:
        fields: dict[str, object] = dict(zip(self.REQUIRED, _required(self), strict=True))
        fields["retry_categories"] = list(self.retry_categories)
        if self.pool_pin is not None:
            fields["pool_pin"] = self.pool_pin
        if not self.evictable:
            fields["evictable"] = False
        if self.origin is not None:
            fields["origin"] = self.origin
        return fields

    @property
    def may_be_evicted(self) -> bool:
        """Whether a full queue may drop this job for another (X-031, X-187)."""
        return self.evictable and self.job_kind in EVICTABLE_KINDS

    @classmethod
    def parse(cls, body: bytes) -> Manifest | Refused:
        """Read a manifest's bytes; refuse, by field, what does not fit its schema (PIPE-030)."""
        try:
            fields = decode(body)
        except NotCanonical as exc:
            return _invalid(f"the manifest is not canonical CBOR: {exc}")
        if not isinstance(fields, dict):
            return _invalid("the manifest is not a map")
        if missing := [name for name in cls.REQUIRED if name not in fields]:
            return _invalid(f"the manifest lacks {', '.join(missing)}")
        if unknown := sorted(fields.keys() - {*cls.REQUIRED, *cls.OPTIONAL}):
            return _invalid(f"the manifest has unknown fields: {show(unknown)}")
        if fault := _field_fault(fields):
            return _invalid(fault)
        fields["retry_categories"] = tuple(fields["retry_categories"])
        return cls(**fields)

    def policy_fault(self, config: KernelConfig) -> str | None:
        """Say which policy this manifest names that the configuration does not have, or nothing."""
        if self.lease_policy_id not in config.leases:
            return f"lease_policy_id {self.lease_policy_id!r} is not configured"
        if self.backoff_schedule_id not in config.backoffs:
            return f"backoff_schedule_id {self.backoff_schedule_id!r} is not configured"
        if self.quota_policy_hash not in config.quotas:
            return f"quota_policy_hash {self.quota_policy_hash.hex()} is not configured"
        return None


@dataclass(frozen=True, slots=True)
class VerifiedManifest:
    """A manifest whose signature is known to be good, with the very bytes that were signed."""

    manifest: Manifest
    body: bytes
    key_id: bytes
    signature: bytes

    @property
    def job_id(self) -> str:
        """The job it is for."""
        return self.manifest.job_id

    @property
    def hash(self) -> bytes:
        """``job_manifest_hash``."""
        return sha256(self.body)

    def envelope(self) -> bytes:
        """Canonical bytes of body and signature block together: what is stored beside the ``submitted`` record."""
        signature = {"alg": SIGNATURE_ALG, "key_id": self.key_id, "sig": self.signature}
        return encode_trusted({"body": self.body, "sig": signature})


_required = attrgetter(*Manifest.REQUIRED)


@dataclass(frozen=True, slots=True)
class RefusedManifest:
    """A document sent as a signed manifest, and why it is not one."""

    refusal: Refused
    job_id: str | None
    """The job it claims to be for, where that can be read."""


def open_envelope(data: bytes) -> tuple[bytes, bytes, bytes] | Refused:
    """Take a stored manifest apart into body, key id and signature, without judging the signature."""
    try:
        envelope = decode(data)
    except NotCanonical as exc:
        return _invalid(f"the signed manifest is not canonical CBOR: {exc}")
    if not isinstance(envelope, dict) or envelope.keys() != {"body", "sig"}:
        return _invalid("a signed manifest is a map of body and sig")
    body, block = envelope["body"], envelope["sig"]
    if not isinstance(body, bytes) or not isinstance(block, dict) or block.keys() != {"alg", "key_id", "sig"}:
        return _invalid("a manifest's signature block has alg, key_id and sig")
    if block["alg"] != SIGNATURE_ALG:
        message = f"signature algorithm {show(block['alg'])} is not {SIGNATURE_ALG}"
        return Refused("MANIFEST_SIGNATURE_INVALID", message)
    if digest_fault("key_id", block["key_id"]) or not is_signature(block["sig"]):
        return _invalid(
            "a manifest's signature block holds a 32-byte key_id and a sig of 64 bytes, or of 64 bytes and a path"
        )
    return body, block["key_id"], block["sig"]


def _invalid(message: str) -> Refused:
    return Refused("MANIFEST_SCHEMA_INVALID", message, {})


def _field_fault(fields: dict[str, object]) -> str | None:
    if fields["manifest_version"] != MANIFEST_VERSION or type(fields["manifest_version"]) is not int:
        return f"manifest_version must be {MANIFEST_VERSION}"
    for name in ("tenant_id", "job_id"):
        if fault := id_fault(name, fields[name]):
            return fault
    if not isinstance(fields["job_kind"], str) or fields["job_kind"] not in JOB_KINDS:
        return f"job_kind must be one of {', '.join(sorted(JOB_KINDS))}"
    for name in ("payload_digest", "quota_policy_hash"):
        if fault := digest_fault(name, fields[name]):
            return fault
    for name in ("lease_policy_id", "backoff_schedule_id", "pool_pin", "origin"):
        if name in fields and (fault := id_fault(name, fields[name])):
            return fault
    if fields.get("evictable", False) is not False:
        return "evictable is false, or left out"
    for name in ("max_retries", "max_interruptions", "created_tick"):
        value = fields[name]
        if type(value) is not int or not 0 <= value <= UINT64_MAX:
            return f"{name} must be an integer from 0 to 2^64-1"
    priority = fields["priority"]
    if type(priority) is not int or not PRIORITY_MIN <= priority <= PRIORITY_MAX:
        return f"priority must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX}"
    categories = fields["retry_categories"]
    if not isinstance(categories, list) or len(categories) > RETRY_CATEGORIES_MAX:
        return f"retry_categories must be a list of at most {RETRY_CATEGORIES_MAX} names"
    if any(not isinstance(name, str) or not CATEGORY.fullmatch(name) for name in categories):
        return "retry_categories must hold names such as INTERNAL_ERROR"
    if list(categories) != sorted(set(categories)):
        return "retry_categories must be sorted and without repeats"
    if fields["job_kind"] == "platform" and not set(categories) <= set(RETRY_CATEGORIES_DEFAULT):
        return "a platform job retries no other category than INTERNAL_ERROR"
    return None
