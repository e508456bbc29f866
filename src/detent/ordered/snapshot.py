"""The diagnostics snapshot: what an ordered run looks like at one moment, for a progress line and for a post-mortem.

Taking it decides nothing and never fails, however damaged the books are: it is what a broken invariant leaves behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.canon.late import dataclass
from detent.ordered.seq_ledger import SeqLedger
from detent.ordered.states import SeqState
from detent.ordered.windows import Window


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
