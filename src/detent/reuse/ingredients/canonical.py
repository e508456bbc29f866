"""The bytes of a piece of source: what it says, without its comments, layout and line numbers (X-176).

They are written from the syntax tree, every field by name and empty ones left out, so that a tree of a later Python, which
may have more kinds of fields, gives the same bytes in nearly all cases. Docstrings stay: they are values that a program can read, and
some do (command lines, tools for language models).

Nothing here recurses: the depth of a source is its author's choice.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

_LEFT_OUT: Final = frozenset({"ctx", "type_comment", "type_ignores", "kind"})
_FIELDS: Final[dict[type, tuple[str, ...]]] = {}


def canonical(node: ast.AST, is_dropped: Callable[[ast.expr], bool] = lambda _: False) -> str:
    """A tree as text. ``is_dropped`` says which decorators are not part of what is decorated."""
    written: list[str] = []
    # What waits is a tree, or a text that is written as it is.
    waiting: list[Any] = [node]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind is str:
            written.append(item)
        elif kind is ast.Constant:
            written.append(_constant(item.value))
        else:
            _open(item, kind, waiting, is_dropped)
    return "".join(written)


def _open(item: ast.AST, kind: type, waiting: list[Any], is_dropped: Callable[[ast.expr], bool]) -> None:
    fields = _FIELDS.get(kind)
    if fields is None:
        fields = _FIELDS[kind] = tuple(name for name in kind._fields if name not in _LEFT_OUT)  # type: ignore[attr-defined]
    waiting.append(")")
    for name in reversed(fields):
        value = getattr(item, name, None)
        if value is None:
            continue
        if type(value) is list:
            if name == "decorator_list":
                value = [decorator for decorator in value if not is_dropped(decorator)]
            if value:
                waiting.append("]")
                waiting.extend(_as_waiting(each) for each in reversed(value))
                waiting.append(f" {name}[")
        else:
            waiting.append(_as_waiting(value))
            waiting.append(f" {name}=")
    waiting.append(f"({kind.__name__}")


def _as_waiting(value: Any) -> Any:
    return value if isinstance(value, ast.AST) else f" {value!a}"


def _constant(value: Any) -> str:
    # Python refuses to write very long integers in decimal; in hexadecimal it does not.
    return f" {value:#x}" if type(value) is int else f" {value!a}"
