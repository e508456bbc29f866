"""The `detent` command. One module for each command, loaded when it is used; `app` is the way in."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and end the process with its exit code."""
    from detent.cli.app import run  # noqa: PLC0415 - `import detent.cli` stays free

    raise SystemExit(run(arguments))
