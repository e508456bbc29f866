"""The map that spills to a file: an ordered dictionary, whatever it holds in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import StoreUnavailable
from detent.ledger import MemoryHeads
from detent.store.spill import PAGE_ROWS, SpilledHeads

keys = st.binary(min_size=1, max_size=3)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, st.binary(max_size=3)),
        st.tuples(st.just("delete"), keys, st.just(b"")),
        st.tuples(st.just("items"), st.binary(max_size=2), st.just(b"")),
    ),
    max_size=60,
)


@given(operations, st.integers(0, 6))
def test_it_answers_as_a_dictionary_does(steps: list[tuple[str, bytes, bytes]], hot_max: int) -> None:
    """X-168"""
    memory = MemoryHeads()
    with SpilledHeads(hot_max=hot_max) as spilled:
        for operation, key, value in steps:
            if operation == "put":
                memory.put(key, value)
                spilled.put(key, value)
            elif operation == "delete":
                memory.delete(key)
                spilled.delete(key)
            else:
                assert list(spilled.items(key)) == list(memory.items(key))
            assert spilled.get(key) == memory.get(key)
        assert list(spilled.items(b"")) == list(memory.items(b""))
        assert len(spilled) == len(memory)


def test_many_entries_come_in_order_page_after_page(tmp_path: Path) -> None:
    with SpilledHeads(hot_max=100, folder=tmp_path) as spilled:
        count = 2 * PAGE_ROWS + 17
        for number in reversed(range(count)):
            spilled.put(b"a" + number.to_bytes(4, "big"), b"%d" % number)
        spilled.put(b"a", b"first")
        spilled.put(b"b", b"other")
        found = list(spilled.items(b"a"))
        assert found[0] == (b"a", b"first")
        assert [value for _, value in found[1:]] == [b"%d" % number for number in range(count)]
        assert len(spilled) == count + 2


def test_memory_stays_bounded_and_the_file_goes_when_it_is_closed(tmp_path: Path) -> None:
    """X-168"""
    with SpilledHeads(hot_max=50, folder=tmp_path) as spilled:
        for number in range(1_000):
            spilled.put(number.to_bytes(4, "big"), b"value")
            assert len(spilled._hot) <= 51
        assert list(tmp_path.rglob("heads.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_room_is_a_typed_error(tmp_path: Path) -> None:
    spilled = SpilledHeads(hot_max=0, folder=tmp_path)
    spilled.put(b"a", b"1")
    spilled._database.execute("PRAGMA max_page_count=1")  # type: ignore[union-attr]
    with pytest.raises(StoreUnavailable, match="temporary file"):
        spilled.put(b"b", bytes(100_000))
    spilled.close()


def test_a_folder_that_is_not_there_is_a_typed_error(tmp_path: Path) -> None:
    spilled = SpilledHeads(hot_max=0, folder=tmp_path / "nowhere")
    with pytest.raises(StoreUnavailable, match="temporary file"):
        spilled.put(b"a", b"1")


def test_small_maps_never_touch_the_disk(tmp_path: Path) -> None:
    with SpilledHeads(folder=tmp_path) as spilled:
        spilled.put(b"a", b"1")
        assert spilled.get(b"a") == b"1"
        assert len(spilled) == 1
        assert list(tmp_path.iterdir()) == []
