"""The compute lane: which chunks are offered, and what becomes of the attempts at them.

Chunks are offered strictly in order and only as far as three bounds allow: the two open windows, the number of seqs held,
and the bytes held. A place is reserved when a chunk is offered (one count and ``payload_bytes_max`` bytes for each of its
open seqs), so no answer can ever pass a bound, however large or late it is. Because offers are in order, the chunk that
the cursor waits for is always the first to get a place; back-pressure cannot starve it.

Retries are the kernel's (X-008). This lane learns how an attempt ended and keeps the same count; an attempt that the
kernel's bounds do not allow means that the two disagree, and that is a broken invariant. An envelope of an attempt whose
lease lapsed is late: it changes nothing and is handed back for the audit. A second envelope of an attempt that was closed
by its first one is not late but impossible (ORD-023).
"""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Final

from detent.canon.late import dataclass
from detent.ordered.actions import Discard, Dispatch, Withdraw
from detent.ordered.config import Chunk, OrderedConfig, chunk_of
from detent.ordered.seq_ledger import SeqLedger
from detent.ordered.states import SeqState, broken

LATE: Final = "LATE"
CANCELLED: Final = "CANCELLED"

_UNSEEN, _IN_FLIGHT, _CANCEL = int(SeqState.UNSEEN), int(SeqState.IN_FLIGHT), int(SeqState.TERMINAL_CANCEL)


@dataclass(slots=True)
class Retried:
    """What is known of the earlier attempts of a seq that is not committed yet."""

    failures: int = 0
    """Attempts that count against ``max_retries``; the others were interruptions (X-163)."""
    answered: set[int] = field(default_factory=set)
    """Attempts that ended with an envelope of their own."""
    code: str = ""
    """Why the last one ended."""


