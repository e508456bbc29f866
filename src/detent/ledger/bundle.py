"""The ``.detent`` file: a ledger, or one run of it, as a sequence of items that a stranger can check.

The file is a CBOR sequence in which every item is a byte string, so a reader always knows how much to read, and every byte
string holds one canonical map with a ``kind``. The order of kinds is fixed: ``header``, tree heads (``head``), commits
(``batch`` whole, ``partial`` with proofs), ``content``, stored rows (``job``, ``run``), ``end``. The end item counts the items
before it and has the digest of their bytes. It is not signed: it tells a damaged file from a whole one, and the signatures
inside tell a true one from a forged one.

Reading never raises: what is wrong with the file comes out of the reader as a `Finding` in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

from detent.canon import NotCanonical, decode, encode
from detent.canon.cbor import ITEM_BYTES_MAX as CANON_ITEM_BYTES_MAX
from detent.errors import InvalidInput
from detent.ledger.findings import Finding
from detent.ledger.item_maps import ITEM_KINDS, batch_bytes, item_from_map, item_to_map
from detent.ledger.items import BatchItem, Item, Readable
from detent.ledger.loose import loose

BUNDLE_LABEL: Final = b"detent/bundle/v1\x00"
ITEM_BYTES_MAX: Final = 16 * CANON_ITEM_BYTES_MAX
"""Size of one item. A commit of a hundred thousand records stays below it."""

END: Final = "end"
_BYTE_STRING: Final = 0x40
_SIZES: Final = {24: 1, 25: 2, 26: 4}
_HEADER: Final = b"\xa7\x61v\x01\x64kind\x66header"
"""How the map of a header begins."""
_MARKS: Final = (b"\x64kind", b"\x66header")
_OPENING_BYTES: Final = 24
NOT_A_BUNDLE: Final = Finding("NOT_A_BUNDLE", "it does not begin as a bundle does, and nothing in it can be read")


class ByteStream(Protocol):
    """Anything that can be read from, once and forward."""

    def read(self, size: int, /) -> bytes: ...


class Opening:
    """A stream that knows how it began: that tells a damaged bundle from a file that never was one."""

    __slots__ = ("_left", "_start", "_stream")

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._start = self._left = stream.read(_OPENING_BYTES)

    def read(self, size: int, /) -> bytes:
        """The next bytes of the stream; at its beginning perhaps fewer than asked for."""
        if not self._left:
            return self._stream.read(size)
        data, self._left = self._left[:size], self._left[size:]
        return data

    @property
    def is_of_a_bundle(self) -> bool:
        """Whether these could be the first bytes of a bundle that was cut off here or partly changed."""
        start = self._start
        if not start or any(mark in start for mark in _MARKS):
            return True
        width = _SIZES.get(start[0] - _BYTE_STRING)
        return width is not None and len(start) < _OPENING_BYTES and _HEADER.startswith(start[1 + width :])


class BundleWriter:
    """Turns items into the bytes of a bundle, one after the other. Holds no more than one item at a time."""

    __slots__ = ("_count", "_hasher")

    def __init__(self) -> None:
        self._count = 0
        self._hasher = sha256(BUNDLE_LABEL)

    def write(self, item: Item) -> bytes:
        """The next bytes of the file. Refuses, with `InvalidInput`, an item that no reader would take."""
        framed = _framed(encode_item(item))
        self._count += 1
        self._hasher.update(framed)
        return framed

    def end(self) -> bytes:
        """The last bytes of the file."""
        return _framed(encode({"kind": END, "items": self._count, "digest": self._hasher.digest()}))


def write_bundle(items: Iterable[Item]) -> Iterator[bytes]:
    """A whole bundle in pieces: every item in the given order, then the end item."""
    writer = BundleWriter()
    for item in items:
        yield writer.write(item)
    yield writer.end()


def encode_item(item: Item) -> bytes:
    """Canonical bytes of one item's map."""
    if isinstance(item, BatchItem):
        return batch_bytes(item)
    return encode(item_to_map(item), bytes_max=ITEM_BYTES_MAX)


def read_items(stream: ByteStream, *, bytes_max: int = ITEM_BYTES_MAX) -> Iterator[Readable]:
    """Every item of a bundle, and a finding in place of everything that is not one.

    An item that is framed but unreadable is passed over; once the framing itself is lost, nothing after it means
    anything and reading ends. A file without its end item, or with more after it, is a finding too.
    """
    hasher = sha256(BUNDLE_LABEL)
    count = 0
    while True:
        framed = _read_frame(stream, bytes_max)
        if isinstance(framed, Finding):
            yield framed
            return
        head, data = framed
        fields = loose(data)
        if isinstance(fields, dict) and fields.get("kind") == END:
            yield from _check_end(data, count, hasher.digest())
            if stream.read(1):
                yield Finding("BUNDLE_TRAILING_BYTES", "the file goes on after its end item")
            return
        hasher.update(head)
        hasher.update(data)
        yield _item_of(data, fields, count)
        count += 1


