"""Plain text for terminals and pipes: escaping, sizes, times, columns.

Names come from users, and bundles from strangers. What they wrote reaches a terminal only with its control characters
spelled out, so that no id can move the cursor, hide a line or reverse the reading order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from unicodedata import category, east_asian_width

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BEGINNING_CHARS = 8
_RANDOM_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


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
    if text.isascii():
        return len(text)
    return sum(
        0 if category(character) in {"Mn", "Me"} else 2 if east_asian_width(character) in "WF" else 1
        for character in text
    )


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


def size_text(size_bytes: int) -> str:
    """A number of bytes for people."""
    value = float(size_bytes)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 job`, `2 jobs`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def short(digest_text: str, digits: int = 12) -> str:
    """The beginning of a digest's text, enough to recognise it."""
    head, _, hexadecimal = digest_text.rpartition(":")
    return f"{head}:{hexadecimal[:digits]}…" if head else f"{hexadecimal[:digits]}…"


def beginning(job_id: str) -> str:
    """The beginning of a random id, which every command takes for all of it; an id with a meaning stays whole."""
    return job_id[:_BEGINNING_CHARS] if _RANDOM_ID.fullmatch(job_id) else job_id


def time_text(iso: str) -> str:
    """A moment for people: the ISO time without the letters between."""
    return iso.replace("T", " ").removesuffix("Z")


def _spelled(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
