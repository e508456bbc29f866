"""The seq ledger: one code for each seq in dense arrays, the cursor, and the counters that must agree with them.

Sixteen bytes a seq and no object for any of them, so millions fit. Every move asks the table in `states` first and keeps
three books that have to agree: the array of codes, the number of seqs in each state, and the two counters of the contract
(``terminal_count``, ``committed_count``). `check` compares what can be compared in constant time and runs after every
event; `recount` compares all of it and runs when a window closes and when the run ends.

Ranges are inclusive on both sides, as the contract writes them. A move that the table does not have is our own bug:
`InvariantBroken`, which names the rule, and nothing has changed.
"""

from __future__ import annotations

import re
from array import array
from typing import Final

from detent.canon.show import show
from detent.errors import InvalidInput
from detent.ordered.states import LEGAL, NO_OUTCOME, TERMINAL, SeqState, broken

TOTAL_MAX: Final = 1_000_000_000
ATTEMPTS_MAX: Final = 65_535
OWNERS_MAX: Final = 4_096
"""Names of owners kept before those that hold nothing any more are forgotten."""

_UNSEEN, _DISPATCHED, _IN_FLIGHT, _COMMITTED = (
    int(SeqState.UNSEEN),
    int(SeqState.DISPATCHED),
    int(SeqState.IN_FLIGHT),
    int(SeqState.COMMITTED),
)
_TERMINAL_CODES: Final = bytes(TERMINAL)
_SPAN: Final = tuple(re.compile(b"[" + re.escape(bytes((code,))) + b"]+") for code in SeqState)
_HELD: Final = re.compile(b"[\\x%02x\\x%02x]+" % (_DISPATCHED, _IN_FLIGHT))
_TERMINAL_RUN: Final = re.compile(b"[\\x%02x-\\x%02x]*" % (min(TERMINAL), max(TERMINAL)))


