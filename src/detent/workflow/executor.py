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
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

from detent.errors import InvariantBroken
from detent.workflow.action import ModelAction
from detent.workflow.context import STRATEGY_ACTIONS, ExecutionContext, timeout_ms_of
from detent.workflow.creation import _create_action_for_step, operation_of
from detent.workflow.definition import ModelWorkflowDefinition
from detent.workflow.enums import EnumExecutionMode, EnumWorkflowState
from detent.workflow.errors import ModelOnexError
from detent.workflow.modes import effective_mode
from detent.workflow.ordering import Edges, Order, dependency_edges, execution_order, positions_by_id
from detent.workflow.result import WorkflowExecutionResult
from detent.workflow.step import ModelWorkflowStep

HARD_STOPS: Final = (MemoryError, SystemError, RecursionError, InvariantBroken)
"""What is no failure of a step but of the process, or of ours; it reaches the caller (X-131)."""

_UNDECIDED, _COMPLETED, _FAILED, _SKIPPED = range(4)


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
    position_of = positions_by_id(workflow_steps)
    edges = dependency_edges(workflow_steps, position_of)
    order = execution_order(workflow_steps, edges)
    walk = _Walk(workflow_steps, edges, workflow_id, context, timeout_ms_of(workflow_definition, context))
    if len(position_of) != len(workflow_steps):
        declared = enumerate(workflow_steps)
        walk.repeated = {position for position, step in declared if position_of[step.step_id.int] != position}
    for position in order.positions:
        walk.take(position)
    return _result(walk, order, mode, workflow_definition)


class _Walk:
    """The state of one plan while the steps are taken in turn."""

    def __init__(
        self,
        steps: Sequence[ModelWorkflowStep],
        edges: Edges,
        workflow_id: UUID,
        context: ExecutionContext,
        timeout_ms: int | None,
    ) -> None:
        self.steps = steps
        self.edges = edges
        self.workflow_id = workflow_id
        self.context = context
        self.timeout_ms = timeout_ms
        self.operation = operation_of(workflow_id, context)
        reported = context.reported_failures
        self.reported = reported if isinstance(reported, Mapping) else dict.fromkeys(reported, "the target reported it")
        self.fate = bytearray(len(steps))
        self.completed: list[str] = []
        self.failed: list[str] = []
        self.actions: list[ModelAction] = []
        self.errors: list[dict[str, str]] = []
        self.causes: dict[str, Exception] = {}
        self.step_to_action_map: dict[UUID, UUID] = {}
        self.action_ids: list[UUID | None] = [None] * len(steps)
        """The same by position."""
        self.stopped = context.cancel_requested
        """Nothing further is processed: after a cancellation from the start, after a failure from there on."""
        self.timed_out = False
        self.repeated: set[int] = set()
        """Steps whose id an earlier one has. Validation refuses them; here they must not take its action's id."""

    def take(self, position: int) -> None:
        """Decide what becomes of one step."""
        step = self.steps[position]
        if self.stopped or not step.enabled:
            self.fate[position] = _SKIPPED
        elif self._is_late():
            self._fail(position, "GlobalTimeout", f"the workflow's {self.timeout_ms} ms had elapsed")
        elif self.reported and step.step_id in self.reported:
            self._fail(position, "ReportedFailure", str(self.reported[step.step_id]))
            self._apply_error_action(step)
        elif self._is_blocked(position):
            self._fail(position, "DependencyNotMet", "a step it depends on was not completed")
        elif step.skip_on_failure and self.failed:
            self.fate[position] = _SKIPPED
        else:
            self._create(position, step)

    def elapsed_ms(self) -> int:
        elapsed = self.context.elapsed_ms
        return elapsed() if callable(elapsed) else elapsed

    def skipped(self) -> list[str]:
        """In declaration order, whatever the order of processing was."""
        return [str(step.step_id) for step, fate in zip(self.steps, self.fate, strict=True) if fate == _SKIPPED]

    def _is_late(self) -> bool:
        if self.timeout_ms is not None and not self.timed_out:
            self.timed_out = self.elapsed_ms() >= self.timeout_ms
        return self.timed_out

    def _is_blocked(self, position: int) -> bool:
        edges = self.edges[position]
        for target in edges:
            if self.fate[target] != _COMPLETED and self.steps[target].enabled:
                return True
        # A reference to an unknown step has no edge: such a step is neither completed nor disabled.
        return len(edges) != len(self.steps[position].depends_on)

    def _dependencies(self, position: int) -> list[UUID]:
        """Action ids of the dependencies that have an action, in declaration order, each once."""
        targets: Collection[int] = self.edges[position]
        if len(targets) > 1:
            targets = sorted(set(targets))
        action_ids = self.action_ids
        return [action_id for target in targets if (action_id := action_ids[target]) is not None]

    def _create(self, position: int, step: ModelWorkflowStep) -> None:
        try:
            if position in self.repeated:
                raise ModelOnexError(f"Duplicate step ID: {step.step_id}")
            action = _create_action_for_step(
                step,
                self.workflow_id,
                self.step_to_action_map,
                self.context,
                operation=self.operation,
                dependencies=self._dependencies(position),
            )
        except HARD_STOPS:
            raise
        except Exception as exc:  # noqa: BLE001 - whatever goes wrong here is the step's failure, not the caller's
            self._fail(position, type(exc).__name__, _text_of(exc))
            # Our own frame would keep this whole walk alive for as long as somebody keeps the result.
            trace = exc.__traceback__
            self.causes[str(step.step_id)] = exc.with_traceback(trace.tb_next if trace else None)
            self._apply_error_action(step)
            return
        self.actions.append(action)
        self.step_to_action_map[step.step_id] = self.action_ids[position] = action.action_id
        self.completed.append(action.payload["step_id"])
        self.fate[position] = _COMPLETED

    def _fail(self, position: int, error_type: str, message: str) -> None:
        step_id = str(self.steps[position].step_id)
        self.fate[position] = _FAILED
        self.failed.append(step_id)
        self.errors.append({"step_id": step_id, "error_type": error_type, "message": message})

    def _apply_error_action(self, step: ModelWorkflowStep) -> None:
        """Stop if the step says so, or if it does not say and the strategy does (X-101). All else goes on (X-103)."""
        if "error_action" in step.model_fields_set:
            self.stopped = step.error_action == "stop"
        else:
            self.stopped = STRATEGY_ACTIONS[self.context.failure_strategy] == "stop"


