"""``run: {map: ...}``: an ordered run as a step, and its keys.

The words are those of ``detent map``: where items come from, what is called on each, where the results go. Nothing is looked
for or imported here; that a destination can be opened is found out when the step runs.

Most settings may be a parameter, ``{$param: name}``: `detent.contract.map_params` holds what it turns into to the checks of this
file. The functions may not, as ``python:`` may not: the contract decides which code runs, not its caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from detent.canon.destinations import FORMS, destination_fault
from detent.canon.policies import POLICY_SECTIONS
from detent.contract.durations import BadDuration, parse_duration
from detent.contract.findings import Spot
from detent.contract.references import FROM, PARAM
from detent.contract.shapes import BAD, Check, check_keys, choice, mapping, text
from detent.contract.words import python_target_fault, shown

WINDOW_MAX: Final = 1_000_000
CHUNK_MAX: Final = 256
RETRIES_MAX: Final = 10
ON_ERROR: Final = ("stop", "continue")
DESTINATION_HINT: Final = f"write {FORMS}"
NOT_WITH_MAP: Final[Mapping[str, str]] = {
    "outputs": "the destination is its output; remove this",
    "env": "set it inside the function, or run a `python` step",
    "cwd": "name files from the contract's directory",
    "map": "a map step goes through its own items: write them under `run: {map: {items: ...}}`",
    "retry": "write `retries:` inside map: an item is tried again, not all of them",
    "resources": "its items take one worker each; remove this",
    **dict.fromkeys(POLICY_SECTIONS, "its items are jobs of their own: write it under [tenants.local] in config.toml"),
}
"""Keys of a step that mean nothing beside ``run: {map: ...}``, with what to do instead."""
CODE_HINT: Final = "the contract must say which code runs: write module:function or path/file.py:function"


def map_run(value: Any, spot: Spot) -> Any:
    """The mapping under ``map``, with everything in it checked; ``files`` is a list."""
    if mapping(value, spot) is BAD:
        return BAD
    checked = check_keys(value, MAP_KEYS, spot, "map")
    sources = [key for key in ("files", "items") if key in value]
    if len(sources) != 1:
        said = "has files and items" if sources else "says nothing to go through"
        spot.fault(
            f"map {said}; it needs one of files, items", "write `files: 'texts/*.txt'` or `items: {$from: step}`"
        )
    for key, hint in (("compute", "write `compute: module:function`"), ("commit", DESTINATION_HINT)):
        if key not in value:
            spot.fault(f"map has no {key}", hint)
    whole = len(sources) == 1 and {sources[0], "compute", "commit"} <= checked.keys() and checked.keys() >= value.keys()
    return checked if whole else BAD


def is_param(value: Any) -> bool:
    """Whether a setting is written as a parameter."""
    return type(value) is dict and len(value) == 1 and PARAM in value


def refuse_beside(checked: Mapping[str, Any], spot: Spot) -> None:
    """Report what stands beside a map and means nothing there."""
    for key, hint in NOT_WITH_MAP.items():
        if key in checked:
            spot.at(key).fault(f"{key} cannot be used with run map", hint, at_key=True)


def _or_param(value: Any, spot: Spot, check: Check) -> Any:
    return value if is_param(value) else check(value, spot)


def _files(value: Any, spot: Spot) -> Any:
    if type(value) is not list:
        pattern = text(value, spot)
        return BAD if pattern is BAD else [pattern]
    if not value:
        spot.fault("files names no file", "write a glob such as 'texts/**/*.txt', or a list of them")
        return BAD
    patterns = [_or_param(item, spot.at(index), text) for index, item in enumerate(value)]
    return BAD if any(item is BAD for item in patterns) else patterns


def _items(value: Any, spot: Spot) -> Any:
    if type(value) is str:
        return text(value, spot)
    is_reference = type(value) is dict and len(value) == 1 and (FROM in value or PARAM in value)
    if type(value) is list or is_reference:
        return value
    hint = "write {$from: step}, {$param: name}, a list, or the name of a file with a JSON value a line"
    spot.fault(f"items needs a list to go through, not {shown(value)}", hint)
    return BAD


def _function(value: Any, spot: Spot) -> Any:
    if is_param(value):
        spot.fault(f"{spot.path[-1]} cannot be a parameter", CODE_HINT)
        return BAD
    if text(value, spot) is BAD:
        return BAD
    fault = python_target_fault(value)
    if fault is None:
        return value
    spot.fault(f"{spot.path[-1]} {shown(value)} {fault}", "write module:function or path/file.py:function")
    return BAD


def _commit(value: Any, spot: Spot) -> Any:
    if text(value, spot) is BAD:
        return BAD
    fault = destination_fault(value)
    if fault is None:
        return value
    spot.fault(f"the destination {shown(value)} {fault}", DESTINATION_HINT)
    return BAD


def _count(value: Any, spot: Spot, least: int, most: int, usual: int) -> Any:
    if type(value) is int and least <= value <= most:
        return value
    key = spot.path[-1]
    what = f"{key} must be a whole number from {least} to {most:,}, not {shown(value)}"
    spot.fault(what, f"write for example `{key}: {usual}`")
    return BAD


def _timeout(value: Any, spot: Spot) -> Any:
    """A limit, kept as it is written: in the long form it is read again."""
    try:
        parse_duration(value)
    except BadDuration as exc:
        spot.fault(f"{spot.path[-1]} {exc}", exc.hint)
        return BAD
    return value


CHECKS: Final[Mapping[str, Check]] = {
    "files": _files,
    "items": _items,
    "compute": _function,
    "commit": _commit,
    "filter": _function,
    "window": partial(_count, least=1, most=WINDOW_MAX, usual=256),
    "chunk": partial(_count, least=1, most=CHUNK_MAX, usual=16),
    "on_error": partial(choice, known=ON_ERROR, what="on_error"),
    "retries": partial(_count, least=0, most=RETRIES_MAX, usual=3),
    "item_timeout": _timeout,
    "commit_timeout": _timeout,
}
"""What a setting may be, where it is written out."""
FUNCTIONS: Final = frozenset({"compute", "filter"})
MAP_KEYS: Final[Mapping[str, Check]] = {
    key: check if key in FUNCTIONS else partial(_or_param, check=check) for key, check in CHECKS.items()
}
"""The keys of a map: the options of ``detent map``, under their names."""
