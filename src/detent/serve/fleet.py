"""The workers on other machines, as a server knows them: who is enrolled, and who was heard of lately.

Who is enrolled is a fold of the ledger's records, read when the server starts and followed from there. What a worker holds and how far its
turns are lies in memory only: a worker names its leases with every turn, so a server that was started again knows them after the first.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from detent.access.certificate import Certificate, replica_of
from detent.access.turn import LEASES_MAX, Granted, Watch
from detent.canon import decode_trusted
from detent.canon.grammar import CPU
from detent.jobs.order import POOL, RESOURCE
from detent.jobs.placing import Offer
from detent.kernel import EnrollWorker, Grant
from detent.kernel.history import WORKER_ENROLLED, WORKER_RETIRED, Record
from detent.kernel.records import OPERATED
from detent.ledger.trust_config import TrustFault
from detent.ledger.workers import read_enrolment
from detent.owner.worker_offers import Offered
from detent.serve.far_output import FarOutput
from detent.store.api import RecordRow, StoreReader

ANSWERS_KEPT: Final = 4
"""Turns of a worker whose answers are kept for a repeat."""
GIVEN_BACK_MAX: Final = 256
"""Jobs remembered that a worker gave back."""
REST_SECONDS: Final = 10.0
REST_SECONDS_MAX: Final = 600.0
"""How long a worker is not granted a job again that it gave back; doubled each time. Each time counts as an interruption of the job, so without a
pause one worker that can begin nothing would use up all that a job has (X-163)."""
SILENT_SECONDS: Final = 60.0
_KINDS: Final = (WORKER_ENROLLED, WORKER_RETIRED)


class GivenBack(NamedTuple):
    """When a worker gave a job back, and for how long it is not granted that again."""

    at: float
    """By the monotonic clock."""
    seconds: float
    for_good: bool
    """Whether this start of the worker can never run it."""

    @property
    def left(self) -> float:
        """Seconds until it may be granted."""
        return math.inf if self.for_good else self.at + self.seconds - time.monotonic()


@dataclass(slots=True)
class HeldLease:
    """A lease of a worker, and the content that it opens."""

    grant: Grant
    lease_seconds: float
    granted: Granted | None = None
    """As it was told; None after a restart, until it is needed."""
    inputs: frozenset[bytes] = frozenset()
    code: frozenset[bytes] = frozenset()
    uploaded: set[bytes] = field(default_factory=set)
    beat_at: float = 0.0
    """When it was extended last."""
    named: bool = False
    """Whether the worker has named it: it knows of the grant."""
    since_ns: int = field(default_factory=time.time_ns)
    """Since when this server knows of it."""
    output: FarOutput | None = None
    """What its job prints; None until a client asks for it."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker: its certificate, and what is known of its present start."""

    certificate: Certificate
    key_id: bytes
    envelope: bytes
    """The certificate as it was signed."""
    token_digest: bytes
    """The enrolment token that brought it."""
    retired: bool = False
    draining: bool = False
    boot: str | None = None
    turn: int = 0
    """The highest turn so far."""
    answers: OrderedDict[int, asyncio.Future[bytes]] = field(default_factory=OrderedDict)
    leases: dict[bytes, HeldLease] = field(default_factory=dict)
    given_back: OrderedDict[str, GivenBack] = field(default_factory=OrderedDict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the wait of the turn that waits."""
    news: int = 0
    """Which news of jobs it has looked after last."""
    arrived: list[Granted] = field(default_factory=list)
    """What was leased to it while its turn waited, to be told now."""
    arrived_at: float = 0.0
    """A moment before that, by the monotonic clock."""
    woken_jobs: set[str] = field(default_factory=set)
    """Jobs of its leases that moved while its turn waits."""
    heard_at: float | None = None
    slots: int = 0
    wanted: int = 0
    version: str = ""
    protocol: int = 0
    resources: dict[str, int] = field(default_factory=dict)
    pool: str | None = None
    labels: frozenset[str] = frozenset()
    """What this start says of itself, beside its certificate."""
    told: Offer | None = None
    """What it offered last, to this server or to the one before."""

    @property
    def worker_id(self) -> str:
        """Its name."""
        return self.certificate.worker_id

    @property
    def holder(self) -> str:
        """The name that its leases are granted to."""
        return replica_of(self.worker_id, self.boot or "")

    def begin(self, boot: str) -> None:
        """Take note of a new start."""
        self.boot = boot
        self.let_all_go()
        self.arrived.clear()
        # It may have other code now; the pauses hold.
        self.given_back = OrderedDict((name, one._replace(for_good=False)) for name, one in self.given_back.items())
        self.draining = False

    @property
    def pools(self) -> frozenset[str]:
        """The pools that it works in: the one that this start says, else those of its certificate."""
        certified = self.certificate.pools
        if self.pool is not None:
            return frozenset({self.pool}) if certified is None or self.pool in certified else frozenset()
        return frozenset(certified or ())

    @property
    def offers(self) -> frozenset[str]:
        """What it offers to jobs that ask for a pool, a label or a resource."""
        labels = {label for label in (*self.certificate.labels, *self.labels) if ":" not in label}
        named = {f"{RESOURCE}{name}" for name, amount in self.resources.items() if amount}
        return frozenset({f"{RESOURCE}{CPU}", *labels, *named, *(f"{POOL}{pool}" for pool in self.pools)})

    @property
    def offered(self) -> Offered:
        """What jobs are placed by: what it said last, else what its certificate says."""
        return Offered(self.told or Offer(self.offers, None), self.certificate.tenants)

    def tells(self) -> bool:
        """Take note of what this start offers; whether that is news."""
        told = Offer(self.offers, {CPU: self.slots, **self.resources})
        is_new, self.told = told != self.told, told
        return is_new

    def let_go(self, lease_id: bytes) -> HeldLease | None:
        """Forget a lease that is over; gives what was known of it."""
        held = self.leases.pop(lease_id, None)
        if held is not None and held.output is not None:
            held.output.close()
        return held

    def let_all_go(self) -> None:
        """Forget all leases."""
        for lease_id in list(self.leases):
            self.let_go(lease_id)

    def watched(self) -> tuple[Watch, ...]:
        """The leases whose output or progress a client looks at, as the worker is told them."""
        found: list[Watch] = []
        followed: list[Watch] = []
        for lease_id, held in self.leases.items():
            if held.output is not None and held.output.is_watched:
                held.output.is_told = True
                found.append(held.output.watched(lease_id))
            if held.output is not None and held.output.is_followed:
                held.output.is_told = True
                followed.append(Watch.of_progress(lease_id))
        # First: a worker that knows nothing of progress takes the last row of a lease.
        return (*followed[: max(0, LEASES_MAX - len(found))], *found)

    @property
    def has_unwatched(self) -> bool:
        """Whether a client looks at output that the worker has not been asked for."""
        return any(held.output is not None and not held.output.is_told for held in self.leases.values())

    def give_back(self, job_id: str, *, for_good: bool) -> None:
        """Remember a job that it cannot run, or could not begin now."""
        before = self.given_back.pop(job_id, None)
        seconds = REST_SECONDS if before is None else min(2 * before.seconds, REST_SECONDS_MAX)
        self.given_back[job_id] = GivenBack(time.monotonic(), seconds, for_good)
        if len(self.given_back) > GIVEN_BACK_MAX:
            self.given_back.popitem(last=False)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The jobs that it is not granted now."""
        return tuple([job_id for job_id, one in self.given_back.items() if one.left > 0])

    @property
    def rest_seconds(self) -> float:
        """Until it may be granted one of these."""
        return min((left for one in self.given_back.values() if (left := one.left) > 0), default=math.inf)

    @property
    def silent_seconds(self) -> float | None:
        """Since its last turn; None when none came since the server started."""
        return None if self.heard_at is None else time.monotonic() - self.heard_at

    @property
    def state(self) -> str:
        """`retired`, `never`, `silent`, `draining`, `busy` or `idle`."""
        if self.retired:
            return "retired"
        if self.heard_at is None:
            return "never"
        if time.monotonic() - self.heard_at > SILENT_SECONDS:
            return "silent"
        if self.draining:
            return "draining"
        return "busy" if self.leases else "idle"


class Fleet:
    """All workers that were ever enrolled. For the HTTP loop alone."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self.uses: dict[bytes, int] = {}
        """How often each enrolment token was used, by its digest."""
        self.to_come: Callable[[], dict[str, Offered]] = dict
        """What workers offer that are yet to be started."""

    def excuse(self, seconds: float) -> None:
        """Count so much less of every worker's silence: this process could hear none of them."""
        for worker in self._workers.values():
            if worker.heard_at is not None:
                worker.heard_at = min(time.monotonic(), worker.heard_at + seconds)

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._workers.values())

    def all(self) -> list[Worker]:
        """All workers as they are now, from any thread."""
        return list(self._workers.values())

    def offered(self) -> dict[str, Offered]:
        """What the workers offer that are not retired, by their ids, and what those will that pools start; from any thread."""
        return {**self.to_come(), **{one.worker_id: one.offered for one in self.all() if not one.retired}}

    def offers(self, workspace: str) -> list[Offer]:
        """What is offered to a workspace; from any thread."""
        return [one.offer for one in self.offered().values() if one.covers(workspace)]

    def get(self, worker_id: str) -> Worker | None:
        """A worker, also a retired one; None for one that was never enrolled."""
        return self._workers.get(worker_id)

    def take_in(self, kind: str, body: bytes, evidence: bytes | None) -> None:
        """Apply a record; what is not about workers changes nothing."""
        if kind == WORKER_ENROLLED:
            self._enrol(_fields(body), evidence or b"")
        elif kind == WORKER_RETIRED and (worker := self._workers.get(_fields(body).get("worker_id", ""))) is not None:
            worker.retired = True
            worker.let_all_go()
            worker.wake.set()

    def enrolled(self, command: EnrollWorker) -> None:
        """Take in a worker whose enrolment was just committed: its record may be heard of a moment later."""
        fields = {"key_id": command.key_id, "certificate_digest": command.certificate_digest}
        self._enrol({"worker_id": command.worker_id, **fields}, command.evidence)

    def _enrol(self, fields: dict[str, Any], evidence: bytes) -> None:
        enrolment = read_enrolment(evidence, fields["worker_id"], fields["key_id"], fields["certificate_digest"])
        if isinstance(enrolment, TrustFault) or fields["worker_id"] in self._workers:
            return
        token = enrolment.proof.token_digest
        self.uses[token] = self.uses.get(token, 0) + 1
        signed = enrolment.signed
        self._workers[fields["worker_id"]] = Worker(signed.certificate, fields["key_id"], signed.envelope(), token)


def enrolled_records(reader: StoreReader) -> list[RecordRow]:
    """What the ledger says about workers so far, in order."""
    rows = [row for kind in (*_KINDS, OPERATED) for row in reader.records_of_kind(0, kind)]
    return sorted(rows, key=lambda row: row.position)


def is_about_workers(record: Record) -> bool:
    """Whether a committed record is about a worker, an enrolment token or a pool."""
    return record.kind in _KINDS or (
        record.kind == OPERATED and (b"enrolment." in record.body or b"pool.scale" in record.body)
    )


def _fields(body: bytes) -> dict[str, Any]:
    fields = decode_trusted(body)
    return fields if isinstance(fields, dict) else {}
