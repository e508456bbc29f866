"""Every invariant, broken on purpose: fatal, with the whole snapshot, and both lanes stop."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from detent.canon import encode
from detent.ordered import RULES, OrderedRun, SeqLedger, SeqState
from detent.ordered.states import broken
from tests.ordered.scenes import DONE, SUCCESS, broken_by, commit_all, config, finish, flying

SNAPSHOT_FIELDS = {
    *("next_commit_seq", "max_seen_seq", "terminal_count", "in_flight_count"),  # ORD-046
    "active_windows",  # ORD-047
    "oldest_blocked",  # ORD-048
    *("buffered_bytes", "commit_lag"),  # ORD-049
    *("total", "committed_count", "dispatched_count", "buffered_count", "cancel_boundary", "write_failures", "now_ms"),
}


def corrupt_terminal(run: OrderedRun) -> None:
    run.ledger.terminal_count += 1


def corrupt_committed(run: OrderedRun) -> None:
    run.ledger.committed_count += 1


def corrupt_states(run: OrderedRun) -> None:
    run.ledger.counts[2] -= 1


def corrupt_bytes(run: OrderedRun) -> None:
    run.commits.buffered_bytes = -1


def corrupt_windows(run: OrderedRun) -> None:
    run.windows.closed += 1


def corrupt_seen(run: OrderedRun) -> None:
    run.ledger.max_seen_seq = 20


def corrupt_tree(run: OrderedRun) -> None:
    run.commits.tree.items.append(b"")


def corrupt_count(run: OrderedRun) -> None:
    for seq in range(100, 130):
        run.commits.hold(seq, DONE)


@pytest.mark.parametrize(
    ("corrupt", "rule"),
    [
        (corrupt_terminal, "TERMINAL_COUNT"),
        (corrupt_committed, "COMMITTED_COUNT"),
        (corrupt_states, "TERMINAL_COUNT"),
        (corrupt_bytes, "BUFFERED_BYTES"),
        (corrupt_windows, "CURSOR_OUTSIDE_W0"),
        (corrupt_seen, "BEYOND_W1"),
        (corrupt_tree, "TREE_SIZE"),
        (corrupt_count, "BUFFERED_COUNT"),
    ],
)
def test_a_corrupted_book_is_found_by_the_very_next_event(corrupt: Callable[[OrderedRun], None], rule: str) -> None:
    """ORD-017, ORD-039, ORD-044, ORD-045, ORD-051"""
    run = flying(30)
    corrupt(run)
    details = broken_by(run.tick, 1)
    assert details["rule"] == rule
    assert set(details["snapshot"]) == SNAPSHOT_FIELDS
    # Both lanes have stopped: whatever comes, the answer is the same.
    for event, arguments in ((run.finished, (0, 0, DONE)), (run.committed, (0,)), (run.tick, (2,)), (run.begin, ())):
        assert broken_by(event, *arguments) == details


def test_the_cursor_cannot_jump() -> None:
    """ORD-016, ORD-040"""
    ledger = SeqLedger(5)
    for value in (2, 0, -1, 5):
        assert broken_by(setattr, ledger, "next_commit_seq", value)["rule"] == "CURSOR_STEP"
    ledger.next_commit_seq = 1
    assert ledger.next_commit_seq == 1


def test_what_is_in_flight_cannot_be_committed() -> None:
    """ORD-042"""
    run = flying(3)
    finish(run, [0])
    details = broken_by(run.ledger.commit, 1)
    assert (details["rule"], details["seq"]) == ("COMMIT_WITHOUT_TERMINAL", 1)
    assert run.ledger.next_commit_seq == 0


def test_completion_counts_everything_anew() -> None:
    """ORD-039, ORD-051: an array that changed behind the counters is found at the latest when its window closes"""
    run = flying(3)
    finish(run, [1, 2, 0])
    run.ledger.terminal_outcome[1] = 0
    assert broken_by(commit_all, run)["rule"] == "OUTCOME_ARRAY"
    ledger = SeqLedger(2)
    ledger.dispatch(0, 1, "", 0)
    ledger.start(0, 1, "", 0)
    ledger.end_many(0, bytes((SUCCESS, SUCCESS)))
    ledger.commit(0)
    assert broken_by(ledger.check_complete)["rule"] == "COMPLETION"


def test_an_envelope_that_got_lost_is_found_at_its_commit() -> None:
    """ORD-015, ORD-029"""
    run = flying(3)
    finish(run, range(3))
    run.commits.envelope_by_seq.pop(0)
    assert broken_by(commit_all, run)["rule"] == "ENVELOPE_MISSING"


def test_a_stall_is_fatal_within_one_step() -> None:
    """ORD-050, X-079: nothing in flight, nothing to dispatch, no timer, and the cursor is not at the end"""
    run = flying(30)
    run.compute.offered_to = 30
    run.compute.offers.clear()
    finish(run, range(20))
    run.committed(0)
    details = broken_by(commit_all, run)
    assert details["rule"] == "STALL"
    assert details["snapshot"]["oldest_blocked"]["seq"] == 20


def test_a_timer_or_a_write_under_way_is_no_stall() -> None:
    """X-079"""
    run = flying(1)
    finish(run, [0])
    assert run.tick(1) == []
    run.write_failed("disk full")
    assert run.tick(2) == []
    run.tick(5000)
    run.committed(0)
    assert run.ledger.next_commit_seq == run.config.total
    assert run.idle() == []


def test_the_snapshot_tells_what_blocks_whom() -> None:
    """ORD-046, ORD-047, ORD-048, ORD-049, X-080"""
    run = flying(25, count=15)
    finish(run, range(3))
    run.tick(400)
    commit_all(run)
    finish(run, range(4, 10))
    run.tick(1000)
    snapshot = run.snapshot()
    assert (snapshot.next_commit_seq, snapshot.max_seen_seq, snapshot.terminal_count) == (3, 14, 9)
    assert (snapshot.in_flight_count, snapshot.committed_count, snapshot.commit_lag) == (6, 3, 6)
    assert snapshot.buffered_bytes == 60
    assert [(view.lane, view.start_seq, view.end_seq, view.occupancy) for view in snapshot.active_windows] == [
        ("W0", 0, 9, {"IN_FLIGHT": 1, "TERMINAL_SUCCESS": 6, "COMMITTED": 3}),
        ("W1", 10, 19, {"UNSEEN": 5, "IN_FLIGHT": 5}),
    ]
    blocked = snapshot.oldest_blocked
    assert blocked is not None
    assert (blocked.seq, blocked.state, blocked.owner, blocked.age_ms) == (3, "IN_FLIGHT", "worker-1", 600)
    assert set(snapshot.to_map()) == SNAPSHOT_FIELDS
    assert encode(snapshot.to_map())


def test_a_finished_run_is_blocked_by_nothing() -> None:
    """ORD-048, X-080"""
    run = flying(2)
    assert OrderedRun(config(2)).snapshot().max_seen_seq == -1
    finish(run, range(2))
    commit_all(run)
    snapshot = run.snapshot()
    assert (snapshot.oldest_blocked, snapshot.active_windows, snapshot.commit_lag) == (None, (), 0)


def test_the_checks_do_not_depend_on_assertions() -> None:
    """ORD-045, ORD-051"""
    program = (
        "from detent.ordered import *\n"
        "run = OrderedRun(OrderedConfig(3))\n"
        "run.begin()\n"
        "run.ledger.terminal_count += 1\n"
        "try:\n"
        "    run.tick(1)\n"
        "except Exception as fault:\n"
        "    print(fault.code, fault.details['rule'], fault.details['snapshot']['next_commit_seq'])\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-O", "-c", program]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["INVARIANT_VIOLATION", "TERMINAL_COUNT", "0"]


def test_a_rule_has_one_meaning_and_an_unknown_one_is_none() -> None:
    assert len(set(RULES.values())) == len(RULES)
    assert "is not a rule" in str(broken("NO_SUCH_RULE", "text", 0))


def test_a_second_terminal_event_has_its_own_rule() -> None:
    """ORD-011, ORD-041"""
    run = flying(2)
    run.ledger.end(0, SUCCESS)
    assert broken_by(run.ledger.end, 0, SUCCESS)["rule"] == "SECOND_TERMINAL"
    assert broken_by(run.ledger.end, 1, SeqState.COMMITTED)["rule"] == "TRANSITION"


def test_a_cancellation_takes_no_outcome_away() -> None:
    """ORD-041, X-069"""
    run = flying(5)
    finish(run, [3])
    assert broken_by(run.ledger.cancel_between, 2, 5)["rule"] == "CANCEL_BOUNDARY"
    assert run.ledger.state(2) is SeqState.IN_FLIGHT


def test_a_window_that_was_damaged_is_found_when_it_closes() -> None:
    """ORD-043, ORD-051"""
    run = flying(30)
    finish(run, [*range(1, 10), 0])
    run.ledger.terminal_outcome[4] = 0
    assert broken_by(run.committed, 9)["rule"] == "OUTCOME_ARRAY"
    states_only = flying(30)
    states_only.ledger.seq_state[0:10] = bytes((SeqState.COMMITTED,)) * 10
    assert broken_by(states_only.windows.close_first, states_only.ledger)["rule"] == "WINDOW_CLOSE"


def test_a_window_that_was_damaged_after_it_closed_is_found_at_the_end() -> None:
    """ORD-039"""
    run = flying(20)
    finish(run, range(20))
    while run.ledger.next_commit_seq < 10:
        assert run.commits.commit_last is not None
        run.committed(run.commits.commit_last)
    run.ledger.seq_state[3] = SUCCESS
    assert broken_by(commit_all, run)["rule"] == "COMPLETION"
