"""The workflow's own models: who it is, and the rules it names.

Fields reserved for later versions are declared, checked for their type alone, kept through any round trip, and never
read (X-120). ``execution_graph`` is one of them: required by the contract, consulted by nothing.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from detent.workflow.enums import EnumFailureRecoveryStrategy
from detent.workflow.fields import Flag, Integer, Text, Timeout
from detent.workflow.limits import WORKFLOW_TIMEOUT_MS_MIN

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