class SeqLedger:
    """The states of ``total`` seqs. ``attempts``, ``lease_owner`` and the rest are the contract's arrays."""

    __slots__ = (
        "_next_commit_seq",
        "_owner_index",
        "_owner_names",
        "_owner_numbers",
        "attempts",
        "committed_count",
        "counts",
        "highest_terminal_seq",
        "lease_heartbeat_ms",
        "max_seen_seq",
        "seq_state",
        "terminal_count",
        "terminal_outcome",
        "total",
    )

    def __init__(self, total: int) -> None:
        if type(total) is not int or not 0 <= total <= TOTAL_MAX:
            raise InvalidInput(f"total must be an integer from 0 to {TOTAL_MAX}, not {show(total)}")
        self.total = total
        self.seq_state = bytearray(total)
        self.terminal_outcome = bytearray(total)
        self.attempts = array("H", bytes(2 * total))
        self.lease_heartbeat_ms = array("Q", bytes(8 * total))
        self._owner_index = array("I", bytes(4 * total))
        self._owner_names = [""]
        self._owner_numbers = {"": 0}
        self.counts = [total, 0, 0, 0, 0, 0, 0, 0]
        self.terminal_count = 0
        self.committed_count = 0
        self.max_seen_seq = -1
        """The highest seq ever dispatched (X-080)."""
        self.highest_terminal_seq = -1
        """The highest seq that ended by itself; a cancellation's boundary lies above it (X-069)."""
        self._next_commit_seq = 0

    @property
    def next_commit_seq(self) -> int:
        """The commit cursor: every seq below it is committed, none from it on."""
        return self._next_commit_seq

    @next_commit_seq.setter
    def next_commit_seq(self, value: int) -> None:
        if value != self._next_commit_seq + 1:
            raise broken("CURSOR_STEP", f"the cursor goes from {self._next_commit_seq} to {value}", value)
        self._next_commit_seq = value

    @property
    def in_flight_count(self) -> int:
        """Seqs that a worker has."""
        return self.counts[_IN_FLIGHT]

    @property
    def dispatched_count(self) -> int:
        """Seqs that wait in the kernel: for a worker, or for the delay before a retry."""
        return self.counts[_DISPATCHED]

    def state(self, seq: int) -> SeqState:
        """Where a seq stands."""
        return SeqState(self.seq_state[self._known(seq, seq)])

    def outcome(self, seq: int) -> SeqState | None:
        """How a seq ended, also after its commit (X-070); None while it has not."""
        code = self.terminal_outcome[self._known(seq, seq)]
        return SeqState(code) if code else None

    def lease_owner(self, seq: int) -> str | None:
        """Who holds a seq that is dispatched or in flight; None for all others."""
        return self._owner_names[self._owner_index[self._known(seq, seq)]] or None

    def spans(self, state: SeqState, first: int, last: int) -> list[tuple[int, int]]:
        """The maximal stretches of seqs in one state between ``first`` and ``last``."""
        found = _SPAN[state].finditer(self.seq_state, first, last + 1)
        return [(match.start(), match.end() - 1) for match in found]

    def held_spans(self, first: int, end: int) -> list[tuple[int, int]]:
        """The stretches of seqs from ``first`` up to ``end`` (outside) that the kernel has: dispatched or in flight."""
        return [(match.start(), match.end() - 1) for match in _HELD.finditer(self.seq_state, first, end)]

    def cancelled_spans(self, first: int, last: int) -> list[tuple[int, int]]:
        """The stretches of seqs that were cancelled, committed or not."""
        found = _SPAN[SeqState.TERMINAL_CANCEL].finditer(self.terminal_outcome, first, last + 1)
        return [(match.start(), match.end() - 1) for match in found]

    def terminal_run_end(self, limit: int) -> int:
        """The first seq from the cursor on, below ``limit``, that has not ended: the run before it can commit."""
        match = _TERMINAL_RUN.match(self.seq_state, self._next_commit_seq, limit)
        return match.end() if match else self._next_commit_seq

    def dispatch(self, first: int, last: int, owner: str, at_ms: int) -> None:
        """UNSEEN -> DISPATCHED: the kernel has the job of these seqs."""
        self._move(first, last, SeqState.UNSEEN, SeqState.DISPATCHED)
        self._lease(first, last, owner, at_ms)
        self.max_seen_seq = max(self.max_seen_seq, last)

    def start(self, first: int, last: int, owner: str, at_ms: int) -> None:
        """DISPATCHED -> IN_FLIGHT: a worker has them; this counts as its first heartbeat."""
        self._move(first, last, SeqState.DISPATCHED, SeqState.IN_FLIGHT)
        self._lease(first, last, owner, at_ms)

    def heartbeat(self, first: int, last: int, at_ms: int) -> None:
        """Refresh the liveness of seqs in flight."""
        self._require(first, last, SeqState.IN_FLIGHT, "HEARTBEAT")
        self.lease_heartbeat_ms[first : last + 1] = array("Q", (at_ms,)) * (last + 1 - first)

    def retry(self, first: int, last: int, owner: str, at_ms: int) -> None:
        """IN_FLIGHT -> DISPATCHED, each with one attempt more. No seq is ever given anew (ORD-024, ORD-037)."""
        self._require(first, last, SeqState.IN_FLIGHT, "TRANSITION")
        attempts = self.attempts
        if max(attempts[first : last + 1]) >= ATTEMPTS_MAX:
            raise broken("ATTEMPTS", f"a seq of {first}..{last} has had {ATTEMPTS_MAX + 1} attempts", first)
        self._move(first, last, SeqState.IN_FLIGHT, SeqState.DISPATCHED)
        for seq in range(first, last + 1):
            attempts[seq] += 1
        self._lease(first, last, owner, at_ms)

    def end(self, seq: int, outcome: SeqState) -> None:
        """Give a seq its one terminal outcome, from any state that the table allows (ORD-011, ORD-041)."""
        source = self.seq_state[seq]
        if not 3 <= outcome <= 6 or not LEGAL[source][outcome]:
            rule = "SECOND_TERMINAL" if source >= 3 else "TRANSITION"
            raise broken(rule, f"seq {seq} goes from {SeqState(source).name} to {SeqState(outcome).name}", seq)
        self.seq_state[seq] = self.terminal_outcome[seq] = outcome
        counts = self.counts
        counts[source] -= 1
        counts[outcome] += 1
        self.terminal_count += 1
        if source:
            self._owner_index[seq] = 0
            self.lease_heartbeat_ms[seq] = 0
        if seq > self.highest_terminal_seq:  # noqa: PLR1730 - every seq comes through here, and a call costs
            self.highest_terminal_seq = seq

    def end_many(self, first: int, outcomes: bytes) -> None:
        """The same for contiguous seqs that are all in flight, with one look at each array."""
        last = first + len(outcomes) - 1
        self._require(first, last, SeqState.IN_FLIGHT, "TRANSITION")
        if unknown := outcomes.translate(None, _TERMINAL_CODES):
            raise broken("TRANSITION", f"a seq of {first}..{last} goes from IN_FLIGHT to code {unknown[0]}", first)
        self.seq_state[first : last + 1] = self.terminal_outcome[first : last + 1] = outcomes
        counts, size = self.counts, len(outcomes)
        counts[_IN_FLIGHT] -= size
        for code in TERMINAL:
            counts[code] += outcomes.count(code)
        self.terminal_count += size
        self._release(first, last + 1)
        self.highest_terminal_seq = max(self.highest_terminal_seq, last)

    def cancel_between(self, boundary: int, end: int) -> None:
        """All seqs from a boundary up to ``end`` (outside) become TERMINAL_CANCEL, wherever they stood (X-069)."""
        states = self.seq_state
        found = [states.count(code, boundary, end) for code in (_UNSEEN, _DISPATCHED, _IN_FLIGHT)]
        size = end - boundary
        if sum(found) != size:
            raise broken("CANCEL_BOUNDARY", f"a seq of {boundary}..{end - 1} has ended already", boundary)
        code = int(SeqState.TERMINAL_CANCEL)
        states[boundary:end] = self.terminal_outcome[boundary:end] = bytes((code,)) * size
        for source, number in enumerate(found):
            self.counts[source] -= number
        self.counts[code] += size
        self.terminal_count += size
        leased = max(min(end, self.max_seen_seq + 1), boundary)
        self._release(boundary, leased)

    def commit(self, last: int) -> None:
        """Commit from the cursor up to ``last``, one after the other: each must have ended before (ORD-032, ORD-042)."""
        first = self._next_commit_seq
        self._known(first, last)
        slice_ = self.seq_state[first : last + 1]
        if left := slice_.translate(None, _TERMINAL_CODES):
            seq = first + slice_.index(left[0])
            raise broken("COMMIT_WITHOUT_TERMINAL", f"seq {seq} is {SeqState(left[0]).name} and cannot commit", seq)
        size = last + 1 - first
        for code in TERMINAL:
            self.counts[code] -= slice_.count(code)
        self.counts[_COMMITTED] += size
        self.committed_count += size
        for cursor in range(first + 1, last + 2):
            self.next_commit_seq = cursor
        self.seq_state[first : last + 1] = bytes((_COMMITTED,)) * size

    def check(self) -> None:
        """Compare the books that can be compared in constant time; `InvariantBroken` if two disagree."""
        counts, cursor = self.counts, self._next_commit_seq
        if self.committed_count != cursor or counts[_COMMITTED] != cursor:
            raise broken(
                "COMMITTED_COUNT",
                f"committed_count is {self.committed_count}, the cursor {cursor}, committed seqs {counts[_COMMITTED]}",
                cursor,
            )
        ended = counts[3] + counts[4] + counts[5] + counts[6] + cursor
        if self.terminal_count != ended or ended + counts[0] + counts[1] + counts[2] != self.total:
            raise broken(
                "TERMINAL_COUNT",
                f"terminal_count is {self.terminal_count} of {self.total}, the states add up to {counts}",
                cursor,
            )

    def recount(self, first: int, last: int) -> None:
        """Compare the two dense arrays seq by seq: exactly the seqs that have ended have an outcome."""
        states, outcomes = self.seq_state[first : last + 1], self.terminal_outcome[first : last + 1]
        open_count = sum(states.count(code) for code in (_UNSEEN, _DISPATCHED, _IN_FLIGHT))
        if outcomes.count(NO_OUTCOME) != open_count or outcomes.translate(None, _TERMINAL_CODES + b"\x00"):
            raise broken("OUTCOME_ARRAY", f"states and outcomes of {first}..{last} do not fit each other", first)

    def check_complete(self) -> None:
        """At the end everything has ended, is committed and counted (ORD-039)."""
        self.check()
        self.recount(0, self.total - 1)
        committed = self.seq_state.count(_COMMITTED)
        if not self.terminal_count == self.total == committed == self._next_commit_seq:
            raise broken(
                "COMPLETION",
                f"{self.terminal_count} of {self.total} seqs have ended and {committed} are committed",
                self._next_commit_seq,
            )

    def _known(self, first: int, last: int) -> int:
        if not 0 <= first <= last < self.total:
            raise broken("SEQ_RANGE", f"{first}..{last} is not within 0..{self.total - 1}", first)
        return first

    def _require(self, first: int, last: int, source: SeqState, rule: str) -> None:
        self._known(first, last)
        found = self.seq_state.count(source, first, last + 1)
        if found != last + 1 - first:
            wrong = next(seq for seq in range(first, last + 1) if self.seq_state[seq] != source)
            raise broken(rule, f"seq {wrong} is {SeqState(self.seq_state[wrong]).name}, not {source.name}", wrong)

    def _move(self, first: int, last: int, source: SeqState, target: SeqState) -> None:
        self._require(first, last, source, "TRANSITION")
        size = last + 1 - first
        self.seq_state[first : last + 1] = bytes((target,)) * size
        self.counts[source] -= size
        self.counts[target] += size

    def _lease(self, first: int, last: int, owner: str, at_ms: int) -> None:
        number = self._owner_numbers.get(owner)
        if number is None:
            if len(self._owner_names) >= OWNERS_MAX:
                self._forget_owners()
            number = self._owner_numbers[owner] = len(self._owner_names)
            self._owner_names.append(owner)
        size = last + 1 - first
        self._owner_index[first : last + 1] = array("I", (number,)) * size
        self.lease_heartbeat_ms[first : last + 1] = array("Q", (at_ms,)) * size

    def _forget_owners(self) -> None:
        """Keep only the names of owners that hold something: leases stand between the cursor and the highest seq seen."""
        begin, end = self._next_commit_seq, self.max_seen_seq + 1
        live = sorted(set(self._owner_index[begin:end]) - {0})
        names = ["", *(self._owner_names[number] for number in live)]
        renumbered = {0: 0} | {number: place for place, number in enumerate(live, 1)}
        self._owner_index[begin:end] = array("I", [renumbered[number] for number in self._owner_index[begin:end]])
        self._owner_names = names
        self._owner_numbers = {name: place for place, name in enumerate(names)}

    def _release(self, first: int, end: int) -> None:
        self._owner_index[first:end] = array("I", bytes(4 * (end - first)))
        self.lease_heartbeat_ms[first:end] = array("Q", bytes(8 * (end - first)))
