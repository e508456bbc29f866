"""Admission: whether a request may enter a queue, and which pool's.

The checks run in one order, so a request with several faults always gets the same answer: partition, context, token budget,
pin, feasibility, session budget. Nothing here changes anything. A caller that holds an `Admitted` puts the job into the
pool's queue and takes the debit; a queue that has no room, or none for more jobs of one tenant (`tenant_refusal`), is the last
"no", and then nothing was taken.

A request that cannot be run anywhere is refused; one that only cannot be run now is admitted and waits. A pin that cannot be
followed is refused and never replaced by a choice of ours.
"""

from __future__ import annotations

from dataclasses import KW_ONLY

from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import Refused
from detent.kernel import partition_of
from detent.scheduling.decisions import (
    ADMITTED,
    BEST_POOL,
    FEASIBLE_POOL,
    PINNED,
    STAGES,
    Decision,
    refused,
)
from detent.scheduling.fleet import Fleet
from detent.scheduling.index import LEAST_LOADED, PASSED, PIN, Demand, View
from detent.scheduling.placement import shown_candidates
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.sessions import Sessions
from detent.scheduling.types import TaskRequest


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may enter the queue of one pool."""

    pool_id: str
    priority: int
    evictable: bool
    """False for workflow and ordered work: a full queue holds it back instead of dropping it (X-031)."""
    decision: Decision


@dataclass(frozen=True, slots=True)
class NotAdmitted(Refused):
    """A refusal by admission, with the decision that belongs into the log."""

    _: KW_ONLY
    decision: Decision


def admit(
    request: TaskRequest, fleet: Fleet, sessions: Sessions, policy: SchedulingPolicy | None = None
) -> Admitted | NotAdmitted:
    """Decide whether a request may be queued, and in which pool. Refuses with the first fault in the order above.

    ``fleet`` is the one of the job's partition, ``sessions`` are those of the session's (X-030).
    """
    policy = policy or SchedulingPolicy()
    refusal = _partition_fault(request, fleet) or _guardrail_fault(request) or _pin_fault(request, fleet, policy)
    if refusal is None:
        chosen = _choose_pool(request, fleet)
        refusal = chosen if isinstance(chosen, Refused) else sessions.check(request)
        if refusal is None and not isinstance(chosen, Refused):
            return _admitted(request, fleet, sessions, *chosen)
    assert refusal is not None
    decision = refused(
        request.job_id,
        refusal,
        request_digest=request.digest(),
        fleet_digest=fleet.digest(),
        budget_left=sessions.left(request.session_id),
    )
    return NotAdmitted(refusal.code, refusal.message, refusal.details, decision=decision)


def tenant_refusal(waiting: int, policy: SchedulingPolicy, *, more: int = 1) -> Refused | None:
    """Why a tenant with so many waiting jobs may not have more of them; None when it may.

    A tenant at its bound is refused however much room there is, and displaces no other tenant's jobs. Jobs that are tried again keep
    their places (X-042): they count and are never refused.
    """
    bound = policy.capacity_per_tenant
    if bound is None or waiting + more <= bound:
        return None
    message = f"the workspace has {waiting} waiting jobs, and may have {bound}"
    return Refused("LIMIT_TENANT", message, {"waiting": waiting, "capacity_per_tenant": bound})


def _partition_fault(request: TaskRequest, fleet: Fleet) -> Refused | None:
    if fleet.partitions == 1 or (owner := partition_of(request.job_id, fleet.partitions)) == fleet.partition_id:
        return None
    message = f"job {show(request.job_id)} belongs to partition {owner}, this is {fleet.partition_id}"
    return Refused("NOT_PARTITION_OWNER", message, {"partition_id": owner})


def _guardrail_fault(request: TaskRequest) -> Refused | None:
    """Both guardrails measure against the effective limit of the model; without a model there is none (X-090)."""
    if request.requirements is None:
        return None
    limit = request.requirements.ctx_max
    if request.prompt_tokens > limit:
        message = f"the context has {request.prompt_tokens} tokens, the model takes {limit}"
        return Refused("CTX_TOO_LONG", message, {"prompt_tokens": request.prompt_tokens, "ctx_max": limit})
    if request.tokens > limit:
        message = (
            f"{request.prompt_tokens} tokens of prompt and {request.max_new_tokens} new ones are {request.tokens}, "
            f"the model takes {limit}"
        )
        return Refused("TOKEN_BUDGET_EXCEEDED", message, {"tokens": request.tokens, "ctx_max": limit})
    return None


def _pin_fault(request: TaskRequest, fleet: Fleet, policy: SchedulingPolicy) -> Refused | None:
    if request.pin is None:
        return None
    pool_id = request.pin.pool_id
    details = {"pool_id": pool_id}
    if not policy.pinning_allowed:
        return Refused("INVALID_PARAMS", "pinning to a pool is switched off by the scheduling policy", details)
    ready = fleet.pool_ready(pool_id)
    if ready is None:
        return Refused("INVALID_PARAMS", f"there is no pool {show(pool_id)} to pin to", details)
    if not ready:
        return Refused("POOL_UNREADY", f"pool {show(pool_id)} has no replica that is ready", details)
    return None


def _choose_pool(request: TaskRequest, fleet: Fleet) -> tuple[str, str, View] | Refused:
    """The pool, the reason for it, and the fleet as the request sees it; refuses what no pool could ever run.

    With a pin the other pools are not looked at. Without, it is the pool of the best feasible ready replica, whether or not
    that has a free slot now; without a ready one the first feasible pool by name (X-086).
    """
    pinned = None if request.pin is None else request.pin.pool_id
    demand = Demand.of(request, pinned)
    view = fleet.index.view(demand)
    if view.open or view.full:
        if pinned is not None:
            return pinned, PINNED, view
        # The contract's order ranks taken and free replicas alike. Packing asks what fits, so what fits comes first.
        heads = [line[0] for line in (view.open, view.full) if line]
        best = min(heads) if fleet.order == LEAST_LOADED else heads[0]
        return best.shape.pool_id, BEST_POOL, view
    verdicts = [(demand.judge(shape), shape.pool_id) for shape in fleet.index.shapes()]
    feasible = sorted(pool_id for verdict, pool_id in verdicts if verdict == PASSED)
    if feasible:
        return feasible[0], FEASIBLE_POOL if pinned is None else PINNED, view
    return _infeasible(pinned, max((verdict for verdict, _ in verdicts), default=PIN))


def _infeasible(pinned: str | None, furthest: int) -> Refused:
    """No replica could ever take the request: say at which filter the one that came furthest fell out."""
    words = {
        "pin": "there is no replica",
        "device_mask": "no replica is inside the device mask",
        "engine_model": "no replica inside the mask has the engine and model",
        "context": "no replica with the engine and model supports its context",
        "features": "no replica with the engine and model has the extensions it needs",
    }
    stage = STAGES[furthest]
    where = "in any pool" if pinned is None else f"in pool {show(pinned)}"
    details = {"removed_by": stage} if pinned is None else {"removed_by": stage, "pool_id": pinned}
    return Refused("NO_FEASIBLE_POOL", f"the request can never run: {words[stage]} {where}", details)


def _admitted(
    request: TaskRequest, fleet: Fleet, sessions: Sessions, pool_id: str, reason: str, view: View
) -> Admitted:
    decision = Decision(
        ADMITTED,
        request.job_id,
        reason,
        pool_id=pool_id,
        counts=(*view.counts, len(view.full), 0),
        candidates=shown_candidates(view, None),
        candidate_count=len(view.open),
        feasible_unready=view.feasible_unready,
        order=fleet.order,
        request_digest=request.digest(),
        fleet_digest=fleet.digest(),
        budget_left=sessions.left(request.session_id),
    )
    return Admitted(pool_id, request.priority, request.evictable, decision)
