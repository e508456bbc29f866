"""A job as the kernel holds it in memory, and the same job as bytes.

The bytes serve three readers: a checkpoint (live jobs), the job's row in the store (every job), and the kernel itself
when a command names a job that has ended and left memory (X-168).
"""

from __future__ import annotations

from dataclasses import field, fields

from detent.canon import decode, decode_trusted, encode_trusted
from detent.canon.late import dataclass
from detent.errors import InvariantBroken
from detent.kernel.table import TERMINAL

FIXED_FIELDS = 14
"""How many of a job's fields, the first ones, its submission fixes for good."""


@dataclass(slots=True)
class Usage:
    """The resource ledger of one job, over all its attempts (PIPE-097)."""

    bytes_allocated: int = 0
    peak_bytes: int = 0
    io_bytes_read: int = 0
    io_bytes_written: int = 0
    gpu_time_ms: int = 0
    cpu_time_ms: int = 0

    def to_list(self) -> list[int]:
        """The six counters in the contract's order."""
        return [
            self.bytes_allocated,
            self.peak_bytes,
            self.io_bytes_read,
            self.io_bytes_written,
            self.gpu_time_ms,
            self.cpu_time_ms,
        ]


@dataclass(slots=True)
class Job:
    """One job: what its manifest fixed, and where it stands. Only the reducer changes it."""

    job_id: str
    tenant_id: str
    run_id: str | None
    job_kind: str
    manifest_hash: bytes
    payload_digest: bytes
    priority: int
    lease_policy_id: str
    backoff_schedule_id: str
    quota_policy_hash: bytes
    max_retries: int
    max_interruptions: int
    retry_categories: tuple[str, ...]
    submitted_tick: int
    head: bytes
    state: str = "QUEUED"
    transition_seq: int = 0
    attempt_id: int = 0
    failures: int = 0
    """Attempts that ended by the job's own fault; bounded by ``max_retries``."""
    interruptions: int = 0
    """Attempts that were interrupted, which is not a failure; bounded by ``max_interruptions``."""
    ever_dispatched: bool = False
    lease_id: bytes | None = None
    lease_holder: str | None = None
    lease_expiry: int | None = None
    heartbeat_tick: int | None = None
    ready_tick: int | None = None
    queued_tick: int | None = None
    exit_seq: int | None = None
    """Sequence of the record by which the last attempt left RUNNING: a repeated result is recognised by it."""
    conflicts: int = 0
    """Conflicting requests counted at the present sequence; chooses the back-off in their answers (X-066)."""
    reason_code: str | None = None
    reports: int = 0
    """Usage reports taken under the last lease; the next one has this number."""
    last_report: tuple[int, ...] | None = None
    """What the last of them said: distinguishes a repeat of it from another report under its number."""
    usage: Usage = field(default_factory=Usage)

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self.state in TERMINAL

    def encode(self) -> bytes:
        """Canonical bytes of the whole job."""
        return encode_trusted(self.to_list())

    def to_list(self) -> list[object]:
        """The fields in order, as plain values; the first `FIXED_FIELDS` never change."""
        return [
            self.job_id,
            self.tenant_id,
            self.run_id,
            self.job_kind,
            self.manifest_hash,
            self.payload_digest,
            self.priority,
            self.lease_policy_id,
            self.backoff_schedule_id,
            self.quota_policy_hash,
            self.max_retries,
            self.max_interruptions,
            list(self.retry_categories),
            self.submitted_tick,
            self.head,
            self.state,
            self.transition_seq,
            self.attempt_id,
            self.failures,
            self.interruptions,
            self.ever_dispatched,
            self.lease_id,
            self.lease_holder,
            self.lease_expiry,
            self.heartbeat_tick,
            self.ready_tick,
            self.queued_tick,
            self.exit_seq,
            self.conflicts,
            self.reason_code,
            self.reports,
            None if self.last_report is None else list(self.last_report),
            self.usage.to_list(),
        ]

    @classmethod
    def from_list(cls, values: list[object]) -> Job:
        """Rebuild a job from `to_list`; bytes of another shape are our own bug or a damaged store."""
        if len(values) != _FIELD_COUNT:
            raise InvariantBroken(f"a stored job has {len(values)} fields, not {_FIELD_COUNT}")
        values = list(values)
        values[_CATEGORIES] = tuple(values[_CATEGORIES])  # type: ignore[arg-type]
        if values[_LAST_REPORT] is not None:
            values[_LAST_REPORT] = tuple(values[_LAST_REPORT])  # type: ignore[arg-type]
        values[-1] = Usage(*values[-1])  # type: ignore[misc]
        return cls(*values)  # type: ignore[arg-type]

    @classmethod
    def decode(cls, data: bytes) -> Job:
        """Rebuild a job from `encode`."""
        values = decode(data)
        if not isinstance(values, list):
            raise InvariantBroken("a stored job is a list")
        return cls.from_list(values)

    @classmethod
    def read(cls, data: bytes) -> Job:
        """The same for a row that this program wrote: its bytes are not encoded again to be compared."""
        try:
            values = decode_trusted(data)
        except ValueError as exc:
            raise InvariantBroken(f"a stored job is no CBOR: {exc}") from exc
        if not isinstance(values, list):
            raise InvariantBroken("a stored job is a list")
        return cls.from_list(values)


_NAMES = tuple(entry.name for entry in fields(Job))
_FIELD_COUNT = len(_NAMES)
_CATEGORIES = _NAMES.index("retry_categories")
_LAST_REPORT = _NAMES.index("last_report")
