"""Starts the process that workers are made by before a command loads the rest, where workers will be needed.

It comes up on another processor while this process loads modules and opens the home, which takes as long. Loads little itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from detent.executor.plain.host_process import HostProcess
from detent.owner.place import LOCKS, places

LOADED_BY_TASKS: Final = (
    "tokenize",
    "inspect",
    "datetime",
    "dataclasses",
    "detent.errors",
    "detent.sdk.options",
    "detent.sdk.recording",
    "detent.sdk.flow",
    "detent.sdk.task",
)
"""What a module with a task in it loads, in small steps. By name, for processes that are not this one: the engine needs none of it."""


def has_results(home: Path) -> bool:
    """Whether a run was ever driven in a home. In a home without runs, every step needs a worker.

    A home that may not be looked into may have some; it is refused when it is opened.
    """
    try:
        return (home / LOCKS).exists()
    except OSError:
        return True


def host_ahead(
    explicit: Path | None = None, *, reuses: bool, environment: Mapping[str, str] | None = None
) -> HostProcess | None:
    """A host for the workers of a home, to be handed to `Runtime`; None where it is better started when something has to run.

    ``reuses``: whether all that is asked for may have been done before.
    """
    environment = os.environ if environment is None else environment
    if reuses and any(map(has_results, places(Path.cwd(), environment, explicit))):
        return None
    try:
        return HostProcess(preload=LOADED_BY_TASKS)
    except OSError:
        return None  # The pool tries again, and says what is wrong.
