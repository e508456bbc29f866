"""References in bindings: plain data that stands for another step's result or for a parameter (X-177).

``{"$from": key}`` is the result of the step with that key, ``{"$param": name}`` a parameter. A reference is a mapping
with that one key and nothing beside it. ``{"$file": digest, "size": ..., "name": ..., "type": ...}`` is a file in the content
store of the home that runs the contract, and stays as it is until a worker hands it to the code. A key that begins with ``$$`` is the
literal key with one ``$`` less; any other key that begins with ``$`` is refused. Nothing is looked up inside text: there is no
expression language.

Declared inputs that name arguments: ``{path}`` stands for the text of the argument ``path`` (X-175).

``data/{year}.csv`` with ``year=2026`` is one path; an argument that is a list gives one path for each of its texts, None gives
none. Arguments without names are called by their places: ``{1}`` is the first. ``{{`` and ``}}`` are braces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Final

from detent.canon.late import dataclass, pattern
from detent.canon.strict_json import JsonValue
from detent.contract.findings import Path, Spot
from detent.contract.words import VALUE_DEPTH_MAX, shown

FROM: Final = "$from"
PARAM: Final = "$param"
FILE: Final = "$file"
_FILE_KEYS: Final[Mapping[str, type]] = {FILE: str, "size": int, "name": str, "type": str}
_FILE_HINT: Final = "write {$file: sha256:..., size: 3, name: a.txt, type: text/plain}, or pass a detent.File in Python"
_ESCAPE_HINT: Final = "write $$ for a key that begins with one $"
_DIGEST: Final = pattern(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as it was found: ``word`` is ``$from`` or ``$param``, ``path`` where the name stands."""

    word: str
    name: str
    path: Path


def step_keys(value: JsonValue) -> tuple[str, ...]:
    """The keys of the steps whose results ``value`` needs, each once, in the order they appear."""
    return tuple(dict.fromkeys(name for word, name in _found(value) if word == FROM))


def param_names(value: JsonValue) -> tuple[str, ...]:
    """The names of the parameters that ``value`` needs, each once, in the order they appear."""
    return tuple(dict.fromkeys(name for word, name in _found(value) if word == PARAM))


def scan(value: JsonValue, spot: Spot, found: list[Reference], depth: int = 0) -> None:
    """Collect the references in ``value``, and report everything in it that only looks like one."""
    if type(value) is dict:
        dollars = [key for key in value if key[:1] == "$"]
        if dollars and _reference(value, dollars, spot, found):
            return
        inner: Iterator[tuple[str | int, Any]] = iter(value.items())
    elif type(value) is list:
        inner = enumerate(value)
    else:
        return
    if depth == VALUE_DEPTH_MAX:
        spot.fault(f"a value nested deeper than {VALUE_DEPTH_MAX} lists and mappings", "keep the data in a file")
        return
    for key, item in inner:
        if type(item) is dict or type(item) is list:
            scan(item, spot.at(key), found, depth + 1)


def _reference(value: dict[str, Any], dollars: list[str], spot: Spot, found: list[Reference]) -> bool:
    """True if ``value`` is a reference or a failed attempt at one: either way nothing inside it is looked at."""
    word = dollars[0]
    if word == FILE:
        _check_file(value, spot)
        return True
    if word not in (FROM, PARAM):
        wrong = [key for key in dollars if not key.startswith("$$")]
        for key in wrong:
            near = spot.report.nearest(key, (FROM, PARAM))
            spot.at(key).fault(f"key {shown(key)} is not a reference", near or _ESCAPE_HINT, at_key=True)
        return bool(wrong)
    if len(value) != 1:
        spot.fault(f"a reference stands alone: {{{word}: name}}", f"remove the other keys; {_ESCAPE_HINT}")
    elif type(value[word]) is not str or not value[word]:
        what = "the id of a step" if word == FROM else "the name of a parameter"
        spot.at(word).fault(f"{word} needs {what}, not {shown(value[word])}", f"write {{{word}: name}}")
    else:
        found.append(Reference(word, value[word], (*spot.path, word)))
    return True


def _check_file(value: dict[str, Any], spot: Spot) -> None:
    """A file is named by its digest, with what a worker tells the code about it."""
    sound = value.keys() == _FILE_KEYS.keys() and all(type(value[key]) is kind for key, kind in _FILE_KEYS.items())
    if not sound or value["size"] < 0 or "/" in value["name"] or _DIGEST.fullmatch(value[FILE]) is None:
        spot.fault("a file needs its digest, size, name and type, and nothing else", _FILE_HINT)


def _is_reference(value: dict[str, Any]) -> bool:
    return len(value) == 1 and (FROM in value or PARAM in value)


def _found(value: JsonValue) -> Iterator[tuple[str, str]]:
    if type(value) is dict:
        if _is_reference(value):
            yield from value.items()
            return
        for item in value.values():
            yield from _found(item)
    elif type(value) in (list, tuple):
        for item in value:
            yield from _found(item)


def replaced(value: JsonValue, replace: Callable[[str, str], JsonValue]) -> JsonValue:
    """The value with what ``replace`` gives for the word and name of every reference, and every ``$$`` key written plain."""
    if type(value) is dict:
        if _is_reference(value):
            return replace(*next(iter(value.items())))
        return {key[1:] if key.startswith("$$") else key: replaced(item, replace) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [replaced(item, replace) for item in value]
    return value


_PART: Final = pattern(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z_0-9]*|[1-9][0-9]*)\}")


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
