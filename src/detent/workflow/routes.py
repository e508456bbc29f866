"""Where a step's action goes, and how urgent it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from detent.canon.show import show
from detent.workflow.enums import EnumActionType
from detent.workflow.errors import ModelOnexError

if TYPE_CHECKING:
    from detent.workflow.plain import PlainStep
    from detent.workflow.step import ModelWorkflowStep

# Looked up without a default: an unknown type is an error, never quietly custom.
ROUTES: Final[Mapping[str, tuple[EnumActionType, str]]] = {
    "compute": (EnumActionType.COMPUTE, "NodeCompute"),
    "effect": (EnumActionType.EFFECT, "NodeEffect"),
    "reducer": (EnumActionType.REDUCE, "NodeReducer"),
    "orchestrator": (EnumActionType.ORCHESTRATE, "NodeOrchestrator"),
    "custom": (EnumActionType.CUSTOM, "NodeCustom"),
    "parallel": (EnumActionType.CUSTOM, "NodeCustom"),
}
ACTION_PRIORITY_MAX: Final = 10
"""Steps speak of 1 to 1000, actions of 1 to 10; what is above is cut, without a word (WF-061)."""


def route_of(step: ModelWorkflowStep | PlainStep) -> tuple[EnumActionType, str]:
    """The type of a step's action and the node it goes to. Raises ``ModelOnexError`` for a type that has no route."""
    route = ROUTES.get(step.step_type)
    if route is None:
        raise ModelOnexError(
            f"No action for step type {show(step.step_type)}", context={"step_type": show(step.step_type)}
        )
    return route


def priority_of(step: ModelWorkflowStep | PlainStep) -> int:
    """The priority of a step's action."""
    return min(step.priority, ACTION_PRIORITY_MAX)
