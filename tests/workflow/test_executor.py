"""Where each step ends up (table A.9), and what is said about it."""

from __future__ import annotations

import inspect
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import InvariantBroken
from detent.workflow import (
    EnumExecutionMode,
    EnumWorkflowState,
    ExecutionContext,
    ModelOnexError,
    ModelWorkflowDefinition,
    ModelWorkflowStep,
    WorkflowExecutionResult,
    _create_action_for_step,
    execute_workflow,
    executor,
    plan_workflow,
    timeout_ms_of,
)
from tests.workflow.builders import (
    MODES,
    RESERVED,
    WORKFLOW,
    action_of,
    definition,
    drive,
    emitted,
    execute,
    fates,
    ident,
    step,
    unmakeable,
)
from tests.workflow.naive import partition, workflows
from tests.workflow.said import logged, warned

FAILED, COMPLETED, CANCELLED = EnumWorkflowState.FAILED, EnumWorkflowState.COMPLETED, EnumWorkflowState.CANCELLED


def test_the_signatures_are_those_of_the_contract() -> None:
    """WF-001, WF-071, WF-112, WF-166, X-011, X-133"""
    assert inspect.iscoroutinefunction(execute_workflow)
    parameters = inspect.signature(execute_workflow).parameters.values()
    positional = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert positional == ["workflow_definition", "workflow_steps", "workflow_id", "execution_mode"]
    assert all(one.default is not one.empty for one in parameters if one.kind is one.KEYWORD_ONLY)
    assert (
        list(inspect.signature(WorkflowExecutionResult).parameters)
        == (
            "workflow_id execution_status completed_steps failed_steps skipped_steps actions_emitted execution_time_ms metadata"
        ).split()
    )


def test_the_coroutine_finishes_on_its_first_send() -> None:
    """WF-071, X-099"""
    coroutine = execute_workflow(definition(), [step("A")], WORKFLOW)
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    assert isinstance(stop.value.value, WorkflowExecutionResult)
    assert stop.value.value == plan_workflow(definition(), [step("A")], WORKFLOW)


@given(
    workflows(failing=True),
    st.data(),
    st.sampled_from(["fail_fast", "continue_on_error"]),
    st.one_of(st.none(), st.integers(0, 12)),
    st.integers(0, 5).map(lambda number: number == 0),
)
def test_every_step_ends_where_the_table_says_in_every_mode(
    steps: list[ModelWorkflowStep], data: st.DataObject, strategy: str, time_for: int | None, cancelled: bool
) -> None:
    """WF-083, WF-084, WF-089..WF-092, WF-096..WF-099, WF-229, WF-236, X-106..X-108"""
    ids = [one.step_id for one in steps]
    reported = frozenset(data.draw(st.sets(st.sampled_from(ids), max_size=2))) if ids else frozenset()
    broken = frozenset(one.step_id for one in steps if one.timeout_ms == 1)
    expected = partition(
        steps, broken=broken, reported=reported, strategy=strategy, cancelled=cancelled, time_for=time_for
    )
    for mode in MODES:
        asked = iter(range(10_000))
        result = execute(
            steps,
            mode,
            failure_strategy=strategy,
            reported_failures=reported,
            cancel_requested=cancelled,
            global_timeout_ms=None if time_for is None else 1000,
            elapsed_ms=lambda asked=asked, limit=time_for: 0 if limit is None or next(asked) < limit else 1000,
        )
        assert result.completed_steps == expected.completed
        assert result.failed_steps == expected.failed
        assert result.skipped_steps == expected.skipped
        assert sorted(result.completed_steps + result.failed_steps + result.skipped_steps) == sorted(map(str, ids))
        assert [action.payload["step_id"] for action in result.actions_emitted] == expected.completed
        assert [error["step_id"] for error in result.metadata["errors"]] == expected.failed
        status = CANCELLED if cancelled else FAILED if expected.failed else COMPLETED
        assert result.execution_status is status


@given(workflows(failing=True))
def test_modes_differ_in_nothing_but_what_they_say_about_themselves(steps: list[ModelWorkflowStep]) -> None:
    """WF-228, WF-229, X-098"""
    results = [execute(steps, mode) for mode in MODES]
    for mode, result in zip(MODES, results, strict=True):
        assert result.metadata.pop("execution_mode") == mode.value
        assert ("batch_size" in result.metadata) is (mode is EnumExecutionMode.BATCH)
        assert ("parallel_waves" in result.metadata) is (mode is EnumExecutionMode.PARALLEL)
        result.metadata.pop("batch_size", None)
        result.metadata.pop("parallel_waves", None)
    assert results[0] == results[1] == results[2]


