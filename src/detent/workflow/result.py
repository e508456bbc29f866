"""The executor's answer: plain data, immutable by agreement once it is returned.

From the executor's result to the facade's output: a pure function of the result alone (WF-117).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from detent.workflow.models import ModelAction, ModelOrchestratorOutput
from detent.workflow.vocabulary import EPOCH, EnumWorkflowState


class WorkflowExecutionResult:
    """How each step ended, and the resulting actions.

    Every step is in exactly one of the three lists. "Completed" means that its action was created, not that anything
    ran. ``timestamp`` is the moment of completion as ISO text in UTC, from the context: its now, and the time elapsed since
    (X-011).
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the contract fixes these parameters and their order
        self,
        workflow_id: UUID,
        execution_status: EnumWorkflowState,
        completed_steps: list[str],
        failed_steps: list[str],
        skipped_steps: list[str],
        actions_emitted: list[ModelAction],
        execution_time_ms: int,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.workflow_id = workflow_id
        self.execution_status = execution_status
        self.completed_steps = completed_steps
        """In processing order, as are the failed ones and the actions."""
        self.failed_steps = failed_steps
        self.skipped_steps = skipped_steps
        """In declaration order."""
        self.actions_emitted = actions_emitted
        self.execution_time_ms = execution_time_ms
        self.metadata: dict[str, Any] = {} if metadata is None else metadata
        self.timestamp: str = EPOCH.isoformat()
        self.causes: dict[str, Exception] = {}
        """The exceptions behind failed creations by step id, for logging. Not part of the value."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WorkflowExecutionResult):
            return NotImplemented
        return self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"WorkflowExecutionResult({self.workflow_id}, {self.execution_status.value},"
            f" {len(self.completed_steps)} completed, {len(self.failed_steps)} failed, {len(self.skipped_steps)} skipped)"
        )

    def _values(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "causes"}


# Metadata that is shown as it is. Metrics are numbers only, so what is text goes here.
_VARIABLES = ("execution_mode", "workflow_name", "batch_size")


def _convert_workflow_result_to_output(workflow_result: WorkflowExecutionResult) -> ModelOrchestratorOutput:
    """Everything the result says, field by field, in the result's order."""
    metadata = workflow_result.metadata
    metrics = _build_output_metrics(workflow_result)
    waves = metadata.get("parallel_waves")
    if waves is not None:
        metrics["parallel_waves"] = float(waves)
    variables: dict[str, Any] = {"workflow_id": str(workflow_result.workflow_id)}
    variables.update((name, metadata[name]) for name in _VARIABLES if name in metadata)
    return ModelOrchestratorOutput(
        execution_status=workflow_result.execution_status.value,
        execution_time_ms=workflow_result.execution_time_ms,
        start_time=workflow_result.timestamp,
        end_time=workflow_result.timestamp,
        completed_steps=workflow_result.completed_steps,
        failed_steps=workflow_result.failed_steps,
        skipped_steps=workflow_result.skipped_steps,
        output_variables=variables,
        errors=metadata.get("errors", []),
        metrics=metrics,
        parallel_executions=waves or 0,
        actions_emitted=workflow_result.actions_emitted,
    )


def _build_output_metrics(workflow_result: WorkflowExecutionResult) -> dict[str, float]:
    """The four counts, from the lengths of the lists."""
    return {
        "actions_count": float(len(workflow_result.actions_emitted)),
        "completed_count": float(len(workflow_result.completed_steps)),
        "failed_count": float(len(workflow_result.failed_steps)),
        "skipped_count": float(len(workflow_result.skipped_steps)),
    }
