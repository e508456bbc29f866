"""The terminal summary: the outcome of a run, with nothing in it that depends on timing (X-077).

Its root is that of a hash tree over blocks of `BLOCK_ITEMS` items, in order. Blocks are cut by seq alone, so neither window
nor chunk size shows in it. A tree over single items would cost two hashes for each; a block costs two for all of its
items, and one item is still shown with its block (2.7 KB) and the path of that block. Proofs of single items belong to
their chunk, whose root the ledger has.
"""

from __future__ import annotations

from dataclasses import field
from hashlib import sha256
from typing import Final

from detent.canon import digest, encode
from detent.canon.late import dataclass
from detent.canon.merkle import Frontier
from detent.errors import InvalidInput

FAILURE_CODES_MAX: Final = 64
OTHER: Final = "OTHER"
"""Where failures are counted whose code comes when there are that many already."""

BLOCK_ITEMS: Final = 64

_LABEL: Final = b"detent/ordered/summary/v1\x00"
_BLOCK_PREFIX: Final = b"\x00detent/ordered/block/v1\x00"
"""The mark of a leaf, then the label of this kind of leaf."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals, and the root over every item's (seq, outcome, payload digest) in order.

    ``failures`` is there to be read and is not part of the digest: with a retry, the code of the last attempt may depend
    on timing.
    """

    total: int
    success: int
    skip: int
    fail: int
    cancel: int
    root: bytes
    failures: dict[str, int] = field(default_factory=dict, hash=False, compare=False)

    def to_map(self) -> dict[str, object]:
        """What the digest is over."""
        return {
            "total": self.total,
            "success": self.success,
            "skip": self.skip,
            "fail": self.fail,
            "cancel": self.cancel,
            "root": self.root,
        }

    def digest(self) -> bytes:
        """The same for equal outcomes, in any order and on any machine."""
        return digest(_LABEL, encode(self.to_map()))


def count_failure(failures: dict[str, int], code: str) -> None:
    """Count a failure under its code. The number of codes is bounded; commits come in order, so it is deterministic."""
    if code not in failures and len(failures) >= FAILURE_CODES_MAX:
        code = OTHER
    failures[code] = failures.get(code, 0) + 1


class BlockTree:
    """The hash tree over the items so far: complete blocks in the tree, the items of the last one still in hand."""

    __slots__ = ("frontier", "items")

    def __init__(self, size: int = 0, peaks: list[bytes] | None = None, items: list[bytes] | None = None) -> None:
        self.frontier = Frontier(size // BLOCK_ITEMS, peaks or [])
        self.items = items or []
        if len(self.items) != size % BLOCK_ITEMS:
            raise InvalidInput(f"{len(self.items)} items do not end a tree of {size}")

    @property
    def size(self) -> int:
        """The number of items."""
        return self.frontier.size * BLOCK_ITEMS + len(self.items)

    def extend(self, items: list[bytes]) -> None:
        """Add items, in order, each as its bytes."""
        held = self.items
        held += items
        while len(held) >= BLOCK_ITEMS:
            self.frontier.append(block_leaf(held[:BLOCK_ITEMS]))
            del held[:BLOCK_ITEMS]

    def root(self) -> bytes:
        """The root over all items so far; the last block may be short."""
        if not self.items:
            return self.frontier.root()
        whole = Frontier(self.frontier.size, self.frontier.peaks)
        whole.append(block_leaf(self.items))
        return whole.root()


def block_leaf(items: list[bytes]) -> bytes:
    """The leaf hash of one block of items."""
    return sha256(_BLOCK_PREFIX + b"".join(items)).digest()
