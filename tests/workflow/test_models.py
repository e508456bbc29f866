"""Names, types, bounds and defaults of every model, as the contract lists them."""

from __future__ import annotations

import typing
from datetime import datetime, timedelta
from typing import Any, get_args
from uuid import UUID

import pytest
from pydantic import BaseModel, ValidationError

from detent.errors import DetentError
from detent.workflow import (
    EnumActionType,
    EnumBranchCondition,
    EnumCoreErrorCode,
    EnumExecutionMode,
    EnumFailureRecoveryStrategy,
    EnumWorkflowState,
    ModelAction,
    ModelCoordinationRules,
    ModelCustomFields,
    ModelExecutionGraph,
    ModelOnexError,
    ModelOrchestratorInput,
    ModelOrchestratorOutput,
    ModelSemVer,
    ModelWorkflowDefinition,
    ModelWorkflowDefinitionMetadata,
    ModelWorkflowNode,
    ModelWorkflowStep,
)
from tests.workflow.builders import V1, WORKFLOW, definition, metadata, step

REFUSED = (ValidationError, ModelOnexError)

ACTION: dict[str, Any] = {
    "action_type": EnumActionType.COMPUTE,
    "target_node_type": "NodeCompute",
    "lease_id": UUID(int=5),
    "epoch": 0,
}
LEAST: dict[type[BaseModel], dict[str, Any]] = {
    ModelWorkflowStep: {"step_name": "a", "step_type": "compute"},
    ModelAction: ACTION,
    ModelOrchestratorInput: {"workflow_id": WORKFLOW, "steps": []},
    ModelOrchestratorOutput: {
        "execution_status": "completed",
        "execution_time_ms": 0,
        "start_time": "1970-01-01T00:00:00+00:00",
        "end_time": "1970-01-01T00:00:00+00:00",
    },
    ModelWorkflowDefinition: {
        "version": V1,
        "workflow_metadata": metadata(),
        "execution_graph": ModelExecutionGraph(version=V1),
    },
    ModelWorkflowDefinitionMetadata: {
        "version": V1,
        "workflow_name": "etl",
        "workflow_version": V1,
        "description": "",
    },
    ModelCoordinationRules: {"version": V1},
    ModelExecutionGraph: {"version": V1},
    ModelWorkflowNode: {"node_id": "n", "node_type": "effect"},
    ModelSemVer: {"major": 1, "minor": 0, "patch": 0},
}

# The least arguments of each model are its required fields; here are the defaults of all others.
DEFAULTS: dict[type[BaseModel], dict[str, Any]] = {
    ModelOrchestratorInput: {
        "execution_mode": EnumExecutionMode.SEQUENTIAL,
        "max_parallel_steps": 5,
        "global_timeout_ms": 300_000,
        "failure_strategy": "fail_fast",
        "load_balancing_enabled": False,
        "dependency_resolution_enabled": True,
        "metadata": {},
    },
    ModelOrchestratorOutput: {
        "completed_steps": [],
        "failed_steps": [],
        "skipped_steps": [],
        "step_outputs": {},
        "final_result": None,
        "output_variables": {},
        "errors": [],
        "metrics": {},
        "parallel_executions": 0,
        "actions_emitted": [],
        "custom_outputs": None,
    },
    ModelAction: {
        "payload": {},
        "dependencies": [],
        "priority": 1,
        "timeout_ms": 30_000,
        "retry_count": 0,
        "metadata": {},
    },
    ModelWorkflowDefinition: {
        "coordination_rules": ModelCoordinationRules(version=V1),
        "compensation_enabled": False,
        "saga_pattern": None,
        "checkpoint_enabled": False,
    },
    ModelWorkflowDefinitionMetadata: {"execution_mode": "sequential", "timeout_ms": 600_000},
    ModelWorkflowStep: {
        "timeout_ms": 30_000,
        "retry_count": 3,
        "enabled": True,
        "skip_on_failure": False,
        "continue_on_error": False,
        "error_action": "stop",
        "max_memory_mb": None,
        "max_cpu_percent": None,
        "priority": 100,
        "order_index": 0,
        "depends_on": [],
        "parallel_group": None,
        "max_parallel_instances": 1,
        "compensation_action": None,
        "checkpoint_required": False,
        "idempotency_key": None,
    },
    ModelCoordinationRules: {
        "synchronization_points": [],
        "parallel_execution_allowed": True,
        "failure_recovery_strategy": EnumFailureRecoveryStrategy.RETRY,
        "max_retries": 3,
        "retry_delay_ms": 1000,
    },
    ModelExecutionGraph: {"nodes": []},
    ModelWorkflowNode: {"description": ""},
    ModelSemVer: {},
}
DRAWN = {
    ModelOrchestratorInput: {"operation_id", "timestamp"},
    ModelAction: {"action_id", "created_at"},
    ModelWorkflowStep: {"correlation_id", "step_id"},
}


