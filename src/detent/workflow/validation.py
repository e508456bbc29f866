"""Everything that can be wrong with a workflow before it is planned, all at once and in a fixed order (WF-106).

First the definition, then each step's own faults as declared, then references as declared, then cycles. Models check
themselves when they are created; they are checked again here because ``model_construct`` skips that (X-113). Disabled
steps are held to the same structure as others and to nothing else (X-111); reserved fields are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal, TypeAlias
from uuid import UUID

from detent.canon.late import dataclass
from detent.canon.show import a_or_an, show
from detent.workflow.models import ModelWorkflowDefinition, ModelWorkflowStep
from detent.workflow.ordering import _has_dependency_cycles, dependency_edges, find_cycles, has_cycle
from detent.workflow.plain import _validate_execution_mode, mode_fault
from detent.workflow.vocabulary import (
    ERROR_ACTIONS,
    STEP_TYPES,
    TIMEOUT_MS_MIN,
    WORKFLOW_TIMEOUT_MS_MIN,
    ModelOnexError,
)

__all__ = [
    "Problem",
    "_validate_dag_with_disabled_steps",
    "_validate_dependencies",
    "_validate_execution_mode",
    "_validate_unique_step_ids",
    "find_problems",
    "require_valid",
    "validate_workflow_definition",
]

ProblemKind: TypeAlias = Literal["structural", "dependency", "cycle"]

CYCLE_NAMES_MAX: Final = 100
"""Steps of one cycle that a message names; a longer cycle is shown by its beginning and its end."""

# Name, least and greatest value; a limit of None is open.
_INTEGERS: Final = (
    ("timeout_ms", TIMEOUT_MS_MIN, 300_000),
    ("retry_count", 0, 10),
    ("priority", 1, 1000),
    ("order_index", 0, None),
    ("max_parallel_instances", 1, 100),
)
_OPTIONAL_INTEGERS: Final = (("max_memory_mb", 1, 32_768), ("max_cpu_percent", 1, 100))
_FLAGS: Final = ("enabled", "skip_on_failure", "continue_on_error")


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault, with the place it belongs to.

    ``other`` is what the fault is about: the missing id of a dependency, the positions of one whole cycle (each step
    depends on the next, the last on the first), the position of the first step with a duplicate id, or None.
    """

    kind: ProblemKind
    message: str
    step_index: int | None = None
    """Position of the step; None for a fault of the definition."""
    other: UUID | int | tuple[int, ...] | None = None


def validate_workflow_definition(
    workflow_definition: ModelWorkflowDefinition, workflow_steps: Sequence[ModelWorkflowStep]
) -> list[str]:
    """Every fault as text; an empty list means that the workflow can be planned."""
    return [problem.message for problem in find_problems(workflow_definition, workflow_steps)]


def find_problems(
    workflow_definition: ModelWorkflowDefinition, workflow_steps: Sequence[ModelWorkflowStep]
) -> list[Problem]:
    """Every fault with its place, in the same order."""
    problems = [Problem("structural", message) for message in _definition_faults(workflow_definition)]
    untyped = [
        Problem("structural", f"Step {index} is {a_or_an(type(step))}, not a ModelWorkflowStep", index)
        for index, step in enumerate(workflow_steps)
        if not isinstance(step, ModelWorkflowStep)
    ]
    if untyped:  # further findings would be about things that are not steps
        return problems + untyped
    problems += _structural_problems(workflow_steps)
    # Ids of a step that was never checked may be anything, and then there are no edges to follow.
    if not problems or all(map(_has_usable_edges, workflow_steps)):
        problems += _dependency_problems(workflow_steps)
        problems += _cycle_problems(workflow_steps)
    return problems


def require_valid(
    workflow_definition: ModelWorkflowDefinition, workflow_steps: Sequence[ModelWorkflowStep], workflow_id: UUID
) -> None:
    """Raise ``ModelOnexError`` with every fault in its message and context, if there is one."""
    errors = validate_workflow_definition(workflow_definition, workflow_steps)
    if errors:
        raise ModelOnexError(
            f"Workflow validation failed: {', '.join(errors)}",
            context={"workflow_id": str(workflow_id), "errors": errors},
        )


def _validate_unique_step_ids(workflow_steps: Sequence[ModelWorkflowStep]) -> list[str]:
    """One message for each step whose id an earlier step has."""
    return [problem.message for problem in _duplicates(workflow_steps)]


def _validate_dependencies(workflow_steps: Sequence[ModelWorkflowStep]) -> list[str]:
    """One message for each reference to a step that does not exist."""
    return [problem.message for problem in _dependency_problems(workflow_steps)]


def _validate_dag_with_disabled_steps(workflow_steps: Sequence[ModelWorkflowStep]) -> list[str]:
    """Cycles among the enabled steps alone. The whole graph is checked besides, which covers every combination."""
    if _has_dependency_cycles([step for step in workflow_steps if step.enabled]):
        return ["Workflow contains cycles among enabled steps"]
    return []


