"""Digests of files by content, remembered as long as a file looks the same.

A file looks the same while its times, size and inode are. A file that is changed twice within one tick of its clock looks
the same after both, so what was hashed within two seconds of its last change is not remembered (git has the same rule).

A path that is not a file (a pipe, a device) is refused without waiting, and so is a file that keeps changing while it is
read. Links are followed: it is the content that counts.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from detent.errors import DetentError

RACY_NS: Final = 2_000_000_000
TRIES: Final = 3
"""How often a file is read again that changed meanwhile."""
_CHUNK_BYTES: Final = 1 << 20


class FileUnreadable(DetentError):
    """A file that is there cannot be hashed: no permission, no regular file, or a failing disk."""

    code = "DEPENDENCY_MISSING"


class FileUnsettled(FileUnreadable):
    """A file changes while it is read. Once its writer is done, trying again works."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} changes while it is read",
            hint="wait until its writer has finished, or declare it as an output of the step that writes it",
            details={"path": path},
            retryable=True,
        )


class _Look(NamedTuple):
    """How a file looks from outside."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    device: int


class FileDigests:
    """SHA-256 of files. ``now_ns`` is the wall clock, which the times of files are compared with."""

    def __init__(self, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._known: dict[str, tuple[_Look, bytes]] = {}
        self.hashed = 0
        """How many files were read so far."""

    def digest(self, path: str | os.PathLike[str]) -> bytes | None:
        """The digest of a file's bytes; None when there is no such file, or a link that leads nowhere.

        Raises `FileUnreadable` for what is there and cannot be hashed.
        """
        name = os.path.abspath(path)  # noqa: PTH100
        try:
            known = self._known.get(name)
            if known is not None and known[0] == _look(os.stat(name)):  # noqa: PTH116 - thousands of texts, no paths are made of them
                return known[1]
            return self._hash(name)
        except (FileNotFoundError, NotADirectoryError):
            self._known.pop(name, None)
            return None
        except OSError as exc:
            raise FileUnreadable(
                f"{name} cannot be read: {exc.strerror or exc}",
                hint="check its permissions",
                details={"path": name, "errno": exc.errno},
            ) from exc
        except ValueError as exc:  # A path with a zero byte.
            raise FileUnreadable(f"{name!r:.80} is not a path: {exc}", details={"path": name}) from exc

    def _hash(self, name: str) -> bytes:
        self._known.pop(name, None)
        for _ in range(TRIES):
            # Opening a pipe would otherwise wait for a writer.
            handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(handle, "rb", buffering=0) as file:  # noqa: PTH123
                before = os.fstat(handle)
                if not stat.S_ISREG(before.st_mode):
                    raise FileUnreadable(
                        f"{name} is {_kind(before.st_mode)}, not a file", details={"path": name}, hint="name files only"
                    )
                begun_ns = self._now_ns()
                found, size = _read(file.readinto)
                look = _look(before)
                self.hashed += 1
                if size == before.st_size and look == _look(os.fstat(handle)):
                    if max(look.mtime_ns, look.ctime_ns) < begun_ns - RACY_NS:
                        self._known[name] = (look, found)
                    return found
        raise FileUnsettled(name)


def _read(read_into: Callable[[memoryview], int | None]) -> tuple[bytes, int]:
    buffer = memoryview(bytearray(_CHUNK_BYTES))
    digest = hashlib.sha256()
    size = 0
    while count := read_into(buffer):
        digest.update(buffer[:count])
        size += count
    return digest.digest(), size


def _look(found: os.stat_result) -> _Look:
    return _Look(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_dev)


def _kind(mode: int) -> str:
    names = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return names.get(stat.S_IFMT(mode), "a device")
