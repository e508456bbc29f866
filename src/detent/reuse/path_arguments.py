"""Arguments that are paths: which files they name for declared inputs, and which tasks are given paths without saying so.

A path is text, and text counts by its characters: a task that is given ``data.csv`` is not run again when that file
changes, unless its ``inputs`` name the argument. A task that says nothing about inputs and is given the name of a file that
exists may mean to read it, so its user gets one warning. Only the first elements of a task are looked at, and only what looks
like a path: a run of 100,000 texts costs no more than one of a few.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from detent.canon.show import show
from detent.canon.strict_json import JsonValue
from detent.contract.references import argument_names, paths
from detent.errors import DetentError, InvalidInput
from detent.jobs.values import RESULT, is_result, restored

LOOKED_MAX: Final = 16
"""Pieces of work of one task whose arguments are looked at."""
TEXTS_MAX: Final = 16
"""Texts of one piece of work that are looked at."""
PATH_CHARS_MAX: Final = 1024
WARNED_MAX: Final = 20
"""Tasks that a warning is kept for."""


def no_value(named: str) -> JsonValue:
    """For work that names no results of other work."""
    raise InvalidInput(f"the result {named} is not known here")


def input_paths(
    templates: Sequence[str],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    load: Callable[[str], JsonValue] = no_value,
) -> tuple[str, ...]:
    """The paths and globs that declared inputs stand for, arguments put in. Values are stored ones.

    An argument that is not a path leaves its name in the path, where no file is: the work fails before it begins, and names it.
    """
    names = argument_names(templates)
    if not names:
        return paths(templates, {})
    values: dict[str, Any] = {}
    for name in names:
        given = arguments[int(name) - 1] if name.isdigit() else keywords.get(name)
        values[name] = restored(given, load, lambda _file: None)
    return paths(templates, values)


class PathArguments:
    """The tasks of one process that are given files by their names alone. ``warnings`` may be read from any thread."""

    def __init__(self) -> None:
        self.warnings: tuple[str, ...] = ()
        self._looked: dict[str, int] = {}

    def look(
        self,
        target: str,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        outputs: Mapping[str, str],
        directory: str,
        load: Callable[[str], JsonValue],
    ) -> None:
        """Look whether an argument of a piece of work is the name of a file; a task is warned of once."""
        looked = self._looked.get(target, 0)
        if looked >= LOOKED_MAX or len(self.warnings) >= WARNED_MAX:
            return
        self._looked[target] = looked + 1
        given = [*((str(place), value) for place, value in enumerate(arguments, 1)), *keywords.items()]
        left = set(outputs.values())
        texts = ((name, text) for name, value in given for text in _texts(value, load))
        for _, (name, text) in zip(range(TEXTS_MAX), texts, strict=False):
            if text not in left and _is_file(os.path.join(directory, text)):  # noqa: PTH118
                self._looked[target] = LOOKED_MAX
                self.warnings = (*self.warnings, _warning(target, name, text))
                return


def _warning(target: str, name: str, text: str) -> str:
    called = target.rpartition(":")[2]
    shown = f"#{name}" if name.isdigit() else f"{name}="
    return (
        f"{called}({shown}{show(text)}) is given a file by its name alone, so a change of the file does not run it again:"
        f' declare inputs="{{{name}}}" if its content counts, or inputs=() if it does not'
    )


def _texts(value: Any, load: Callable[[str], JsonValue]) -> Iterator[str]:
    """The texts of an argument that may be paths, the ones in a list too."""
    value = _loaded(value, load)
    for one in value[:TEXTS_MAX] if type(value) is list else (value,):
        each = _loaded(one, load)
        if type(each) is str and 0 < len(each) <= PATH_CHARS_MAX and each.isprintable():
            yield each


def _loaded(value: Any, load: Callable[[str], JsonValue]) -> Any:
    if not is_result(value):
        return value
    with suppress(DetentError):
        return load(value[RESULT])
    return None


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 - texts
    except ValueError:
        return False


def expanded(path: str) -> str:
    """A path in which a leading ``~/`` is the home directory of the user: no shell has seen it behind its colon."""
    return os.path.expanduser(path) if path.startswith("~/") else path  # noqa: PTH111 - texts
