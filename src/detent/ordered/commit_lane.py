"""The commit lane: one cursor, one run of commits at a time, and what is held until its turn comes.

It looks at the seq under the cursor and at nothing else; while that one has not ended, nothing behind it moves (ORD-029).
When it has, the longest contiguous run of ended seqs inside W0 is handed out as one commit, cut into micro-batches. The
cursor moves only when the runtime says that a batch is durable, so a write that fails leaves everything where it was and
is simply handed out again (X-076); writes are keyed by seq, which makes the repeat harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter

from detent.ordered.actions import Batch, BlockTree, Commit, Envelope, Summary, WriteAgain, count_failure
from detent.ordered.config import OrderedConfig
from detent.ordered.digests import ITEM_HEAD, success_items
from detent.ordered.seq_ledger import SeqLedger
from detent.ordered.states import TERMINAL, SeqState, broken

_SUCCESS, _FAIL = int(SeqState.TERMINAL_SUCCESS), int(SeqState.TERMINAL_FAIL)
_COMPUTED = frozenset({_SUCCESS, _FAIL})
"""Outcomes that cannot be had without an envelope."""
_SIZE_OF = itemgetter(2)


class CommitLane:
    """Envelopes that wait, the commit that is out, and the hash tree over what is committed."""

    __slots__ = (
        "_config",
        "_ledger",
        "again_ms",
        "buffered_bytes",
        "commit_last",
        "envelope_by_seq",
        "failures",
        "tree",
        "write_failures",
    )

    def __init__(self, config: OrderedConfig, ledger: SeqLedger) -> None:
        self._config = config
        self._ledger = ledger
        self.envelope_by_seq: dict[int, Envelope] = {}
        """Envelopes of seqs that were computed and are not committed. Cancelled and filtered seqs hold nothing."""
        self.buffered_bytes = 0
        self.tree = BlockTree()
        self.failures: dict[str, int] = {}
        self.commit_last: int | None = None
        """The last seq of the commit that is out; None while there is none."""
        self.again_ms: int | None = None
        """When the commit that is out is to be repeated; None while it is under way."""
        self.write_failures = 0

    def hold(self, seq: int, envelope: Envelope) -> None:
        """Keep an envelope until its commit."""
        self.envelope_by_seq[seq] = envelope
        self.buffered_bytes += envelope.size

    def hold_many(self, first: int, envelopes: Sequence[Envelope]) -> None:
        """Keep the envelopes of contiguous seqs."""
        self.envelope_by_seq.update(enumerate(envelopes, first))
        self.buffered_bytes += sum(map(_SIZE_OF, envelopes))

    def coalesce(self, limit: int) -> Commit | None:
        """The longest run of ended seqs from the cursor on and below ``limit``, if no other commit is out (ORD-030)."""
        if self.commit_last is not None:
            return None
        end = self._ledger.terminal_run_end(limit)
        if end == self._ledger.next_commit_seq:
            return None
        self.commit_last = end - 1
        return self.outstanding()

    def outstanding(self) -> Commit | None:
        """What is left of the commit that is out."""
        if self.commit_last is None:
            return None
        first, end = self._ledger.next_commit_seq, self.commit_last + 1
        return Commit(first, end - 1, _batches(self._ledger.seq_state, first, end, self._config.micro_batch_size))

    def committed(self, last: int) -> None:
        """The destination has everything up to ``last``: move the cursor there, one by one, and let go of it."""
        first = self._ledger.next_commit_seq
        if self.commit_last is None or self.again_ms is not None or not first <= last <= self.commit_last:
            raise broken("COMMIT_NOT_OFFERED", f"a commit of {first}..{last} was not handed out", last)
        self._ledger.commit(last)
        self.tree.extend(self._take(first, last))
        self.write_failures = 0
        if last == self.commit_last:
            self.commit_last = None

    def write_failed(self, now_ms: int) -> WriteAgain | None:
        """The destination failed: when to try again, or None when the schedule is used up."""
        if self.commit_last is None or self.again_ms is not None:
            raise broken("WRITE_NOT_OFFERED", "a write failed that was not handed out", self._ledger.next_commit_seq)
        self.write_failures += 1
        delays = self._config.write_delays_ms
        if self.write_failures > len(delays):
            return None
        self.again_ms = now_ms + delays[self.write_failures - 1]
        return WriteAgain(self.again_ms, self.write_failures)

    def due(self, now_ms: int) -> Commit | None:
        """The commit again, when its time has come."""
        if self.again_ms is None or now_ms < self.again_ms:
            return None
        self.again_ms = None
        return self.outstanding()

    def summary(self) -> Summary:
        """The summary of what has been committed so far."""
        outcomes = self._ledger.terminal_outcome
        cursor = self._ledger.next_commit_seq
        success, skip, fail, cancel = (outcomes.count(code, 0, cursor) for code in TERMINAL)
        return Summary(cursor, success, skip, fail, cancel, self.tree.root(), dict(self.failures))

    def _take(self, first: int, last: int) -> list[bytes]:
        """The seqs being committed, each as its bytes; their envelopes are let go."""
        outcomes = self._ledger.terminal_outcome[first : last + 1]
        envelopes = list(map(self.envelope_by_seq.pop, range(first, last + 1), repeat(None)))
        if outcomes.count(_SUCCESS) == len(outcomes) and all(envelopes):
            _, digests, sizes, _, _ = zip(*envelopes, strict=True)
            if all(digests):
                self.buffered_bytes -= sum(sizes)
                return success_items(first, digests)
        return self._take_each(first, outcomes, envelopes)

    def _take_each(self, first: int, outcomes: bytearray, envelopes: Sequence[Envelope | None]) -> list[bytes]:
        pack = ITEM_HEAD.pack
        items = []
        freed = 0
        for seq, (outcome, envelope) in enumerate(zip(outcomes, envelopes, strict=True), first):
            if envelope is None:
                if outcome in _COMPUTED:
                    raise broken("ENVELOPE_MISSING", f"seq {seq} has no envelope", seq)
                items.append(pack(seq, outcome, 0))
                continue
            _, payload_digest, size, _, code = envelope
            freed += size
            items.append(pack(seq, outcome, 32) + payload_digest if payload_digest else pack(seq, outcome, 0))
            if outcome == _FAIL:
                count_failure(self.failures, code or "UNKNOWN")
        self.buffered_bytes -= freed
        return items


def _batches(states: bytearray, first: int, end: int, size: int) -> tuple[Batch, ...]:
    """Cut a run into writes of at most ``size`` successes; together they tile it."""
    if states.count(_SUCCESS, first, end) == end - first:
        cuts = ((begin, min(begin + size, end)) for begin in range(first, end, size))
        return tuple(Batch(begin, stop - 1, tuple(range(begin, stop))) for begin, stop in cuts)
    batches: list[Batch] = []
    writes: list[int] = []
    begin = first
    for seq in range(first, end):
        if states[seq] == _SUCCESS:
            writes.append(seq)
            if len(writes) == size:
                batches.append(Batch(begin, seq, tuple(writes)))
                begin, writes = seq + 1, []
    if begin < end:
        batches.append(Batch(begin, end - 1, tuple(writes)))
    return tuple(batches)
