"""Every model of the workflow contract, under its name there.

The workflow's own models: who it is, and the rules it names.

Fields reserved for later versions are declared, checked for their type alone, kept through any round trip, and never
read (X-120). ``execution_graph`` is one of them: required by the contract, consulted by nothing.

One step of a workflow: frozen, fully typed, without a single free-form field.

The action: a leased declaration of work, frozen once it is made.

What goes into ``NodeOrchestrator.process`` and what comes out. Both are mutable and belong to one thread.

Field types that the models share.

Scalars are strict: a contract that writes ``"100"`` or ``true`` where a number belongs gets an error, and nothing is
coerced. Ids stay lenient, because text is how they are written in a file.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, StrictBool, StrictInt, StrictStr

from detent.canon import NotStrictJson, json_encode
from detent.canon.show import a_or_an
from detent.workflow.defaults import new_id, utc_now
from detent.workflow.vocabulary import (
    TIMEOUT_MS_MIN,
    WORKFLOW_TIMEOUT_MS_MIN,
    EnumActionType,
    EnumExecutionMode,
    EnumFailureRecoveryStrategy,
    ErrorAction,
    ModelOnexError,
    StepType,
)

__all__ = [
    "ErrorAction",
    "Flag",
    "Integer",
    "JsonPayload",
    "ModelAction",
    "ModelCoordinationRules",
    "ModelCustomFields",
    "ModelExecutionGraph",
    "ModelOrchestratorInput",
    "ModelOrchestratorOutput",
    "ModelSemVer",
    "ModelWorkflowDefinition",
    "ModelWorkflowDefinitionMetadata",
    "ModelWorkflowNode",
    "ModelWorkflowStep",
    "StepType",
    "Text",
    "Timeout",
    "VersionNumber",
    "require_json",
]


Text = StrictStr
Integer = StrictInt
Flag = StrictBool


def _refuse_short(value: Any) -> Any:
    """Refuse a timeout below the least one with the contract's own error; other faults are left to the field's type."""
    if type(value) is int and value < TIMEOUT_MS_MIN:
        raise ModelOnexError(
            f"a timeout must be at least {TIMEOUT_MS_MIN} ms, got {value}", context={"timeout_ms": value}
        )
    return value


Timeout = Annotated[StrictInt, BeforeValidator(_refuse_short)]


def require_json(value: object, name: str) -> None:
    """Raise ``ModelOnexError`` unless ``value`` is a strict JSON value; the message names the place inside ``name``."""
    if type(value) is dict and _is_plain(value):
        return
    try:
        json_encode(value, name=name)
    except NotStrictJson as exc:
        raise ModelOnexError(
            str(exc),
            context={"path": exc.details.get("path", name)},
            hint="use only dict, list, str, int, float, bool and None",
        ) from exc


def _is_plain(value: dict[object, object]) -> bool:
    """Whether there is nothing but ASCII text: nearly every payload, and much cheaper to see than to encode."""
    for key, item in value.items():
        if type(key) is not str or type(item) is not str or not (key.isascii() and item.isascii()):
            return False
    return True


def _json_object(value: Any) -> Any:
    require_json(value, "payload")
    return value


JsonPayload = Annotated[dict[str, Any], BeforeValidator(_json_object)]


_LENIENT = ConfigDict(extra="ignore", use_enum_values=False, validate_assignment=True, defer_build=True)
"""``defer_build`` here and below: what checks a model is built when the first one is checked, most only within another."""

VersionNumber = Annotated[Integer, Field(ge=0)]


class ModelSemVer(BaseModel):
    """A version in three numbers."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    major: VersionNumber
    minor: VersionNumber
    patch: VersionNumber

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


