"""Whether a worker elsewhere could ever take a job: by what enrolled workers offer, and by the pools that the settings promise.

A job that names a pool, labels, or a resource that the home itself does not have waits for such a worker. It is refused at submit when no
worker that is enrolled for its workspace offers all of that, unless ``[pools]`` in the settings says that such workers will come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from detent.canon.grammar import CPU
from detent.errors import RequestRefused
from detent.jobs.order import POOL, RESOURCE
from detent.serve.fleet import Fleet, Worker


class Placing:
    """Knows the fleet and the promised pools. Safe for several threads: it only looks."""

    def __init__(self, fleet: Fleet, pools: Mapping[str, Sequence[str]]) -> None:
        self._fleet, self._pools = fleet, pools

    def elsewhere(self, workspace: str, resources: Mapping[str, int], wanted: Sequence[str]) -> tuple[str, ...] | None:
        """The labels that have workers elsewhere take a job whose resources the home does not have; None: no worker has them."""
        for worker in self._workers(workspace):
            offered = {CPU: worker.slots, **worker.resources}
            if set(wanted) <= worker.offers and all(
                offered.get(name, 0) >= amount for name, amount in resources.items()
            ):
                return tuple(f"{RESOURCE}{name}" for name in resources if name != CPU)
        return None

    def refuse_unplaceable(self, what: str, workspace: str, wanted: Sequence[str]) -> None:
        """Refuse a job that asks for what no worker offers and no pool promises."""
        needs = set(wanted)
        offers = [worker.offers for worker in self._workers(workspace)]
        promised = [frozenset({f"{POOL}{name}", *labels}) for name, labels in self._pools.items()]
        if any(needs <= offered for offered in (*offers, *promised)):
            return
        best = max((*offers, *promised), key=lambda offered: len(needs & offered), default=frozenset())
        missing = ", ".join(_shown(one) for one in sorted(needs - best))
        raise RequestRefused(
            f"{what} can never run: no worker of this workspace offers {missing}",
            code="NO_FEASIBLE_POOL",
            hint="enrol a worker that does, or name the pool under [pools] in config.toml: then the job waits for one",
            details={"errors": [{"path": "body.task", "message": f"no worker offers {missing}"}]},
        )

    def _workers(self, workspace: str) -> list[Worker]:
        return [worker for worker in self._fleet.all() if not worker.retired and worker.certificate.covers(workspace)]


def _shown(wanted: str) -> str:
    kind, colon, name = wanted.partition(":")
    return f"{kind} {name}" if colon else f"label {wanted}"