def test_a_disabled_step_is_skipped_and_counts_as_satisfied() -> None:
    """WF-083, WF-084, WF-242, X-109"""
    result = execute([step("A"), step("B", "A", enabled=False), step("C", "B")])
    assert fates(result) == ("A C", "", "B")
    assert action_of(result, "C").dependencies == []
    assert result.execution_status is COMPLETED


def test_skipped_steps_are_listed_as_declared() -> None:
    """WF-088"""
    steps = [step("D", "C", enabled=False), step("C"), step("B", enabled=False), step("A", enabled=False)]
    assert fates(execute(steps)) == ("C", "", "D B A")


def test_an_empty_workflow_completes_at_once() -> None:
    """WF-101"""
    for mode in (None, *MODES):
        result = execute([], mode)
        assert (result.execution_status, result.actions_emitted, result.execution_time_ms) == (COMPLETED, [], 0)
        assert fates(result) == ("", "", "")


def test_skip_on_failure_skips_after_an_earlier_failure() -> None:
    """WF-089, X-108"""
    for mode in MODES:
        steps = [unmakeable("A", error_action="continue"), step("B", skip_on_failure=True), step("C")]
        assert fates(execute(steps, mode)) == ("C", "A", "B")
        assert fates(execute(steps[1:], mode)) == ("B C", "", "")


def test_skip_on_failure_looks_at_earlier_steps_only() -> None:
    """WF-089, WF-090, X-108"""
    steps = [step("B", skip_on_failure=True), unmakeable("A", error_action="continue")]
    assert fates(execute(steps)) == ("B", "A", "")


def test_unmet_dependencies_block_whatever_skip_on_failure_says() -> None:
    """WF-090"""
    steps = [unmakeable("A", error_action="continue"), step("B", "A", skip_on_failure=True)]
    assert fates(execute(steps)) == ("", "A B", "")


@pytest.mark.parametrize(
    ("first", "second", "met"),
    [
        ("completed", "completed", True),
        ("completed", "disabled", True),
        ("disabled", "disabled", True),
        ("completed", "failed", False),
        ("disabled", "failed", False),
        ("completed", "skipped", False),
        ("completed", "unknown", False),
    ],
)
def test_dependencies_are_met_by_completed_and_disabled_steps_alone(first: str, second: str, met: bool) -> None:
    """WF-091, WF-092"""

    def made(name: str, fate: str) -> list[ModelWorkflowStep]:
        if fate == "unknown":
            return []
        fields: dict[str, Any] = {"enabled": fate != "disabled", "skip_on_failure": fate == "skipped"}
        return [unmakeable(name, error_action="continue") if fate == "failed" else step(name, **fields)]

    # A failure ahead of all makes the steps that are to be skipped skip.
    ahead = [unmakeable("Z", error_action="continue")] if "skipped" in {first, second} else []
    result = execute([*ahead, *made("A", first), *made("B", second), step("C", "AB")])
    assert (str(ident("C")) in result.completed_steps) is met
    assert (str(ident("C")) in result.failed_steps) is not met
    if not met:
        assert result.execution_status is FAILED
        assert result.metadata["errors"][-1]["error_type"] == "DependencyNotMet"


def test_a_workflow_that_cannot_progress_fails_without_an_exception() -> None:
    """WF-092, WF-251, WF-254"""
    result = execute([unmakeable("A", error_action="continue"), step("B", "A"), step("C", "B"), step("D", "C")])
    assert fates(result) == ("", "A B C D", "")
    assert result.execution_status is FAILED


def test_stop_skips_the_rest_of_the_wave_and_everything_after() -> None:
    """WF-098, WF-232"""
    for mode in MODES:
        result = execute([step("A"), unmakeable("B"), step("C"), step("D", "A")], mode)
        assert fates(result) == ("A", "B", "C D")
        assert result.execution_status is FAILED


def test_continue_runs_what_does_not_depend_on_the_failure() -> None:
    """WF-099, WF-233, X-104, X-107"""
    for mode in MODES:
        result = execute([unmakeable("A", error_action="continue"), step("B", "A"), step("C"), step("D", "C")], mode)
        assert fates(result) == ("C D", "A B", "")
        assert result.execution_status is FAILED


