"""Where a seq stands: eight codes and the legal moves between them, as one literal table (ORD-012, X-075).

A seq in flight is a view of its kernel job (X-024): `seq_state` is that view, and the only place where the words of one
room become those of the other. COMMITTED has no counterpart there; it is this room's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


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
