"""The waiting jobs of a partition, by pool and class (X-045): one `ClassQueues` for each pool with waiting jobs.

A pool's bounds and admission policy are those of its own queues, so a flooded pool takes nothing from another. One count
of arrivals runs over all of them: "who came first" has an answer between pools, too.

A request without a pool means the pool ``""``. While no request names a pool, every answer and every snapshot here is that
of one plain `ClassQueues`, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.kernel.manifest import id_fault
from detent.kernel.policy import QueuePolicy
from detent.kernel.queue import Enqueued
from detent.scheduling.checks import CLASSES
from detent.scheduling.queue_parts import Waiting, name_index, read_arrivals, read_lines
from detent.scheduling.queues import ClassQueues, Head, Position

NO_POOL: Final = ""
"""The pool of jobs that name none."""
POOLS_MAX: Final = 10_000
"""Most pools that jobs wait for at once, the nameless one not counted."""


class PoolQueues:
    """Queues keyed by pool and class, made on demand from one policy."""

    __slots__ = ("_pool_of", "_pools", "_unnamed", "arrivals", "make", "policy")

    def __init__(
        self, policy: QueuePolicy | None = None, make: Callable[[QueuePolicy], ClassQueues] = ClassQueues.of
    ) -> None:
        self.policy = policy or QueuePolicy()
        self.make = make
        self.arrivals = 0
        # Made at once, so that an unknown policy is refused when it is configured and not when it is needed.
        self._unnamed = make(self.policy)
        self._pools: dict[str, ClassQueues] = {NO_POOL: self._unnamed}
        self._pool_of: dict[str, str] = name_index()

    # -- in, out, away -------------------------------------------------------------------------------------------------

    def enqueue(
        self, job_id: str, priority: int, *, evictable: bool = True, pool_id: str = NO_POOL
    ) -> Enqueued | Refused:
        """Give a job the last place of its class in its pool; see `ClassQueues.enqueue`."""
        queues = self._pools.get(pool_id) if type(pool_id) is str else None
        if queues is None:
            made = self._add_pool(pool_id)
            if isinstance(made, Refused):
                return made
            queues = made
        if type(job_id) is str and job_id in self._pool_of and job_id not in queues:
            return Refused("INVALID_PARAMS", f"job {show(job_id)} waits in the queue of another pool already")
        queues.arrivals = self.arrivals
        placed = queues.enqueue(job_id, priority, evictable=evictable)
        if isinstance(placed, Refused):
            return placed
        self.arrivals = queues.arrivals
        for evicted in placed.evicted:
            del self._pool_of[evicted]
        self._pool_of[job_id] = pool_id
        return placed

    def dequeue(self, placeable: Callable[[str], bool] | None = None, *, pool_id: str | None = None) -> str | None:
        """Take out the job that runs next, in one pool or, without ``pool_id``, in any.

        Over several pools the higher class goes first, then the earlier arrival; a head that cannot be placed holds back
        its own class in its own pool and nothing else.
        """
        if pool_id is None and len(self._pools) > 1:
            job_id = next(
                (head.job_id for _, head in self._by_turn() if placeable is None or placeable(head.job_id)), None
            )
            if job_id is not None:
                self.cancel(job_id)
            return job_id
        queues = self._pools.get(NO_POOL if pool_id is None else pool_id)
        job_id = None if queues is None else queues.dequeue(placeable)
        if job_id is not None:
            del self._pool_of[job_id]
        return job_id

    def dequeue_suiting(self, suits: Callable[[str], bool], *, pool_id: str | None = None) -> str | None:
        """Take out the first job that suits a worker, in one pool or, without ``pool_id``, in any."""
        pools = self._pools.values() if pool_id is None else filter(None, [self._pools.get(pool_id)])
        job_id = next(filter(None, (queues.first(suits) for queues in pools)), None)
        if job_id is not None:
            self.cancel(job_id)
        return job_id

    def cancel(self, job_id: str) -> bool:
        """Take a job out wherever it stands; False when it is not there."""
        pool_id = self._pool_of.pop(job_id, None) if type(job_id) is str else None
        return pool_id is not None and self._pools[pool_id].cancel(job_id)

    # -- questions -----------------------------------------------------------------------------------------------------

    def has_room(self, priority: int, *, pool_id: str = NO_POOL) -> bool:
        """Whether a job of this class and pool could be enqueued now without displacing another."""
        queues = self._pools.get(pool_id)
        if queues is None:
            return id_fault("pool_id", pool_id) is None and type(priority) is int and priority in CLASSES
        return queues.has_room(priority)

    def has_room_for(self, priorities: Sequence[int], *, pool_id: str = NO_POOL) -> bool:
        """Whether jobs of these classes could all be enqueued now without displacing another."""
        queues = self._pools.get(pool_id)
        return (self.make(self.policy) if queues is None else queues).has_room_for(priorities)

    def __len__(self) -> int:
        return len(self._pool_of)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._pool_of

    def pools(self) -> Mapping[str, ClassQueues]:
        """The queues of every pool with waiting jobs, in order of pool id; read-only."""
        return {pool_id: self._pools[pool_id] for pool_id in sorted(self._pools) if self._pools[pool_id]}

    def depths(self, pool_id: str) -> Mapping[int, int]:
        """How many jobs wait for a pool in each class; nothing for a pool that never had a waiting job."""
        queues = self._pools.get(pool_id)
        return {} if queues is None else queues.depths()

    def last(self, pool_id: str, priority: int, arrival: int) -> Position:
        """Where the last one of a class stands, who arrived just now."""
        own, above = self._pools[pool_id].counts(priority)
        return Position(priority, arrival, own, above + own - 1)

    def ahead(self, job_id: str, limit: int) -> list[str]:
        """The jobs that go before a waiting one among those who wait for the same pool, the next one first."""
        pool_id = self._pool_of.get(job_id)
        return [] if pool_id is None else self._pools[pool_id].ahead(job_id, limit)

    def pool_of(self, job_id: str) -> str | None:
        """The pool a job waits for; None when it does not wait."""
        return self._pool_of.get(job_id)

    def heads(self, *, pool_id: str | None = None) -> tuple[Head, ...]:
        """The job that goes next in each class of one pool, or of every pool, in the order of their turns."""
        if pool_id is None:
            return tuple(head for _, head in self._by_turn())
        queues = self._pools.get(pool_id)
        return () if queues is None else queues.heads()

    def position(self, job_id: str) -> Position | None:
        """Where a job stands among those who wait for the same pool; None when it does not wait."""
        pool_id = self._pool_of.get(job_id)
        return None if pool_id is None else self._pools[pool_id].position(job_id)

    def snapshot(self) -> object:
        """The next arrival number, the lines of the nameless pool and, if there are any, of each named one by its id.

        A pool without waiting jobs leaves nothing behind.
        """
        named = [[pool_id, queues.written()] for pool_id, queues in self.pools().items() if pool_id != NO_POOL]
        whole: list[object] = [self.arrivals, self._unnamed.written()]
        return [*whole, named] if named else whole

    def restore(self, snapshot: object) -> None:
        """Become the queues that ``snapshot`` was taken of, even if the bounds have changed."""
        if type(snapshot) is not list or len(snapshot) not in (2, 3):
            raise InvalidInput(
                "a snapshot of pool queues is a list of the next arrival number, the lines and the pools"
            )
        arrivals = read_arrivals(snapshot[0])
        found = {NO_POOL: list(read_lines(snapshot[1], arrivals))}
        for pool in snapshot[2] if len(snapshot) == 3 else ():
            if type(pool) is not list or len(pool) != 2 or id_fault("pool_id", pool[0]) or pool[0] in found:
                raise InvalidInput(f"a pool in a snapshot is [pool_id, lines], once, not {show(pool)}")
            found[pool[0]] = list(read_lines(pool[1], arrivals))
        self._take_over(arrivals, found)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _take_over(self, arrivals: int, found: Mapping[str, list[Waiting]]) -> None:
        pool_of: dict[str, str] = name_index()
        for pool_id, jobs in found.items():
            pool_of.update((waiting.job_id, pool_id) for waiting in jobs)
        came = {waiting.arrival for jobs in found.values() for waiting in jobs}
        if not len(pool_of) == len(came) == sum(map(len, found.values())):
            raise InvalidInput("a snapshot holds a job or an arrival number in two places")
        self.arrivals = arrivals
        self._pool_of = pool_of
        self._pools = {pool_id: self.make(self.policy) for pool_id in found}
        self._unnamed = self._pools[NO_POOL]
        for pool_id, jobs in found.items():
            self._pools[pool_id].take_over(arrivals, jobs)

    def _by_turn(self) -> list[tuple[str, Head]]:
        """Every pool's heads, the highest class first, then the earliest arrival."""
        heads = [(pool_id, head) for pool_id, queues in self._pools.items() for head in queues.heads()]
        return sorted(heads, key=lambda pair: (-pair[1].priority, pair[1].arrival))

    def _add_pool(self, pool_id: object) -> ClassQueues | Refused:
        if fault := id_fault("pool_id", pool_id):
            return Refused("INVALID_PARAMS", fault)
        assert type(pool_id) is str
        if len(self._pools) > POOLS_MAX:
            self._pools = {known: queues for known, queues in self._pools.items() if queues or known == NO_POOL}
        if len(self._pools) > POOLS_MAX:
            return Refused("QUEUE_FULL", f"jobs wait for {POOLS_MAX} pools already", {"pools": POOLS_MAX})
        queues = self._pools[pool_id] = self.make(self.policy)
        return queues
