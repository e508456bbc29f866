"""Parameters as settings of a map, as the list that a step goes through, or inside a payload: what a parameter turns into is checked as if it
had been written there.

A contract is checked with what it says itself, the types and defaults of its parameters; a run with the values that it is given,
before anything begins. Both name the place of the setting, the setting and the parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from detent.canon.destinations import function_of
from detent.canon.strict_json import JsonValue
from detent.contract.findings import Fault, Finding, Path, Report, Spot, Stage, invalid, path_text
from detent.contract.map_run import CHECKS, CODE_HINT, is_param
from detent.contract.model import Binding, Kind, Param
from detent.contract.references import PARAM, param_names
from detent.contract.shapes import BAD, text
from detent.contract.words import shown

if TYPE_CHECKING:
    from detent.contract.model import Contract

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
