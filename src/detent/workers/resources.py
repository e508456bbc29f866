"""What the processes that work on one home take of what it has: counted things such as ``gpu``, shared by all of them.

The home's settings say how much there is. Each resource has a file, and a process that takes some of it locks so many of its
bytes; the bytes themselves are never written. A lock ends with the process that took it, however that ends, so nothing is
ever left taken. Nothing waits here: who does not get all of what it needs gets nothing, and asks again.

``cpu`` is not among them: it is the workers of one process, and that process counts them (`resource_gate`).
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from detent.canon.amounts import CPU
from detent.store.no_follow import open_no_follow

DIRECTORY: Final = "resources"

# As <fcntl.h> has it on Linux: type, whence, start, length, process. The process must be 0: the lock is the descriptor's.
_LOCK: Final = struct.Struct("hhqqi4x")

Range = tuple[int, int]
"""Of bytes: the first, and the first behind it."""


class Resources:
    """What one process has taken of a home's resources. Only one thread may use it."""

    def __init__(self, home: Path, totals: Mapping[str, int], workers: int) -> None:
        self.totals: Mapping[str, int] = {CPU: workers, **totals}
        """How much there is of each."""
        self._directory = home / DIRECTORY
        self._descriptors: dict[str, int] = {}
        self._taken: dict[int, dict[str, list[Range]]] = {}

    def take(self, holder: int, needs: Mapping[str, int]) -> str | None:
        """Take everything that is needed, under a number to give it back by; else nothing, and the one that is short."""
        taken: dict[str, list[Range]] = {}
        for name in sorted(needs):
            ranges = self._take(name, needs[name])
            if ranges is None:
                self._release(taken)
                return name
            taken[name] = ranges
        self._taken[holder] = taken
        return None

    def give(self, holder: int) -> None:
        """Give back what was taken under a number; nothing when nothing was."""
        self._release(self._taken.pop(holder, {}))

    def close(self) -> None:
        """Give everything back."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
        self._taken.clear()

    def _take(self, name: str, amount: int) -> list[Range] | None:
        descriptor = self._descriptor(name)
        got: list[Range] = []
        for start, end in self._free(descriptor, name):
            part = (start, min(end, start + amount - sum(after - before for before, after in got)))
            if not _lock(descriptor, fcntl.F_WRLCK, part):
                break  # Another process was quicker.
            got.append(part)
            if sum(after - before for before, after in got) == amount:
                return got
        for part in got:
            _lock(descriptor, fcntl.F_UNLCK, part)
        return None

    def _free(self, descriptor: int, name: str) -> Iterator[Range]:
        """The free parts, in order. Our own locks do not hinder us, so they are counted here."""
        own = sorted(part for taken in self._taken.values() for part in taken.get(name, ()))
        start = 0
        for before, after in [*own, (self.totals[name], self.totals[name])]:
            yield from _unlocked(descriptor, start, before)
            start = after

    def _release(self, taken: Mapping[str, list[Range]]) -> None:
        for name, parts in taken.items():
            for part in parts:
                _lock(self._descriptors[name], fcntl.F_UNLCK, part)

    def _descriptor(self, name: str) -> int:
        if name not in self._descriptors:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            self._descriptors[name] = open_no_follow(self._directory / name, os.O_RDWR | os.O_CREAT)
        return self._descriptors[name]


def _unlocked(descriptor: int, start: int, end: int) -> Iterator[Range]:
    while start < end:
        found = _LOCK.unpack(
            fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, end - start, 0))
        )
        if found[0] == fcntl.F_UNLCK:
            yield start, end
            return
        # The system names any lock in the way, not the first.
        yield from _unlocked(descriptor, start, found[2])
        start = found[2] + found[3]


def _lock(descriptor: int, kind: int, part: Range) -> bool:
    start, end = part
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, start, end - start, 0))
    except BlockingIOError:
        return False
    return True
