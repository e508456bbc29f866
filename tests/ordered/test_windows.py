"""Windows and chunks: arithmetic over the numbers, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import InvalidInput
from detent.kernel.manifest import id_fault
from detent.ordered import (
    Chunk,
    Complete,
    Dispatch,
    OrderedRun,
    Window,
    chunk_job_id,
    chunk_of,
    plan_windows,
)
from detent.ordered.config import ActiveWindows
from tests.ordered.scenes import begun, broken_by, commit_all, config, finish, flying, plan_chunks


@given(st.integers(0, 300), st.integers(1, 40))
def test_windows_tile_all_seqs(total: int, window_size: int) -> None:
    """ORD-006, ORD-007"""
    windows = plan_windows(total, window_size)
    assert [seq for start, end in windows for seq in range(start, end + 1)] == list(range(total))
    assert all(end - start + 1 == window_size for start, end in windows[:-1])
    assert windows == plan_windows(total, window_size)


@pytest.mark.parametrize(
    ("total", "windows"),
    [(0, []), (1, [(0, 0)]), (4, [(0, 3)]), (5, [(0, 3), (4, 4)]), (8, [(0, 3), (4, 7)])],
)
def test_only_the_last_window_is_shorter(total: int, windows: list[tuple[int, int]]) -> None:
    """ORD-008"""
    assert plan_windows(total, 4) == [Window(*window) for window in windows]


@pytest.mark.parametrize(("total", "size"), [(-1, 1), (1, 0), (True, 1), (1, 2**20 + 1), (10**9 + 1, 1)])
def test_sizes_out_of_range_are_refused(total: int, size: int) -> None:
    """ORD-008"""
    with pytest.raises(InvalidInput):
        plan_windows(total, size)


def test_a_run_without_entries_is_complete_at_once() -> None:
    """ORD-008, ORD-039"""
    (action,) = OrderedRun(config(0)).begin()
    assert isinstance(action, Complete)
    assert (action.summary.total, action.summary.success) == (0, 0)


@given(st.integers(0, 200), st.integers(1, 30), st.data())
def test_chunks_tile_every_window_and_cross_none(total: int, window_size: int, data: st.DataObject) -> None:
    """ORD-006, X-183"""
    chunk_size = data.draw(st.integers(1, window_size))
    chunks = plan_chunks(total, window_size, chunk_size)
    assert [seq for first, last in chunks for seq in range(first, last + 1)] == list(range(total))
    for chunk in chunks:
        assert chunk.first // window_size == chunk.last // window_size
        assert chunk.last - chunk.first < chunk_size
        assert {chunk_of(seq, total, window_size, chunk_size) for seq in range(chunk.first, chunk.last + 1)} == {chunk}


def test_a_run_offers_exactly_the_chunks_of_the_plan() -> None:
    """ORD-007, ORD-021, X-183"""
    run = OrderedRun(config(25, window_size=8, chunk_size=3))
    offered = [Chunk(action.first, action.last) for action in run.begin() if isinstance(action, Dispatch)]
    assert offered == [(0, 2), (3, 5), (6, 7), (8, 10), (11, 13), (14, 15)]
    assert offered == [chunk for chunk in plan_chunks(25, 8, 3) if chunk.last < 16]


def test_a_job_is_named_by_its_run_and_its_seqs() -> None:
    """X-183"""
    assert chunk_job_id("run-1", 7, 7, 1) == "run-1/seq-7"
    assert chunk_job_id("run-1", 16, 31, 1) == "run-1/seq-16-31"
    assert id_fault("job_id", chunk_job_id("run-1", 0, 10**9, 1)) is None


def test_the_third_window_is_not_touched_while_two_are_open() -> None:
    """ORD-019, ORD-021"""
    run = flying(35)
    assert run.windows.active() == (Window(0, 9), Window(10, 19))
    assert run.ledger.max_seen_seq == 19
    finish(run, [*range(1, 20)])
    assert (run.ledger.max_seen_seq, run.ledger.next_commit_seq) == (19, 0)
    finish(run, [0])
    commit_all(run)
    assert run.windows.active() == (Window(20, 29), Window(30, 34))


def test_nothing_behind_the_windows_may_be_spoken_of() -> None:
    """ORD-021, ORD-044"""
    assert broken_by(begun(35).started, 20, 20, 0, "worker")["rule"] == "OUTSIDE_WINDOWS"
    assert broken_by(begun(35).skipped, 20, 20)["rule"] == "OUTSIDE_WINDOWS"
    assert broken_by(begun(35).dispatched, 1, 1)["rule"] == "DISPATCH_NOT_OFFERED"


def test_a_window_does_not_close_early() -> None:
    """ORD-043"""
    run = flying(20)
    finish(run, range(10))
    assert broken_by(run.windows.close_first, run.ledger)["rule"] == "WINDOW_CLOSE"
    commit_all(run)
    assert run.windows.closed == 1
    # The cursor says that the window is done, one of its states does not.
    behind = flying(20)
    finish(behind, range(10))
    behind.ledger.commit(9)
    behind.ledger.seq_state[3] = 2
    assert broken_by(behind.windows.close_first, behind.ledger)["rule"] == "WINDOW_CLOSE"


def test_no_window_is_left_to_close_at_the_end() -> None:
    """ORD-043"""
    windows = ActiveWindows(5, 5, closed=1)
    assert windows.active() == ()
    assert broken_by(windows.close_first, flying(5).ledger)["rule"] == "WINDOW_CLOSE"
