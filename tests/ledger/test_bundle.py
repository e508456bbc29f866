"""The .detent file: what is written is read back, and whatever is not such a file is said, not raised."""

from __future__ import annotations

from io import BytesIO

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import encode, sha256
from detent.errors import InvalidInput
from detent.ledger import (
    BatchItem,
    BundleWriter,
    ContentItem,
    Finding,
    HeaderItem,
    HeadItem,
    Item,
    JobItem,
    PartialItem,
    PartialRecord,
    RunItem,
    read_items,
    write_bundle,
)
from detent.ledger.bundle import BUNDLE_LABEL, ITEM_BYTES_MAX, encode_item
from detent.ledger.items import Readable
from tests.ledger.build import lively

D = sha256(b"d")
ITEMS: list[Item] = [
    HeaderItem("detent/x", 2, exported_tick=2**64 - 1),
    HeaderItem("detent/x", 1, "run", "run-1"),
    HeadItem(1, "a note\n"),
    BatchItem(0, b"body", bytes(64), b"\x80", []),
    BatchItem(300, b"b" * 300, b"s" * 64, b"c" * 70_000, [[b"r" * 24, None], [b"", b"e" * 256]]),  # type: ignore[list-item]
    PartialItem(0, b"body", bytes(64), [PartialRecord(3, b"r", None, [D, D]), PartialRecord(4, b"r", b"e", [])], [D]),
    ContentItem(D, b""),
    JobItem("job", "acme", None, "QUEUED", 0, 2**64 - 1, D),
    JobItem("job", "acme", "run", "QUEUED", 0, 0, D, b"body"),
    RunItem(0, "run", "acme", "demo", "running", 0, None),
]


def framed(data: bytes) -> bytes:
    return bytes(cbor2.dumps(data))


def closed(*items: bytes) -> bytes:
    """A file of these items, with an end item that fits them."""
    body = b"".join(map(framed, items))
    end = {"kind": "end", "items": len(items), "digest": sha256(BUNDLE_LABEL + body)}
    return body + framed(encode(end))


def read(data: bytes) -> list[Readable]:
    return list(read_items(BytesIO(data)))


def codes(data: bytes) -> list[str]:
    return [item.code for item in read(data) if isinstance(item, Finding)]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_every_item_is_read_back_as_it_was_written(item: Item) -> None:
    assert read(b"".join(write_bundle([item]))) == [item]


def test_a_bundle_is_a_cbor_sequence_of_byte_strings_of_canonical_maps() -> None:
    """X-047: another CBOR library reads it"""
    stream = BytesIO(b"".join(write_bundle(ITEMS)))
    decoder = cbor2.CBORDecoder(stream)
    maps = [cbor2.loads(decoder.decode()) for _ in range(len(ITEMS) + 1)]
    assert [value["kind"] for value in maps[:4]] == ["header", "header", "head", "batch"]
    assert maps[-1]["items"] == len(ITEMS)
    assert stream.read() == b""
    for item, value in zip(ITEMS, maps[:-1], strict=True):
        assert cbor2.dumps(value, canonical=True) == encode_item(item)


def test_the_writer_gives_the_same_bytes_piece_by_piece() -> None:
    writer = BundleWriter()
    pieces = [writer.write(item) for item in ITEMS]
    assert b"".join([*pieces, writer.end()]) == b"".join(write_bundle(ITEMS))


class Dripping:
    """A stream that gives one byte at a time, as a raw file may."""

    def __init__(self, data: bytes) -> None:
        self._stream = BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, 1))


def test_a_stream_that_gives_less_than_asked_for_is_read_to_the_end() -> None:
    assert list(read_items(Dripping(b"".join(write_bundle(ITEMS))))) == ITEMS


def test_every_prefix_of_a_bundle_is_truncated() -> None:
    data = b"".join(write_bundle([ITEMS[0], ITEMS[3]]))
    for length in range(len(data)):
        assert codes(data[:length]) == ["BUNDLE_TRUNCATED"]


def test_bytes_after_the_end_are_found() -> None:
    data = b"".join(write_bundle(ITEMS))
    assert codes(data + b"\x00") == ["BUNDLE_TRAILING_BYTES"]
    assert codes(data + data) == ["BUNDLE_TRAILING_BYTES"]


def test_an_end_that_does_not_fit_is_found() -> None:
    data = b"".join(write_bundle(ITEMS[:2]))
    shorter = b"".join(write_bundle(ITEMS[:1]))
    first = framed(encode_item(ITEMS[0]))
    end = data[len(first) + len(framed(encode_item(ITEMS[1]))) :]
    assert codes(first + end) == ["BUNDLE_DIGEST_WRONG"]
    other = framed(encode_item(ITEMS[2])) + shorter[len(first) :]
    assert codes(other) == ["BUNDLE_DIGEST_WRONG"]
    assert codes(framed(encode({"kind": "end", "items": 0}))) == ["BUNDLE_MALFORMED"]
    assert codes(framed(encode({"kind": "end", "items": True, "digest": D}))) == ["BUNDLE_MALFORMED"]
    assert codes(framed(b"\xa1\x78\x04kind\x63end")) == ["ITEM_NOT_CANONICAL"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x00", "BUNDLE_MALFORMED"),
        (b"\x60", "BUNDLE_MALFORMED"),
        (b"\x5f", "BUNDLE_MALFORMED"),
        (b"\x5b" + bytes(8), "BUNDLE_MALFORMED"),
        (b"\x58\x17" + bytes(23), "BUNDLE_MALFORMED"),
        (b"\x59\x00\xff" + bytes(255), "BUNDLE_MALFORMED"),
        (b"\x5a\x00\x00\xff\xff" + bytes(65535), "BUNDLE_MALFORMED"),
        (b"\x5a\xff\xff\xff\xff", "ITEM_TOO_LARGE"),
        (b"\x58", "BUNDLE_TRUNCATED"),
    ],
)
def test_bad_framing_ends_the_reading(data: bytes, code: str) -> None:
    assert codes(data) == [code]


