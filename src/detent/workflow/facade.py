"""The stateful face of the planner. Not pure, and never to be called so: it holds a definition, reads the clock and logs.

An instance serves one workflow and belongs to one thread. It has no lock; callers that share one bring their own. It
touches no service of its container, writes nothing, and does not look for a contract: the definition is injected.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from detent.canon.show import a_or_an
from detent.workflow.context import ExecutionContext
from detent.workflow.defaults import utc_now
from detent.workflow.executor import execute_workflow
from detent.workflow.models import (
    ModelOrchestratorInput,
    ModelOrchestratorOutput,
    ModelWorkflowDefinition,
    ModelWorkflowStep,
)
from detent.workflow.result import WorkflowExecutionResult, _convert_workflow_result_to_output
from detent.workflow.validation import _validate_execution_mode, require_valid
from detent.workflow.vocabulary import EnumExecutionMode, ModelOnexError

logger = logging.getLogger("detent.workflow")


class WorkflowStore(Protocol):
    """Where a host of many workflows keeps definitions and results (pattern C). Recommended, not required."""

    async def get_definition(self, name: str) -> ModelWorkflowDefinition: ...
    async def record_result(self, workflow_id: UUID, result: WorkflowExecutionResult) -> None: ...


class ModelONEXContainer:
    """What a host hands to its nodes: services by name. The orchestrator asks it for nothing."""

    def __init__(self, services: Mapping[str, object] | None = None) -> None:
        self._services = dict(services or {})

    def get_service(self, name: str) -> object:
        """A service by name; ``ModelOnexError`` if there is none."""
        if name not in self._services:
            raise ModelOnexError(f"The container has no service {name!r}", context={"service": name})
        return self._services[name]


class NodeCoreBase:
    """A node and the container it was made for."""

    def __init__(self, container: ModelONEXContainer) -> None:
        self.container = container


class MixinWorkflowExecution:
    """Validation before execution, and conversion after it."""

    async def execute_workflow_from_contract(
        self,
        workflow_definition: ModelWorkflowDefinition,
        workflow_steps: list[ModelWorkflowStep],
        workflow_id: UUID,
        execution_mode: EnumExecutionMode | None = None,
        *,
        context: ExecutionContext | None = None,
    ) -> WorkflowExecutionResult:
        """Validate once, then hand over to the pure executor, which does not validate again (X-112)."""
        require_valid(workflow_definition, workflow_steps, workflow_id)
        return await execute_workflow(workflow_definition, workflow_steps, workflow_id, execution_mode, context=context)

    def _convert_workflow_result_to_output(self, workflow_result: WorkflowExecutionResult) -> ModelOrchestratorOutput:
        return _convert_workflow_result_to_output(workflow_result)


class NodeOrchestrator(NodeCoreBase, MixinWorkflowExecution):
    """Plans one workflow, call by call. Inject ``workflow_definition`` first; it may be exchanged between calls."""

    def __init__(self, container: ModelONEXContainer) -> None:
        super().__init__(container)
        self._workflow_definition: ModelWorkflowDefinition | None = None

    @property
    def workflow_definition(self) -> ModelWorkflowDefinition | None:
        """The injected definition; never changed here."""
        return self._workflow_definition

    @workflow_definition.setter
    def workflow_definition(self, definition: ModelWorkflowDefinition | None) -> None:
        if definition is not None and not isinstance(definition, ModelWorkflowDefinition):
            raise ModelOnexError(f"workflow_definition is {a_or_an(type(definition))}, not a ModelWorkflowDefinition")
        self._workflow_definition = definition

    async def process(self, input_data: ModelOrchestratorInput) -> ModelOrchestratorOutput:
        """Plan the steps of one operation.

        Raises ``ModelOnexError`` if no definition was injected, the workflow is not valid or a reserved mode is asked
        for. A step that fails raises nothing: it is in the output, and in the log.
        """
        definition = self.workflow_definition
        if definition is None:
            raise ModelOnexError(
                "Workflow definition not loaded", hint="set workflow_definition before process() is called"
            )
        _validate_execution_mode(input_data.execution_mode)
        given = input_data.model_fields_set
        workflow_result = await self.execute_workflow_from_contract(
            definition,
            input_data.steps,
            input_data.workflow_id,
            execution_mode=input_data.execution_mode if "execution_mode" in given else None,
            context=_context_of(input_data),
        )
        _log_failures(workflow_result, input_data.steps)
        return self._convert_workflow_result_to_output(workflow_result)


def _context_of(input_data: ModelOrchestratorInput) -> ExecutionContext:
    """What the facade lends to the pure executor: a random operation id, the time, and what the input says."""
    begun = utc_now()

    def elapsed_ms() -> int:
        # The wall clock may be set back while we plan; time spent is never negative.
        return max(0, int((utc_now() - begun).total_seconds() * 1000))

    explicit = "global_timeout_ms" in input_data.model_fields_set
    return ExecutionContext(
        operation_id=input_data.operation_id,
        now=begun,
        elapsed_ms=elapsed_ms,
        failure_strategy=input_data.failure_strategy,
        global_timeout_ms=input_data.global_timeout_ms if explicit else None,
    )


def _log_failures(result: WorkflowExecutionResult, steps: Sequence[ModelWorkflowStep]) -> None:
    """A refused creation is a warning with its code, any other exception an error with its traceback (WF-256)."""
    if not result.causes:
        return
    # A name that is not text, a lone surrogate, must not be the end of a log handler.
    names = {str(step.step_id): step.step_name.encode(errors="backslashreplace").decode() for step in steps}
    for step_id, cause in result.causes.items():
        if isinstance(cause, ModelOnexError):
            logger.warning(
                "Action creation for step '%s' (%s) failed: %s",
                names[step_id],
                step_id,
                cause.message,
                extra={"error_code": cause.error_code.value},
            )
        else:
            logger.error("Action creation for step '%s' (%s) failed", names[step_id], step_id, exc_info=cause)
