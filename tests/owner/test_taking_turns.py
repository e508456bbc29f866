"""Who takes a turn of the owner: its loop, a caller, or the thread that has read other requests; and who waits meanwhile."""

from __future__ import annotations

import threading

import pytest

from detent.owner import owner as owner_module
from detent.owner.lock import TurnTaking
from tests.owner.rig import Rig, stamped, submit


def test_leftover_requests_are_decided_together_by_the_thread_that_takes_the_turn(rig: Rig) -> None:
    before = rig.size
    left = [rig.owner.ask([stamped(submit(f"job-{n}"))], wake=False) for n in range(3)]
    assert not any(one.done() for one in left)
    rig.owner.take_turn()
    assert [one.result(timeout=0)[0].status for one in left] == ["COMMITTED"] * 3
    assert rig.size == before + 1


def test_while_a_turn_is_under_way_the_loop_takes_the_next_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "HEAD_IDLE_MS", owner_module.LOOK_AGAIN_MS)  # It does not look by itself in time.
    rig.owner.start()
    rig.owner.look(lambda kernel: kernel.tick).result(timeout=60)
    with rig.owner._turn_lock:
        left = rig.owner.ask([stamped(submit())], wake=False)
        rig.owner.take_turn()
        assert not left.done()
    assert left.result(timeout=30)[0].status == "COMMITTED"
    rig.owner.close()


def test_a_thread_waiting_for_the_turn_of_another_gives_up_its_turn(rig: Rig) -> None:
    turns = TurnTaking(patience_seconds=60)
    rig.owner.start()

    def other() -> None:
        with turns:
            rig.owner._turn_lock.release()

    with turns:
        rig.owner._turn_lock.acquire()  # Nothing is decided until the other one has had the turn.
        threading.Thread(target=other, daemon=True).start()
        (outcome,) = rig.owner.call([stamped(submit())], timeout=30)
    assert outcome.status == "COMMITTED"
    rig.owner.close()


def test_a_closed_owner_takes_no_turn(rig: Rig) -> None:
    rig.owner.close()
    before = rig.size
    rig.owner.take_turn()
    assert rig.size == before
