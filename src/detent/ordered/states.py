"""Where a seq stands: eight codes and the legal moves between them, as one literal table (ORD-012, X-075).

A seq in flight is a view of its kernel job (X-024): `seq_state` is that view, and the only place where the words of one
room become those of the other. COMMITTED has no counterpart there; it is this room's own.

The rules that no event may break, each with its name, and the one way to say that one is broken.

A broken rule is our own bug (or the runtime's): `InvariantBroken`, code ``INVARIANT_VIOLATION``, with the rule, the seq and,
once it has passed through an `OrderedRun`, the whole snapshot. `assert` would vanish under ``python -O``; these do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from detent.errors import InvariantBroken


class SeqState(IntEnum):
    """The code in the dense array."""

    UNSEEN = 0
    DISPATCHED = 1
    IN_FLIGHT = 2
    TERMINAL_SUCCESS = 3
    TERMINAL_SKIP = 4
    TERMINAL_FAIL = 5
    TERMINAL_CANCEL = 6
    COMMITTED = 7


TERMINAL: Final = (
    SeqState.TERMINAL_SUCCESS,
    SeqState.TERMINAL_SKIP,
    SeqState.TERMINAL_FAIL,
    SeqState.TERMINAL_CANCEL,
)
"""The four ways a seq can end; a committed seq keeps the one it had in ``terminal_outcome``."""

NO_OUTCOME: Final = 0
"""The value of ``terminal_outcome`` while a seq has none."""

MOVES: Final[Mapping[SeqState, frozenset[SeqState]]] = {
    SeqState.UNSEEN: frozenset({SeqState.DISPATCHED, SeqState.TERMINAL_SKIP, SeqState.TERMINAL_CANCEL}),
    SeqState.DISPATCHED: frozenset({SeqState.IN_FLIGHT, SeqState.TERMINAL_CANCEL}),
    SeqState.IN_FLIGHT: frozenset({SeqState.DISPATCHED, *TERMINAL}),
    SeqState.TERMINAL_SUCCESS: frozenset({SeqState.COMMITTED}),
    SeqState.TERMINAL_SKIP: frozenset({SeqState.COMMITTED}),
    SeqState.TERMINAL_FAIL: frozenset({SeqState.COMMITTED}),
    SeqState.TERMINAL_CANCEL: frozenset({SeqState.COMMITTED}),
    SeqState.COMMITTED: frozenset(),
}

LEGAL: Final = tuple(tuple(target in MOVES[source] for target in SeqState) for source in SeqState)
"""The same table by code, ``LEGAL[source][target]``, for the path that every seq takes."""

OUTCOME_WORDS: Final[Mapping[SeqState, str]] = {
    SeqState.TERMINAL_SUCCESS: "success",
    SeqState.TERMINAL_SKIP: "skip",
    SeqState.TERMINAL_FAIL: "fail",
    SeqState.TERMINAL_CANCEL: "cancel",
}


def diagram() -> str:
    """Draw the table as a Mermaid state diagram; the docs hold its output and a test compares them."""
    lines = ["stateDiagram-v2", f"    [*] --> {SeqState.UNSEEN.name}"]
    for source, targets in MOVES.items():
        lines += [f"    {source.name} --> {target.name}" for target in SeqState if target in targets]
    lines.append(f"    {SeqState.COMMITTED.name} --> [*]")
    return "\n".join(lines) + "\n"


RULES: Final[Mapping[str, str]] = {
    "ATTEMPT": "the kernel and the run count the same attempts",
    "BEYOND_W1": "no seq after the second window is ever dispatched",
    "BUFFERED_BYTES": "the buffered bytes stay within buffered_bytes_max",
    "BUFFERED_COUNT": "the buffered seqs stay within buffered_count_max",
    "CANCEL_BOUNDARY": "a cancellation never removes an outcome",
    "COMMITTED_COUNT": "committed_count, the cursor and the number of committed states are equal",
    "COMMIT_NOT_OFFERED": "only the offered commit can be confirmed, starting at the cursor",
    "COMMIT_WITHOUT_TERMINAL": "a seq has a terminal state before COMMITTED",
    "COMPLETION": "at the end terminal_count is the total and every seq is committed",
    "CURSOR_OUTSIDE_W0": "the cursor is in W0",
    "CURSOR_STEP": "the cursor moves in steps of exactly one",
    "DISPATCH_NOT_OFFERED": "chunks are dispatched as offered, in order",
    "ENVELOPE_MISSING": "a seq that succeeded or failed has its envelope until its commit",
    "ENVELOPE_NOT_IN_FLIGHT": "only a seq in flight can return an envelope",
    "HEARTBEAT": "only a seq in flight has a heartbeat",
    "OUTCOME_ARRAY": "exactly the seqs that have ended have an outcome",
    "OUTSIDE_WINDOWS": "events name only seqs up to the second window",
    "RETRY_BOUND": "attempts stay within max_retries and max_interruptions",
    "SECOND_ENVELOPE": "an attempt has one envelope",
    "SECOND_TERMINAL": "a seq has one terminal event",
    "SEQ_RANGE": "every seq is one that discovery assigned",
    "STALL": "while the cursor is not at the end, some work is in progress",
    "TERMINAL_COUNT": "terminal_count is the number of seqs that have ended, and no seq is lost",
    "TRANSITION": "every move is in the table of states",
    "TREE_SIZE": "the hash tree has a leaf for every committed seq",
    "WINDOW_CLOSE": "a window closes when all its seqs have ended and the cursor has passed it",
    "WRITE_NOT_OFFERED": "only an offered write can fail",
}


def broken(rule: str, message: str, seq: int) -> InvariantBroken:
    """The exception for a broken rule, for the caller to raise."""
    if rule not in RULES:
        return InvariantBroken(f"{rule} is not a rule of an ordered run: {message}")
    return InvariantBroken(message, details={"rule": rule, "seq": seq})
