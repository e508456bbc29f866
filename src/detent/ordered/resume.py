"""Taking a run up again: a run whose first seqs are committed, built from their outcomes alone (ORD-055).

The outcomes and the cursor stand on the ledger (as results of the chunks' jobs and as notes of the commits), so there is no
checkpoint beside it that could disagree. What was under way is offered again under the same names; how far each job has come
is the kernel's to say.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.errors import InvalidInput
from detent.ordered.actions import Envelope, count_failure
from detent.ordered.config import STOP, OrderedConfig
from detent.ordered.digests import item_bytes
from detent.ordered.run import OrderedRun, stop_boundary
from detent.ordered.states import NO_OUTCOME, SeqState, broken


def resume_after(config: OrderedConfig, committed: Iterable[Envelope], *, boundary: int | None = None) -> OrderedRun:
    """A run whose first seqs are committed with these outcomes: it goes on at the first that is not.

    ``boundary`` is the lowest one that was recorded; that of the failure policy follows from the outcomes by itself.
    """
    run = OrderedRun(config)
    boundary = config.total if boundary is None else min(boundary, config.total)
    outcomes = bytearray()
    items: list[bytes] = []
    for seq, envelope in enumerate(committed):
        items.append(item_bytes(seq, envelope.outcome, envelope.payload_digest))
        outcomes.append(envelope.outcome)
        if envelope.outcome is SeqState.TERMINAL_FAIL:
            count_failure(run.commits.failures, envelope.code or "UNKNOWN")
            if config.failure_policy == STOP:
                boundary = min(boundary, stop_boundary(seq, config))
    cursor = len(outcomes)
    if cursor > config.total:
        raise InvalidInput(f"{cursor} committed outcomes are more than the {config.total} seqs of the run")
    run.commits.tree.extend(items)
    run.ledger.terminal_outcome[:cursor] = outcomes
    _adopt(run, cursor)
    run.ledger.max_seen_seq = run.ledger.highest_terminal_seq = cursor - 1
    run.compute.offered_to = cursor
    if max(boundary, cursor) < config.total:
        run.ledger.cancel_between(max(boundary, cursor), config.total)
    run.boundary = boundary
    run.check()
    return run


def _adopt(run: OrderedRun, cursor: int) -> None:
    """Bring states, counters, cursor and windows to where the array of outcomes and the cursor say they are."""
    ledger, outcomes = run.ledger, run.ledger.terminal_outcome
    if outcomes.count(NO_OUTCOME, 0, cursor):
        raise broken("COMMIT_WITHOUT_TERMINAL", "a committed seq has no outcome", cursor)
    ledger.seq_state[:] = outcomes
    ledger.counts = [ledger.seq_state.count(state) for state in SeqState]
    ledger.terminal_count = ledger.total - ledger.counts[SeqState.UNSEEN]
    if cursor:
        ledger.commit(cursor - 1)
    while run.windows.start < ledger.total and cursor >= run.windows.commit_limit:
        run.windows.close_first(ledger)