def test_the_size_of_an_item_is_bounded_on_both_sides() -> None:
    small = list(read_items(BytesIO(b"".join(write_bundle(ITEMS[:2]))), bytes_max=10))
    assert isinstance(small[0], Finding)
    assert small[0].code == "ITEM_TOO_LARGE"
    with pytest.raises(InvalidInput, match="does not fit"):
        list(write_bundle([BatchItem(0, bytes(ITEM_BYTES_MAX), bytes(64), b"", [])]))


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (encode([]), "BUNDLE_MALFORMED"),
        (b"", "BUNDLE_MALFORMED"),
        (b"\x81" * 5000, "BUNDLE_MALFORMED"),
        (encode({}), "BUNDLE_MALFORMED"),
        (encode({"kind": 7}), "BUNDLE_MALFORMED"),
        (encode({"kind": "news"}), "ITEM_UNKNOWN"),
        (encode({"kind": "head"}), "BUNDLE_MALFORMED"),
        (encode({"kind": "head", "partition": 0, "note": b""}), "BUNDLE_MALFORMED"),
        (encode({"kind": "head", "partition": -1, "note": ""}), "BUNDLE_MALFORMED"),
        (encode({"kind": "head", "partition": True, "note": ""}), "BUNDLE_MALFORMED"),
        (encode({"kind": "content", "digest": b"", "data": b""}), "BUNDLE_MALFORMED"),
        (encode({"kind": "content", "digest": D, "data": b"", "x": 1}), "BUNDLE_MALFORMED"),
        (encode({"kind": "header", "v": 2, "origin": "", "partitions": 1, "scope": "ledger", "run_id": None, "exported_tick": 0}), "BUNDLE_VERSION_UNKNOWN"),
        (encode({"kind": "header", "v": 2, "new": 1}), "BUNDLE_VERSION_UNKNOWN"),
        (encode({"kind": "header", "v": 1, "origin": "", "partitions": 0, "scope": "ledger", "run_id": None, "exported_tick": 0}), "BUNDLE_MALFORMED"),
        (encode({"kind": "header", "v": 1, "origin": "", "partitions": 1, "scope": "all", "run_id": None, "exported_tick": 0}), "BUNDLE_MALFORMED"),
        (encode({"kind": "header", "v": 1, "origin": "", "partitions": 1, "scope": "run", "run_id": None, "exported_tick": 0}), "BUNDLE_MALFORMED"),
        (encode({"kind": "batch", "partition": 0, "body": b"", "signature": b"", "commands": b"", "records": []}), "BUNDLE_MALFORMED"),
        (encode({"kind": "batch", "partition": 0, "body": b"", "signature": bytes(64), "commands": b"", "records": [[b""]]}), "BUNDLE_MALFORMED"),
        (encode({"kind": "batch", "partition": 0, "body": b"", "signature": bytes(64), "commands": b"", "records": [[b"", 1]]}), "BUNDLE_MALFORMED"),
        (encode({"kind": "partial", "partition": 0, "body": b"", "signature": bytes(64), "records": [[0, b"", None, [b""]]], "tree_path": []}), "BUNDLE_MALFORMED"),
        (encode({"kind": "partial", "partition": 0, "body": b"", "signature": bytes(64), "records": [], "tree_path": [D] * 65}), "BUNDLE_MALFORMED"),
        (b"\xa3\x64kind\x64head\x64note\x60\x69partition\x18\x00", "ITEM_NOT_CANONICAL"),
        (b"\xa3\x64note\x60\x64kind\x64head\x69partition\x00", "BUNDLE_MALFORMED"),
    ],
)  # fmt: skip
def test_an_item_that_cannot_be_read_is_said_and_passed_over(item: bytes, code: str) -> None:
    found = read(closed(item, encode_item(ITEMS[2])))
    assert isinstance(found[0], Finding)
    assert found[0].code == code
    assert found[1:] == [ITEMS[2]]


@given(st.binary(max_size=200))
def test_reading_anything_at_all_never_raises(data: bytes) -> None:
    assert codes(data)


@given(st.data())
def test_reading_a_damaged_bundle_never_raises_and_always_finds(data: st.DataObject) -> None:
    whole = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] ^= data.draw(st.integers(1, 255))
    changed = bytes(whole)
    if changed != SMALL:
        assert codes(changed)


SMALL = b"".join(write_bundle(lively().items()[:4]))
