"""Every model of the workflow contract, under its name there."""

from __future__ import annotations

from detent.workflow.action import ModelAction
from detent.workflow.definition import (
    ModelCoordinationRules,
    ModelCustomFields,
    ModelExecutionGraph,
    ModelSemVer,
    ModelWorkflowDefinition,
    ModelWorkflowDefinitionMetadata,
    ModelWorkflowNode,
)
from detent.workflow.input_output import ModelOrchestratorInput, ModelOrchestratorOutput
from detent.workflow.limits import ErrorAction, StepType
from detent.workflow.step import ModelWorkflowStep

__all__ = [
    "ErrorAction",
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
]
