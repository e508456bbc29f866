"""Takes the output files over: copies each from the descriptor init opened, hashing the very bytes that are stored.

No name of the guest's becomes a path of ours: copies are numbered. What is read is bounded by what the job could have
written, so a file that grows while it is copied is noticed, not followed.

Which names an output file may have: those that mean one plain file on every system and in every listing.

Where a supervisor keeps copies of its jobs' files: a folder that goes with the supervisor, however that ends.

The folder is locked as long as its process lives; the kernel releases the lock. The supervisor that creates the next folder
removes those without a lock holder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import unicodedata
from pathlib import Path
from typing import Final, NamedTuple

from detent.canon.grammar import has_hidden
from detent.executor.leftovers import PREFIX, abandoned_folders
from detent.jobs.status import ErrorCategory

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


class Staging:
    """A folder for temporary files, locked."""

    def __init__(self) -> None:
        sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            try:
                self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # Swept before it was locked.
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            if self.path.exists():
                return
            os.close(self._handle)

    def close(self) -> None:
        """Remove the folder with all that is in it; safe to call twice."""
        if self._handle >= 0:
            _remove(self.path)
            os.close(self._handle)
            self._handle = -1


def sweep() -> None:
    """Remove the folders of supervisors that are gone."""
    for path in abandoned_folders():
        _remove(path)


def _remove(path: Path) -> None:
    for directory in path.glob("job-*"):
        remove_tree(directory)
    shutil.rmtree(path, ignore_errors=True)
