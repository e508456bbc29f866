"""What goes into an ordered run and what comes out: envelopes, actions, snapshots, the summary.

What goes in and what comes out of an ordered run: envelopes, and the actions that the runtime is to take.

Actions are a function of the events in their order. They are values: nothing has happened until the runtime does it and
says so with the next event.

The diagnostics snapshot: what an ordered run looks like at one moment, for a progress line and for a post-mortem.

Taking it decides nothing and never fails, however damaged the books are: it is what a broken invariant leaves behind.

The terminal summary: the outcome of a run, with nothing in it that depends on timing (X-077).

Its root is that of a hash tree over blocks of `BLOCK_ITEMS` items, in order. Blocks are cut by seq alone, so neither window
nor chunk size shows in it. A tree over single items would cost two hashes for each; a block costs two for all of its
items, and one item is still shown with its block (2.7 KB) and the path of that block. Proofs of single items belong to
their chunk, whose root the ledger has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from hashlib import sha256
from typing import Final, TypeAlias

from detent.canon import digest, encode
from detent.canon.late import NamedTuple, dataclass
from detent.canon.merkle import Frontier
from detent.errors import InvalidInput
from detent.ordered.config import Window
from detent.ordered.seq_ledger import SeqLedger
from detent.ordered.states import SeqState


@dataclass(frozen=True, slots=True)
class WindowView:
    """One active window: its boundaries, and how many of its seqs are in each state."""

    lane: str
    """``W0`` or ``W1``."""
    start_seq: int
    end_seq: int
    occupancy: dict[str, int]


@dataclass(frozen=True, slots=True)
class Blocked:
    """The seq that the cursor waits for."""

    seq: int
    state: str
    attempts: int
    owner: str | None
    failure: str | None
    """Why its last attempt ended, if it had one before."""
    age_ms: int
    """How long the cursor has stood there."""
    heartbeat_ms: int | None = None
    """When its owner was last known to be alive, in the run's time; None when it has no owner."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the contract asks for (ORD-046..ORD-049), and what a reader needs to place it."""

    total: int
    next_commit_seq: int
    max_seen_seq: int
    terminal_count: int
    committed_count: int
    dispatched_count: int
    in_flight_count: int
    active_windows: tuple[WindowView, ...]
    oldest_blocked: Blocked | None
    """None when everything is committed."""
    buffered_bytes: int
    buffered_count: int
    commit_lag: int
    """Seqs that have ended and are not committed."""
    cancel_boundary: int
    """The first seq that is cancelled; ``total`` when none is."""
    write_failures: int
    """Times in a row that the destination has failed."""
    now_ms: int

    def to_map(self) -> dict[str, object]:
        """The snapshot as plain values that every encoder takes."""
        values: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        values["active_windows"] = [
            {name: getattr(window, name) for name in window.__slots__} for window in self.active_windows
        ]
        blocked = self.oldest_blocked
        if blocked is not None:
            values["oldest_blocked"] = {name: getattr(blocked, name) for name in blocked.__slots__}
        return values


def window_views(ledger: SeqLedger, windows: Sequence[Window]) -> tuple[WindowView, ...]:
    """The active windows with their occupancy; states in which no seq stands are left out."""
    views = []
    for number, window in enumerate(windows):
        counts = {state.name: ledger.seq_state.count(state, window.start_seq, window.end_seq + 1) for state in SeqState}
        occupancy = {name: count for name, count in counts.items() if count}
        views.append(WindowView(f"W{number}", window.start_seq, window.end_seq, occupancy))
    return tuple(views)


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


class Envelope(NamedTuple):
    """How a seq ended: its outcome, the digest of its payload, and what of it is held in memory until the commit."""

    outcome: SeqState
    payload_digest: bytes | None = None
    size: int = 0
    """Bytes held for it; 0 for a payload that is only referred to."""
    payload_ref: str | None = None
    code: str | None = None
    """Why it failed."""


class Batch(NamedTuple):
    """One downstream write: the successes among ``first`` to ``last``, in order; the others are committed in silence."""

    first: int
    last: int
    writes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Submit one kernel job for this chunk, then say `dispatched`. A full queue means to hold it and offer it again."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Apply these writes in order and say `committed` after each batch, or `write_failed`."""

    first: int
    last: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class WriteAgain:
    """The destination failed: `tick` at ``at_ms`` or later brings the commit again."""

    at_ms: int
    failures: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """These seqs were cancelled while the kernel had them: cancel their job, or drop them from it."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """A cancellation, resolved to a number: record it. Nothing at or above it is computed any more (X-069)."""

    requested: int
    resolved: int
    reason: str


@dataclass(frozen=True, slots=True)
class Discard:
    """An envelope that came too late and changes nothing: keep it for the audit (ORD-027)."""

    seq: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Complete:
    """Every seq is committed."""

    summary: Summary


@dataclass(frozen=True, slots=True)
class Fatal:
    """The world failed for good: stop both lanes. The cursor stands where the destination does."""

    code: str
    message: str
    snapshot: Snapshot


Action: TypeAlias = Dispatch | Commit | WriteAgain | Withdraw | Boundary | Discard | Complete | Fatal
