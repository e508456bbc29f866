"""The metrics of a home, as a scraper reads them: counted from the ledger, from where the last count ended."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress

from detent.errors import DetentError, StoreUnavailable
from detent.inspect.replicas import kernels
from detent.owner.home import Home
from detent.owner.metrics import HomeMetrics
from detent.owner.questions import COUNTED, OWN_MAX, QUEUES, Question, Queues, T, counted, queues
from detent.owner.session import Session
from detent.owner.wiring import Parts

LOOK_SECONDS = 10.0
"""How long an owner may take to tell what it has counted; it tells between two turns."""


class Exposition:
    """A home's metrics, printed again and again; what was counted is kept between two prints."""

    def __init__(self, home: Home, parts: Parts | None = None) -> None:
        self._home, self._parts = home, parts or Parts()
        self._metrics: HomeMetrics | None = None
        self._lock = threading.Lock()

    def text(self, session: Session | None = None) -> bytes:
        """The metrics now. The owners are asked; where none can be, their state is put together from the ledger."""
        with self._lock, self._parts.open_snapshot(self._home.ledger) as reader:
            now = _asked(session, COUNTED) or [counted(kernel) for kernel in kernels(reader)]
            if self._metrics is None:
                self._metrics = HomeMetrics.kept(self._home.path, reader, now[0].tick_ms)
            if self._metrics.follow(reader):
                with suppress(OSError, DetentError):  # A home of another user, or a full disk: it is counted again.
                    self._metrics.keep(self._home.path)
            return self._metrics.exposition([one.metrics for one in now], [one.depths for one in now])

    def queues(self, session: Session | None = None, tenant: str | None = None) -> Queues:
        """What waits now, of all partitions together; and where the first jobs of a tenant stand."""
        found = _asked(session, QUEUES, tenant)
        if found is None:
            with self._parts.open_snapshot(self._home.ledger) as reader:
                found = [queues(kernel, tenant) for kernel in kernels(reader)]
        depths: dict[str, dict[int, int]] = {"": {}}
        oldest: dict[str, int] = {}
        for one in found:
            for pool, classes in one.depths.items():
                known = depths.setdefault(pool, {})
                for priority, depth in classes.items():
                    known[priority] = known.get(priority, 0) + depth
            for pool, tick in one.oldest.items():
                oldest[pool] = min(tick, oldest.get(pool, tick))
        asked_for: Counter[str] = Counter()
        for one in found:
            asked_for.update(one.asked_for)
        own = sorted((place for one in found for place in one.own), key=lambda place: (place.place, place.queued_tick))
        return Queues(depths, found[0].capacity_per_class, found[0].capacity_total, asked_for, oldest, own[:OWN_MAX])


def _asked(session: Session | None, question: Question[T], *about: str | None) -> list[T] | None:
    """What the owners of all partitions answer; None where they cannot be asked."""
    if session is None:
        return None
    with suppress(StoreUnavailable):
        asked = [session.look(question, partition, *about) for partition in range(session.partitions)]
        return [question.read(one.result(LOOK_SECONDS)) for one in asked]
    return None
