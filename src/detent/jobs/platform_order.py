"""Platform jobs as orders: the payload of the contract is the target of an order of kind ``job``.

A job that was submitted whole has its complete payload there and belongs to no run. A step of a contract may be such a job,
too; its payload is a draft, and the worker completes it. Nothing here needs Pydantic: every reader of a home asks these
questions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from detent.jobs.order import Call, JobLimits, Order, Origin

if TYPE_CHECKING:
    from detent.jobs.payload import JobPayload

FILLED_IN: Final = ("created_at", "execution_key", "requested_by", "nonce")
"""Fields without a default that a complete payload has."""
TIMEOUT_BY: Final = "limits.timeout_ms of the payload"
MEMORY_BY: Final = "limits.memory_mb of the payload"


def platform_order(payload: JobPayload, ingredients: Mapping[str, Any]) -> Order:
    """The order of a platform job, from its complete payload. ``ingredients`` name the tools that it will run with."""
    objects = ",".join(payload.object_ids)
    return Order(
        Call(kind="job", target=payload.document()),
        f"{payload.document_id}/{objects}" if objects else payload.document_id,
        JobLimits(
            wall_ms=payload.limits.timeout_ms,
            wall_by=TIMEOUT_BY,
            memory_mb=payload.limits.memory_mb,
            memory_by=MEMORY_BY,
        ),
        Origin(retry_of=payload.retry_of, ingredients=ingredients),
    )


def is_platform_order(order: Order) -> bool:
    """Whether an order is a platform job that was submitted whole, and not a step of a contract."""
    call = order.call
    return call.kind == "job" and order.origin.step is None and isinstance(call.target, dict)


def requested_by(order: Order) -> str | None:
    """On whose behalf a job was submitted: as its payload says, or its order; None for the home's own user."""
    if not is_platform_order(order):
        return order.origin.requested_by
    named = order.call.target.get("requested_by")
    return named.get("user_id") if isinstance(named, dict) else None


def request_of(order: Order) -> Order:
    """A platform job's order without what the platform filled in: what two equal requests have in common (JOB-031)."""
    from dataclasses import replace  # noqa: PLC0415 - only requests under an idempotency key ask

    target = {name: value for name, value in order.call.target.items() if name not in {*FILLED_IN, "job_id"}}
    environment = {name: value for name, value in target.get("environment", {}).items() if name != "env_version"}
    return replace(order, call=replace(order.call, target={**target, "environment": environment}))


def repeated(order: Order) -> dict[str, Any]:
    """The draft of a new job that does the same work as an ended one, and names it (A.7, X-154)."""
    target = {name: value for name, value in request_of(order).call.target.items() if name != "retry_of"}
    asked = order.call.target
    return {**target, "requested_by": asked["requested_by"], "retry_of": asked["job_id"]}
