"""A world with workers on other machines: their turns and the answers are lost, repeated and late, they are killed, and so is their server.

What the owner decides for a turn is the product's own (`WorkerTurn`, the claims of workers that wait, the lease `remote`), and so is the moment at which
a worker gives a lease up (`fence_at`). What a server and a worker remember between turns is told here in a few lines, as `serve/turns.py` and
`remote/bench.py` have it. The server and the owner are one process: what the server knew is gone when the owner crashes.

What must hold beside the truth of every world: no two workers believe at the same time that a job is theirs to run, and what a worker
has reported is accepted once or refused. The wall clock is left alone: an owner that starts again goes by it, and leases end when it was set forward.

The known weak spot: an owner that was asleep takes heartbeats before it lets time pass (X-180). If it crashes just then, the next owner does not know of
them, and gives a worker that it does not hear of the third of a lease that every stall gets, while the worker counts on more.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from detent.errors import Refused
from detent.kernel import Claim, Command, Finish, Grant, Kernel, LeasePolicy, Outcome
from detent.kernel.commands import stamped
from detent.kernel.table import State
from detent.owner.turn import Request, request_of
from detent.owner.worker_turn import OK, End, Lease, Report, WorkerTurn
from detent.remote.bench import fence_at
from tests.kernel.builders import config, queue_of
from tests.owner.rig import Rig
from tests.sim.world import World

FAR = ("gpu-1", "gpu-2", "gpu-3")
LEASE_MS = 300
REMOTE = LeasePolicy("remote", LEASE_MS, LEASE_MS)
SLOTS = 2
LOST = 0.15
TWICE = 0.15


@dataclass(frozen=True, slots=True)
class Said:
    """A turn, signed at some moment."""

    worker: str
    boot: int
    number: int
    signed_ms: int
    wanted: int
    named: tuple[tuple[str, bytes], ...]
    reports: tuple[tuple[str, bytes, bool], ...]
    ended: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a server answers to a turn."""

    said: Said
    results: dict[bytes, str]
    gone: tuple[bytes, ...]
    grants: tuple[Grant, ...]
    is_stale: bool = False


@dataclass(slots=True)
class FarWorker:
    """What a worker remembers."""

    name: str
    boot: int = 0
    number: int = 0
    leases: dict[bytes, tuple[Grant, int]] = field(default_factory=dict)
    """What it runs, each with the moment at which it gives it up."""
    outbox: dict[bytes, tuple[Grant, bool]] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)
    turn: Said | None = None
    """The turn that has no answer yet."""
    sent_ms: int = 0
    """When that one was sent first."""

    @property
    def holder(self) -> str:
        return f"{self.name}/{self.boot}"


@dataclass(slots=True)
class Known:
    """What a server remembers of a worker."""

    boot: int = -1
    number: int = 0
    answers: dict[int, Answered] = field(default_factory=dict)
    leases: dict[bytes, tuple[Grant, int]] = field(default_factory=dict)
    """Each with the moment at which it was extended last."""
    named: set[bytes] = field(default_factory=set)
    waits: Said | None = None


class _Held(dict[str, dict[str, Grant]]):
    """What workers here hold; leases of workers elsewhere are not theirs."""

    def __missing__(self, _holder: str) -> dict[str, Grant]:
        return {}


