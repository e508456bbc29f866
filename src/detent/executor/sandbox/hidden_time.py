"""Counts the processor time of children whose end their parent ignores, where no control group counts it.

The kernel adds what a child used to its parent when the parent waits for it, and a parent that ignores ``SIGCHLD`` never does. So
from the moment a job sets what happens at a child's end, init keeps a sum of its own: what each process used at the last look, and
what it had used when it asked to exit, which the filter reports. A process that a signal ends is not heard of; it is charged as if
it had run all the time since it was last seen, or since it was made.
"""

from __future__ import annotations

from typing import NamedTuple


class Life(NamedTuple):
    """A process as it was last seen."""

    used_ms: float
    threads: int
    over: bool
    """Whether it runs no more: it asked to exit, or waits to be reaped."""


class HiddenTime:
    """The sum over all processes of one job, since ``at_ms``. ``before_ms`` is what was used by those who ended before."""

    def __init__(self, before_ms: float, at_ms: float) -> None:
        self.ended_ms = before_ms
        self.looked_at_ms = at_ms
        self.lives: dict[int, Life] = {}
        self.births: list[float] = []
        """When the processes were made that were not seen yet."""

    @property
    def total_ms(self) -> float:
        """All that is known to be used, and what cannot be ruled out."""
        return self.ended_ms + sum(life.used_ms for life in self.lives.values())

    def born(self, at_ms: float) -> None:
        """A process asked for a child."""
        self.births.append(at_ms)

    def exits(self, pid: int, used_ms: float, *, whole: bool) -> None:
        """A process asked to exit, or one of its threads did."""
        last = self.lives.get(pid)
        if last is None and self.births:
            self.births.pop()
        over = whole or last is None or last.over or last.threads <= 1
        self.lives[pid] = Life(used_ms, 1 if last is None else last.threads, over)

    def look(self, at_ms: float, found: dict[int, Life]) -> None:
        """Take in all processes that are there now."""
        for pid in self.lives.keys() - found.keys():
            life = self.lives.pop(pid)
            unseen_ms = 0.0 if life.over else (at_ms - self.looked_at_ms) * life.threads
            self.ended_ms += life.used_ms + unseen_ms
        for pid, life in found.items():
            last = self.lives.get(pid)
            if last is None and self.births:
                self.births.pop()
            self.lives[pid] = life if last is None else life._replace(over=life.over or last.over)
        # Those were made, and ended by a signal, between two looks.
        self.ended_ms += sum(at_ms - born_ms for born_ms in self.births)
        self.births.clear()
        self.looked_at_ms = at_ms
