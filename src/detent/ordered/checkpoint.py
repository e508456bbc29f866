"""Checkpoints of an ordered run: its whole state as deterministic bytes, and back (ORD-055).

A run that is restored and begun again hands out what was out and goes on exactly as the other would have: the property
tests cut at every event to see to that. What is committed costs next to nothing here (runs of equal outcomes are stored as
runs), so the size follows the two open windows and not the total.

Where there is no checkpoint, `resume_after` builds a run from the outcomes that were committed, which stand on the ledger;
what was under way then is simply offered again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from struct import Struct
from typing import Any, Final

from detent.canon import NotCanonical, check_uint64, decode, encode
from detent.errors import InvalidInput, InvariantBroken, StoreCorrupt
from detent.ordered.actions import Envelope
from detent.ordered.compute_lane import Retried
from detent.ordered.config import STOP, OrderedConfig
from detent.ordered.invariants import broken
from detent.ordered.outcomes import check_digest, item_bytes
from detent.ordered.run import Journal, OrderedRun, stop_boundary
from detent.ordered.states import NO_OUTCOME, TERMINAL, SeqState
from detent.ordered.summary import BlockTree, count_failure
from detent.ordered.windows import Chunk, chunk_of

CHECKPOINT_VERSION: Final = 1
CHECKPOINT_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024

_RUN: Final = Struct(">BI")
_EQUAL_BYTES: Final = re.compile(rb"(.)\1*", re.DOTALL)
_LIVE: Final = frozenset({SeqState.DISPATCHED, SeqState.IN_FLIGHT})


def checkpoint(run: OrderedRun) -> bytes:
    """The state of a run as canonical CBOR. A run that a broken invariant closed has none."""
    if run.fault is not None:
        raise InvariantBroken("a run with a broken invariant is not kept", details=run.fault.details)
    ledger, compute, commits = run.ledger, run.compute, run.commits
    stopped = run.fatal is not None
    state = {
        "version": CHECKPOINT_VERSION,
        "config": run.config.to_map(),
        "next_commit_seq": ledger.next_commit_seq,
        "outcomes": _pack(bytes(ledger.terminal_outcome)),
        "live": _live(run),
        "attempts": [[seq, count] for seq, count in enumerate(ledger.attempts) if count]
        if any(ledger.attempts)
        else [],
        "retried": [
            [seq, known.failures, sorted(known.answered), known.code] for seq, known in sorted(compute.retried.items())
        ],
        "envelopes": [[seq, *envelope[1:]] for seq, envelope in sorted(commits.envelope_by_seq.items())],
        "max_seen_seq": ledger.max_seen_seq,
        "highest_terminal_seq": ledger.highest_terminal_seq,
        "offered_to": compute.offered_to,
        "offers": [list(chunk) for chunk in compute.offers],
        "boundary": run.boundary,
        "commit_last": commits.commit_last,
        # A run that gave up on its destination starts its schedule anew when it is resumed.
        "again_ms": None if stopped else commits.again_ms,
        "write_failures": 0 if stopped else commits.write_failures,
        "failures": commits.failures,
        "peaks": list(commits.tree.frontier.peaks),
        "items": commits.tree.items,
        "now_ms": run.now_ms,
        "blocked_since_ms": run.blocked_since_ms,
    }
    return encode(state, bytes_max=CHECKPOINT_BYTES_MAX)


def restore(data: bytes, *, journal: Journal | None = None) -> OrderedRun:
    """A run that stands where the one stood that made ``data``; `begin` makes it go on.

    Raises `StoreCorrupt` for bytes that are not a checkpoint of this version, or whose parts contradict each other.
    """
    try:
        state = decode(data, bytes_max=CHECKPOINT_BYTES_MAX)
    except NotCanonical as exc:
        raise StoreCorrupt(f"the checkpoint is not canonical CBOR: {exc}") from exc
    if not isinstance(state, dict) or state.get("version") != CHECKPOINT_VERSION:
        raise StoreCorrupt(f"the checkpoint is not one of version {CHECKPOINT_VERSION}")
    try:
        run = OrderedRun(OrderedConfig.from_map(state["config"]), journal=journal)
        _fill_ledger(run, state)
        _fill_lanes(run, state)
        run.check()
    except (InvalidInput, InvariantBroken, TypeError, ValueError, KeyError, IndexError, OverflowError) as exc:
        raise StoreCorrupt(f"the checkpoint contradicts itself: {exc}") from exc
    return run


def resume_after(
    config: OrderedConfig, committed: Iterable[Envelope], *, boundary: int | None = None, journal: Journal | None = None
) -> OrderedRun:
    """A run whose first seqs are committed with these outcomes: it goes on at the first that is not.

    ``boundary`` is the lowest one that was recorded; that of the failure policy follows from the outcomes by itself.
    """
    run = OrderedRun(config, journal=journal)
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


def _fill_ledger(run: OrderedRun, state: dict[str, Any]) -> None:
    ledger = run.ledger
    outcomes = _unpack(state["outcomes"], ledger.total)
    if outcomes.translate(None, bytes((NO_OUTCOME, *TERMINAL))):
        raise InvalidInput("an outcome is none of the four")
    ledger.terminal_outcome[:] = outcomes
    _adopt(run, _seq(state["next_commit_seq"], ledger.total))
    for first, last, code, owner, heartbeat_ms in state["live"]:
        if code not in _LIVE or type(owner) is not str:
            raise InvalidInput("a live seq is dispatched or in flight")
        ledger.dispatch(first, last, owner, check_uint64("heartbeat_ms", heartbeat_ms))
        if code == SeqState.IN_FLIGHT:
            ledger.start(first, last, owner, heartbeat_ms)
    for seq, count in state["attempts"]:
        ledger.attempts[_seq(seq, ledger.total)] = count
    ledger.max_seen_seq = _seq(state["max_seen_seq"], ledger.total, low=-1)
    ledger.highest_terminal_seq = _seq(state["highest_terminal_seq"], ledger.total, low=-1)


def _fill_lanes(run: OrderedRun, state: dict[str, Any]) -> None:
    compute, commits, total = run.compute, run.commits, run.ledger.total
    compute.offered_to = _seq(state["offered_to"], total)
    offers = [Chunk(first, last) for first, last in state["offers"]]
    config, end = run.config, compute.offered_to
    for chunk in reversed(offers):
        if (
            chunk != chunk_of(_seq(chunk.first, total), total, config.window_size, config.chunk_size)
            or chunk.last >= end
        ):
            raise InvalidInput("the offers are not chunks in order")
        end = chunk.first
    compute.offers.extend(offers)
    compute.retried = {
        _seq(seq, total): Retried(check_uint64("failures", failures), set(answered), str(code))
        for seq, failures, answered, code in state["retried"]
    }
    for seq, payload_digest, size, payload_ref, code in state["envelopes"]:
        outcome = run.ledger.outcome(seq)
        if outcome is None or seq < run.ledger.next_commit_seq:
            raise InvalidInput(f"seq {seq} has an envelope and waits for no commit")
        check_digest(payload_digest)
        commits.hold(seq, Envelope(outcome, payload_digest, check_uint64("size", size), payload_ref, code))
    if any(type(item) is not bytes for item in state["items"]):
        raise InvalidInput("an item of the last block is bytes")
    commits.tree = BlockTree(run.ledger.next_commit_seq, state["peaks"], state["items"])
    commits.failures = dict(state["failures"])
    if state["commit_last"] is not None:
        commits.commit_last = _seq(state["commit_last"], total, low=run.ledger.next_commit_seq)
        if run.ledger.terminal_run_end(run.windows.commit_limit) <= commits.commit_last:
            raise InvalidInput("the commit that is out has seqs that have not ended")
    if state["again_ms"] is not None:
        commits.again_ms = check_uint64("again_ms", state["again_ms"])
    commits.write_failures = check_uint64("write_failures", state["write_failures"])
    run.restored = True
    run.boundary = _seq(state["boundary"], total)
    run.now_ms = check_uint64("now_ms", state["now_ms"])
    run.blocked_since_ms = check_uint64("blocked_since_ms", state["blocked_since_ms"])


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


def _live(run: OrderedRun) -> list[list[object]]:
    """What is dispatched or in flight, in stretches of equal state, owner and heartbeat."""
    ledger = run.ledger

    def lease(seq: int) -> tuple[int, str, int]:
        return ledger.seq_state[seq], ledger.lease_owner(seq) or "", ledger.lease_heartbeat_ms[seq]

    spans: list[list[object]] = []
    for first, last in ledger.held_spans(ledger.next_commit_seq, ledger.max_seen_seq + 1):
        for (code, owner, heartbeat_ms), seqs in groupby(range(first, last + 1), key=lease):
            taken = list(seqs)
            spans.append([taken[0], taken[-1], code, owner, heartbeat_ms])
    return spans


def _pack(outcomes: bytes) -> list[object]:
    """Outcomes as runs of equal ones, or as they are where that is shorter."""
    runs = b"".join(_RUN.pack(match[1][0], match.end() - match.start()) for match in _EQUAL_BYTES.finditer(outcomes))
    return ["runs", runs] if len(runs) < len(outcomes) else ["plain", outcomes]


def _unpack(packed: Any, total: int) -> bytes:
    form, data = packed
    if form == "runs":
        lengths = [length for _, length in _RUN.iter_unpack(data)]
        if sum(lengths) != total:
            raise InvalidInput(f"the outcomes are not those of {total} seqs")
        data = b"".join(bytes((code,)) * length for code, length in _RUN.iter_unpack(data))
    if type(data) is not bytes or len(data) != total:
        raise InvalidInput(f"the outcomes are not those of {total} seqs")
    return data


def _seq(value: Any, high: int, *, low: int = 0) -> int:
    if type(value) is not int or not low <= value <= high:
        raise InvalidInput(f"{value!r:.80} is not between {low} and {high}")
    return value
