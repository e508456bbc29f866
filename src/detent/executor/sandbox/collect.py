"""Takes the output files over: copies each from the descriptor init opened, hashing the very bytes that are stored.

No name of the guest's becomes a path of ours: copies are numbered. What is read is bounded by what the job could have
written, so a file that grows while it is copied is noticed, not followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

COPY_BYTES: Final = 1 << 20
REMOVED_AT_ONCE_MAX: Final = 1000


class Copied(NamedTuple):
    """A finished copy; ``whole`` is False when there was more than ``bytes_max``."""

    size_bytes: int
    digest: bytes
    whole: bool


def copy_regular(source: int, target: Path, *, bytes_max: int) -> Copied | None:
    """Copy an open plain file to a new file; None when it is not a plain file."""
    if not stat.S_ISREG(os.fstat(source).st_mode):
        return None
    digest = hashlib.sha256()
    size = 0
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while True:
            data = os.pread(source, min(COPY_BYTES, bytes_max + 1 - size), size)
            if not data:
                return Copied(size, digest.digest(), whole=True)
            if size + len(data) > bytes_max:
                return Copied(size, digest.digest(), whole=False)
            digest.update(data)
            size += len(data)
            view = memoryview(data)
            while view:
                view = view[os.write(out, view) :]
    finally:
        os.close(out)


def file_digest(path: Path) -> bytes:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def remove_tree(path: Path) -> None:
    """Remove a directory that a guest filled, however deep it nested it: no recursion, no link followed, no mode changed
    but of directories that bar their own owner.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    number = 0
    try:
        while names := _some_names(top):
            for name in names:
                number = _remove_entry(top, name, number)
    finally:
        os.close(top)
    path.rmdir()


def _some_names(directory: int) -> list[str]:
    found: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) == REMOVED_AT_ONCE_MAX:
                break
    return found


def _remove_entry(top: int, name: str, number: int) -> int:
    """Remove a file, or empty a directory by one level: what it holds that is not empty moves up, beside it."""
    try:
        os.unlink(name, dir_fd=top)
        return number
    except (IsADirectoryError, PermissionError):
        pass
    inner = _open_directory(top, name)
    try:
        while names := _some_names(inner):
            for one in names:
                try:
                    os.unlink(one, dir_fd=inner)
                except (IsADirectoryError, PermissionError):
                    number += 1
                    os.rename(one, f".detent-removed-{number}-{os.getpid()}", src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)
    return number


def _open_directory(top: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=top)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=top, follow_symlinks=True)
        return os.open(name, flags, dir_fd=top)
