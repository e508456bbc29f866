"""``run: {map: ...}``: an ordered run as a step, and its keys.

The words are those of ``detent map``: where items come from, what is called on each, where the results go. Nothing is looked
for or imported here; that a destination can be opened is found out when the step runs.

Most settings may be a parameter, ``{$param: name}``: `detent.contract.map_run` holds what it turns into to the checks of this
file. The functions may not, as ``python:`` may not: the contract decides which code runs, not its caller.

Parameters as settings of a map, as the list that a step goes through, or inside a payload: what a parameter turns into is checked as if it
had been written there.

A contract is checked with what it says itself, the types and defaults of its parameters; a run with the values that it is given,
before anything begins. Both name the place of the setting, the setting and the parameter.

What a map step goes through, calls and leaves behind, told from its settings with values in the place of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from detent.canon.grammar import FORMS, POLICY_SECTIONS, destination_fault, file_of, function_of
from detent.canon.strict_json import JsonValue
from detent.contract.findings import Fault, Finding, Path, Report, Spot, Stage, invalid, path_text
from detent.contract.model import Binding, Kind, Param
from detent.contract.references import FROM, PARAM, param_names
from detent.contract.shapes import BAD, Check, check_keys, choice, mapping, text
from detent.contract.words import BadDuration, parse_duration, python_target_fault, shown

if TYPE_CHECKING:
    from detent.contract.model import Contract

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
    "chunk": "write `chunk:` inside map",
    "retry": "write `retries:` inside map: an item is tried again, not all of them",
    "resources": "its items take one worker each; remove this",
    **dict.fromkeys(("pool", "labels"), "only the home's own workers run an ordered map; remove this"),
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


_INSIDE: Final = ("run", "map")
_LISTS: Final = ("list", "any")
_NUMBERS: Final = ("integer", "number", "any")
_TEXT: Final = ("string", "any")
_DURATION: Final = ("string", "number", "integer", "any")
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "files": ("string", "list", "any"),
    "items": ("list", "string", "any"),
    "commit": _TEXT,
    "window": _NUMBERS,
    "chunk": _NUMBERS,
    "on_error": _TEXT,
    "retries": _NUMBERS,
    "item_timeout": _DURATION,
    "commit_timeout": _DURATION,
}
"""Of what type a parameter may be that stands for a setting; the most fitting first."""


def has_params(binding: Binding | None) -> bool:
    """Whether settings of a map, the list of a step, or parts of a payload are parameters."""
    if binding is not None and binding.kind is Kind.JOB:
        return bool(param_names(binding.target))
    return next(_settings(binding), None) is not None or _list_param(binding) is not None


def check_declared(binding: Binding | None, spot: Spot, params: Mapping[str, Param]) -> None:
    """Report parameters whose type or default cannot be what they stand for; ``spot`` is the step's."""
    if (listed := _list_param(binding)) is not None and (param := _declared(params, listed[1])) is not None:
        here, name = spot.at(*listed[0]), param.name
        if param.type not in _LISTS:
            what = f"map cannot go through parameter {name!r:.80}, which is of type {param.type}"
            here.fault(what, "declare it as list", stage=Stage.REFERENCES)
        elif not param.required and type(param.default) is not list:
            here.fault(f"{_no_list(name, param.default)}, by its default", "give a list", stage=Stage.REFERENCES)
    for path, name in _settings(binding):
        if (param := _declared(params, name)) is None:
            continue  # It has been said that there is none.
        here, label = spot.at(*_INSIDE, *path), path_text(path)
        fitting = _TEXT if len(path) > 1 else TYPES[str(path[0])]
        if param.type not in fitting:
            what = f"{label} cannot be parameter {name!r:.80}, which is of type {param.type}"
            here.fault(what, f"declare it as {fitting[0]}", stage=Stage.REFERENCES)
        elif not param.required:
            for fault in _faults(path, param.default):
                what = f"{fault.message}; {label} is parameter {name!r:.80}, by its default"
                here.fault(what, fault.hint, stage=Stage.REFERENCES)


def _declared(params: Mapping[str, Param], name: object) -> Param | None:
    """The parameter of a name; None where none is declared, or the name is not text."""
    return params.get(name) if type(name) is str else None


def misfits(contract: Contract, values: Mapping[str, JsonValue]) -> tuple[Finding, ...]:
    """What is wrong with the values of parameters where they are settings or the list of a map, or part of a payload.

    In the order of the steps.
    """
    if contract.written is None:
        return ()
    report = Report()
    for step_id, binding in contract.bindings.items():
        listed = _list_param(binding)
        if listed is not None and listed[1] in values and type(values[listed[1]]) is not list:
            spot = Spot(report, (*contract.written.paths[step_id], *listed[0]))
            spot.fault(_no_list(listed[1], values[listed[1]]), "give a list")
        for path, name in _settings(binding):
            spot = Spot(report, (*contract.written.paths[step_id], *_INSIDE, *path))
            for fault in _faults(path, values[name]) if name in values else ():
                spot.fault(f"{fault.message}; {path_text(path)} is parameter {name!r:.80}", fault.hint)
        if contract.written.check_job is not None and binding.kind is Kind.JOB and has_params(binding):
            spot = Spot(report, (*contract.written.paths[step_id], "run", "job"))
            for place, message, hint in contract.written.check_job(binding.target, values):
                spot.at(*place).fault(message, hint)
    return invalid(report, contract.name, contract.written.locate).findings if report.count else ()


def _list_param(binding: Binding | None) -> tuple[Path, str] | None:
    """Where a step goes through a parameter, and through which."""
    if binding is None or binding.map is None or not is_param(binding.map[1]):
        return None
    return ("map", binding.map[0]), binding.map[1][PARAM]


def _no_list(name: str, value: Any) -> str:
    return f"map needs a list to go through, not {shown(value)}; it is parameter {name!r:.80}"


def _settings(binding: Binding | None) -> Iterator[tuple[Path, str]]:
    """Where a map has parameters for settings, and which."""
    if binding is None or binding.kind is not Kind.MAP:
        return
    for key, value in binding.target.items():
        if is_param(value):
            yield (key,), value[PARAM]
        elif key == "files":
            yield from (((key, index), item[PARAM]) for index, item in enumerate(value) if is_param(item))


def _faults(path: Path, value: Any) -> list[Fault]:
    """What is wrong with a value in a place of a map. A value is data: nothing in it refers to anything."""
    spot = Spot(Report(), path)
    check = text if len(path) > 1 else CHECKS[str(path[0])]
    if path == ("items",) and type(value) not in (list, str):
        spot.fault(
            f"items needs a list to go through, not {shown(value)}", "give a list, or the name of a file of rows"
        )
    elif path == ("files",) and type(value) is list and any(type(item) is dict for item in value):
        spot.fault(f"files must be text or a list of texts, not {shown(value)}", "give globs")
    elif check(value, spot) is not BAD and path == ("commit",) and function_of(value) is not None:
        spot.fault(f"the destination {shown(value)} is a function, which no parameter can name", CODE_HINT)
    return spot.report.faults


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
