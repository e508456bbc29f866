"""Explains that a missing package is installed on the host but not in the sandbox; ``No module named`` does not tell."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import Final

from detent.executor.sandbox.model import Execution, Raised

NOT_INSIDE: Final = "the packages of this environment are not in the sandbox; a `python` step has them"
_MISSING: Final = re.compile(r"No module named '([A-Za-z_][A-Za-z0-9_]{0,99})'")


def message_of(execution: Execution) -> str:
    """The message of what the user's own code came to, with what the code cannot know."""
    if execution.raised is None or not is_outside(execution.raised):
        return execution.message
    return f"{execution.message} ({NOT_INSIDE})"


def is_outside(raised: Raised) -> bool:
    """Whether a module was missing that this process would find. Of all others only the code itself knows what they are."""
    match = _MISSING.fullmatch(raised.message) if raised.type == "ModuleNotFoundError" else None
    if match is None or match[1] in sys.stdlib_module_names:
        return False
    try:
        return find_spec(match[1]) is not None  # Nothing is imported: the name has no dots.
    except (ImportError, ValueError):
        return False
