"""Crash points: end the owner at a named moment, the way a power cut would.

An owner passes the same points in every turn: ``decided`` (the kernel has decided, nothing is written), ``sealed`` (the batch
is signed), ``appended`` (it is durable, not yet answered), ``committed`` (the last moment before the answers). A turn
without anything to write passes the first and the last.

Raising ends the owner and leaves the test alive: waiting callers get an error, and the next request opens the home again. Killing
ends the whole process with SIGKILL, so it belongs into a program that a test starts, not into the test.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import NoReturn

from detent.errors import StoreUnavailable

POINTS = ("decided", "sealed", "appended", "committed")


class Crash(StoreUnavailable):
    """The owner stopped at a crash point; nothing after that point happened."""


class CrashAt:
    """Raises `Crash`, or kills the process, the n-th time the owner passes a named point."""

    POINTS = POINTS

    def __init__(self, point: str, times: int = 1, *, kill: bool = False) -> None:
        if point not in POINTS:
            raise ValueError(f"there is no crash point {point!r}; known: {', '.join(POINTS)}")
        if times < 1:
            raise ValueError(f"a crash cannot come at time {times}: times are counted from 1")
        self.point = point
        self.left = times
        self.kill = kill

    def __call__(self, name: str) -> None:
        """Called by the owner at each of its points."""
        if name == self.point:
            self.left -= 1
            if self.left == 0:
                self._crash()

    def _crash(self) -> NoReturn:
        if self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        raise Crash(f"crash at {self.point}")


class CrashPoints:
    """The crash points of one home: counts how often each is passed, and crashes where it was told to.

    Only turns that write are looked at. An owner also takes turns in which nothing happens, whenever it looks at the clock;
    a crash in one of those would come at another moment each time. ``decided`` is left out for the same reason: when it is
    passed it is not yet known whether the turn will write, and from outside it cannot be told from ``sealed``.
    """

    names = POINTS[1:]

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        """How often each point was passed so far, in every session of the home."""
        self.crashes: list[str] = []
        """The points at which the owner was ended."""
        self._planned: list[CrashAt] = []
        self._last = ""

    def at(self, point: str, *, times: int = 1, kill: bool = False) -> None:
        """Crash the ``times``-th time from now that the owner passes ``point``. Refuses a point that does not exist."""
        if point not in self.names:
            raise ValueError(f"there is no crash point {point!r}; known: {', '.join(self.names)}")
        self._planned.append(CrashAt(point, times, kill=kill))

    def __call__(self, name: str) -> None:
        """Called by the owner at each of its points."""
        before, self._last = self._last, name
        if name not in self.names or (name == "committed" and before != "appended"):
            return
        self.passed[name] += 1
        for planned in self._planned:
            try:
                planned(name)
            except Crash:
                self.crashes.append(name)
                raise
