"""The keeper of tree heads outside the home."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from detent.canon import encode
from detent.errors import HomeError
from detent.owner.state_directory import KeptHeads, state_directory


@pytest.fixture
def keeper(tmp_path: Path) -> KeptHeads:
    return KeptHeads(tmp_path / "state" / "heads", "detent/0123")


def test_heads_are_kept_outside_the_home() -> None:
    """X-178"""
    assert state_directory({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/detent/heads")
    assert state_directory({"HOME": "/h"}) == Path("/h/.local/state/detent/heads")


def test_nothing_is_kept_at_first(keeper: KeptHeads) -> None:
    assert keeper.heads() == {}


def test_the_newest_head_of_each_partition_is_kept(keeper: KeptHeads) -> None:
    keeper.keep(0, 5, "five")
    keeper.keep(1, 2, "two")
    keeper.keep(0, 9, "nine")
    keeper.keep(0, 7, "older")
    keeper.keep(0, 9, "the same size")
    assert keeper.heads() == {0: (9, "nine"), 1: (2, "two")}


def test_ledgers_of_other_names_do_not_mix(tmp_path: Path) -> None:
    KeptHeads(tmp_path, "detent/a").keep(0, 1, "a")
    KeptHeads(tmp_path, "detent/b").keep(0, 2, "b")
    assert KeptHeads(tmp_path, "detent/a").heads() == {0: (1, "a")}


def test_heads_are_forgotten_only_when_told(keeper: KeptHeads) -> None:
    keeper.keep(0, 5, "five")
    keeper.forget()
    keeper.forget()
    assert keeper.heads() == {}


@pytest.mark.parametrize(
    "data", [b"", b"\xff", encode(7), encode([7]), encode([[1, 2]]), encode({"a": 1}), b"\x18\x00"]
)
def test_a_damaged_file_is_an_error_and_is_not_written_over(keeper: KeptHeads, data: bytes) -> None:
    keeper.keep(0, 5, "five")
    keeper.path.write_bytes(data)
    with pytest.raises(HomeError, match="damaged"):
        keeper.heads()
    with pytest.raises(HomeError, match="damaged"):
        keeper.keep(0, 6, "six")
    assert keeper.path.read_bytes() == data


def test_a_place_that_cannot_be_written_is_a_typed_error_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    keeper = KeptHeads(tmp_path / "file" / "heads", "detent/a")
    with pytest.raises(HomeError, match="cannot be read"):
        keeper.keep(0, 1, "note")
    with pytest.raises(HomeError, match="cannot be kept") as caught:
        keeper.prepare()
    assert "XDG_STATE_HOME" in str(caught.value.hint)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "else")
    with pytest.raises(HomeError, match="cannot be kept"):
        KeptHeads(tmp_path / "dangling", "detent/a").keep(0, 1, "note")


def test_preparing_leaves_nothing_behind(keeper: KeptHeads) -> None:
    keeper.prepare()
    keeper.prepare()
    assert list(keeper.path.parent.iterdir()) == []
    assert keeper.path.parent.stat().st_mode & 0o077 == 0


def test_owners_of_many_partitions_keep_their_heads_in_one_file_side_by_side(keeper: KeptHeads) -> None:
    def keep(partition: int) -> None:
        for size in range(1, 41):
            keeper.keep(partition, size, f"{partition}:{size}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(keep, range(6)))
    finally:
        sys.setswitchinterval(before)
    assert keeper.heads() == {partition: (40, f"{partition}:40") for partition in range(6)}


def test_there_is_room_for_the_heads_of_many_partitions(keeper: KeptHeads) -> None:
    keeper._write(encode([[number, 1, "x" * 400] for number in range(1_000)]))
    keeper.keep(5, 2, "newer")
    assert len(keeper.heads()) == 1_000