@pytest.mark.parametrize(
    ("error_action", "strategy", "stops"),
    [
        ("stop", "fail_fast", True),
        ("stop", "continue_on_error", True),
        ("continue", "fail_fast", False),
        ("continue", "continue_on_error", False),
        (None, "fail_fast", True),
        (None, "continue_on_error", False),
        ("retry", "fail_fast", False),
        ("compensate", "fail_fast", False),
    ],
)
def test_a_steps_own_error_action_wins_over_the_strategy(error_action: str | None, strategy: str, stops: bool) -> None:
    """WF-096, WF-133, X-101..X-103"""
    fields = {} if error_action is None else {"error_action": error_action}
    result = execute([unmakeable("A", **fields), step("B")], failure_strategy=strategy)
    assert fates(result) == (("", "A", "B") if stops else ("B", "A", ""))


def test_a_stored_step_still_knows_whether_it_chose_its_error_action() -> None:
    """WF-096, X-101"""
    for fields, stops in (({}, False), ({"error_action": "stop"}, True)):
        stored = step("A", **fields).model_dump_json(exclude_unset=True)
        read = ModelWorkflowStep.model_validate_json(stored)
        result = execute([read, step("B")], failure_strategy="continue_on_error", reported_failures=[ident("A")])
        assert fates(result) == (("", "A", "B") if stops else ("B", "A", ""))


def test_continue_on_error_does_not_override_the_error_action() -> None:
    """WF-097, WF-190"""
    steps = [unmakeable("A", error_action="stop", continue_on_error=True), step("B")]
    assert fates(execute(steps)) == ("", "A", "B")


@pytest.mark.parametrize("strategy", ["foo", "", "stop", "FAIL_FAST"])
def test_another_failure_strategy_raises(strategy: str) -> None:
    """WF-133, X-102"""
    with pytest.raises(ModelOnexError, match="Unknown failure strategy"):
        execute([], failure_strategy=strategy)


