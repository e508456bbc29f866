from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon.merkle import (
    EMPTY_ROOT,
    Frontier,
    Tree,
    consistency_path,
    inclusion_path,
    leaf_hash,
    node_hash,
    root_and_paths,
    root_of,
    verify_consistency,
    verify_inclusion,
)
from detent.errors import InvalidInput, InvariantBroken

# The reference tree of Certificate Transparency: eight leaves and the root after each of them.
REFERENCE_LEAVES = [
    leaf_hash(bytes.fromhex(data))
    for data in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
REFERENCE_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
LEAVES = [leaf_hash(number.to_bytes(2, "big")) for number in range(70)]
TREE = Tree(LEAVES)


def reference_root(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, word for word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = largest_power_below(len(leaves))
    return sha256(b"\x01" + reference_root(leaves[:split]) + reference_root(leaves[split:])).digest()


def reference_path(index: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1."""
    if len(leaves) == 1:
        return []
    split = largest_power_below(len(leaves))
    if index < split:
        return [*reference_path(index, leaves[:split]), reference_root(leaves[split:])]
    return [*reference_path(index - split, leaves[split:]), reference_root(leaves[:split])]


def reference_proof(size1: int, leaves: Sequence[bytes], known: bool = True) -> list[bytes]:
    """SUBPROOF of RFC 6962, section 2.1.2."""
    if size1 == len(leaves):
        return [] if known else [reference_root(leaves)]
    split = largest_power_below(len(leaves))
    if size1 <= split:
        return [*reference_proof(size1, leaves[:split], known), reference_root(leaves[split:])]
    return [*reference_proof(size1 - split, leaves[split:], False), reference_root(leaves[:split])]


def largest_power_below(count: int) -> int:
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def unhex(*hashes: str) -> list[bytes]:
    return [bytes.fromhex(value) for value in hashes]


def test_the_reference_roots_come_out() -> None:
    """X-165: RFC 6962"""
    frontier = Frontier()
    for size, expected in enumerate(REFERENCE_ROOTS):
        assert root_of(REFERENCE_LEAVES[:size]).hex() == expected
        assert Tree(REFERENCE_LEAVES).root(size).hex() == expected
        assert frontier.root().hex() == expected
        if size < 8:
            frontier.append(REFERENCE_LEAVES[size])


@pytest.mark.parametrize(
    ("index", "size", "path"),
    [
        (0, 1, []),
        (
            0,
            8,
            unhex(
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ),
        ),
        (
            5,
            8,
            unhex(
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ),
        ),
        (2, 3, unhex("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125")),
    ],
)
def test_the_reference_inclusion_paths_come_out(index: int, size: int, path: list[bytes]) -> None:
    """X-165: RFC 6962"""
    root = bytes.fromhex(REFERENCE_ROOTS[size])
    assert Tree(REFERENCE_LEAVES).inclusion_path(index, size) == path
    assert verify_inclusion(REFERENCE_LEAVES[index], index, size, path, root)


@pytest.mark.parametrize(
    ("size1", "size2", "path"),
    [
        (1, 1, []),
        (
            1,
            8,
            unhex(
                "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
            ),
        ),
        (
            2,
            5,
            unhex(
                "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
                "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            ),
        ),
        (
            6,
            7,
            unhex(
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "b08693ec2e721597130641e8211e7eedccb4c26413963eee6c1e2ed16ffb1a5f",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ),
        ),
        (
            6,
            8,
            unhex(
                "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
                "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
                "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            ),
        ),
    ],
)
def test_the_reference_consistency_paths_come_out(size1: int, size2: int, path: list[bytes]) -> None:
    """X-165: RFC 6962"""
    root1, root2 = unhex(REFERENCE_ROOTS[size1], REFERENCE_ROOTS[size2])
    assert Tree(REFERENCE_LEAVES).consistency_path(size1, size2) == path
    assert verify_consistency(size1, root1, size2, root2, path)


def test_a_leaf_and_a_node_of_the_same_bytes_differ() -> None:
    """X-165: a second preimage by relabelling is impossible"""
    left, right = LEAVES[:2]
    assert leaf_hash(left + right) != node_hash(left, right)
    assert leaf_hash(b"x") == sha256(b"\x00x").digest()


def test_every_size_agrees_with_the_recursive_definition() -> None:
    """X-165"""
    frontier = Frontier()
    for size in range(len(LEAVES) + 1):
        expected = reference_root(LEAVES[:size])
        assert root_of(LEAVES[:size]) == expected
        assert frontier.root() == expected
        assert TREE.root(size) == expected
        if size < len(LEAVES):
            frontier.append(LEAVES[size])


def test_duplicating_the_last_leaf_of_an_odd_level_gives_another_root() -> None:
    """X-165: the other well-known rule for odd levels is not ours"""

    def duplicating(level: list[bytes]) -> bytes:
        while len(level) > 1:
            level = level + level[-1:] if len(level) % 2 else level
            level = [node_hash(level[place], level[place + 1]) for place in range(0, len(level), 2)]
        return level[0]

    for size in range(2, 33):
        same = duplicating(LEAVES[:size]) == root_of(LEAVES[:size])
        assert same == (size & (size - 1) == 0)
    assert root_of(LEAVES[:3]) != root_of([*LEAVES[:3], LEAVES[2]])


def test_every_path_agrees_with_the_recursive_definition_and_verifies() -> None:
    """X-165"""
    for size in range(1, 34):
        root = reference_root(LEAVES[:size])
        for index in range(size):
            path = TREE.inclusion_path(index, size)
            assert path == reference_path(index, LEAVES[:size])
            assert verify_inclusion(LEAVES[index], index, size, path, root)


def test_every_consistency_path_agrees_with_the_recursive_definition_and_verifies() -> None:
    """X-165"""
    roots = [reference_root(LEAVES[:size]) for size in range(34)]
    for size2 in range(1, 34):
        for size1 in range(1, size2 + 1):
            path = TREE.consistency_path(size1, size2)
            assert path == reference_proof(size1, LEAVES[:size2])
            assert verify_consistency(size1, roots[size1], size2, roots[size2], path)


def test_paths_come_out_of_the_nodes_stored_with_each_leaf() -> None:
    """X-165: node (level, index) stands in row ((index + 1) << level) - 1, at place level - 1"""
    frontier = Frontier()
    rows = [frontier.append(leaf) for leaf in LEAVES]
    assert [len(row) for row in rows[:8]] == [0, 1, 0, 2, 0, 1, 0, 3]

    def stored(level: int, index: int) -> bytes:
        row = ((index + 1) << level) - 1
        return rows[row][level - 1] if level else LEAVES[row]

    for size in (1, 2, 3, 7, 8, 9, 31, 32, 33, 64, 69, 70):
        for index in {0, size // 2, size - 1}:
            assert inclusion_path(index, size, stored) == TREE.inclusion_path(index, size)
            assert consistency_path(index + 1, size, stored) == TREE.consistency_path(index + 1, size)


@given(st.integers(0, 70), st.integers(0, 70))
def test_a_frontier_restored_from_its_state_goes_on_as_if_never_stopped(first: int, second: int) -> None:
    """X-165"""
    stop, end = sorted((first, second))
    frontier = Frontier()
    for leaf in LEAVES[:stop]:
        frontier.append(leaf)
    restored = Frontier(frontier.size, frontier.peaks)
    for leaf in LEAVES[stop:end]:
        assert restored.append(leaf) == frontier.append(leaf)
    assert (restored.size, restored.peaks) == (frontier.size, frontier.peaks)
    assert restored.root() == frontier.root() == root_of(LEAVES[:end])


@pytest.mark.parametrize(
    ("size", "peaks"),
    [(0, LEAVES[:1]), (1, []), (3, LEAVES[:1]), (-1, []), (2**63, LEAVES[:1]), (1, [b"short"]), (True, LEAVES[:1])],
)
def test_a_frontier_whose_peaks_do_not_fit_its_size_is_refused(size: int, peaks: list[bytes]) -> None:
    with pytest.raises(InvalidInput):
        Frontier(size, peaks)


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: proof.update(index=proof["index"] + 1),
        lambda proof: proof.update(index=proof["index"] - 1),
        lambda proof: proof.update(index=-1),
        lambda proof: proof.update(index=proof["size"]),
        lambda proof: proof.update(index=proof["size"] + 5),
        lambda proof: proof.update(index=True),
        lambda proof: proof.update(size=0),
        lambda proof: proof.update(size=1),
        lambda proof: proof.update(size=proof["size"] * 2),
        lambda proof: proof.update(size=2**63),
        lambda proof: proof.update(size=2**64),
        lambda proof: proof.update(size=float(proof["size"])),
        lambda proof: proof.update(path=[]),
        lambda proof: proof.update(path=proof["path"][1:]),
        lambda proof: proof.update(path=proof["path"][:-1]),
        lambda proof: proof.update(path=[*proof["path"], EMPTY_ROOT]),
        lambda proof: proof.update(path=[EMPTY_ROOT, *proof["path"]]),
        lambda proof: proof.update(path=[*proof["path"], proof["root"]]),
        lambda proof: proof.update(path=proof["path"][::-1]),
        lambda proof: proof.update(path=[proof["path"][0][:31], *proof["path"][1:]]),
        lambda proof: proof.update(path=[proof["path"][0] + b"\0", *proof["path"][1:]]),
        lambda proof: proof.update(path=[proof["path"][0].hex(), *proof["path"][1:]]),
        lambda proof: proof.update(leaf=LEAVES[0]),
        lambda proof: proof.update(leaf=b""),
        lambda proof: proof.update(root=EMPTY_ROOT),
        lambda proof: proof.update(root=proof["root"][:31]),
        lambda proof: proof.update(root=b""),
    ],
)
@pytest.mark.parametrize(("index", "size"), [(5, 8), (5, 7), (6, 7), (10, 21), (20, 21)])
def test_a_proof_that_does_not_fit_proves_nothing(change: Change, index: int, size: int) -> None:
    """X-165: wrong length, index >= size, size 0, 2**63 and above all fail closed"""
    proof: dict[str, Any] = {
        "leaf": LEAVES[index],
        "index": index,
        "size": size,
        "path": TREE.inclusion_path(index, size),
        "root": TREE.root(size),
    }
    assert verify_inclusion(**proof)
    before = dict(proof)
    change(proof)
    assert repr(proof) != repr(before)
    assert not verify_inclusion(**proof)


@given(st.integers(1, 64), st.data())
def test_one_changed_bit_in_a_proof_is_found(size: int, data: st.DataObject) -> None:
    """X-165"""
    index = data.draw(st.integers(0, size - 1))
    parts = [bytearray(part) for part in (LEAVES[index], TREE.root(size), *TREE.inclusion_path(index, size))]
    part = data.draw(st.sampled_from(parts))
    part[data.draw(st.integers(0, 31))] ^= 1 << data.draw(st.integers(0, 7))
    leaf, root, *path = map(bytes, parts)
    assert not verify_inclusion(leaf, index, size, path, root)


def test_a_leaf_is_proved_at_its_own_place_only() -> None:
    """X-165: unless the sizes make the path look the same, no other (index, size) accepts it"""
    for index in range(13):
        path, root = TREE.inclusion_path(index, 13), TREE.root(13)
        accepted = [place for place in range(13) if verify_inclusion(LEAVES[index], place, 13, path, root)]
        assert accepted == [index]


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: proof.update(size1=proof["size1"] + 1),
        lambda proof: proof.update(size1=proof["size1"] - 1),
        lambda proof: proof.update(size1=0),
        lambda proof: proof.update(size1=-1),
        lambda proof: proof.update(size2=proof["size1"]),
        lambda proof: proof.update(size2=proof["size1"] - 1),
        lambda proof: proof.update(size2=proof["size2"] * 2),
        lambda proof: proof.update(size2=2**63),
        lambda proof: proof.update(size1=2**63, size2=2**63),
        lambda proof: proof.update(root1=proof["root2"]),
        lambda proof: proof.update(root2=proof["root1"]),
        lambda proof: proof.update(root1=proof["root2"], root2=proof["root1"]),
        lambda proof: proof.update(root1=b""),
        lambda proof: proof.update(path=[]),
        lambda proof: proof.update(path=proof["path"][1:]),
        lambda proof: proof.update(path=proof["path"][:-1]),
        lambda proof: proof.update(path=[*proof["path"], EMPTY_ROOT]),
        lambda proof: proof.update(path=[proof["root1"], *proof["path"]]),
        lambda proof: proof.update(path=[proof["path"][0][:31], *proof["path"][1:]]),
    ],
)
@pytest.mark.parametrize(("size1", "size2"), [(6, 8), (4, 7), (3, 21), (16, 33), (20, 21)])
def test_a_consistency_path_that_does_not_fit_proves_nothing(change: Change, size1: int, size2: int) -> None:
    """X-165"""
    proof: dict[str, Any] = {
        "size1": size1,
        "root1": TREE.root(size1),
        "size2": size2,
        "root2": TREE.root(size2),
        "path": TREE.consistency_path(size1, size2),
    }
    assert verify_consistency(**proof)
    before = dict(proof)
    change(proof)
    assert repr(proof) != repr(before)
    assert not verify_consistency(**proof)


def test_a_path_longer_than_the_tree_is_high_proves_nothing() -> None:
    """X-165: even if the root is made to fit it"""
    extra = leaf_hash(b"extra")
    for index, size in [(0, 1), (5, 8), (20, 21)]:
        path = [*TREE.inclusion_path(index, size), extra]
        assert not verify_inclusion(LEAVES[index], index, size, path, node_hash(extra, TREE.root(size)))
        assert not verify_inclusion(LEAVES[index], index, size, path, node_hash(TREE.root(size), extra))
    root1, root2 = node_hash(extra, TREE.root(6)), node_hash(extra, TREE.root(8))
    assert not verify_consistency(6, root1, 8, root2, [*TREE.consistency_path(6, 8), extra])


def test_a_tree_never_comes_before_a_smaller_one() -> None:
    """X-165: the bare algorithm would accept these two hashes"""
    assert not verify_consistency(3, LEAVES[0], 2, node_hash(LEAVES[0], LEAVES[1]), LEAVES[:2])


def test_a_rewritten_history_is_not_consistent() -> None:
    """X-165: change one leaf below the old size, and no path leads to both roots"""
    changed = Tree([*LEAVES[:2], leaf_hash(b"other"), *LEAVES[3:]])
    for size1, size2 in [(3, 7), (4, 8), (5, 5), (8, 21)]:
        for source in (TREE, changed):
            path = source.consistency_path(size1, size2)
            assert not verify_consistency(size1, TREE.root(size1), size2, changed.root(size2), path)


def test_an_empty_tree_comes_before_every_tree() -> None:
    """X-165"""
    assert TREE.consistency_path(0, 9) == []
    assert verify_consistency(0, EMPTY_ROOT, 9, TREE.root(9), [])
    assert verify_consistency(0, EMPTY_ROOT, 0, EMPTY_ROOT, [])
    assert not verify_consistency(0, TREE.root(1), 9, TREE.root(9), [])
    assert not verify_consistency(0, EMPTY_ROOT, 0, TREE.root(9), [])
    assert not verify_consistency(0, EMPTY_ROOT, 9, TREE.root(9), [LEAVES[0]])
    assert not verify_consistency(5, TREE.root(5), 5, TREE.root(5), [LEAVES[0]])
    assert not verify_consistency(5, TREE.root(5), 5, TREE.root(6), [])


@pytest.mark.parametrize(("index", "size"), [(0, 0), (1, 1), (-1, 3), (0, 2**63)])
def test_asking_for_a_path_outside_the_tree_is_a_broken_invariant(index: int, size: int) -> None:
    with pytest.raises(InvariantBroken):
        inclusion_path(index, size, TREE.node)
    with pytest.raises(InvariantBroken):
        consistency_path(size + 1, size, TREE.node)


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=70))
def test_the_paths_of_all_leaves_at_once_are_those_of_each(data: list[bytes]) -> None:
    leaves = [leaf_hash(one) for one in data]
    tree = Tree(leaves)
    root, paths = root_and_paths(leaves)
    assert root == tree.root()
    assert paths == [b"".join(tree.inclusion_path(index)) for index in range(tree.size)]
