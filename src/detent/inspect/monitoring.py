"""The metrics of a home, as a scraper reads them: counted from the ledger, from where the last count ended."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from detent.errors import DetentError
from detent.inspect.replicas import kernels
from detent.jobs.order import POOL
from detent.kernel import Kernel
from detent.kernel.job import Job
from detent.kernel.metrics import Metrics
from detent.kernel.table import State
from detent.owner.home import Home
from detent.owner.metrics import HomeMetrics
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.scheduling import Scheduler
from detent.scheduling.observability import Depths, queue_depths

OWN_MAX = 50
"""Places of one tenant's jobs that are told."""
LOOKED_MAX = 10_000
"""Waiting jobs of a pool that are put in order for that; an owner decides nothing meanwhile."""
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

    def queues(self, session: Session | None = None, tenant: str | None = None) -> Queues:
        """What waits now, of all partitions together; and where the first jobs of a tenant stand."""
        look = partial(_queues, tenant=tenant)
        owned = None if session is None else session.owned
        if owned is None:
            with self._parts.open_snapshot(self._home.ledger) as reader:
                found = [look(kernel) for kernel in kernels(reader)]
        else:
            asked = [owner.look(look) for owner in owned.owners]
            found = [one.result(LOOK_SECONDS) for one in asked]
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where a waiting job stands among those of its pool, and of its partition where the home has several."""

    job_id: str
    pool: str
    priority: int
    place: int
    """1 goes next."""
    queued_tick: int


@dataclass(frozen=True, slots=True)
class Queues:
    """How many jobs wait, and how many may."""

    depths: Mapping[str, Mapping[int, int]]
    """By pool and class."""
    capacity_per_class: Mapping[int, int]
    capacity_total: int
    asked_for: Mapping[str, int]
    """Jobs that wait for a pool of workers elsewhere, by that pool."""
    oldest: Mapping[str, int]
    """Since which tick the job waits, by pool, that has waited longest of those that go next."""
    own: Sequence[Place]
    """Of one tenant, the first ones; none where too many jobs wait to look at all of them."""


def _queues(kernel: Kernel, tenant: str | None) -> Queues:
    scheduler = kernel.queue
    assert isinstance(scheduler, Scheduler)
    per_class = scheduler.policy.capacity()
    total = scheduler.policy.capacity_total or sum(per_class.values())
    waiting = (job_id for job_id in scheduler.labelled if kernel.jobs[job_id].state == State.QUEUED)
    asked = (label for job_id in waiting for label in scheduler.labels_of(job_id) if label.startswith(POOL))
    asked_for = Counter(label.removeprefix(POOL) for label in asked)
    queues, oldest, own = scheduler.queues, {}, []
    for pool_id, pool in queues.pools().items():
        if heads := [_since(kernel.jobs[head.job_id]) for head in pool.heads()]:
            oldest[pool_id] = min(heads)
        if tenant is not None and len(pool) <= LOOKED_MAX:
            own += [
                Place(job_id, pool_id, job.priority, place, _since(job))
                for place, job_id in enumerate(pool.in_turn(), 1)
                if (job := kernel.jobs[job_id]).tenant_id == tenant
            ][:OWN_MAX]
    return Queues(queue_depths(queues), per_class, total, asked_for, oldest, own)


def _since(job: Job) -> int:
    return job.submitted_tick if job.queued_tick is None else job.queued_tick


def _now(kernel: Kernel) -> tuple[Metrics, Depths, int]:
    queue = kernel.queue
    waiting = queue_depths(queue.queues) if isinstance(queue, Scheduler) else {}
    return kernel.metrics.copy(), waiting, kernel.config.tick_ms