class ComputeLane:
    """Offers, and the attempts of what was taken up."""

    __slots__ = ("_config", "_ledger", "offered_to", "offers", "retried")

    def __init__(self, config: OrderedConfig, ledger: SeqLedger, offered_to: int = 0) -> None:
        self._config = config
        self._ledger = ledger
        self.offered_to = offered_to
        """The first seq that has not been offered."""
        self.offers: deque[Chunk] = deque()
        """Chunks offered and not yet confirmed, in order."""
        self.retried: dict[int, Retried] = {}

    def offer(self, limit: int, buffered_count: int, buffered_bytes: int) -> list[Dispatch]:
        """Offer the next chunks below ``limit``, as many as the bounds have room for."""
        config, ledger, states = self._config, self._ledger, self._ledger.seq_state
        reserved = ledger.dispatched_count + ledger.in_flight_count + self._offered_open()
        actions: list[Dispatch] = []
        while self.offered_to < limit:
            # Always the whole chunk, so that its job has one name, even if only part of it is still open.
            chunk = chunk_of(self.offered_to, config.total, config.window_size, config.chunk_size)
            opened = states.count(_UNSEEN, chunk.first, chunk.last + 1)
            if opened:
                held = reserved + opened
                if buffered_count + held > config.count_max:
                    break
                if buffered_bytes + held * config.payload_bytes_max > config.buffered_bytes_max:
                    break
                reserved = held
                self.offers.append(chunk)
                actions.append(Dispatch(*chunk))
            self.offered_to = chunk.last + 1
        return actions

    def confirm(self, first: int, last: int, owner: str, at_ms: int) -> list[Withdraw]:
        """The kernel has the job of the oldest offer. What was cancelled meanwhile is to be withdrawn again."""
        if not self.offers or self.offers[0] != (first, last):
            raise broken("DISPATCH_NOT_OFFERED", f"chunk {first}..{last} is not the oldest offer", first)
        self.offers.popleft()
        for span in self._ledger.spans(SeqState.UNSEEN, first, last):
            self._ledger.dispatch(*span, owner, at_ms)
        return self._withdrawn(first, last)

    def start(self, first: int, last: int, attempt: int, owner: str, at_ms: int) -> list[Withdraw]:
        """A worker has these seqs, all but those that have ended. Any other way into IN_FLIGHT is a bug (ORD-022)."""
        ledger = self._ledger
        for state in (SeqState.UNSEEN, SeqState.IN_FLIGHT):
            if wrong := ledger.spans(state, first, last):
                raise broken("TRANSITION", f"seq {wrong[0][0]} is {state.name} and cannot start", wrong[0][0])
        for span in ledger.spans(SeqState.DISPATCHED, first, last):
            self._same_attempt(*span, attempt)
            ledger.start(*span, owner, at_ms)
        return self._withdrawn(first, last)

    def judge(self, seq: int, attempt: int) -> Discard | None:
        """Whether an envelope closes the attempt in flight (None), or came too late. A bug if it can be neither."""
        ledger = self._ledger
        if not 0 <= seq < ledger.total:
            raise broken("SEQ_RANGE", f"{seq} is not within 0..{ledger.total - 1}", seq)
        state, current = ledger.seq_state[seq], ledger.attempts[seq]
        if state == _IN_FLIGHT and attempt == current:
            return None
        if 0 <= attempt <= current and ledger.terminal_outcome[seq] == _CANCEL:
            return Discard(seq, attempt, CANCELLED)
        if 0 <= attempt < current:
            known = self.retried.get(seq)
            if known is not None and attempt in known.answered:
                raise broken("SECOND_ENVELOPE", f"attempt {attempt} of seq {seq} has two envelopes", seq)
            return Discard(seq, attempt, LATE)
        rule = "SECOND_TERMINAL" if state > _IN_FLIGHT else "ENVELOPE_NOT_IN_FLIGHT"
        raise broken(rule, f"envelope of attempt {attempt} for seq {seq}: {SeqState(state).name}, {current}", seq)

    def all_in_flight(self, first: int, count: int, attempt: int) -> bool:
        """Whether this many seqs are in flight under this attempt, so that their envelopes need no judging one by one."""
        end = first + count
        return (
            0 <= first < end <= self._ledger.total
            and self._ledger.seq_state.count(_IN_FLIGHT, first, end) == count
            and self._ledger.attempts[first:end].count(attempt) == count
        )

    def retry(
        self, first: int, last: int, attempt: int, code: str, *, answered: bool = False, interrupted: bool = False
    ) -> None:
        """The attempt is over and the kernel tries again: what was in flight is dispatched once more (ORD-024)."""
        ledger, config = self._ledger, self._config
        for begin, end in ledger.spans(SeqState.IN_FLIGHT, first, last):
            self._same_attempt(begin, end, attempt)
            ledger.retry(begin, end, "", 0)
            for seq in range(begin, end + 1):
                known = self.retried.setdefault(seq, Retried())
                known.code = code
                known.failures += not interrupted
                if answered:
                    known.answered.add(attempt)
                interruptions = ledger.attempts[seq] - known.failures
                if known.failures > config.max_retries or interruptions > config.max_interruptions:
                    raise broken("RETRY_BOUND", f"seq {seq} has attempt {attempt + 1}, beyond its bound", seq)

    def forget(self, first: int, last: int) -> None:
        """Committed seqs need no memory of their attempts."""
        if self.retried:
            for seq in range(first, last + 1):
                self.retried.pop(seq, None)

    def _offered_open(self) -> int:
        if not self.offers:
            return 0
        return self._ledger.seq_state.count(_UNSEEN, self.offers[0].first, self.offered_to)

    def _withdrawn(self, first: int, last: int) -> list[Withdraw]:
        return [Withdraw(*span) for span in self._ledger.cancelled_spans(first, last)]

    def _same_attempt(self, first: int, last: int, attempt: int) -> None:
        found = self._ledger.attempts[first : last + 1]
        if found.count(attempt) != len(found):
            place, have = next((place, have) for place, have in enumerate(found) if have != attempt)
            raise broken("ATTEMPT", f"seq {first + place} is at attempt {have}, the kernel at {attempt}", first + place)
