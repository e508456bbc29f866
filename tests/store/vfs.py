"""File systems under SQLite that fail on command or remember everything: the very driver we ship, on worse disks.

Both stand between SQLite and the machine's own file system. Files are opened by the real one, so locks and the shared
memory of the WAL work as ever; what changes is what becomes of a write, a truncation, a sync and a deletion.
"""

# ruff: noqa: N802  # methods are called as SQLite calls them

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was done to a file that holds data: ``create``, ``write``, ``truncate``, ``sync`` or ``delete``."""

    act: str
    file: str
    offset: int = 0
    """Where a write begins, or the length a truncation leaves."""
    data: bytes = b""


class _File(apsw.VFSFile):
    def __init__(self, vfs: Vfs, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._vfs = vfs
        self._name = _base_name(name)

    def xWrite(self, data: Any, offset: int) -> None:
        event = Event("write", self._name, offset, bytes(data))
        whole = self._vfs.before(event)
        if whole is not None:
            super().xWrite(event.data[:whole], offset)
            raise apsw.exception_for(self._vfs.code)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._vfs.fail_or_go_on(Event("truncate", self._name, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        # Nothing in these tests has to survive a real power cut, so the disk is left alone.
        self._vfs.fail_or_go_on(Event("sync", self._name))


class Vfs(apsw.VFS):
    """Passes everything on, after telling ``before`` and doing as it says."""

    code = apsw.SQLITE_IOERR
    read_only = False
    naps = 0
    """How often SQLite waited for a lock."""

    def __init__(self) -> None:
        self.name = f"test-{next(_numbers)}"
        super().__init__(self.name, "")

    def before(self, event: Event) -> int | None:
        """None lets the event happen; a number fails it with ``code`` after that many bytes of it."""
        raise NotImplementedError

    def fail_or_go_on(self, event: Event) -> None:
        if self.before(event) is not None:
            raise apsw.exception_for(self.code)

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        if self.read_only and flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        existed = Path(_path(name)).exists()
        file = _File(self, name, flags)
        if not existed:
            self.fail_or_go_on(Event("create", _base_name(name)))
        return file

    def xSleep(self, microseconds: int) -> int:
        self.naps += 1
        return microseconds

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self.fail_or_go_on(Event("delete", Path(filename).name))
        super().xDelete(filename, syncdir)


class FaultyVfs(Vfs):
    """Fails where it is told to: ``arm`` before the deed, ``disarm`` after it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Event] = []
        self._fails: Callable[[int, Event], int | None] = lambda _number, _event: None

    def arm(self, code: int, fails: Callable[[int, Event], int | None]) -> None:
        """From now on events are counted from 0; ``fails`` says which of them fail, and after how many bytes."""
        self.code = code
        self.seen = []
        self._fails = fails

    def disarm(self) -> None:
        self._fails = lambda _number, _event: None

    def before(self, event: Event) -> int | None:
        self.seen.append(event)
        return self._fails(len(self.seen) - 1, event)


class RecordingVfs(Vfs):
    """Lets everything happen and writes it down."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def before(self, event: Event) -> int | None:
        self.events.append(event)
        return None


def _path(name: Any) -> str:
    return str(name.filename() if isinstance(name, apsw.URIFilename) else name)


def _base_name(name: Any) -> str:
    return Path(_path(name)).name