def read_bundle(stream: ByteStream) -> Iterator[Readable]:
    """Every item of a bundle, as `read_items` gives them; for a file that is not a bundle at all, that one finding."""
    opening = Opening(stream)
    for number, item in enumerate(read_items(opening)):
        if not number and isinstance(item, Finding) and not opening.is_of_a_bundle:
            yield NOT_A_BUNDLE
            return
        yield item


def _item_of(data: bytes, fields: object, index: int) -> Readable:
    if not isinstance(fields, dict) or not isinstance(fields.get("kind"), str):
        return Finding("BUNDLE_MALFORMED", f"item {index} is not a map with a kind")
    if fields["kind"] not in ITEM_KINDS:
        return Finding("ITEM_UNKNOWN", f"item {index} is of the unknown kind {fields['kind'][:40]!r}")
    item = item_from_map(fields)
    if isinstance(item, Finding):
        return Finding(item.code, f"item {index}: {item.message}", item.partition)
    try:
        # Every value's type has been checked, so equal bytes mean that the item is canonical, without a second decoding.
        canonical = encode_item(item) == data
    except (NotCanonical, InvalidInput):
        canonical = False
    if not canonical:
        return Finding("ITEM_NOT_CANONICAL", f"item {index} is not the canonical encoding of what it says")
    return item


def _check_end(data: bytes, count: int, digest: bytes) -> Iterator[Finding]:
    try:
        end: Mapping[str, Any] = decode(data)
    except NotCanonical as exc:
        yield Finding("ITEM_NOT_CANONICAL", f"the end item is not canonical: {exc}")
        return
    if end.keys() != {"kind", "items", "digest"} or type(end["items"]) is not int:
        yield Finding("BUNDLE_MALFORMED", "the end item has a count of items and a digest")
    elif end["items"] != count:
        yield Finding("BUNDLE_DIGEST_WRONG", f"the end item counts {end['items']} items, the file has {count}")
    elif end["digest"] != digest:
        yield Finding("BUNDLE_DIGEST_WRONG", "the end item has another digest than the items before it")


def _read_frame(stream: ByteStream, bytes_max: int) -> tuple[bytes, bytes] | Finding:
    """One framed item, as its head and its bytes."""
    head = stream.read(1)
    if not head:
        return Finding("BUNDLE_TRUNCATED", "the file ends without its end item")
    short = head[0] - _BYTE_STRING
    if not 0 <= short <= max(_SIZES):
        return Finding("BUNDLE_MALFORMED", "an item is not a byte string")
    size = short
    if short >= 24:
        more = _read_exactly(stream, _SIZES[short])
        if more is None:
            return Finding("BUNDLE_TRUNCATED", "the file ends inside an item")
        head += more
        size = int.from_bytes(more, "big")
        if head != _head(size):
            return Finding("BUNDLE_MALFORMED", "an item's size is not written in its shortest form")
    if size > bytes_max:
        return Finding("ITEM_TOO_LARGE", f"an item of {size} bytes, {bytes_max} are allowed")
    data = _read_exactly(stream, size)
    if data is None:
        return Finding("BUNDLE_TRUNCATED", "the file ends inside an item")
    return head, data


def _read_exactly(stream: ByteStream, size: int) -> bytes | None:
    """Exactly so many bytes; None when the stream has fewer. Raw files may give less than asked for at a time."""
    data = stream.read(size)
    if len(data) == size:
        return data
    parts = [data]
    missing = size - len(data)
    while missing:
        data = stream.read(missing)
        if not data:
            return None
        parts.append(data)
        missing -= len(data)
    return b"".join(parts)


def _framed(data: bytes) -> bytes:
    if len(data) > ITEM_BYTES_MAX:
        raise InvalidInput(f"an item of {len(data)} bytes does not fit into a bundle, {ITEM_BYTES_MAX} are allowed")
    return _head(len(data)) + data


def _head(size: int) -> bytes:
    if size < 24:
        return bytes((_BYTE_STRING + size,))
    width = 1 if size < 2**8 else 2 if size < 2**16 else 4
    return bytes((_BYTE_STRING + 23 + width.bit_length(),)) + size.to_bytes(width, "big")
