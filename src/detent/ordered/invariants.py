"""The rules that no event may break, each with its name, and the one way to say that one is broken.

A broken rule is our own bug (or the runtime's): `InvariantBroken`, code ``INVARIANT_VIOLATION``, with the rule, the seq and,
once it has passed through an `OrderedRun`, the whole snapshot. `assert` would vanish under ``python -O``; these do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from detent.errors import InvariantBroken

RULES: Final[Mapping[str, str]] = {
    "ATTEMPT": "the kernel and the run count the same attempts",
    "BEYOND_W1": "nothing behind the second window is ever dispatched",
    "BUFFERED_BYTES": "what is held stays within its bytes",
    "BUFFERED_COUNT": "what is held stays within its number",
    "CANCEL_BOUNDARY": "a cancellation takes no outcome away",
    "COMMITTED_COUNT": "committed_count, the cursor and the committed states are one number",
    "COMMIT_NOT_OFFERED": "only the commit that is out can be confirmed, from the cursor on",
    "COMMIT_WITHOUT_TERMINAL": "COMMITTED requires a terminal state before",
    "COMPLETION": "at the end terminal_count is the total and everything is committed",
    "CURSOR_OUTSIDE_W0": "the cursor is in W0",
    "CURSOR_STEP": "the cursor moves in steps of exactly one",
    "DISPATCH_NOT_OFFERED": "chunks are dispatched as they were offered, in order",
    "ENVELOPE_MISSING": "a seq that succeeded or failed has its envelope until its commit",
    "ENVELOPE_NOT_IN_FLIGHT": "only what is in flight can answer",
    "HEARTBEAT": "only what is in flight has a heartbeat",
    "OUTCOME_ARRAY": "an outcome stands exactly beside the seqs that have ended",
    "OUTSIDE_WINDOWS": "only seqs up to the second window are spoken of",
    "RETRY_BOUND": "attempts stay within max_retries and max_interruptions",
    "SECOND_ENVELOPE": "an attempt has one envelope",
    "SECOND_TERMINAL": "a seq has one terminal event",
    "SEQ_RANGE": "a seq is one that discovery gave",
    "STALL": "while the cursor is not at the end, something is under way",
    "TERMINAL_COUNT": "terminal_count is the number of seqs that have ended, and no seq is lost",
    "TRANSITION": "a move is one of the table",
    "TREE_SIZE": "the hash tree has a leaf for every committed seq",
    "WINDOW_CLOSE": "a window closes when all its seqs have ended and the cursor is behind it",
    "WRITE_NOT_OFFERED": "only a write that is out can fail",
}


def broken(rule: str, message: str, seq: int) -> InvariantBroken:
    """The exception for a broken rule, for the caller to raise."""
    if rule not in RULES:
        return InvariantBroken(f"{rule} is not a rule of an ordered run: {message}")
    return InvariantBroken(message, details={"rule": rule, "seq": seq})
