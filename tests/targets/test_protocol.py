"""What every destination does alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.errors import InvalidInput, InvariantBroken
from detent.targets import NOTHING, CommitFailed, DestinationChanged, FunctionTarget, Mark
from tests.targets.destinations import KINDS, RUN, Destination, drive

VALUES = ["a", "bc", NOTHING, "ü", "", "last"]


@pytest.fixture(params=KINDS)
def destination(request: pytest.FixtureRequest, tmp_path: Path) -> Destination:
    return Destination(request.param, tmp_path)


def test_entries_arrive_in_order_and_those_without_a_value_leave_no_trace(destination: Destination) -> None:
    """ORD-031, ORD-033, ORD-036"""
    drive(destination, destination.target(), VALUES)
    assert destination.held() == destination.expected(VALUES)
    assert destination.recorded() is not None
    assert destination.left_over() == []


def test_a_run_that_is_complete_can_be_opened_again_and_changes_nothing(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    target = destination.target()
    assert target.open(RUN, destination.recorded()) == len(VALUES)
    target.close()
    assert destination.held() == destination.expected(VALUES)


def test_a_repeated_write_has_no_second_effect(destination: Destination) -> None:
    """ORD-034, X-076"""
    target = destination.target()
    assert target.open(RUN, None) == 0
    target.begin()
    mark = target.write(0, ["a", "b"])
    assert target.write(0, ["a", "b"]) == mark
    assert target.write(1, ["b", "c"]).next_seq == 3
    target.close()
    assert destination.held() == destination.expected(["a", "b", "c"])


def test_a_write_that_was_not_recorded_is_there_once_after_a_resume(destination: Destination) -> None:
    """ORD-034, ORD-055"""
    drive(destination, destination.target(), VALUES[:3])
    recorded = destination.recorded()
    target = destination.target()
    assert target.open(RUN, recorded) == 3
    target.write(3, VALUES[3:])
    target.close()  # This mark was not recorded.
    target = destination.target()
    next_seq = target.open(RUN, recorded)
    assert next_seq == (6 if destination.kind == "sqlite" else 3)
    assert destination.held() == destination.expected(VALUES[:next_seq])
    target.write(3, VALUES[3:])
    target.close()
    assert destination.held() == destination.expected(VALUES)
    assert destination.left_over() == []


def test_a_batch_without_a_value_moves_the_cursor_and_nothing_else(destination: Destination) -> None:
    """ORD-033"""
    target = destination.target()
    target.open(RUN, None)
    before = target.begin()
    mark = target.write(0, [NOTHING, NOTHING])
    target.close()
    assert mark == Mark(2, before.offset, before.tail)
    assert destination.held() == b""


def test_a_gap_is_a_broken_invariant(destination: Destination) -> None:
    """ORD-036"""
    target = destination.target()
    target.open(RUN, None)
    target.begin()
    target.write(0, ["a"])
    with pytest.raises(InvariantBroken, match=r"seqs 1\.\.1 were never handed"):
        target.write(2, ["c"])
    target.close()
    assert destination.held() == destination.expected(["a"])


def test_a_closed_destination_cannot_be_written_and_closes_twice(destination: Destination) -> None:
    target = destination.target()
    target.open(RUN, None)
    target.begin()
    target.close()
    target.close()
    with pytest.raises(InvariantBroken):
        target.write(0, ["a"])


def test_a_destination_that_is_behind_the_ledger_is_refused_and_left_alone(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES[:2])
    held, recorded = destination.held(), destination.recorded()
    assert recorded is not None
    ahead = Mark(9, None if recorded.offset is None else recorded.offset + 7, recorded.tail)
    with pytest.raises(DestinationChanged) as caught:
        destination.target().open(RUN, ahead)
    assert (caught.value.retryable, caught.value.spec.partition(":")[0]) == (False, destination.kind)
    assert destination.held() == held


def test_a_destination_that_is_gone_is_not_made_again_behind_the_users_back(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    for name in (destination.path, Path(f"{destination.path}-wal"), Path(f"{destination.path}-shm")):
        name.unlink(missing_ok=True)
    with pytest.raises(DestinationChanged):
        destination.target().open(RUN, destination.recorded())
    assert not destination.path.exists()


def test_a_new_run_adds_to_a_file_that_has_something_already(tmp_path: Path) -> None:
    destination = Destination("append", tmp_path)
    destination.path.write_bytes(b"of before\n")
    drive(destination, destination.target(), ["a", "b"])
    assert destination.held() == b"of before\na\nb\n"


def test_a_function_has_the_same_cursor_as_a_place() -> None:
    """ORD-036"""
    target = FunctionTarget("f", lambda: [].append)
    assert target.open(RUN, None) == 0
    assert target.begin() == Mark(0)
    assert target.write(0, ["a", NOTHING]) == Mark(2)
    with pytest.raises(InvariantBroken):
        target.write(3, ["d"])
    target.close()


@pytest.mark.parametrize("mark", [Mark(0), Mark(7), Mark(3, 0, "e3"), Mark(3, 17, "00ff")])
def test_a_mark_is_read_back_as_it_was(mark: Mark) -> None:
    assert Mark.from_json(mark.to_json()) == mark


@pytest.mark.parametrize(
    "value",
    [
        *(None, [], {}, {"next_seq": -1}, {"next_seq": "1"}, {"next_seq": True}, {"next_seq": 1, "more": 1}),
        *({"next_seq": 1, "offset": 3}, {"next_seq": 1, "offset": -3, "tail": ""}, {"next_seq": 1, "tail": "00"}),
        {"next_seq": 1, "offset": 1, "tail": 5},
    ],
)
def test_what_is_no_mark_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="not a mark"):
        Mark.from_json(value)


def test_a_failure_says_which_destination_and_which_entry() -> None:
    """X-076"""
    error = CommitFailed("full", spec="jsonl:x", seq=4, details={"errno": 28}, hint="free some space")
    assert error.details == {"target": "jsonl:x", "seq": 4, "errno": 28}
    assert (error.retryable, error.hint, error.code) == (True, "free some space", "DOWNSTREAM_WRITE_FAILED")
