"""Which names an output file may have: those that mean one plain file on every system and in every listing."""

from __future__ import annotations

import os
import unicodedata
from typing import Final, NamedTuple

from detent.canon.look_alike import has_hidden
from detent.jobs.category import ErrorCategory

NAME_BYTES_MAX: Final = 512
PART_BYTES_MAX: Final = 200
PARTS_MAX: Final = 16

_FORBIDDEN: Final = frozenset('\\<>:"|?*')
_DEVICES: Final = frozenset(
    (
        *("con", "prn", "aux", "nul", "conin$", "conout$", "clock$"),
        *(f"{port}{digit}" for port in ("com", "lpt") for digit in "0123456789¹²³"),
    )
)


class NameFault(NamedTuple):
    """Why a name is refused: one that points elsewhere is an attempt, any other is just not valid."""

    category: ErrorCategory
    why: str


def name_fault(name: str) -> NameFault | None:
    """Say what is wrong with an output file's name, relative to the output directory; None for a good one."""
    parts = name.replace("\\", "/").split("/")
    if name.startswith("/") or ".." in parts:
        return NameFault(ErrorCategory.SANDBOX_VIOLATION, "points outside the output directory")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return _invalid("is not UTF-8")
    if size > NAME_BYTES_MAX:
        return _invalid(f"is longer than {NAME_BYTES_MAX} bytes")
    if unicodedata.normalize("NFC", name) != name:
        return _invalid("is not in Unicode's composed form")
    if len(parts) > PARTS_MAX:
        return _invalid(f"has more than {PARTS_MAX} parts")
    for part in name.split("/"):
        if why := _part_fault(part):
            return _invalid(why)
    return None


def alike_fault(earlier: str) -> NameFault:
    """What is wrong with a name that a reader, or a file system without case, cannot tell from an earlier one."""
    return _invalid(f"cannot be told from {earlier!r}: they differ only in case, or in characters that look alike")


def link_fault(descriptor: int) -> NameFault | None:
    """What is wrong with an output file that has another name, too: what it holds may be no output at all."""
    links = os.fstat(descriptor).st_nlink
    return None if links <= 1 else _invalid(f"is one of {links} links to one file; copy the file instead")


def _invalid(why: str) -> NameFault:
    return NameFault(ErrorCategory.VALIDATION_ERROR, why)


def _part_fault(part: str) -> str | None:
    if part in {"", "."}:
        return "has an empty part"
    if len(part.encode()) > PART_BYTES_MAX:
        return f"has a part longer than {PART_BYTES_MAX} bytes"
    if has_hidden(part):
        return "has a character that cannot be seen"
    if _FORBIDDEN & set(part):
        return "has a character that some systems give a meaning"
    if part[0] in "-. " or part[-1] in ". ":
        return "begins or ends with a character that hides it or changes what it means"
    if part.partition(".")[0].rstrip().casefold() in _DEVICES:
        return "is the name of a device on some systems"
    return None
