"""A flow named on a command line: ``pipeline.py``, ``pipeline.py:nightly`` or ``package.module:nightly``.

The file is imported here, which runs its top level: it is the user's own. As a module it is called by its file's name, not
``__main__``, so what stands under ``if __name__ == "__main__"`` does not run.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from detent.canon import NotStrictJson, json_decode
from detent.errors import InvalidInput
from detent.sdk.flow import Flow
from detent.sdk.reference import stands_for_script


def is_flow_name(text: str) -> bool:
    """Whether a command line means a flow in Python rather than a contract file."""
    name = text.partition(":")[0]
    return name.endswith(".py") or (":" in text and not Path(text).exists())


def load_flow(text: str) -> Flow[..., Any]:
    """The flow that a command line means; `InvalidInput` says what there is instead."""
    where, _, name = text.partition(":")
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


def arguments_of(flow: Flow[..., Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Keyword arguments from ``name=value`` texts: JSON where it reads as JSON, unless the parameter is a text."""
    parameters = inspect.signature(flow.__wrapped__).parameters
    given: dict[str, Any] = {}
    for text in assignments:
        name, equals, written = text.partition("=")
        if not equals:
            raise InvalidInput(f"{text!r:.80} is no assignment", hint="write it as name=value")
        parameter = parameters.get(name)
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        if parameter is None and not takes_any:
            raise InvalidInput(f"flow {flow.name!r} has no parameter {name!r}", hint=f"it has: {', '.join(parameters)}")
        given[name] = written if parameter is not None and parameter.annotation in {str, "str"} else _value(written)
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


def _value(written: str) -> Any:
    try:
        return json_decode(written.encode())
    except (NotStrictJson, UnicodeEncodeError):
        return written


def _broken(what: str, exc: Exception) -> InvalidInput:
    """The user's file cannot be imported; the last line of its own that was reached says where."""
    if isinstance(exc, SyntaxError) and exc.lineno is not None:
        where = f"{exc.filename}:{exc.lineno}"
    else:
        frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if "importlib" not in frame.filename]
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if len(frames) > 1 else what
    said = exc.msg if isinstance(exc, SyntaxError) else str(exc)
    return InvalidInput(f"{what} cannot be imported: {type(exc).__name__}: {said}", hint=f"look at {where}")


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise InvalidInput(f"{path} is no file", hint="check the path")
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
    except Exception as exc:  # whatever the user's own file raises
        del sys.modules[path.stem]
        raise _broken(str(path), exc) from exc
    return module


def _from_module(name: str, path: Path | None = None) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidInput(f"{name!r:.80} is no name of a module", hint="name a file.py or a module:flow")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise _broken(str(path or name), exc) from exc
        raise InvalidInput(f"there is no module {name!r}", hint="name a file.py or a module:flow") from exc
    except Exception as exc:  # whatever the user's own file raises
        raise _broken(str(path or name), exc) from exc
    file = getattr(module, "__file__", None)
    if path is not None and (file is None or Path(file).resolve() != path.resolve()):
        raise InvalidInput(f"{path} has the name of another module, {name!r}", hint="give the file another name")
    return module
