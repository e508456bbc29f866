"""The stateful face: what it asks for, what it passes on, what it says and what it leaves alone."""

from __future__ import annotations

import logging
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings

from detent.workflow import (
    EnumCoreErrorCode,
    EnumExecutionMode,
    EnumWorkflowState,
    MixinWorkflowExecution,
    ModelONEXContainer,
    ModelOnexError,
    ModelOrchestratorInput,
    ModelOrchestratorOutput,
    ModelWorkflowDefinition,
    ModelWorkflowStep,
    NodeCoreBase,
    NodeOrchestrator,
    WorkflowExecutionResult,
    WorkflowStore,
    _build_output_metrics,
    _build_workflow_context,
    _convert_workflow_result_to_output,
    execute_workflow,
    executor,
    facade,
    walk,
)
from tests.workflow.builders import (
    MODES,
    RESERVED,
    WORKFLOW,
    definition,
    drive,
    emitted,
    execute,
    ident,
    names,
    step,
    unmakeable,
)
from tests.workflow.naive import workflows
from tests.workflow.said import logged

MOMENT = datetime(2025, 6, 1, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The facade's clock: stands still unless a test appends later moments."""
    moments = [MOMENT]

    def tell() -> datetime:
        return moments.pop(0) if len(moments) > 1 else moments[0]

    monkeypatch.setattr(facade, "utc_now", tell)
    return moments


def node(made: ModelWorkflowDefinition | None = None) -> NodeOrchestrator:
    orchestrator = NodeOrchestrator(ModelONEXContainer())
    orchestrator.workflow_definition = made or definition()
    return orchestrator


def asked(steps: list[ModelWorkflowStep], **fields: Any) -> ModelOrchestratorInput:
    return ModelOrchestratorInput(workflow_id=WORKFLOW, steps=steps, **fields)


def process(
    steps: list[ModelWorkflowStep], *, of: ModelWorkflowDefinition | None = None, **fields: Any
) -> ModelOrchestratorOutput:
    return drive(node(of).process(asked(steps, **fields)))


def test_a_new_node_waits_for_its_definition() -> None:
    """WF-022, WF-253, WF-255, WF-257, WF-259, WF-260"""
    orchestrator = NodeOrchestrator(ModelONEXContainer())
    assert orchestrator.workflow_definition is None
    assert NodeOrchestrator.__mro__[1:3] == (NodeCoreBase, MixinWorkflowExecution)
    with pytest.raises(ModelOnexError, match="definition not loaded") as caught:
        drive(orchestrator.process(asked([step("A")])))
    assert str(caught.value) == "Workflow definition not loaded"
    assert caught.value.error_code is EnumCoreErrorCode.VALIDATION_ERROR
    orchestrator.workflow_definition = definition()
    assert drive(orchestrator.process(asked([step("A")]))).execution_status == "completed"


@pytest.mark.parametrize("wrong", [{"version": 1}, "etl", []])
def test_only_a_definition_can_be_injected(wrong: Any) -> None:
    """WF-003"""
    with pytest.raises(ModelOnexError, match="not a ModelWorkflowDefinition"):
        NodeOrchestrator(ModelONEXContainer()).workflow_definition = wrong


def test_dicts_that_slip_into_the_input_are_refused_and_not_converted() -> None:
    """WF-002, WF-274, X-119"""
    given_input = asked([step("A")])
    given_input.steps = [{"step_name": "a", "step_type": "compute"}]  # type: ignore[list-item]
    with pytest.raises(ModelOnexError, match="not a ModelWorkflowStep"):
        drive(node().process(given_input))


class PoisonedContainer(ModelONEXContainer):
    """Raises on everything but being held."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise AssertionError(f"the node asked its container for {name}")


def test_the_node_asks_its_container_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """WF-021, WF-033"""

    def forbidden(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the node reached for the world")

    orchestrator = NodeOrchestrator(PoisonedContainer.__new__(PoisonedContainer))
    orchestrator.workflow_definition = definition()
    monkeypatch.setattr(NodeOrchestrator, "contract", property(forbidden), raising=False)
    monkeypatch.setattr("builtins.open", forbidden)
    monkeypatch.setattr("socket.socket", forbidden)
    monkeypatch.setattr(sqlite3, "connect", forbidden)
    monkeypatch.setattr(Path, "open", forbidden)
    assert drive(orchestrator.process(asked([step("A")]))).execution_status == "completed"


def test_a_container_gives_the_services_it_has() -> None:
    """X-143"""
    container = ModelONEXContainer({"store": 7})
    assert container.get_service("store") == 7
    with pytest.raises(ModelOnexError, match="no service 'other'"):
        container.get_service("other")


def test_processing_leaves_node_definition_and_input_as_they_were() -> None:
    """WF-023, WF-027, WF-030"""
    made = definition(timeout_ms=5000)
    orchestrator = node(made)
    given_input = asked([step("A"), unmakeable_but_valid("B")], metadata={"nested": {"a": [1]}})
    before = (dict(vars(orchestrator)), made.model_dump(), given_input.model_dump())
    first = drive(orchestrator.process(given_input))
    assert (dict(vars(orchestrator)), made.model_dump(), given_input.model_dump()) == before
    second = drive(orchestrator.process(given_input))
    assert [action.action_id for action in first.actions_emitted] == [
        action.action_id for action in second.actions_emitted
    ]


def unmakeable_but_valid(name: str) -> ModelWorkflowStep:
    """Valid in every field, and yet no action can hold its name: a lone surrogate is no JSON."""
    made = step(name)
    made.__dict__["step_name"] = "\ud800"
    return made


def test_definitions_may_be_exchanged_between_calls() -> None:
    """WF-024, WF-068"""
    orchestrator = node(definition(workflow_name="first"))
    outputs = [drive(orchestrator.process(asked([step("A")])))]
    orchestrator.workflow_definition = definition(workflow_name="second")
    outputs.append(drive(orchestrator.process(asked([step("A")]))))
    assert [output.output_variables["workflow_name"] for output in outputs] == ["first", "second"]
    assert {output.output_variables["workflow_id"] for output in outputs} == {str(WORKFLOW)}
    ids = [action.action_id for output in outputs for action in output.actions_emitted]
    assert len(set(ids)) == 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(workflows())
def test_the_output_is_the_conversion_of_the_pure_result(clock: list[datetime], steps: list[ModelWorkflowStep]) -> None:
    """WF-031, WF-046, WF-116, WF-117"""
    given_input = asked(steps, execution_mode=EnumExecutionMode.PARALLEL)
    result = execute(steps, EnumExecutionMode.PARALLEL, operation_id=given_input.operation_id, now=MOMENT, elapsed_ms=0)
    assert drive(node().process(given_input)) == _convert_workflow_result_to_output(result)


def test_process_checks_runs_and_converts_in_this_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """WF-093, WF-116, WF-224, WF-258, X-112"""
    calls: list[str] = []

    def spy(owner: Any, name: str, shown: str) -> None:
        real = getattr(owner, name)

        def wrapper(*arguments: Any, **more: Any) -> Any:
            calls.append(shown)
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, wrapper)

    spy(facade, "_validate_execution_mode", "mode")
    spy(NodeOrchestrator, "execute_workflow_from_contract", "run")
    spy(facade, "require_valid", "validate")
    spy(facade, "execute_workflow", "execute")
    spy(walk, "execution_order", "order")
    spy(executor, "_create_action_for_step", "create")
    spy(NodeOrchestrator, "_convert_workflow_result_to_output", "convert")
    process([step("A"), step("B")])
    assert calls == ["mode", "run", "validate", "execute", "order", "create", "create", "convert"]


def test_the_executor_gets_the_injected_definition_and_the_inputs_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """WF-116"""
    seen: list[Any] = []

    async def spy(*arguments: Any, **more: Any) -> WorkflowExecutionResult:
        seen.extend(arguments[:3])
        return await execute_workflow(*arguments, **more)

    monkeypatch.setattr(facade, "execute_workflow", spy)
    made, given_input = definition(), asked([step("A")])
    drive(node(made).process(given_input))
    assert seen[0] is made
    assert seen[1] is given_input.steps
    assert seen[2] == WORKFLOW


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([step("A", "B"), step("B", "A")], "Workflow contains a dependency cycle: 'A' -> 'B' -> 'A'"),
        ([step("A", "B"), step("B", "A", enabled=False)], "Workflow contains a dependency cycle: 'A' -> 'B' -> 'A'"),
        ([step("A", "X")], "Step 'A' depends on non-existent step"),
        ([step("A"), step("A")], "Duplicate step ID"),
        ([step("A", step_type="conditional")], "step type 'conditional' is reserved"),
    ],
)
def test_an_invalid_workflow_raises_before_any_action_is_made(
    monkeypatch: pytest.MonkeyPatch, steps: list[ModelWorkflowStep], message: str
) -> None:
    """WF-035, WF-080, WF-086, WF-234, WF-250, WF-253, WF-255, WF-259"""
    monkeypatch.setattr(executor, "_create_action_for_step", lambda *_, **__: pytest.fail("an action was made"))
    with pytest.raises(ModelOnexError, match=r"^Workflow validation failed: ") as caught:
        process(steps)
    assert message in caught.value.message
    assert caught.value.context["workflow_id"] == str(WORKFLOW)
    errors = caught.value.context["errors"]
    assert isinstance(errors, list)
    assert caught.value.message == f"Workflow validation failed: {', '.join(errors)}"


@pytest.mark.parametrize("mode", RESERVED)
def test_reserved_modes_raise_by_input_and_by_definition(mode: EnumExecutionMode) -> None:
    """WF-006, WF-253, WF-259, X-100"""
    with pytest.raises(ModelOnexError, match=f"Execution mode '{mode.value}' is reserved"):
        process([step("A")], execution_mode=mode)
    for fields in ({}, {"execution_mode": EnumExecutionMode.SEQUENTIAL}):
        with pytest.raises(ModelOnexError, match=f"Execution mode '{mode.value}' is reserved"):
            process([step("A")], of=definition(execution_mode=mode.value), **fields)


def test_an_empty_name_raises() -> None:
    """WF-219, WF-250, WF-253"""
    nameless = definition()
    nameless.workflow_metadata.__dict__["workflow_name"] = ""
    with pytest.raises(ModelOnexError, match="Workflow name must not be empty"):
        process([], of=nameless)


def test_another_failure_strategy_raises() -> None:
    """WF-133, X-102"""
    with pytest.raises(ModelOnexError, match="Unknown failure strategy 'foo'"):
        process([step("A")], failure_strategy="foo")


@pytest.mark.parametrize(
    ("declared", "fields", "used"),
    [
        ("parallel", {}, "parallel"),
        ("parallel", {"execution_mode": EnumExecutionMode.SEQUENTIAL}, "sequential"),
        ("sequential", {"execution_mode": EnumExecutionMode.BATCH}, "batch"),
        ("sequential", {}, "sequential"),
    ],
)
def test_a_mode_in_the_input_counts_only_if_it_was_set(declared: str, fields: dict[str, Any], used: str) -> None:
    """WF-076..WF-078, WF-130, X-100"""
    output = process([step("A")], of=definition(execution_mode=declared), **fields)
    assert output.output_variables["execution_mode"] == used


def test_a_strategy_in_the_input_reaches_the_steps() -> None:
    """WF-096, WF-133, X-101, X-102"""
    steps = [unmakeable_but_valid("A"), step("B")]
    assert names(process(steps).skipped_steps) == ["B"]
    assert names(process(steps, failure_strategy="continue_on_error").completed_steps) == ["B"]


@pytest.mark.parametrize(
    ("declared", "fields", "late"),
    [
        ({"timeout_ms": 5000}, {}, True),
        ({"timeout_ms": 5000}, {"global_timeout_ms": 60_000}, False),
        ({}, {"global_timeout_ms": 200}, True),
        ({}, {}, False),
    ],
)
def test_the_facade_measures_time_from_the_call_on(
    clock: list[datetime], declared: dict[str, Any], fields: dict[str, Any], late: bool
) -> None:
    """WF-073, WF-132, WF-139, X-115, X-116, X-162"""
    clock.append(MOMENT + timedelta(seconds=6))
    output = process([step("A")], of=definition(**declared), **fields)
    assert (output.execution_status, output.execution_time_ms) == ("failed" if late else "completed", 6000)


def test_start_and_end_are_the_moment_of_completion(clock: list[datetime]) -> None:
    """WF-141: not the moment at which the call began."""
    clock += [MOMENT + timedelta(milliseconds=1_500)]
    output = drive(node().process(asked([step("A")])))
    assert output.execution_time_ms == 1_500
    assert output.start_time == output.end_time == "2025-06-01T00:00:01.500000+00:00"


def test_a_completion_beyond_all_calendars_is_the_last_moment_there_is() -> None:
    """WF-141, WF-168"""
    assert execute([step("A")], now=MOMENT, elapsed_ms=10**18).timestamp == "9999-12-31T23:59:59.999999+00:00"


def test_a_clock_that_is_set_back_costs_no_time(clock: list[datetime]) -> None:
    """WF-139"""
    clock.append(MOMENT - timedelta(hours=1))
    assert process([step("A")], global_timeout_ms=100).execution_time_ms == 0


def test_advisory_fields_of_the_input_change_nothing(clock: list[datetime]) -> None:
    """WF-072, WF-131, WF-134, WF-135, X-137, X-138"""
    steps = [step("A"), step("B", "A"), unmakeable_but_valid("C")]
    plain = process(steps, operation_id=UUID(int=7))
    loud = process(
        steps,
        operation_id=UUID(int=7),
        max_parallel_steps=1,
        load_balancing_enabled=True,
        dependency_resolution_enabled=False,
        metadata={"a": 1},
    )
    assert loud == plain


def test_the_output_says_everything_the_result_says(clock: list[datetime]) -> None:
    """WF-138..WF-144, WF-146..WF-151, WF-170, WF-246, WF-247, X-127..X-130"""
    steps = [
        step("A"),
        unmakeable("B", error_action="continue"),
        step("C", "B"),
        step("D", enabled=False),
        step("E", "A"),
    ]
    result = execute(steps, EnumExecutionMode.PARALLEL, now=MOMENT, elapsed_ms=42)
    output = _convert_workflow_result_to_output(result)
    assert (output.execution_status, output.execution_time_ms) == ("failed", 42)
    assert output.start_time == output.end_time == result.timestamp == "2025-06-01T00:00:00.042000+00:00"
    assert (names(output.completed_steps), names(output.failed_steps), names(output.skipped_steps)) == (
        ["A", "E"],
        ["B", "C"],
        ["D"],
    )
    assert output.actions_emitted == result.actions_emitted
    assert [set(error) for error in output.errors] == [{"step_id", "error_type", "message"}] * 2
    assert names(error["step_id"] for error in output.errors) == ["B", "C"]
    assert output.metrics == {
        "actions_count": 2.0,
        "completed_count": 2.0,
        "failed_count": 2.0,
        "skipped_count": 1.0,
        "parallel_waves": 2.0,
    }
    assert {type(value) for value in output.metrics.values()} == {float}
    assert output.parallel_executions == 2
    assert output.output_variables == {
        "workflow_id": str(WORKFLOW),
        "execution_mode": "parallel",
        "workflow_name": "etl",
    }
    assert (output.step_outputs, output.final_result, output.custom_outputs) == ({}, None, None)


def test_modes_other_than_parallel_say_nothing_of_waves() -> None:
    """WF-105, WF-228, X-128, X-136"""
    for mode in (EnumExecutionMode.SEQUENTIAL, EnumExecutionMode.BATCH):
        output = process([step("A"), step("B", "A")], execution_mode=mode)
        assert set(output.metrics) == {"actions_count", "completed_count", "failed_count", "skipped_count"}
        assert output.parallel_executions == 0
        assert ("batch_size" in output.output_variables) is (mode is EnumExecutionMode.BATCH)


def test_the_metrics_are_four_counts_of_the_lists() -> None:
    """WF-149, WF-246, WF-248"""
    result = WorkflowExecutionResult(
        WORKFLOW, EnumWorkflowState.FAILED, ["a"], ["b", "c"], ["d", "e", "f"], [], 0, {"anything": "else"}
    )
    assert _build_output_metrics(result) == {
        "actions_count": 0.0,
        "completed_count": 1.0,
        "failed_count": 2.0,
        "skipped_count": 3.0,
    }


def test_the_context_copies_metadata_and_the_systems_keys_win() -> None:
    """WF-011..WF-013"""
    given_input = asked([], metadata={"workflow_id": "x", "tenant": "acme", "nested": [1]})
    context = _build_workflow_context(given_input)
    assert context == {
        "workflow_id": str(WORKFLOW),
        "operation_id": str(given_input.operation_id),
        "execution_mode": "sequential",
        "tenant": "acme",
        "nested": [1],
    }
    context["tenant"] = "other"
    assert given_input.metadata == {"workflow_id": "x", "tenant": "acme", "nested": [1]}
    assert context["nested"] is given_input.metadata["nested"]


def test_a_refused_creation_is_a_warning_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    """WF-256, X-132"""
    process([unmakeable_but_valid("A")])
    (record,) = logged(caplog)
    assert (record.levelno, record.name, record.exc_info) == (logging.WARNING, "detent.workflow", None)
    assert record.__dict__["error_code"] == "VALIDATION_ERROR"
    assert str(ident("A")) in record.getMessage()


def test_any_other_exception_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WF-256, X-132"""

    def fail(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(executor, "_create_action_for_step", fail)
    output = process([step("A")])
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError
    assert record.exc_info[2] is not None
    assert record.exc_info[2].tb_frame.f_code.co_name == "fail"
    assert output.errors[0]["error_type"] == "ZeroDivisionError"


def test_success_and_reserved_fields_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """WF-019, WF-029, WF-061"""
    secret = "do-not-log-this"
    odd = definition(rules={"synchronization_points": [secret]})
    odd.saga_pattern = secret
    fields = {"compensation_action": secret, "idempotency_key": secret}
    failing = unmakeable_but_valid("B")
    failing.__dict__.update(fields)
    with caplog.at_level(logging.INFO):
        process([step("A", **fields)], of=odd)
        assert logged(caplog) == []
        process([step("A", **fields), failing], of=odd)
    assert len(logged(caplog)) == 1
    assert secret not in caplog.text
    for reserved in ("saga", "compensation", "checkpoint", "idempotency", "execution_graph"):
        assert reserved not in caplog.text


def test_pattern_a_a_pure_call() -> None:
    """WF-118"""
    result = drive(execute_workflow(definition(), [step("A")], WORKFLOW, execution_mode=EnumExecutionMode.SEQUENTIAL))
    assert emitted(result) == ["A"]


def test_pattern_b_a_fresh_node_for_each_request() -> None:
    """WF-034, WF-118, WF-263"""
    for name in ("first", "second"):
        output = process([step("A")], of=definition(workflow_name=name))
        assert output.output_variables["workflow_name"] == name


class MemoryStore:
    """A workflow store in a few lines."""

    def __init__(self) -> None:
        self.definitions: dict[str, ModelWorkflowDefinition] = {}
        self.results: dict[UUID, WorkflowExecutionResult] = {}

    async def get_definition(self, name: str) -> ModelWorkflowDefinition:
        return self.definitions[name]

    async def record_result(self, workflow_id: UUID, result: WorkflowExecutionResult) -> None:
        self.results[workflow_id] = result


async def handle(store: WorkflowStore, name: str, steps: list[ModelWorkflowStep], workflow_id: UUID) -> None:
    made = await store.get_definition(name)
    await store.record_result(workflow_id, await execute_workflow(made, steps, workflow_id))


def test_pattern_c_a_host_of_many_workflows_needs_no_node() -> None:
    """WF-032, WF-034, WF-115, WF-118"""
    store = MemoryStore()
    store.definitions = {name: definition(workflow_name=name) for name in ("etl", "report")}
    for number, name in enumerate(("etl", "report", "etl")):
        drive(handle(store, name, [step("A"), step("B", "A")], UUID(int=number)))
    assert [result.metadata["workflow_name"] for result in store.results.values()] == ["etl", "report", "etl"]
    ids = [action.action_id for result in store.results.values() for action in result.actions_emitted]
    assert len(set(ids)) == 6


def test_every_accepted_mode_works_through_the_facade() -> None:
    """WF-005, WF-009"""
    for mode in MODES:
        assert process([step("A"), step("B", "A")], execution_mode=mode).execution_status == "completed"
