"""Counted things of a home: taken whole or not at all, shared by every process, free again when their holder is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from detent.errors import InvalidInput
from detent.executor.assignment import Assignment
from detent.jobs.order import Call, JobLimits, Order, read_order
from detent.jobs.work import CANCELLED, FAILED, SUCCEEDED, Result
from detent.workers.resources import WAITING_MAX, ResourceGate, Resources, feasible_fault

HOLDER = """
import sys
from pathlib import Path
from detent.workers.resources import Resources

taken = Resources(Path(sys.argv[1]), {"gpu": 3, "memory_mb": 1000}, 2)
print(taken.take(1, {"gpu": 2, "memory_mb": 600}), flush=True)
sys.stdin.read()
"""


class Behind:
    """An executor that keeps what it is given until the test says that it has ended."""

    def __init__(self, room: int = 10) -> None:
        self.has: dict[int, Assignment] = {}
        self.room = room
        self.refuses = False
        self._back: list[tuple[int, Result]] = []

    def wanted(self) -> int:
        return self.room

    def take(self, assignment: Assignment) -> None:
        if self.refuses:
            raise InvalidInput("a variable that cannot be written")
        self.has[assignment.number] = assignment

    def cancel(self, number: int) -> None:
        self.end(number, CANCELLED)

    def end(self, number: int, status: str = SUCCEEDED) -> None:
        del self.has[number]
        self._back.append((number, Result(status=status)))

    def finished(self) -> Sequence[tuple[int, Result]]:
        back, self._back = self._back, []
        return back

    def close(self) -> None:
        self.has.clear()


def assignment(number: int, **resources: int) -> Assignment:
    order = Order(Call(kind="python", target="steps:one"), "one", JobLimits(resources=resources))
    return Assignment(number, f"job-{number}", 0, order, {})


@pytest.fixture
def behind() -> Behind:
    return Behind()


def rationed(tmp_path: Path, behind: Behind, workers: int = 2, **totals: int) -> ResourceGate:
    return ResourceGate({"python": behind}, Resources(tmp_path, totals, workers), lambda: 7)


def test_work_that_declares_nothing_passes_whatever_there_is(tmp_path: Path, behind: Behind) -> None:
    lane = rationed(tmp_path, behind, workers=1)
    for number in range(5):
        lane.take(assignment(number))
    assert list(behind.has) == [0, 1, 2, 3, 4]
    assert lane.wanted() == behind.room


def test_work_that_takes_all_workers_runs_alone(tmp_path: Path, behind: Behind) -> None:
    """Issue 6: a task that takes 2 of cpu where there are 2 takes both; what came before it ends first."""
    lane = rationed(tmp_path, behind)
    lane.take(assignment(1))
    lane.take(assignment(2, cpu=2))
    lane.take(assignment(3))
    assert list(behind.has) == [1], "3 came after 2, which waits for the workers that 3 would take"
    behind.end(1)
    assert [number for number, _ in lane.finished()] == [1]
    assert list(behind.has) == [2]
    behind.end(2)
    lane.finished()
    assert list(behind.has) == [3]


def test_work_passes_by_what_waits_for_something_else(tmp_path: Path, behind: Behind) -> None:
    lane = rationed(tmp_path, behind, gpu=1)
    lane.take(assignment(1, gpu=1))
    lane.take(assignment(2, gpu=1))
    lane.take(assignment(3))
    lane.take(assignment(4, cpu=1))
    assert list(behind.has) == [1, 3, 4]
    behind.end(1)
    lane.finished()
    assert list(behind.has) == [3, 4, 2]


def test_what_is_cancelled_while_it_waits_never_begins_and_lets_others_pass(tmp_path: Path, behind: Behind) -> None:
    lane = rationed(tmp_path, behind)
    lane.take(assignment(1))
    lane.take(assignment(2, cpu=2))
    lane.take(assignment(3))
    lane.cancel(2)
    assert list(behind.has) == [1, 3]
    assert [(number, result.status) for number, result in lane.finished()] == [(2, CANCELLED)]
    lane.cancel(1)
    assert [(number, result.status) for number, result in lane.finished()] == [(1, CANCELLED)]


def test_what_can_never_be_had_is_refused(tmp_path: Path, behind: Behind) -> None:
    lane = rationed(tmp_path, behind, gpu=1)
    with pytest.raises(InvalidInput, match="needs 3 cpu, and only 2 can be had here"):
        lane.take(assignment(1, cpu=3))
    with pytest.raises(InvalidInput, match="needs 1 tpu, a resource that this home does not have"):
        lane.take(assignment(2, tpu=1))
    assert feasible_fault({"cpu": 2, "gpu": 1}, {"cpu": 2, "gpu": 1}) is None


def test_a_lane_that_refuses_takes_nothing_away(tmp_path: Path, behind: Behind) -> None:
    lane = rationed(tmp_path, behind, gpu=1)
    behind.refuses = True
    lane.take(assignment(1, gpu=1))
    ((number, refused),) = lane.finished()
    assert (number, refused.status, refused.started_ms) == (1, FAILED, 7)
    behind.refuses = False
    lane.take(assignment(2, gpu=1, cpu=2))
    assert list(behind.has) == [2]


def test_no_more_is_claimed_while_too_much_waits(tmp_path: Path, behind: Behind) -> None:
    lane = rationed(tmp_path, behind, gpu=1)
    for number in range(WAITING_MAX):
        lane.take(assignment(number, gpu=1))
    assert lane.wanted() == behind.room, "one of them runs"
    lane.take(assignment(WAITING_MAX, gpu=1))
    assert lane.wanted() == 0


def test_parts_that_are_not_next_to_each_other_make_up_an_amount(tmp_path: Path) -> None:
    resources = Resources(tmp_path, {"gpu": 4}, 1)
    assert [resources.take(number, {"gpu": 1}) for number in range(4)] == [None] * 4
    resources.give(0)
    resources.give(2)
    assert resources.take(9, {"gpu": 3}) == "gpu"
    assert resources.take(9, {"gpu": 2}) is None
    assert resources.take(10, {"gpu": 1}) == "gpu"
    resources.close()


def test_all_or_nothing(tmp_path: Path) -> None:
    mine, yours = Resources(tmp_path, {"gpu": 1, "a": 5}, 1), Resources(tmp_path, {"gpu": 1, "a": 5}, 1)
    assert yours.take(1, {"gpu": 1}) is None
    assert mine.take(1, {"a": 5, "gpu": 1}) == "gpu"
    assert yours.take(2, {"a": 5}) is None, "what the other did not get in the end is free"
    mine.close()
    yours.close()


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"None\n"
        mine = Resources(tmp_path, {"gpu": 3, "memory_mb": 1000}, 2)
        assert mine.take(1, {"gpu": 2}) == "gpu"
        assert mine.take(1, {"gpu": 1, "memory_mb": 401}) == "memory_mb"
        assert mine.take(1, {"gpu": 1, "memory_mb": 400}) is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert mine.take(2, {"gpu": 2, "memory_mb": 600}) is None
        mine.close()


def test_an_order_says_what_it_takes_and_older_ones_take_nothing() -> None:
    order = assignment(1, cpu=2).order
    assert read_order(order.document()) == order
    assert "resources" not in assignment(1).order.document()