@pytest.mark.door("detent.workflow.Model*")
@pytest.mark.parametrize("model", LEAST, ids=lambda model: model.__name__)
def test_a_model_has_exactly_the_fields_and_defaults_of_the_contract(model: type[BaseModel]) -> None:
    """WF-122..WF-124, WF-127..WF-137, WF-138..WF-152, WF-154..WF-165, WF-171..WF-180, WF-182..WF-206, X-120"""
    made = model(**LEAST[model])
    drawn = DRAWN.get(model, set())
    assert set(model.model_fields) == {*LEAST[model], *DEFAULTS[model], *drawn}
    assert {name: getattr(made, name) for name in DEFAULTS[model]} == DEFAULTS[model]
    assert {name for name, field in model.model_fields.items() if field.is_required()} == set(LEAST[model])


@pytest.mark.door("detent.workflow.Model*")
@pytest.mark.parametrize(
    ("model", "field"),
    [(model, field) for model, fields in LEAST.items() for field in fields],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_required_field_is_required(model: type[BaseModel], field: str) -> None:
    """WF-127, WF-128, WF-138..WF-141, WF-155, WF-156, WF-161, WF-162, WF-171..WF-173, WF-175..WF-178, WF-184, WF-185, WF-199, WF-203"""
    given = {name: value for name, value in LEAST[model].items() if name != field}
    with pytest.raises(ValidationError) as caught:
        model(**given)
    assert [error["loc"] for error in caught.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (ModelWorkflowStep, ("step_id", "correlation_id")),
        (ModelAction, ("action_id",)),
        (ModelOrchestratorInput, ("operation_id",)),
    ],
)
def test_an_id_that_is_not_given_is_drawn_for_each_instance(model: type[BaseModel], fields: tuple[str, ...]) -> None:
    """WF-129, WF-154, WF-182, WF-183, WF-067"""
    one, other = model(**LEAST[model]), model(**LEAST[model])
    for field in fields:
        assert getattr(one, field).version == 4
        assert getattr(one, field) != getattr(other, field)


def test_moments_that_are_not_given_are_aware_of_utc() -> None:
    """WF-137, WF-165, X-140"""
    moments: list[datetime] = [
        ModelAction(**ACTION).created_at,
        ModelOrchestratorInput(workflow_id=WORKFLOW, steps=[]).timestamp,
    ]
    assert [moment.utcoffset() for moment in moments] == [timedelta(0), timedelta(0)]


def test_containers_are_not_shared_between_instances() -> None:
    """WF-136, WF-157, WF-164, WF-174"""
    one, other = (ModelOrchestratorInput(workflow_id=WORKFLOW, steps=[]) for _ in range(2))
    one.metadata["a"] = 1
    assert other.metadata == {}
    assert ModelAction(**ACTION).payload is not ModelAction(**ACTION).payload
    assert ModelWorkflowDefinition(**LEAST[ModelWorkflowDefinition]).coordination_rules is not (
        ModelWorkflowDefinition(**LEAST[ModelWorkflowDefinition]).coordination_rules
    )


