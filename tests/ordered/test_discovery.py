"""Discovery: every eligible entry one number, in an order that no directory listing decides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import InvalidInput
from detent.ordered import discover
from detent.ordered.digests import normalised

NAME = st.binary(min_size=1, max_size=6).filter(lambda name: 0 not in name)


@given(st.lists(NAME, max_size=12), st.randoms(use_true_random=False))
def test_a_shuffled_listing_gives_the_same_numbers(names: list[bytes], random: object) -> None:
    """ORD-002, ORD-004, ORD-005, X-073"""
    shuffled = list(names)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    found = discover(names)
    assert found == discover(shuffled)
    assert list(found.names) == sorted(set(map(normalised, names)))
    assert found.total + found.repeated == len(names)


def test_only_eligible_entries_get_a_number() -> None:
    """ORD-002"""
    found = discover([b"b.txt", b"a.md", b"a.txt"], lambda name: name.endswith(b".txt"))
    assert found.names == (b"a.txt", b"b.txt")


def test_a_name_that_two_patterns_find_is_one_entry() -> None:
    """ORD-002"""
    found = discover([b"corpus/a", b"./corpus//a", b"corpus/b"])
    assert (found.names, found.repeated) == ((b"corpus/a", b"corpus/b"), 1)


def test_names_are_ordered_by_their_bytes_whatever_they_spell(tmp_path: Path) -> None:
    """ORD-005, X-183: also those that are not UTF-8, and upper case before lower"""
    names = [b"z", b"Z", b"a", b"\xff\xfe", "é".encode(), b"a/b", b"a-b"]
    for name in (b"z", b"\xff\xfe", "é".encode()):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()  # noqa: PTH118 - bytes have no Path
    listed = [os.fsencode(path.name) for path in tmp_path.iterdir()]
    assert discover(listed).names == (b"z", "é".encode(), b"\xff\xfe")
    assert discover(names).names == (b"Z", b"a", b"a-b", b"a/b", b"z", "é".encode(), b"\xff\xfe")


@pytest.mark.parametrize(
    ("name", "plain"),
    [(b"./a", b"a"), (b"a//b/./c/", b"a/b/c"), (b"/a", b"/a"), (b"a/../b", b"a/../b"), (b".", b"."), (b"//", b"/")],
)
def test_a_normalised_path_keeps_what_a_link_could_change(name: bytes, plain: bytes) -> None:
    """ORD-005"""
    assert normalised(name) == plain


@pytest.mark.parametrize("name", [b"", b"a\x00b", "text"])
def test_what_is_no_name_is_refused(name: bytes) -> None:
    with pytest.raises(InvalidInput):
        discover([name])
