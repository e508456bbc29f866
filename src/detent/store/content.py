"""Content too large for the database: one file for each digest, written once.

``ab/cdef…`` holds the bytes whose SHA-256 is ``abcdef…``. A file is written under a temporary name, synced, renamed, and
its directory synced, in this order, so that

* a file that has its final name is complete, even after a power cut;
* when `put` has returned, the file is there after a power cut, and a record may name it.

What is read is checked: `get` and `open` hand out no byte before all of them are known to have their digest, `stream` keeps
back the end. Which digests were erased is known to the ledger's store, not here.

Which process made something, so that a later reader can tell whether that process is provably gone.

A process id alone may be reused. With the boot, the namespace of process ids and the moment of the start it names one process
of this machine and no other. When anything leaves room for doubt (another container, a system without /proc), the process counts as alive.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from detent.errors import StoreUnavailable
from detent.store.files import DISK, Files
from detent.store.streams import (
    PIECE_BYTES,
    Copied,
    Readable,
    VerifiedStream,
    copy_hashed,
    insist_on_announced,
    pieces_of,
    wrong_bytes,
)

_TEMPORARY_PREFIX: Final = "new-"
_HEX: Final = frozenset("0123456789abcdef")


def marked_name() -> str:
    """A name for a temporary file that says which process is writing it."""
    return ".".join((*ProcessMark.own().parts(), os.urandom(8).hex()))


def _is_abandoned(name: str) -> bool:
    mark = ProcessMark.parse(name.removeprefix(_TEMPORARY_PREFIX).split(".")[:4])
    return mark is not None and mark.is_gone


class ContentFiles:
    """A directory of content by digest.

    ``new_name`` gives temporary files their names; they need only differ from each other.
    """

    def __init__(
        self,
        directory: Path,
        *,
        trees: Path | None = None,
        files: Files = DISK,
        new_name: Callable[[], str] = marked_name,
    ) -> None:
        """``trees``: where source trees of this content are laid out; beside it unless given."""
        self._directory = directory
        self.trees = trees or directory.parent / "trees"
        self._files = files
        self._new_name = new_name
        with _translated(directory):
            if files.make_directory(directory):
                files.sync_directory(directory.parent)

    @property
    def directory(self) -> Path:
        """Where it is."""
        return self._directory

    def put(self, data: bytes | Iterable[bytes], *, digest: bytes | None = None) -> bytes:
        """Keep bytes, given whole or in pieces, and return their digest; they are durable when this returns.

        Refuses bytes that do not have the digest they were announced with. Content that is there already stays.
        """
        if digest is not None and isinstance(data, bytes) and self._holds(digest, len(data)):
            return digest
        pieces = (data,) if isinstance(data, bytes) else data
        return self._put(lambda temporary: self._write(temporary, pieces), digest).digest

    def put_from(self, source: Readable, *, digest: bytes | None = None, bytes_max: int | None = None) -> Copied:
        """Keep what a stream gives, in a few megabytes of memory; durable when this returns.

        Refuses what does not have the digest it was announced with, and what is longer than ``bytes_max``. Content that
        is there already stays.
        """

        def write(temporary: Path) -> Copied:
            return copy_hashed(source, lambda more: self._files.create(temporary, streamed=more), bytes_max=bytes_max)

        return self._put(write, digest)

    def adopt(self, path: Path, digest: bytes) -> None:
        """Make a file the content of a digest; durable when this returns. A file of another disk is copied.

        The caller has written, hashed and synced it. It takes the place of content that is there already, which has the same bytes:
        how long this takes tells nothing about what was there.
        """
        with _translated(path):
            self._files.touch(path)
            try:
                self._name(path, digest)
            except OSError as exc:
                if exc.errno != errno.EXDEV:
                    raise
                self._copy(path, digest)

    def _copy(self, path: Path, digest: bytes) -> None:
        temporary = self._directory / (_TEMPORARY_PREFIX + self._new_name())
        try:
            with self._files.open(path) as file:
                insist_on_announced(self._write(temporary, pieces_of(file)).digest, digest)
            self._name(temporary, digest)
        except BaseException:
            with suppress(OSError):
                self._files.remove(temporary)
            raise
        self._files.remove(path)

    def get(self, digest: bytes) -> bytes | None:
        """The bytes under a digest, or None when there are none. Raises `StoreCorrupt` for other bytes."""
        path = self.path(digest)
        with _translated(path):
            try:
                with self._files.open(path) as file:
                    data = file.read()
            except FileNotFoundError:
                return None
        if hashlib.sha256(data).digest() != digest:
            raise wrong_bytes(str(path))
        return data

    def stream(self, digest: bytes) -> VerifiedStream | None:
        """The bytes under a digest, checked while they are read, or None when there are none.

        Reads the file once, where `open` reads it twice; see `VerifiedStream` for what that promises.
        """
        path = self.path(digest)
        with _translated(path):
            try:
                file = self._files.open(path)
            except FileNotFoundError:
                return None

        def pieces() -> Iterator[bytes]:
            with _translated(path):
                yield from pieces_of(file)

        return VerifiedStream(pieces(), digest, str(path), file.close)

    def open(self, digest: bytes) -> BinaryIO | None:
        """A file with the bytes under a digest, or None when there is none.

        The whole file is read and checked first, so that no caller acts on half of a damaged one.
        """
        path = self.path(digest)
        with _translated(path):
            try:
                file = self._files.open(path)
            except FileNotFoundError:
                return None
            try:
                found = _digest_of(file)
                file.seek(0)
            except BaseException:
                file.close()
                raise
        if found != digest:
            file.close()
            raise wrong_bytes(str(path))
        return file

    def has(self, digest: bytes) -> bool:
        """Whether there is content under a digest; its bytes are not looked at."""
        return self.size(digest) is not None

    def size(self, digest: bytes) -> int | None:
        """The number of bytes under a digest, or None when there are none."""
        path = self.path(digest)
        with _translated(path):
            return self._files.size(path)

    def erase(self, digest: bytes) -> bool:
        """Remove content for good; False when there was none."""
        path = self.path(digest)
        with _translated(path):
            removed = self._files.remove(path)
            if removed:
                self._files.sync_directory(path.parent)
        return removed

    def digests(self) -> Iterator[bytes]:
        """Every digest there is content for, in order."""
        for shard in self._names(self._directory):
            if len(shard) == 2 and _HEX.issuperset(shard):
                for name in self._names(self._directory / shard):
                    if len(name) == 62 and _HEX.issuperset(name):
                        yield bytes.fromhex(shard + name)

    def sweep_temporary(self, too_young: Callable[[Path], bool] = lambda _: False) -> int:
        """Remove what interrupted writes left behind; returns how many files.

        While others may be writing, ``too_young`` says which files are still theirs.
        """
        names = [name for name in self._names(self._directory) if name.startswith(_TEMPORARY_PREFIX)]
        left_over = [path for path in (self._directory / name for name in names) if not too_young(path)]
        for path in left_over:
            with _translated(path):
                self._files.remove(path)
        return len(left_over)

    def sweep_abandoned(self) -> int:
        """Remove what processes that are provably gone were writing when they ended; safe while others write."""
        return self.sweep_temporary(lambda path: not _is_abandoned(path.name))

    def path(self, digest: bytes) -> Path:
        """Where the bytes of a digest are kept."""
        name = digest.hex()
        return self._directory / name[:2] / name[2:]

    def _put(self, write: Callable[[Path], Copied], digest: bytes | None) -> Copied:
        """Have a temporary file written, and give it its name unless its content is there."""
        temporary = self._directory / (_TEMPORARY_PREFIX + self._new_name())
        with _translated(temporary):
            try:
                copied = write(temporary)
                insist_on_announced(copied.digest, digest)
                if self._verifies(copied):
                    self._files.remove(temporary)
                    self._acknowledge(copied.digest)
                else:
                    self._name(temporary, copied.digest)
            except BaseException:
                with suppress(OSError):
                    self._files.remove(temporary)
                raise
        return copied

    def _holds(self, digest: bytes, size: int) -> bool:
        if self.size(digest) != size:
            return False
        with _translated(self.path(digest)):
            self._acknowledge(digest)
        return True

    def _verifies(self, copied: Copied) -> bool:
        """Whether there is a file with these very bytes. What has other bytes is damage, and is replaced."""
        path = self.path(copied.digest)
        if self._files.size(path) != copied.size_bytes:
            return False
        with self._files.open(path) as file:
            return _digest_of(file) == copied.digest

    def _acknowledge(self, digest: bytes) -> None:
        path = self.path(digest)
        # Garbage collection leaves young files alone, because the record that names them may be on its way: as here.
        self._files.touch(path)
        # Its writer may not have reached this line yet, and our caller is promised that it is durable.
        self._files.sync_directory(path.parent)
        self._files.sync_directory(self._directory)

    def _write(self, temporary: Path, pieces: Iterable[bytes]) -> Copied:
        digest, size = hashlib.sha256(), 0
        file = self._files.create(temporary)
        try:
            for piece in pieces:
                for start in range(0, len(piece), PIECE_BYTES):
                    chunk = piece[start : start + PIECE_BYTES]
                    digest.update(chunk)
                    file.write(chunk)
                    size += len(chunk)
            file.sync()
        finally:
            file.close()
        return Copied(digest.digest(), size)

    def _name(self, temporary: Path, digest: bytes) -> None:
        path = self.path(digest)
        self._files.make_directory(path.parent)
        self._files.rename(temporary, path)
        self._files.sync_directory(path.parent)
        # Even when the shard's directory was there: another writer may have made it a moment ago, unsynced.
        self._files.sync_directory(self._directory)

    def _names(self, directory: Path) -> list[str]:
        with _translated(directory):
            return self._files.names(directory)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise StoreUnavailable(
            f"{path}: {exc.strerror or exc}",
            hint="check the disk's free space and the permissions of the directory; DETENT_HOME can point elsewhere",
            details={"path": str(path), "errno": exc.errno},
        ) from exc


def _digest_of(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces_of(file):
        digest.update(piece)
    return digest.digest()


@functools.cache
def content_store(directory: str) -> ContentFiles:
    """The home's content store."""
    return ContentFiles(Path(directory))


