"""The scheduler as a kernel is handed it: queues, fleet, sessions and watchdog behind the kernel's few questions.

It decides who may wait (`admit`), who runs next and where (`take`), and whose time is up (`next_due`). It never changes a
job: the kernel asks, moves the job, and reports the outcome (`leased`, `left`, `forget`). Everything it decides from
comes in through recorded commands, so a replay asks the same questions and gets the same answers, decision records and all.

It runs in two ways, without a setting. While no replica is registered the pool is open: any worker that claims is given
the next job, as on a single machine. From the first registered replica on, jobs are placed, and only registered replicas get
any. Jobs admitted to the open pool wait for any pool; their line is ``NO_POOL``. When the last replica is removed the pool is
open again, also for jobs that wait for one of the fleet's pools and need no particular replica.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, Final

from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken, Refused
from detent.kernel import Arrival, Due, Enqueued, KernelConfig, Placed
from detent.kernel.policy import RULES_POOL_OPENED
from detent.kernel.queue import OWN_WORKERS
from detent.scheduling import orders
from detent.scheduling.admission import admit, tenant_refusal
from detent.scheduling.checks import workflow_priority
from detent.scheduling.decisions import (
    ADMITTED,
    ANY_WORKER,
    PLACED,
    WAITING,
    Decision,
    admitted_to_open_pool,
    evicted,
    placed_on_asker,
    refused,
    waits_behind,
)
from detent.scheduling.fleet import Fleet
from detent.scheduling.orders import Asked, read_request
from detent.scheduling.placement import LastGood, Remembered, place
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.pool_queues import NO_POOL, PoolQueues
from detent.scheduling.queues import ClassQueues
from detent.scheduling.sessions import Sessions
from detent.scheduling.types import TaskRequest
from detent.scheduling.watchdog import Limits, Watchdog

SNAPSHOT_FIELDS: Final = ("queues", "fleet", "sessions", "watchdog", "known")
_UNLIMITED: Final = Limits()


@dataclass(slots=True)
class Known:
    """What is kept of a job that asked for something, or that is treated otherwise than its manifest says."""

    arrival: Arrival
    asked: Asked
    pool_id: str
    priority: int
    ran: bool = False
    """Whether an attempt of it ever began: then its session pays for it."""


class Scheduler:
    """The queue of `detent.kernel.JobQueue` with all of scheduling behind it."""

    def __init__(self, config: KernelConfig) -> None:
        self.policy = policy_of(config)
        self.tick_ms = config.tick_ms
        self.queues = PoolQueues(config.queue, self._make_queues)
        partition_id, partitions = config.partition_id, config.partitions
        self.fleet = Fleet(order=self.policy.placement_order, partition_id=partition_id, partitions=partitions)
        self.sessions = Sessions(
            defaults=self.policy.session_budgets,
            affinity=self.policy.session_affinity,
            partition_id=partition_id,
            partitions=partitions,
        )
        self.watchdog = Watchdog()
        self.known: dict[str, Known] = {}
        self.labelled: set[str] = set()
        """Jobs that ask for labels: while there are any, claims pass over those that they do not suit."""
        self._lapses: list[tuple[int, str]] = []
        self._no_limit = self.policy.watchdog_wall_ms is None
        self._opens_pools = config.rules >= RULES_POOL_OPENED

    def _make_queues(self, _: object) -> ClassQueues:
        return ClassQueues(self.policy.capacity(), self.policy.capacity_total, self.policy.admission_policy)

    # -- who waits -----------------------------------------------------------------------------------------------------

    def admit(self, arrival: Arrival) -> Enqueued | Refused:
        """Decide whether a new job may wait, and for which pool; give it the last place of its line."""
        policy = self.policy
        priority = arrival.priority
        if arrival.job_kind == "action":
            priority = workflow_priority(priority, policy.workflow_priority_cap)
        plain = arrival.request is None and arrival.pool_pin is None and priority == arrival.priority and self._no_limit
        if plain and not self.fleet:
            return self._enqueue_plain(arrival)
        asked = read_request(
            arrival, wall_ms=policy.watchdog_wall_ms, idle_ms=policy.watchdog_idle_ms, tick_ms=self.tick_ms
        )
        if isinstance(asked, Refused):
            return asked
        # A session that has paid elsewhere is not asked again.
        task = replace(asked.task, session_id=None) if asked.debited else asked.task
        if not self.fleet and asked.demands_nothing:
            if (refusal := self.sessions.check(task)) is not None:
                return _not_admitted(refusal, refused(arrival.job_id, refusal))
            return self._enqueue(
                Known(arrival, asked, NO_POOL, priority), Decision(ADMITTED, arrival.job_id, ANY_WORKER)
            )
        if self.fleet and not asked.labels <= OWN_WORKERS:
            refusal = Refused("NO_FEASIBLE_POOL", "jobs with labels wait in the open pool, and replicas are registered")
            return _not_admitted(refusal, refused(arrival.job_id, refusal))
        admitted = admit(task, self.fleet, self.sessions, policy)
        if isinstance(admitted, Refused):
            return _not_admitted(admitted, admitted.decision)
        return self._enqueue(Known(arrival, asked, admitted.pool_id, priority), admitted.decision)

    def _enqueue_plain(self, arrival: Arrival) -> Enqueued | Refused:
        """The way of nearly every job on a single machine: it asks for nothing, so there is nothing to read or keep."""
        placed = self._line_up(arrival, NO_POOL, arrival.priority)
        if isinstance(placed, Refused):
            return _not_admitted(placed, refused(arrival.job_id, placed))
        stands = self.queues.last(NO_POOL, arrival.priority, placed.arrival)
        return self._enqueued(arrival, placed, admitted_to_open_pool(arrival.job_id, stands))

    def _enqueue(self, known: Known, decision: Decision) -> Enqueued | Refused:
        arrival, asked, pool_id, priority = known.arrival, known.asked, known.pool_id, known.priority
        placed = self._line_up(arrival, pool_id, priority)
        if isinstance(placed, Refused):
            inputs = {"request_digest": decision.request_digest, "fleet_digest": decision.fleet_digest}
            return _not_admitted(placed, refused(arrival.job_id, placed, pool_id=decision.pool_id, **inputs))
        if not asked.debited and self.sessions.debit(asked.task) is not None:
            raise InvariantBroken(f"job {arrival.job_id} was admitted and cannot be paid for")
        self.known[arrival.job_id] = known
        if asked.labels:
            self.labelled.add(arrival.job_id)
        stands = self.queues.last(pool_id, priority, placed.arrival)
        left = self.sessions.left(asked.task.session_id)
        return self._enqueued(arrival, placed, replace(decision, queue=stands, budget_left=left).encode())

    def _line_up(self, arrival: Arrival, pool_id: str, priority: int) -> Enqueued | Refused:
        """Give a job the last place of a line. No new job makes room for itself where a retry waits for room (X-042)."""
        if (refusal := tenant_refusal(arrival.tenant_waiting, self.policy)) is not None:
            return refusal
        if arrival.crowded and not self.queues.has_room(priority, pool_id=pool_id):
            lines = [line for line in arrival.crowded if isinstance(line, tuple) and line[0] == pool_id]
            if lines:
                message = f"jobs that are tried again wait for room in pool {show(pool_id)} ahead of new jobs"
                return Refused("QUEUE_FULL", message, {"lines_crowded": len(lines)})
        return self.queues.enqueue(arrival.job_id, priority, evictable=arrival.evictable, pool_id=pool_id)

    def _enqueued(self, arrival: Arrival, placed: Enqueued, decision: bytes) -> Enqueued:
        evictions = tuple(evicted(lost, placed.reason_code, arrival.job_id).encode() for lost in placed.evicted)
        return Enqueued(placed.arrival, placed.evicted, placed.reason_code, decision, evictions)

    def refuse_together(self, priorities: Sequence[int], tenant_waiting: int) -> Refused | None:
        """Why not all of some new jobs could wait now, each of its class; None when they could. Changes nothing.

        They are jobs of one tenant, which has so many that wait.
        """
        if self.fleet:
            return Refused("INVALID_PARAMS", "jobs are admitted together only while no replica is registered")
        if (refusal := tenant_refusal(tenant_waiting, self.policy, more=len(priorities))) is not None:
            return refusal
        if self.queues.has_room_for(priorities):
            return None
        return Refused("QUEUE_FULL", f"the queue has no room for {len(priorities)} more jobs together")

    def readmit(self, job_id: str, priority: int) -> None:
        """Give a job that is tried again the last place of its line; it is never evicted from there."""
        pool_id, own = self.line(job_id, priority)
        placed = self.queues.enqueue(job_id, own, evictable=False, pool_id=pool_id)
        if not isinstance(placed, Enqueued):
            raise InvariantBroken(f"the queue promised room for job {job_id} and refused it")

    def line(self, job_id: str, priority: int) -> tuple[str, int]:
        """The pool a job waits for and the class it is treated as."""
        known = self.known.get(job_id)
        return (NO_POOL, priority) if known is None else (known.pool_id, known.priority)

    def has_room(self, line: Hashable) -> bool:
        """Whether one more job could be put into a line now without displacing another."""
        pool_id, priority = line  # type: ignore[misc]
        return self.queues.has_room(priority, pool_id=pool_id)  # type: ignore[has-type]

    def cancel(self, job_id: str) -> bool:
        """Take a job out of the queue; False when it does not wait."""
        return self.queues.cancel(job_id)

    def __len__(self) -> int:
        return len(self.queues)

    # -- who runs, and where -------------------------------------------------------------------------------------------

    def take(self, replica_id: str | None, suits: Callable[[str], bool] | None = None) -> Placed | Refused | None:
        """Take out the job that runs next: for the replica that asks if that is where it belongs, for any without one.

        A head whose place is on another replica is left to that one's own claim, and its class waits with it, so that
        asking gives the same history as being told (X-007, X-084).
        """
        if not self.fleet:
            job_id = None if replica_id is None else self._dequeue_open(suits)
            if job_id is None or replica_id is None:
                return None
            return Placed(job_id, replica_id, placed_on_asker(job_id, replica_id))
        own = None
        if replica_id is not None:
            status = self.fleet.get(replica_id)
            if status is None:
                message = (
                    f"replica {show(replica_id)} is not registered, and this fleet places work on replicas it knows"
                )
                return Refused("INVALID_PARAMS", message, {"replica_id": replica_id})
            own = status.placement.pool_id
        found: list[Decision] = []

        def placeable(job_id: str) -> bool:
            if (suits is not None and not suits(job_id)) or not self.labels_of(job_id) <= OWN_WORKERS:
                return False
            if own is not None and self.queues.pool_of(job_id) not in (NO_POOL, own):
                return False
            decision = self.placement(job_id)
            if decision.kind != PLACED or replica_id not in (None, decision.replica_id):
                return False
            found[:] = [decision]
            return True

        job_id = self.queues.dequeue(placeable)
        if job_id is None:
            return None
        (decision,) = found
        assert decision.replica_id is not None
        return Placed(job_id, decision.replica_id, decision.encode())

    def _dequeue_open(self, suits: Callable[[str], bool] | None = None) -> str | None:
        """The next job of the open pool, and of those that waited for a pool whose replicas are all gone.

        With ``suits`` the first that does. Jobs that do not are passed over, not waited for: they are other workers' jobs.
        """
        if suits is None and self.labelled:
            suits = lambda job_id: self.labels_of(job_id) <= OWN_WORKERS  # noqa: E731 - a worker of the home's own
        if suits is not None:
            return self.queues.dequeue_suiting(
                suits if not self._opens_pools else lambda job_id: self.suits_any(job_id) and suits(job_id),
                pool_id=None if self._opens_pools else NO_POOL,
            )
        if not self._opens_pools:
            return self.queues.dequeue(pool_id=NO_POOL)
        return self.queues.dequeue(self.suits_any)

    def labels_of(self, job_id: str) -> frozenset[str]:
        """What a job asks of the worker that takes it."""
        return self.known[job_id].asked.labels if job_id in self.labelled else frozenset()

    def suits_any(self, job_id: str) -> bool:
        """Whether any worker would do for a job."""
        known = self.known.get(job_id)
        return known is None or known.asked.demands_nothing

    def placement(self, job_id: str) -> Decision:
        """Where a job would run if it ran now, or why it would not."""
        known = self.known.get(job_id)
        task = TaskRequest(job_id) if known is None else known.asked.task
        sessions: LastGood = self.sessions
        if known is not None and known.asked.last_good is not None and self.policy.session_affinity:
            sessions = Remembered(known.asked.last_good)
        return place(task, self.fleet, sessions, pool_id=known.pool_id if known is not None and known.pool_id else None)

    def leased(self, job_id: str, replica_id: str, tick: int) -> None:
        """An attempt has begun: its slot is taken and its time runs."""
        known = self.known.get(job_id)
        if known is not None:
            known.ran = True
            if known.asked.limits != _UNLIMITED:
                self.watchdog.start(job_id, tick, known.asked.limits)
        if self.fleet:
            self.fleet.adopt(replica_id, job_id)

    def left(self, job_id: str, *, succeeded: bool, held_until: int | None) -> None:
        """An attempt is over. Its slot is free, unless its worker may still be computing (X-092)."""
        known = self.known.get(job_id)
        if known is not None:
            self.watchdog.end(job_id)
            session_id = known.asked.task.session_id
            replica_id = self.fleet.replica_of(job_id)
            if succeeded and session_id is not None and replica_id is not None:
                self.sessions.succeeded(session_id, replica_id)
        if held_until is None:
            self.fleet.release(job_id)
        elif self.fleet.cancel(job_id, held_until):
            heappush(self._lapses, (held_until, job_id))

    def lapsed(self, job_id: str) -> None:
        """The lease of an attempt that was cut short would have run out by now: its slot is free."""
        self.fleet.release(job_id)

    def forget(self, job_id: str) -> None:
        """A job has ended. Its session gets back what was taken for a job that never ran."""
        known = self.known.pop(job_id, None)
        self.labelled.discard(job_id)
        if known is None:
            return
        if known.ran:
            self.sessions.keep(job_id)
        else:
            self.sessions.refund(job_id)

    # -- time ----------------------------------------------------------------------------------------------------------

    def progressed(self, job_id: str, tick: int) -> None:
        """A running job has got on: its idle time begins again."""
        self.watchdog.progress(job_id, tick)

    def next_due(self) -> Due | None:
        """The next limit that is reached, or slot that comes free; of two at one tick the limit, then by job."""
        verdict = self.watchdog.next_due() if len(self.watchdog) else None
        while self._lapses and self.fleet.lapse_tick(self._lapses[0][1]) != self._lapses[0][0]:
            heappop(self._lapses)
        if self._lapses and (verdict is None or self._lapses[0][0] < verdict.due_tick):
            return Due(*self._lapses[0], None)
        return None if verdict is None else Due(verdict.due_tick, verdict.job_id, verdict.code)

    # -- orders, checkpoints -------------------------------------------------------------------------------------------

    def order(self, name: str, data: bytes, tick: int) -> bytes | Refused:  # noqa: ARG002 - no order depends on the time
        """Take in a change of the fleet or of a session (`detent.scheduling.orders`)."""
        return orders.carry_out(self, name, data)

    def snapshot(self) -> object:
        """Everything here as a canonical value."""
        return {
            "queues": self.queues.snapshot(),
            "fleet": self.fleet.snapshot(),
            "sessions": self.sessions.snapshot(),
            "watchdog": self.watchdog.snapshot(),
            "known": [_written(self.known[job_id]) for job_id in sorted(self.known)],
        }

    def restore(self, snapshot: object) -> None:
        """Become the scheduler that ``snapshot`` was taken of, under the policy there is now."""
        if not isinstance(snapshot, dict) or snapshot.keys() != set(SNAPSHOT_FIELDS):
            raise InvalidInput(f"a scheduler's snapshot is a map of {', '.join(SNAPSHOT_FIELDS)}")
        self.queues.restore(snapshot["queues"])
        self.fleet = Fleet.restore({**snapshot["fleet"], "order": self.policy.placement_order})
        budgets = self.policy.session_budgets.to_list()
        settings = {"defaults": budgets, "affinity": self.policy.session_affinity}
        self.sessions = Sessions.restore({**snapshot["sessions"], **settings})
        self.watchdog = Watchdog()
        self.watchdog.restore(snapshot["watchdog"])
        self.known = {known.arrival.job_id: known for known in map(self._read, snapshot["known"])}
        self.labelled = {job_id for job_id, known in self.known.items() if known.asked.labels}
        self._lapses = [(tick, job_id) for job_id, tick in self.fleet.lapses().items()]
        heapify(self._lapses)

    def _read(self, written: Any) -> Known:
        job_id, priority, job_kind, evictable, pin, request, pool_id, own, ran = written
        arrival = Arrival(job_id, priority, job_kind, evictable, pin, request)
        policy = self.policy
        asked = read_request(
            arrival, wall_ms=policy.watchdog_wall_ms, idle_ms=policy.watchdog_idle_ms, tick_ms=self.tick_ms
        )
        if isinstance(asked, Refused):
            raise InvalidInput(f"a request in a scheduler's snapshot cannot be read: {asked.message}")
        return Known(arrival, asked, pool_id, own, ran)

    def facts(self, job_id: str, replica_id: str) -> dict[str, object]:
        """What a log line says of a job on its replica beside names and times (OC-CORE-1040); nothing of a plain job."""
        known, status = self.known.get(job_id), self.fleet.get(replica_id)
        facts: dict[str, object] = {}
        if status is not None:
            facts |= {"engine": status.placement.engine, "pool_id": status.placement.pool_id}
            facts |= {"model_id": status.model_id}
        if known is not None:
            task = known.asked.task
            if task.requirements is not None:
                needs = task.requirements
                facts |= {"model_id": needs.model_id, "quant": needs.quant, "ctx": needs.ctx_max}
            if task.session_id is not None:
                last_good = known.asked.last_good or self.sessions.last_good(task.session_id)
                facts |= {"session_id": task.session_id, "kv_warmth": last_good == replica_id}
        return facts

    # -- for people ----------------------------------------------------------------------------------------------------

    def waiting(self, job_id: str) -> Decision | None:
        """Why a job waits now; None when it does not wait."""
        position = self.queues.position(job_id)
        if position is None:
            return None
        pool_id = self.queues.pool_of(job_id)
        if position.place > 1:
            return waits_behind(job_id, pool_id or None, position)
        if not self.fleet and (not pool_id or (self._opens_pools and self.suits_any(job_id))):
            return Decision(WAITING, job_id, ANY_WORKER, queue=position)
        return replace(self.placement(job_id), queue=position)

    def head_of_line(self, job_id: str) -> Decision | None:
        """Why the first of a waiting job's line waits; None for a job that does not wait or is the first itself."""
        position, pool_id = self.queues.position(job_id), self.queues.pool_of(job_id)
        if position is None or position.place == 1:
            return None
        heads = self.queues.heads(pool_id=pool_id)
        return next((self.waiting(head.job_id) for head in heads if head.priority == position.priority), None)

    def deadline(self, job_id: str) -> Due | None:
        """When a running job is stopped unless it gets on or ends, and by which limit; None when it has none."""
        verdict = self.watchdog.deadline(job_id)
        return None if verdict is None else Due(verdict.due_tick, verdict.job_id, verdict.code)

    def ahead(self, job_id: str, limit: int) -> list[str]:
        """The jobs that go before a waiting one in its pool, at most ``limit`` of them, the next one first."""
        return self.queues.ahead(job_id, limit)


def policy_of(config: KernelConfig) -> SchedulingPolicy:
    """The scheduling policy of a configuration; one that says nothing of it is read off its queue's bounds."""
    if config.scheduling is not None:
        return SchedulingPolicy.from_map(dict(config.scheduling))
    queue = config.queue
    return SchedulingPolicy.from_settings(
        {
            "capacity": queue.capacity_per_class,
            "capacity_total": queue.capacity_total,
            "admission_policy": queue.admission_policy,
        }
    )


def _not_admitted(refusal: Refused, decision: Decision) -> Refused:
    """A refusal with its decision record in it, for the log that `explain` reads (X-182)."""
    return Refused(refusal.code, refusal.message, {**refusal.details, "decision": decision.encode()})


def _written(known: Known) -> list[object]:
    arrival = known.arrival
    fields = [arrival.job_id, arrival.priority, arrival.job_kind, arrival.evictable, arrival.pool_pin, arrival.request]
    return [*fields, known.pool_id, known.priority, known.ran]
