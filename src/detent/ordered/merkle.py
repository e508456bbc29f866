"""The hash tree of RFC 6962 over item hashes: as much of it as an ordered run needs.

The same tree as the ledger's, hash for hash (a test compares them), written here because a pure room below the ledger may
not import it. A leaf is hashed behind a zero byte and an interior node behind a one byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from detent.canon import DIGEST_BYTES
from detent.errors import InvalidInput, InvariantBroken

EMPTY_ROOT: Final = sha256(b"").digest()


class Frontier:
    """The right edge of a growing tree: one hash for each one bit of its size, the largest subtree first."""

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)
        if (
            any(type(peak) is not bytes or len(peak) != DIGEST_BYTES for peak in self.peaks)
            or len(self.peaks) != size.bit_count()
        ):
            raise InvalidInput(f"{len(self.peaks)} peaks do not make the edge of a tree of {size} leaves")

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add leaf hashes, in order."""
        peaks, size = self.peaks, self.size
        for leaf in leaves:
            node, index = leaf, size
            while index & 1:
                node = sha256(b"\x01" + peaks.pop() + node).digest()
                index >>= 1
            peaks.append(node)
            size += 1
        self.size = size

    def root(self) -> bytes:
        """The root of the tree as it stands."""
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = sha256(b"\x01" + peak + root).digest()
        return root


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaf hashes."""
    frontier = Frontier()
    frontier.extend(leaves)
    return frontier.root()


def path_of(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The hashes that lead from one leaf to the root over all of them, nearest to the leaf first."""
    if not 0 <= index < len(leaves):
        raise InvariantBroken(f"leaf {index} is not in a tree of {len(leaves)} leaves")
    path: list[bytes] = []
    begin, end = 0, len(leaves)
    while end - begin > 1:
        middle = begin + (1 << ((end - begin - 1).bit_length() - 1))
        if index < middle:
            path.append(root_of(leaves[middle:end]))
            end = middle
        else:
            path.append(root_of(leaves[begin:middle]))
            begin = middle
    path.reverse()
    return path


def root_from(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a path leads to from a leaf; None where the path does not fit the place (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return None
    place, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0 or len(sibling) != DIGEST_BYTES:
            return None
        if place & 1 or place == last:
            node = sha256(b"\x01" + sibling + node).digest()
            while place and not place & 1:
                place >>= 1
                last >>= 1
        else:
            node = sha256(b"\x01" + node + sibling).digest()
        place >>= 1
        last >>= 1
    return node if last == 0 else None
