"""The class queues in their simplest form: one list, searched from end to end at every question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from detent.errors import Refused
from detent.kernel import Enqueued

REASONS = {"drop-lru": "DROPPED_LRU", "shed-low-priority": "SHED_LOW_PRIORITY"}


@dataclass(frozen=True)
class Entry:
    priority: int
    arrival: int
    job_id: str
    evictable: bool


class NaiveQueue:
    """Says what X-082..X-084 say, in their words."""

    def __init__(self, capacity: dict[int, int], total: int, policy: str) -> None:
        self.capacity, self.total, self.policy = capacity, total, policy
        self.entries: list[Entry] = []
        self.arrivals = 0

    def of_class(self, priority: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.priority == priority]

    def has_room(self, priority: int) -> bool:
        return len(self.of_class(priority)) < self.capacity[priority] and len(self.entries) < self.total

    def victim(self, priority: int) -> Entry | None:
        """Who has to go for a newcomer of this class; None when the newcomer does."""
        loose = sorted((entry for entry in self.entries if entry.evictable), key=lambda entry: entry.arrival)
        class_is_full = len(self.of_class(priority)) >= self.capacity[priority]
        if self.policy == "drop-lru":
            if class_is_full:
                return next((entry for entry in loose if entry.priority == priority), None)
            found = [entry for entry in loose if entry.priority <= priority]
            return min(found, key=lambda entry: (entry.priority, entry.arrival), default=None)
        if self.policy == "shed-low-priority" and not class_is_full:
            found = [entry for entry in loose if entry.priority < priority]
            return min(found, key=lambda entry: (entry.priority, -entry.arrival), default=None)
        return None

    def enqueue(self, job_id: str, priority: int, *, evictable: bool = True) -> Enqueued | str:
        """The answer, or the code of the refusal."""
        if any(entry.job_id == job_id for entry in self.entries):
            return "INVALID_PARAMS"
        evicted: list[str] = []
        while not self.has_room(priority):
            victim = self.victim(priority) if evictable else None
            if victim is None:
                return "QUEUE_FULL"
            self.entries.remove(victim)
            evicted.append(victim.job_id)
        self.entries.append(Entry(priority, self.arrivals, job_id, evictable))
        self.arrivals += 1
        if evicted:
            return Enqueued(self.arrivals - 1, tuple(evicted), REASONS[self.policy])
        return Enqueued(self.arrivals - 1)

    def order(self) -> list[Entry]:
        return sorted(self.entries, key=lambda entry: (-entry.priority, entry.arrival))

    def heads(self) -> list[Entry]:
        first: dict[int, Entry] = {}
        for entry in self.order():
            first.setdefault(entry.priority, entry)
        return list(first.values())

    def dequeue(self, placeable: Callable[[str], bool] | None = None) -> str | None:
        for head in self.heads():
            if placeable is None or placeable(head.job_id):
                self.entries.remove(head)
                return head.job_id
        return None

    def cancel(self, job_id: str) -> bool:
        found = [entry for entry in self.entries if entry.job_id == job_id]
        self.entries = [entry for entry in self.entries if entry.job_id != job_id]
        return bool(found)

    def snapshot(self) -> object:
        lines: dict[int, list[object]] = {}
        for entry in self.order():
            lines.setdefault(entry.priority, []).append([entry.arrival, entry.job_id, entry.evictable])
        return [self.arrivals, [[priority, jobs] for priority, jobs in lines.items()]]


def said(answer: Enqueued | Refused) -> Enqueued | str:
    """An answer as the naive queue gives it."""
    return answer.code if isinstance(answer, Refused) else answer
