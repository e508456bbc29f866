"""Who waits, who runs next and where: what the kernel asks and does not decide, as a protocol, and the plain answer.

The kernel is handed a `JobQueue`. The plain one is a bounded first-in-first-out line for each class; the one of
`detent.scheduling` also knows pools, replicas, budgets and time limits. Neither changes a job: the kernel asks, moves
the job, and tells the queue the outcome. A queue is part of the decisions, so its snapshot is part of every
checkpoint, and everything it decides from comes in through commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Final, Protocol

from detent.canon.grammar import PRIORITY_MAX, PRIORITY_MIN
from detent.canon.late import NamedTuple
from detent.errors import InvariantBroken, Refused
from detent.kernel.policy import KernelConfig, QueuePolicy

AT_HOME: Final = "at:home"
"""What the home's own workers offer, whose claims name no labels, and no worker elsewhere can."""
OWN_WORKERS: Final = frozenset({AT_HOME})


class Enqueued(NamedTuple):
    """A job has its place. ``evicted`` names the jobs that lost theirs for it, with the reason."""

    arrival: int
    evicted: tuple[str, ...] = ()
    reason_code: str = "DROPPED_LRU"
    decision: bytes | None = None
    """Why, as a decision record; the job's first record names it by digest."""
    evictions: tuple[bytes, ...] = ()
    """Why each of the evicted had to go, if that is said; their last records name it."""


class Arrival(NamedTuple):
    """A new job as the queue gets it."""

    job_id: str
    priority: int
    job_kind: str
    evictable: bool
    pool_pin: str | None
    request: bytes | None
    """What the submitter asks of the place where it runs, as the scheduler reads it; None: nothing in particular."""
    crowded: Collection[Hashable] = ()
    """Lines in which jobs that are tried again wait for room; no new job may make room for itself there (X-042)."""
    tenant_id: str = ""
    tenant_waiting: int = 0
    """How many jobs of the same tenant wait already."""


class Placed(NamedTuple):
    """The job that runs next, and where."""

    job_id: str
    replica_id: str
    decision: bytes | None


class Due(NamedTuple):
    """What happens at ``tick`` unless something else does before: a running job's limit, or a slot that comes free.

    ``code`` says which limit; None means that the slot of an attempt that was cut short is given back, because its lease
    would have run out now.
    """

    tick: int
    job_id: str
    code: str | None


class JobQueue(Protocol):
    """Who runs next: by priority class first, then first come first served (PIPE-028)."""

    def admit(self, arrival: Arrival) -> Enqueued | Refused:
        """Give a new job the last place of its line, or refuse it. What is refused leaves no trace here."""

    def readmit(self, job_id: str, priority: int) -> None:
        """Give a job that is tried again the last place of its line; `has_room` has said that there is one."""

    def line(self, job_id: str, priority: int) -> Hashable:
        """Which line a job waits in; jobs of one line compete for the same room."""

    def has_room(self, line: Hashable) -> bool:
        """Whether one more job could be put into a line now."""

    def take(self, replica_id: str | None, suits: Callable[[str], bool] | None = None) -> Placed | Refused | None:
        """Take out the job that runs next on a replica (None: on any). With ``suits`` jobs are passed over that do not.

        None when nothing that waits can be placed now; refused when nothing ever can, because the replica is unknown.
        """

    def labels_of(self, job_id: str) -> frozenset[str]:
        """What a job asks of the worker that takes it; a claim that offers less passes it over."""

    def cancel(self, job_id: str) -> bool:
        """Take a job out wherever it stands; False when it is not there."""

    def leased(self, job_id: str, replica_id: str, tick: int) -> None:
        """An attempt has begun."""

    def left(self, job_id: str, *, succeeded: bool, held_until: int | None) -> None:
        """An attempt is over. ``held_until``: its worker does not know yet and may compute until its lease runs out."""

    def lapsed(self, job_id: str) -> None:
        """The lease of an attempt that was cut short would have run out by now."""

    def forget(self, job_id: str) -> None:
        """The job has ended."""

    def progressed(self, job_id: str, tick: int) -> None:
        """A running job has made progress."""

    def next_due(self) -> Due | None:
        """What is due next without any command; None when nothing is."""

    def order(self, name: str, data: bytes, tick: int) -> bytes | Refused:
        """Take in what only the queue understands: a replica that came or changed, a session's budget."""

    def __len__(self) -> int:
        """Number of jobs waiting."""

    def snapshot(self) -> object:
        """The whole queue as a canonical value."""

    def restore(self, snapshot: object) -> None:
        """Become the queue that `snapshot` was taken of."""


