"""What is wrong with a workflow: everything at once, in a fixed order, with its place."""

from __future__ import annotations

import itertools
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.workflow import (
    ModelOnexError,
    ModelWorkflowDefinition,
    ModelWorkflowDefinitionMetadata,
    ModelWorkflowStep,
    _has_dependency_cycles,
    _validate_dag_with_disabled_steps,
    _validate_dependencies,
    _validate_execution_mode,
    _validate_unique_step_ids,
    find_problems,
    validate_workflow_definition,
)
from detent.workflow.validation import CYCLE_NAMES_MAX
from tests.workflow.builders import MODES, RESERVED, V1, definition, ident, step
from tests.workflow.naive import workflows


def unchecked(name: str, **fields: Any) -> ModelWorkflowStep:
    """A step that was never validated."""
    made = step(name)
    return ModelWorkflowStep.model_construct(**{**made.__dict__, **fields})


def unchecked_definition(**fields: Any) -> ModelWorkflowDefinition:
    made = definition()
    bad = ModelWorkflowDefinitionMetadata.model_construct(**{**made.workflow_metadata.__dict__, **fields})
    return ModelWorkflowDefinition.model_construct(**{**made.__dict__, "workflow_metadata": bad})


def problems(*steps: ModelWorkflowStep) -> list[str]:
    return validate_workflow_definition(definition(), list(steps))


@given(workflows())
def test_a_valid_workflow_has_no_problems(steps: list[ModelWorkflowStep]) -> None:
    """WF-222, WF-269"""
    assert validate_workflow_definition(definition(), steps) == []


def test_duplicates_are_reported_one_by_one() -> None:
    """WF-216, WF-250"""
    steps = [step("A"), step("B"), step("A"), step("A")]
    found = _validate_unique_step_ids(steps)
    assert [str(ident("A")) in message for message in found] == [True, True]
    assert problems(*steps) == found
    structured = find_problems(definition(), steps)
    assert [(one.kind, one.step_index, one.other) for one in structured] == [("structural", 2, 0), ("structural", 3, 0)]


def test_every_missing_reference_is_reported_with_the_steps_name() -> None:
    """WF-215, WF-250, X-111"""
    steps = [step("B", "AXY"), step("A", "Z", enabled=False)]
    found = _validate_dependencies(steps)
    assert found == [
        f"Step 'B' depends on non-existent step: {ident('X')}",
        f"Step 'B' depends on non-existent step: {ident('Y')}",
        f"Step 'A' depends on non-existent step: {ident('Z')}",
    ]
    assert problems(*steps) == found
    assert [(one.kind, one.step_index, one.other) for one in find_problems(definition(), steps)] == [
        ("dependency", 0, ident("X")),
        ("dependency", 0, ident("Y")),
        ("dependency", 1, ident("Z")),
    ]


@pytest.mark.parametrize("mode", RESERVED)
def test_a_reserved_mode_raises(mode: Any) -> None:
    """WF-006, WF-125, WF-217, WF-250, WF-255"""
    with pytest.raises(ModelOnexError, match=f"^Execution mode '{mode.value}' is reserved") as caught:
        _validate_execution_mode(mode)
    assert caught.value.context == {"execution_mode": mode.value}
    assert validate_workflow_definition(definition(execution_mode=mode.value), [])[0] == caught.value.message


