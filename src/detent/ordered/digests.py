"""Digests of an ordered run: of the entries it has, and of the outcomes of its items.

Discovery: which entries a run has, in which order, and the digest that names exactly these.

The order is that of the bytes of the normalised name (on disk: ``os.fsencode``, X-183), never the order in which a
directory lists them, so the same files get the same numbers on every machine and a name that is not UTF-8 has its place
like any other. An entry's seq is its place in the list: dense, from 0, and never given again (X-073).

A name that is found twice (two patterns match one file) is one entry. Entries that are values and not names need no
discovery: their order is the one they are given in, and equal values are different entries.

What an item's outcome is as bytes, and how one root binds those of a whole chunk (X-183).

A chunk is one kernel job and leaves one root; with the path of its leaf each item stays provable by itself. The leaf holds
what the summary is made of and no more: seq, outcome, payload digest (X-077). Attempts, workers and times are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import add
from struct import Struct
from typing import Final

from detent.canon import DIGEST_BYTES
from detent.canon.late import dataclass
from detent.canon.merkle import Tree, leaf_hash, root_of, verify_inclusion
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.ordered.states import TERMINAL, SeqState

NAME_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Discovery:
    """The entries of a run: the seq of each is its index."""

    names: tuple[bytes, ...]
    repeated: int
    """How many eligible names were dropped because the same name had been found before."""

    @property
    def total(self) -> int:
        """The number of seqs."""
        return len(self.names)


def discover(names: Iterable[bytes], eligible: Callable[[bytes], bool] | None = None) -> Discovery:
    """Give every eligible entry exactly one seq; names that are not eligible get none (ORD-002, ORD-005)."""
    found: set[bytes] = set()
    seen = 0
    for name in names:
        plain = normalised(name)
        if eligible is None or eligible(plain):
            seen += 1
            found.add(plain)
    return Discovery(tuple(sorted(found)), seen - len(found))


def normalised(name: bytes) -> bytes:
    """A path without empty and ``.`` parts. ``..`` stays: behind a symbolic link it is not what it looks like."""
    if type(name) is not bytes or not name or len(name) > NAME_BYTES_MAX or 0 in name:
        raise InvalidInput(f"a name is 1 to {NAME_BYTES_MAX} bytes without a zero byte, not {show(name)}")
    parts = [part for part in name.split(b"/") if part not in {b"", b"."}]
    root = b"/" if name.startswith(b"/") else b""
    return root + b"/".join(parts) or b"."


ITEM_LABEL: Final = b"detent/ordered/item/v1\x00"
ITEM_HEAD: Final = Struct(">QBB")
"""Seq, outcome code, and the number of bytes of payload digest that follow: 32, or none."""
_SUCCESS: Final = int(SeqState.TERMINAL_SUCCESS)


def item_bytes(seq: int, outcome: SeqState, payload_digest: bytes | None) -> bytes:
    """One item as bytes. They say how long they are, so items that stand one behind the other cannot be read otherwise."""
    if outcome not in TERMINAL:
        raise InvalidInput(f"an item ends by success, skip, fail or cancel, not by {show(outcome)}")
    check_digest(payload_digest)
    if payload_digest is None:
        return ITEM_HEAD.pack(seq, outcome, 0)
    return ITEM_HEAD.pack(seq, outcome, DIGEST_BYTES) + payload_digest


def success_items(first: int, digests: Sequence[bytes]) -> list[bytes]:
    """`item_bytes` of contiguous seqs that all succeeded with a payload: what nearly every item is, without a look at each."""
    heads = map(ITEM_HEAD.pack, range(first, first + len(digests)), repeat(_SUCCESS), repeat(DIGEST_BYTES))
    return list(map(add, heads, digests))


def item_leaf(seq: int, outcome: SeqState, payload_digest: bytes | None) -> bytes:
    """The leaf hash of one item."""
    return leaf_hash(ITEM_LABEL + item_bytes(seq, outcome, payload_digest))


def check_digest(payload_digest: object) -> None:
    """Take the digest of a payload, or none; refuse anything else."""
    if payload_digest is None or (type(payload_digest) is bytes and len(payload_digest) == DIGEST_BYTES):
        return
    raise InvalidInput(f"a payload digest has {DIGEST_BYTES} bytes, not {show(payload_digest)}")


@dataclass(frozen=True, slots=True)
class ItemProof:
    """One item of a chunk and the path to the chunk's root."""

    seq: int
    outcome: SeqState
    payload_digest: bytes | None
    index: int
    size: int
    path: tuple[bytes, ...]

    def proves(self, root: bytes) -> bool:
        """Whether this item stands at its place in the chunk with this root. Never raises: a false proof is a "no"."""
        try:
            leaf = item_leaf(self.seq, self.outcome, self.payload_digest)
        except InvalidInput:
            return False
        return verify_inclusion(leaf, self.index, self.size, self.path, root)


@dataclass(frozen=True, slots=True)
class ChunkOutcomes:
    """The outcomes of contiguous seqs from ``first`` on, each with its payload digest."""

    first: int
    items: Sequence[tuple[SeqState, bytes | None]]

    def leaves(self) -> list[bytes]:
        """The leaf hash of each item, in order."""
        return [item_leaf(self.first + index, *item) for index, item in enumerate(self.items)]

    def root(self) -> bytes:
        """The one digest that binds them all."""
        return root_of(self.leaves())

    def prove(self, seq: int) -> ItemProof:
        """One item with its path."""
        index = seq - self.first
        if not 0 <= index < len(self.items):
            raise InvalidInput(f"seq {seq} is not among {self.first}..{self.first + len(self.items) - 1}")
        outcome, payload_digest = self.items[index]
        path = tuple(Tree(self.leaves()).inclusion_path(index))
        return ItemProof(seq, outcome, payload_digest, index, len(self.items), path)
