"""Content too large for the database: one file for each digest, written once.

``ab/cdef…`` holds the bytes whose SHA-256 is ``abcdef…``. A file is written under a temporary name, synced, renamed, and
its directory synced, in this order, so that

* a file that has its final name is complete, whatever happened to the power;
* when `put` has returned, the file is there after a power cut, and a record may name it.

What is read is checked: bytes that do not have the digest they are kept under are never handed out. Which digests were
erased is known to the ledger's store, not here.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from detent.store.files import DISK, Files

_TEMPORARY_PREFIX: Final = "new-"
_CHUNK_BYTES: Final = 1 << 20
_HEX: Final = frozenset("0123456789abcdef")


class ContentFiles:
    """A directory of content by digest.

    ``new_name`` gives temporary files their names; they need only differ from each other.
    """

    def __init__(
        self, directory: Path, *, files: Files = DISK, new_name: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        self._directory = directory
        self._files = files
        self._new_name = new_name
        with _translated(directory):
            if files.make_directory(directory):
                files.sync_directory(directory.parent)

    def put(self, data: bytes | Iterable[bytes], *, digest: bytes | None = None) -> bytes:
        """Keep bytes, given whole or in pieces, and return their digest; they are durable when this returns.

        Refuses bytes that do not have the digest they were announced with. Content that is there already stays.
        """
        if digest is not None and isinstance(data, bytes) and self._holds(digest, len(data)):
            return digest
        temporary = self._directory / (_TEMPORARY_PREFIX + self._new_name())
        with _translated(temporary):
            try:
                found = self._write(temporary, (data,) if isinstance(data, bytes) else data)
                _insist_on_digest(found, digest)
                self._name(temporary, found)
            except BaseException:
                with suppress(OSError):
                    self._files.remove(temporary)
                raise
        return found

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
            raise _corrupt(path)
        return data

    def open(self, digest: bytes) -> BinaryIO | None:
        """A file with the bytes under a digest, or None when there is none.

        The whole file is read and checked first, so that nobody acts on half of a damaged one.
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
            raise _corrupt(path)
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

    def path(self, digest: bytes) -> Path:
        """Where the bytes of a digest are kept."""
        name = digest.hex()
        return self._directory / name[:2] / name[2:]

    def _holds(self, digest: bytes, size: int) -> bool:
        if self.size(digest) != size:
            return False
        # Whoever wrote it may not have come to this line yet, and our caller is told that it is durable.
        path = self.path(digest)
        with _translated(path):
            # Garbage collection leaves young files alone, because the record that names them may be on its way: as here.
            self._files.touch(path)
            self._files.sync_directory(path.parent)
            self._files.sync_directory(self._directory)
        return True

    def _write(self, temporary: Path, pieces: Iterable[bytes]) -> bytes:
        digest = hashlib.sha256()
        file = self._files.create(temporary)
        try:
            for piece in pieces:
                for start in range(0, len(piece), _CHUNK_BYTES):
                    chunk = piece[start : start + _CHUNK_BYTES]
                    digest.update(chunk)
                    file.write(chunk)
            file.sync()
        finally:
            file.close()
        return digest.digest()

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
    while piece := file.read(_CHUNK_BYTES):
        digest.update(piece)
    return digest.digest()


def _insist_on_digest(found: bytes, announced: bytes | None) -> None:
    if announced is not None and found != announced:
        raise InvalidInput(
            f"the content announced as {announced.hex()} has the digest {found.hex()}",
            hint="it was changed or cut short on its way here; send it again",
            details={"announced": announced.hex(), "found": found.hex()},
        )


def _corrupt(path: Path) -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} does not hold the bytes it is named for",
        hint="remove the file and run the job that made it again, or restore it from a backup",
        details={"path": str(path)},
    )
