"""The few calls through which a destination's file changes, and what their failures mean to a run.

They stand apart so that a test can fail them, end the process between them, or cut the power.
"""

from __future__ import annotations

import errno
import os
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