class ModelCustomFields(BaseModel):
    """Free JSON fields under any names."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    __pydantic_extra__: dict[str, JsonValue]


class ModelWorkflowNode(BaseModel):
    """A node of the execution graph; reserved. Keys it does not know are kept for the way back."""

    model_config = ConfigDict(extra="allow", use_enum_values=False, validate_assignment=True, defer_build=True)

    node_id: Text
    node_type: Text
    description: Text = ""


class ModelExecutionGraph(BaseModel):
    """The graph that a contract draws for generators; reserved."""

    model_config = _LENIENT

    version: ModelSemVer
    nodes: list[ModelWorkflowNode] = Field(default_factory=list)


class ModelCoordinationRules(BaseModel):
    """How the steps of a workflow may be coordinated. Only ``parallel_execution_allowed`` is consulted (X-105, X-136)."""

    model_config = _LENIENT

    version: ModelSemVer
    synchronization_points: list[Text] = Field(default_factory=list)
    parallel_execution_allowed: Flag = True
    failure_recovery_strategy: EnumFailureRecoveryStrategy = EnumFailureRecoveryStrategy.RETRY
    max_retries: Integer = 3
    retry_delay_ms: Integer = 1000


class ModelWorkflowDefinitionMetadata(BaseModel):
    """Name, version and defaults of a workflow."""

    model_config = ConfigDict(
        extra="ignore", use_enum_values=False, validate_assignment=True, from_attributes=True, defer_build=True
    )

    version: ModelSemVer
    workflow_name: Annotated[Text, Field(min_length=1)]
    workflow_version: ModelSemVer
    description: Text
    execution_mode: Text = "sequential"
    """A mode's value. Advisory: an input that names a mode overrides it. Validation refuses reserved and unknown ones."""
    timeout_ms: Annotated[Timeout, Field(ge=WORKFLOW_TIMEOUT_MS_MIN)] = 600_000
    """Bound on the whole run. Binds only when it was written down (X-162)."""


def _first_rules() -> ModelCoordinationRules:
    return ModelCoordinationRules(version=ModelSemVer(major=1, minor=0, patch=0))


class ModelWorkflowDefinition(BaseModel):
    """A whole workflow but for its steps, which travel beside it as an ordered list."""

    model_config = _LENIENT

    version: ModelSemVer
    workflow_metadata: ModelWorkflowDefinitionMetadata
    execution_graph: ModelExecutionGraph
    coordination_rules: ModelCoordinationRules = Field(default_factory=_first_rules)
    compensation_enabled: Flag = False
    saga_pattern: Text | None = None
    checkpoint_enabled: Flag = False


class ModelWorkflowStep(BaseModel):
    """What is planned as one action.

    Whether ``error_action`` and ``timeout_ms`` were written down matters (X-101, X-162), so a step that is stored is
    dumped with ``exclude_unset=True``: a full dump read back would mark every field as set.
    """

    model_config = ConfigDict(
        extra="ignore", use_enum_values=False, validate_assignment=True, frozen=True, defer_build=True
    )

    correlation_id: UUID = Field(default_factory=new_id)
    """Lineage of the step; travels into the action's metadata as it is."""
    step_id: UUID = Field(default_factory=new_id)
    """Identity of the step. Given at load time, never made or changed by a planner."""
    step_name: Annotated[Text, Field(min_length=1, max_length=200)]
    """For people. Two steps may share a name."""
    step_type: StepType
    """Where the action is routed, nothing else. ``conditional`` can be written and is refused by validation."""
    timeout_ms: Annotated[Timeout, Field(ge=100, le=300_000)] = 30_000
    retry_count: Annotated[Integer, Field(ge=0, le=10)] = 3
    enabled: Flag = True
    skip_on_failure: Flag = False
    continue_on_error: Flag = False
    """Advisory; ``error_action`` decides."""
    error_action: ErrorAction = "stop"
    max_memory_mb: Annotated[Integer, Field(ge=1, le=32_768)] | None = None
    max_cpu_percent: Annotated[Integer, Field(ge=1, le=100)] | None = None
    priority: Annotated[Integer, Field(ge=1, le=1000)] = 100
    order_index: Annotated[Integer, Field(ge=0)] = 0
    """Metadata; order comes from dependencies and declaration alone."""
    depends_on: list[UUID] = Field(default_factory=list)
    parallel_group: Annotated[Text, Field(max_length=100)] | None = None
    """Metadata; an opaque label."""
    max_parallel_instances: Annotated[Integer, Field(ge=1, le=100)] = 1
    compensation_action: Text | None = None
    checkpoint_required: Flag = False
    idempotency_key: Text | None = None


