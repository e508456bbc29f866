"""Which shared libraries an interpreter loads from outside the system's own directories.

An interpreter that was relocated, built with ``--enable-shared`` or brought by an environment module finds some of its libraries
through ``LD_LIBRARY_PATH`` or a path written into its files. In a jail those places do not exist, so each library is looked up
here as the dynamic loader would and shown under a path of the jail's own. Only the libraries that are needed are shown: a
directory of ``LD_LIBRARY_PATH`` may hold anything.

Reads ELF files of 64 bits, the only ones that have a filter for system calls here; any other file needs nothing.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LIBRARIES_MAX: Final = 256
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_HEADER = struct.Struct("<16xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")


@dataclass(frozen=True, slots=True)
class Needs:
    """What one file asks of the dynamic loader."""

    names: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    """Directories to look in before all others (``DT_RPATH``)."""
    then: tuple[str, ...] = ()
    """Directories to look in after those of the environment (``DT_RUNPATH``)."""


def foreign_libraries(
    files: Iterable[Path], *, system: Iterable[Path], search: Iterable[Path] = (), last: Iterable[Path] = ()
) -> dict[str, Path]:
    """By the name it is asked for, every library that these files load, directly or not, from outside ``system``.

    ``search`` are the directories of the environment, ``last`` where to look for what is found nowhere else.
    """
    own = {path.resolve() for path in system}
    searched, finally_ = list(search), list(last)
    found: dict[str, Path] = {}
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        needs = needs_of(file)
        places = [*map(Path, needs.first), *searched, *map(Path, needs.then), *finally_]
        for name in needs.names:
            # Not `Path.is_file`, which raises for a place that may not be entered, such as where a moved interpreter was built.
            path = next((place / name for place in places if os.path.isfile(place / name)), None)  # noqa: PTH113
            if name in found or path is None or path.resolve().parent in own or len(found) == LIBRARIES_MAX:
                continue
            found[name] = path.resolve()
            waiting.append(path)
    return found


def needs_of(path: Path) -> Needs:
    """What a file asks for; nothing when it is not an ELF file of this kind."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, str(path.parent))
    except (OSError, ValueError, struct.error):
        return Needs()


def _read(data: mmap.mmap, origin: str) -> Needs:
    if data[:6] != b"\x7fELF\x02\x01":
        return Needs()
    *_, start, _, _, _, size, count = _HEADER.unpack_from(data)
    segments = [_SEGMENT.unpack_from(data, start + number * size) for number in range(count)]
    loaded = [(address, length, offset) for kind, _, offset, address, _, length, *_ in segments if kind == _PT_LOAD]
    dynamic = [data[offset : offset + length] for kind, _, offset, _, _, length, *_ in segments if kind == _PT_DYNAMIC]
    entries = [entry for block in dynamic for entry in _ENTRY.iter_unpack(block)]
    table = next((value for tag, value in entries if tag == _DT_STRTAB), -1)
    strings = next(
        (offset + table - address for address, length, offset in loaded if 0 <= table - address < length), None
    )
    if strings is None:
        return Needs()

    def texts(wanted: int) -> list[str]:
        starts = [strings + value for tag, value in entries if tag == wanted]
        return [data[start : data.find(b"\0", start)].decode("utf-8", "surrogateescape") for start in starts]

    def places(wanted: int) -> tuple[str, ...]:
        written = [part for text in texts(wanted) for part in text.split(":") if part]
        named = [part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin) for part in written]
        return tuple(part for part in named if part.startswith("/"))

    then = places(_DT_RUNPATH)
    return Needs(tuple(name for name in texts(_DT_NEEDED) if "/" not in name), () if then else places(_DT_RPATH), then)