def test_a_failed_creation_is_tried_once_and_never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """WF-100, WF-187, X-103"""
    tried = []

    def fail(one: ModelWorkflowStep, *_: object, **__: object) -> None:
        tried.append(one.step_name)
        raise ValueError("no")

    monkeypatch.setattr(executor, "_create_action_for_step", fail)
    execute([step("A", retry_count=10, error_action="retry"), step("B", error_action="compensate")])
    assert tried == ["A", "B"]


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no luck"), "no luck"),
        (ModelOnexError("refused"), "refused"),
        (KeyError("k"), "'k'"),
        (_Unspeakable(), "_Unspeakable without a readable message"),
    ],
)
def test_an_exception_while_an_action_is_made_fails_the_step(
    monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    """WF-094, WF-095, WF-148, WF-230, WF-251, WF-254, X-130"""
    make = _create_action_for_step

    def fail(one: ModelWorkflowStep, *rest: Any, **more: Any) -> Any:
        if one.step_name == "A":
            raise error
        return make(one, *rest, **more)

    monkeypatch.setattr(executor, "_create_action_for_step", fail)
    result = execute([step("A", error_action="continue"), step("B")])
    assert fates(result) == ("B", "A", "")
    assert result.metadata["errors"] == [
        {"step_id": str(ident("A")), "error_type": type(error).__name__, "message": message}
    ]
    assert result.causes == {str(ident("A")): error}


@pytest.mark.parametrize(
    "error",
    [MemoryError(), SystemError(), RecursionError(), InvariantBroken("ours"), KeyboardInterrupt(), SystemExit()],
)
def test_hard_stops_reach_the_caller(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """WF-252, X-131"""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(executor, "_create_action_for_step", fail)
    with pytest.raises(type(error)):
        execute([step("A", error_action="continue")])


def test_a_kept_cause_does_not_keep_the_plan_alive() -> None:
    """WF-169"""
    result = execute([unmakeable("A"), step("B")])
    trace = result.causes[str(ident("A"))].__traceback__
    assert trace is not None
    assert trace.tb_frame.f_code.co_name == "_create_action_for_step"


def test_the_action_of_a_step_is_made_before_the_next_step_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """WF-226"""
    seen: list[tuple[str, list[str]]] = []
    make = _create_action_for_step

    def spy(one: ModelWorkflowStep, workflow_id: UUID, made: dict[UUID, UUID], *rest: Any, **more: Any) -> Any:
        seen.append((one.step_name, [str(key) for key in made]))
        return make(one, workflow_id, made, *rest, **more)

    monkeypatch.setattr(executor, "_create_action_for_step", spy)
    execute([step("A"), step("B", "A"), step("C", "B")])
    a, b = str(ident("A")), str(ident("B"))
    assert seen == [("A", []), ("B", [a]), ("C", [a, b])]


@pytest.mark.parametrize("reported", [[ident("A")], {ident("A"): "disk full"}])
def test_a_reported_failure_fails_the_step_and_blocks_its_dependents(reported: Any) -> None:
    """WF-231, WF-251, WF-254, X-117"""
    steps = [step("A", error_action="continue"), step("B", "A"), step("C")]
    result = execute(steps, reported_failures=reported)
    assert fates(result) == ("C", "A B", "")
    assert result.execution_status is FAILED
    error = result.metadata["errors"][0]
    assert (error["error_type"], error["message"]) == (
        "ReportedFailure",
        "disk full" if isinstance(reported, dict) else "the target reported it",
    )


def test_when_the_global_timeout_elapses_the_rest_fails_and_what_was_emitted_stays() -> None:
    """WF-073, WF-235, WF-251, WF-254, X-116"""
    for mode in MODES:
        clock = iter([0, 150, 250, 0, 0, 0])
        steps = [step("A"), step("B"), step("C"), step("D", "C"), step("E", enabled=False)]
        result = execute(steps, mode, global_timeout_ms=200, elapsed_ms=lambda clock=clock: next(clock))
        assert fates(result) == ("A B", "C D", "E")
        assert emitted(result) == ["A", "B"]
        assert result.execution_status is FAILED
        assert {error["error_type"] for error in result.metadata["errors"]} == {"GlobalTimeout"}


def test_time_is_up_at_the_bound_and_not_before() -> None:
    """WF-073, X-116"""
    assert fates(execute([step("A")], global_timeout_ms=200, elapsed_ms=199)) == ("A", "", "")
    assert fates(execute([step("A")], global_timeout_ms=200, elapsed_ms=200)) == ("", "A", "")
    assert execute([step("A")], elapsed_ms=10**9).execution_status is COMPLETED


@pytest.mark.parametrize(
    ("given_ms", "declared", "bound"),
    [(None, {"timeout_ms": 5000}, 5000), (200, {"timeout_ms": 5000}, 200), (None, {}, None), (200, {}, 200)],
)
def test_a_timeout_binds_only_if_the_contract_sets_it(
    given_ms: int | None, declared: dict[str, Any], bound: int | None
) -> None:
    """WF-132, WF-180, X-115, X-162"""
    made = definition(**declared)
    assert timeout_ms_of(made, ExecutionContext(global_timeout_ms=given_ms)) == bound
    late = execute([step("A")], of=made, global_timeout_ms=given_ms, elapsed_ms=(bound or 10**9))
    assert late.execution_status is (COMPLETED if bound is None else FAILED)


def test_cancellation_skips_every_step() -> None:
    """WF-236, WF-254, X-029, X-144"""
    result = execute([step("A"), step("B", enabled=False), step("C", "A")], cancel_requested=True)
    assert fates(result) == ("", "", "A B C")
    assert (result.execution_status, result.actions_emitted) == (CANCELLED, [])


@pytest.mark.parametrize("mode", RESERVED)
def test_reserved_modes_raise_by_parameter_and_by_metadata_even_when_overridden(mode: EnumExecutionMode) -> None:
    """WF-006, WF-125, WF-253, X-100"""
    with pytest.raises(ModelOnexError, match=f"Execution mode '{mode.value}' is reserved") as caught:
        execute([step("A")], mode)
    assert caught.value.context == {"execution_mode": mode.value}
    for override in (None, EnumExecutionMode.SEQUENTIAL):
        with pytest.raises(ModelOnexError, match=f"Execution mode '{mode.value}' is reserved"):
            execute([step("A")], override, of=definition(execution_mode=mode.value))


def test_an_unknown_mode_raises() -> None:
    """WF-179, X-100"""
    with pytest.raises(ModelOnexError, match="Unknown execution mode 'windowed'"):
        execute([step("A")], EnumExecutionMode.BATCH, of=definition(execution_mode="windowed"))
    with pytest.raises(ModelOnexError, match="Unknown execution mode 'batch'"):
        execute([step("A")], "batch")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "given_mode", "used"),
    [
        ("parallel", EnumExecutionMode.SEQUENTIAL, "sequential"),
        ("parallel", None, "parallel"),
        ("batch", None, "batch"),
        ("sequential", EnumExecutionMode.BATCH, "batch"),
    ],
)
def test_a_given_mode_overrides_the_declared_one(
    declared: str, given_mode: EnumExecutionMode | None, used: str
) -> None:
    """WF-005, WF-076..WF-078, X-100"""
    result = execute([step("A")], given_mode, of=definition(execution_mode=declared))
    assert result.metadata["execution_mode"] == used


