"""Artifacts in a directory: the `content/` of a home, or any other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from detent.artifacts.api import READ_BYTES_MAX, Source, Stored, insist_on_digest, opened
from detent.canon import digest_text
from detent.errors import InvalidInput
from detent.store.content import ContentFiles
from detent.store.streams import VerifiedStream


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
