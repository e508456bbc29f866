"""Ticks from a clock: monotonic, anchored to wall time, never backwards (X-180).

The kernel reads no clock; the owner reads this one and stamps commands with what it says. Between two readings a tick
follows the monotonic clock, so an operator who sets the wall clock moves nothing. After a restart it is anchored to wall
time again, but never before the last recorded tick: with a wall clock that was set back meanwhile it goes on from there,
because a time that stood still would leave leases and retries without an end.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the owner takes time from."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock; read once, as the anchor."""

    def monotonic_ms(self) -> int:
        """Milliseconds by a clock that only runs forward."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment."""
        return time.monotonic_ns() // 1_000_000


class TickSource:
    """Turns a clock into ticks."""

    def __init__(self, clock: Clock, *, tick_ms: int, epoch_base_ms: int, not_before: int) -> None:
        self._clock = clock
        self._tick_ms = tick_ms
        self._mono = clock.monotonic_ms()
        self._base = max(0, clock.wall_ms() - epoch_base_ms, not_before * tick_ms)
        self._floor = not_before

    def now(self) -> int:
        """The present tick; never less than one returned before."""
        elapsed = self._clock.monotonic_ms() - self._mono
        self._floor = max(self._floor, (self._base + elapsed) // self._tick_ms)
        return self._floor

    def ms_until(self, tick: int) -> int:
        """Milliseconds from now until ``tick``; 0 when it has come."""
        return max(0, tick - self.now()) * self._tick_ms