def test_batch_mode_counts_the_declared_steps() -> None:
    """WF-228, X-135"""
    steps = [step(name, enabled=name != "C") for name in "ABCDE"]
    metadata = execute(steps, EnumExecutionMode.BATCH).metadata
    assert (metadata["batch_size"], metadata["execution_mode"]) == (5, "batch")


def test_parallel_mode_counts_waves() -> None:
    """WF-150, WF-227, X-128"""
    steps = [step("A"), step("B"), step("C"), step("T", "ABC"), step("L", "T"), step("X", enabled=False)]
    assert execute(steps, EnumExecutionMode.PARALLEL).metadata["parallel_waves"] == 3
    stopped = [step("A"), unmakeable("B", "A"), step("C", "B")]
    assert execute(stopped, EnumExecutionMode.PARALLEL).metadata["parallel_waves"] == 1


def test_where_parallel_is_not_allowed_it_is_sequential_without_a_word(recwarn: pytest.WarningsRecorder) -> None:
    """WF-201, X-136"""
    steps = [step("A"), step("B", "A")]
    forbidden = definition(rules={"parallel_execution_allowed": False})
    result = execute(steps, EnumExecutionMode.PARALLEL, of=forbidden)
    assert result == execute(steps, EnumExecutionMode.SEQUENTIAL)
    assert "parallel_waves" not in result.metadata
    assert warned(recwarn) == []


def test_the_result_says_nothing_about_the_inside() -> None:
    """WF-104, WF-105, X-128"""
    steps = [step("A"), unmakeable("B", "A", error_action="continue"), step("C", "AB"), step("D", enabled=False)]
    for mode in MODES:
        result = execute(steps, mode)
        allowed = {"errors", "execution_mode", "workflow_name", "batch_size", "parallel_waves"}
        assert set(result.metadata) <= allowed
        for error in result.metadata["errors"]:
            assert set(error) == {"step_id", "error_type", "message"}
        for action in result.actions_emitted:
            assert not any("wave" in text for text in (*action.metadata, *action.payload))
        assert "wave" not in str(result.metadata["errors"])


def test_a_result_without_metadata_has_an_empty_one_and_a_moment_in_utc() -> None:
    """WF-167, WF-168, X-011, X-140"""
    result = WorkflowExecutionResult(WORKFLOW, COMPLETED, [], [], [], [], 0)
    assert result.metadata == {}
    assert result.timestamp == "1970-01-01T00:00:00+00:00"
    kept = {"a": 1}
    assert WorkflowExecutionResult(WORKFLOW, COMPLETED, [], [], [], [], 0, kept).metadata is kept


def test_results_are_compared_by_value() -> None:
    """WF-113, WF-169"""
    one, other = execute([step("A")]), execute([step("A")])
    assert one == other
    other.failed_steps.append("x")
    assert one != other
    assert one != "something else"
    assert "1 completed, 0 failed, 0 skipped" in repr(one)


@pytest.mark.parametrize(
    ("made", "steps", "workflow_id"),
    [
        ({"version": 1}, [], WORKFLOW),
        (None, [], WORKFLOW),
        (definition(), [{"step_name": "a"}], WORKFLOW),
        (definition(), [step("A"), "B"], WORKFLOW),
        (definition(), [], str(WORKFLOW)),
    ],
)
def test_the_executor_takes_models_and_turns_nothing_into_one(made: Any, steps: Any, workflow_id: Any) -> None:
    """WF-002, WF-003, WF-274"""
    with pytest.raises(ModelOnexError, match=r"is a \w+, not a "):
        drive(execute_workflow(made, steps, workflow_id))


