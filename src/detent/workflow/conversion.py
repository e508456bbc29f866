"""From the executor's result to the facade's output: a pure function of the result alone (WF-117)."""

from __future__ import annotations

from typing import Any

from detent.workflow.input_output import ModelOrchestratorOutput
from detent.workflow.result import WorkflowExecutionResult

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
