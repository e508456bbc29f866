"""Steps and definitions without the models: what is accepted without them means exactly what the models make of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from detent.workflow import ExecutionContext, ModelOnexError, ModelWorkflowDefinition, ModelWorkflowStep, plan_workflow
from detent.workflow.plain import STEP_FIELDS, PlainStep, plain_outline, plain_step
from detent.workflow.walk import plan_plain
from tests.workflow.builders import WORKFLOW, definition
from tests.workflow.naive import workflows

ID = "00000000-0000-8000-8000-000000000001"
STEP: dict[str, Any] = {"step_id": ID, "correlation_id": UUID(int=2), "step_name": "load", "step_type": "compute"}
FIRST = {"major": 1, "minor": 0, "patch": 0}
DEFINITION: dict[str, Any] = {
    "version": FIRST,
    "workflow_metadata": {
        "version": FIRST,
        "workflow_name": "etl",
        "workflow_version": {"major": 2, "minor": 11, "patch": 0},
        "description": "",
        "execution_mode": "parallel",
        "timeout_ms": 1000,
    },
    "execution_graph": {"version": FIRST},
}
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 1001),
    st.sampled_from(
        [100, 300_000, 300_001, 1.0, ID, ID.upper(), f"{{{ID}}}", UUID(int=3), [], [ID], [UUID(int=4)], [1]]
    ),
    st.sampled_from(["", "stop", "retry", "compute", "conditional", "a" * 200, "a" * 201, "\ud800", "ü", b"x", ()]),
)
FIELDS = st.dictionaries(st.sampled_from([*STEP_FIELDS, "step_nam"]), ANYTHING, max_size=4)


def modelled(model: Any, fields: Any) -> Any:
    """What the model makes of them; None when it refuses."""
    try:
        return model.model_validate(fields)
    except (ValidationError, ModelOnexError):
        return None


def test_a_plain_step_has_the_fields_and_defaults_of_the_model() -> None:
    """WF-107"""
    fields = ModelWorkflowStep.model_fields
    assert tuple(fields) == STEP_FIELDS
    defaults = {name: field.default for name, field in fields.items() if field.default_factory is None}
    unset = {name: value for name, value in vars(PlainStep).items() if name in defaults}
    assert unset == {name: value for name, value in defaults.items() if not fields[name].is_required()}
    assert list(PlainStep.depends_on) == ModelWorkflowStep.model_validate(STEP).depends_on


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(FIELDS)
def test_what_is_accepted_without_the_model_is_what_the_model_makes_of_it(changed: dict[str, Any]) -> None:
    """X-101, X-162: down to which fields were set."""
    fields = STEP | changed
    plain = plain_step(fields)
    if plain is None:
        return
    model = modelled(ModelWorkflowStep, fields)
    assert model is not None, fields
    assert set(plain.model_fields_set) == model.model_fields_set
    assert {name: getattr(plain, name) for name in STEP_FIELDS if name != "depends_on"} == {
        name: getattr(model, name) for name in STEP_FIELDS if name != "depends_on"
    }
    assert list(plain.depends_on) == model.depends_on
    assert list(plain.document().items()) == list(model.model_dump(mode="json", exclude_unset=True).items())
    assert ModelWorkflowStep.model_validate(vars(plain)) == model


@pytest.mark.parametrize(
    "changed",
    [
        {"step_id": ID.replace("-", "")},
        {"step_name": ""},
        {"step_name": "a" * 201},
        {"step_name": "\ud800"},
        {"step_type": "conditional"},
        {"timeout_ms": 99},
        {"timeout_ms": True},
        {"retry_count": 11},
        {"priority": "5"},
        {"enabled": 1},
        {"error_action": "explode"},
        {"depends_on": (UUID(int=1),)},
        {"depends_on": ["load"]},
        {"max_memory_mb": 64},
        {"unknown": 1},
    ],
)
def test_whatever_is_not_plainly_right_is_left_to_the_model(changed: dict[str, Any]) -> None:
    assert plain_step(STEP) is not None
    assert plain_step(STEP | changed) is None


@pytest.mark.parametrize("lacking", sorted(STEP))
def test_a_step_that_lacks_something_is_left_to_the_model(lacking: str) -> None:
    assert plain_step({name: value for name, value in STEP.items() if name != lacking}) is None


def test_a_plain_step_is_frozen_and_equal_by_its_fields() -> None:
    one, same = plain_step(STEP), plain_step(dict(STEP))
    assert one == same != plain_step(STEP | {"priority": 100})
    assert hash(one) == hash(same)
    with pytest.raises(AttributeError, match="frozen"):
        one.priority = 1  # type: ignore[union-attr]
    with pytest.raises(AttributeError, match="frozen"):
        del one.step_name  # type: ignore[union-attr]


def test_an_outline_says_what_the_definition_says() -> None:
    outline = plain_outline(DEFINITION)
    assert outline is not None
    assert (outline.name, outline.mode, outline.timeout_ms, outline.parallel_allowed) == ("etl", "parallel", 1000, True)
    model = ModelWorkflowDefinition.model_validate(DEFINITION)
    assert outline.document == model.model_dump(mode="json", exclude_unset=True)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(DEFINITION["workflow_metadata"])), st.one_of(ANYTHING, st.just({"major": 1})))
def test_an_outline_is_taken_only_of_what_the_model_accepts(name: str, value: object) -> None:
    changed = {**DEFINITION, "workflow_metadata": {**DEFINITION["workflow_metadata"], name: value}}
    if (outline := plain_outline(changed)) is not None:
        model = modelled(ModelWorkflowDefinition, changed)
        assert model is not None, changed
        assert outline.document == model.model_dump(mode="json", exclude_unset=True)
        assert outline.timeout_ms == (value if name == "timeout_ms" else 1000)


@pytest.mark.parametrize(
    "changed",
    [
        {"coordination_rules": {"version": FIRST, "parallel_execution_allowed": False}},
        {"version": {"major": 1, "minor": 0}},
        {"version": {"major": -1, "minor": 0, "patch": 0}},
        {"execution_graph": {"version": FIRST, "nodes": []}},
        {"workflow_metadata": {**DEFINITION["workflow_metadata"], "execution_mode": "streaming"}},
        {"workflow_metadata": {**DEFINITION["workflow_metadata"], "workflow_name": "  "}},
        {"workflow_metadata": {**DEFINITION["workflow_metadata"], "timeout_ms": 999}},
    ],
)
def test_a_definition_that_says_more_or_less_is_left_to_the_model(changed: dict[str, Any]) -> None:
    assert plain_outline({**DEFINITION, **changed}) is None


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(workflows(), st.integers(0, 5), st.booleans())
def test_a_plan_without_actions_is_the_plan(steps: list[ModelWorkflowStep], failing: int, cancelled: bool) -> None:
    """WF-031, X-011, X-107: the same steps, ids and priorities, and the same fates after the same failures."""
    made = [one for one in steps if one.timeout_ms >= 100]  # Only models can be broken after they were checked.
    failures = {made[failing % len(made)].step_id: "boom"} if made and failing else {}
    context = ExecutionContext(operation_id=UUID(int=7), reported_failures=failures, cancel_requested=cancelled)
    known = {one.step_id for one in made}
    whole = [one for one in made if known.issuperset(one.depends_on)]
    whole = whole if len(whole) == len(made) else []
    result = plan_workflow(definition(), whole, WORKFLOW, context=context)
    plain = [PlainStep({name: getattr(one, name) for name in one.model_fields_set}) for one in whole]
    planned = plan_plain(plain, WORKFLOW, context)
    assert [(str(step.step_id), *ids) for step, *ids in planned.planned] == [
        (action.payload["step_id"], action.action_id, action.priority, action.lease_id)
        for action in result.actions_emitted
    ]
    assert (planned.failed, planned.skipped) == (result.failed_steps, result.skipped_steps)
