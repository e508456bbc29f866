"""Provisioners: how the workers of a pool come to be, wherever they run.

A *host* is one `detent worker` of a pool. It is started with a token that enrols it once, connects back to the server and takes turns like
any other worker elsewhere. So a provisioner knows nothing of jobs: it starts hosts, lists them, lets them go, and says when one is gone.
Orders, cancellation, heartbeats, logs and results are the same for every one of them, at the same speed.

`balance` decides how many hosts there are to be. `processes` starts them on this machine, `ray_hosts` on a Ray cluster. What drives them
is `remote.pool_keeper`, a child of the server, one for each pool.

A host is named by the id of its enrolment token. The ledger knows which worker a token brought, so nothing else has to be remembered
about hosts: a keeper that was killed finds them again by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from detent.errors import DetentError
from detent.jobs.pools import Pool

GONE = Callable[[str], None]
"""Told of a host that has ended, from any thread."""


class ProvisionFailed(DetentError):
    """Hosts cannot be started or listed now: the cluster does not answer, or a package is missing."""

    code = "POOL_UNREADY"


@dataclass(frozen=True, slots=True)
class HostOrder:
    """A host that is to run."""

    host_id: str
    token: str
    """Enrols it, once. It reaches the host neither by its command line nor by a variable that its jobs see."""
    url: str
    pin: str | None
    project: str


class Provisioner(Protocol):
    """Starts the hosts of one pool. Everything may be called again: a host that is there is not started twice."""

    def fault(self) -> str | None:
        """Why no host of this pool can ever run as things are, or nothing."""

    def ensure(self, order: HostOrder) -> None:
        """Have a host run. Returns before it does."""

    def list(self) -> Mapping[str, bool]:
        """The hosts that are there, also those that only begin, each with whether it still takes jobs.

        Raises `ProvisionFailed` where that cannot be told.
        """

    def release(self, host_id: str) -> None:
        """End a host at once; what it runs is interrupted. A host that is gone is no fault."""

    def close(self) -> None:
        """Let go of what this process holds. Hosts go on or end, as is the nature of the provisioner."""


def worker_words(pool: Pool, order: HostOrder, state: str) -> list[str]:
    """The command line of a host, behind the interpreter. Its token comes over standard input."""
    words = ["-m", "detent", "worker", "--connect", order.url, "--enrol-file", "-", "--state", state]
    words += ["--pool", pool.name, "--slots", str(pool.cpus), "--project", order.project]
    words += [] if order.pin is None else ["--pin", order.pin]
    for label in pool.labels:
        words += ["--label", label]
    for name, amount in pool.resources.items():
        words += ["--resource", f"{name}={amount}"]
    return words
