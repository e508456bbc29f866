"""Windows and chunks: how the numbers from 0 to total are cut, by arithmetic alone.

Windows are what may be worked on; at most two are open, the first commits and the second is computed ahead. Chunks are
what one kernel job does (X-183). Both tile ``[0, total)`` without gap or overlap, a chunk never crosses a window, and
neither depends on anything but total and configuration, so no timing can move a border (ORD-006, ORD-007).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from detent.canon.show import show
from detent.errors import InvalidInput
from detent.ordered.invariants import broken
from detent.ordered.seq_ledger import TOTAL_MAX, SeqLedger
from detent.ordered.states import SeqState

WINDOW_SIZE_MAX: Final = 1 << 20
ACTIVE_MAX: Final = 2


class Window(NamedTuple):
    """A contiguous range of seqs; ``end_seq`` belongs to it."""

    start_seq: int
    end_seq: int


class Chunk(NamedTuple):
    """The contiguous seqs of one kernel job; ``last`` belongs to it."""

    first: int
    last: int


def plan_windows(total: int, window_size: int) -> list[Window]:
    """All windows of a run, in order: each has ``window_size`` seqs, only the last may be shorter (ORD-008)."""
    check_size("total", total, 0, TOTAL_MAX)
    check_size("window_size", window_size, 1, WINDOW_SIZE_MAX)
    return [Window(start, min(start + window_size, total) - 1) for start in range(0, total, window_size)]


def chunk_of(seq: int, total: int, window_size: int, chunk_size: int) -> Chunk:
    """The chunk that a seq belongs to."""
    window = seq // window_size * window_size
    first = window + (seq - window) // chunk_size * chunk_size
    return Chunk(first, min(first + chunk_size, window + window_size, total) - 1)


def chunk_job_id(run_id: str, first: int, last: int) -> str:
    """The id of the kernel job that computes these seqs: the same for every attempt and after every restart."""
    return f"{run_id}/seq-{first}" if first == last else f"{run_id}/seq-{first}-{last}"


class ActiveWindows:
    """The windows that are open: W0, which commits, and W1, which is only computed ahead (ORD-019).

    All of it follows from the number of windows that have closed.
    """

    __slots__ = ("closed", "commit_limit", "limit", "total", "window_size")

    def __init__(self, total: int, window_size: int, closed: int = 0) -> None:
        self.total = total
        self.window_size = window_size
        self.closed = closed
        self._set_limits()

    @property
    def start(self) -> int:
        """The first seq of W0."""
        return min(self.closed * self.window_size, self.total)

    def active(self) -> tuple[Window, ...]:
        """W0 and W1, or fewer where the run has no more."""
        starts = range(self.start, self.limit, self.window_size)
        return tuple(Window(start, min(start + self.window_size, self.total) - 1) for start in starts)

    def close_first(self, ledger: SeqLedger) -> None:
        """Close W0: W1 becomes W0. All its seqs must have ended and the cursor must be behind it (ORD-043)."""
        start, end = self.start, self.commit_limit
        committed = ledger.seq_state.count(SeqState.COMMITTED, start, end)
        if start >= end or committed != end - start or ledger.next_commit_seq < end:
            where = f"{committed} of its seqs are committed, the cursor is at {ledger.next_commit_seq}"
            raise broken("WINDOW_CLOSE", f"window {start}..{end - 1} cannot close: {where}", start)
        ledger.recount(start, end - 1)
        self.closed += 1
        self._set_limits()

    def _set_limits(self) -> None:
        self.commit_limit = min((self.closed + 1) * self.window_size, self.total)
        """The first seq behind W0: no coalesced run reaches it (X-071)."""
        self.limit = min((self.closed + ACTIVE_MAX) * self.window_size, self.total)
        """The first seq behind W1: nothing from here on is touched yet (ORD-021)."""


def check_size(name: str, value: object, low: int, high: int) -> int:
    """Take an integer within its bounds; refuse anything else by the name of its field."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidInput(f"{name} must be an integer from {low} to {high}, not {show(value)}")
    return value
