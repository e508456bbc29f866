"""The user's own code, seen from outside: where in it something went wrong, and whether it is only being loaded.

A worker imports a script to find its tasks, and `detent run` imports it to find its flow. A script that starts a run at its
top level, outside ``if __name__ == "__main__":``, would thereby start another run inside the first, which waits for itself.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from detent.errors import InvalidInput

MODULE: Final = "<module>"
IMPORTING: Final = "<frozen importlib"

_loading: list[bool] = []
"""One element for each file that this process is loading only to look for what is in it."""


def place_of(exc: BaseException) -> str | None:
    """The last line of the user's own that an exception came through: ``pipeline.py:12``. None when there is none."""
    from detent.executor.plain.telling import is_library  # noqa: PLC0415 - for mistakes alone

    if isinstance(exc, SyntaxError) and exc.filename is not None and exc.lineno is not None:
        return f"{_shown(exc.filename)}:{exc.lineno}"
    for frame in reversed(traceback.extract_tb(exc.__traceback__)):
        if not is_library(frame.filename):
            return f"{_shown(frame.filename)}:{frame.lineno}"
    return None


@contextmanager
def loading() -> Iterator[None]:
    """Within the block files are loaded to see what is in them, and none of them may start a run."""
    _loading.append(True)
    try:
        yield
    finally:
        _loading.pop()


def refuse_while_loading(what: str) -> None:
    """Raise `InvalidInput` if ``what`` is done at the top level of a file that is only being loaded.

    A task may do it, and so may a program that imports a module of its own: only a worker, and a command that looks for a
    flow, load files for what is in them.
    """
    from detent.executor.plain.current import content  # noqa: PLC0415 - tells a worker from any other process

    if not _loading and not content():
        return
    frame = sys._getframe(1)  # noqa: SLF001 - only the frames tell which module is being imported
    while frame is not None:
        if frame.f_code.co_name == MODULE and _is_imported(frame):
            file = _shown(frame.f_code.co_filename)
            message = (
                f"{file}:{frame.f_lineno} {what} whenever {file} is imported, and workers import it to find its tasks"
            )
            raise InvalidInput(f'{message}; put that line under `if __name__ == "__main__":`')
        frame = frame.f_back  # type: ignore[assignment]


def _is_imported(frame: FrameType) -> bool:
    """Whether a module's own lines run because it is imported, and not because it is the program itself."""
    caller = frame.f_back
    return caller is not None and caller.f_code.co_filename.startswith(IMPORTING)


def _shown(file: str) -> str:
    """A path as people would type it here."""
    path = os.path.abspath(file)  # noqa: PTH100 - links stay as they are written
    here = os.path.join(os.getcwd(), "")  # noqa: PTH109, PTH118
    return path.removeprefix(here)