def test_other_modes_pass_and_what_is_no_mode_does_not() -> None:
    """WF-005, WF-179"""
    for mode in MODES:
        _validate_execution_mode(mode)
        assert validate_workflow_definition(definition(execution_mode=mode.value), []) == []
    with pytest.raises(ModelOnexError, match="Unknown execution mode 'parallel'"):
        _validate_execution_mode("parallel")  # type: ignore[arg-type]
    for unknown in ("Parallel", "windowed", ""):
        assert validate_workflow_definition(definition(execution_mode=unknown), []) == [
            f"Unknown execution mode {unknown!r}"
        ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"workflow_name": ""}, "Workflow name must not be empty"),
        ({"workflow_name": None}, "Workflow name must not be empty"),
        ({"timeout_ms": -1}, "Workflow timeout_ms must be an integer of at least 1000, got -1"),
        ({"timeout_ms": "long"}, "Workflow timeout_ms must be an integer of at least 1000, got 'long'"),
        ({"timeout_ms": 999}, "Workflow timeout_ms must be an integer of at least 1000, got 999"),
        ({"execution_mode": 7}, "Unknown execution mode 7"),
    ],
)
def test_a_definition_that_was_never_checked_is_checked_here(fields: dict[str, Any], message: str) -> None:
    """WF-176, WF-219, WF-220, WF-250, X-113"""
    broken = unchecked_definition(**fields)
    assert validate_workflow_definition(broken, []) == [message]
    assert [(one.kind, one.step_index) for one in find_problems(broken, [])] == [("structural", None)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"step_type": "foo"}, "unknown step type 'foo'"),
        ({"step_type": None}, "unknown step type None"),
        (
            {"step_type": "conditional"},
            "step type 'conditional' is reserved for future versions and cannot be used in v1.0",
        ),
        ({"step_name": ""}, "step_name must be text of 1 to 200 characters, got ''"),
        ({"timeout_ms": -1}, "timeout_ms must be an integer from 100 to 300000, got -1"),
        ({"timeout_ms": 300_001}, "timeout_ms must be an integer from 100 to 300000, got 300001"),
        ({"retry_count": 11}, "retry_count must be an integer from 0 to 10, got 11"),
        ({"priority": True}, "priority must be an integer from 1 to 1000, got True"),
        ({"order_index": -1}, "order_index must be an integer of at least 0, got -1"),
        ({"max_memory_mb": 0}, "max_memory_mb must be an integer from 1 to 32768 or None, got 0"),
        ({"enabled": 1}, "enabled must be true or false, got 1"),
        ({"error_action": "explode"}, "unknown error_action 'explode'"),
        ({"parallel_group": "x" * 101}, "parallel_group must be text of at most 100 characters or None, got "),
        ({"step_id": "text"}, "step_id, correlation_id and depends_on must be UUIDs"),
        ({"depends_on": ["text"]}, "step_id, correlation_id and depends_on must be UUIDs"),
        ({"depends_on": None}, "step_id, correlation_id and depends_on must be UUIDs"),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_a_step_that_was_never_checked_is_checked_here(fields: dict[str, Any], message: str, enabled: bool) -> None:
    """WF-079, WF-080, WF-085, WF-220, X-111, X-113, X-126"""
    steps = [step("A"), unchecked("B", **{"enabled": enabled, **fields})]
    found = find_problems(definition(), steps)
    assert [(one.kind, one.step_index) for one in found] == [("structural", 1)]
    assert found[0].message.startswith("Step 1 (")
    assert message in found[0].message


def test_a_conditional_step_is_refused_though_it_can_be_written() -> None:
    """WF-080, WF-085, X-111"""
    for enabled in (True, False):
        assert len(problems(step("A", step_type="conditional", enabled=enabled))) == 1
    for kind in ("compute", "effect", "reducer", "orchestrator", "custom", "parallel"):
        assert problems(step("A", step_type=kind)) == []


def test_a_step_without_any_fields_is_a_problem_and_not_a_crash() -> None:
    """X-113"""
    assert problems(ModelWorkflowStep.model_construct()) != []


@pytest.mark.parametrize("wrong", [{"step_name": "a"}, None, "step"])
def test_what_is_no_step_is_named_and_nothing_is_made_of_it(wrong: Any) -> None:
    """WF-002, WF-274"""
    found = find_problems(definition(), [step("A"), wrong])
    assert [(one.kind, one.step_index) for one in found] == [("structural", 1)]
    assert "not a ModelWorkflowStep" in found[0].message


def test_what_is_no_definition_is_named() -> None:
    """WF-003"""
    assert "not a ModelWorkflowDefinition" in validate_workflow_definition({}, [])[0]  # type: ignore[arg-type]


def test_a_disabled_step_is_held_to_structure_alone() -> None:
    """WF-018, WF-085, X-111"""
    odd = step("A", enabled=False, compensation_action="undo" * 999, idempotency_key="", checkpoint_required=True)
    assert problems(odd, step("B", "A")) == []


@pytest.mark.parametrize(
    ("steps", "cycle", "message"),
    [
        ((step("A", "B"), step("B", "A")), (0, 1), "'A' -> 'B' -> 'A'"),
        ((step("X"), step("A", "XB"), step("B", "C"), step("C", "AX")), (1, 2, 3), "'A' -> 'B' -> 'C' -> 'A'"),
        ((step("A", "A"),), (0,), "'A' -> 'A'"),
        ((step("A", "B"), step("B", "A", enabled=False)), (0, 1), "'A' -> 'B' -> 'A'"),
        ((step("A", "BD"), step("B", "C"), step("C", "A"), step("D", "A")), (0, 3), "'A' -> 'D' -> 'A'"),
    ],
)
def test_a_cycle_is_named_whole_by_the_names_of_its_steps(
    steps: tuple[ModelWorkflowStep, ...], cycle: tuple[int, ...], message: str
) -> None:
    """WF-035, WF-069, WF-086, WF-234, WF-250, WF-269, X-110"""
    found = find_problems(definition(), list(steps))
    assert [(one.kind, one.step_index, one.other) for one in found] == [("cycle", cycle[0], cycle)]
    assert found[0].message == f"Workflow contains a dependency cycle: {message} (each depends on the next)"


