"""What goes into ``NodeOrchestrator.process`` and what comes out. Both are mutable and belong to one thread."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from detent.canon.show import a_or_an
from detent.workflow.defaults import new_id, utc_now
from detent.workflow.definition import ModelCustomFields
from detent.workflow.enums import EnumExecutionMode
from detent.workflow.fields import Flag, Integer, Text, Timeout, require_json
from detent.workflow.step import ModelWorkflowStep


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
