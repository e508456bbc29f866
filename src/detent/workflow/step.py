"""One step of a workflow: frozen, fully typed, without a single free-form field."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from detent.workflow.defaults import new_id
from detent.workflow.fields import Flag, Integer, Text, Timeout
from detent.workflow.limits import ErrorAction, StepType


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
