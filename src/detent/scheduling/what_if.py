"""What-if: recorded traffic through a scheduling policy, in virtual time.

What came in is taken from the record and stays as it was: jobs and the ticks they came at, cancellations, replicas that
came, changed and went, budgets. So is what only running it can tell: how long each attempt took and how it ended. Everything else (who is admitted, who waits, who loses its place, who runs next and where) is decided by the real
`Scheduler`, asked the kernel's questions in the kernel's order; there is no second model of a policy that could be wrong.

At one tick, first what is due happens (limits, then ends of attempts and retries), then what came in, in its recorded
order; after each of the two, all jobs that can be placed are placed. No worker has to ask: work starts as soon as it can.

The known weak spot: arrivals do not answer. A step that is submitted when the one before it has ended comes at the tick it
came at then, however early or late a policy lets the one before it end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import field, replace
from heapq import heappop, heappush
from typing import Final, TypeAlias

from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvariantBroken, Refused
from detent.kernel import Arrival, Due, KernelConfig, Placed
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.scheduler import Scheduler, policy_of
from detent.words.states import CANCELLED, RETRYING, RUNNING, SUCCEEDED, WAITING

REFUSED: Final = "refused"
EVICTED: Final = "evicted"
STOPPED: Final = "stopped"
"""A running job that its own limit ended."""


class Attempt(NamedTuple):
    """How one attempt went: what a simulation takes for granted."""

    ticks: int | None
    """How long it held its place; None: until its job is cancelled, which the record says will happen."""
    end: str
    """`SUCCEEDED`, `FAILED` or `RETRYING`."""
    delay_ticks: int = 0
    """How long a retry stays away."""
    hold_ticks: int | None = None
    """How long its place stayed taken after it was cut short; None: it was not. Then a cut holds it for a lease."""
    progress: tuple[int, ...] = ()
    """When it said that it got on, in ticks since it began."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job as it arrived, and how its attempts go. The last attempt ends it, however many a policy leads to."""

    arrival: Arrival
    attempts: tuple[Attempt, ...]
    lease_ticks: int
    settled: bytes | None = None
    """The order that said what the job had used, where there was one: it is given when the job ends."""


class Came(NamedTuple):
    """A job was submitted."""

    tick: int
    work: Work


class Cancelled(NamedTuple):
    """A job was cancelled."""

    tick: int
    job_id: str


class Ordered(NamedTuple):
    """The scheduler was told something: a replica, a session (`detent.scheduling.orders`)."""

    tick: int
    name: str
    data: bytes


class Configured(NamedTuple):
    """An owner began with this configuration."""

    tick: int
    config: KernelConfig


class WorkerCame(NamedTuple):
    """An unregistered worker began to claim work, and held this many jobs at once."""

    tick: int
    replica_id: str
    slots: int


class WorkerLeft(NamedTuple):
    """He claimed no more."""

    tick: int
    replica_id: str


Input: TypeAlias = Came | Cancelled | Ordered | Configured | WorkerCame | WorkerLeft


@dataclass(frozen=True, slots=True)
class Traffic:
    """What came in at one partition, by tick, and the configuration it began under."""

    config: KernelConfig
    inputs: tuple[Input, ...]


@dataclass(slots=True)
class Fate:
    """How one job ended."""

    job_id: str
    priority: int
    came_tick: int
    state: str = WAITING
    reason: str | None = None
    started_tick: int | None = None
    replicas: list[str] = field(default_factory=list)
    """Where each attempt ran."""

    @property
    def wait_ticks(self) -> int | None:
        """From its arrival to the beginning of its first attempt; None when there was none."""
        return None if self.started_tick is None else self.started_tick - self.came_tick


def simulate(traffic: Traffic, policy: SchedulingPolicy | None = None) -> dict[str, Fate]:
    """What becomes of every job under one policy, or under those that were in force. Runs until nothing more happens."""
    simulation = _Simulation(traffic.config, policy)
    simulation.run(traffic.inputs)
    return simulation.fates


@dataclass(slots=True)
class _Job:
    work: Work
    fate: Fate
    attempt: int = -1
    worker: str | None = None
    """Who holds its present attempt in the open pool."""


_PROGRESS, _END, _READY, _FREE = range(4)


class _Timer(NamedTuple):
    tick: int
    kind: int
    number: int
    """Counts timers: of two at one tick and of one kind, the one that was set first."""
    name: str
    """A job, or for `_FREE` a worker."""
    attempt: int
    report: int = 0