def test_steps_with_one_id_never_share_an_action() -> None:
    """WF-066"""
    result = execute(
        [step("A", error_action="continue"), step("A", step_name="again", error_action="continue"), step("B", "A")]
    )
    assert fates(result) == ("A B", "A", "")
    assert result.metadata["errors"][0]["message"] == f"Duplicate step ID: {ident('A')}"


def test_equal_names_are_all_processed() -> None:
    """WF-069"""
    steps = [step(name, needs, step_name="same") for name, needs in (("A", ""), ("B", "A"), ("C", "B"))]
    assert fates(execute(steps)) == ("A B C", "", "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation_id": "x"},
        {"id_root": 7},
        {"now": "1970"},
        {"elapsed_ms": "1"},
        {"elapsed_ms": True},
        {"global_timeout_ms": 99},
        {"global_timeout_ms": "200"},
        {"reported_failures": ["A"]},
        {"cancel_requested": 1},
    ],
)
def test_a_context_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    """WF-075, X-011, X-114, X-140"""
    with pytest.raises(ModelOnexError):
        ExecutionContext(**wrong)


def test_the_executor_does_not_validate(monkeypatch: pytest.MonkeyPatch) -> None:
    """WF-093, X-112"""
    import detent.workflow.validation

    def fail(*_: object) -> None:
        raise AssertionError("validated")

    for name in ("find_problems", "validate_workflow_definition", "require_valid"):
        monkeypatch.setattr(detent.workflow.validation, name, fail)
    assert fates(execute([step("A"), step("B", "AX")])) == ("A", "B", "")


def test_the_graph_is_never_consulted(caplog: pytest.LogCaptureFixture) -> None:
    """WF-020, WF-029, WF-173"""

    class Poisoned:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"{name} was read")

    made = definition()
    poisoned = ModelWorkflowDefinition.model_construct(**{**made.__dict__, "execution_graph": Poisoned()})
    with caplog.at_level("DEBUG"):
        assert execute([step("A")], of=poisoned) == execute([step("A")], of=made)
    assert logged(caplog) == []


@given(workflows(failing=True), st.data())
def test_reserved_and_advisory_fields_change_nothing(steps: list[ModelWorkflowStep], data: st.DataObject) -> None:
    """WF-008, WF-010, WF-017, WF-050, WF-053, WF-100, WF-200, WF-202, WF-221, X-105"""
    plain = definition()
    text = st.text(max_size=20)
    loud = definition(
        rules={
            "synchronization_points": data.draw(st.lists(text, max_size=3)),
            "max_retries": data.draw(st.integers()),
            "retry_delay_ms": data.draw(st.integers()),
            "failure_recovery_strategy": data.draw(st.sampled_from(["RETRY", "ROLLBACK", "COMPENSATE", "ABORT"])),
        }
    ).model_copy(update={"compensation_enabled": True, "saga_pattern": data.draw(text), "checkpoint_enabled": True})
    changed = [
        one.model_copy(
            update={
                "compensation_action": data.draw(st.none() | text),
                "checkpoint_required": data.draw(st.booleans()),
                "idempotency_key": data.draw(st.none() | text),
                "continue_on_error": data.draw(st.booleans()),
                "max_memory_mb": data.draw(st.none() | st.integers(1, 9)),
                "max_cpu_percent": data.draw(st.none() | st.integers(1, 9)),
                "order_index": data.draw(st.integers(0, 9)),
            }
        )
        for one in steps
    ]
    for mode in MODES:
        assert execute(changed, mode, of=loud) == execute(steps, mode, of=plain)


@given(workflows(failing=True))
def test_nothing_that_was_given_is_changed(steps: list[ModelWorkflowStep]) -> None:
    """WF-023, WF-025, WF-026, WF-262, X-121"""
    made = definition(rules={"synchronization_points": ["a"]})
    before = ([one.model_dump() for one in steps], made.model_dump(), [set(one.model_fields_set) for one in steps])
    order = list(map(id, steps))
    execute(steps, EnumExecutionMode.PARALLEL, of=made)
    after = ([one.model_dump() for one in steps], made.model_dump(), [set(one.model_fields_set) for one in steps])
    assert (after, list(map(id, steps))) == (before, order)
