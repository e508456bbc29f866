"""A small world on one thread, from one seed: an owner, workers, a lossy way between them, a faulty store, a moving clock.

Every choice is drawn from one generator, so a seed is a whole history and can be played again. Messages are delayed,
repeated and lost, and so are answers; a caller without one asks again, as the contract allows. The owner crashes at its
crash points, its store fails or leaves everybody in the dark, time jumps, the wall clock is set wrong.

What must hold after every step is in `Truth`, which knows only what was acknowledged and what the ledger says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from detent.errors import DetentError
from detent.kernel import Claim, Command, Erase, Finish, Grant, Job, Outcome, ReportUsage, checkpoint
from detent.kernel.table import TERMINAL
from detent.store.api import Store
from detent.store.memory import MemoryStore
from detent.store.sqlite import SqliteStore
from detent.testing import CrashAt, Faults, faulty
from tests.kernel.builders import config, queue_of
from tests.owner.rig import GAP_TICKS, ORIGIN, Rig, cancel, end_run, fail, finish, heartbeat, start_run, submit
from tests.sim.truth import Truth

WORKERS = ("worker-1", "worker-2", "worker-3")
DILIGENT = "diligent"
"""A worker that sends its heartbeats in time whatever happens, and therefore must never lose a lease."""
STEP_MS_MAX = GAP_TICKS - 3
DRAIN_ROUNDS_MAX = 500
RESTARTS_MAX = 20


@dataclass(slots=True)
class Message:
    """A request on its way, from a caller that asks again until it is answered."""

    sender: str
    commands: tuple[Command, ...]
    content: tuple[tuple[bytes, bytes], ...] = ()
    """What the commands name, beside them."""


class World:
    """One history. `run` plays it; the same seed plays the same one again."""

    def __init__(self, seed: int, directory: Path | None) -> None:
        self.random = random.Random(seed)
        self.path = None if directory is None else directory / "ledger.db"
        self.store: Store = (
            MemoryStore.create(ORIGIN, 1) if self.path is None else SqliteStore.create(self.path, ORIGIN, 1)
        )
        self.faults = Faults()
        self.rig = Rig(self.store, settings=config(queue=queue_of(4, 12)))
        self.truth = Truth()
        self.network: list[Message] = []
        self.in_flight: list[tuple[Message, Future[list[Outcome]]]] = []
        self.held: dict[str, dict[str, Grant]] = {name: {} for name in (*WORKERS, DILIGENT)}
        self.jobs: list[str] = []
        self.open_runs: list[str] = []
        self.reports: dict[bytes, int] = {}
        """For each lease how many reports of usage were answered; the next one has this number."""
        self.reported: set[tuple[str, bytes, int]] = set()
        """Every report that was ever sent, however often: job, lease, number."""
        self.erasures = 0
        self.number = 0
        self.restarts = 0
        self.looked_at: tuple[int, bytes] = (0, b"")
        """How many batches there were at the last look, and the state that they lead to."""
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (20, self.send_submit),
            (15, self.send_claim),
            (18, self.send_result),
            (10, self.send_heartbeat),
            (8, self.send_usage),
            (2, self.send_erase),
            (5, self.send_cancel),
            (3, self.send_ghost),
            (4, self.send_run),
            (25, self.deliver),
            (25, self.turn),
            (18, self.time_passes),
            (2, self.stall),
            (2, self.wall_clock_is_set),
            (4, self.store_fails),
            (3, self.crash),
            (1, self.close),
        ]

    def run(self, steps: int) -> None:
        """Play so many steps, then let everything come to its end."""
        self.restart()
        weights = [weight for weight, _ in self.actions]
        for _ in range(steps):
            (_, action) = self.random.choices(self.actions, weights)[0]
            action()
            self.look()
        self.drain()

    # -- the owner and its trouble --------------------------------------------------------------------------------------

    def restart(self, *, in_peace: bool = False) -> None:
        """Open the ledger again, as often as it takes: the opening itself may fail, too. In peace, no crash is to come."""
        for _ in range(RESTARTS_MAX):
            self.restarts += 1
            self.rig.sent.clear()
            if self.path is not None:
                self.store.close()
                self.store = self.rig.store = SqliteStore.open(self.path)
            point = CrashAt(self.random.choice(CrashAt.POINTS), self.random.randint(1, 200))
            try:
                self.rig.open(
                    store=faulty(self.store, self.faults),
                    crash_point=None if in_peace else point,
                    checkpoint_records=self.random.choice([5, 20, 1_000]),
                )
            except DetentError:
                continue
            break
        else:
            raise AssertionError("the ledger does not open any more")
        for grant in self.rig.sent:
            self.held[grant.replica_id][grant.job_id] = grant

    def turn(self) -> None:
        """The owner takes what waits; those it answers hear it, unless the answer is lost on the way."""
        self.rig.owner.step()
        waiting, self.in_flight = self.in_flight, []
        for message, future in waiting:
            if not future.done():
                self.in_flight.append((message, future))
            elif future.exception(timeout=0) is not None or self.random.random() < 0.1:
                self.network.append(message)
            else:
                self.hear(message, future.result(timeout=0))
        if self.rig.owner.closed:
            assert not self.in_flight, "a caller still waits for an owner that is gone"
            self.restart()

    def hear(self, message: Message, outcomes: list[Outcome]) -> None:
        """An answer arrives."""
        for command, outcome in zip(message.commands, outcomes, strict=True):
            self.truth.hear(command, outcome)
            if isinstance(command, Claim):
                self.held[message.sender].update({grant.job_id: grant for grant in outcome.grants})
            elif isinstance(command, Finish):
                self.let_go(message.sender, command.job_id, command.lease_id)
            elif isinstance(command, ReportUsage) and outcome.ok:
                self.reports[command.lease_id] = max(self.reports.get(command.lease_id, 0), command.report_no + 1)
            elif isinstance(command, Erase):
                assert outcome.ok, outcome.refusal
                self.erasures = max(self.erasures, command.expected_erasures + 1)

    def let_go(self, worker: str, job_id: str, lease_id: bytes) -> None:
        """A worker is done with a lease. An answer about an older one says nothing of what it holds by now."""
        grant = self.held[worker].get(job_id)
        if grant is not None and grant.lease_id == lease_id:
            del self.held[worker][job_id]

    def crash(self, *, in_peace: bool = False) -> None:
        """The owner's process ends without a word to any caller."""
        self.network += [message for message, _ in self.in_flight]
        self.in_flight = []
        self.restart(in_peace=in_peace)

    def close(self) -> None:
        """The owner ends in good order, or tries to."""
        self.rig.owner.close()
        self.turn()

    def store_fails(self) -> None:
        """One of the next calls of the store goes wrong, in one of three ways."""
        call = self.random.choice(["append"] * 4 + ["append_refusals", "append_tree_head", "head"])
        way = self.random.choice([self.faults.fail, self.faults.lose, self.faults.hide])
        way(call, after=self.random.randint(0, 3))

    # -- time -----------------------------------------------------------------------------------------------------------

    def time_passes(self) -> None:
        """A little, as it passes for those who are awake."""
        self.rig.clock.jump(self.random.randint(1, STEP_MS_MAX))
        self.beat()

    def stall(self) -> None:
        """A lot, while no process is awake."""
        self.rig.clock.jump(self.random.choice([200, 5_000, 3_600_000]))
        self.beat()

    def wall_clock_is_set(self) -> None:
        """By an operator, or by a time server that is wrong."""
        self.rig.clock.set_wall(self.random.choice([0, 500_000, 10**9]))

    def beat(self) -> None:
        """The diligent worker's heartbeats are asked for again until they are answered."""
        for grant in list(self.held[DILIGENT].values()):
            if self.insist(heartbeat(grant)).refusal is not None:
                self.let_go(DILIGENT, grant.job_id, grant.lease_id)
        self.truth.cared_for = set(self.held[DILIGENT])

    def insist(self, command: Command) -> Outcome:
        """Ask until there is an answer."""
        for _ in range(RESTARTS_MAX):
            future = self.rig.ask(command)
            self.turn()
            if future.done() and future.exception(timeout=0) is None:
                return future.result(timeout=0)[0]
        raise AssertionError("a heartbeat is never answered")

    # -- those who ask ---------------------------------------------------------------------------------------------------

    def send(self, sender: str, *commands: Command, content: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """Put a message on its way."""
        self.network.append(Message(sender, commands, content))

    def deliver(self) -> None:
        """Some of the messages arrive, in any order, some of them twice."""
        self.random.shuffle(self.network)
        for _ in range(min(len(self.network), self.random.randint(1, 6))):
            message = self.network.pop()
            if self.random.random() < 0.15:
                self.network.append(message)
            self.in_flight.append((message, self.rig.ask(*message.commands, content=message.content)))

    def send_submit(self) -> None:
        """One or two new jobs together, some of them of a run."""
        commands: list[Command] = []
        for _ in range(self.random.randint(1, 2)):
            self.number += 1
            job_id = f"job-{self.number}"
            self.jobs.append(job_id)
            run_id = self.random.choice(self.open_runs) if self.open_runs and self.random.random() < 0.3 else None
            priority, retries = self.random.randint(1, 10), self.random.randint(0, 3)
            commands.append(submit(job_id, run_id=run_id, priority=priority, max_retries=retries))
        self.send("submitter", *commands)

    def send_claim(self) -> None:
        """A worker wants work."""
        worker = self.random.choice([*WORKERS, DILIGENT])
        if worker != DILIGENT:
            self.send(worker, Claim(0, worker, self.random.randint(1, 3)))
        elif len(self.held[DILIGENT]) < 3:
            future = self.rig.ask(Claim(0, DILIGENT))
            self.turn()
            if future.done() and future.exception(timeout=0) is None:
                self.hear(Message(DILIGENT, (Claim(0, DILIGENT),)), future.result(timeout=0))
            self.truth.cared_for = set(self.held[DILIGENT])

    def send_result(self) -> None:
        """A worker reports the end of an attempt, good or bad."""
        if choice := self.any_held():
            self.send_end(*choice)

    def send_end(self, worker: str, grant: Grant) -> None:
        """How an attempt ended, by chance."""
        how = self.random.random()
        if how < 0.7:
            self.send(worker, finish(grant))
        elif how < 0.9:
            self.send(worker, fail(grant))
        else:
            self.send(worker, finish(grant, kind="worker_lost", ok=False, reason_code="WORKER_LOST"))

    def send_good_result(self, grant: Grant) -> None:
        """A worker has done what it was asked to."""
        self.send(grant.replica_id, finish(grant))

    def send_heartbeat(self) -> None:
        """A worker says that it lives; the message may take as long as it likes."""
        if choice := self.any_held():
            worker, grant = choice
            self.send(worker, heartbeat(grant))

    def send_usage(self) -> None:
        """A worker reports one millisecond, under a number that it uses until it is answered."""
        if choice := self.any_held():
            worker, grant = choice
            number = self.reports.get(grant.lease_id, 0)
            self.reported.add((grant.job_id, grant.lease_id, number))
            self.send(worker, ReportUsage(0, grant.job_id, grant.lease_id, number, cpu_time_ms=1))

    def send_erase(self) -> None:
        """The one who erases here wishes for the next erasure until he is answered."""
        self.send("user", Erase(0, (bytes([self.erasures % 256]) * 32,), self.erasures))

    def any_held(self) -> tuple[str, Grant] | None:
        """A worker with a lease it believes to hold."""
        choices = [(worker, grant) for worker in self.held for grant in self.held[worker].values()]
        return self.random.choice(choices) if choices else None

    def send_cancel(self) -> None:
        """Cancel a job, perhaps one that is not known yet."""
        if self.jobs:
            self.send("user", cancel(self.random.choice(self.jobs)))

    def send_ghost(self) -> None:
        """Ask for something that must be refused."""
        self.number += 1
        ghost = f"ghost-{self.number}"
        self.truth.ghosts.add(ghost)
        commands: list[Command] = [cancel(ghost), submit(ghost, run_id="no-such-run")]
        self.send("user", self.random.choice(commands))

    def send_run(self) -> None:
        """A run opens or closes."""
        if self.open_runs and self.random.random() < 0.5:
            self.send("user", end_run(self.random.choice(self.open_runs)))
        else:
            self.number += 1
            self.open_runs.append(f"run-{self.number}")
            self.send("user", start_run(self.open_runs[-1]))

    # -- looking ---------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """What must hold after every step."""
        self.truth.read(self.store)
        self.truth.check(self.store)
        owner = self.rig.owner
        if owner.closed:
            return
        owner._kernel.check()
        size = self.store.head(0).size
        if size != self.looked_at[0]:
            self.looked_at = (size, checkpoint(self.rig.recover(self.store).kernel))
        assert checkpoint(owner._kernel) == self.looked_at[1], "a restart would go on from another state"

    def drain(self) -> None:
        """No more trouble: whatever was asked is answered, and every job comes to its end."""
        self.faults = Faults()
        self.crash(in_peace=True)
        restarts = self.restarts
        for _ in range(DRAIN_ROUNDS_MAX):
            self.settle()
            self.send(WORKERS[0], Claim(0, WORKERS[0], 100))
            for grant in [grant for worker in self.held for grant in self.held[worker].values()]:
                self.send_good_result(grant)
            self.time_passes()
            self.turn()
            self.look()
            if not self.rig.owner._kernel.jobs:
                break
        assert not self.rig.owner._kernel.jobs, "some jobs never end"
        assert self.restarts == restarts, "the owner ended although nothing troubled it"
        self.rig.owner.close()
        self.truth.check(self.store)
        self.check_counts()
        assert {row.state for row in self.store.jobs()} <= {state.value for state in TERMINAL}

    def check_counts(self) -> None:
        """What was answered is counted, and nothing twice, however often it was sent (X-173)."""
        for row in self.store.jobs():
            sent = {(lease, number) for job_id, lease, number in self.reported if job_id == row.job_id}
            answered = sum(self.reports.get(lease, 0) for lease in {lease for lease, _ in sent})
            used = Job.decode(row.body).usage.cpu_time_ms
            assert answered <= used <= len(sent), f"{row.job_id}: {answered} answered, {used} counted, {len(sent)} sent"
        assert len(list(self.store.records_of_kind(0, "erased"))) in {self.erasures, self.erasures + 1}

    def settle(self) -> None:
        """Deliver until everybody has his answer."""
        for _ in range(DRAIN_ROUNDS_MAX):
            if not self.network:
                return
            self.deliver()
            self.turn()
        raise AssertionError("a caller is never answered")

    def bytes(self) -> Iterator[bytes]:
        """Everything that was written, for comparing two histories."""
        for row in self.store.batches(0):
            yield row.body + row.signature + row.commands
