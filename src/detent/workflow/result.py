"""The executor's answer: plain data, immutable by agreement once it is returned."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from detent.workflow.action import ModelAction
from detent.workflow.enums import EnumWorkflowState
from detent.workflow.moment import EPOCH


class WorkflowExecutionResult:
    """What became of each step, and the actions that came out.

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