class RemoteWorld(World):
    """A world in which most jobs run elsewhere."""

    def __init__(self, seed: int, directory: Path | None) -> None:
        super().__init__(seed, directory)
        self.held = _Held(self.held)
        settings = config(queue=queue_of(4, 12))
        self.rig = Rig(
            self.store, settings=config(queue=queue_of(4, 12), lease_policies=(*settings.lease_policies, REMOTE))
        )
        self.far = {name: FarWorker(name) for name in FAR}
        self.server: dict[str, Known] = {}
        self.server_since_ms = 0
        self.requests: list[Said] = []
        self.answers: list[Answered] = []
        self.deciding: list[tuple[Said, WorkerTurn, Future[list[Outcome]]]] = []
        self.accepted: dict[bytes, int] = {}
        """For each lease how often its report was accepted."""
        self.fenced = self.killed = self.repeated = 0
        self.doubtful: set[bytes] = set()
        """Leases that were extended while time stood still for an owner that crashed before it went on."""
        self.actions = [one for one in self.actions if one[1] not in (self.wall_clock_is_set, self.send_claim)]
        self.actions += [
            (4, self.send_claim),
            (60, self.take_turn),
            (50, self.arrive),
            (50, self.answer),
            (30, self.work),
            (3, self.kill),
        ]

    @property
    def now_ms(self) -> int:
        return int(self.rig.clock.monotonic_ms())

    # -- the workers ---------------------------------------------------------------------------------------------------

    def take_turn(self) -> None:
        """A worker sends its next turn, or the last one again."""
        worker = self.far[self.random.choice(FAR)]
        if worker.turn is None:
            self.number += 1
            worker.number, worker.sent_ms = self.number, self.now_ms
            reports = [(grant.job_id, lease, ok) for lease, (grant, ok) in worker.outbox.items()]
            named = [(grant.job_id, lease) for lease, (grant, _) in worker.leases.items() if lease not in worker.outbox]
            worker.turn = Said(
                *(worker.name, worker.boot, worker.number, self.now_ms, max(0, SLOTS - len(worker.leases))),
                *(tuple(named), tuple(reports), ()),
            )
        else:
            self.repeated += 1
            given = {name: getattr(worker.turn, name) for name in Said.__slots__}
            worker.turn = Said(**{**given, "signed_ms": self.now_ms})
        self.requests.append(worker.turn)

    def work(self) -> None:
        """A worker has done a job, well or badly."""
        worker = self.far[self.random.choice(FAR)]
        running = [lease for lease in worker.leases if lease not in worker.outbox]
        if running:
            lease = self.random.choice(running)
            worker.outbox[lease] = (worker.leases[lease][0], self.random.random() < 0.8)

    def kill(self) -> None:
        """A worker is killed and started again: it knows nothing of what it ran."""
        worker = self.far[self.random.choice(FAR)]
        self.killed += bool(worker.leases)
        self.far[worker.name] = FarWorker(worker.name, worker.boot + 1)

    def fence(self) -> None:
        """Workers give up what they have not been confirmed in for too long; a result that waits is sent all the same."""
        for worker in self.far.values():
            for lease, (_, until_ms) in list(worker.leases.items()):
                if until_ms <= self.now_ms and lease not in worker.outbox:
                    del worker.leases[lease]
                    self.fenced += 1

    def answer(self) -> None:
        """Some answers arrive, in any order, some twice and some never."""
        self.random.shuffle(self.answers)
        for _ in range(min(len(self.answers), 3)):
            answered = self.answers.pop()
            how = self.random.random()
            if how < LOST:
                continue
            if how < LOST + TWICE:
                self.answers.append(answered)
            self.take_in(answered)

    def take_in(self, answered: Answered) -> None:
        """A worker hears what came of a turn; of one that it does not wait for any more it hears nothing."""
        worker, said = self.far[answered.said.worker], answered.said
        if worker.turn is None or (said.boot, said.number) != (worker.boot, worker.turn.number):
            return
        worker.turn = None
        if answered.is_stale:
            return
        for lease in [*answered.results, *answered.gone]:
            worker.outbox.pop(lease, None)
            worker.leases.pop(lease, None)
        until_ms = int(fence_at(worker.sent_ms / 1_000, LEASE_MS / 1_000) * 1_000)
        for _, lease in said.named:
            if lease in worker.leases:
                grant, before_ms = worker.leases[lease]
                worker.leases[lease] = (grant, max(before_ms, until_ms))
        for grant in answered.grants:
            if grant.lease_id not in worker.seen and until_ms > self.now_ms:
                worker.seen.add(grant.lease_id)
                worker.leases[grant.lease_id] = (grant, until_ms)

    # -- the server ----------------------------------------------------------------------------------------------------

    def restart(self, *, in_peace: bool = False) -> None:
        """A server that was started again remembers nothing."""
        self.doubtful |= {heard[0] for heard in self.rig.owner._ticker._heard.values()}
        self.server, self.deciding, self.answers = {}, [], []
        self.server_since_ms = self.now_ms
        super().restart(in_peace=in_peace)
        self.rig.owner.takers = self.takers

    def arrive(self) -> None:
        """Some turns reach the server, some twice and some never."""
        self.random.shuffle(self.requests)
        for _ in range(min(len(self.requests), 3)):
            said = self.requests.pop()
            how = self.random.random()
            if how < LOST:
                continue
            if how < LOST + TWICE:
                self.requests.append(said)
            self.decide(said)

    def decide(self, said: Said) -> None:
        """Number, boot, leases: then the owner decides."""
        known = self.server.setdefault(said.worker, Known())
        if said.signed_ms < self.server_since_ms:
            return  # Signed before this server started: refused, and signed anew when the worker sends it again.
        if said.number in known.answers:
            self.answers.append(known.answers[said.number])
            return
        if said.number <= known.number:
            if not any(one.number == said.number for one, _, _ in self.deciding):
                self.answers.append(Answered(said, {}, (), (), is_stale=True))
            return
        recovers, known.number, known.waits = known.boot != said.boot, said.number, None
        if recovers:
            known.boot, known.leases, known.named = said.boot, {}, set()
        holder = f"{said.worker}/{said.boot}"
        named = {lease for _, lease in said.named}
        known.named |= named & known.leases.keys()
        unheard = {lease: grant for lease, (grant, _) in known.leases.items() if lease not in named}
        due = {lease for lease in named if self.now_ms - known.leases.get(lease, (None, -LEASE_MS))[1] >= LEASE_MS / 6}
        turn = WorkerTurn(
            *(
                holder,
                said.worker,
                [Report(lease, lease) for _, lease, _ in said.reports],
            ),
            [End(job_id, lease, "INTERRUPTED") for job_id, lease in said.ended],
            [
                *(Lease(*one) for one in said.named),
                *(Lease(grant.job_id, lease) for lease, grant in unheard.items()),
            ],
            frozenset(due | {lease for lease in unheard if lease not in known.named}),
            Claim(0, holder, said.wanted, lease="remote") if said.wanted else None,
            recovers,
            "remote",
        )
        judges = {lease: self.judge(holder, job_id, lease, ok) for job_id, lease, ok in said.reports}
        turn.prepare(lambda envelope, _content: (judges[envelope], ()))
        self.deciding.append((said, turn, self.rig.owner.ask([], judge=turn.judge)))

    def judge(self, holder: str, job_id: str, lease: bytes, ok: bool) -> Any:
        """A report closes the attempt of its own lease and no other."""

        def judge(kernel: Kernel) -> Sequence[Command] | Refused:
            job = kernel.jobs.get(job_id)
            if job is None or job.state != State.RUNNING or (job.lease_id, job.lease_holder) != (lease, holder):
                return Refused("LEASE_INVALID", "the lease is gone")
            if ok:
                return [Finish(0, job_id, lease)]
            return [Finish(0, job_id, lease, ok=False, reason_code="TASK_FAILED", category="INTERNAL_ERROR")]

        return judge

    def turn(self) -> None:
        """The owner takes its turn; turns that it has decided are answered, or wait."""
        owner = self.rig.owner
        super().turn()
        waiting, self.deciding = self.deciding, []
        for said, turn, future in waiting:
            if not future.done():
                self.deciding.append((said, turn, future))
            elif future.exception(timeout=0) is None and owner is self.rig.owner:
                self.decided(said, turn, future.result(timeout=0))

    def decided(self, said: Said, turn: WorkerTurn, outcomes: list[Outcome]) -> None:
        """What a server keeps and answers."""
        known = self.server[said.worker]
        granted = turn.read([_answer(one) for one in outcomes])
        for lease, code in turn.results.items():
            if code == OK:
                self.accepted[lease] = self.accepted.get(lease, 0) + 1
        if (known.boot, known.number) != (said.boot, said.number):
            return  # A newer turn came meanwhile, and is told what this one was granted.
        for lease in [*turn.results, *turn.gone]:
            known.leases.pop(lease, None)
        for lease in turn.beats:
            if lease in known.leases:
                known.leases[lease] = (known.leases[lease][0], self.now_ms)
        for grant in [*turn.found, *granted]:
            known.leases[grant.lease_id] = (grant, self.now_ms)
        named = {lease for _, lease in said.named}
        known.named |= named & known.leases.keys()
        untold = tuple(
            grant for lease, (grant, _) in known.leases.items() if lease not in known.named and lease not in named
        )
        if turn.results or turn.gone or untold or not said.wanted or self.random.random() < 0.5:
            self.tell(said, turn.results, tuple(turn.gone), untold)
        else:
            known.waits = said

    def tell(self, said: Said, results: dict[bytes, str], gone: tuple[bytes, ...], grants: tuple[Grant, ...]) -> None:
        """Answer a turn, and keep the answer for a repeat."""
        known = self.server[said.worker]
        known.waits = None
        known.answers = {said.number: Answered(said, dict(results), gone, grants)}
        self.answers.append(known.answers[said.number])

    def takers(self, jobs: int) -> list[Request]:
        """Claims for workers that wait, in the commit that submits."""
        taken: list[Request] = []
        for name, known in self.server.items():
            if known.waits is not None and jobs > 0:
                said, known.waits = known.waits, None
                jobs -= said.wanted
                future: Future[list[Outcome]] = Future()
                future.add_done_callback(partial(self.came, name, said))
                claim = Claim(0, f"{name}/{said.boot}", said.wanted, lease="remote")
                taken.append(request_of([partial(stamped, claim)], future, ()))
        return taken

    def came(self, name: str, said: Said, future: Future[list[Outcome]]) -> None:
        """What was claimed for a worker that waited is its own, whether or not it still waits."""
        known = self.server.get(name)
        grants = [grant for outcome in future.result(timeout=0) for grant in outcome.grants]
        if known is None or known.boot != said.boot:
            return
        for grant in grants:
            known.leases[grant.lease_id] = (grant, self.now_ms)
        if known.number == said.number:
            self.tell(said, {}, (), tuple(grants))

    # -- looking -------------------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Time has passed: first of all for the workers."""
        self.fence()
        super().beat()

    def look(self) -> None:
        """No job is leased to one worker while another one still runs it."""
        super().look()
        jobs = self.rig.owner._kernel.jobs
        for worker in self.far.values():
            for lease, (grant, _) in worker.leases.items():
                job = jobs.get(grant.job_id)
                if lease in worker.outbox or lease in self.doubtful:
                    continue
                if job is not None and job.state == State.RUNNING:
                    assert job.lease_id == lease, f"{grant.job_id} runs at {worker.holder} and at {job.lease_holder}"

    def check_counts(self) -> None:
        """No report was accepted twice."""
        super().check_counts()
        assert all(count == 1 for count in self.accepted.values())


def _answer(outcome: Outcome) -> Any:
    from detent.owner.socket_messages import answer_of

    return answer_of(outcome)
