"""One ordered run: events in, actions out.

The runtime tells what happened (`dispatched`, `started`, `finished`, `committed`, `cancel`, `tick`, ...) and each event
answers with what to do next. There is no clock, thread or file here: the actions are a function of the events in their
order, and what is committed, seq by seq, is a function of the outcomes alone.

Every event ends the same way (`_settle`): windows that are done close, chunks that have room are offered, the next run of
commits is handed out, and then the invariants are checked, in constant time, in production as in tests. A broken one
raises `InvariantBroken` with the whole snapshot and closes the run for good: every later event raises it again (ORD-044).
A stall is one of them. If nothing is in flight, offered, queued, being written or waiting for its time, and the cursor is
not at the end, then nothing would ever happen again, and the run says so instead of waiting (X-079).

The failure policy ``stop`` is a cancellation at a boundary that depends on the failed seq alone: the end of the window
after its own. While that seq is uncommitted no later window is open, so nothing there can have ended, and the first failure
in seq order gives the same boundary on every run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from operator import itemgetter
from typing import Concatenate, Final, ParamSpec

from detent.canon import DIGEST_BYTES, UINT64_MAX
from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken
from detent.kernel.evidence import REASON_INTERRUPTED
from detent.ordered.actions import (
    Action,
    Blocked,
    Boundary,
    Complete,
    Discard,
    Envelope,
    Fatal,
    Snapshot,
    Summary,
    Withdraw,
    window_views,
)
from detent.ordered.commit_lane import CommitLane
from detent.ordered.compute_lane import CANCELLED, ComputeLane
from detent.ordered.config import ACTIVE_MAX, STOP, ActiveWindows, OrderedConfig
from detent.ordered.seq_ledger import SeqLedger
from detent.ordered.states import NO_OUTCOME, SeqState, broken

DOWNSTREAM_WRITE_FAILED: Final = "DOWNSTREAM_WRITE_FAILED"
FAILURE_POLICY: Final = "FAILURE_POLICY"
CANCELLED_BY_USER: Final = "CANCELLED_BY_USER"

COMPUTED: Final = frozenset({SeqState.TERMINAL_SUCCESS, SeqState.TERMINAL_SKIP, SeqState.TERMINAL_FAIL})
"""The outcomes that an envelope can have; a cancellation comes as an event of its own."""
_COMPUTED_CODES: Final = bytes(COMPUTED)
_OUTCOME_OF: Final = itemgetter(0)

_P = ParamSpec("_P")


def _event(
    method: Callable[Concatenate[OrderedRun, list[Action], _P], None],
) -> Callable[Concatenate[OrderedRun, _P], list[Action]]:
    """Make an event of a method: settle and check after it, and turn a broken invariant into the end of the run."""

    @wraps(method)
    def event(self: OrderedRun, /, *args: _P.args, **kwargs: _P.kwargs) -> list[Action]:
        if self.fault is not None:
            raise InvariantBroken(*self.fault.args, details=self.fault.details)
        if self.fatal is not None:
            return [self.fatal]
        actions: list[Action] = []
        try:
            method(self, actions, *args, **kwargs)
            self._settle(actions)
        except InvariantBroken as fault:
            self._end(fault)
            raise
        return actions

    return event


class OrderedRun:
    """An ordered run over ``config.total`` seqs. `begin` gives the first actions, `Complete` is the last one."""

    __slots__ = (
        "_complete",
        "blocked_since_ms",
        "boundary",
        "commits",
        "compute",
        "config",
        "fatal",
        "fault",
        "ledger",
        "now_ms",
        "windows",
    )

    def __init__(self, config: OrderedConfig) -> None:
        self.config = config
        self.ledger = SeqLedger(config.total)
        self.windows = ActiveWindows(config.total, config.window_size)
        self.compute = ComputeLane(config, self.ledger)
        self.commits = CommitLane(config, self.ledger)
        self.boundary = config.total
        """The first seq that is cancelled; ``total`` while none is."""
        self.now_ms = 0
        self.blocked_since_ms = 0
        self._complete = False
        self.fatal: Fatal | None = None
        """Set when the destination failed for good; every later event answers with it."""
        self.fault: InvariantBroken | None = None
        """Set when an invariant broke; every later event raises it."""

    @_event
    def begin(self, actions: list[Action]) -> None:
        """Start, or go on after `resume_after`: what has room is offered."""

    @_event
    def dispatched(self, actions: list[Action], first: int, last: int, owner: str = "") -> None:
        """The kernel has taken the job of the oldest offered chunk."""
        actions += self.compute.confirm(first, last, owner, self.now_ms)

    @_event
    def started(self, actions: list[Action], first: int, last: int, attempt: int, owner: str) -> None:
        """A worker has the chunk: its seqs that have not ended are in flight under this attempt."""
        self._within(first, last)
        actions += self.compute.start(first, last, attempt, owner, self.now_ms)

    @_event
    def heartbeat(self, actions: list[Action], first: int, last: int, owner: str) -> None:
        """A sign of life for what this owner has in flight (X-078); one from another owner changes nothing."""
        self._within(first, last)
        for begin, end in self.ledger.spans(SeqState.IN_FLIGHT, first, last):
            if self.ledger.lease_owner(begin) == owner:
                self.ledger.heartbeat(begin, end, self.now_ms)
            else:
                actions.append(Discard(begin, self.ledger.attempts[begin], "NOT_THE_OWNER"))

    @_event
    def finished(self, actions: list[Action], seq: int, attempt: int, envelope: Envelope) -> None:
        """An attempt at one seq has ended for good: by success, by a skip verdict, or by a failure without retry."""
        self._check_envelope(envelope)
        self._finish(actions, seq, attempt, envelope)

    @_event
    def finished_many(self, actions: list[Action], first: int, attempt: int, envelopes: Sequence[Envelope]) -> None:
        """The same for contiguous seqs from ``first`` on, as one event: what a chunk's report says of them."""
        self._check_envelopes(envelopes)
        if not self.compute.all_in_flight(first, len(envelopes), attempt):
            for seq, envelope in enumerate(envelopes, first):
                self._finish(actions, seq, attempt, envelope)
            return
        outcomes = bytes(map(_OUTCOME_OF, envelopes))
        self.ledger.end_many(first, outcomes)
        self.commits.hold_many(first, envelopes)
        if self.config.failure_policy == STOP and (place := outcomes.find(SeqState.TERMINAL_FAIL)) >= 0:
            self._stop_behind(actions, first + place)

    @_event
    def failed(self, actions: list[Action], seq: int, attempt: int, code: str) -> None:
        """An attempt at one seq has failed and the kernel tries again (ORD-024)."""
        if late := self.compute.judge(seq, attempt):
            actions.append(late)
            return
        self.compute.retry(seq, seq, attempt, code, answered=True)

    @_event
    def lapsed(
        self, _actions: list[Action], first: int, last: int, attempt: int, code: str, interrupted: bool = False
    ) -> None:
        """A lease ran out, or its worker is gone, and the kernel tries again (ORD-027, X-163)."""
        self._within(first, last)
        self.compute.retry(first, last, attempt, code, interrupted=interrupted)

    @_event
    def interrupted(self, _actions: list[Action]) -> None:
        """The runtime itself died: what was in flight is dispatched again, without counting as a retry."""
        start, end = self.windows.start, self.windows.limit
        for seq, last in self.ledger.spans(SeqState.IN_FLIGHT, start, end - 1):
            for each in range(seq, last + 1):
                attempt = self.ledger.attempts[each]
                self.compute.retry(each, each, attempt, REASON_INTERRUPTED, interrupted=True)

    @_event
    def skipped(self, actions: list[Action], first: int, last: int) -> None:
        """A filter decided, before there was a job, that these seqs have nothing to compute (X-074)."""
        self._within(first, last)
        for seq in range(first, last + 1):
            if self.ledger.outcome(seq) is SeqState.TERMINAL_CANCEL:
                actions.append(Discard(seq, 0, CANCELLED))
            elif self.ledger.seq_state[seq] == SeqState.UNSEEN:
                self.ledger.end(seq, SeqState.TERMINAL_SKIP)
            else:
                raise broken("TRANSITION", f"seq {seq} is {self.ledger.state(seq).name} and cannot be filtered", seq)

    @_event
    def canceled(self, _actions: list[Action], first: int, last: int) -> None:
        """The kernel's job of these seqs ended CANCELED: those that have not ended are cancelled with it (ORD-054)."""
        self._within(first, last)
        for seq in range(first, last + 1):
            if self.ledger.terminal_outcome[seq] == 0:
                self.ledger.end(seq, SeqState.TERMINAL_CANCEL)

    @_event
    def committed(self, _actions: list[Action], last: int) -> None:
        """The destination has everything of the commit that is out, up to ``last``, and the record of it is durable."""
        first = self.ledger.next_commit_seq
        self.commits.committed(last)
        self.compute.forget(first, last)
        self.blocked_since_ms = self.now_ms

    @_event
    def write_failed(self, actions: list[Action], message: str) -> None:
        """The destination refused a batch: try again by the schedule, cursor unmoved, or stop for good (X-076)."""
        again = self.commits.write_failed(self.now_ms)
        if again is not None:
            actions.append(again)
            return
        self.fatal = Fatal(DOWNSTREAM_WRITE_FAILED, message, self.snapshot())
        actions.append(self.fatal)

    @_event
    def cancel(self, actions: list[Action], requested: int = 0, reason: str = CANCELLED_BY_USER) -> None:
        """Cancel from a boundary on: the requested seq, or the first above all that have ended (X-069).

        What lies below runs to its natural end. A later cancellation can only lower the boundary.
        """
        if type(requested) is not int or requested < 0:
            raise InvalidInput(f"a boundary is a seq, not {show(requested)}")
        self._cancel_from(actions, requested, max(requested, self.ledger.highest_terminal_seq + 1), reason)

    @_event
    def tick(self, actions: list[Action], now_ms: int) -> None:
        """Time has come this far. Brings back the commit that waits for it."""
        if type(now_ms) is not int or not self.now_ms <= now_ms <= UINT64_MAX:
            raise InvalidInput(f"time goes from {self.now_ms} ms to {show(now_ms)}")
        self.now_ms = now_ms
        if commit := self.commits.due(now_ms):
            actions.append(commit)

    @_event
    def idle(self, _actions: list[Action]) -> None:
        """The runtime has nothing left to wait for: no job, no write, no timer. Unless the run is done, it is lost."""
        if self.ledger.next_commit_seq < self.config.total:
            raise broken("STALL", "the runtime has nothing to wait for", self.ledger.next_commit_seq)

    def open_seqs(self, first: int, last: int) -> Sequence[int]:
        """The seqs of a chunk that are still to be computed: neither filtered, cancelled nor ended before."""
        outcomes = self.ledger.terminal_outcome
        if outcomes.count(NO_OUTCOME, first, last + 1) == last + 1 - first:
            return range(first, last + 1)
        return [seq for seq in range(first, last + 1) if not outcomes[seq]]

    def envelope(self, seq: int) -> Envelope | None:
        """The terminal envelope of a seq that is not committed yet; None while it has not ended, and afterwards."""
        outcome = self.ledger.outcome(seq)
        if outcome is None or seq < self.ledger.next_commit_seq:
            return None
        return self.commits.envelope_by_seq.get(seq) or Envelope(outcome)

    def summary(self) -> Summary:
        """The summary of what has been committed so far; at the end, the terminal summary."""
        return self.commits.summary()

    def snapshot(self) -> Snapshot:
        """The run as it stands."""
        ledger, commits = self.ledger, self.commits
        return Snapshot(
            total=ledger.total,
            next_commit_seq=ledger.next_commit_seq,
            max_seen_seq=ledger.max_seen_seq,
            terminal_count=ledger.terminal_count,
            committed_count=ledger.committed_count,
            dispatched_count=ledger.dispatched_count,
            in_flight_count=ledger.in_flight_count,
            active_windows=window_views(ledger, self.windows.active()),
            oldest_blocked=self._oldest_blocked(),
            buffered_bytes=commits.buffered_bytes,
            buffered_count=len(commits.envelope_by_seq),
            commit_lag=ledger.terminal_count - ledger.committed_count,
            cancel_boundary=self.boundary,
            write_failures=commits.write_failures,
            now_ms=self.now_ms,
        )

    def check(self) -> None:
        """Compare all books, also those that no event compares because it would take too long."""
        self.ledger.recount(self.windows.start, self.ledger.total - 1)
        cancelled = self.ledger.terminal_outcome.count(SeqState.TERMINAL_CANCEL, self.boundary)
        if cancelled != self.ledger.total - self.boundary:
            raise broken("CANCEL_BOUNDARY", f"not all seqs from {self.boundary} on are cancelled", self.boundary)
        self._check(self.ledger.next_commit_seq, self.ledger.total, settled=False)

    def _oldest_blocked(self) -> Blocked | None:
        """The seq at the cursor: nothing behind it can be committed before it."""
        ledger, seq = self.ledger, self.ledger.next_commit_seq
        if not 0 <= seq < ledger.total:
            return None
        known = self.compute.retried.get(seq)
        return Blocked(
            seq=seq,
            state=ledger.state(seq).name,
            attempts=ledger.attempts[seq],
            owner=ledger.lease_owner(seq),
            failure=known.code if known is not None else None,
            age_ms=self.now_ms - self.blocked_since_ms,
            heartbeat_ms=None if ledger.lease_owner(seq) is None else ledger.lease_heartbeat_ms[seq],
        )

    def _finish(self, actions: list[Action], seq: int, attempt: int, envelope: Envelope) -> None:
        if late := self.compute.judge(seq, attempt):
            actions.append(late)
            return
        self.ledger.end(seq, envelope.outcome)
        self.commits.hold(seq, envelope)
        if envelope.outcome is SeqState.TERMINAL_FAIL and self.config.failure_policy == STOP:
            self._stop_behind(actions, seq)

    def _stop_behind(self, actions: list[Action], seq: int) -> None:
        boundary = stop_boundary(seq, self.config)
        self._cancel_from(actions, boundary, boundary, FAILURE_POLICY)

    def _cancel_from(self, actions: list[Action], requested: int, boundary: int, reason: str) -> None:
        old = self.boundary
        if boundary < old:
            held = self.ledger.held_spans(boundary, min(old, self.compute.offered_to))
            self.ledger.cancel_between(boundary, old)
            self.boundary = boundary
            actions.append(Boundary(requested, boundary, reason))
            actions += [Withdraw(*span) for span in held]
        elif reason != FAILURE_POLICY:
            actions.append(Boundary(requested, old, reason))

    def _settle(self, actions: list[Action]) -> None:
        """What follows from any event: close, offer, commit, complete; then the invariants."""
        ledger, windows, compute, commits = self.ledger, self.windows, self.compute, self.commits
        cursor, total = ledger.next_commit_seq, ledger.total
        while cursor >= windows.commit_limit and windows.start < total:
            windows.close_first(ledger)
        if self.fatal is None:
            limit = min(windows.limit, self.boundary)
            if compute.offered_to < limit:
                actions += compute.offer(limit, len(commits.envelope_by_seq), commits.buffered_bytes)
            if commits.commit_last is None and cursor < total and ledger.terminal_outcome[cursor]:
                commit = commits.coalesce(windows.commit_limit)
                if commit is not None:
                    actions.append(commit)
        self._check(cursor, total)
        if cursor == total and not self._complete:
            ledger.check_complete()
            self._complete = True
            actions.append(Complete(commits.summary()))

    def _check(self, cursor: int, total: int, *, settled: bool = True) -> None:
        """The invariants that no event may break, each in constant time (ORD-045, ORD-051)."""
        ledger, commits, config = self.ledger, self.commits, self.config
        ledger.check()
        held = ledger.counts[1] + ledger.counts[2]
        if not self.windows.start <= cursor <= self.windows.commit_limit:
            raise broken("CURSOR_OUTSIDE_W0", f"the cursor is at {cursor}, outside W0", cursor)
        if ledger.max_seen_seq >= self.windows.limit:
            raise broken("BEYOND_W1", f"seq {ledger.max_seen_seq} was touched behind W1", ledger.max_seen_seq)
        if len(commits.envelope_by_seq) + held > config.count_max:
            raise broken("BUFFERED_COUNT", f"more than {config.count_max} seqs are held", cursor)
        if not 0 <= commits.buffered_bytes <= config.buffered_bytes_max:
            raise broken("BUFFERED_BYTES", f"{commits.buffered_bytes} bytes are held", cursor)
        if commits.tree.size != cursor:
            raise broken("TREE_SIZE", f"the tree has {commits.tree.size} leaves, the cursor is {cursor}", cursor)
        if settled and held == 0 and cursor < total and commits.commit_last is None and not self.compute.offers:
            raise broken("STALL", "nothing is in flight, dispatchable or waiting for its time", cursor)

    def _check_envelopes(self, envelopes: Sequence[Envelope]) -> None:
        """The same for many, column by column; one by one only where a column does not look like what computing gives."""
        if not envelopes:
            return
        outcomes, digests, sizes, _, _ = zip(*envelopes, strict=True)
        if not (
            {SeqState}.issuperset(map(type, outcomes))
            and not bytes(outcomes).translate(None, _COMPUTED_CODES)
            and {bytes}.issuperset(map(type, digests))
            and {DIGEST_BYTES}.issuperset(map(len, digests))
            and {int}.issuperset(map(type, sizes))
            and 0 <= min(sizes) <= max(sizes) <= self.config.payload_bytes_max
        ):
            for envelope in envelopes:
                self._check_envelope(envelope)

    def _check_envelope(self, envelope: Envelope) -> None:
        """Refuse, before anything has changed, what no envelope may say."""
        outcome, payload_digest, size, _, _ = envelope
        if outcome not in COMPUTED:
            raise InvalidInput(f"an envelope says success, skip or fail, not {show(outcome)}")
        if type(size) is not int or not 0 <= size <= self.config.payload_bytes_max:
            raise InvalidInput(
                f"an envelope holds 0 to {self.config.payload_bytes_max} bytes, not {show(size)}",
                hint="store a larger payload elsewhere and pass a reference to it",
            )
        if payload_digest is not None and (type(payload_digest) is not bytes or len(payload_digest) != DIGEST_BYTES):
            raise InvalidInput(f"a payload digest has {DIGEST_BYTES} bytes, not {show(payload_digest)}")

    def _within(self, first: int, last: int) -> None:
        """Only seqs of the active windows, or behind them, are ever spoken of (ORD-021)."""
        if not 0 <= first <= last < max(self.windows.limit, self.compute.offered_to):
            raise broken("OUTSIDE_WINDOWS", f"{first}..{last} is not in an active window", first)

    def _end(self, fault: InvariantBroken) -> None:
        """Close the run for good; the snapshot goes with the error."""
        fault.details["snapshot"] = self.snapshot().to_map()
        self.fault = fault


def stop_boundary(seq: int, config: OrderedConfig) -> int:
    """Where a run with the policy ``stop`` ends when this seq fails: behind the window after its own."""
    return min((seq // config.window_size + ACTIVE_MAX) * config.window_size, config.total)
