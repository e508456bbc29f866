"""Execution modes: which are accepted, and which one applies (X-100)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from detent.canon.show import show
from detent.workflow.enums import EnumExecutionMode
from detent.workflow.errors import ModelOnexError

if TYPE_CHECKING:
    from detent.workflow.definition import ModelWorkflowDefinition

RESERVED_MODES: Final = (EnumExecutionMode.CONDITIONAL, EnumExecutionMode.STREAMING)

_MODE_OF: Final = {mode.value: mode for mode in EnumExecutionMode}


def effective_mode(definition: ModelWorkflowDefinition, execution_mode: EnumExecutionMode | None) -> EnumExecutionMode:
    """The mode a workflow is processed in: the one given, else the definition's.

    A reserved or unknown mode in the definition is an error even when another one overrides it. Where the coordination
    rules forbid parallel execution, PARALLEL is processed as SEQUENTIAL, silently (X-136).
    """
    declared = definition.workflow_metadata.execution_mode
    fault = mode_fault(declared)
    if fault is not None:
        raise ModelOnexError(fault, context={"execution_mode": declared})
    mode = _MODE_OF[declared] if execution_mode is None else execution_mode
    _validate_execution_mode(mode)
    if mode is EnumExecutionMode.PARALLEL and not definition.coordination_rules.parallel_execution_allowed:
        return EnumExecutionMode.SEQUENTIAL
    return mode


def mode_fault(value: object) -> str | None:
    """What is wrong with a mode that a definition names; None if nothing is."""
    mode = _MODE_OF.get(value) if type(value) is str else None
    if mode is None:
        return f"Unknown execution mode {show(value)}"
    return _reserved(mode) if mode in RESERVED_MODES else None


def _validate_execution_mode(execution_mode: EnumExecutionMode) -> None:
    """Refuse a reserved mode, and a value that is not a mode."""
    if not isinstance(execution_mode, EnumExecutionMode):
        raise ModelOnexError(
            f"Unknown execution mode {show(execution_mode)}", context={"execution_mode": show(execution_mode)}
        )
    if execution_mode in RESERVED_MODES:
        raise ModelOnexError(_reserved(execution_mode), context={"execution_mode": execution_mode.value})


def _reserved(mode: EnumExecutionMode) -> str:
    return f"Execution mode '{mode.value}' is reserved for future versions and cannot be used in v1.0"
