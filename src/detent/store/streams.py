"""Bytes on their way in and out of the content store: hashed while they are copied, checked while they are read.

Both ways hold a few megabytes at most, however large the content is.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol

from detent.errors import InvalidInput, StoreCorrupt
from detent.store.files import NewFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PIECE_BYTES: Final = 1 << 20
"""How much a reader holds: up to two such pieces."""
BUFFER_BYTES: Final = 2 << 20
BUFFER_COUNT: Final = 4
"""Buffers of a copy: one is filled and hashed while others are written."""


class Copied(NamedTuple):
    """What went through a copy."""

    digest: bytes
    size_bytes: int


class Readable(Protocol):
    """A source of bytes: a file, a socket's file, a `BytesIO`."""

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        """Fill a buffer, or begin to; 0 at the end."""


def copy_hashed(source: Readable, create: Callable[[bool], NewFile], *, bytes_max: int | None = None) -> Copied:
    """Write what a source gives to a new file and sync it; says its digest and size.

    What is hashed is what is written: each byte is read once, so a source that changes meanwhile can only change which
    content it is. ``create`` makes the file when the first bytes are there and learns whether more follow. A source with
    more than ``bytes_max`` bytes is refused as soon as it gives one too many.
    """
    buffers = [mmap.mmap(-1, BUFFER_BYTES) for _ in range(BUFFER_COUNT)]
    size = _fill(source, buffers[0])
    insist_on_size(size, bytes_max)
    digest = hashlib.sha256()
    file = create(size == BUFFER_BYTES)
    try:
        if size < BUFFER_BYTES:
            piece = buffers[0][:size]
            digest.update(piece)
            file.write(piece)
        else:
            size = _pump(source, file, digest.update, buffers, bytes_max)
        file.sync()
    finally:
        file.close()
    return Copied(digest.digest(), size)


def _pump(
    source: Readable,
    file: NewFile,
    update: Callable[[mmap.mmap | memoryview], None],
    buffers: list[mmap.mmap],
    bytes_max: int | None,
) -> int:
    """Fill and hash one buffer while another thread writes the one before. The first buffer is full already."""
    free: SimpleQueue[mmap.mmap] = SimpleQueue()
    for buffer in buffers[1:]:
        free.put(buffer)
    full: SimpleQueue[tuple[mmap.mmap, int] | None] = SimpleQueue()
    failed: list[BaseException] = []

    def write() -> None:
        while (waiting := full.get()) is not None:
            buffer, length = waiting
            try:
                file.write(memoryview(buffer)[:length])
            except BaseException as exc:  # noqa: BLE001 - raised again by the thread that asked
                failed.append(exc)
            free.put(buffer)  # After a failure too, or that thread would wait for one for ever.

    writer = threading.Thread(target=write, name="detent-content-writer", daemon=True)
    writer.start()
    size, buffer, length = 0, buffers[0], BUFFER_BYTES
    try:
        while length and not failed:
            size += length
            insist_on_size(size, bytes_max)
            update(memoryview(buffer)[:length])
            full.put((buffer, length))
            buffer = free.get()
            length = _fill(source, buffer)
    finally:
        full.put(None)
        writer.join()
    if failed:
        raise failed[0]
    return size


def _fill(source: Readable, buffer: mmap.mmap) -> int:
    """Fill a buffer as far as the source goes. Whole buffers are whole blocks, which is what the disk wants."""
    with memoryview(buffer) as view:
        length = 0
        while length < len(view):
            try:
                count = source.readinto(view[length:])
            except OSError as exc:
                raise InvalidInput(f"the source cannot be read: {exc.strerror or exc}") from exc
            if count is None:
                raise InvalidInput("the source has nothing to read yet", hint="pass a stream that blocks")
            if not count:
                break
            length += count
    return length


def insist_on_size(size: int, bytes_max: int | None) -> None:
    """Refuse content that is longer than it may be."""
    if bytes_max is not None and size > bytes_max:
        raise InvalidInput(
            f"the content has more than the {bytes_max} bytes that are allowed",
            code="LIMIT_DISK",
            details={"bytes_max": bytes_max},
        )


def insist_on_announced(found: bytes, announced: bytes | None) -> None:
    """Refuse content that does not have the digest it was announced with."""
    if announced is not None and found != announced:
        raise InvalidInput(
            f"the content announced as {announced.hex()} has the digest {found.hex()}",
            hint="it was changed or cut short on its way here; send it again",
            details={"announced": announced.hex(), "found": found.hex()},
        )


class VerifiedStream(io.BufferedIOBase):
    """Content being read, hashed on the way.

    What is promised: the last piece (as the source cuts them, at least the last byte) and the end of the stream are given
    only when everything, from the first byte on, has the digest; otherwise `StoreCorrupt` is raised instead, by that read
    and by every later one. So a reader that reaches the end has read the right bytes. What is *not* promised: bytes before the last
    piece are handed out before the whole is known. Act on them only when the end has been reached, or use `get`.
    """

    def __init__(
        self, pieces: Iterator[bytes], digest: bytes, name: str, release: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__()
        self._pieces = pieces
        self._expected = digest
        self._name = name
        self._release = release
        self._hash = hashlib.sha256()
        self._held: bytes | None = None
        self._given = memoryview(b"")
        self._ended = False
        self._fault: StoreCorrupt | None = None

    @property
    def name(self) -> str:
        """Where the bytes come from, for messages."""
        return self._name

    def readable(self) -> bool:
        return True

    def read1(self, size: int | None = -1, /) -> bytes:
        """Up to so many bytes, as they come; none at the end."""
        if self.closed:
            raise ValueError("the stream is closed")
        if size == 0:
            return b""
        if not self._given and not self._ended:
            self._given = memoryview(self._next())
        length = len(self._given) if size is None or size < 0 else size
        taken, self._given = self._given[:length], self._given[length:]
        return bytes(taken)

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, fewer only at the end; all of them without a number."""
        whole = size is None or size < 0
        pieces: list[bytes] = []
        left = size or 0
        while (whole or left > 0) and (piece := self.read1(-1 if whole else left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with memoryview(buffer).cast("B") as view:
            data = self.read(len(view))
            view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Let go of the source. Closing before the end says nothing about the bytes that were read."""
        if not self.closed:
            self._release()
        super().close()

    def _next(self) -> bytes:
        """The piece before the one that was just fetched; the last one once the digest is known to be right."""
        if self._fault is not None:
            raise self._fault
        if self._held is None:
            self._held = self._fetch()
        held = self._held
        self._held = self._fetch() if held else b""
        if not self._held:
            if self._hash.digest() != self._expected:
                self._fault = wrong_bytes(self._name)
                raise self._fault
            self._ended = True
        return held

    def _fetch(self) -> bytes:
        for piece in self._pieces:
            if piece:
                self._hash.update(piece)
                return piece
        return b""


def pieces_of(file: BinaryIO) -> Iterator[bytes]:
    """A file's bytes, piece by piece."""
    while piece := file.read(PIECE_BYTES):
        yield piece


def wrong_bytes(name: str) -> StoreCorrupt:
    """The error for content that does not have its digest."""
    return StoreCorrupt(
        f"{name} does not hold the bytes it is named for",
        hint="remove the file or object and run the job that made it again, or restore it from a backup",
        details={"path": name},
    )