class ModelAction(BaseModel):
    """Work for a target node, owned by the holder of ``lease_id``.

    Frozen, but shallowly: use ``model_copy(deep=True)`` before changing anything inside. A payload that is not JSON
    raises ``ModelOnexError``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_enum_values=False, defer_build=True)

    action_id: UUID = Field(default_factory=new_id)
    action_type: EnumActionType
    target_node_type: Annotated[Text, Field(min_length=1, max_length=100)]
    payload: JsonPayload = Field(default_factory=dict)
    dependencies: list[UUID] = Field(default_factory=list)
    """Action ids, never step ids."""
    priority: Annotated[Integer, Field(ge=1, le=10)] = 1
    """Higher is more urgent."""
    timeout_ms: Annotated[Integer, Field(ge=100, le=300_000)] = 30_000
    lease_id: UUID
    epoch: Annotated[Integer, Field(ge=0)]
    """Counts successful executions. A new action has 0; only the target node raises it."""
    retry_count: Annotated[Integer, Field(ge=0, le=10)] = 0
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime = Field(default_factory=utc_now)


def _typed_steps(value: Any) -> Any:
    """Refuse everything that is not a step already: Pydantic would turn a dict into one, even in strict mode (X-119)."""
    if not isinstance(value, list):
        raise ValueError("steps must be a list of ModelWorkflowStep")  # noqa: TRY004 - Pydantic reports ValueErrors
    for index, step in enumerate(value):
        if not isinstance(step, ModelWorkflowStep):
            raise ValueError(f"steps[{index}] is {a_or_an(type(step))}, not a ModelWorkflowStep")  # noqa: TRY004
    return value


def _json_outputs(value: Any) -> Any:
    require_json(value, "step_outputs")
    return value


class ModelOrchestratorInput(BaseModel):
    """One call of ``process``: the steps, and how this operation wants them processed."""

    model_config = ConfigDict(arbitrary_types_allowed=True, use_enum_values=False, defer_build=True)

    workflow_id: UUID
    """The workflow instance; several operations may share it."""
    steps: Annotated[list[ModelWorkflowStep], BeforeValidator(_typed_steps)]
    operation_id: UUID = Field(default_factory=new_id)
    """This call. Fresh and random unless a call is repeated on purpose; action ids derive from it."""
    execution_mode: EnumExecutionMode = EnumExecutionMode.SEQUENTIAL
    """Overrides the definition's mode if it was given (X-100)."""
    max_parallel_steps: Integer = 5
    """For the driver that runs the jobs; planning does not look at it (X-138)."""
    global_timeout_ms: Timeout = 300_000
    """Bound on the whole run; overrides the definition's if it was given (X-115)."""
    failure_strategy: Text = "fail_fast"
    """``fail_fast`` or ``continue_on_error``, for steps that do not say themselves (X-101, X-102)."""
    load_balancing_enabled: Flag = False
    dependency_resolution_enabled: Flag = True
    metadata: dict[str, Any] = Field(default_factory=dict)
    timestamp: datetime = Field(default_factory=utc_now)


class ModelOrchestratorOutput(BaseModel):
    """The answer of ``process``: only what follows from the executor's result."""

    model_config = ConfigDict(defer_build=True)

    execution_status: Text
    execution_time_ms: Integer
    """The duration. ``start_time`` and ``end_time`` are both the moment of completion."""
    start_time: Text
    end_time: Text
    completed_steps: list[Text] = Field(default_factory=list)
    failed_steps: list[Text] = Field(default_factory=list)
    skipped_steps: list[Text] = Field(default_factory=list)
    step_outputs: Annotated[dict[str, dict[str, Any]], BeforeValidator(_json_outputs)] = Field(default_factory=dict)
    final_result: Any | None = None
    output_variables: dict[str, Any] = Field(default_factory=dict)
    errors: list[dict[str, str]] = Field(default_factory=list)
    """Each with ``step_id``, ``error_type`` and ``message``."""
    metrics: dict[str, float] = Field(default_factory=dict)
    parallel_executions: Integer = 0
    actions_emitted: list[Any] = Field(default_factory=list)
    custom_outputs: ModelCustomFields | None = None
