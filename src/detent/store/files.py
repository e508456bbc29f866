"""The few things the content store asks of a file system, so that a test can stand in for one and cut its power.

A write is durable when its file has been synced, and a name when its directory has. Nothing else here promises anything.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO, Final, Protocol


class NewFile(Protocol):
    """A file being written for the first time."""

    def write(self, data: bytes) -> None:
        """Append all of the bytes."""

    def sync(self) -> None:
        """Return when every byte written so far would survive a power cut."""

    def close(self) -> None:
        """Let go of the file."""


class Files(Protocol):
    """A file system."""

    def make_directory(self, path: Path) -> bool:
        """Make a directory for the owner alone; False when it was there."""

    def create(self, path: Path) -> NewFile:
        """Make a new file for the owner alone; the name must not exist."""

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
    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]

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

    def create(self, path: Path) -> NewFile:
        """Make a new file for the owner alone; the name must not exist."""
        return _NewDiskFile(path)

    def open(self, path: Path) -> BinaryIO:
        """Open a file for reading."""
        return path.open("rb")

    def size(self, path: Path) -> int | None:
        """The file's length, or None when there is none."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def touch(self, path: Path) -> None:
        """Make a file look as young as a new one."""
        os.utime(path)

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
