"""Fields of the workflow contract that are checked, kept, and change nothing when a contract is run, with the reason (X-120, X-194).

Written with the value they have anyway, they are as good as left out, and nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from detent.workflow.plain import PlainStep

_RESERVED: Final = "it is reserved for a later version"
IN_STEPS: Final[Mapping[str, str]] = {
    "continue_on_error": "error_action decides what follows a failure",
    "order_index": "steps run in the order of their needs and of the file",
    "parallel_group": "it is a label; needs and mode decide what runs at once",
    "compensation_action": _RESERVED,
    "checkpoint_required": f"{_RESERVED}; every result is kept anyway",
    "idempotency_key": f"{_RESERVED}; equal work is found by its content",
}
IN_DEFINITION: Final[Mapping[str, str]] = {
    "coordination_rules.synchronization_points": _RESERVED,
    "coordination_rules.failure_recovery_strategy": "retry and error_action of each step decide",
    "coordination_rules.max_retries": "retry of each step decides",
    "coordination_rules.retry_delay_ms": "the settings of the home have the delays",
    "compensation_enabled": _RESERVED,
    "saga_pattern": _RESERVED,
    "checkpoint_enabled": f"{_RESERVED}; every result is kept anyway",
}
_AS_GOOD_AS_UNSAID: Final = (None, False, 0)


def step_fields(step: PlainStep) -> Iterator[str]:
    """Those that a step sets."""
    return (
        name for name in IN_STEPS if name in step.model_fields_set and getattr(step, name) not in _AS_GOOD_AS_UNSAID
    )


def definition_fields(document: Mapping[str, Any]) -> frozenset[str]:
    """Those that a definition sets."""
    rules = document.get("coordination_rules", {})
    said = {**document, **{f"coordination_rules.{name}": value for name, value in rules.items()}}
    return frozenset(name for name in IN_DEFINITION if name in said and said[name] not in (*_AS_GOOD_AS_UNSAID, []))
