"""One canonical order: wave by wave, inside a wave as declared, whatever else the steps say."""

from __future__ import annotations

import itertools
import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.workflow import ModelOnexError, ModelWorkflowStep, _has_dependency_cycles, get_execution_order
from tests.workflow.builders import MODES, emitted, execute, ident, names, step
from tests.workflow.naive import waves, workflows


def order(*steps: ModelWorkflowStep) -> str:
    return " ".join(names(get_execution_order(list(steps))))


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((step("A"), step("B"), step("C", "B"), step("D", "A")), "A B C D"),
        ((step("D", "C"), step("C", "B"), step("B", "A"), step("A")), "A B C D"),
        ((step("A"), step("B", "A"), step("C", "A"), step("D", "BC")), "A B C D"),
        ((step("D", "BC"), step("C", "A"), step("B", "A"), step("A")), "A C B D"),
        ((step("B"), step("A"), step("C", "A")), "B A C"),
        ((step("A"), step("B", "A"), step("C")), "A C B"),
        ((step("A", enabled=False), step("B", "A"), step("C")), "A B C"),
        ((step("A"), step("B", "A", enabled=False), step("C", "B")), "A C B"),
        ((), ""),
    ],
    ids=[
        "wave-before-fifo",
        "line",
        "diamond",
        "diamond-reversed",
        "roots",
        "isolated",
        "disabled",
        "nothing-inherited",
        "empty",
    ],
)
def test_steps_come_wave_by_wave_and_as_declared(steps: tuple[ModelWorkflowStep, ...], expected: str) -> None:
    """WF-036..WF-038, WF-049, WF-225, X-097, X-109"""
    assert order(*steps) == expected
    assert emitted(execute(list(steps))) == [name for name in expected.split() if step_named(steps, name).enabled]


def step_named(steps: tuple[ModelWorkflowStep, ...], name: str) -> ModelWorkflowStep:
    return next(one for one in steps if one.step_name == name)


@given(workflows())
def test_the_order_is_that_of_the_naive_model(steps: list[ModelWorkflowStep]) -> None:
    """WF-036, WF-038, WF-044, WF-225, X-097"""
    expected = [one.step_id for wave in waves(steps) for one in wave]
    assert get_execution_order(steps) == expected
    place = {step_id: index for index, step_id in enumerate(expected)}
    disabled = {one.step_id for one in steps if not one.enabled}
    for one in steps:
        assert all(place[need] < place[one.step_id] for need in one.depends_on if need not in disabled)


@given(workflows())
def test_actions_come_in_wave_order_in_every_mode(steps: list[ModelWorkflowStep]) -> None:
    """WF-043..WF-045, WF-227, WF-229, X-098"""
    expected = [one.step_name for wave in waves(steps) for one in wave if one.enabled]
    for mode in MODES:
        assert emitted(execute(steps, mode)) == expected


@given(workflows(failing=True), st.randoms(use_true_random=False))
def test_what_is_not_order_changes_no_order(steps: list[ModelWorkflowStep], chance: random.Random) -> None:
    """WF-047, WF-048, WF-050, WF-052, WF-053, WF-062, X-124"""
    changed = [
        one.model_copy(
            update={
                "depends_on": chance.sample(one.depends_on, len(one.depends_on)) + one.depends_on[:1],
                "order_index": chance.randrange(1000),
                "parallel_group": chance.choice([None, "", "group-1", "group-2", "wave:1"]),
                "max_parallel_instances": chance.randrange(1, 100),
            }
        )
        for one in steps
    ]
    assert execute(changed) == execute(steps)


@given(workflows(), st.randoms(use_true_random=False))
def test_priority_changes_the_actions_priority_and_nothing_else(
    steps: list[ModelWorkflowStep], chance: random.Random
) -> None:
    """WF-060, WF-062, X-124"""
    changed = [one.model_copy(update={"priority": chance.randrange(1, 1001)}) for one in steps]
    before, after = execute(steps), execute(changed)
    assert [action.model_copy(update={"priority": 1}) for action in after.actions_emitted] == [
        action.model_copy(update={"priority": 1}) for action in before.actions_emitted
    ]


def test_steps_of_one_group_still_wait_for_one_another() -> None:
    """WF-052"""
    steps = [step("B", "A", parallel_group="g"), step("A", parallel_group="g")]
    assert emitted(execute(steps)) == ["A", "B"]


@pytest.mark.parametrize(
    ("edges", "cyclic"),
    [
        ("A:B B:A", True),
        ("A:B B:C C:A", True),
        ("A:A", True),
        ("A: B:A C:AB D:BC", False),
        ("A: B: C:AB D:E E:F F:D", True),
        ("A:X B:Y", False),
        ("", False),
    ],
)
def test_cycles_are_found_by_following_dependencies(edges: str, cyclic: bool) -> None:
    """WF-035, WF-214"""
    steps = [step(name, needs) for name, needs in (edge.split(":") for edge in edges.split())]
    assert _has_dependency_cycles(steps) is cyclic
    if cyclic:
        with pytest.raises(
            ModelOnexError, match=r"^Cannot compute execution order: workflow contains cycles$"
        ) as caught:
            get_execution_order(steps)
        assert caught.value.context == {}
        with pytest.raises(ModelOnexError, match="contains cycles"):
            execute(steps)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_a_cycle_is_found_exactly_where_no_order_exists(pairs: list[tuple[int, int]]) -> None:
    """WF-035, WF-086, WF-214, WF-234"""
    steps = [step(f"s{number}", [f"s{need}" for one, need in pairs if one == number]) for number in range(7)]
    try:
        waves(steps)
    except RecursionError:
        assert _has_dependency_cycles(steps)
        with pytest.raises(ModelOnexError):
            get_execution_order(steps)
    else:
        assert not _has_dependency_cycles(steps)
        assert len(get_execution_order(steps)) == 7


def test_a_chain_of_any_length_needs_no_recursion() -> None:
    """WF-037, WF-214"""
    count = 5_000
    steps = [
        ModelWorkflowStep(
            step_id=UUID(int=number + 1),
            step_name="s",
            step_type="compute",
            depends_on=[UUID(int=number + 2)] if number + 1 < count else [],
        )
        for number in range(count)
    ]
    assert not _has_dependency_cycles(steps)
    assert get_execution_order(steps) == [UUID(int=number) for number in range(count, 0, -1)]
    closed = steps[-1].model_copy(update={"depends_on": [UUID(int=1)]})
    assert _has_dependency_cycles([*steps[:-1], closed])


def test_a_disabled_step_hides_no_cycle_in_any_combination() -> None:
    """WF-086, WF-087, X-110"""
    circle = [("A", "B"), ("B", "C"), ("C", "A"), ("D", "A")]
    for enabled in itertools.product([True, False], repeat=4):
        steps = [step(name, needs, enabled=on) for (name, needs), on in zip(circle, enabled, strict=True)]
        with pytest.raises(ModelOnexError, match="contains cycles"):
            get_execution_order(steps)


def test_an_acyclic_graph_stays_acyclic_whatever_is_disabled() -> None:
    """WF-087"""
    graph = [("A", ""), ("B", "A"), ("C", "A"), ("D", "BC"), ("E", "")]
    for enabled in itertools.product([True, False], repeat=5):
        steps = [step(name, needs, enabled=on) for (name, needs), on in zip(graph, enabled, strict=True)]
        assert sorted(get_execution_order(steps)) == sorted(ident(name) for name, _ in graph)
