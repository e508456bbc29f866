"""The pure planner: a workflow and its steps become an ordered list of leased actions.

Every model, enum and function has the name the workflow contract gives it. Three tools, for three hands:
``execute_workflow`` is the pure planner (``plan_workflow`` is the same without ``await``); ``NodeOrchestrator`` is a
stateful face on it for one workflow; ``find_problems`` tells a loader what is wrong and where.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detent.workflow.context import ExecutionContext, _build_workflow_context, timeout_ms_of
from detent.workflow.ordering import _has_dependency_cycles, get_execution_order
from detent.workflow.vocabulary import (
    EnumActionType,
    EnumBranchCondition,
    EnumCoreErrorCode,
    EnumExecutionMode,
    EnumFailureRecoveryStrategy,
    EnumWorkflowState,
    EpochConflictError,
    LeaseExpiredError,
    ModelOnexError,
)

if TYPE_CHECKING:
    from detent.workflow.executor import _create_action_for_step, execute_workflow, plan_workflow
    from detent.workflow.facade import (
        MixinWorkflowExecution,
        ModelONEXContainer,
        NodeCoreBase,
        NodeOrchestrator,
        WorkflowStore,
    )
    from detent.workflow.models import (
        ErrorAction,
        ModelAction,
        ModelCoordinationRules,
        ModelCustomFields,
        ModelExecutionGraph,
        ModelOrchestratorInput,
        ModelOrchestratorOutput,
        ModelSemVer,
        ModelWorkflowDefinition,
        ModelWorkflowDefinitionMetadata,
        ModelWorkflowNode,
        ModelWorkflowStep,
        StepType,
    )
    from detent.workflow.result import (
        WorkflowExecutionResult,
        _build_output_metrics,
        _convert_workflow_result_to_output,
    )
    from detent.workflow.target import ActionLease, TargetNode
    from detent.workflow.validation import (
        Problem,
        _validate_dag_with_disabled_steps,
        _validate_dependencies,
        _validate_execution_mode,
        _validate_unique_step_ids,
        find_problems,
        validate_workflow_definition,
    )

__all__ = [
    "ActionLease",
    "EnumActionType",
    "EnumBranchCondition",
    "EnumCoreErrorCode",
    "EnumExecutionMode",
    "EnumFailureRecoveryStrategy",
    "EnumWorkflowState",
    "EpochConflictError",
    "ErrorAction",
    "ExecutionContext",
    "LeaseExpiredError",
    "MixinWorkflowExecution",
    "ModelAction",
    "ModelCoordinationRules",
    "ModelCustomFields",
    "ModelExecutionGraph",
    "ModelONEXContainer",
    "ModelOnexError",
    "ModelOrchestratorInput",
    "ModelOrchestratorOutput",
    "ModelSemVer",
    "ModelWorkflowDefinition",
    "ModelWorkflowDefinitionMetadata",
    "ModelWorkflowNode",
    "ModelWorkflowStep",
    "NodeCoreBase",
    "NodeOrchestrator",
    "Problem",
    "StepType",
    "TargetNode",
    "WorkflowExecutionResult",
    "WorkflowStore",
    "_build_output_metrics",
    "_build_workflow_context",
    "_convert_workflow_result_to_output",
    "_create_action_for_step",
    "_has_dependency_cycles",
    "_validate_dag_with_disabled_steps",
    "_validate_dependencies",
    "_validate_execution_mode",
    "_validate_unique_step_ids",
    "execute_workflow",
    "find_problems",
    "get_execution_order",
    "plan_workflow",
    "timeout_ms_of",
    "validate_workflow_definition",
]


def __getattr__(name: str) -> Any:
    """The models load Pydantic, and the facade logs; the driver of a run has no use for either: they come when first named."""
    if name in __all__:
        from detent.workflow import executor, facade, models, result, target, validation  # noqa: PLC0415

        for module in (models, executor, result, validation, target, facade):
            if name in vars(module):
                globals()[name] = vars(module)[name]
                return globals()[name]
    raise AttributeError(f"module 'detent.workflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
