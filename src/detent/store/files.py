"""The few things the content store asks of a file system, so that a test can replace one and cut its power.

A write is durable when its file has been synced, and a name when its directory has. Nothing else here promises anything.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from detent.store.no_follow import open_no_follow, untrusted_file

_DIRECT: Final = getattr(os, "O_DIRECT", 0)


class NewFile(Protocol):
    """A file being written for the first time."""

    def write(self, data: bytes | memoryview) -> None:
        """Append all of the bytes."""

    def sync(self) -> None:
        """Return when every byte written so far would survive a power cut."""

    def close(self) -> None:
        """Let go of the file."""


class Files(Protocol):
    """A file system."""

    def make_directory(self, path: Path) -> bool:
        """Make a directory for the owner alone; False when it was there."""

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        """Make a new file for the owner alone; the name must not exist.

        ``streamed`` says that much will be written, in whole blocks but for the last piece.
        """

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading."""

    def size(self, path: Path) -> int | None:
        """The file's length, or None when there is none."""

    def touch(self, path: Path) -> None:
        """Make a file look as young as a new one."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name at once, replacing what has it."""

    def remove(self, path: Path) -> bool:
        """Remove a file; False when there was none."""

    def names(self, directory: Path) -> list[str]:
        """What a directory holds, sorted; nothing when it is not one."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory would survive a power cut."""


class _NewDiskFile:
    """A file that is being written; a streamed one goes past the page cache where the file system lets it.

    Everything written here is synced before it is announced, so the cache would only copy the bytes once more and
    push out what others use. Measured: storing 1 GiB takes a third of the time that it takes through the cache.
    """

    def __init__(self, path: Path, *, streamed: bool = False) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Set afterwards: asked for in `open`, a file system that cannot do it makes the file and then fails.
        self._direct = streamed and self._set_direct(on=True)

    def write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._handle, rest) :]
            except OSError as exc:
                if not self._direct or exc.errno != errno.EINVAL:
                    raise
                # No whole blocks: the last piece, or a device whose blocks are larger than ours.
                self._direct = self._set_direct(on=False)

    def _set_direct(self, *, on: bool) -> bool:
        """Write past the page cache or not; gives back whether it does now."""
        flags = fcntl.fcntl(self._handle, fcntl.F_GETFL)
        try:
            fcntl.fcntl(self._handle, fcntl.F_SETFL, flags | _DIRECT if on else flags & ~_DIRECT)
        except OSError:
            return False
        return on and bool(_DIRECT)

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)


class DiskFiles:
    """The machine's own file system."""

    def make_directory(self, path: Path) -> bool:
        """Make a directory for the owner alone; False when it was there."""
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            return False
        return True

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        """Make a new file for the owner alone; the name must not exist."""
        return _NewDiskFile(path, streamed=streamed)

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading."""
        return os.fdopen(open_no_follow(path), "rb")

    def size(self, path: Path) -> int | None:
        """The file's length, or None when there is none."""
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(found.st_mode):
            raise untrusted_file(path, "is a symbolic link")
        return found.st_size

    def touch(self, path: Path) -> None:
        """Make a file look as young as a new one."""
        os.utime(path, follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name at once, replacing what has it."""
        source.replace(target)

    def remove(self, path: Path) -> bool:
        """Remove a file; False when there was none."""
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return True

    def names(self, directory: Path) -> list[str]:
        """What a directory holds, sorted; nothing when it is not one."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(entry.name for entry in directory.iterdir())
        return []

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a directory would survive a power cut."""
        self._sync(path, os.O_DIRECTORY)

    def sync_file(self, path: Path) -> None:
        """Return when a finished file would survive a power cut."""
        self._sync(path, 0)

    def _sync(self, path: Path, flags: int) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


DISK: Final = DiskFiles()
