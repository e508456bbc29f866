"""What applying a command gives back: the answer for the caller, and what the shell has to make durable."""

from __future__ import annotations

from dataclasses import field

from detent.canon import encode, sha256
from detent.canon.late import NamedTuple, dataclass
from detent.errors import Refused
from detent.kernel.history import Record
from detent.kernel.identity import ERROR_EMIT
from detent.kernel.job import Job
from detent.kernel.trace import IterEvent

COMMITTED = "COMMITTED"
DEDUPLICATED = "DEDUPLICATED"
DENIED_QUOTA = "DENIED_QUOTA"
CONFLICT = "CONFLICT"
CONTRACT_VIOLATION = "CONTRACT_VIOLATION"
REFUSED = "REFUSED"

STATUSES = (COMMITTED, DEDUPLICATED, DENIED_QUOTA, CONFLICT, CONTRACT_VIOLATION, REFUSED)


class JobState(NamedTuple):
    """A job as it stood when the command had been applied; later commands do not change it."""

    tenant_id: str
    job_id: str
    run_id: str | None
    state: str
    transition_seq: int
    attempt_id: int
    lease_id: bytes | None
    lease_holder: str | None
    lease_expiry: int | None
    ready_tick: int | None
    ever_dispatched: bool
    reason_code: str | None
    manifest_hash: bytes
    payload_digest: bytes

    @classmethod
    def of(cls, job: Job) -> JobState:
        """Take the picture."""
        return cls(
            job.tenant_id,
            job.job_id,
            job.run_id,
            job.state,
            job.transition_seq,
            job.attempt_id,
            job.lease_id,
            job.lease_holder,
            job.lease_expiry,
            job.ready_tick,
            job.ever_dispatched,
            job.reason_code,
            job.manifest_hash,
            job.payload_digest,
        )


class Grant(NamedTuple):
    """A lease just granted: what a worker needs to start, and what an outbox redelivers (X-067)."""

    tenant_id: str
    job_id: str
    run_id: str | None
    attempt_id: int
    transition_seq: int
    """The sequence a request to leave RUNNING must expect."""
    lease_id: bytes
    lease_expiry: int
    replica_id: str
    job_manifest_hash: bytes
    payload_digest: bytes
    lease_policy_id: str = "default"
    quota_policy_hash: bytes = b""

    @classmethod
    def of(cls, job: Job) -> Grant:
        """The grant under which a running job stands."""
        return cls(
            job.tenant_id,
            job.job_id,
            job.run_id,
            job.attempt_id,
            job.transition_seq,
            job.lease_id or b"",
            job.lease_expiry or 0,
            job.lease_holder or "",
            job.manifest_hash,
            job.payload_digest,
            job.lease_policy_id,
            job.quota_policy_hash,
        )


class HeartbeatRecord(NamedTuple):
    """The answer to a heartbeat: where the lease's end stands now. Not a ledger record."""

    job_id: str
    lease_id: bytes
    tick: int
    lease_expiry: int
    extended: bool


class ErrorRecord(NamedTuple):
    """A failure as `emit_error` records it (PIPE-038)."""

    t: int
    failure_code: str
    failure_operator: str
    replay_token: bytes
    diagnostics: dict[str, object]

    def encode(self) -> bytes:
        """Canonical bytes of the record."""
        return encode({"kind": "error", "operator": ERROR_EMIT, **self._asdict()})


def emit_error(
    t: int, failure_code: str, failure_operator: str, replay_token: bytes, diagnostics: dict[str, object]
) -> ErrorRecord:
    """``UML_OS.Error.Emit_v1``: the only maker of failure records (PIPE-039)."""
    return ErrorRecord(t, failure_code, failure_operator, replay_token, diagnostics)


@dataclass(slots=True)
class Outcome:
    """Everything one command did."""

    status: str = COMMITTED
    job: JobState | None = None
    record: Record | None = None
    """The record that answers the caller: the transition asked for, or the one committed earlier for a repeat."""
    refusal: Refused | None = None
    error: ErrorRecord | None = None
    grants: list[Grant] = field(default_factory=list)
    heartbeat: HeartbeatRecord | None = None
    records: list[Record] = field(default_factory=list)
    """New records in commit order, those of time passing first."""
    events: list[IterEvent] = field(default_factory=list)
    changed: bool = False
    """State changed beyond records and events (a lease was extended, usage was added)."""
    decisions: list[bytes] = field(default_factory=list)
    """Decision records that the records name by digest: stored in the same commit (X-181)."""
    answer: bytes = b""
    """What the scheduler answered to an order."""

    def decide(self, decision: bytes | None) -> bytes | None:
        """Keep a decision record and give the digest that names it; None for a decision that leaves no record."""
        if decision is None:
            return None
        self.decisions.append(decision)
        return sha256(decision)

    @property
    def ok(self) -> bool:
        """Whether the request was granted, now or by an earlier commit."""
        return self.refusal is None

    @property
    def recorded(self) -> bool:
        """Whether the command must be part of the recorded inputs for a replay to agree."""
        return self.changed or bool(self.records) or bool(self.events)
