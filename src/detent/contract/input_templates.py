"""Declared inputs that name arguments: ``{path}`` stands for the text of the argument ``path`` (X-175).

``data/{year}.csv`` with ``year=2026`` is one path; an argument that is a list gives one path for each of its texts, None gives
none. Arguments without names are called by their places: ``{1}`` is the first. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

_PART: Final = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z_0-9]*|[1-9][0-9]*)\}")


def argument_names(templates: Iterable[str]) -> tuple[str, ...]:
    """The arguments that templates name, each once, in the order they appear."""
    found = (match[1] for template in templates for match in _PART.finditer(template))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def filled(template: str, values: Mapping[str, Any]) -> list[str]:
    """A template with the values that are given, which is still a template: names that have none are left.

    A value that is not a path (an object, true or false, a number with a fraction) leaves its name, too.
    """
    texts = {name: _texts(values[name]) for name in argument_names((template,)) if name in values}
    usable = {name: [_escaped(text) for text in some] for name, some in texts.items() if some is not None}
    chosen = (dict(zip(usable, one, strict=True)) for one in product(*usable.values()))
    return [_put(template, one) for one in chosen]


def paths(templates: Iterable[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """The paths and globs that templates come to. A name without a path in its place stays as it is written."""
    found = (text for template in templates for text in filled(template, values))
    return tuple(dict.fromkeys(_literal(text) for text in found))


def _texts(value: Any) -> list[str] | None:
    """The paths in a plain value; None when it is not a path."""
    if value is None:
        return []
    if type(value) is str:
        return [value]
    if type(value) is int:
        return [str(value)]
    if type(value) is not list:
        return None
    parts = [_texts(item) for item in value]
    return None if None in parts else [text for part in parts if part is not None for text in part]


def _put(template: str, values: Mapping[str, str]) -> str:
    return _PART.sub(lambda match: values.get(match[1], match[0]), template)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _literal(template: str) -> str:
    return _PART.sub(lambda match: match[0] if match[1] is not None else match[0][0], template)
