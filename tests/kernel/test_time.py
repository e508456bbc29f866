"""Time is data: ticks come with commands, never go back, and what is due is done before anything else."""

from __future__ import annotations

import pytest

from detent.kernel import (
    AdvanceTick,
    BackoffSchedule,
    Claim,
    Finish,
    Heartbeat,
    LeasePolicy,
    RaiseEpoch,
    Resume,
    Submit,
)
from tests.kernel.builders import NO_LEASE, OWNER_KEY_ID, Scene, body_of, code_of, config, edges_of, verified


@pytest.mark.parametrize(("tick", "state"), [(99, "SUCCEEDED"), (100, "RETRYING"), (101, "RETRYING")])
def test_a_result_at_the_tick_of_expiry_comes_too_late(tick: int, state: str) -> None:
    """PIPE-082, X-065"""
    scene = Scene()
    grant = scene.start()
    scene.tick = tick
    outcome = scene.finish(grant)
    assert code_of(outcome) == (None if state == "SUCCEEDED" else "LEASE_INVALID")
    assert scene.job().state == state
    assert len(outcome.records) == 1  # the result, or the expiry that came before it


def test_what_is_due_is_committed_before_the_command_that_brings_the_tick() -> None:
    """PIPE-082, X-065"""
    scene = Scene()
    scene.start("job-2")
    outcome = scene.apply(Submit(100, verified("job-1")))
    assert [(record.kind, record.job_id) for record in outcome.records] == [
        ("transition", "job-2"),
        ("submitted", "job-1"),
    ]


def test_what_is_due_together_goes_by_due_tick_then_job_id() -> None:
    """PIPE-082, X-065: ids by their UTF-8 bytes"""
    scene = Scene()
    for tick, job_id in ((0, "job-é"), (0, "job-z"), (0, "job-c"), (1, "job-b"), (2, "job-a")):
        scene.tick = tick
        scene.start(job_id)
    outcome = scene.at(200)
    assert [record.job_id for record in outcome.records] == ["job-c", "job-z", "job-é", "job-b", "job-a"]


def test_expiries_and_ready_retries_share_one_order() -> None:
    """PIPE-082, X-065"""
    scene = Scene()
    retrying = scene.start("job-b")
    scene.fail(retrying)  # ready at 10
    scene.tick = 5
    scene.start("job-a")  # expires at 105
    outcome = scene.at(105)
    assert [(record.job_id, edge) for record, edge in zip(outcome.records, edges_of(outcome.records), strict=True)] == [
        ("job-b", "RETRYING->QUEUED"),
        ("job-a", "RUNNING->RETRYING"),
    ]


def test_one_tick_can_take_a_job_through_expiry_and_back_into_the_queue() -> None:
    """PIPE-082, PIPE-089"""
    scene = Scene(config(backoff_schedules=(BackoffSchedule("default", (0,)),)))
    scene.start()
    outcome = scene.at(100)
    assert edges_of(outcome.records) == ["RUNNING->RETRYING", "RETRYING->QUEUED"]


def test_the_clock_never_goes_back() -> None:
    """X-009"""
    scene = Scene()
    scene.at(50)
    scene.apply(AdvanceTick(20))
    assert scene.kernel.tick == 50
    outcome = scene.apply(Submit(30, verified()))
    assert outcome.records[0].body != Scene().submit().records[0].body
    assert scene.live().submitted_tick == 50


@pytest.mark.parametrize("tick", [-1, 2**64, 1.0, True, None, "1"])
def test_a_tick_that_is_none_is_refused(tick: int) -> None:
    """PIPE-018, X-009"""
    scene = Scene()
    outcome = scene.apply(AdvanceTick(tick))
    assert (code_of(outcome), outcome.recorded, scene.kernel.tick) == ("INVALID_PARAMS", False, 0)


def test_the_largest_tick_is_a_tick() -> None:
    """PIPE-018"""
    scene = Scene()
    assert scene.at(2**64 - 1).ok
    assert scene.kernel.tick == 2**64 - 1


def test_a_refusal_that_left_nothing_does_not_move_the_clock() -> None:
    """PIPE-037"""
    scene = Scene()
    scene.submit()
    for command in (Claim(70, ""), Finish(70, "job-9", NO_LEASE), Submit(70, verified())):
        assert not scene.apply(command).recorded
    assert scene.kernel.tick == 0
    scene.apply(AdvanceTick(70))
    assert scene.kernel.tick == 70


