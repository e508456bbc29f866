"""What every store of artifacts does, and the store that is a directory.

What every store of artifacts does, wherever it keeps the bytes.

Bytes are named by their SHA-256 and by nothing else: no operation takes a path or an address to read from, and none changes
what a digest names (JOB-004, JOB-071). A caller that may only read gets an `ArtifactReader`.

Artifacts in a directory: the `content/` of a home, or any other.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from detent.canon import DIGEST_BYTES, digest_text
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.store.content import ContentFiles
from detent.store.streams import Readable, VerifiedStream

READ_BYTES_MAX: Final = 64 * 1024 * 1024
"""What `read_bytes` holds in memory at most, unless asked otherwise; more is read with `open`."""

Source: TypeAlias = bytes | Path | Readable
"""Where new content comes from: bytes, a regular file, or an open stream."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Content that is durable."""

    digest: bytes
    size_bytes: int
    uri: str
    """Where the platform finds it. Never shown to clients: they get signed URLs (JOB-053)."""


class ArtifactReader(Protocol):
    """Reads content by digest. Every digest is 32 bytes; anything else is refused with `InvalidInput`."""

    def open(self, digest: bytes) -> VerifiedStream | None:
        """The bytes as a stream, or None when there are none.

        The stream verifies while it is read: its last piece and its end come only when the whole has the digest, and
        otherwise `StoreCorrupt` does. What comes before is not verified yet; act on it when the end was reached.
        """

    def read_bytes(self, digest: bytes, *, bytes_max: int = READ_BYTES_MAX) -> bytes | None:
        """All the bytes, verified before any is handed out; None when there are none. Refuses more than ``bytes_max``."""

    def has(self, digest: bytes) -> bool:
        """Whether there is content under a digest; its bytes are not looked at."""

    def size(self, digest: bytes) -> int | None:
        """The number of bytes, or None when there is no such content."""

    def digests(self) -> Iterator[bytes]:
        """Every digest there is content for, in order."""


class ArtifactStore(ArtifactReader, Protocol):
    """Keeps content: written once, whole or not at all, durable when `put` has returned."""

    def put(self, source: Source, *, digest: bytes | None = None, bytes_max: int | None = None) -> Stored:
        """Keep content and say its digest.

        Content that is there already is left as it is. Refuses, with `InvalidInput`, what does not have the announced
        digest, what is longer than ``bytes_max``, and a path that is not a regular file.
        """

    def delete(self, digest: bytes) -> bool:
        """Remove content for good; False when there was none. For garbage collection and erasure only."""


def insist_on_digest(digest: bytes) -> bytes:
    """The digest, or `InvalidInput` for any other name of content."""
    if type(digest) is not bytes or len(digest) != DIGEST_BYTES:
        raise InvalidInput(
            f"content is named by the {DIGEST_BYTES} bytes of its SHA-256, not by {show(digest)}",
            hint="`detent.canon.parse_digest` reads a written digest; paths and URLs name no content",
        )
    return digest


@contextmanager
def opened(source: Source) -> Iterator[Readable]:
    """A source as something to read from; closes what it opened.

    A path is opened once, without following a link and without blocking: a pipe, a device or a link in place of the file
    is refused (the creator of the directory chose the name, and that may be a guest).
    """
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, Path):
        with _regular_file(source) as file:
            yield file
    elif hasattr(source, "readinto"):
        yield source
    else:
        raise InvalidInput(f"content comes from bytes, a path or a stream with readinto, not from {show(source)}")


def _regular_file(path: Path) -> io.FileIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the name.
        raise InvalidInput(f"{path!s} cannot be read: {exc}", details={"path": str(path)}) from exc
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InvalidInput(f"{path!s} is not a regular file", details={"path": str(path)})
        return io.FileIO(handle)
    except BaseException:
        os.close(handle)
        raise


class DirectoryStore:
    """A store of artifacts over content files: one file for each digest, at a path made of the digest alone.

    A file is written under a temporary name, synced, renamed, and its directory synced; so under its name it is whole, after
    a crash too. The layout and its promises are `ContentFiles`'.
    """

    def __init__(self, files: ContentFiles | Path) -> None:
        self._files = ContentFiles(files) if isinstance(files, Path) else files

    def put(self, source: Source, *, digest: bytes | None = None, bytes_max: int | None = None) -> Stored:
        """Keep content; see `ArtifactStore.put`."""
        if digest is not None:
            insist_on_digest(digest)
        with opened(source) as readable:
            copied = self._files.put_from(readable, digest=digest, bytes_max=bytes_max)
        return Stored(copied.digest, copied.size_bytes, uri_of(copied.digest))

    def open(self, digest: bytes) -> VerifiedStream | None:
        """The bytes as a stream that verifies; see `ArtifactReader.open`."""
        return self._files.stream(insist_on_digest(digest))

    def read_bytes(self, digest: bytes, *, bytes_max: int = READ_BYTES_MAX) -> bytes | None:
        """All the bytes, verified."""
        size = self.size(digest)
        if size is not None and size > bytes_max:
            raise too_large(digest, size, bytes_max)
        return self._files.get(digest)

    def has(self, digest: bytes) -> bool:
        """Whether there is content under a digest."""
        return self._files.has(insist_on_digest(digest))

    def size(self, digest: bytes) -> int | None:
        """The number of bytes under a digest."""
        return self._files.size(insist_on_digest(digest))

    def delete(self, digest: bytes) -> bool:
        """Remove content for good."""
        return self._files.erase(insist_on_digest(digest))

    def digests(self) -> Iterator[bytes]:
        """Every digest there is content for, in order."""
        return self._files.digests()


def uri_of(digest: bytes) -> str:
    """How a result refers to content of its own home. Holds no path, so a home can be moved and equal work is equal."""
    return f"content:{digest_text(digest)}"


def too_large(digest: bytes, size: int, bytes_max: int) -> InvalidInput:
    """The refusal to load content into memory."""
    return InvalidInput(
        f"{digest_text(digest)} has {size} bytes, more than the {bytes_max} to be held in memory",
        hint="read it with open()",
        details={"size_bytes": size, "bytes_max": bytes_max},
    )
