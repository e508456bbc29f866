"""One root for a chunk, one proof for an item, one digest for a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import sha256
from detent.canon.merkle import EMPTY_ROOT, root_of, verify_inclusion
from detent.errors import InvalidInput
from detent.ordered import ChunkOutcomes, Summary, item_leaf
from detent.ordered.actions import BlockTree
from tests.ordered.scenes import CANCEL, FAIL, SKIP, SUCCESS

ITEMS = st.lists(
    st.tuples(st.sampled_from([SUCCESS, SKIP, FAIL, CANCEL]), st.one_of(st.none(), st.just(sha256(b"x")))),
    min_size=1,
    max_size=20,
)


@given(ITEMS, st.integers(0, 2**40), st.data())
def test_one_item_is_proved_by_its_path_and_by_no_other(
    items: list[tuple[object, bytes | None]], first: int, data: st.DataObject
) -> None:
    """X-183"""
    chunk = ChunkOutcomes(first, items)  # type: ignore[arg-type]
    root = chunk.root()
    seq = first + data.draw(st.integers(0, len(items) - 1))
    proof = chunk.prove(seq)
    assert proof.proves(root)
    assert verify_inclusion(
        item_leaf(seq, proof.outcome, proof.payload_digest), seq - first, len(items), list(proof.path), root
    )
    lies = [
        replace(proof, seq=seq + 1),
        replace(proof, outcome=SKIP if proof.outcome is not SKIP else FAIL),
        replace(proof, payload_digest=sha256(b"y")),
        replace(proof, payload_digest=b"short"),
        replace(proof, path=(*proof.path, root)),
        replace(proof, index=len(items)),
    ]
    assert not any(lie.proves(root) for lie in lies)
    assert not proof.proves(sha256(b"another root"))
    with pytest.raises(InvalidInput):
        chunk.prove(first + len(items))


def test_the_bytes_of_a_leaf_are_fixed() -> None:
    """X-077, X-183: written out, because ledgers hold roots over them"""
    data = b"\x00detent/ordered/item/v1\x00" + (7).to_bytes(8, "big") + b"\x03\x20" + sha256(b"x")
    assert item_leaf(7, SUCCESS, sha256(b"x")) == sha256(data)
    assert item_leaf(7, CANCEL, None) == sha256(
        b"\x00detent/ordered/item/v1\x00" + (7).to_bytes(8, "big") + b"\x06\x00"
    )
    for outcome, payload in ((0, None), (7, None), (SUCCESS, b"short")):
        with pytest.raises(InvalidInput):
            item_leaf(7, outcome, payload)  # type: ignore[arg-type]


@given(st.lists(st.binary(max_size=3), max_size=200), st.lists(st.integers(0, 90), max_size=6))
def test_blocks_are_cut_by_number_and_not_by_how_the_items_came(items: list[bytes], cuts: list[int]) -> None:
    """ORD-035: and a tree restored from its edge goes on the same"""
    whole, pieces = BlockTree(), BlockTree()
    whole.extend(list(items))
    rest = list(items)
    for cut in cuts:
        pieces.extend(rest[:cut])
        rest = rest[cut:]
        pieces = BlockTree(pieces.size, list(pieces.frontier.peaks), list(pieces.items))
    pieces.extend(rest)
    assert (whole.root(), whole.size) == (pieces.root(), len(items))


def test_an_edge_that_does_not_fit_its_size_is_refused() -> None:
    for size, peaks in ((64, []), (128, [b"x" * 32, b"y" * 32]), (64, [b"short"]), (1, [])):
        with pytest.raises(InvalidInput):
            BlockTree(size, peaks)


def test_the_summary_has_no_timing_in_its_digest() -> None:
    """ORD-035, X-077"""
    one = Summary(2, 1, 0, 1, 0, EMPTY_ROOT, {"LEASE_EXPIRED": 1})
    assert one.digest() == replace(one, failures={"INTERNAL_ERROR": 1}).digest()
    assert set(one.to_map()) == {"total", "success", "skip", "fail", "cancel", "root"}
    others = [
        *(replace(one, total=9), replace(one, success=9), replace(one, skip=9), replace(one, fail=9)),
        *(replace(one, cancel=9), replace(one, root=sha256(b"z"))),
    ]
    assert len({each.digest() for each in [one, *others]}) == 7


def test_a_path_fits_its_place_or_leads_nowhere() -> None:
    """X-183: an interior node is no root, and a longer path is no better"""
    chunk = ChunkOutcomes(0, [(SUCCESS, sha256(bytes((number,)))) for number in range(4)])
    proof, root = chunk.prove(0), chunk.root()
    assert proof.proves(root)
    assert not replace(proof, path=proof.path[:1]).proves(root)
    assert not replace(proof, size=2).proves(root)
    assert not replace(proof, size=1, path=proof.path[:1]).proves(root)
    assert not replace(proof, path=proof.path[:1]).proves(root_of(chunk.leaves()[:2]))
