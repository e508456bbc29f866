"""Plain child processes for the user's own trusted functions and commands (X-179).

Start reading at `pool`, which lives in the supervisor; then `host`, the one process it starts, which forks the workers;
then `child`, what a worker does. `wire` holds the messages between them. There is no containment here and none is claimed:
untrusted code belongs in `detent.executor.sandbox`.

Names are looked up when they are first used: a worker enters this room too, and needs a part of it only.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.executor.plain.model import Context, Progress, Task
    from detent.executor.plain.pool import Pool, PoolFailed
    from detent.executor.plain.sweep import sweep_orphans

_WHERE = {
    "Context": "model",
    "Pool": "pool",
    "PoolFailed": "pool",
    "Progress": "model",
    "Task": "model",
    "sweep_orphans": "sweep",
}

__all__ = [
    "Context",
    "Pool",
    "PoolFailed",
    "Progress",
    "Task",
    "sweep_orphans",
]


def __getattr__(name: str) -> Any:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{where}"), name)
    globals()[name] = value
    return value
