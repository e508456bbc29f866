"""How many tasks a worker is given ahead of the one that it runs, by how long the last ones took."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.executor.plain.dealing import AHEAD_US, DEPTH_MAX, SOON_US, Dealer
from detent.executor.plain.slot import Slot, entry_of
from detent.jobs.work import CANCELLED
from tests.executor.plain.rig import Rig, assignment


@pytest.fixture
def dealer(tmp_path: Path) -> Iterator[Dealer]:
    """With one worker that takes nothing, so that all it was given can be counted."""
    dealer = Dealer()
    dealer.slots[1] = Slot(1, tmp_path / "worker")
    yield dealer
    dealer.slots[1].close()


def test_before_anything_is_known_a_worker_has_one_task(dealer: Dealer) -> None:
    assert dealer.room() == 1


@pytest.mark.parametrize(
    ("task_us", "room"),
    [
        (10, DEPTH_MAX),
        (AHEAD_US // 10, 9),
        (AHEAD_US, 2),
        (SOON_US // 2, 2),
        (SOON_US * 2, 1),
        (3_600_000_000, 1),
    ],
)
def test_a_task_waits_behind_the_running_one_unless_that_takes_long(dealer: Dealer, task_us: int, room: int) -> None:
    dealer.learn(task_us)
    assert dealer.room() == room


def test_what_was_long_once_is_believed_sooner_than_what_was_short(dealer: Dealer) -> None:
    dealer.learn(1_000)
    dealer.learn(4 * SOON_US)
    assert dealer.room() == 1
    dealer.learn(1_000)
    assert dealer.room() == 1


def test_the_second_task_waits_in_the_worker_and_the_third_here(dealer: Dealer) -> None:
    dealer.learn(SOON_US // 2)
    for number in range(3):
        dealer.add(entry_of(assignment(number, "work:same"), str))
    assert (len(dealer.slots[1].entries), len(dealer.backlog)) == (2, 1)
    assert dealer.room() == 0


def test_what_waits_behind_a_task_of_the_usual_length_is_taken_by_a_worker_without_work(rig: Rig) -> None:
    rig.pool._dealer.task_us = SOON_US / 2
    held = rig.submit("begin_and_wait")
    rig.begun()
    behind = [rig.submit("same", place) for place in range(3)]
    assert [rig.result(number).ok for number in behind] == [True] * 3
    rig.pool.cancel(held)
    assert rig.result(held).status == CANCELLED
