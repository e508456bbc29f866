"""What changed between two lists of ingredients, in words (issue of every `explain`: why did this run again?)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from detent.canon.late import dataclass
from detent.canon.show import show

_WHOLE: Final = "code"
_PARTS: Final = ("function", "class", "value", "module")
_ORDER: Final = (
    *("version", _WHOLE, *_PARTS, "entrypoint", "command", "shell", "payload", "destination"),
    *("argument", "input", "output"),
    *("env", "cwd", "package", "tool", "runner", "python", "platform", "salt"),
)
_NOUNS: Final = {
    "function": "function",
    "class": "class",
    "value": "module-level name",
    "module": "module",
    "argument": "argument",
    "input": "input",
    "output": "output",
    "env": "environment variable",
    "package": "package",
    "tool": "tool",
    "python": "Python",
    "cwd": "working directory",
    "code": "code",
}
_SHOWN: Final = frozenset(
    {
        *("package", "tool", "runner", "python", "platform", "version", "cwd", "output", "destination", "entrypoint"),
        *("shell", "salt"),
    }
)
"""Ingredients whose values mean something to people; the others are digests."""
_SECRET: Final = frozenset({"salt"})


class _Absent:
    """Stands for an ingredient that a list does not have; None is a value."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Change:
    """One ingredient that differs. ``old`` or ``new`` is `ABSENT` where only the other list has it."""

    name: str
    old: Any
    new: Any


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every ingredient that differs, code first, the environment last.

    The digest of the whole code is left out where a part of it says more.
    """
    found = [
        Change(name, old.get(name, ABSENT), new.get(name, ABSENT))
        for name in {*old, *new}
        if not _same(old.get(name, ABSENT), new.get(name, ABSENT))
    ]
    found.sort(key=lambda change: (_rank(change.name), change.name))
    if any(_split(change.name)[0] in _PARTS for change in found):
        found = [change for change in found if change.name != _WHOLE]
    return found


def describe(change: Change) -> str:
    """A change as a person would say it: ``function helpers:clean changed``, ``package numpy 2.1 -> 2.2``."""
    kind, name = _split(change.name)
    what = f"{_NOUNS.get(kind, kind)} {_shown(name) if name else ''}".strip()
    if kind in _PARTS and (change.old is ABSENT or change.new is ABSENT):
        return f"{what} is {'now used' if change.old is ABSENT else 'no longer used'}"
    if kind == "input" and (change.old is None or change.new is None):
        return (
            f"{what} is {'there now' if change.old is None else 'missing'}"
            if _both(change)
            else _came_or_went(what, change)
        )
    if kind == "shell" and change.old is ABSENT:
        return f"{what} is now {_shown(change.new)}"
    if not _both(change):
        return _came_or_went(what, change)
    if kind == _WHOLE and (change.old is None or change.new is None):
        return "code could not be read completely" if change.new is None else "code can be read completely now"
    if kind in _SHOWN and kind not in _SECRET:
        return f"{what} {_shown(change.old)} -> {_shown(change.new)}"
    return f"{what} changed"


def _came_or_went(what: str, change: Change) -> str:
    return f"{what} is {'new' if change.old is ABSENT else 'gone'}"


def _both(change: Change) -> bool:
    return change.old is not ABSENT and change.new is not ABSENT


def _same(old: Any, new: Any) -> bool:
    return type(old) is type(new) and bool(old == new)


def _shown(value: Any) -> str:
    return value if type(value) is str and value.isprintable() and 0 < len(value) <= 80 else show(value)


def _split(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(":")
    return kind, rest


def _rank(name: str) -> int:
    kind = _split(name)[0]
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)
