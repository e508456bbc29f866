"""What an action says, where it is routed, and where its ids come from."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import encode
from detent.workflow import (
    EnumActionType,
    ExecutionContext,
    ModelAction,
    ModelOnexError,
    ModelWorkflowStep,
    _create_action_for_step,
)
from detent.workflow.identity import derive_id, ids_of
from tests.workflow.builders import MODES, WORKFLOW, action_of, execute, ident, step
from tests.workflow.naive import workflows
from tests.workflow.said import logged, warned


@pytest.mark.parametrize(
    ("kind", "action_type", "target"),
    [
        ("compute", EnumActionType.COMPUTE, "NodeCompute"),
        ("effect", EnumActionType.EFFECT, "NodeEffect"),
        ("reducer", EnumActionType.REDUCE, "NodeReducer"),
        ("orchestrator", EnumActionType.ORCHESTRATE, "NodeOrchestrator"),
        ("custom", EnumActionType.CUSTOM, "NodeCustom"),
        ("parallel", EnumActionType.CUSTOM, "NodeCustom"),
    ],
)
def test_the_type_of_a_step_decides_the_route_and_nothing_else(
    kind: str, action_type: EnumActionType, target: str
) -> None:
    """WF-081, WF-237..WF-239, X-126"""
    made = execute([step("A", step_type=kind)]).actions_emitted[0]
    assert (made.action_type, made.target_node_type) == (action_type, target)
    compute = execute([step("A")]).actions_emitted[0]
    assert made == compute.model_copy(update={"action_type": action_type, "target_node_type": target})


@pytest.mark.parametrize("kind", ["foo", "conditional", "Compute"])
def test_an_unknown_type_is_never_taken_for_custom(kind: str) -> None:
    """WF-079, X-126"""
    odd = ModelWorkflowStep.model_construct(**{**step("A").__dict__, "step_type": kind})
    with pytest.raises(ModelOnexError, match=f"No action for step type '{kind}'"):
        _create_action_for_step(odd, WORKFLOW, {})
    assert execute([odd]).failed_steps == [str(ident("A"))]


def test_an_action_holds_exactly_what_the_contract_lists() -> None:
    """WF-051, WF-054, WF-057, WF-064, WF-240, WF-241, WF-243, WF-244"""
    made = step("A", timeout_ms=1234, retry_count=7, order_index=5, parallel_group="g")
    action = _create_action_for_step(made, WORKFLOW, {})
    assert action.payload == {"workflow_id": str(WORKFLOW), "step_id": str(ident("A")), "step_name": "A"}
    assert action.metadata == {"step_name": "A", "correlation_id": str(made.correlation_id)}
    assert (action.timeout_ms, action.retry_count, action.epoch, action.dependencies) == (1234, 7, 0, [])
    assert action.model_fields_set == set(type(action).model_fields)
    parameters = list(inspect.signature(_create_action_for_step).parameters)
    assert parameters[:3] == ["step", "workflow_id", "step_to_action_map"]


@pytest.mark.parametrize(("given_priority", "clamped"), [(1, 1), (9, 9), (10, 10), (11, 10), (1000, 10)])
def test_priority_is_cut_to_ten_without_a_warning(
    given_priority: int, clamped: int, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """WF-060, WF-061"""
    for mode in MODES:
        with caplog.at_level("DEBUG"):
            assert execute([step("A", priority=given_priority)], mode).actions_emitted[0].priority == clamped
    assert (warned(recwarn), logged(caplog)) == ([], [])


@pytest.mark.parametrize("global_timeout_ms", [None, 100, 10**9])
def test_the_global_timeout_never_touches_a_steps_own(global_timeout_ms: int | None) -> None:
    """WF-074, WF-235"""
    for timeout_ms in (100, 30_000, 300_000):
        result = execute([step("A", timeout_ms=timeout_ms)], global_timeout_ms=global_timeout_ms)
        assert result.actions_emitted[0].timeout_ms == timeout_ms


def test_dependencies_are_action_ids_as_declared_each_once() -> None:
    """WF-048, WF-158, WF-242"""
    steps = [step("D", "CBAXB"), step("C"), step("B", "A"), step("A"), step("X", enabled=False)]
    result = execute(steps)
    expected = [action_of(result, name).action_id for name in "CBA"]
    assert action_of(result, "D").dependencies == expected


@given(workflows())
def test_dependencies_name_emitted_actions_of_the_same_plan(steps: list[ModelWorkflowStep]) -> None:
    """WF-158, WF-242"""
    result = execute(steps)
    action_ids = {action.payload["step_id"]: action.action_id for action in result.actions_emitted}
    place = {one.step_id: index for index, one in enumerate(steps)}
    for one in steps:
        if str(one.step_id) in action_ids:
            declared = sorted(set(one.depends_on), key=place.__getitem__)
            expected = [action_ids[str(need)] for need in declared if str(need) in action_ids]
            assert action_of(result, one.step_name).dependencies == expected


def test_without_a_plan_dependencies_follow_the_map() -> None:
    """WF-242, WF-244"""
    known = {ident("B"): UUID(int=20), ident("Z"): UUID(int=99), ident("A"): UUID(int=10)}
    action = _create_action_for_step(step("C", "ABX"), WORKFLOW, known)
    assert action.dependencies == [UUID(int=20), UUID(int=10)]


def test_the_ids_are_those_of_the_vector() -> None:
    """WF-063, WF-067, X-011"""
    assert derive_id("action", None, UUID(int=1), None, UUID(int=2)) == UUID("e9f1d1c9-cd28-89e7-808d-99c29d233387")
    assert derive_id("lease", None, UUID(int=1), None, UUID(int=2)) == UUID("bc6247dc-5c9b-8d01-a5b5-b94d93104883")
    made = _create_action_for_step(
        ModelWorkflowStep(step_id=UUID(int=2), step_name="a", step_type="compute"), UUID(int=1), {}
    )
    assert made.action_id == UUID("e9f1d1c9-cd28-89e7-808d-99c29d233387")
    assert made.lease_id == UUID("bc6247dc-5c9b-8d01-a5b5-b94d93104883")


@given(st.uuids(), st.none() | st.uuids(), st.none() | st.uuids(), st.uuids(), st.sampled_from(["action", "lease"]))
def test_an_id_is_the_formula_written_out(
    workflow_id: UUID, root: UUID | None, operation_id: UUID | None, step_id: UUID, purpose: str
) -> None:
    """X-011"""
    texts = [None if one is None else str(one) for one in (root, workflow_id, operation_id, step_id)]
    digest = bytearray(sha256(encode(["wf-id/v1", purpose, *texts])).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    made = derive_id(purpose, root, workflow_id, operation_id, step_id)  # type: ignore[arg-type]
    assert made == UUID(bytes=bytes(digest))
    pair = ids_of(root, workflow_id, operation_id)(str(step_id))
    assert made == pair[("action", "lease").index(purpose)]
    assert (made.version, made.variant, made.is_safe.name) == (8, "specified in RFC 4122", "unknown")


@pytest.mark.parametrize("operations", [50, pytest.param(500, marks=pytest.mark.slow)])
def test_ids_of_many_workflows_and_operations_are_all_different(operations: int) -> None:
    """WF-055, WF-066, WF-068: a hundred thousand ids in `make test`, a million in `make soak`."""
    seen: set[int] = set()
    texts = [str(UUID(int=number)) for number in range(1000)]
    for number in range(operations):
        derive = ids_of(None, UUID(int=number // 5), UUID(int=number))
        seen.update(made.int for text in texts for made in derive(text))
    assert len(seen) == operations * 2000


@given(workflows())
def test_two_operations_share_no_id_and_every_lease_is_its_own(steps: list[ModelWorkflowStep]) -> None:
    """WF-055..WF-057, WF-066, WF-068, WF-243, X-011"""
    contexts: list[dict[str, Any]] = [
        {"operation_id": UUID(int=1)},
        {"operation_id": UUID(int=2)},
        {"id_root": UUID(int=3)},
        {},
    ]
    plans = [execute(steps, **context).actions_emitted for context in contexts]
    ids = [one for plan in plans for action in plan for one in (action.action_id, action.lease_id)]
    assert len(set(ids)) == len(ids)
    assert all(action.epoch == 0 for plan in plans for action in plan)
    assert [name for name in ModelAction.model_fields if "lease" in name] == ["lease_id"]


def test_time_comes_from_the_context_in_utc() -> None:
    """WF-165, WF-168, X-011, X-140"""
    east = datetime(2025, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    result = execute([step("A")], now=east, elapsed_ms=7)
    assert result.actions_emitted[0].created_at == east
    assert result.actions_emitted[0].created_at.utcoffset() == timedelta(0)
    assert (result.timestamp, result.execution_time_ms) == ("2025-01-01T10:00:00.007000+00:00", 7)
    default = execute([step("A")])
    assert default.actions_emitted[0].created_at == datetime(1970, 1, 1, tzinfo=UTC)
    with pytest.raises(ModelOnexError, match="time zone"):
        ExecutionContext(now=datetime(2025, 1, 1))  # noqa: DTZ001


def test_lineage_leads_from_a_correlation_id_to_its_step_and_action() -> None:
    """WF-026, WF-064, WF-065"""
    steps = [step("A"), step("B", "A")]
    result = execute(steps)
    wanted = steps[1].correlation_id
    found = [action for action in result.actions_emitted if action.metadata["correlation_id"] == str(wanted)]
    assert [action.payload["step_id"] for action in found] == [str(steps[1].step_id)]


def test_a_shared_correlation_id_is_no_error() -> None:
    """X-123"""
    steps = [step(name, correlation_id=UUID(int=9)) for name in "AB"]
    assert len(execute(steps).actions_emitted) == 2


def test_actions_share_no_containers() -> None:
    """WF-028, WF-164, WF-262"""
    first, second = execute([step("A"), step("B", "A")]).actions_emitted
    assert first.payload is not second.payload
    assert first.metadata is not second.metadata
    before = second.model_dump()
    first.payload["x"] = first.metadata["x"] = 1
    assert second.model_dump() == before
