"""What a map step goes through, calls and leaves behind, told from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.canon.destinations import file_of, function_of

DESTINATION: Final = "destination"
"""The name under which the file that a map step fills counts as its output."""


def reads(target: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths and globs whose content a map goes through."""
    rows = target.get("items")
    return tuple(target.get("files", ())) or ((rows,) if type(rows) is str else ())


def leaves(target: Mapping[str, Any]) -> dict[str, str]:
    """The file that a map fills, as an output; nothing for a database or a function, which no digest describes."""
    file = file_of(target["commit"])
    return {} if file is None else {DESTINATION: file}


def called(target: Mapping[str, Any]) -> tuple[str, ...]:
    """The functions of the user's own that a map calls."""
    names = (target["compute"], target.get("filter"), function_of(target["commit"]))
    return tuple(name for name in names if name is not None)
