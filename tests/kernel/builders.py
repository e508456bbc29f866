"""Small kernels, signed manifests and a clock: what the tests of the kernel, and of the rooms around it, start from.

`Scene` holds a kernel and a tick. Its methods issue one command each at that tick and return what the kernel said, so a
test reads as the story it tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from detent.canon import SigningKey, decode
from detent.errors import Refused
from detent.kernel import (
    MANIFEST_LABEL,
    AdvanceTick,
    BackoffSchedule,
    Cancel,
    Claim,
    Command,
    Evidence,
    Finish,
    Grant,
    Heartbeat,
    IterEvent,
    Job,
    JobState,
    Kernel,
    KernelConfig,
    LeasePolicy,
    Manifest,
    MemoryHistory,
    Outcome,
    QueuePolicy,
    QuotaPolicy,
    Record,
    ReportUsage,
    Submit,
    Transition,
    VerifiedManifest,
    lease_key,
)
from detent.kernel.policy import RULES_ORIGIN_NAMED, UNLIMITED, UNLIMITED_QUOTA

TENANT = "tenant-a"
NO_PAYLOAD = bytes(32)
"""The payload digest of jobs in a home that have none: no home looks for its content."""
SUBMITTER = SigningKey(b"\x01" * 32)
OWNER_KEY_ID = SigningKey(b"\x02" * 32).key_id
NO_LEASE = bytes(32)

LEASE = LeasePolicy("default", lease_ttl_ticks=100, heartbeat_extension_ticks=60)
BACKOFF = BackoffSchedule("default", (10, 20, 40))


def quota(**budgets: Any) -> QuotaPolicy:
    """A quota policy that limits only what is named."""
    return QuotaPolicy(**{**dict.fromkeys(QuotaPolicy.BUDGETS, UNLIMITED), **budgets})


def config(*quotas: QuotaPolicy, **changes: Any) -> KernelConfig:
    """A configuration with a short lease (100 ticks, 60 by heartbeat) and the delays 10, 20, 40."""
    fields: dict[str, Any] = {
        "lease_policies": (LEASE,),
        "backoff_schedules": (BACKOFF,),
        "quota_policies": (UNLIMITED_QUOTA, *quotas),
    }
    return KernelConfig(**{**fields, **changes})


def queue_of(per_class: int, total: int | None = None) -> QueuePolicy:
    """Bounds of a small queue."""
    return QueuePolicy(per_class, total or 10 * per_class)


def manifest(job_id: str = "job-1", **changes: Any) -> Manifest:
    """An ordinary manifest: a task of class 5 without a budget."""
    fields: dict[str, Any] = {
        "tenant_id": TENANT,
        "job_id": job_id,
        "job_kind": "task",
        "payload_digest": bytes(range(32)),
        "priority": 5,
        "quota_policy_hash": UNLIMITED_QUOTA.hash(),
        "created_tick": 0,
        "max_interruptions": 100,
    }
    if "quota" in changes:
        changes["quota_policy_hash"] = changes.pop("quota").hash()
    return Manifest(**{**fields, **changes})


def signed(described: Manifest, key: SigningKey = SUBMITTER) -> VerifiedManifest:
    """The manifest as its submitter signs it."""
    body = described.body()
    return VerifiedManifest(described, body, key.key_id, key.sign(MANIFEST_LABEL + body))


def verified(job_id: str = "job-1", **changes: Any) -> VerifiedManifest:
    """An ordinary signed manifest."""
    return signed(manifest(job_id, **changes))


def code_of(outcome: Outcome) -> str | None:
    """The code of a refusal; None for a yes."""
    return None if outcome.refusal is None else outcome.refusal.code


def body_of(record: Record | None) -> dict[str, Any]:
    """A record's body, read."""
    assert record is not None
    body = decode(record.body)
    assert isinstance(body, dict)
    return body


def evidence_of(record: Record | None) -> Evidence:
    """A record's evidence, read."""
    assert record is not None
    assert record.evidence is not None
    return Evidence.decode(record.evidence)


def edges_of(records: Sequence[Record]) -> list[str]:
    """The transitions among some records, as ``FROM->TO``."""
    bodies = [body_of(record) for record in records if record.kind == "transition"]
    return [f"{body['from_state']}->{body['to_state']}" for body in bodies]


