"""Detent: a job and workflow orchestrator whose history a stranger can check."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.errors import DetentError, InvariantBroken, OutcomeUnknown, Refused
    from detent.sdk.flow import flow
    from detent.sdk.task import task
    from detent.sdk.verify import verify

__version__ = "0.1.0"

# Names are looked up when they are first used: `import detent` costs what the interpreter costs.
_WHERE = {
    "flow": "detent.sdk.flow",
    "task": "detent.sdk.task",
    "verify": "detent.sdk.verify",
    "DetentError": "detent.errors",
    "InvariantBroken": "detent.errors",
    "OutcomeUnknown": "detent.errors",
    "Refused": "detent.errors",
}

__all__ = ["DetentError", "InvariantBroken", "OutcomeUnknown", "Refused", "flow", "task", "verify"]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'detent' has no attribute {name!r}")
    value = getattr(importlib.import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
