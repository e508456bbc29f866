"""The functions of an ordered run, looked for before there is one: a name that is wrong would fail every item of it."""

from __future__ import annotations

from detent.errors import InvalidInput
from detent.executor.plain.loading import Loader, LoadFailed
from detent.reuse.ingredients import CodeReader


def insist_on_function(target: str, base: str | None) -> None:
    """Refuse, with `InvalidInput`, a function that no worker could load.

    Where the project's source defines it, nothing is imported. Names that come about otherwise, by a package or while a module
    is loaded, are loaded here as a worker does it.
    """
    if CodeReader(base).digest(target).parts:
        return
    loader = Loader()
    try:
        loader.load(base, target)
    except LoadFailed as exc:
        because = "" if exc.cause is None else f": {type(exc.cause).__name__}: {exc.cause}"
        hint = "name a function of a module or of a file: module:function or path/file.py:function"
        raise InvalidInput(f"{exc.message}{because}", hint=hint, details={"target": target}) from exc
    finally:
        loader.leave()
