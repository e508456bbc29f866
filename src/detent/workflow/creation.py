"""How a step becomes an action: routing, lease, priority, dependencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from detent.canon.late import dataclass
from detent.workflow.action import ModelAction
from detent.workflow.context import ExecutionContext
from detent.workflow.identity import ids_of
from detent.workflow.moment import Moment
from detent.workflow.routes import priority_of, route_of
from detent.workflow.step import ModelWorkflowStep


@dataclass(frozen=True, slots=True)
class Operation:
    """What all actions of one operation share, computed once."""

    workflow_id: str
    ids_of: Callable[[str], tuple[UUID, UUID]]
    """From a step id to the ids of its action and its lease."""
    created_at: Moment


def operation_of(workflow_id: UUID, context: ExecutionContext) -> Operation:
    """The shared part of the actions of one operation."""
    return Operation(str(workflow_id), ids_of(context.id_root, workflow_id, context.operation_id), context.now)


def _create_action_for_step(
    step: ModelWorkflowStep,
    workflow_id: UUID,
    step_to_action_map: Mapping[UUID, UUID],
    context: ExecutionContext | None = None,
    *,
    operation: Operation | None = None,
    dependencies: list[UUID] | None = None,
) -> ModelAction:
    """The action of one step; ``step_to_action_map`` says which steps have one already, and its id.

    The executor knows more than the map says and passes it on: what all steps of the operation share, and the action
    ids of the dependencies in declaration order. Without that, their order is the map's. Raises ``ModelOnexError`` for
    a type that has no route.
    """
    shared = operation or operation_of(workflow_id, context or ExecutionContext())
    route = route_of(step)
    if dependencies is None:
        wanted = set(step.depends_on)
        dependencies = [action_id for step_id, action_id in step_to_action_map.items() if step_id in wanted]
    step_id, step_name = str(step.step_id), step.step_name
    action_id, lease_id = shared.ids_of(step_id)
    return ModelAction(
        action_id=action_id,
        action_type=route[0],
        target_node_type=route[1],
        payload={"workflow_id": shared.workflow_id, "step_id": step_id, "step_name": step_name},
        dependencies=dependencies,
        priority=priority_of(step),
        timeout_ms=step.timeout_ms,
        lease_id=lease_id,
        epoch=0,
        retry_count=step.retry_count,
        metadata={"step_name": step_name, "correlation_id": str(step.correlation_id)},
        created_at=shared.created_at,
    )
