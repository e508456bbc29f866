"""The `detent` command. One module for each command, loaded when it is used; `app` is the way in."""

from __future__ import annotations

import gc as garbage  # Loading the command `gc` puts its module under that name here.
from collections.abc import Sequence

ALLOCATIONS_BEFORE_COLLECTION = 200_000
"""A command makes many small objects and ends: looking through them every 700 allocations costs a tenth of its time."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and end the process with its exit code."""
    garbage.set_threshold(ALLOCATIONS_BEFORE_COLLECTION, 10, 10)
    from detent.cli.app import run  # noqa: PLC0415 - `import detent.cli` stays free

    code = run(arguments)
    garbage.freeze()  # The interpreter looks through everything once more before it goes; there is nothing to be found.
    raise SystemExit(code)