INTEGERS = [
    (ModelWorkflowStep, "timeout_ms", 100, 300_000),
    (ModelWorkflowStep, "retry_count", 0, 10),
    (ModelWorkflowStep, "max_memory_mb", 1, 32_768),
    (ModelWorkflowStep, "max_cpu_percent", 1, 100),
    (ModelWorkflowStep, "priority", 1, 1000),
    (ModelWorkflowStep, "order_index", 0, None),
    (ModelWorkflowStep, "max_parallel_instances", 1, 100),
    (ModelAction, "priority", 1, 10),
    (ModelAction, "timeout_ms", 100, 300_000),
    (ModelAction, "epoch", 0, None),
    (ModelAction, "retry_count", 0, 10),
    (ModelWorkflowDefinitionMetadata, "timeout_ms", 1000, None),
    (ModelOrchestratorInput, "global_timeout_ms", 100, None),
    (ModelSemVer, "major", 0, None),
    (ModelSemVer, "minor", 0, None),
    (ModelSemVer, "patch", 0, None),
]


@pytest.mark.door("detent.workflow.Model*")
@pytest.mark.parametrize(("model", "field", "least", "most"), INTEGERS)
def test_an_integer_keeps_its_bounds(model: type[BaseModel], field: str, least: int, most: int | None) -> None:
    """WF-132, WF-159, WF-160, WF-162, WF-163, WF-180, WF-186, WF-187, WF-192..WF-195, WF-198, WF-206, X-114"""
    for value in (least, most or 10**12):
        assert getattr(model(**{**LEAST[model], field: value}), field) == value
    wrong: list[Any] = [least - 1, *([] if most is None else [most + 1]), "7", 7.5, True, [7]]
    for refused in wrong:
        with pytest.raises(REFUSED):
            model(**{**LEAST[model], field: refused})


@pytest.mark.parametrize(
    ("model", "field", "least", "most"),
    [
        (ModelWorkflowStep, "step_name", 1, 200),
        (ModelWorkflowStep, "parallel_group", 0, 100),
        (ModelAction, "target_node_type", 1, 100),
        (ModelWorkflowDefinitionMetadata, "workflow_name", 1, 5000),
    ],
)
def test_a_text_keeps_its_length(model: type[BaseModel], field: str, least: int, most: int) -> None:
    """WF-156, WF-176, WF-184, WF-197"""
    for length in (least, most):
        assert getattr(model(**{**LEAST[model], field: "x" * length}), field) == "x" * length
    wrong: list[Any] = [7, b"text", *([""] if least else []), *([] if most == 5000 else ["x" * (most + 1)])]
    for value in wrong:
        with pytest.raises(ValidationError):
            model(**{**LEAST[model], field: value})


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (model, name)
        for model in (ModelWorkflowStep, ModelWorkflowDefinition, ModelCoordinationRules, ModelOrchestratorInput)
        for name, value in DEFAULTS[model].items()
        if type(value) is bool
    ],
)
def test_a_flag_is_true_or_false_and_nothing_else(model: type[BaseModel], field: str) -> None:
    """WF-134, WF-135, WF-188..WF-190, WF-201"""
    for value in (True, False):
        assert getattr(model(**{**LEAST[model], field: value}), field) is value
    for wrong in (1, "yes", None):
        with pytest.raises(ValidationError):
            model(**{**LEAST[model], field: wrong})


def test_step_types_and_error_actions_are_those_of_the_contract() -> None:
    """WF-080, WF-185, WF-191"""
    for kind in ("compute", "effect", "reducer", "orchestrator", "conditional", "parallel", "custom"):
        assert step("a", step_type=kind).step_type == kind
    for reaction in ("stop", "continue", "retry", "compensate"):
        assert step("a", error_action=reaction).error_action == reaction
    for field in ("step_type", "error_action"):
        with pytest.raises(ValidationError):
            step("a", **{field: "foo"})


@pytest.mark.parametrize("field", ["depends_on", "step_id", "correlation_id"])
def test_ids_of_a_step_must_be_uuids(field: str) -> None:
    """WF-182, WF-183, WF-196"""
    wrong = ["x"] if field == "depends_on" else "x"
    with pytest.raises(ValidationError):
        ModelWorkflowStep.model_validate({**LEAST[ModelWorkflowStep], field: wrong})
    text = str(UUID(int=9))
    read = ModelWorkflowStep.model_validate(
        {**LEAST[ModelWorkflowStep], field: [text] if field == "depends_on" else text}
    )
    assert getattr(read, field) == ([UUID(int=9)] if field == "depends_on" else UUID(int=9))