class PriorityFifo:
    """One first-in-first-out line for each priority class, with a bound per class and one over all.

    Cancelled jobs leave a gap that is closed when it reaches the head, so cancelling costs nothing; gaps do not count
    against the bounds and are compacted before they outnumber the jobs.
    """

    def __init__(self, policy: QueuePolicy | None = None) -> None:
        self.policy = policy or QueuePolicy()
        self._lines: dict[int, deque[tuple[int, str]]] = {
            priority: deque() for priority in range(PRIORITY_MAX, PRIORITY_MIN - 1, -1)
        }
        self._waiting: dict[str, tuple[int, int]] = {}
        self._counts = dict.fromkeys(self._lines, 0)
        self._arrivals = 0

    def admit(self, arrival: Arrival) -> Enqueued | Refused:
        """Give a new job the last place of its class. There are no pools here and no replicas to ask anything of."""
        if arrival.pool_pin is not None or arrival.request is not None:
            return Refused("INVALID_PARAMS", "this queue has no pools: pool_pin and requests need the scheduler")
        return self.enqueue(arrival.job_id, arrival.priority, evictable=arrival.evictable)

    def readmit(self, job_id: str, priority: int) -> None:
        """Give a job that is tried again the last place of its class."""
        placed = self.enqueue(job_id, priority, evictable=False)
        if not isinstance(placed, Enqueued):
            raise InvariantBroken(f"the queue promised room for job {job_id} and refused it")

    def labels_of(self, job_id: str) -> frozenset[str]:  # noqa: ARG002 - requests are refused here
        """Nothing."""
        return frozenset()

    def line(self, job_id: str, priority: int) -> Hashable:  # noqa: ARG002 - one line for each class
        """The class."""
        return priority

    def take(self, replica_id: str | None, suits: Callable[[str], bool] | None = None) -> Placed | Refused | None:
        """The next job for the caller; this queue knows no other worker to choose."""
        job_id = None if replica_id is None else self.dequeue() if suits is None else self._dequeue_suiting(suits)
        return None if job_id is None or replica_id is None else Placed(job_id, replica_id, None)

    def leased(self, job_id: str, replica_id: str, tick: int) -> None:
        """Nothing here depends on what runs."""

    def left(self, job_id: str, *, succeeded: bool, held_until: int | None) -> None:
        """Nothing here depends on what runs."""

    def lapsed(self, job_id: str) -> None:
        """Nothing is held here."""

    def forget(self, job_id: str) -> None:
        """Nothing is kept here of a job that does not wait."""

    def progressed(self, job_id: str, tick: int) -> None:
        """Nothing here depends on what runs."""

    def next_due(self) -> Due | None:
        """No job has a limit here."""
        return None

    def order(self, name: str, data: bytes, tick: int) -> bytes | Refused:  # noqa: ARG002 - all are refused alike
        """There is nothing to order here."""
        return Refused("INVALID_PARAMS", f"this queue takes no orders, so not {name!r} either")

    def enqueue(self, job_id: str, priority: int, *, evictable: bool = True) -> Enqueued | Refused:  # noqa: ARG002 - nothing is evicted here
        """Give a job the last place of its class, or refuse it when there is no room."""
        if job_id in self._waiting:
            raise InvariantBroken(f"job {job_id} is queued twice")
        if not self.has_room(priority):
            return Refused(
                "QUEUE_FULL",
                f"the queue has no room for a job of class {priority}",
                {
                    "waiting": len(self._waiting),
                    "waiting_in_class": self._counts[priority],
                    "capacity_per_class": self.policy.capacity_per_class,
                    "capacity_total": self.policy.capacity_total,
                },
            )
        arrival = self._arrivals
        self._arrivals += 1
        self._lines[priority].append((arrival, job_id))
        self._waiting[job_id] = (priority, arrival)
        self._counts[priority] += 1
        return Enqueued(arrival)

    def dequeue(self, placeable: Callable[[str], bool] | None = None) -> str | None:
        """Take out the first job of the highest class whose head can be placed."""
        if not self._waiting:
            return None
        for priority, line in self._lines.items():
            if not self._counts[priority]:
                continue
            while line:
                arrival, job_id = line[0]
                if self._waiting.get(job_id) != (priority, arrival):
                    line.popleft()
                    continue
                if placeable is not None and not placeable(job_id):
                    break
                line.popleft()
                del self._waiting[job_id]
                self._counts[priority] -= 1
                return job_id
        return None

    def _dequeue_suiting(self, suits: Callable[[str], bool]) -> str | None:
        """Take out the first job that suits, from the top class down."""
        for priority, line in self._lines.items():
            for arrival, job_id in line:
                if self._waiting.get(job_id) == (priority, arrival) and suits(job_id):
                    self.cancel(job_id)
                    return job_id
        return None

    def cancel(self, job_id: str) -> bool:
        """Take a job out wherever it stands."""
        place = self._waiting.pop(job_id, None)
        if place is None:
            return False
        priority = place[0]
        self._counts[priority] -= 1
        line = self._lines[priority]
        if len(line) > 2 * self._counts[priority] + 1:
            self._lines[priority] = deque(
                entry for entry in line if self._waiting.get(entry[1]) == (priority, entry[0])
            )
        return True

    def has_room(self, line: Hashable) -> bool:
        """Whether a job of this class could be enqueued now."""
        return (
            self._counts[line] < self.policy.capacity_per_class  # type: ignore[index]
            and len(self._waiting) < self.policy.capacity_total
        )

    def __len__(self) -> int:
        return len(self._waiting)

    def snapshot(self) -> object:
        """Arrival counter and, for each class, its waiting jobs in order with their arrival numbers."""
        return [
            self._arrivals,
            [
                [
                    priority,
                    [[arrival, job_id] for arrival, job_id in line if self._waiting.get(job_id) == (priority, arrival)],
                ]
                for priority, line in self._lines.items()
                if self._counts[priority]
            ],
        ]

    def restore(self, snapshot: object) -> None:
        """Become the queue that `snapshot` was taken of, even if the bounds have changed."""
        fresh = PriorityFifo(self.policy)
        if not isinstance(snapshot, list):
            raise InvariantBroken("a queue snapshot is a list")
        arrivals, lines = snapshot
        for priority, entries in lines:
            for arrival, job_id in entries:
                fresh._lines[priority].append((arrival, job_id))
                fresh._waiting[job_id] = (priority, arrival)
                fresh._counts[priority] += 1
        fresh._arrivals = arrivals
        self._lines, self._waiting, self._counts = fresh._lines, fresh._waiting, fresh._counts
        self._arrivals = fresh._arrivals


def plain_queue(config: KernelConfig) -> PriorityFifo:
    """The queue of a kernel that was handed no other."""
    return PriorityFifo(config.queue)
