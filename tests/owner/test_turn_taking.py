"""Threads that take turns, in the order of asking, and none that waits for ever."""

from __future__ import annotations

import threading

import pytest

from detent.owner.lock import TurnTaking, step_aside
from tests.runs.rig import eventually


class Guest(threading.Thread):
    """A thread that takes its turn, says so, and keeps it until released."""

    def __init__(self, turns: TurnTaking, said: list[str], name: str) -> None:
        super().__init__(daemon=True)
        self._turns, self._said, self._word = turns, said, name
        self.may_leave = threading.Event()
        self.has_left = threading.Event()

    def run(self) -> None:
        with self._turns:
            self._said.append(self._word)
            self.may_leave.wait(10)
        self.has_left.set()


def waiting(turns: TurnTaking) -> int:
    return len(turns._waiting)


def test_one_has_the_turns_and_the_others_get_it_in_the_order_of_asking() -> None:
    said: list[str] = []
    turns = TurnTaking(patience_seconds=30)
    guests = [Guest(turns, said, name) for name in "abc"]
    for place, guest in enumerate(guests):
        guest.start()
        eventually(lambda place=place: bool(said) and waiting(turns) == place, "it has not asked")  # type: ignore[misc]
    assert said == ["a"]
    for place, guest in enumerate(guests, start=1):
        guest.may_leave.set()
        assert guest.has_left.wait(10)
        eventually(lambda place=place: len(said) == min(3, place + 1), "no thread followed")  # type: ignore[misc]
    assert said == ["a", "b", "c"]
    assert waiting(turns) == 0


def test_a_thread_that_has_waited_long_enough_goes_on_without_its_turn() -> None:
    """It guards nothing: a thread that keeps it for ever blocks no other, and loses nothing by it."""
    said: list[str] = []
    turns = TurnTaking(patience_seconds=0)
    rude, other = Guest(turns, said, "rude"), Guest(turns, said, "other")
    rude.start()
    eventually(lambda: said == ["rude"], "it has not begun")
    with turns:
        said.append("me")
    assert said == ["rude", "me"]
    assert waiting(turns) == 0
    rude.may_leave.set()
    assert rude.has_left.wait(10)
    other.start()
    eventually(lambda: said[-1] == "other", "the turn was not free again")
    other.may_leave.set()
    assert other.has_left.wait(10)


def test_a_thread_interrupted_while_it_waits_leaves_no_place_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    turns = TurnTaking(patience_seconds=30)
    first, next_one = Guest(turns, said, "first"), Guest(turns, said, "next")
    first.start()
    eventually(lambda: said == ["first"], "it has not begun")

    class Interrupted:
        """A lock whose second taking is interrupted."""

        def __init__(self) -> None:
            self.taken = 0

        def acquire(self, *_: object, **__: object) -> bool:
            self.taken += 1
            if self.taken > 1:
                raise KeyboardInterrupt
            return True

    with monkeypatch.context() as patch:
        patch.setattr("detent.owner.lock.threading.Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt), turns:
            raise AssertionError("it got the turn")
    assert waiting(turns) == 0
    next_one.start()
    eventually(lambda: waiting(turns) == 1, "it has not asked")
    first.may_leave.set()
    eventually(lambda: said == ["first", "next"], "no thread got the turn")
    next_one.may_leave.set()
    assert next_one.has_left.wait(10)


def test_a_thread_that_steps_aside_lets_the_next_one_go_on_and_takes_nothing_from_it() -> None:
    said: list[str] = []
    turns = TurnTaking(patience_seconds=30)
    second, third = Guest(turns, said, "second"), Guest(turns, said, "third")
    with turns:
        said.append("first")
        second.start()
        eventually(lambda: waiting(turns) == 1, "it has not asked")
        step_aside()
        eventually(lambda: said == ["first", "second"], "the turn was kept")
        third.start()
        eventually(lambda: waiting(turns) == 1, "it has not asked")
    assert said == ["first", "second"], "leaving took the turn from the thread that had it"
    second.may_leave.set()
    eventually(lambda: said == ["first", "second", "third"], "no thread followed")
    third.may_leave.set()
    assert third.has_left.wait(10)


def test_stepping_aside_without_the_turns_changes_nothing() -> None:
    said: list[str] = []
    turns = TurnTaking(patience_seconds=30)
    step_aside()
    with turns:
        pass
    guest, other = Guest(turns, said, "guest"), Guest(turns, said, "other")
    guest.start()
    eventually(lambda: said == ["guest"], "it has not begun")
    step_aside()
    other.start()
    eventually(lambda: waiting(turns) == 1, "it has not asked")
    assert said == ["guest"]
    for one in (guest, other):
        one.may_leave.set()
        assert one.has_left.wait(10)
