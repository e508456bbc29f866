"""Time as an owner sees it: ticks from a clock that never runs backwards, and the grace that workers get after the owner stalled (X-180)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from detent.kernel import AdvanceTick, Command, Grant, Kernel, KernelConfig, Resume


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


class Ticker:
    """The ticks of one owner."""

    def __init__(self, ticks: TickSource, kernel: Kernel, config: KernelConfig) -> None:
        self._ticks = ticks
        self._kernel = kernel
        self._gap_ticks = min(policy.lease_ttl_ticks for policy in config.lease_policies) // 3
        self._gap_ms = self._gap_ticks * config.tick_ms
        self._last_tick = kernel.tick
        self._resume_at: int | None = None
        self._heard: dict[str, bytes] = {}

    def stamp(self) -> int:
        """The tick of the next turn; never less than that of the one before."""
        now = self._ticks.now()
        if self._resume_at is None and now - self._last_tick > self._gap_ticks and self._unheard(now + self._gap_ticks):
            self._resume_at = now + self._gap_ticks
        if self._resume_at is not None:
            if now < self._resume_at and self._unheard(self._resume_at):
                return self._last_tick
            self._resume_at = now
        self._last_tick = now
        return now

    def due(self, tick: int) -> Command | None:
        """The command that lets time pass up to ``tick``, if anything is due by then."""
        if self._resume_at is not None:
            if tick < self._resume_at:
                return None
            heard, self._heard, self._resume_at = self._heard, {}, None
            return Resume(tick, tuple(sorted(heard.items())))
        due = self._kernel.next_due()
        return AdvanceTick(tick) if due is not None and due <= tick else None

    def hear(self, job_id: str, lease_id: bytes) -> None:
        """A lease's worker has shown that it is alive."""
        if self._resume_at is not None:
            self._heard[job_id] = lease_id

    def hear_all(self, grants: Iterable[Grant]) -> None:
        """Leases granted while time stands still must not run out when it goes on."""
        if self._resume_at is not None:
            self._heard.update({grant.job_id: grant.lease_id for grant in grants})

    def ms_until_due(self) -> int | None:
        """Milliseconds until something is due without a request; None when nothing will be.

        Never as long as a stall: an owner that sleeps until a lease expires could not tell its own sleep from one.
        """
        due = self._resume_at if self._resume_at is not None else self._kernel.next_due()
        return None if due is None else min(self._ticks.ms_until(due), max(1, self._gap_ms // 2))

    def _unheard(self, until: int) -> bool:
        """Whether a lease would run out by ``until`` whose worker has not been heard since the stall."""
        due = self._kernel.next_due()
        return (
            due is not None
            and due <= until
            and any(
                job.lease_expiry is not None
                and job.lease_expiry <= until
                and self._heard.get(job.job_id) != job.lease_id
                for job in self._kernel.jobs.values()
            )
        )
