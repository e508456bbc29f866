"""The few calls through which a destination's file changes, and what their failures mean to a run.

They stand apart so that a test can fail them, end the process between them, or cut the power.

What is cut off a file is kept beside it until the run has written the very same bytes again.

Nearly always it is the run's own last batch, which comes again as it was, and the copy goes. If it does not come again, it may
belong to another program: then the copy stays, as ``FILE.cut-OFFSET``, for a person to look at.
"""

from __future__ import annotations

import errno
import os
import re
from itertools import count
from pathlib import Path
from typing import Final

from detent.errors import InvalidInput
from detent.store.files import DISK as STORE_DISK
from detent.targets.api import CommitFailed


class Disk:
    """The machine's own."""

    def write(self, handle: int, data: memoryview) -> int:
        """Append some of the bytes; says how many."""
        return os.write(handle, data)

    def sync(self, handle: int) -> None:
        """Return when what was written, or cut off, would survive a power cut."""
        os.fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file to a length."""
        os.ftruncate(handle, size)

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory would survive a power cut."""
        STORE_DISK.sync_directory(path)


DISK: Final = Disk()

_HINTS: Final = {
    errno.ENOENT: "make its directory first, or correct the name",
    errno.ENOTDIR: "a part of the name before the last one is a file",
    errno.EISDIR: "a directory has this name: choose another one",
    errno.ELOOP: "it is a symbolic link: name the file that it leads to",
    errno.EACCES: "check the permissions of the file and its directory",
    errno.EPERM: "check the permissions and the attributes of the file",
    errno.EROFS: "its file system is read-only: choose another place",
    errno.EFBIG: "the file is larger than a limit allows: see `ulimit -f` and the file system's own",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EINVAL: "choose a plain file name",
    errno.ENOSPC: "free some space on its disk",
    errno.EDQUOT: "free some of your quota on its disk",
}
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Failures in the table that may be gone a minute later, as may all that are not in it."""


def failed(exc: OSError, spec: str, path: Path) -> CommitFailed:
    """What a failed call on the destination's file means; raise it ``from`` that one."""
    return CommitFailed(
        f"{shown(path)} cannot be written: {exc.strerror or exc}",
        spec=spec,
        hint=_HINTS.get(exc.errno or 0, "check the disk and its mount; the system log says more"),
        details={"path": shown(path), "errno": exc.errno},
        retryable=exc.errno not in _HINTS or exc.errno in _PASSING,
    )


def insist_on_directory(spec: str, path: Path) -> None:
    """Refuse, with `InvalidInput`, a destination in a directory that is not there."""
    if not path.parent.is_dir():
        raise InvalidInput(
            f"the destination {spec!r:.200} lies in {shown(path.parent)}, which is not a directory",
            hint=_HINTS[errno.ENOENT],
            details={"target": spec},
        )


def shown(path: Path) -> str:
    """A path as text that can be printed; bytes of its name that are not UTF-8 are escaped."""
    return os.fsencode(path).decode(errors="backslashreplace")


_PIECE_BYTES: Final = 1 << 20
_COPIES_MAX: Final = 1000
"""Copies of one offset; a run that is killed that often in one place needs a person."""


class SetAside:
    """The copies of what was ever cut off a file and did not come again: of this resume and of earlier ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._copies = _copies(path)

    def keep(self, handle: int, offset: int, size: int) -> None:
        """Copy what lies between ``offset`` and ``size``; it is durable when this returns."""
        copy, target = _create(self._path, offset)
        try:
            for start in range(offset, size, _PIECE_BYTES):
                _write_all(target, os.pread(handle, min(_PIECE_BYTES, size - start), start))
            os.fsync(target)
        finally:
            os.close(target)
        STORE_DISK.sync_directory(self._path.parent)
        self._copies.append((offset, copy))

    def compare(self, handle: int, length: int) -> None:
        """Remove the copies whose bytes have been written again, now that the file has this length."""
        waiting = []
        for offset, copy in self._copies:
            try:
                size = copy.stat().st_size
                if offset + size > length:
                    waiting.append((offset, copy))
                elif _is_equal(handle, offset, copy, size):
                    copy.unlink()
            except OSError:  # A copy too many does no harm.
                continue
        self._copies = waiting


def _copies(path: Path) -> list[tuple[int, Path]]:
    name = re.compile(re.escape(path.name) + r"\.cut-([0-9]{1,19})(-[0-9]{1,4})?")
    found = ((name.fullmatch(entry.name), entry) for entry in path.parent.iterdir())
    return sorted((int(match[1]), entry) for match, entry in found if match)


def _create(path: Path, offset: int) -> tuple[Path, int]:
    for number in count(1):
        copy = path.with_name(f"{path.name}.cut-{offset}" + (f"-{number}" if number > 1 else ""))
        try:
            return copy, os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if number == _COPIES_MAX:
                raise
    raise AssertionError  # count() has no end


def _write_all(target: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(target, rest) :]


def _is_equal(handle: int, offset: int, copy: Path, size: int) -> bool:
    with copy.open("rb") as file:
        for start in range(0, size, _PIECE_BYTES):
            piece = file.read(_PIECE_BYTES)
            if piece != os.pread(handle, len(piece), offset + start):
                return False
    return True
