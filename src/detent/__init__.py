"""Detent: a job and workflow orchestrator whose history a stranger can check."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from detent.version import __version__

if TYPE_CHECKING:
    from detent.errors import (
        DetentError,
        InvalidInput,
        InvariantBroken,
        OutcomeUnknown,
        QueueFull,
        Refused,
        RequestRefused,
    )
    from detent.executor.file import File
    from detent.runs.ordered.item_outcome import SKIP
    from detent.sdk.async_client import AsyncClient
    from detent.sdk.client import Client
    from detent.sdk.context import context
    from detent.sdk.flow import flow
    from detent.sdk.ordered_map import ordered_map
    from detent.sdk.outcomes import TaskCancelled, TaskFailed
    from detent.sdk.run import RunFailed, run
    from detent.sdk.task import task
    from detent.sdk.verify import verify

# Names are looked up when they are first used: `import detent` costs what the interpreter costs.
_WHERE = {
    "File": "detent.executor.file",
    "context": "detent.sdk.context",
    "AsyncClient": "detent.sdk.async_client",
    "Client": "detent.sdk.client",
    "flow": "detent.sdk.flow",
    "ordered_map": "detent.sdk.ordered_map",
    "SKIP": "detent.runs.ordered.item_outcome",
    "run": "detent.sdk.run",
    "task": "detent.sdk.task",
    "verify": "detent.sdk.verify",
    "DetentError": "detent.errors",
    "InvalidInput": "detent.errors",
    "InvariantBroken": "detent.errors",
    "OutcomeUnknown": "detent.errors",
    "QueueFull": "detent.errors",
    "Refused": "detent.errors",
    "RequestRefused": "detent.errors",
    "RunFailed": "detent.sdk.run",
    "TaskCancelled": "detent.sdk.outcomes",
    "TaskFailed": "detent.sdk.outcomes",
}

__all__ = [
    "SKIP",
    "AsyncClient",
    "Client",
    "DetentError",
    "File",
    "InvalidInput",
    "InvariantBroken",
    "OutcomeUnknown",
    "QueueFull",
    "Refused",
    "RequestRefused",
    "RunFailed",
    "TaskCancelled",
    "TaskFailed",
    "__version__",
    "context",
    "flow",
    "ordered_map",
    "run",
    "task",
    "verify",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'detent' has no attribute {name!r}")
    value = getattr(importlib.import_module(where), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
