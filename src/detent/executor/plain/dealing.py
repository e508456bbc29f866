"""Decides which worker gets which task, and takes back what waits in the wrong place.

Tasks wait in the workers' own sockets, about as many as a worker does in the time that an answer of ours may take; what is too
much for that waits here. How long a task takes is known only when it is done: when one turns out to be long, idle workers
take back those behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf
from typing import Final

from detent.executor.plain.slot import Entry, Slot

AHEAD_US: Final = 25_000
"""How much work may wait in a worker's socket: enough that it never waits for us, little enough to be taken elsewhere."""
SOON_US: Final = 250_000
"""A task that is over this soon has the next one waiting behind it, though it alone is more than `AHEAD_US`: else its worker
would stand idle for as long as our answer takes, some milliseconds for each. A longer one has none: by then a worker of
another process may have been free for it."""
DEPTH_MAX: Final = 128
_OVERHEAD_US: Final = 40
"""Of one task, beside what it takes itself."""


class Dealer:
    """The workers of a pool, and the tasks that none of them has."""

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}
        self.backlog: deque[Entry] = deque()
        self.task_us = inf
        """How long a task takes, estimated from the last ones; unknown for the first. Longer ones are believed sooner
        than shorter ones."""

    def learn(self, wall_us: int) -> None:
        """A task took this long."""
        spent = wall_us + _OVERHEAD_US
        if self.task_us == inf:
            self.task_us = spent
        self.task_us += (spent - self.task_us) * (0.5 if spent > self.task_us else 0.2)

    def is_busy(self) -> bool:
        """Whether a worker has a task."""
        return any(slot.entries for slot in self.slots.values())

    def room(self) -> int:
        """How many more tasks the workers can use now."""
        depth = self._depth()
        room = sum(depth - len(slot.entries) for slot in self.slots.values() if not slot.is_leaving)
        return max(0, room - len(self.backlog))

    def add(self, entry: Entry) -> None:
        """Give a task to the worker that has least to do, or let it wait here."""
        if self.backlog or not self._give(entry, self._depth()):
            self.backlog.append(entry)

    def deal(self) -> None:
        """Hand out what waits here; then let those who have nothing to do take from those who have most."""
        if self.backlog:
            depth = self._depth()
            while self.backlog and self._give(self.backlog[0], depth):
                self.backlog.popleft()
            return
        for idle in self.slots.values():
            if idle.entries or idle.is_leaving:
                continue
            busiest = max(self.slots.values(), key=lambda slot: len(slot.entries))
            if len(busiest.entries) < 2:
                return
            back = busiest.take_back()
            keep = len(back) // 2
            self._put(busiest, back[:keep])
            self._put(idle, back[keep:])

    def leave(self, slot: Slot) -> None:
        """A worker takes nothing more: what waits for it goes to others, before all else."""
        slot.is_leaving = True
        self.first(slot.take_back())

    def first(self, entries: list[Entry]) -> None:
        """Let these be dealt before all others, in their order."""
        self.backlog.extendleft(reversed(entries))

    def holder(self, number: int) -> Slot | None:
        """The worker that was given a task."""
        return next((slot for slot in self.slots.values() if number in slot.entries), None)

    def take(self, number: int) -> Entry | None:
        """Take back an unclaimed task; None when a worker has begun it."""
        found = next((entry for entry in self.backlog if entry.task.number == number), None)
        if found is not None:
            self.backlog.remove(found)
            return found
        holder = self.holder(number)
        if holder is None:
            return None
        back = holder.take_back()
        found = next((entry for entry in back if entry.task.number == number), None)
        self._put(holder, (entry for entry in back if entry is not found))
        return found

    def take_all(self) -> list[Entry]:
        """Every task that no worker has begun."""
        waiting = [*self.backlog, *(entry for slot in self.slots.values() for entry in slot.take_back())]
        self.backlog.clear()
        return waiting

    def _depth(self) -> int:
        """How many tasks a worker may have, the one that it runs included."""
        return max(2 if self.task_us <= SOON_US else 1, min(DEPTH_MAX, int(AHEAD_US / self.task_us)))

    def _give(self, entry: Entry, depth: int) -> bool:
        best = None
        for slot in self.slots.values():
            waiting = len(slot.entries)
            if waiting < depth and not slot.is_leaving and (best is None or waiting < len(best.entries)):
                best = slot
                if not waiting:
                    break
        return best is not None and best.give(entry)

    def _put(self, slot: Slot, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if not slot.give(entry):
                self.backlog.append(entry)
