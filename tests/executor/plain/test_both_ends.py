"""What is kept of a task that prints much: its beginning and its end, with a mark between them."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.executor.plain import wire
from detent.executor.plain.capture import GAP, Drain, Taken, joined
from tests.executor.plain.rig import OUTPUT_BYTES_MAX, Rig

BYTES_MAX = 200
HEAD = BYTES_MAX // 2
END = BYTES_MAX - HEAD - 64


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[tuple[Drain, Taken]]:
    shared = memoryview(mmap.mmap(-1, wire.SHARED_BYTES)).cast("Q")
    drain = Drain(str(tmp_path / "stdout"), shared, wire.OUT, BYTES_MAX)
    yield drain, Taken(drain)
    os.close(drain.writing)
    drain.close()


@pytest.mark.parametrize("size", [0, 1, HEAD - 1, HEAD, HEAD + 1, HEAD + END, HEAD + END + 1, 1000, 10_000])
@pytest.mark.parametrize("piece", [1, 7, 64, 5000])
def test_both_ends_of_a_stream_are_kept_whatever_its_pieces(
    streams: tuple[Drain, Taken], size: int, piece: int
) -> None:
    drain, taken = streams
    for _ in range(2):  # The second task finds nothing of the first.
        data = b"".join(b"%07d|" % number for number in range(size // 8 + 1))[:size]
        for first in range(0, size, piece):
            os.write(drain.writing, data[first : first + piece])
            drain.pump()
        assert taken.is_kept()
        assert taken.tail(16) == data[-16:]
        assert taken.peek(50) == data[:50]
        kept, truncated = taken.take()
        assert truncated is (size > HEAD + END)
        if not truncated:
            assert kept == data
            continue
        assert len(kept) <= BYTES_MAX
        before, after = GAP.split(kept)
        assert (before, after) == (data[:HEAD], data[-END:])
        assert f" {size - HEAD - END} bytes left out ".encode() in kept


@given(st.text(alphabet="aä€😀", min_size=100, max_size=400))
def test_no_character_is_cut_in_two_and_the_mark_says_how_much_is_missing(text: str) -> None:
    data = text.encode()
    head, size = data[:HEAD], len(data) - HEAD
    ring = bytearray(END)
    for place, byte in enumerate(data[HEAD:]):
        ring[place % END] = byte
    kept, truncated = joined(head, bytes(ring[: min(size, END)]), len(data))
    assert truncated is (size > END)
    kept.decode()
    if truncated:
        (mark,) = re.findall(rb" ([0-9]+) bytes left out", kept)
        before, after = GAP.split(kept)
        assert len(before) == HEAD  # A reader that has seen that much goes on with the mark.
        assert data.endswith(after)
        assert int(mark) + len(after) + HEAD == len(data)


def test_a_disk_that_takes_no_more_keeps_the_beginning_and_says_so() -> None:
    assert joined(b"begun", b"", 5000) == (b"begun", True)
    assert joined("beg€".encode()[:-1], b"", 5000) == (b"beg", True)


def test_the_end_of_a_long_output_is_kept_also_when_the_worker_is_killed(rig: Rig) -> None:
    """The last lines of what was printed are those that say why."""
    command = "seq 100000; echo the last words; kill -9 $PPID; sleep 60"
    done = rig.result(rig.submit(command, kind="shell"))
    assert not done.ok
    assert done.stdout.truncated
    assert done.stdout.data.startswith(b"1\n2\n")
    assert done.stdout.data.endswith(b"the last words\n")
    assert len(done.stdout.data) <= OUTPUT_BYTES_MAX
