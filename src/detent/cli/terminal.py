"""The terminal: exit codes, styles and colours, widths, and text that is safe to show. One place for all commands.

Names come from users, and bundles from strangers. What they wrote reaches a terminal only with its control characters
spelled out, so that no id can move the cursor, hide a line or reverse the reading order.

Counts, sizes and durations are words that other rooms write, too: `detent.words.quantities`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from typing import Final, TextIO
from unicodedata import category, east_asian_width

from detent.errors import EXIT_FAILED, EXIT_INTERRUPTED
from detent.words.states import (
    BLOCKED,
    CANCELLED,
    FAILED,
    INTERRUPTED,
    READY,
    RETRYING,
    REUSED,
    RUNNING,
    SKIPPED,
    STOPPED,
    SUCCEEDED,
    TIMED_OUT,
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

GOOD, BAD, WARN, NOTE, STRONG, FAINT = "good", "bad", "warn", "note", "strong", "faint"
"""The styles that a piece of text may have."""
_ANSI: Final[Mapping[str, str]] = {GOOD: "32", BAD: "31", WARN: "33", NOTE: "36", STRONG: "1", FAINT: "2"}

STATE_STYLES: Final[Mapping[str, str]] = {
    WAITING: FAINT,
    READY: FAINT,
    RUNNING: NOTE,
    RETRYING: WARN,
    INTERRUPTED: WARN,
    STOPPED: WARN,
    SUCCEEDED: GOOD,
    REUSED: GOOD,
    FAILED: BAD,
    TIMED_OUT: BAD,
    SKIPPED: FAINT,
    BLOCKED: FAINT,
    CANCELLED: WARN,
}
"""How the states of jobs, runs and steps are coloured; the others stay plain."""
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
CUT: Final = "…"
"""Where a text was cut off."""

_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BEGINNING_CHARS: Final = 8
_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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


def safe(value: object) -> str:
    """A value as one line that does nothing to a terminal but fill it."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if category(character) not in _UNSAFE_CATEGORIES else _spelled(character) for character in text
    )


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def shortened(text: str, columns: int, cut: str = CUT) -> str:
    """A text in at most ``columns`` columns, ending in the sign for a cut if it had to be cut."""
    if width(text) <= columns:
        return text
    left = columns - width(cut)
    kept = []
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept.append(character)
    return ("".join(kept) + cut) if columns >= width(cut) else ""


def columns(rows: Sequence[Sequence[str]], *, gap: str = "  ") -> list[str]:
    """Rows as lines with aligned columns; the last column is not padded."""
    if not rows:
        return []
    widths = [max(width(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell + " " * (widths[place] - width(cell)) for place, cell in enumerate(row[:-1])]
        lines.append(gap.join([*cells, row[-1]]).rstrip())
    return lines


def short(digest_text: str, digits: int = 12) -> str:
    """The beginning of a digest's text, enough to recognise it."""
    head, _, hexadecimal = digest_text.rpartition(":")
    return f"{head}:{hexadecimal[:digits]}{CUT}" if head else f"{hexadecimal[:digits]}{CUT}"


def beginning(job_id: str) -> str:
    """The beginning of a random id, which every command takes for all of it; an id with a meaning stays whole."""
    return job_id[:_BEGINNING_CHARS] if _RANDOM_ID.fullmatch(job_id) else job_id


def _columns(character: str) -> int:
    if category(character) in {"Mn", "Me"}:
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