@pytest.mark.parametrize("timeout_ms", [99, 0, -1])
def test_a_timeout_below_100_raises_the_contracts_own_error_when_the_model_is_made(timeout_ms: int) -> None:
    """WF-075, WF-220, X-113, X-114"""
    made = (
        lambda: step("a", timeout_ms=timeout_ms),
        lambda: metadata(timeout_ms=timeout_ms),
        lambda: ModelOrchestratorInput(workflow_id=WORKFLOW, steps=[], global_timeout_ms=timeout_ms),
    )
    for make in made:
        with pytest.raises(ModelOnexError) as caught:
            make()
        assert caught.value.error_code is EnumCoreErrorCode.VALIDATION_ERROR
        assert caught.value.context == {"timeout_ms": timeout_ms}
    assert step("a", timeout_ms=100).timeout_ms == 100


def test_assigning_a_bad_timeout_to_a_definition_raises_too() -> None:
    """WF-075"""
    target = metadata()
    with pytest.raises(ModelOnexError):
        target.timeout_ms = 0


@pytest.mark.parametrize("frozen", [ModelAction(**ACTION), step("a"), V1])
def test_a_frozen_model_takes_no_assignment(frozen: BaseModel) -> None:
    """WF-153, WF-181, WF-262"""
    field = next(iter(type(frozen).model_fields))
    with pytest.raises(ValidationError, match="frozen"):
        setattr(frozen, field, getattr(frozen, field))


def test_an_action_refuses_unknown_fields_and_a_deep_copy_is_isolated() -> None:
    """WF-153"""
    with pytest.raises(ValidationError, match="extra"):
        ModelAction(**ACTION, retries=3)  # type: ignore[call-arg]
    action = ModelAction(**ACTION, payload={"a": {"b": 1}})
    copy = action.model_copy(deep=True)
    copy.payload["a"]["b"] = 2
    assert action.payload == {"a": {"b": 1}}


def test_a_step_has_no_free_form_field() -> None:
    """WF-181"""

    def parts(annotation: object) -> set[object]:
        return {annotation}.union(*(parts(inner) for inner in get_args(annotation)))

    for field in ModelWorkflowStep.model_fields.values():
        assert not {Any, dict, dict[str, Any]} & parts(field.annotation)


@pytest.mark.parametrize(
    "model", [ModelWorkflowStep, ModelWorkflowDefinition, ModelCoordinationRules, ModelExecutionGraph]
)
def test_unknown_fields_are_ignored_where_the_contract_says_so(model: type[BaseModel]) -> None:
    """WF-171..WF-174, WF-199, WF-203"""
    assert "surprise" not in model(**LEAST[model], surprise=1).model_dump()


def test_metadata_is_read_from_attributes_too() -> None:
    """WF-175..WF-179"""

    class Row:
        version = workflow_version = V1
        workflow_name, description, execution_mode, timeout_ms = "etl", "", "batch", 5000

    assert ModelWorkflowDefinitionMetadata.model_validate(Row()) == metadata(execution_mode="batch", timeout_ms=5000)


def test_a_graph_node_keeps_keys_it_does_not_know() -> None:
    """WF-016, WF-204, WF-205"""
    written = {"node_id": "n", "node_type": "effect", "description": "", "if_true": ["m"], "weight": 3}
    graph = ModelExecutionGraph.model_validate({"version": V1, "nodes": [written]})
    assert graph.model_dump()["nodes"] == [written]


def test_custom_fields_hold_any_json_and_nothing_else() -> None:
    """WF-152, WF-207, X-143"""
    fields = ModelCustomFields.model_validate({"a": 1, "b": [None, {"c": "d"}]})
    assert fields.model_dump() == {"a": 1, "b": [None, {"c": "d"}]}
    with pytest.raises(ValidationError):
        ModelCustomFields.model_validate({"a": object()})


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ([{"step_name": "a", "step_type": "compute"}], "steps[0] is a dict"),
        ([step("a"), {"step_name": "b"}], "steps[1] is a dict"),
        ([None], "steps[0] is a NoneType"),
        ((step("a"),), "steps must be a list"),
        ({"a": 1}, "steps must be a list"),
    ],
)
def test_the_input_takes_steps_and_turns_nothing_into_one(wrong: Any, where: str) -> None:
    """WF-002, WF-128, WF-274, X-119"""
    with pytest.raises(ValidationError) as caught:
        ModelOrchestratorInput(workflow_id=WORKFLOW, steps=wrong)
    assert where in str(caught.value)


