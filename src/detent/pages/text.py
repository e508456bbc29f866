"""Text that is safe to show, its styles, and its width. Nothing here touches a terminal.

Names come from users, and bundles from strangers. What they wrote reaches a terminal only with its control characters
spelled out, so that no id can move the cursor, hide a line or reverse the reading order.

Counts, sizes and durations are words that other rooms write, too: `detent.words.quantities`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from unicodedata import category, east_asian_width

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
)

GOOD, BAD, WARN, NOTE, STRONG, FAINT = "good", "bad", "warn", "note", "strong", "faint"
"""The styles that a piece of text may have."""
STYLES: Final = frozenset({GOOD, BAD, WARN, NOTE, STRONG, FAINT})
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

CUT: Final = "…"
"""Where a text was cut off."""


_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BEGINNING_CHARS: Final = 8
_RANDOM_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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