class Scene:
    """A kernel with a clock. Remembers every command, record and event."""

    def __init__(self, settings: KernelConfig | None = None, *, kernel: Kernel | None = None) -> None:
        self.history = MemoryHistory()
        self.kernel = kernel or Kernel(settings or config(), history=self.history)
        self.tick = 0
        self.commands: list[Command] = []
        self.outcomes: list[Outcome] = []
        self.records: list[Record] = []
        self.events: list[IterEvent] = []

    def apply(self, command: Command) -> Outcome:
        """Apply any command and look at the whole state afterwards."""
        outcome = self.kernel.apply(command)
        self.kernel.check()
        self.commands.append(command)
        self.outcomes.append(outcome)
        self.records += outcome.records
        self.events += outcome.events
        return outcome

    def at(self, tick: int) -> Outcome:
        """Let time pass until a tick."""
        self.tick = tick
        return self.apply(AdvanceTick(tick))

    def submit(self, job_id: str = "job-1", *, run_id: str | None = None, **changes: Any) -> Outcome:
        """Submit an ordinary job."""
        if self.kernel.config.rules >= RULES_ORIGIN_NAMED:
            changes = {"origin": "detent/here", **changes}
        return self.apply(Submit(self.tick, verified(job_id, **changes), run_id))

    def claim(self, limit: int = 1, replica_id: str = "worker-1") -> list[Grant]:
        """Claim jobs for a worker."""
        return self.apply(Claim(self.tick, replica_id, limit)).grants

    def start(self, job_id: str = "job-1", **changes: Any) -> Grant:
        """Submit a job and claim it; nothing else may be waiting."""
        assert self.submit(job_id, **changes).ok
        (grant,) = self.claim()
        assert grant.job_id == job_id
        return grant

    def finish(self, grant: Grant, **changes: Any) -> Outcome:
        """Report the result of an attempt."""
        return self.apply(Finish(self.tick, grant.job_id, grant.lease_id, **changes))

    def fail(self, grant: Grant, category: str | None = "INTERNAL_ERROR", **changes: Any) -> Outcome:
        """Report that an attempt failed."""
        fields: dict[str, Any] = {"ok": False, "reason_code": "TASK_FAILED", "category": category}
        return self.finish(grant, **{**fields, **changes})

    def heartbeat(self, grant: Grant, tick: int | None = None) -> Outcome:
        """Send a sign of life."""
        return self.apply(Heartbeat(self.tick if tick is None else tick, grant.job_id, grant.lease_id))

    def usage(self, grant: Grant, *, report_no: int | None = None, **deltas: Any) -> Outcome:
        """Report used resources: the lease's next report, unless told otherwise."""
        if report_no is None:
            job = self.kernel.jobs.get(grant.job_id)
            report_no = 0 if job is None else job.reports
        return self.apply(ReportUsage(self.tick, grant.job_id, grant.lease_id, report_no, **deltas))

    def cancel(self, job_id: str = "job-1", **changes: Any) -> Outcome:
        """Cancel a job."""
        return self.apply(Cancel(self.tick, **{"tenant_id": TENANT, "job_id": job_id, **changes}))

    def transition(self, job_id: str, from_state: str, to_state: str, /, **changes: Any) -> Outcome:
        """Ask for a transition from where the job stands, with evidence that fits, unless told otherwise."""
        job = self.kernel.find(TENANT, job_id)
        fields: dict[str, Any] = {
            "tenant_id": TENANT,
            "job_id": job_id,
            "attempt_id": job.attempt_id if job else 0,
            "expected_transition_seq": job.transition_seq if job else 0,
            "from_state": from_state,
            "to_state": to_state,
        }
        if not {"evidence", "evidence_ref"} & changes.keys():
            fields["evidence"] = fitting_evidence(job, from_state, to_state).encode()
        return self.apply(Transition(self.tick, **{**fields, **changes}))

    def job(self, job_id: str = "job-1") -> JobState:
        """Where a job stands."""
        state = self.kernel.query(TENANT, job_id)
        assert not isinstance(state, Refused)
        return state

    def live(self, job_id: str = "job-1") -> Job:
        """A job as the kernel holds it in memory."""
        return self.kernel.jobs[job_id]

    def edges(self, job_id: str = "job-1") -> list[str]:
        """A job's transitions so far."""
        return edges_of([record for record in self.records if record.job_id == job_id])

    def bodies(self, job_id: str = "job-1") -> list[dict[str, Any]]:
        """The bodies of a job's transition records so far."""
        return [body_of(record) for record in self.records if (record.kind, record.job_id) == ("transition", job_id)]


def fitting_evidence(job: Job | None, from_state: str, to_state: str) -> Evidence:
    """Evidence under which a move would be granted, were it legal and the caller right."""
    lease_id = job.lease_id if job else None
    if (from_state, to_state) == ("QUEUED", "RUNNING"):
        lease_id = lease_key(TENANT, job.job_id, job.attempt_id, job.transition_seq) if job else None
        return Evidence("dispatch", "DISPATCHED", lease_id, "worker-1")
    if to_state == "CANCELED":
        return Evidence("cancel", "CANCELLED_BY_USER", lease_id)
    if to_state == "QUEUED":
        return Evidence("retry_ready", "RETRY_READY")
    if to_state == "SUCCEEDED":
        return Evidence("result", "COMPLETED", lease_id)
    return Evidence("result", "TASK_FAILED", lease_id, category="INTERNAL_ERROR")


def scene_in(state: str, **changes: Any) -> Scene:
    """A scene whose ``job-1`` stands in a state, by the shortest way."""
    scene = Scene()
    scene.submit(**changes)
    if state == "QUEUED":
        return scene
    (grant,) = scene.claim()
    if state == "RETRYING":
        scene.fail(grant)
    elif state == "SUCCEEDED":
        scene.finish(grant)
    elif state == "FAILED":
        scene.fail(grant, category=None)
    elif state == "CANCELED":
        scene.cancel()
    assert scene.job().state == state
    return scene


def waiting_retries(kernel: Kernel) -> int:
    """Jobs whose backoff is over and that wait for room in the queue."""
    waiting = [(job_id, seq) for line in kernel._waiting.values() for _, job_id, seq in line]
    return sum(job_id in kernel.jobs and kernel.jobs[job_id].transition_seq == seq for job_id, seq in waiting)
