"""Large workflows: any shape, any length, little memory, and work that grows no faster than the workflow.

How long that takes is for bench/plan_rate.py to say. Here lines of Python are counted instead: their number is the same on
every machine, and a line takes well under a microsecond, so a count bounds a time.
"""

from __future__ import annotations

import tracemalloc
from uuid import UUID

import pytest

from detent.workflow import (
    EnumExecutionMode,
    EnumWorkflowState,
    ModelWorkflowStep,
    _has_dependency_cycles,
    get_execution_order,
    plan_workflow,
    validate_workflow_definition,
)
from tests.lines_run import lines_run
from tests.workflow.builders import WORKFLOW, definition

COUNT = 3_000
BYTES_PER_STEP_MAX = 4096
"""The contract allows 10 KB; we ask for less than 4 KB beside the caller's own models."""


def needs_of(shape: str, number: int, count: int) -> list[int]:
    if shape == "chain":
        return [number - 1] if number else []
    if shape == "wide":
        return []
    if shape == "diamond":
        return list(range(1, number)) if number == count - 1 else [0] if number else []
    return [number - 50, number - number % 50 - 1] if number >= 50 else []  # layers of 50


def workflow(shape: str, count: int) -> list[ModelWorkflowStep]:
    return [
        ModelWorkflowStep(
            step_id=UUID(int=number),
            step_name=f"step {number}",
            step_type="compute",
            depends_on=[UUID(int=need) for need in needs_of(shape, number, count)],
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("shape", ["chain", "wide", "diamond", "layers"])
@pytest.mark.parametrize("count", [COUNT, pytest.param(100_000, marks=pytest.mark.slow)])
def test_any_shape_is_planned_in_little_memory(shape: str, count: int) -> None:
    """WF-009, WF-214, WF-279"""
    steps = workflow(shape, count)
    tracemalloc.start()
    try:
        result = plan_workflow(definition(), steps, WORKFLOW, EnumExecutionMode.PARALLEL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.execution_status is EnumWorkflowState.COMPLETED
    assert len(result.actions_emitted) == count
    assert peak / count < BYTES_PER_STEP_MAX
    assert not _has_dependency_cycles(steps)
    assert [str(step_id) for step_id in get_execution_order(steps)] == result.completed_steps
    assert validate_workflow_definition(definition(), steps) == []


def test_the_contracts_limits_are_kept_by_the_number_of_lines_run() -> None:
    """WF-276..WF-278: 100 ms for 100 steps, 50 ms for 1,000, 10 ms for an action, at a microsecond a line."""
    hundred, thousand = workflow("layers", 100), workflow("layers", 1000)
    assert lines_run(lambda: validate_workflow_definition(definition(), hundred)) < 20_000
    assert lines_run(lambda: get_execution_order(thousand)) < 50_000
    assert lines_run(lambda: plan_workflow(definition(), hundred, WORKFLOW)) / 100 < 200


@pytest.mark.parametrize("shape", ["chain", "wide", "diamond", "layers"])
def test_the_work_for_each_step_is_the_same_at_ten_times_the_size(shape: str) -> None:
    """WF-037, WF-277, WF-278"""
    per_step = []
    plan_workflow(definition(), workflow(shape, 1), WORKFLOW)  # What is loaded or made once counts for no step.
    for count in (400, 4000):  # The first layer of 50 needs nothing: an eighth of the small one, not a quarter.
        steps = workflow(shape, count)
        planned = lines_run(lambda steps=steps: plan_workflow(definition(), steps, WORKFLOW))  # type: ignore[misc]
        checked = lines_run(lambda steps=steps: validate_workflow_definition(definition(), steps))  # type: ignore[misc]
        per_step.append((planned + checked) / count)
    assert per_step[1] < per_step[0] * 1.05
