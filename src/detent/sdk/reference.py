"""The name under which a worker finds a function again: ``module:function``, or ``file.py:function`` for a script.

Work runs in other processes and other days, so a task is recorded by name and its function is loaded there. What has no
name that leads back to it (lambdas, functions inside functions, what was typed at a prompt) cannot be a step; it can still be
called. Everything here looks only at what is loaded already.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from detent.errors import InvalidInput

MAIN: Final = "__main__"
_WRAPPERS_MAX: Final = 64
"""Decorators around one function; more of them are a circle."""


@dataclass(frozen=True, slots=True)
class Reference:
    """How a function is called by name; ``base`` is the directory that a file name starts from."""

    target: str
    base: str | None = None


def refer(function: Callable[..., Any]) -> Reference:
    """The reference of a function; `InvalidInput` says why there is none, and what to do."""
    inner = unwrapped(function)
    module = getattr(inner, "__module__", None)
    qualname = getattr(inner, "__qualname__", None)
    if not isinstance(qualname, str) or not (module is None or isinstance(module, str)):
        raise _no_name(f"{inner!r}", "it has no name of its own", "wrap it in a function: def mine(x): return ...")
    shown = qualname.replace("<locals>.", "")
    if "<lambda>" in qualname:
        raise _no_name("a lambda", "it has no name", "write it as a function: def mine(x): return ...")
    if "<locals>" in qualname:
        outer = qualname.partition(".<locals>")[0]
        raise _no_name(f"{shown!r}", f"it is defined inside {outer!r}", "move it to the top level of its module")
    if module is None:  # Methods of builtin types, like str.upper.
        raise _no_name(f"{shown!r}", "it belongs to no module", "wrap it in a function: def mine(x): return ...")
    if module == MAIN:
        return _in_main(inner, qualname)
    if (script := _scripts.get(module)) is not None:
        name = os.path.basename(script)  # noqa: PTH119
        return Reference(_checked(name, module, qualname, inner), directory_of(module))
    return Reference(_checked(module, module, qualname, inner))


_scripts: dict[str, str] = {}
"""Modules that stand for a script: file by module name."""


def stands_for_script(module: str, file: str) -> None:
    """Name a module's functions as if its file were run itself, so that both ways of starting it mean the same work."""
    _scripts[module] = file


def unwrapped(function: Any) -> Any:
    """The function inside all decorators that say what they wrap."""
    *_, innermost = _layers(function)
    return innermost


def directory_of(module_name: str) -> str | None:
    """The directory from which a module is imported; a script's own directory; None where there is no file."""
    module = sys.modules.get(module_name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    spec = getattr(module, "__spec__", None)
    name = module_name if spec is None or module_name != MAIN else spec.name
    directory = os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120 - links stay as they are written
    is_package = os.path.basename(file) == "__init__.py"  # noqa: PTH119
    for _ in range(name.count(".") + (1 if is_package else 0)):
        directory = os.path.dirname(directory)  # noqa: PTH120
    return directory


def _in_main(inner: Any, qualname: str) -> Reference:
    main = sys.modules.get(MAIN)
    spec = getattr(main, "__spec__", None)
    file = getattr(main, "__file__", None)
    source = getattr(getattr(inner, "__code__", None), "co_filename", file)
    if not isinstance(file, str) or not isinstance(source, str) or not _is_file(file, source):
        raise _no_name(
            f"{qualname!r}",
            "it was typed at a prompt or in a notebook, where no other process finds it",
            "put it into a .py file and import it from there",
        )
    if spec is not None:  # python -m package.module
        return Reference(_checked(spec.name, MAIN, qualname, inner), directory_of(MAIN))
    name = os.path.basename(file)  # noqa: PTH119
    return Reference(_checked(name, MAIN, qualname, inner), directory_of(MAIN))


def _checked(shown: str, module_name: str, qualname: str, inner: Any) -> str:
    """``shown:qualname``, once it is certain that this name leads to the function."""
    target = f"{shown}:{qualname}"
    found: Any = sys.modules.get(module_name)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    if any(layer is inner for layer in _layers(found)):
        return target
    if found is None:
        why, hint = f"there is no {target}", f"keep it under the name {qualname!r} at the top level of its module"
    else:
        why, hint = f"{target} is something else", "give every task a name of its own; a later definition took this one"
    raise _no_name(f"{qualname!r}", why, hint)


def _layers(function: Any) -> Iterator[Any]:
    for _ in range(_WRAPPERS_MAX):
        yield function
        if not hasattr(function, "__wrapped__"):
            return
        function = function.__wrapped__


def _is_file(file: str, source: str) -> bool:
    # With `python -i` a script's file is there, and yet functions are typed after it.
    return os.path.isfile(file) and os.path.abspath(file) == os.path.abspath(source)  # noqa: PTH100, PTH113


def _no_name(what: str, why: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{what} cannot be run by a worker: {why}", hint=hint)
