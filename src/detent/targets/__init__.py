"""Where the results of an ordered run go, each exactly once and in order.

`api` is the protocol, `parse` reads what people write; the rest are the destinations. ``docs/ordered-targets.md`` says what
each of them promises.
"""

from __future__ import annotations

from detent.canon.grammar import FORMS
from detent.targets.api import (
    NOTHING,
    CommitFailed,
    CommitTarget,
    DestinationBusy,
    DestinationChanged,
    DestinationNotEmpty,
    Mark,
    Nothing,
    ValueRefused,
)
from detent.targets.file_targets import append_target, json_lines_target
from detent.targets.function_target import CommitToken, FunctionTarget, function_target
from detent.targets.parse import parse_target

__all__ = [
    "FORMS",
    "NOTHING",
    "CommitFailed",
    "CommitTarget",
    "CommitToken",
    "DestinationBusy",
    "DestinationChanged",
    "DestinationNotEmpty",
    "FunctionTarget",
    "Mark",
    "Nothing",
    "ValueRefused",
    "append_target",
    "function_target",
    "json_lines_target",
    "parse_target",
]
