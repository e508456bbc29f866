"""The commit lane: one cursor, coalesced runs, micro-batches, writes that fail."""

from __future__ import annotations

import pytest

from detent.errors import InvalidInput
from detent.ordered import Batch, Commit, Complete, Envelope, Fatal, WriteAgain, resume_after
from tests.ordered.scenes import DONE, FAIL, SKIP, begun, broken_by, commit_all, finish, flying


def commits(actions: list[object]) -> list[tuple[int, int]]:
    return [(action.first, action.last) for action in actions if isinstance(action, Commit)]


def test_nothing_is_committed_before_the_seq_at_the_cursor_has_ended() -> None:
    """ORD-010, ORD-028, ORD-029"""
    run = flying(10)
    assert commits(list(finish(run, range(1, 10)))) == []
    assert run.ledger.next_commit_seq == 0
    assert commits(list(finish(run, [0]))) == [(0, 9)]


def test_the_longest_contiguous_run_is_committed_at_once() -> None:
    """ORD-030"""
    run = flying(10)
    finish(run, [1, 2, 4])
    assert commits(list(finish(run, [0]))) == [(0, 2)]
    assert commits(list(finish(run, [3, 5]))) == [], "one commit at a time"
    assert commits(list(run.committed(2))) == [(3, 5)]


def test_a_run_never_reaches_into_the_second_window() -> None:
    """ORD-019, ORD-030, X-071"""
    run = flying(20)
    finish(run, range(1, 20))
    assert commits(list(finish(run, [0]))) == [(0, 9)]
    assert commits(list(run.committed(9))) == [(10, 19)]


def test_successes_are_written_in_micro_batches_in_order() -> None:
    """ORD-031, ORD-033, ORD-036"""
    run = flying(10, micro_batch_size=3)
    finish(run, [1, 3, 4, 5, 6, 8, 9])
    finish(run, [2], Envelope(FAIL, code="BAD_INPUT"))
    finish(run, [7], Envelope(SKIP))
    (commit,) = finish(run, [0])
    assert commit == Commit(0, 9, (Batch(0, 3, (0, 1, 3)), Batch(4, 6, (4, 5, 6)), Batch(7, 9, (8, 9))))


def test_batches_of_successes_alone_are_cut_the_same_way() -> None:
    """ORD-031"""
    run = flying(7, micro_batch_size=3)
    finish(run, range(1, 7))
    (commit,) = finish(run, [0])
    assert commit == Commit(0, 6, (Batch(0, 2, (0, 1, 2)), Batch(3, 5, (3, 4, 5)), Batch(6, 6, (6,))))


def test_the_cursor_moves_by_one_for_each_seq_of_a_batch() -> None:
    """ORD-016, ORD-018, ORD-020, ORD-032, X-070, X-073"""
    run = flying(5)
    finish(run, [1, 2, 3], Envelope(SKIP))
    finish(run, [0])
    cursors = [run.ledger.next_commit_seq]
    for last in range(4):
        run.committed(last)
        cursors.append(run.ledger.next_commit_seq)
        assert run.ledger.committed_count == run.ledger.next_commit_seq
    assert cursors == [0, 1, 2, 3, 4]
    assert [run.ledger.outcome(seq) for seq in (0, 1)] == [DONE.outcome, SKIP]
    assert run.summary().skip == 3


@pytest.mark.parametrize("last", [-1, 3, 9])
def test_only_what_was_handed_out_can_be_confirmed(last: int) -> None:
    """ORD-010, ORD-029, ORD-044"""
    run = flying(10)
    finish(run, [1, 2, 0])
    run.committed(0)
    run.committed(2)
    assert run.ledger.next_commit_seq == 3
    assert broken_by(run.committed, last)["rule"] == "COMMIT_NOT_OFFERED"


def test_skip_fail_and_cancel_do_not_stop_the_cursor_and_write_nothing() -> None:
    """ORD-033"""
    run = flying(4)
    run.canceled(3, 3)
    finish(run, [2], Envelope(SKIP))
    finish(run, [1], Envelope(FAIL, code="BAD_INPUT"))
    (commit,) = finish(run, [0], Envelope(SKIP))
    assert commit == Commit(0, 3, (Batch(0, 3, ()),))
    (end,) = run.committed(3)
    assert isinstance(end, Complete)
    assert (end.summary.skip, end.summary.fail, end.summary.cancel, end.summary.success) == (2, 1, 1, 0)
    assert end.summary.failures == {"BAD_INPUT": 1}


