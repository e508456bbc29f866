"""The Merkle tree of RFC 6962: leaves in append order, no padding, an odd node moves up unchanged.

A leaf is hashed behind a zero byte and an interior node behind a one byte, so neither can be passed off as the other.
``node(level, index)`` names the root of the *complete* subtree over leaves ``index << level`` up to
``(index + 1) << level``; complete subtrees never change again, which is why they can be stored when their last leaf
arrives and every path can be put together from them.

Writers use ``root_of`` and ``Frontier``; readers use ``verify_inclusion`` and ``verify_consistency``, which take foreign
bytes and answer False to everything that does not prove the claim. Asking for a path outside the tree is a bug of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from detent.errors import InvalidInput, InvariantBroken

HASH_BYTES: Final = 32
SIZE_MAX: Final = 2**63 - 1
"""Largest tree. A size from outside that is larger is nonsense, and the limit keeps every proof below 64 hashes."""
EMPTY_ROOT: Final = sha256(b"").digest()

NodeSource: TypeAlias = Callable[[int, int], bytes]


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf."""
    return sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an interior node."""
    return sha256(b"\x01" + left + right).digest()


def root_of(leaf_hashes: Iterable[bytes]) -> bytes:
    """The root over leaf hashes; of no leaves, the hash of nothing."""
    level = list(leaf_hashes)
    if not level:
        return EMPTY_ROOT
    while len(level) > 1:
        odd = level[-1:] if len(level) & 1 else []
        pairs = iter(level)
        level = [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=False)]
        level += odd
    return level[0]


def root_and_paths(leaf_hashes: Iterable[bytes]) -> tuple[bytes, list[bytes]]:
    """The root over one or more leaf hashes, and the path of each leaf to it, nearest hash first, as one piece of bytes."""
    levels = [list(leaf_hashes)]
    while len(below := levels[-1]) > 1:
        pairs = iter(below)
        level = [sha256(b"\x01" + left + right).digest() for left, right in zip(pairs, pairs, strict=False)]
        levels.append(level + below[-1:] if len(below) & 1 else level)
    (root,) = levels.pop()
    paths = [b""]
    for level in reversed(levels):
        last = len(level) - 1
        siblings = (level[index ^ 1] if index < last or index & 1 else b"" for index in range(last + 1))
        paths = [sibling + paths[index >> 1] for index, sibling in enumerate(siblings)]
    return root, paths


class Frontier:
    """The right edge of a growing tree: one hash for each one bit of its size, the largest subtree first.

    It is all that appending needs. ``size`` and ``peaks`` are the whole state and restore it.
    """

    __slots__ = ("_peaks", "size")

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        if not _is_size(size) or len(peaks) != size.bit_count() or not _are_hashes(peaks):
            raise InvalidInput(f"{len(peaks)} peaks do not make the frontier of a tree of {size} leaves")
        self.size = size
        self._peaks = list(peaks)

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """Roots of the complete subtrees along the edge, left to right."""
        return tuple(self._peaks)

    def append(self, leaf: bytes) -> list[bytes]:
        """Add a leaf hash and return the interior nodes it completed, level 1 first."""
        index = self.size
        peaks = self._peaks
        completed: list[bytes] = []
        node = leaf
        while index & 1:
            node = sha256(b"\x01" + peaks.pop() + node).digest()
            completed.append(node)
            index >>= 1
        peaks.append(node)
        self.size += 1
        return completed

    def root(self) -> bytes:
        """The root of the tree as it stands."""
        return _fold(self._peaks) if self._peaks else EMPTY_ROOT


class Tree:
    """All complete nodes of a tree that fits in memory (the records of one commit), for making its paths."""

    __slots__ = ("_levels",)

    def __init__(self, leaf_hashes: Iterable[bytes]) -> None:
        level = list(leaf_hashes)
        self._levels = [level]
        while len(level) > 1:
            pairs = iter(level)
            level = [node_hash(left, right) for left, right in zip(pairs, pairs, strict=False)]
            self._levels.append(level)

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self._levels[0])

    def node(self, level: int, index: int) -> bytes:
        """The root of a complete subtree."""
        return self._levels[level][index]

    def root(self, size: int | None = None) -> bytes:
        """The root over the first ``size`` leaves, or over all of them."""
        return root_at(self.size if size is None else size, self.node)

    def inclusion_path(self, index: int, size: int | None = None) -> list[bytes]:
        """The path of a leaf in the tree of the first ``size`` leaves, or of all of them."""
        return inclusion_path(index, self.size if size is None else size, self.node)

    def consistency_path(self, size1: int, size2: int | None = None) -> list[bytes]:
        """The path between the trees of the first ``size1`` and ``size2`` leaves."""
        return consistency_path(size1, self.size if size2 is None else size2, self.node)


def inclusion_path(index: int, size: int, node: NodeSource) -> list[bytes]:
    """The hashes that lead from leaf ``index`` to the root of a tree of ``size`` leaves, nearest to the leaf first."""
    if not 0 <= index < size <= SIZE_MAX:
        raise InvariantBroken(f"leaf {index} is not in a tree of {size} leaves")
    begin, end = 0, size
    path: list[bytes] = []
    while end - begin > 1:
        middle = begin + _split(end - begin)
        if index < middle:
            path.append(_range_root(middle, end, node))
            end = middle
        else:
            path.append(_range_root(begin, middle, node))
            begin = middle
    path.reverse()
    return path


def consistency_path(size1: int, size2: int, node: NodeSource) -> list[bytes]:
    """The hashes that show that the tree of ``size1`` leaves is the beginning of the tree of ``size2`` leaves."""
    if not 0 <= size1 <= size2 <= SIZE_MAX:
        raise InvariantBroken(f"a tree of {size1} leaves does not come before one of {size2}")
    if size1 == 0:
        return []
    begin, end = 0, size2
    path: list[bytes] = []
    while size1 != end:
        middle = begin + _split(end - begin)
        if size1 <= middle:
            path.append(_range_root(middle, end, node))
            end = middle
        else:
            path.append(_range_root(begin, middle, node))
            begin = middle
    # The verifier knows the old root; only a part of it has to be named.
    if begin:
        path.append(_range_root(begin, end, node))
    path.reverse()
    return path


def root_at(size: int, node: NodeSource) -> bytes:
    """The root of the tree of the first ``size`` leaves."""
    return _range_root(0, size, node) if size else EMPTY_ROOT


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Whether ``path`` proves that ``leaf`` (a leaf hash) is leaf ``index`` of the tree with this size and root."""
    if not (_is_size(index) and _is_size(size) and _are_hashes((leaf, root, *path))):
        return False
    return root_on_path(leaf, index, size, path) == root


