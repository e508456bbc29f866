"""Small workflows in one line, and a way to run a coroutine without a loop."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar
from uuid import UUID

from detent.workflow import (
    EnumExecutionMode,
    ExecutionContext,
    ModelAction,
    ModelCoordinationRules,
    ModelExecutionGraph,
    ModelOnexError,
    ModelSemVer,
    ModelWorkflowDefinition,
    ModelWorkflowDefinitionMetadata,
    ModelWorkflowStep,
    WorkflowExecutionResult,
    execute_workflow,
)

T = TypeVar("T")

V1 = ModelSemVer(major=1, minor=0, patch=0)
WORKFLOW = UUID(int=1)
MODES = (EnumExecutionMode.SEQUENTIAL, EnumExecutionMode.PARALLEL, EnumExecutionMode.BATCH)
RESERVED = (EnumExecutionMode.CONDITIONAL, EnumExecutionMode.STREAMING)


def metadata(**fields: Any) -> ModelWorkflowDefinitionMetadata:
    given: dict[str, Any] = {
        "version": V1,
        "workflow_name": "etl",
        "workflow_version": V1,
        "description": "",
        **fields,
    }
    return ModelWorkflowDefinitionMetadata(**given)


def definition(*, rules: dict[str, Any] | None = None, **fields: Any) -> ModelWorkflowDefinition:
    """A definition; ``fields`` go to its metadata, ``rules`` to its coordination rules."""
    return ModelWorkflowDefinition(
        version=V1,
        workflow_metadata=metadata(**fields),
        execution_graph=ModelExecutionGraph(version=V1),
        coordination_rules=ModelCoordinationRules(version=V1, **(rules or {})),
    )


def ident(name: str) -> UUID:
    """The id of a step in these tests: readable from its name, so that letters can stand for steps."""
    return UUID(int=int.from_bytes(name.encode()) + (1 << 100))


def step(name: str, needs: Iterable[str] = (), **fields: Any) -> ModelWorkflowStep:
    """A step whose id follows from its name; ``needs`` holds names."""
    given: dict[str, Any] = {
        "step_id": ident(name),
        "correlation_id": UUID(int=ident(name).int + (1 << 101)),
        "step_name": name,
        "step_type": "compute",
        **fields,
    }
    return ModelWorkflowStep(**given, depends_on=[ident(need) for need in needs])


def unmakeable(name: str, needs: Iterable[str] = (), **fields: Any) -> ModelWorkflowStep:
    """A step whose action cannot be made: its timeout was never checked, and the action's is."""
    made = step(name, needs, **fields)
    made.__dict__["timeout_ms"] = 1
    return made


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits; one that does is an error here (WF-071)."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the coroutine waited for something")


def execute(
    steps: list[ModelWorkflowStep],
    mode: EnumExecutionMode | None = None,
    *,
    of: ModelWorkflowDefinition | None = None,
    **context: Any,
) -> WorkflowExecutionResult:
    """Plan steps; further arguments go to the context."""
    return drive(execute_workflow(of or definition(), steps, WORKFLOW, mode, context=ExecutionContext(**context)))


def names(ids: Iterable[str | UUID]) -> list[str]:
    """The names of steps made by ``step``, from their ids."""
    found = []
    for step_id in ids:
        number = UUID(str(step_id)).int - (1 << 100)
        found.append(number.to_bytes((number.bit_length() + 7) // 8).decode())
    return found


def fates(result: WorkflowExecutionResult) -> tuple[str, str, str]:
    """Completed, failed and skipped steps, as names joined by spaces."""
    lists = (result.completed_steps, result.failed_steps, result.skipped_steps)
    completed, failed, skipped = (" ".join(names(ids)) for ids in lists)
    return completed, failed, skipped


def emitted(result: WorkflowExecutionResult) -> list[str]:
    """The names of the steps whose actions were emitted, in the order of emission."""
    return [action.payload["step_name"] for action in result.actions_emitted]


def action_of(result: WorkflowExecutionResult, name: str) -> ModelAction:
    return next(action for action in result.actions_emitted if action.payload["step_name"] == name)


def message_of(error: ModelOnexError) -> str:
    return error.message
