"""Numbers as people read them: counts with their nouns, sizes in bytes, lengths of time and moments.

Three forms of a length of time, each for its place: `duration_text` for sentences (``12 min 3 s``), `short_duration` for
columns (``12m03s``) and `age_text` for what is long past (``12m``). How contracts write durations, and how they are read
back, is decided by `detent.contract.words`.
"""

from __future__ import annotations

from typing import Final

_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_AGE_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


def count_text(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: ``1 job``, ``2 jobs``, ``1,000 jobs``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size_text(size_bytes: int) -> str:
    """A number of bytes: ``512 B``, ``1.5 KiB``."""
    value = float(size_bytes)
    for unit in _SIZE_UNITS:
        if value < 1024 or unit == _SIZE_UNITS[-1]:
            break
        value /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{value:.1f} {unit}"


def duration_text(ms: int, *, whole_seconds: bool = False) -> str:
    """A length of time in a sentence: ``250 ms``, ``1.5 s``, ``12 min 3 s``, ``2 h 5 min``, ``3 d 4 h``.

    ``whole_seconds``: rounded up to a second, for a time that is still to come (``2 s``).
    """
    if whole_seconds:
        ms = -(-ms // 1_000) * 1_000
    if ms < 1_000 and not whole_seconds:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms // 1_000} s" if whole_seconds else f"{ms / 1_000:.1f} s"
    minutes, seconds = divmod(ms // 1_000, 60)
    if minutes < 60:
        return _two(minutes, "min", seconds, "s")
    hours, minutes = divmod(minutes, 60)
    return _two(hours, "h", minutes, "min") if hours < 48 else _two(hours // 24, "d", hours % 24, "h")


def short_duration(ms: int) -> str:
    """A length of time in at most six characters: ``0.4s``, ``59.9s``, ``12m03s``, ``3h07m``, ``12d03h``."""
    if ms < 59_950:
        return f"{ms / 1000:.1f}s"
    seconds = round(ms / 1000)
    if seconds < 3_600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    if seconds < 86_400:
        return f"{seconds // 3_600}h{seconds // 60 % 60:02d}m"
    return f"{seconds // 86_400}d{seconds // 3_600 % 24:02d}h"


def age_text(ms: int) -> str:
    """How long ago something was, in its largest unit: ``5s``, ``3m``, ``2h``, ``40d``; a time to come counts as now."""
    seconds = max(0, ms) // 1_000
    for unit, size in _AGE_UNITS:
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def time_text(iso: str) -> str:
    """A moment: the ISO time without the letters between."""
    return iso.replace("T", " ").removesuffix("Z")


def _two(large: int, unit: str, small: int, smaller_unit: str) -> str:
    return f"{large} {unit} {small} {smaller_unit}" if small else f"{large} {unit}"
