"""A flow named on a command line: ``pipeline.py``, ``pipeline.py:nightly`` or ``package.module:nightly``.

The file is imported here, which runs its top level: it is the user's own. As a module it is called by its file's name, not
``__main__``, so what stands under ``if __name__ == "__main__"`` does not run.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from detent.canon import NotStrictJson, json_decode
from detent.errors import DetentError, InvalidInput
from detent.sdk.flow import Flow
from detent.sdk.reference import stands_for_script
from detent.sdk.user_code import loading, place_of

if TYPE_CHECKING:
    from detent.contract.model import Contract
    from detent.sdk.recording import Recording

_TYPES: Final[Mapping[type, tuple[str, tuple[type, ...], str]]] = {
    int: ("an integer", (int,), "10"),
    float: ("a number", (float,), "0.5"),
    bool: ("true or false", (bool,), "true"),
    list: ("a list", (list,), "'[1, 2]'"),
    dict: ("a mapping", (dict,), "'{\"a\": 1}'"),
}
"""What a parameter with this annotation is called, what JSON gives for it, and how it is written."""


def load_flow(text: str) -> Flow[..., Any]:
    """The flow that a command line means; `InvalidInput` says what there is instead."""
    where, _, name = text.partition(":")
    with loading():
        module = _from_file(Path(where)) if where.endswith(".py") else _from_module(where)
    flows = {key: value for key, value in vars(module).items() if isinstance(value, Flow)}
    if flows and where.endswith(".py"):
        stands_for_script(module.__name__, where)
    if name:
        if name not in flows:
            there = ", ".join(flows) or "none"
            raise InvalidInput(f"{where} has no flow {name!r}", hint=f"flows there: {there}")
        return flows[name]
    if len(flows) != 1:
        there = f"{where} has the flows {', '.join(flows)}" if flows else f"{where} has no flow"
        hint = f"say which: {where}:{next(iter(flows))}" if flows else "decorate a function with @detent.flow"
        raise InvalidInput(there, hint=hint)
    return next(iter(flows.values()))


def recorded(flow: Flow[..., Any], assignments: Sequence[str]) -> tuple[Recording, Contract]:
    """The recording of a flow with these arguments, and its contract. Every error in it is reported with the line that raised it."""
    arguments = arguments_of(flow, assignments)
    try:
        recording = flow.record(**arguments)
        return recording, recording.contract()
    except DetentError as exc:
        if (place := place_of(exc)) is not None:
            exc.hint = f"{exc.hint}; see {place}" if exc.hint else f"see {place}"
        raise
    except Exception as exc:  # any exception of the user's own function
        said = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        hint = f"look at {place_of(exc)}: a flow's own lines run when it is recorded, before any of its tasks"
        raise InvalidInput(f"flow {flow.name!r} cannot be recorded: {said}", hint=hint) from exc


def arguments_of(flow: Flow[..., Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments from ``name=value`` texts: JSON where it reads as JSON, unless the parameter is a text.

    A parameter that is annotated as a number, a truth value, a list or a mapping takes nothing else.
    """
    parameters = _signature(flow).parameters
    given: dict[str, Any] = {}
    for text in assignments:
        name, equals, written = text.partition("=")
        if not equals:
            raise InvalidInput(f"{text!r:.80} is not an assignment", hint="write it as name=value")
        parameter = parameters.get(name)
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        if parameter is None and not takes_any:
            raise InvalidInput(f"flow {flow.name!r} has no parameter {name!r}", hint=f"it has: {', '.join(parameters)}")
        given[name] = _value(written) if parameter is None else _argument(flow, parameter, written)
    missing = [
        one.name
        for one in parameters.values()
        if one.default is inspect.Parameter.empty
        and one.name not in given
        and one.kind in {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    ]
    if missing:
        raise InvalidInput(f"flow {flow.name!r} needs {', '.join(missing)}", hint=f"give it as -p {missing[0]}=VALUE")
    return given


def _signature(flow: Flow[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(flow.__wrapped__, eval_str=True)
    except Exception:  # noqa: BLE001 - an annotation that only a type checker understands
        return inspect.signature(flow.__wrapped__)


def _argument(flow: Flow[..., Any], parameter: inspect.Parameter, written: str) -> Any:
    annotation = parameter.annotation
    options = get_args(annotation) if get_origin(annotation) in {Union, UnionType} else (annotation,)
    wanted = [get_origin(option) or option for option in options]
    if wanted in ([str], ["str"]):
        return written
    value = _value(written)
    if str in wanted and value is not None:
        return value if type(value) in wanted else written
    known = [_TYPES[kind] for kind in wanted if isinstance(kind, type) and kind in _TYPES]
    if type(value) is int and float in wanted and int not in wanted:
        value = float(value)  # 1 and 1.0 are two values, and only one of them is what the flow would be called with.
    fits = (value is None and NoneType in wanted) or any(type(value) in kinds for _, kinds, _ in known)
    if fits or len(known) < len([kind for kind in wanted if kind is not NoneType]):
        return value
    what = " or ".join(name for name, _, _ in known)
    raise InvalidInput(
        f"parameter {parameter.name!r} of flow {flow.name!r} is {what}, not {written!r:.80}",
        hint=f"write it as JSON, for example -p {parameter.name}={known[0][2]}",
    )


def _value(written: str) -> Any:
    try:
        return json_decode(written.encode())
    except (NotStrictJson, UnicodeEncodeError):
        return written


def _broken(what: str, exc: Exception) -> InvalidInput:
    """The user's file cannot be imported; the last line of its own that was reached says where."""
    place = place_of(exc) or what
    if isinstance(exc, DetentError):
        hint = f"{exc.hint}; see {place}" if exc.hint else f"look at {place}"
        return InvalidInput(f"{what} cannot be imported: {exc}", hint=hint)
    said = exc.msg if isinstance(exc, SyntaxError) else str(exc)
    return InvalidInput(f"{what} cannot be imported: {type(exc).__name__}: {said}", hint=f"look at {place}")


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInput(f"{path} is not a file", hint="check the path")
    directory = str(path.absolute().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    if path.stem.isidentifier():
        return _from_module(path.stem, path)
    spec = importlib.util.spec_from_file_location(path.stem, path.absolute())
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} cannot be loaded as a module")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as exc:  # any exception of the user's own file
        del sys.modules[path.stem]
        raise _broken(str(path), exc) from exc
    return module


def _from_module(name: str, path: Path | None = None) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidInput(f"{name!r:.80} is not a module name", hint="name a file.py or a module:flow")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise _broken(str(path or name), exc) from exc
        raise InvalidInput(f"there is no module {name!r}", hint="name a file.py or a module:flow") from exc
    except Exception as exc:  # any exception of the user's own file
        raise _broken(str(path or name), exc) from exc
    file = getattr(module, "__file__", None)
    if path is not None and (file is None or Path(file).resolve() != path.resolve()):
        raise InvalidInput(f"{path} has the name of another module, {name!r}", hint="give the file another name")
    return module
