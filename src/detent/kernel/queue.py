"""The queue the kernel is handed, as a small protocol, and the plain one.

The kernel asks only these questions, so a queue with classes, pools and eviction can take the place of the plain one
without the kernel noticing. A queue is part of the decisions: its snapshot is part of every checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from detent.errors import InvariantBroken, Refused
from detent.kernel.manifest import PRIORITY_MAX, PRIORITY_MIN
from detent.kernel.policy import QueuePolicy


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job has its place. ``evicted`` names the jobs that lost theirs for it, with the reason."""

    arrival: int
    evicted: tuple[str, ...] = ()
    reason_code: str = "DROPPED_LRU"


class JobQueue(Protocol):
    """Who runs next: by priority class first, then first come first served (PIPE-028)."""

    def enqueue(self, job_id: str, priority: int, *, evictable: bool = True) -> Enqueued | Refused:
        """Give a job the last place of its class, or refuse it when there is no room."""

    def dequeue(self, placeable: Callable[[str], bool] | None = None) -> str | None:
        """Take out the job that runs next; None when nothing waits that could be placed."""

    def cancel(self, job_id: str) -> bool:
        """Take a job out wherever it stands; False when it is not there."""

    def has_room(self, priority: int) -> bool:
        """Whether a job of this class could be enqueued now."""

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

    def has_room(self, priority: int) -> bool:
        """Whether a job of this class could be enqueued now."""
        return (
            self._counts[priority] < self.policy.capacity_per_class and len(self._waiting) < self.policy.capacity_total
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
        """Become the queue that `snapshot` was taken of, whatever the bounds are now."""
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
