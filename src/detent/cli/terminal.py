"""The terminal: exit codes, colours and sizes. One place for all commands; `detent.pages.text` has what is safe to show."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from shutil import get_terminal_size
from typing import Final, TextIO

from detent.errors import EXIT_FAILED, EXIT_INTERRUPTED
from detent.pages.text import BAD, FAINT, GOOD, NOTE, STRONG, WARN
from detent.words.states import (
    BLOCKED,
    CANCELLED,
    FAILED,
    READY,
    REUSED,
    SKIPPED,
    SUCCEEDED,
    WAITING,
    word_of,
)

EXIT_CODES: Final = """\b
Exit codes:
  0    done
  1    the work failed, or verify found something
  2    bad usage or invalid input
  3    refused
  4    the store or a service is unavailable
  130  interrupted"""
"""For the end of help pages; `detent.errors` has the numbers."""

_ANSI: Final[Mapping[str, str]] = {GOOD: "32", BAD: "31", WARN: "33", NOTE: "36", STRONG: "1", FAINT: "2"}

STATE_MARKS: Final[dict[str, str]] = {
    WAITING: "·",
    READY: "·",
    SUCCEEDED: "✓",
    REUSED: "✓",
    FAILED: "✗",
    SKIPPED: "-",
    BLOCKED: "-",
    CANCELLED: "-",
}
"""What stands before a step in the block of progress; one that runs has a spinner."""
STATE_MARKS_ASCII: Final[Mapping[str, str]] = STATE_MARKS | {
    WAITING: ".",
    READY: ".",
    SUCCEEDED: "+",
    REUSED: "+",
    FAILED: "x",
}
"""The same for terminals that do not speak UTF-8."""

COLUMNS_DEFAULT, ROWS_DEFAULT = 80, 24


def run_exit_code(status: str) -> int:
    """The exit code of a command that drove a run; one that was cancelled or left as it stood was interrupted."""
    return {SUCCEEDED: 0, FAILED: EXIT_FAILED}.get(word_of(status), EXIT_INTERRUPTED)


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal; a closed one is none."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def wants_colour(environment: Mapping[str, str]) -> bool:
    """Whether standard output is a terminal that takes colours."""
    if environment.get("NO_COLOR") or environment.get("TERM") == "dumb":
        return False
    return is_terminal(sys.stdout)


def takes_block(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal that can move its cursor, and its user wants that."""
    if environment.get("NO_COLOR") or environment.get("TERM", "dumb") == "dumb":
        return False
    return is_terminal(stream)


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Columns and rows of the terminal behind a stream; the usual ones where there is none."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return COLUMNS_DEFAULT, ROWS_DEFAULT
    return found.columns or COLUMNS_DEFAULT, found.lines or ROWS_DEFAULT


def page_columns() -> int:
    """Columns of standard output, as ``COLUMNS`` or the terminal says; none for a pipe, which takes lines of any length."""
    return get_terminal_size().columns if is_terminal(sys.stdout) else 0


def coloured(text: str, style: str) -> str:
    """A text in the colour of its style; without one, as it is."""
    return f"\x1b[{_ANSI[style]}m{text}\x1b[0m" if style and text else text
