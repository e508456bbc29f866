"""The metrics of a home, as a scraper reads them: counted from the ledger, from where the last count ended."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from detent.errors import DetentError
from detent.inspect.replicas import kernels
from detent.kernel import Kernel
from detent.kernel.metrics import Metrics
from detent.owner.home import Home
from detent.owner.metrics import HomeMetrics
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.scheduling import Scheduler
from detent.scheduling.observability import Depths, queue_depths

LOOK_SECONDS = 10.0
"""How long an owner may take to tell what it has counted; it tells between two turns."""


class Exposition:
    """A home's metrics, printed again and again; what was counted is kept between two prints."""

    def __init__(self, home: Home, parts: Parts | None = None) -> None:
        self._home, self._parts = home, parts or Parts()
        self._metrics: HomeMetrics | None = None
        self._lock = threading.Lock()

    def text(self, session: Session | None = None) -> bytes:
        """The metrics now. An owner in this process is asked; otherwise its state is put together from the ledger."""
        with self._lock, self._parts.open_snapshot(self._home.ledger) as reader:
            owned = None if session is None else session.owned
            if owned is None:
                now = [_now(kernel) for kernel in kernels(reader)]
            else:
                asked = [owner.look(_now) for owner in owned.owners]
                now = [one.result(LOOK_SECONDS) for one in asked]
            if self._metrics is None:
                self._metrics = HomeMetrics.kept(self._home.path, reader, now[0][2])
            counted = self._metrics.follow(reader)
            if counted:
                with suppress(OSError, DetentError):  # A home of another user, or a full disk: it is counted again.
                    self._metrics.keep(self._home.path)
            return self._metrics.exposition([one[0] for one in now], [one[1] for one in now])

    def queues(self, session: Session | None = None) -> Queues:
        """What waits now, of all partitions together."""
        owned = None if session is None else session.owned
        if owned is None:
            with self._parts.open_snapshot(self._home.ledger) as reader:
                found = [_queues(kernel) for kernel in kernels(reader)]
        else:
            asked = [owner.look(_queues) for owner in owned.owners]
            found = [one.result(LOOK_SECONDS) for one in asked]
        depths: dict[str, dict[int, int]] = {"": {}}
        for one in found:
            for pool, classes in one.depths.items():
                known = depths.setdefault(pool, {})
                for priority, depth in classes.items():
                    known[priority] = known.get(priority, 0) + depth
        return Queues(depths, found[0].capacity_per_class, found[0].capacity_total)


@dataclass(frozen=True, slots=True)
class Queues:
    """How many jobs wait, and how many may."""

    depths: Mapping[str, Mapping[int, int]]
    """By pool and class."""
    capacity_per_class: Mapping[int, int]
    capacity_total: int


def _queues(kernel: Kernel) -> Queues:
    scheduler = kernel.queue
    assert isinstance(scheduler, Scheduler)
    per_class = scheduler.policy.capacity()
    total = scheduler.policy.capacity_total or sum(per_class.values())
    return Queues(queue_depths(scheduler.queues), per_class, total)


def _now(kernel: Kernel) -> tuple[Metrics, Depths, int]:
    queue = kernel.queue
    waiting = queue_depths(queue.queues) if isinstance(queue, Scheduler) else {}
    return kernel.metrics.copy(), waiting, kernel.config.tick_ms
