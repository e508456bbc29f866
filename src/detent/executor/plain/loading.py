"""Finds the user's function by name, once, and notices when the code that it was made from has changed."""

# pathlib would be the largest thing that a worker loads.
# ruff: noqa: PTH100, PTH113, PTH116, PTH118, PTH119, PTH120

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from detent.executor.own_targets import HELD_BY
from detent.executor.plain.telling import is_library

CHECK_SECONDS = 0.2
"""Between two looks at the files; a change is seen by the first task that begins this long after it."""
_CLOCK_NS = 10_000_000
"""How far the clock of file systems may be behind."""
_SCRIPT_PREFIX = "detent_script_"
_CODES_MAX = 4096


class LoadFailed(Exception):
    """There is no such function; ``cause`` is what its module raised, if it was that."""

    def __init__(self, message: str, cause: BaseException | None = None, source: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.source = source


class Loaded(NamedTuple):
    """A function to be called, and the file it is written in."""

    function: Callable[..., Any]
    source: str | None


class Loader:
    """The functions that this worker has loaded.

    Modules of two projects may have the same name, so those of a project are put away while another one's work runs.
    """

    def __init__(self) -> None:
        self._loaded: dict[tuple[str | None, str], Loaded] = {}
        self._base: str | None = None
        self._put_away: dict[str | None, dict[str, Any]] = {}
        self._paths = list(sys.path)
        self._seen: dict[str, tuple[int, int]] = {}
        self._modules_count = -1
        self._looked = time.monotonic()
        self._looked_ns = time.time_ns()
        self._changed_already = False
        self._current: set[tuple[str | None, str, str]] = set()
        """What was asked for, by target and code, since a look at the files found nothing changed."""

    def load(self, base: str | None, target: str) -> Loaded:
        """The function; raises `LoadFailed`."""
        if base != self._base:
            self._move(base)
        known = self._loaded.get((base, target))
        if known is None:
            known = self._loaded[base, target] = self._find(base, target)
        return known

    def leave(self) -> None:
        """Put the modules of the last project away, and the path back: this process goes on with something else."""
        self._move(None)

    def has_changed(self, base: str | None, target: str, code: str | None) -> bool:
        """Whether a file of the user's that was loaded is another by now.

        Looks at the files when it is asked for code that it was not asked for before, or that has no name; otherwise now and
        then, since a submitter that knows of an edit names other code.
        """
        if not self._loaded:
            return False
        if self._changed_already:
            return True
        now = time.monotonic()
        if code is not None and (base, target, code) in self._current and now - self._looked < CHECK_SECONDS:
            return False
        self._looked = now
        if self._look():
            return True
        if code is not None:
            if len(self._current) >= _CODES_MAX:
                self._current.clear()
            self._current.add((base, target, code))
        return False

    def _look(self) -> bool:
        since, self._looked_ns = self._looked_ns, time.time_ns()
        if len(sys.modules) != self._modules_count:
            self._modules_count = len(sys.modules)
            for module in list(sys.modules.values()):
                file = getattr(module, "__file__", None)
                if type(file) is not str or file in self._seen or is_library(file):
                    continue
                self._seen[file] = mark = _mark(file)
                if mark[0] > since:
                    return True  # Written since the last look: perhaps before it was loaded, perhaps after.
        return any(_mark(file) != mark for file, mark in self._seen.items())

    def _find(self, base: str | None, target: str) -> Loaded:
        where, _, name = target.rpartition(":")
        where = HELD_BY.get(target, where)
        if not where or not name:
            raise LoadFailed(f"{target!r} names no function: it must be module:function or path/file.py:function")
        source = None
        self._looked_ns = time.time_ns() - _CLOCK_NS
        try:
            module = self._script(base, where) if where.endswith(".py") else importlib.import_module(where)
            source = getattr(module, "__file__", None)
            found: Any = module
            for part in name.split("."):
                found = getattr(found, part)
        except AttributeError as exc:
            if source is None:
                raise LoadFailed(f"cannot import {where!r}", exc, self._source(base, where)) from exc
            raise LoadFailed(f"{source} has no {name!r}, which {target!r} asks for") from exc
        except LoadFailed:
            raise
        except BaseException as exc:
            where_from = f" from {base}" if base else ""
            raise LoadFailed(f"cannot import {where!r}{where_from}", exc, self._source(base, where)) from exc
        if type(found).__module__ == "detent.sdk.task":
            found = found.__wrapped__
        if not callable(found):
            from detent.canon.show import a_or_an  # noqa: PLC0415 - for mistakes alone

            raise LoadFailed(f"{target!r} is {a_or_an(type(found))}, which cannot be called")
        self._changed_already = self._look()
        code = getattr(found, "__code__", None)
        return Loaded(found, getattr(code, "co_filename", source))

    def _script(self, base: str | None, where: str) -> Any:
        """A file as a module. Its name is not ``__main__``, so what it does only as a script is not done here (X-179)."""
        from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415 - only for scripts

        path = os.path.abspath(os.path.join(base or "", where))
        if not os.path.isfile(path):
            raise LoadFailed(f"there is no file {path}")
        name = os.path.basename(path)[: -len(".py")]
        if os.path.dirname(path) != base or not name.isidentifier() or name in sys.stdlib_module_names:
            name = _SCRIPT_PREFIX + path
        known = sys.modules.get(name)
        if known is not None and getattr(known, "__file__", None) == path:
            return known
        if known is not None:
            name = _SCRIPT_PREFIX + path
        spec = spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise LoadFailed(f"{path} is no Python file")
        module = module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules.pop(name, None)
            raise
        return module

    def _source(self, base: str | None, where: str) -> str | None:
        path = where if where.endswith(".py") else where.replace(".", "/") + ".py"
        path = os.path.abspath(os.path.join(base or "", path))
        return path if os.path.isfile(path) else None

    def _move(self, base: str | None) -> None:
        """Make another project's modules the ones that are found."""
        if self._base is not None:
            prefix = self._base.rstrip("/") + "/"
            away = {}
            for name, module in list(sys.modules.items()):
                file = getattr(module, "__file__", None)
                if type(file) is str and file.startswith(prefix) and not is_library(file):
                    away[name] = sys.modules.pop(name)
            self._put_away[self._base] = away
        sys.path[:] = self._paths if base is None else [base, *(path for path in self._paths if path != base)]
        sys.modules.update(self._put_away.pop(base, {}))
        importlib.invalidate_caches()
        self._base = base
        self._modules_count = -1


def distrust_young_bytecode() -> None:
    """Have this process compile source that may have been edited since it was compiled last.

    Python takes compiled code for current if its source has the same size and was changed in the same second. So none is
    written here, and none is read that is not younger than its source.
    """
    # What importlib itself is made of, and loaded by every Python; its public face would be loaded for this alone.
    from _frozen_importlib_external import SourceFileLoader, cache_from_source  # noqa: PLC0415

    sys.dont_write_bytecode = True
    stats_of = SourceFileLoader.path_stats

    def path_stats(self: SourceFileLoader, path: str) -> Any:
        if not is_library(path) and _mark(cache_from_source(path))[0] <= _mark(path)[0] + _CLOCK_NS:
            raise OSError(f"what was compiled of {path} may be of another source")
        return stats_of(self, path)

    SourceFileLoader.path_stats = path_stats  # type: ignore[method-assign]


def _mark(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size
