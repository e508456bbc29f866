"""Priority classes: the integers 1 to 10, ten first, and the names people give three of them (X-010)."""

from __future__ import annotations

from detent.canon.priority import PRIORITY_MAX, PRIORITY_MIN, PRIORITY_NAMES
from detent.canon.show import show
from detent.errors import InvalidInput

CLASSES = tuple(range(PRIORITY_MAX, PRIORITY_MIN - 1, -1))
"""All classes in the order they are served."""


def check_priority(value: object) -> int:
    """Accept a class; refuse anything that is not exactly an integer from 1 to 10 (`True` and ``"5"`` are not)."""
    if type(value) is not int or not PRIORITY_MIN <= value <= PRIORITY_MAX:
        raise InvalidInput(
            f"priority must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX}, not {show(value)}",
            hint=f"the names are {', '.join(f'{name} = {number}' for name, number in PRIORITY_NAMES.items())}",
        )
    return value


def workflow_priority(action_priority: int, workflow_priority_cap: int) -> int:
    """The class of a workflow's action: its own priority, lowered to what the operator allows workflows."""
    return min(check_priority(action_priority), check_priority(workflow_priority_cap))
