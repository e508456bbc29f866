"""What a map step goes through, calls and leaves behind, told from its settings with values in the place of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.canon.destinations import file_of, function_of
from detent.contract.map_run import is_param
from detent.contract.references import PARAM

DESTINATION: Final = "destination"
"""The name under which the file that a map step fills counts as its output."""


def settled(target: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in which values have taken the place of parameters, as a contract without parameters has them."""
    files = target.get("files")
    return {**target, "files": [files]} if type(files) is str else dict(target)


def reads(target: Mapping[str, Any], rows: object) -> tuple[str, ...]:
    """The paths and globs whose content a map goes through; ``rows`` are its items, a file of them if it is a text."""
    return tuple(target.get("files", ())) or ((rows,) if type(rows) is str else ())


def may_read(target: Mapping[str, Any], params: Mapping[str, Any]) -> bool:
    """Whether a map whose parameters have these values goes through files, told from its settings as they are written."""
    rows: Any = target.get("items")
    return "files" in target or type(params.get(rows[PARAM]) if is_param(rows) else rows) is str


def leaves(target: Mapping[str, Any]) -> dict[str, str]:
    """The file that a map fills, as an output; nothing for a database or a function, which no digest describes."""
    file = file_of(target["commit"])
    return {} if file is None else {DESTINATION: file}


def called(target: Mapping[str, Any]) -> tuple[str, ...]:
    """The functions of the user's own that a map calls."""
    names = (target["compute"], target.get("filter"), function_of(target["commit"]))
    return tuple(name for name in names if name is not None)