class _Simulation:
    def __init__(self, config: KernelConfig, policy: SchedulingPolicy | None) -> None:
        self.fixed = policy
        self.scheduler = Scheduler(self._under(config))
        self.tick = 0
        self.fates: dict[str, Fate] = {}
        self._jobs: dict[str, _Job] = {}
        self._timers: list[_Timer] = []
        self._timer_count = 0
        self._waiting: dict[Hashable, list[tuple[int, int, str, int]]] = {}
        """Retries that wait for room, by line: ready tick, class from the top, job, attempt."""
        self._workers: set[str] = set()
        self._free: deque[str] = deque()
        """Free places of workers in the open pool; who has been idle longest asks first."""
        self._stale = False
        """Whether something may be placeable that was not when that was last tried."""

    def run(self, inputs: Sequence[Input]) -> None:
        """Let everything happen."""
        place = 0
        while True:
            ticks = [inputs[place].tick] if place < len(inputs) else []
            if self._timers:
                ticks.append(self._timers[0].tick)
            if (due := self.scheduler.next_due()) is not None:
                ticks.append(due.tick)
            if not ticks:
                return
            self.tick = max(self.tick, min(ticks))
            self._pass_time()
            self._dispatch()
            while place < len(inputs) and inputs[place].tick <= self.tick:
                self._take_in(inputs[place])
                place += 1
            self._dispatch()

    def _under(self, config: KernelConfig) -> KernelConfig:
        if self.fixed is None:
            return config
        return replace(config, queue=self.fixed.queue_policy(), scheduling=self.fixed.to_map())

    # -- what comes in -------------------------------------------------------------------------------------------------

    def _take_in(self, came: Input) -> None:
        if type(came) is Came:
            self._admit(came.work)
            return
        if type(came) is Cancelled:
            if (job := self._jobs.get(came.job_id)) is not None:
                self._cut(job, CANCELLED, None)
        elif type(came) is Ordered:
            self.scheduler.order(came.name, came.data, self.tick)
        elif type(came) is Configured:
            self._reconfigure(came.config)
        elif type(came) is WorkerCame:
            self._workers.add(came.replica_id)
            self._free.extend([came.replica_id] * came.slots)
        elif type(came) is WorkerLeft:
            self._workers.discard(came.replica_id)
            self._free = deque(name for name in self._free if name != came.replica_id)
        self._stale = True
        if self._waiting:
            self._settle()  # Room that was made here is not for the next arrival.

    def _admit(self, work: Work) -> None:
        arrival = work.arrival
        job_id = arrival.job_id
        known = self.fates.get(job_id)
        if known is not None and known.state != REFUSED:
            return  # The same submission again is the same job.
        fate = self.fates[job_id] = Fate(job_id, arrival.priority, self.tick)
        waiting = self._waiting_of(arrival.tenant_id)
        placed = self.scheduler.admit(arrival._replace(crowded=self._waiting.keys(), tenant_waiting=waiting))
        if isinstance(placed, Refused):
            fate.state, fate.reason = REFUSED, placed.code
            return
        self._jobs[job_id] = _Job(work, fate)
        for lost in placed.evicted:
            self.scheduler.forget(lost)
            evicted = self._jobs.pop(lost).fate
            evicted.state, evicted.reason = EVICTED, placed.reason_code
        pool_id, priority = self.scheduler.line(job_id, arrival.priority)
        # A job behind one that could not be placed cannot be placed either, unless a job has left.
        self._stale |= bool(placed.evicted) or self.scheduler.queues.depths(pool_id)[priority] == 1

    def _waiting_of(self, tenant_id: str) -> int:
        """How many jobs of a tenant wait, where the policy asks for that."""
        if self.scheduler.policy.capacity_per_tenant is None:
            return 0
        waiting = self.scheduler.queues
        return sum(job.work.arrival.tenant_id == tenant_id and name in waiting for name, job in self._jobs.items())

    def _reconfigure(self, config: KernelConfig) -> None:
        """A new owner's policy takes over what the old one's left, as in the kernel; one that is given stays."""
        if self.fixed is not None or policy_of(config) == self.scheduler.policy:
            return
        snapshot = self.scheduler.snapshot()
        self.scheduler = Scheduler(config)
        self.scheduler.restore(snapshot)

    # -- what happens by itself ----------------------------------------------------------------------------------------

    def _set(self, ticks: int, kind: int, name: str, attempt: int = 0, report: int = 0) -> None:
        heappush(self._timers, _Timer(self.tick + ticks, kind, self._timer_count, name, attempt, report))
        self._timer_count += 1

    def _pass_time(self) -> None:
        while True:
            due = self.scheduler.next_due()
            if due is not None and due.tick <= self.tick:
                self._reach(due)
            elif self._timers and self._timers[0].tick <= self.tick:
                self._ring(heappop(self._timers))
            else:
                return

    def _reach(self, due: Due) -> None:
        if due.code is None:
            self.scheduler.lapsed(due.job_id)
            self._stale = True
        else:
            self._cut(self._jobs[due.job_id], STOPPED, due.code)

    def _ring(self, timer: _Timer) -> None:
        if timer.kind == _FREE:
            self._give_back(timer.name)
            return
        job = self._jobs.get(timer.name)
        if job is None or job.attempt != timer.attempt:
            return
        if timer.kind == _END:
            self._end(job)
        elif timer.kind == _READY:
            self._ready(job)
        else:
            self.scheduler.progressed(timer.name, self.tick)
            self._watch_progress(job, timer.report + 1)

    def _end(self, job: _Job) -> None:
        attempt, job_id = _attempt(job), job.fate.job_id
        if attempt.end != RETRYING:
            self._leave(job, attempt.hold_ticks, succeeded=attempt.end == SUCCEEDED)
            self._close(job, attempt.end, None)
            return
        self._leave(job, attempt.hold_ticks, succeeded=False)
        job.fate.state = RETRYING
        self._set(attempt.delay_ticks, _READY, job_id, job.attempt)

    def _ready(self, job: _Job) -> None:
        """A retry's delay is over: it goes back to its line if there is room, else it is the first to get some (X-042)."""
        job_id, priority = job.fate.job_id, job.work.arrival.priority
        line = self.scheduler.line(job_id, priority)
        if self.scheduler.has_room(line):
            self._readmit(job)
        else:
            heappush(self._waiting.setdefault(line, []), (self.tick, -priority, job_id, job.attempt))

    def _readmit(self, job: _Job) -> None:
        self.scheduler.readmit(job.fate.job_id, job.work.arrival.priority)
        job.fate.state = WAITING
        self._stale = True

    def _cut(self, job: _Job, state: str, reason: str | None) -> None:
        """End a job before its time, wherever it stands; one that runs keeps its place for a while (X-092)."""
        if job.fate.state == RUNNING:
            hold_ticks = _attempt(job).hold_ticks
            self._leave(job, job.work.lease_ticks if hold_ticks is None else hold_ticks, succeeded=False)
        elif job.fate.state == WAITING and not self.scheduler.cancel(job.fate.job_id):
            raise InvariantBroken(f"job {job.fate.job_id} waits and is not in the queue")
        self._close(job, state, reason)

    def _leave(self, job: _Job, hold_ticks: int | None, *, succeeded: bool) -> None:
        held_until = self.tick + hold_ticks if hold_ticks else None
        self.scheduler.left(job.fate.job_id, succeeded=succeeded, held_until=held_until)
        self._stale = True
        if job.worker is not None and hold_ticks:
            self._set(hold_ticks, _FREE, job.worker)
        elif job.worker is not None:
            self._give_back(job.worker)
        job.worker = None

    def _close(self, job: _Job, state: str, reason: str | None) -> None:
        if job.work.settled is not None and job.attempt >= 0:
            self.scheduler.order("session_settle", job.work.settled, self.tick)
        self.scheduler.forget(job.fate.job_id)
        del self._jobs[job.fate.job_id]
        job.fate.state, job.fate.reason = state, reason
        self._stale = True

    def _give_back(self, worker: str) -> None:
        if worker in self._workers:
            self._free.append(worker)
            self._stale = True

    # -- who runs ------------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Place every job that can be placed, and let retries into the room that makes, until nothing changes."""
        if self._waiting:
            self._settle()
        while self._stale:
            self._stale = False
            while (placed := self._take()) is not None:
                self._start(placed)
            if self._waiting:
                self._settle()

    def _take(self) -> Placed | None:
        if not len(self.scheduler):
            return None
        if self.scheduler.fleet:
            placed = self.scheduler.take(None)
        else:
            placed = self.scheduler.take(self._free[0]) if self._free else None
        if not isinstance(placed, Placed):
            return None
        if not self.scheduler.fleet:
            self._jobs[placed.job_id].worker = self._free.popleft()
        return placed

    def _start(self, placed: Placed) -> None:
        job = self._jobs[placed.job_id]
        job.attempt += 1
        self.scheduler.leased(placed.job_id, placed.replica_id, self.tick)
        fate = job.fate
        fate.state = RUNNING
        fate.replicas.append(placed.replica_id)
        if fate.started_tick is None:
            fate.started_tick = self.tick
        attempt = _attempt(job)
        if attempt.ticks is not None:
            self._set(attempt.ticks, _END, placed.job_id, job.attempt)
        self._watch_progress(job, 0)

    def _watch_progress(self, job: _Job, report: int) -> None:
        """Have the next sign of progress given at its time, if the job has a limit that asks for it."""
        reports = _attempt(job).progress
        known = self.scheduler.known.get(job.fate.job_id)
        if report < len(reports) and known is not None and known.asked.limits.idle_ticks is not None:
            since = reports[report - 1] if report else 0
            self._set(reports[report] - since, _PROGRESS, job.fate.job_id, job.attempt, report)

    def _settle(self) -> None:
        """Give free places to waiting retries, by ready tick, class from the top and job id, as the kernel does."""
        while True:
            best: tuple[tuple[int, int, str, int], Hashable] | None = None
            for line, retries in list(self._waiting.items()):
                while retries and not self._still_waits(*retries[0][2:]):
                    heappop(retries)
                if not retries:
                    del self._waiting[line]
                elif self.scheduler.has_room(line) and (best is None or retries[0] < best[0]):
                    best = retries[0], line
            if best is None:
                return
            heappop(self._waiting[best[1]])
            self._readmit(self._jobs[best[0][2]])

    def _still_waits(self, job_id: str, attempt: int) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.attempt == attempt and job.fate.state == RETRYING


def _attempt(job: _Job) -> Attempt:
    return job.work.attempts[min(job.attempt, len(job.work.attempts) - 1)]
