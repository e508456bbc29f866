"""How many hosts a pool is to have, and which of them go: decided from what is wanted, what is there and what waits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from detent.jobs.pools import Pool

STARTING, IDLE, BUSY, LEAVING, LOST = "starting", "idle", "busy", "leaving", "lost"
"""What a host does: it has not taken a turn yet, has no job, has jobs, takes no more, does not answer."""
_GOES_FIRST: Final = {STARTING: 0, IDLE: 1, BUSY: 2}
REST_SECONDS: Final = 1.0
REST_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Host:
    """A host, as its provisioner and the server see it."""

    host_id: str
    phase: str
    idle_seconds: float = 0.0
    """For how long it has had nothing to do."""
    worker_id: str | None = None
    """The worker that it was enrolled as; None before that."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What to do."""

    wanted: int
    start: int
    drain: tuple[str, ...]
    """Hosts that finish what they run and take no more."""
    end: tuple[str, ...]
    """Hosts that are ended at once: they do not answer, or have not begun."""


def wanted_hosts(pool: Pool, scaled: int | None, hosts: Sequence[Host], waiting: int) -> int:
    """How many hosts there are to be: what an operator said, else the settings, else enough for what runs and waits."""
    said = pool.hosts if scaled is None else scaled
    if said is None:
        rested = [host for host in hosts if host.phase == IDLE and host.idle_seconds >= pool.idle_seconds]
        present = [host for host in hosts if host.phase in _GOES_FIRST]
        busy = sum(host.phase == BUSY for host in present)
        said = max(busy + -(-waiting // pool.cpus), len(present) - len(rested))
    return min(max(said, pool.least), pool.most)


def balance(pool: Pool, scaled: int | None, hosts: Sequence[Host], waiting: int, *, may_start: bool) -> Balance:
    """Decide what to start, drain and end. ``may_start`` is false while hosts cannot be had.

    Hosts that leave count no more: their slots are replaced at once. Of hosts that are too many, those go first that lose least.
    """
    wanted = wanted_hosts(pool, scaled, hosts, waiting)
    staying = sorted(
        (host for host in hosts if host.phase in _GOES_FIRST),
        key=lambda host: (_GOES_FIRST[host.phase], -host.idle_seconds, host.host_id),
    )
    surplus = staying[: max(0, len(staying) - wanted)]
    lost = [host.host_id for host in hosts if host.phase == LOST]
    return Balance(
        wanted,
        max(0, wanted - len(staying)) if may_start else 0,
        tuple(host.host_id for host in surplus if host.worker_id is not None),
        (*lost, *(host.host_id for host in surplus if host.worker_id is None)),
    )


def rest_after(failures: int) -> float:
    """For how long no host is started after so many in a row that ended before their first turn, in seconds."""
    return min(REST_SECONDS * 2 ** min(failures - 1, 16), REST_SECONDS_MAX) if failures else 0.0