_PROC: Final = Path("/proc")


class ProcessMark(NamedTuple):
    """One process of one boot of one machine."""

    boot: str
    namespace: str
    pid: int
    started: str
    """In ticks since the boot."""

    @classmethod
    def own(cls) -> ProcessMark:
        """The mark of this process."""
        return _own(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessMark:
        """The mark of a process that runs now."""
        return cls(*_surroundings(), pid, _started(pid) or "0")

    @classmethod
    def parse(cls, parts: list[str]) -> ProcessMark | None:
        """A mark from its four parts as text; None for what is none."""
        if len(parts) != 4 or not parts[2].isdecimal():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    def parts(self) -> list[str]:
        """The four parts as text; none holds a dot, a dash or a slash."""
        return [self.boot, self.namespace, str(self.pid), self.started]

    @property
    def is_gone(self) -> bool:
        """Whether that process has provably ended."""
        here = _surroundings()
        if not self.boot or not here[0]:
            return False
        if self.boot != here[0]:
            return True  # What is found lies on a disk of this machine: that was an earlier boot.
        if not self.namespace or self.namespace != here[1]:
            return False
        return _started(self.pid) != self.started


@cache
def _own(pid: int) -> ProcessMark:
    return ProcessMark.of(pid)


@cache
def _surroundings() -> tuple[str, str]:
    """The boot and the namespace of process ids; empty where they cannot be told."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = str((_PROC / "self/ns/pid").readlink()).removeprefix("pid:[").removesuffix("]")
    except OSError:
        return "", ""
    return boot, namespace


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None when there is none, or only its corpse."""
    try:
        # The name in parentheses may hold anything; the fields after it count from the last parenthesis.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]