def _definition_faults(definition: ModelWorkflowDefinition) -> Iterator[str]:
    if not isinstance(definition, ModelWorkflowDefinition):
        yield f"The workflow definition is {a_or_an(type(definition))}, not a ModelWorkflowDefinition"
        return
    metadata = definition.workflow_metadata
    name = getattr(metadata, "workflow_name", "")
    if type(name) is not str or not name:
        yield "Workflow name must not be empty"
    timeout_ms = getattr(metadata, "timeout_ms", None)
    if type(timeout_ms) is not int or timeout_ms < WORKFLOW_TIMEOUT_MS_MIN:
        yield f"Workflow timeout_ms must be an integer {_range(WORKFLOW_TIMEOUT_MS_MIN, None)}, got {show(timeout_ms)}"
    fault = mode_fault(getattr(metadata, "execution_mode", None))
    if fault is not None:
        yield fault


def _structural_problems(steps: Sequence[ModelWorkflowStep]) -> list[Problem]:
    own = [
        Problem("structural", f"Step {index} ({_label(step)}): {fault}", index)
        for index, step in enumerate(steps)
        for fault in _step_faults(step)
    ]
    return sorted([*own, *_duplicates(steps)], key=lambda problem: problem.step_index or 0)


def _step_faults(step: ModelWorkflowStep) -> Iterator[str]:
    values = step.__dict__
    kind = values.get("step_type")
    if kind == "conditional":
        yield "step type 'conditional' is reserved for future versions and cannot be used in v1.0"
    elif kind not in STEP_TYPES:
        yield f"unknown step type {show(kind)}"
    name = values.get("step_name")
    if type(name) is not str or not 1 <= len(name) <= 200:
        yield f"step_name must be text of 1 to 200 characters, got {show(name)}"
    for field, least, most in _INTEGERS:
        value = values.get(field)
        if type(value) is not int or value < least or (most is not None and value > most):
            yield f"{field} must be an integer {_range(least, most)}, got {show(value)}"
    for field, least, most in _OPTIONAL_INTEGERS:
        value = values.get(field)
        if value is not None and (type(value) is not int or not least <= value <= most):
            yield f"{field} must be an integer {_range(least, most)} or None, got {show(value)}"
    for field in _FLAGS:
        if type(values.get(field)) is not bool:
            yield f"{field} must be true or false, got {show(values.get(field))}"
    if values.get("error_action") not in ERROR_ACTIONS:
        yield f"unknown error_action {show(values.get('error_action'))}"
    group = values.get("parallel_group")
    if group is not None and (type(group) is not str or len(group) > 100):
        yield f"parallel_group must be text of at most 100 characters or None, got {show(group)}"
    if not _has_usable_edges(step):
        yield "step_id, correlation_id and depends_on must be UUIDs"


def _has_usable_edges(step: ModelWorkflowStep) -> bool:
    values = step.__dict__
    depends_on = values.get("depends_on")
    return (
        isinstance(values.get("step_id"), UUID)
        and isinstance(values.get("correlation_id"), UUID)
        and isinstance(depends_on, list)
        and all(isinstance(dependency, UUID) for dependency in depends_on)
    )


def _duplicates(steps: Sequence[ModelWorkflowStep]) -> Iterator[Problem]:
    first_of: dict[object, int] = {}
    for index, step in enumerate(steps):
        step_id = getattr(step, "step_id", None)
        first = first_of.setdefault(getattr(step_id, "int", step_id), index)
        if first != index:
            message = f"Duplicate step ID: {step_id} (step {index} ({_label(step)}) and step {first})"
            yield Problem("structural", message, index, first)


def _dependency_problems(steps: Sequence[ModelWorkflowStep]) -> Iterator[Problem]:
    known = {step.step_id.int for step in steps}
    for index, step in enumerate(steps):
        for dependency in step.depends_on:
            if dependency.int not in known:
                message = f"Step {_label(step)} depends on non-existent step: {dependency}"
                yield Problem("dependency", message, index, dependency)


def _cycle_problems(steps: Sequence[ModelWorkflowStep]) -> Iterator[Problem]:
    edges = dependency_edges(steps)
    if not has_cycle(edges):
        return
    for cycle in find_cycles(edges):
        names = [_label(steps[index]) for index in (*cycle, cycle[0])]
        if len(names) > CYCLE_NAMES_MAX:
            left_out = len(names) - CYCLE_NAMES_MAX
            names[CYCLE_NAMES_MAX // 2 : -CYCLE_NAMES_MAX // 2] = [f"({left_out} more steps)"]
        message = f"Workflow contains a dependency cycle: {' -> '.join(names)} (each depends on the next)"
        yield Problem("cycle", message, cycle[0], cycle)


def _label(step: ModelWorkflowStep) -> str:
    name = getattr(step, "step_name", None)
    return f"'{name}'" if type(name) is str else "without a name"


def _range(least: int, most: int | None) -> str:
    return f"of at least {least}" if most is None else f"from {least} to {most}"
