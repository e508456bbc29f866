"""A stream that verifies: what it promises, piece by piece."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.artifacts.api import DirectoryStore
from detent.canon import sha256
from detent.errors import StoreCorrupt
from detent.store.streams import PIECE_BYTES, VerifiedStream

DATA = bytes(range(256)) * 12_000
"""Three pieces of a file, the last one short."""


def damaged_stream(tmp_path: Path, damaged: bytes) -> VerifiedStream:
    store = DirectoryStore(tmp_path / "content")
    digest = store.put(DATA).digest
    name = digest.hex()
    (tmp_path / "content" / name[:2] / name[2:]).write_bytes(damaged)
    stream = store.open(digest)
    assert stream is not None
    return stream


DAMAGES = {
    "first byte": b"x" + DATA[1:],
    "last byte": DATA[:-1] + b"x",
    "cut short": DATA[:-1],
    "cut at a piece": DATA[:PIECE_BYTES],
    "longer": DATA + b"x",
    "empty": b"",
    "other": b"another file",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_end_of_damaged_content_is_never_reached(tmp_path: Path, damage: str) -> None:
    """JOB-074: a reader that reached the end has read the right bytes."""
    damaged = DAMAGES[damage]
    handed_out: list[bytes] = []
    with damaged_stream(tmp_path, damaged) as stream:
        with pytest.raises(StoreCorrupt, match="does not hold the bytes"):
            handed_out.extend(iter(stream.read1, b""))
        seen = b"".join(handed_out)
        assert damaged.startswith(seen)
        assert len(seen) < len(damaged) or not damaged
        with pytest.raises(StoreCorrupt):
            stream.read()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_copy_of_damaged_content_fails(tmp_path: Path, damage: str) -> None:
    with damaged_stream(tmp_path, DAMAGES[damage]) as stream, pytest.raises(StoreCorrupt):
        shutil.copyfileobj(stream, io.BytesIO())


def test_damage_in_the_last_piece_hands_out_the_pieces_before_and_none_of_it(tmp_path: Path) -> None:
    """What comes before the last piece is not verified yet: that is the price of not reading twice."""
    with damaged_stream(tmp_path, DATA[:-1] + b"x") as stream:
        assert stream.read(2 * PIECE_BYTES) == DATA[: 2 * PIECE_BYTES]
        with pytest.raises(StoreCorrupt):
            stream.read(1)


def test_a_stream_can_be_wrapped_and_read_by_lines_and_into_buffers(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "content")
    text = "first\nsecond\nthird"
    digest = store.put(text.encode()).digest
    stream = store.open(digest)
    assert stream is not None
    with io.TextIOWrapper(stream, encoding="utf-8") as lines:
        assert [*lines] == ["first\n", "second\n", "third"]
    again = store.open(digest)
    assert again is not None
    with again:
        buffer = bytearray(8)
        assert again.readinto(buffer) == 8
        assert bytes(buffer) == b"first\nse"
        assert not again.seekable()
        assert not again.writable()


def test_a_closed_stream_gives_nothing_and_lets_go_of_its_file(tmp_path: Path) -> None:
    released = []
    stream = VerifiedStream(iter([b"x"]), sha256(b"x"), "x", lambda: released.append(1))
    stream.close()
    stream.close()
    assert released == [1]
    with pytest.raises(ValueError, match="closed"):
        stream.read()


@given(pieces=st.lists(st.binary(max_size=20), max_size=8), sizes=st.lists(st.integers(-1, 30), min_size=1, max_size=6))
def test_however_it_is_cut_and_read_the_right_bytes_come_and_others_never_end(
    pieces: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(pieces)
    stream = VerifiedStream(iter(pieces), sha256(data), "x")
    found = b"".join(stream.read(size) for size in sizes)
    assert data.startswith(found)
    assert found + stream.read() == data
    assert stream.read() == b""
    wrong = VerifiedStream(iter(pieces), sha256(data + b"."), "x")
    with pytest.raises(StoreCorrupt):
        wrong.read()
