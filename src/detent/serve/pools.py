"""The pools whose hosts a server has started: what its settings and its operators want, and what their keepers have told.

A keeper is a child of the server (`remote.pool_keeper`), one for each pool. What it tells lies in memory only: it tells everything
with every look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from detent.access.pools import PoolScales
from detent.jobs.order import POOL
from detent.jobs.pools import HOST_LABEL, Pool
from detent.owner.worker_offers import Offered
from detent.serve.fleet import Fleet, Worker

NO_HOSTS: Final = "max = 0 in its settings"


@dataclass(frozen=True, slots=True)
class Told:
    """What a keeper told last."""

    hosts: int = 0
    aim: int | None = None
    """How many hosts there are to be just now."""
    fault: str | None = None
    """Why no host of the pool can ever run: its jobs are refused."""
    unready: str | None = None
    """Why hosts cannot be had just now: its jobs wait."""


class Pools:
    """All pools that have a provisioner. For the HTTP loop; `offered` also for other threads."""

    def __init__(self, pools: Mapping[str, Pool], scales: PoolScales, fleet: Fleet) -> None:
        self.pools, self.scales = pools, scales
        self._fleet = fleet
        self._told: dict[str, Told] = {}

    def told(self, name: str) -> Told:
        """What the keeper of a pool told last."""
        return self._told.get(name, Told())

    def tell(self, name: str, told: Told) -> bool:
        """Take note of what a keeper tells; whether the pool offers something else now."""
        before = self.told(name)
        self._told[name] = told
        return before.fault != told.fault

    def wanted(self, pool: Pool) -> int | None:
        """How many hosts a pool is to have; None: as many as the queue asks for."""
        scaled = self.scales.get(pool.name)
        return pool.hosts if scaled is None else min(max(scaled, pool.least), pool.most)

    def workers(self, pool: Pool) -> Sequence[Worker]:
        """The workers of a pool's hosts that are not retired."""
        mark = f"{HOST_LABEL}{pool.provision}"
        return [
            worker
            for worker in self._fleet
            if not worker.retired and worker.certificate.pools == (pool.name,) and mark in worker.certificate.labels
        ]

    def offered(self) -> dict[str, Offered]:
        """What the hosts of each pool offer, also of hosts that are yet to be started."""
        return {
            f"{POOL}{name}": Offered(pool.offer(self.told(name).fault if pool.most else NO_HOSTS), pool.workspaces)
            for name, pool in self.pools.items()
        }