def test_a_failing_write_leaves_the_cursor_and_is_repeated_by_the_schedule() -> None:
    """ORD-034, X-076"""
    run = flying(4, micro_batch_size=2, write_delays_ms=(100, 300))
    finish(run, [1, 2, 3, 0])
    run.committed(0)
    commit = Commit(1, 3, (Batch(1, 2, (1, 2)), Batch(3, 3, (3,))))
    run.tick(1000)
    assert run.write_failed("disk full") == [WriteAgain(1100, 1)]
    assert (run.ledger.next_commit_seq, run.ledger.committed_count) == (1, 1)
    assert run.tick(1099) == []
    assert run.tick(1100) == [commit]
    run.committed(2)
    assert run.commits.write_failures == 0, "a write that succeeds starts the schedule anew"
    assert run.write_failed("disk full") == [WriteAgain(1200, 1)]


def test_a_destination_that_stays_broken_is_fatal() -> None:
    """ORD-034, X-076"""
    run = flying(2, write_delays_ms=(10,))
    finish(run, [0])
    run.write_failed("disk full")
    run.tick(10)
    (fatal,) = run.write_failed("disk still full")
    assert isinstance(fatal, Fatal)
    assert (fatal.code, fatal.message) == ("DOWNSTREAM_WRITE_FAILED", "disk still full")
    assert (fatal.snapshot.next_commit_seq, fatal.snapshot.write_failures) == (0, 2)
    assert run.finished(1, 0, DONE) == [fatal], "both lanes have stopped"
    assert run.ledger.terminal_count == 1


def test_only_a_write_that_is_out_can_fail_or_succeed() -> None:
    """ORD-044"""
    assert broken_by(flying(2).write_failed, "no")["rule"] == "WRITE_NOT_OFFERED"
    waiting = flying(2)
    finish(waiting, [0])
    waiting.write_failed("disk full")
    assert broken_by(waiting.committed, 0)["rule"] == "COMMIT_NOT_OFFERED"


def test_what_is_committed_is_let_go() -> None:
    """ORD-015, ORD-049"""
    run = flying(3)
    finish(run, [1], Envelope(SKIP, size=3, payload_ref="content/ab"))
    finish(run, [0])
    assert (run.commits.buffered_bytes, sorted(run.commits.envelope_by_seq)) == (13, [0, 1])
    envelope = run.envelope(1)
    assert envelope is not None
    assert envelope.payload_ref == "content/ab"
    run.committed(0)
    assert (run.commits.buffered_bytes, sorted(run.commits.envelope_by_seq)) == (3, [1])
    assert (run.envelope(0), run.envelope(2)) == (None, None)


def test_failures_are_counted_by_code_and_the_codes_are_bounded() -> None:
    run = flying(100, window_size=100)
    for seq in range(100):
        run.finished(seq, 0, Envelope(FAIL, code=f"CODE_{seq % 80}"))
    commit_all(run)
    failures = run.summary().failures
    assert len(failures) == 65
    assert (failures["CODE_0"], failures["OTHER"], sum(failures.values())) == (2, 16, 100)


def test_time_does_not_go_back() -> None:
    run = begun(1)
    run.tick(10)
    for now_ms in (9, 1.5, True, 2**64):
        with pytest.raises(InvalidInput):
            run.tick(now_ms)  # type: ignore[arg-type]
    assert run.now_ms == 10


def test_what_ended_after_the_commit_was_handed_out_is_not_part_of_it() -> None:
    """ORD-030, ORD-032"""
    run = flying(3)
    finish(run, [0, 1])
    assert broken_by(run.committed, 1)["rule"] == "COMMIT_NOT_OFFERED"


def test_a_resumed_run_gives_its_destination_the_whole_schedule_again() -> None:
    """X-076"""
    run = flying(2, write_delays_ms=(10,))
    finish(run, [0])
    run.committed(0)
    finish(run, [1])
    run.write_failed("disk full")
    run.tick(10)
    run.write_failed("disk full")
    resumed = resume_after(run.config, [DONE])
    resumed.begin()
    resumed.dispatched(1, 1)
    resumed.started(1, 1, 0, "worker-1")
    assert commits(list(resumed.finished(1, 0, DONE))) == [(1, 1)]
    assert resumed.write_failed("disk full") == [WriteAgain(10, 1)]
