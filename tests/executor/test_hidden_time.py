"""The sum of processor time for a job whose parents do not wait for their children."""

from __future__ import annotations

from detent.executor.sandbox.tree import HiddenTime, Life


def test_what_a_process_used_stays_when_it_is_gone() -> None:
    """JOB-037"""
    time = HiddenTime(100, 0)
    time.look(20, {2: Life(5, 1, False), 3: Life(7, 1, False)})
    time.exits(3, 9, whole=True)
    time.look(40, {2: Life(6, 1, False), 3: Life(9, 1, True)})
    assert time.total_ms == 100 + 6 + 9
    time.look(60, {2: Life(8, 1, False)})
    assert time.total_ms == 100 + 8 + 9


def test_a_process_that_came_and_exited_unseen_counts_for_what_it_used() -> None:
    """JOB-037"""
    time = HiddenTime(0, 0)
    time.born(5)
    time.exits(9, 3, whole=False)
    time.look(20, {})
    assert (time.total_ms, time.births) == (3, [])


def test_a_process_that_a_signal_ended_counts_as_if_it_had_run_since_it_was_last_seen() -> None:
    """JOB-037"""
    time = HiddenTime(0, 0)
    time.look(20, {2: Life(1, 2, False)})
    time.born(25)
    time.look(30, {})
    assert time.total_ms == (1 + 2 * 10) + (30 - 25)


def test_a_thread_that_ends_leaves_its_process_running() -> None:
    """JOB-037"""
    time = HiddenTime(0, 0)
    time.look(20, {2: Life(1, 3, False)})
    time.exits(2, 4, whole=False)
    time.look(30, {})
    assert time.total_ms == 4 + 3 * 10