def test_every_knot_of_steps_is_reported_once() -> None:
    """WF-106"""
    steps = [step("A", "B"), step("B", "A"), step("C", "AD"), step("D", "C"), step("E", "E")]
    assert [one.other for one in find_problems(definition(), steps)] == [(0, 1), (2, 3), (4,)]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20))
def test_a_reported_cycle_is_one(pairs: list[tuple[int, int]]) -> None:
    """WF-035, WF-214"""
    steps = [step(f"s{number}", [f"s{need}" for one, need in pairs if one == number]) for number in range(9)]
    found = [one.other for one in find_problems(definition(), steps)]
    assert bool(found) is _has_dependency_cycles(steps)
    for cycle in found:
        assert isinstance(cycle, tuple)
        for index, following in itertools.pairwise((*cycle, cycle[0])):
            assert steps[following].step_id in steps[index].depends_on
    members = [index for cycle in found if isinstance(cycle, tuple) for index in cycle]
    assert len(members) == len(set(members))


def test_a_very_long_cycle_is_shown_by_its_ends() -> None:
    """WF-035"""
    count = 3_000
    steps = [
        ModelWorkflowStep(
            step_id=UUID(int=number + 1),
            step_name=f"s{number}",
            step_type="compute",
            depends_on=[UUID(int=(number + 1) % count + 1)],
        )
        for number in range(count)
    ]
    (found,) = find_problems(definition(), steps)
    assert found.other == tuple(range(count))
    assert found.message.count("->") == CYCLE_NAMES_MAX
    assert f"'s49' -> ({count + 1 - CYCLE_NAMES_MAX} more steps) -> 's2951'" in found.message


def test_cycles_among_enabled_steps_are_reported_alone() -> None:
    """WF-218, X-110"""
    circle = [step("A", "B"), step("B", "A")]
    assert _validate_dag_with_disabled_steps(circle) == ["Workflow contains cycles among enabled steps"]
    half = [step("A", "B"), step("B", "A", enabled=False)]
    assert _validate_dag_with_disabled_steps(half) == []
    assert _has_dependency_cycles(half)


@given(st.randoms(use_true_random=False))
def test_problems_come_in_the_order_of_the_contract(chance: random.Random) -> None:
    """WF-106, WF-222"""
    steps = [
        step("A", "B"),
        step("B", "A"),
        step("C", "X", step_type="conditional"),
        step("D", "Y"),
        unchecked("E", timeout_ms=0),
        step("D"),
    ]
    chance.shuffle(steps)
    found = find_problems(unchecked_definition(workflow_name=""), steps)
    assert found[0].message == "Workflow name must not be empty"
    ranks = [("structural", "dependency", "cycle").index(one.kind) for one in found]
    assert ranks == sorted(ranks)
    for kind in ("structural", "dependency"):
        places = [one.step_index for one in found[1:] if one.kind == kind]
        assert places == sorted(place for place in places if place is not None)
    assert [sum(one.kind == kind for one in found) for kind in ("structural", "dependency", "cycle")] == [4, 2, 1]
    assert find_problems(unchecked_definition(workflow_name=""), steps) == found


def test_equal_names_are_no_problem_and_neither_are_equal_correlation_ids() -> None:
    """WF-069, X-123"""
    lineage = UUID(int=77)
    steps = [step(name, step_name="same", correlation_id=lineage) for name in "AB"]
    assert problems(*steps) == []


def test_isolated_steps_are_no_problem() -> None:
    """WF-049"""
    assert problems(step("A"), step("B", "A"), step("C")) == []


def test_reserved_fields_are_never_a_problem() -> None:
    """WF-008, WF-018, WF-221"""
    made = definition(rules={"max_retries": -1, "synchronization_points": ["nowhere"]})
    made.compensation_enabled, made.saga_pattern, made.checkpoint_enabled = True, "choreography", True
    assert made.version == V1
    assert validate_workflow_definition(made, [step("A", compensation_action="undo")]) == []
