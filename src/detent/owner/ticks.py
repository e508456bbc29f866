"""Time as an owner sees it: ticks from a clock that never runs backwards, and the grace that workers get after the owner stalled (X-180)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from detent.kernel import AdvanceTick, Command, Grant, Kernel, KernelConfig, Resume
from detent.kernel.job import Job


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
        ttl_ticks = [policy.lease_ttl_ticks for policy in config.lease_policies]
        self._gap_ticks = min(ttl_ticks) // 3
        self._grace_ticks_max = max(ttl_ticks) // 3
        self._gap_ms = self._gap_ticks * config.tick_ms
        self._last_tick = kernel.tick
        self._back_at = 0
        """When the stall was over; counts while there is a moment to resume at."""
        self._resume_at: int | None = None
        self._heard: dict[str, tuple[bytes] | tuple[bytes, str]] = {}
        """By job its lease, and the policy beside the job's own if there is one."""

    def stamp(self) -> int:
        """The tick of the next turn; never less than that of the one before."""
        now = self._ticks.now()
        if self._resume_at is None and now - self._last_tick > self._gap_ticks and self._grace_ticks(now):
            self._back_at = self._resume_at = now
        if self._resume_at is not None:
            self._resume_at = max(now, self._back_at + self._grace_ticks(self._back_at))
            if now < self._resume_at:
                return self._last_tick
        self._last_tick = now
        return now

    def due(self, tick: int) -> Command | None:
        """The command that lets time pass up to ``tick``, if anything is due by then."""
        if self._resume_at is not None:
            if tick < self._resume_at:
                return None
            heard, self._heard, self._resume_at = self._heard, {}, None
            return Resume(tick, tuple((job_id, *heard[job_id]) for job_id in sorted(heard)))
        due = self._kernel.next_due()
        return AdvanceTick(tick) if due is not None and due <= tick else None

    def hear(self, job_id: str, lease_id: bytes, lease: str | None = None) -> None:
        """A lease's worker has shown that it is alive; ``lease`` is the policy that it named beside the job's."""
        if self._resume_at is not None:
            self._heard[job_id] = (lease_id,) if lease is None else (lease_id, lease)

    def hear_all(self, grants: Iterable[Grant], lease: str | None = None) -> None:
        """Leases granted while time stands still must not run out when it goes on."""
        for grant in grants:
            self.hear(grant.job_id, grant.lease_id, lease)

    def ms_until_due(self) -> int | None:
        """Milliseconds until something is due without a request; None when nothing will be.

        Never as long as a stall: an owner that sleeps until a lease expires could not tell its own sleep from one.
        """
        due = self._resume_at if self._resume_at is not None else self._kernel.next_due()
        return None if due is None else min(self._ticks.ms_until(due), max(1, self._gap_ms // 2))

    def _grace_ticks(self, back_at: int) -> int:
        """How long workers get to be heard after a stall that was over at ``back_at``; 0 when no lease is in danger.

        A lease is in danger if it would run out before its worker had a third of it for a heartbeat. The shortest policy is no
        measure for that: workers elsewhere have longer leases than local ones, and say less often that they live.
        """
        due = self._kernel.next_due()
        if due is None or due > back_at + max(self._gap_ticks, self._grace_ticks_max):
            return 0
        longest = 0
        for job in self._kernel.jobs.values():
            if job.lease_expiry is None or job.heartbeat_tick is None:
                continue
            grace = max(self._gap_ticks, (job.lease_expiry - job.heartbeat_tick) // 3)
            if grace > longest and job.lease_expiry <= back_at + grace and not self._is_heard(job):
                longest = grace
        return longest

    def _is_heard(self, job: Job) -> bool:
        heard = self._heard.get(job.job_id)
        return heard is not None and heard[0] == job.lease_id
