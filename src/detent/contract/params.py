"""Parameters of a contract: how they are declared, and how a run's values are checked against them.

``name: 10`` declares a default and takes its type from it; ``name: {type: integer, default: 10}`` says both; ``name:``
alone, or a declaration without a default, is a parameter that every run must be given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from detent.canon import NotStrictJson, json_decode, json_encode
from detent.canon.strict_json import JsonValue
from detent.contract.findings import Report, Spot
from detent.contract.map_run import misfits
from detent.contract.model import Param
from detent.contract.words import KEY, KEY_HINT, VALUE_DEPTH_MAX, shown
from detent.errors import InvalidInput

if TYPE_CHECKING:
    from detent.contract.model import Contract

ANY: Final = "any"
NAMES_TOLD_MAX: Final = 8
"""How many parameters are named in the answer to an unknown one."""
TYPES: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: type(value) is str,
    "integer": lambda value: type(value) is int,
    "number": lambda value: type(value) in (int, float),
    "boolean": lambda value: type(value) is bool,
    "list": lambda value: type(value) is list,
    "object": lambda value: type(value) is dict,
    ANY: lambda _: True,
}
_TYPE_OF: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list"}
_DECLARATION: Final = ("type", "default", "description")


class ParamsInvalid(InvalidInput):
    """The values given for a contract's parameters do not fit; the message lists every reason."""


def bind(contract: Contract, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The value of every parameter: what was given, else the default. Raises ``ParamsInvalid`` with all that is wrong."""
    report = Report()
    wrong = [_unknown(name, contract.params, report) for name in given if name not in contract.params]
    bound: dict[str, JsonValue] = {}
    for name, param in contract.params.items():
        if name not in given:
            if param.required:
                wrong.append(f"parameter {name!r} is required; give it as -p {name}=VALUE")
            bound[name] = param.default
            continue
        bound[name] = given[name]
        reason = _misfit(param, given[name])
        if reason is not None:
            wrong.append(reason)
    if wrong:
        raise ParamsInvalid("\n".join(wrong), details={"errors": wrong})
    refuse_misfits(contract, bound)
    return bound


def refuse_misfits(contract: Contract, values: Mapping[str, JsonValue]) -> None:
    """Raise ``ParamsInvalid`` for values that cannot be what they stand for; parameters without a value are left alone."""
    found = misfits(contract, values)
    if found:
        wrong = [str(finding) for finding in found]
        hint = found[0].hint if len(found) == 1 else None
        raise ParamsInvalid("\n".join(wrong), hint=hint, details={"errors": wrong})


def parse_assignment(text: str, contract: Contract) -> tuple[str, JsonValue]:
    """Read ``name=value`` as the declared type wants it: text as it is, anything else as JSON."""
    name, equals, written = text.partition("=")
    if not equals:
        raise ParamsInvalid(f"{shown(text)} is not an assignment", hint="write it as name=value")
    param = contract.params.get(name)
    if param is None:
        raise ParamsInvalid(_unknown(name, contract.params, Report()))
    if param.type == "string":
        return name, written
    try:
        value = json_decode(written.encode(), name=name)
    except (NotStrictJson, UnicodeEncodeError):
        value = written
    reason = _misfit(param, value)
    if reason is not None:
        raise ParamsInvalid(reason, hint=f"write it as JSON, for example {name}={_EXAMPLES[param.type]}")
    return name, value


_EXAMPLES: Final = {
    "integer": "10",
    "number": "0.5",
    "boolean": "true",
    "list": "'[1, 2]'",
    "object": "'{\"a\": 1}'",
    ANY: "10",
}


def check_params(value: Any, spot: Spot) -> dict[str, Param]:
    """The parameters that ``params:`` declares; what is wrong with them is reported."""
    if type(value) is not dict:
        spot.fault(f"params must be a mapping of names to defaults, not {shown(value)}", "write `params: {rows: 10}`")
        return {}
    declared = {}
    for name, declaration in value.items():
        here = spot.at(name)
        if KEY.fullmatch(name) is None:
            here.fault(f"{shown(name)} cannot name a parameter", KEY_HINT, at_key=True)
        declared[name] = _param(name, declaration, here)
    return declared


def declaration_of(param: Param) -> dict[str, JsonValue]:
    """How the long form writes a parameter."""
    written: dict[str, JsonValue] = {"type": param.type}
    if not param.required:
        written["default"] = param.default
    if param.description:
        written["description"] = param.description
    return written


def _param(name: str, value: Any, spot: Spot) -> Param:
    if value is None:
        return Param(name, required=True)
    if type(value) is not dict:
        _check_default(value, spot)
        return Param(name, _TYPE_OF[type(value)], value)
    for key in value:
        if key not in _DECLARATION:
            hint = spot.report.nearest(key, _DECLARATION) or "write a mapping as `default: {...}`"
            spot.at(key).fault(f"unknown key {shown(key)} in parameter {name!r}", hint, at_key=True)
    kind = value.get("type", ANY)
    if type(kind) is not str or kind not in TYPES:
        hint = spot.report.nearest(kind, TYPES) or f"one of {', '.join(TYPES)}"
        spot.at("type").fault(f"there is no type {shown(kind)}", hint)
        kind = ANY
    description = value.get("description", "")
    if type(description) is not str:
        spot.at("description").fault(f"description must be text, not {shown(description)}", "put it in quotes")
        description = ""
    if "default" in value:
        _check_default(value["default"], spot.at("default"))
        if not TYPES[kind](value["default"]):
            spot.at("default").fault(
                f"the default {shown(value['default'])} is no {kind}", "change the type or the default"
            )
    return Param(name, kind, value.get("default"), "default" not in value, description)


def _check_default(value: JsonValue, spot: Spot) -> None:
    """A default is plain data; only its depth is bounded, so that the long form can hold it."""
    level = [value]
    for _ in range(VALUE_DEPTH_MAX + 1):
        level = [
            item
            for outer in level
            if type(outer) in (dict, list)
            for item in (outer.values() if type(outer) is dict else outer)
        ]
        if not level:
            return
    spot.fault(f"a default nested deeper than {VALUE_DEPTH_MAX} lists and mappings", "keep the data in a file")


def _misfit(param: Param, value: JsonValue) -> str | None:
    try:
        json_encode(value, name=param.name)
    except NotStrictJson as exc:
        return str(exc)
    if TYPES[param.type](value):
        return None
    return f"parameter {param.name!r} is of type {param.type}, not {shown(value)}"


def _unknown(name: object, known: Mapping[str, Param], report: Report) -> str:
    near = report.nearest(name, known) or (f"it has {', '.join(islice(known, NAMES_TOLD_MAX))}" if known else "")
    return f"the contract has no parameter {shown(name)}" + (f"; {near}" if near else "")