def test_the_input_keeps_the_very_steps_it_was_given() -> None:
    """WF-128, WF-131, WF-133"""
    steps = [step("a"), step("b")]
    kept = ModelOrchestratorInput(workflow_id=WORKFLOW, steps=steps, max_parallel_steps=2, failure_strategy="x").steps
    assert [one is other for one, other in zip(steps, kept, strict=True)] == [True, True]


RESERVED_FIELDS: dict[type[BaseModel], dict[str, Any]] = {
    ModelWorkflowDefinition: {"compensation_enabled": True, "saga_pattern": "choreography", "checkpoint_enabled": True},
    ModelCoordinationRules: {"synchronization_points": ["a", ""], "max_retries": -7, "retry_delay_ms": 0},
    ModelWorkflowStep: {"compensation_action": "", "checkpoint_required": True, "idempotency_key": "k" * 10_000},
}


@pytest.mark.parametrize("model", RESERVED_FIELDS, ids=lambda model: model.__name__)
def test_reserved_fields_survive_round_trips_whatever_they_say(model: type[BaseModel]) -> None:
    """WF-015, WF-016, WF-018, WF-020, WF-122..WF-124, WF-126, X-120"""
    ids = {"step_id": UUID(int=7), "correlation_id": UUID(int=8)} if model is ModelWorkflowStep else {}
    made = model(**LEAST[model], **RESERVED_FIELDS[model], **ids)
    read = model.model_validate_json(made.model_dump_json(exclude_unset=True))
    assert read == made
    assert read.model_fields_set == made.model_fields_set
    assert {name: getattr(read, name) for name in RESERVED_FIELDS[model]} == RESERVED_FIELDS[model]


@pytest.mark.parametrize(
    ("model", "field"), [(model, field) for model, fields in RESERVED_FIELDS.items() for field in fields]
)
def test_reserved_fields_are_checked_for_their_type(model: type[BaseModel], field: str) -> None:
    """WF-018"""
    with pytest.raises(ValidationError):
        model(**LEAST[model], **{field: {"no": object()}})


def test_the_whole_definition_survives_a_round_trip() -> None:
    """WF-016, WF-126"""
    made = definition(rules={"max_retries": 9}, timeout_ms=5000)
    assert ModelWorkflowDefinition.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("enum", "members"),
    [
        (
            EnumExecutionMode,
            "SEQUENTIAL=sequential PARALLEL=parallel CONDITIONAL=conditional BATCH=batch STREAMING=streaming",
        ),
        (EnumActionType, "COMPUTE=compute EFFECT=effect REDUCE=reduce ORCHESTRATE=orchestrate CUSTOM=custom"),
        (
            EnumWorkflowState,
            "PENDING=pending RUNNING=running PAUSED=paused COMPLETED=completed FAILED=failed CANCELLED=cancelled",
        ),
        (EnumFailureRecoveryStrategy, "RETRY=RETRY ROLLBACK=ROLLBACK COMPENSATE=COMPENSATE ABORT=ABORT"),
        (
            EnumBranchCondition,
            "IF_TRUE=if_true IF_FALSE=if_false IF_ERROR=if_error IF_SUCCESS=if_success IF_TIMEOUT=if_timeout CUSTOM=custom",
        ),
    ],
)
def test_an_enum_has_exactly_the_members_of_the_contract(enum: Any, members: str) -> None:
    """WF-125, WF-208..WF-212, X-029, X-141"""
    assert " ".join(f"{member.name}={member.value}" for member in enum) == members


def test_a_recovery_strategy_is_text() -> None:
    """WF-202, WF-211"""
    assert isinstance(EnumFailureRecoveryStrategy.RETRY, str)
    assert ModelCoordinationRules.model_validate({"version": V1, "failure_recovery_strategy": "ABORT"}) == (
        ModelCoordinationRules(version=V1, failure_recovery_strategy=EnumFailureRecoveryStrategy.ABORT)
    )


