"""The `detent` command. One module for each command, loaded when it is used; `app` is the way in."""

from __future__ import annotations

import atexit
import gc as garbage  # Loading the command `gc` puts its module under that name here.
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

ALLOCATIONS_BEFORE_COLLECTION = 200_000
"""A command makes many small objects and ends: looking through them every 700 allocations costs a tenth of its time."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and end the process with its exit code."""
    garbage.set_threshold(ALLOCATIONS_BEFORE_COLLECTION, 10, 10)
    from detent.cli.app import run  # noqa: PLC0415 - `import detent.cli` stays free

    _leave(run(arguments))


def _leave(code: int) -> NoReturn:
    """End the process: wait for threads, call what was registered for the end, write what is left to be written, and go.

    The interpreter would then take four hundred modules apart, object by object, and look for garbage once more: 10 ms for nothing.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what the interpreter calls first
    atexit._run_exitfuncs()  # noqa: SLF001 - and then this
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # None, or closed, or its reader has gone: told by `run`.
            stream.flush()
    os._exit(code)