def _result(
    walk: _Walk, order: Order, mode: EnumExecutionMode, definition: ModelWorkflowDefinition
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
    result = WorkflowExecutionResult(
        walk.workflow_id,
        status,
        walk.completed,
        walk.failed,
        walk.skipped(),
        walk.actions,
        walk.elapsed_ms(),
        metadata,
    )
    result.timestamp = walk.context.now.isoformat()
    result.causes = walk.causes
    return result


def _wave_count(walk: _Walk, order: Order) -> int:
    """Waves out of which an action came. The number is all that is ever said about waves (X-128)."""
    return sum(
        any(walk.fate[position] == _COMPLETED for position in order.positions[start:end])
        for start, end in pairwise((*order.wave_starts, len(order.positions)))
    )


def _require_types(definition: object, steps: Sequence[object], workflow_id: object) -> None:
    """Refuse dicts and the like: nothing here turns one thing into another (WF-002, WF-003)."""
    if not isinstance(definition, ModelWorkflowDefinition):
        raise ModelOnexError(f"The workflow definition is a {type(definition).__name__}, not a ModelWorkflowDefinition")
    if not isinstance(workflow_id, UUID):
        raise ModelOnexError(f"workflow_id is a {type(workflow_id).__name__}, not a UUID")
    for index, step in enumerate(steps):
        if not isinstance(step, ModelWorkflowStep):
            raise ModelOnexError(f"Step {index} is a {type(step).__name__}, not a ModelWorkflowStep")


def _text_of(exc: Exception) -> str:
    """What an exception says; a foreign one may not even be able to say it."""
    try:
        return str(exc)
    except Exception:  # noqa: BLE001 - see above
        return f"{type(exc).__name__} without a readable message"