def root_on_path(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that ``path`` leads to from leaf ``index`` of a tree of ``size`` leaves; None for a path that is too short or too long."""
    if not 0 <= index < size:
        return None
    # As in RFC 9162, 2.1.3.2: `place` and `last` walk up together until the right edge has been passed.
    place, last = index, size - 1
    node = leaf
    for sibling in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            node = node_hash(sibling, node)
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            node = node_hash(node, sibling)
        place >>= 1
        last >>= 1
    return node if last == 0 else None


def verify_consistency(size1: int, root1: bytes, size2: int, root2: bytes, path: Sequence[bytes]) -> bool:
    """Whether ``path`` proves that the first tree is the beginning of the second.

    An empty tree is the beginning of every tree, and its path is empty.
    """
    if not (_is_size(size1) and _is_size(size2) and size1 <= size2 and _are_hashes((root1, root2, *path))):
        return False
    if size1 == 0:
        return root1 == EMPTY_ROOT and not path and (size2 > 0 or root2 == EMPTY_ROOT)
    if size1 == size2:
        return root1 == root2 and not path
    return _leads_to_both(size1, root1, size2, root2, path)


def _leads_to_both(size1: int, root1: bytes, size2: int, root2: bytes, path: Sequence[bytes]) -> bool:
    """RFC 9162, 2.1.4.2, for 0 < size1 < size2: the path rebuilds the old root and the new one side by side."""
    if not path:
        return False
    hashes = [root1, *path] if size1 & (size1 - 1) == 0 else list(path)
    place, last = size1 - 1, size2 - 1
    while place & 1:
        place >>= 1
        last >>= 1
    old = new = hashes[0]
    for sibling in hashes[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            old = node_hash(sibling, old)
            new = node_hash(sibling, new)
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            new = node_hash(new, sibling)
        place >>= 1
        last >>= 1
    return last == 0 and old == root1 and new == root2


def _split(count: int) -> int:
    """The largest power of two below ``count``: where RFC 6962 cuts a tree in two."""
    return 1 << ((count - 1).bit_length() - 1)


def _range_root(begin: int, end: int, node: NodeSource) -> bytes:
    """The root over leaves ``begin`` to ``end - 1``, where ``begin`` starts a subtree at least that large."""
    peaks: list[bytes] = []
    while begin < end:
        level = (end - begin).bit_length() - 1
        peaks.append(node(level, begin >> level))
        begin += 1 << level
    return _fold(peaks)


def _fold(peaks: Sequence[bytes]) -> bytes:
    """The root over neighbouring complete subtrees, larger ones to the left."""
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node_hash(peak, root)
    return root


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= SIZE_MAX


def _are_hashes(values: Iterable[object]) -> bool:
    return all(type(value) is bytes and len(value) == HASH_BYTES for value in values)
