"""The pure planner: a definition and its steps become a result with ordered, leased actions.

Same arguments, same answer, in every field: ids and times come from the context alone, the order from the steps alone.
Nothing is executed, logged, retried or waited for. The signature is asynchronous because the contract's is; the
coroutine finishes on its first ``send``.

Where a step ends up is decided at its turn in the canonical order by the first line that fits (table A.9):

1. disabled: skipped.
2. cancelled: skipped.
3. an earlier failure stopped the workflow: skipped.
4. the global timeout has elapsed: failed.
5. reported as failed: failed, and its error action applies.
6. a dependency is neither completed nor disabled: failed, but its error action does not apply (X-107).
7. ``skip_on_failure``, and something failed before: skipped.
8. no action can be made: failed, and its error action applies.
9. otherwise: completed.

A workflow is expected to be valid. Only what would make nonsense of the answer is refused here: other types, a reserved
mode, an order that does not exist.

How a step becomes an action: routing, lease, priority, dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

from detent.canon.late import dataclass
from detent.canon.show import a_or_an
from detent.workflow.context import ExecutionContext, timeout_ms_of
from detent.workflow.identity import ids_of, priority_of, route_of
from detent.workflow.models import ModelAction, ModelWorkflowDefinition, ModelWorkflowStep
from detent.workflow.ordering import Order
from detent.workflow.plain import effective_mode
from detent.workflow.result import WorkflowExecutionResult
from detent.workflow.vocabulary import EnumExecutionMode, EnumWorkflowState, ModelOnexError, Moment, later
from detent.workflow.walk import COMPLETED, HARD_STOPS, Walk

__all__ = ["HARD_STOPS", "Operation", "execute_workflow", "operation_of", "plan_workflow"]


async def execute_workflow(
    workflow_definition: ModelWorkflowDefinition,
    workflow_steps: list[ModelWorkflowStep],
    workflow_id: UUID,
    execution_mode: EnumExecutionMode | None = None,
    *,
    context: ExecutionContext | None = None,
) -> WorkflowExecutionResult:
    """Plan a workflow. ``execution_mode`` overrides the definition's; ``context`` defaults to nothing but constants."""
    return plan_workflow(workflow_definition, workflow_steps, workflow_id, execution_mode, context=context)


def plan_workflow(
    workflow_definition: ModelWorkflowDefinition,
    workflow_steps: Sequence[ModelWorkflowStep],
    workflow_id: UUID,
    execution_mode: EnumExecutionMode | None = None,
    *,
    context: ExecutionContext | None = None,
) -> WorkflowExecutionResult:
    """The same as ``execute_workflow``, for callers that are not asynchronous."""
    _require_types(workflow_definition, workflow_steps, workflow_id)
    context = ExecutionContext() if context is None else context
    mode = effective_mode(workflow_definition, execution_mode)
    walk = _ActionWalk(workflow_steps, workflow_id, context, timeout_ms_of(workflow_definition, context))
    order = walk.take_all()
    return _result(walk, order, mode, workflow_definition)


class _ActionWalk(Walk):
    """The walk of a plan that makes actions."""

    def __init__(
        self, steps: Sequence[ModelWorkflowStep], workflow_id: UUID, context: ExecutionContext, timeout_ms: int | None
    ) -> None:
        super().__init__(steps, workflow_id, context, timeout_ms)
        self.operation = operation_of(workflow_id, context)

    def _action(self, position: int, step: ModelWorkflowStep) -> ModelAction:
        return _create_action_for_step(
            step,
            self.workflow_id,
            self.step_to_action_map,
            self.context,
            operation=self.operation,
            dependencies=self._dependencies(position),
        )


def _result(
    walk: _ActionWalk, order: Order, mode: EnumExecutionMode, definition: ModelWorkflowDefinition
) -> WorkflowExecutionResult:
    if walk.context.cancel_requested:
        status = EnumWorkflowState.CANCELLED
    else:
        status = EnumWorkflowState.FAILED if walk.failed else EnumWorkflowState.COMPLETED
    metadata: dict[str, Any] = {
        "execution_mode": mode.value,
        "workflow_name": definition.workflow_metadata.workflow_name,
        "errors": walk.errors,
    }
    if mode is EnumExecutionMode.BATCH:
        metadata["batch_size"] = len(walk.steps)
    if mode is EnumExecutionMode.PARALLEL:
        metadata["parallel_waves"] = _wave_count(walk, order)
    elapsed_ms = walk.elapsed_ms()
    result = WorkflowExecutionResult(
        walk.workflow_id,
        status,
        walk.completed,
        walk.failed,
        walk.skipped(),
        walk.actions,
        elapsed_ms,
        metadata,
    )
    result.timestamp = later(walk.context.now, elapsed_ms).isoformat()
    result.causes = walk.causes
    return result


def _wave_count(walk: _ActionWalk, order: Order) -> int:
    """The number of waves that gave an action. The number is all that is ever said about waves (X-128)."""
    return sum(
        any(walk.fate[position] == COMPLETED for position in order.positions[start:end])
        for start, end in pairwise((*order.wave_starts, len(order.positions)))
    )


def _require_types(definition: object, steps: Sequence[object], workflow_id: object) -> None:
    """Refuse dicts and the like: nothing here turns one thing into another (WF-002, WF-003)."""
    if not isinstance(definition, ModelWorkflowDefinition):
        raise ModelOnexError(f"The workflow definition is {a_or_an(type(definition))}, not a ModelWorkflowDefinition")
    if not isinstance(workflow_id, UUID):
        raise ModelOnexError(f"workflow_id is {a_or_an(type(workflow_id))}, not a UUID")
    for index, step in enumerate(steps):
        if not isinstance(step, ModelWorkflowStep):
            raise ModelOnexError(f"Step {index} is {a_or_an(type(step))}, not a ModelWorkflowStep")


@dataclass(frozen=True, slots=True)
class Operation:
    """What all actions of one operation share, computed once."""

    workflow_id: str
    ids_of: Callable[[str], tuple[UUID, UUID]]
    """From a step id to the ids of its action and its lease."""
    created_at: Moment


def operation_of(workflow_id: UUID, context: ExecutionContext) -> Operation:
    """The shared part of the actions of one operation."""
    return Operation(
        str(workflow_id), ids_of(context.id_root, workflow_id, context.operation_id, context.suits), context.now
    )


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