def test_a_command_that_finds_something_due_is_recorded_whatever_became_of_itself() -> None:
    """PIPE-082, X-165"""
    scene = Scene()
    scene.start()
    outcome = scene.apply(Claim(100, ""))
    assert (code_of(outcome), outcome.recorded) == ("INVALID_PARAMS", True)
    assert edges_of(outcome.records) == ["RUNNING->RETRYING"]
    assert scene.kernel.tick == 100


def test_the_next_due_tick_is_the_first_of_leases_and_retries() -> None:
    """PIPE-088, PIPE-096"""
    scene = Scene(config(lease_policies=(LeasePolicy("default", 100, 60), LeasePolicy("long", 500, 500))))
    assert scene.kernel.next_due() is None
    scene.start("job-1", lease_policy_id="long")
    grant = scene.start("job-2")
    assert scene.kernel.next_due() == 100
    scene.tick = 90
    scene.heartbeat(grant)
    assert scene.kernel.next_due() == 150
    scene.fail(grant)
    assert scene.kernel.next_due() == 100
    scene.at(100)
    assert scene.kernel.next_due() == 500


def test_a_resume_takes_the_heartbeats_of_the_stall_before_anything_expires() -> None:
    """X-180"""
    scene = Scene()
    one, two = scene.start("job-1"), scene.start("job-2")
    scene.tick = 99
    scene.heartbeat(two)  # until 159
    outcome = scene.apply(Resume(500, (("job-1", one.lease_id),)))
    assert (scene.job("job-1").state, scene.job("job-1").lease_expiry) == ("RUNNING", 560)
    assert scene.job("job-2").state == "RETRYING"
    assert outcome.recorded


def test_a_stale_resume_extends_from_the_present_tick() -> None:
    """X-009, X-180"""
    scene = Scene()
    grant = scene.start()
    scene.at(90)
    scene.apply(Resume(10, (("job-1", grant.lease_id),)))
    assert (scene.job().lease_expiry, scene.kernel.tick) == (150, 90)


# -- a bounded part of what is due -------------------------------------------------------------------------------------


def crowd(size: int) -> Scene:
    """Leases that all run out at tick 100."""
    scene = Scene()
    for number in range(size):
        scene.submit(f"job-{number}")
    assert len(scene.claim(size)) == size
    return scene


def test_time_passes_in_parts_and_the_parts_are_the_whole() -> None:
    """PIPE-082, X-065: the order is that of one pass, and the tick the same"""
    whole, parts = crowd(7), crowd(7)
    whole.at(100)
    sizes = []
    while (due := parts.kernel.next_due()) is not None and due <= 100:
        sizes.append(len(parts.apply(AdvanceTick(100, 3)).records))
    assert sizes == [3, 3, 1]
    assert [record.body for record in parts.records] == [record.body for record in whole.records]


def test_every_other_command_commits_all_that_is_due_before_itself() -> None:
    """PIPE-082: a lease that has run out cannot be saved because others came first"""
    scene = crowd(4)
    scene.apply(AdvanceTick(100, 2))
    assert len(scene.kernel._timers) >= 2
    last = scene.live("job-3")
    outcome = scene.apply(Heartbeat(100, "job-3", last.lease_id or b""))
    assert code_of(outcome) == "LEASE_INVALID"
    assert [record.job_id for record in outcome.records] == ["job-2", "job-3"]


def test_a_stall_ends_in_parts_too_and_takes_all_heartbeats_first() -> None:
    """X-180"""
    scene = crowd(4)
    beats = tuple((f"job-{number}", scene.live(f"job-{number}").lease_id or b"") for number in (2, 3))
    assert [record.job_id for record in scene.apply(Resume(150, beats, 1)).records] == ["job-0"]
    assert [record.job_id for record in scene.apply(AdvanceTick(150, 5)).records] == ["job-1"]


@pytest.mark.parametrize("command", [AdvanceTick(5, 0), AdvanceTick(5, -1), AdvanceTick(5, True), Resume(5, (), 0)])
def test_a_bound_that_lets_nothing_happen_is_refused(command: AdvanceTick) -> None:
    """PIPE-018"""
    scene = Scene()
    assert code_of(scene.apply(command)) == "INVALID_PARAMS"
    assert scene.kernel.tick == 0


def test_nothing_is_decided_between_two_owners() -> None:
    """PIPE-060: what is due when an owner begins is decided under its key"""
    scene = crowd(2)
    outcome = scene.apply(RaiseEpoch(100, 1, OWNER_KEY_ID, scene.kernel.config.encode()))
    assert [record.kind for record in outcome.records] == ["owner_epoch"]
    assert [body_of(record)["signer_key_id"] for record in scene.at(100).records] == [OWNER_KEY_ID] * 2