def test_the_error_has_message_code_and_context_and_is_no_value_error() -> None:
    """WF-213, X-113, X-143"""
    error = ModelOnexError(message="no", error_code=EnumCoreErrorCode.VALIDATION_ERROR, context={"a": 1})
    assert (error.message, error.error_code.value, error.context) == ("no", "VALIDATION_ERROR", {"a": 1})
    assert (str(error), error.code, ModelOnexError("no").context) == ("no", "VALIDATION_ERROR", {})
    assert isinstance(error, DetentError)
    assert not isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({"a": float("nan")}, "payload.a"),
        ({"a": float("inf")}, "payload.a"),
        ({"a": (1, 2)}, "payload.a"),
        ({"a": b"bytes"}, "payload.a"),
        ({"a": [{"b": {1: 2}}]}, "payload.a[0].b"),
        ({1: "a"}, "payload"),
        ({"a": object()}, "payload.a"),
        ({"a": print}, "payload.a"),
        ({"a": ModelAction}, "payload.a"),
        ({"a": {1, 2}}, "payload.a"),
        ({"a": EnumActionType.COMPUTE}, "payload.a"),
    ],
)
def test_a_payload_that_is_not_json_raises_when_the_action_is_made(bad: Any, where: str) -> None:
    """WF-102, X-139"""
    with pytest.raises(ModelOnexError) as caught:
        ModelAction(**ACTION, payload=bad)
    assert caught.value.context == {"path": where}
    with pytest.raises(ModelOnexError) as caught:
        ModelOrchestratorOutput(**LEAST[ModelOrchestratorOutput], step_outputs={"s": bad})
    assert str(caught.value.context["path"]) == where.replace("payload", "step_outputs.s")


def test_a_payload_nested_without_end_is_refused() -> None:
    """WF-102"""
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(ModelOnexError, match="nested deeper"):
        ModelAction(**ACTION, payload=endless)


def test_plain_json_passes_in_payloads_and_outputs() -> None:
    """WF-102, WF-103, WF-145, WF-157, X-139"""
    value: dict[str, Any] = {"a": [1, 2.5, True, None, "é", {"b": {}}], "c": "text"}
    assert ModelAction(**ACTION, payload=value).payload == value
    output = ModelOrchestratorOutput(**LEAST[ModelOrchestratorOutput], step_outputs={"s": value})
    assert output.step_outputs == {"s": value}


@pytest.mark.door("detent.workflow.__all__")
def test_every_contract_name_is_exported_and_no_batch_pipeline_is() -> None:
    """WF-007, WF-111, X-141, X-143"""
    import detent.workflow

    contract = """EnumActionType EnumBranchCondition EnumCoreErrorCode EnumExecutionMode EnumFailureRecoveryStrategy
        EnumWorkflowState EpochConflictError ExecutionContext LeaseExpiredError MixinWorkflowExecution ModelAction
        ModelCoordinationRules ModelCustomFields ModelExecutionGraph ModelONEXContainer ModelOnexError
        ModelOrchestratorInput ModelOrchestratorOutput ModelSemVer ModelWorkflowDefinition
        ModelWorkflowDefinitionMetadata ModelWorkflowNode ModelWorkflowStep NodeCoreBase NodeOrchestrator
        WorkflowExecutionResult execute_workflow get_execution_order validate_workflow_definition
        _create_action_for_step _has_dependency_cycles _validate_dependencies _validate_unique_step_ids
        _validate_execution_mode _validate_dag_with_disabled_steps _build_workflow_context
        _convert_workflow_result_to_output _build_output_metrics""".split()
    assert set(contract) <= set(dir(detent.workflow))
    assert not hasattr(detent.workflow, "execute_batch")


def test_public_surfaces_are_typed_models() -> None:
    """WF-111"""
    for function in ("execute_workflow", "validate_workflow_definition"):
        hints = typing.get_type_hints(getattr(__import__("detent.workflow", fromlist=[function]), function))
        assert hints["workflow_definition"] is ModelWorkflowDefinition
