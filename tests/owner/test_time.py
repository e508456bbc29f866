"""Time as the owner sees it: ticks from a clock, what falls due, and what happens when the owner itself was asleep."""

from __future__ import annotations

import time
from functools import partial

import pytest

from detent.canon import decode
from detent.kernel import AdvanceTick, BackoffSchedule, Claim, Heartbeat, LeasePolicy, RaiseEpoch, Resume, checkpoint
from detent.owner import owner as owner_module
from detent.owner import ticks as pace_module
from detent.owner.ticks import SystemClock, TickSource
from detent.store.api import Store
from detent.store.memory import MemoryStore
from detent.testing import CrashAt, FakeClock
from tests.kernel.builders import config
from tests.owner.rig import (
    GAP_TICKS,
    LEASE_TICKS,
    ORIGIN,
    START_MS,
    Rig,
    cancel,
    fail,
    finish,
    heartbeat,
    stamped,
    submit,
)

HOUR_MS = 3_600_000


# -- the clock ---------------------------------------------------------------------------------------------------------


def source(clock: FakeClock, *, tick_ms: int = 1, epoch_base_ms: int = 0, not_before: int = 0) -> TickSource:
    return TickSource(clock, tick_ms=tick_ms, epoch_base_ms=epoch_base_ms, not_before=not_before)


def test_ticks_are_wall_time_since_the_base() -> None:
    assert source(FakeClock(5_000), epoch_base_ms=1_000).now() == 4_000
    assert source(FakeClock(5_050), tick_ms=100).now() == 50


def test_setting_the_wall_clock_moves_nothing_while_the_owner_runs() -> None:
    """X-180"""
    clock = FakeClock(5_000)
    ticks = source(clock)
    clock.set_wall(1_000_000_000)
    assert ticks.now() == 5_000
    clock.set_wall(0)
    clock.jump(10)
    assert ticks.now() == 5_010


def test_after_a_restart_ticks_never_lie_before_the_last_recorded_one() -> None:
    """X-180"""
    assert source(FakeClock(1_000), not_before=5_000).now() == 5_000


def test_a_wall_clock_that_was_set_back_does_not_make_time_stand_still() -> None:
    """X-180: otherwise leases and retries would wait until the wall clock has caught up."""
    clock = FakeClock(1_000)
    ticks = source(clock, not_before=5_000)
    clock.jump(7)
    assert ticks.now() == 5_007


def test_a_wall_clock_before_the_base_starts_at_zero() -> None:
    assert source(FakeClock(10), epoch_base_ms=500).now() == 0


def test_the_wait_for_a_tick_is_measured_from_now() -> None:
    clock = FakeClock(1_000)
    ticks = source(clock, tick_ms=10)
    assert ticks.ms_until(105) == 50
    assert ticks.ms_until(100) == 0
    assert ticks.ms_until(7) == 0


def test_the_system_clock_runs_forward() -> None:
    clock = SystemClock()
    first = clock.monotonic_ms()
    assert clock.monotonic_ms() >= first
    assert clock.wall_ms() > 1_700_000_000_000


# -- what falls due ----------------------------------------------------------------------------------------------------


def test_time_is_recorded_only_when_something_falls_due(rig: Rig) -> None:
    """X-165: a tick without a consequence is no input."""
    rig.start()
    before = rig.size
    rig.pass_ms(LEASE_TICKS - 1)
    assert rig.size == before
    rig.pass_ms(1)
    assert rig.commands() == [AdvanceTick(START_MS + LEASE_TICKS)]
    assert rig.state() == "RETRYING"


def test_a_lease_runs_out_at_its_tick_and_the_retry_follows_its_backoff(rig: Rig) -> None:
    """X-065, PIPE-080"""
    rig.start()
    rig.pass_ms(LEASE_TICKS, step_ms=1)
    assert rig.edges() == ["QUEUED->RUNNING", "RUNNING->RETRYING"]
    rig.pass_ms(9, step_ms=1)
    assert rig.state() == "RETRYING"
    rig.pass_ms(1)
    assert rig.state() == "QUEUED"


def test_an_expiry_comes_before_a_result_of_the_same_tick(rig: Rig) -> None:
    """X-065"""
    grant = rig.start()
    rig.pass_ms(LEASE_TICKS - 10)
    rig.clock.jump(10)
    late = rig.one(finish(grant))
    assert late.refusal is not None
    assert late.refusal.code == "LEASE_INVALID"
    assert rig.state() == "RETRYING"


def test_a_result_one_tick_earlier_is_in_time(rig: Rig) -> None:
    """X-065"""
    grant = rig.start()
    rig.pass_ms(LEASE_TICKS - 10)
    rig.clock.jump(9)
    assert rig.one(finish(grant)).ok
    assert rig.state() == "SUCCEEDED"


def test_heartbeats_keep_a_lease_for_as_long_as_they_come(rig: Rig) -> None:
    grant = rig.start()
    for _ in range(20):
        rig.pass_ms(30)
        assert rig.one(heartbeat(grant)).ok
    assert rig.state() == "RUNNING"
    rig.pass_ms(60)
    assert rig.state() == "RETRYING"


def test_ticks_of_the_log_never_go_back_when_the_wall_clock_does(rig: Rig) -> None:
    """X-180"""
    rig.one(submit("job-1"))
    first = rig.store.head(0).last_tick
    rig.clock.set_wall(0)
    rig.one(submit("job-2"))
    assert rig.store.head(0).last_tick == first
    rig.clock.jump(5)
    rig.open()
    assert rig.store.head(0).last_tick == first
    rig.clock.jump(3)
    rig.one(submit("job-3"))
    assert rig.store.head(0).last_tick == first + 3, "and it does not stand still either"


# -- the owner was asleep ----------------------------------------------------------------------------------------------


def test_after_an_hours_stall_a_live_worker_keeps_its_lease(rig: Rig) -> None:
    """X-180"""
    grant = rig.start()
    rig.stall_ms(HOUR_MS)
    alive = rig.one(heartbeat(grant))
    assert alive.ok
    rig.pass_ms(10)
    assert rig.state() == "RUNNING"
    assert rig.commands() == [Resume(START_MS + HOUR_MS + 10, (("job-1", grant.lease_id),))]
    rig.pass_ms(50)
    assert rig.one(finish(grant)).ok


def test_after_an_hours_stall_a_dead_workers_lease_runs_out_after_the_grace(rig: Rig) -> None:
    """X-180"""
    rig.start()
    rig.stall_ms(HOUR_MS)
    rig.owner.step()
    assert rig.state() == "RUNNING", "the worker may not have had the time to say that it lives"
    rig.pass_ms(GAP_TICKS - 1, step_ms=1)
    assert rig.state() == "RUNNING"
    rig.pass_ms(1)
    assert rig.state() == "RETRYING"
    assert rig.tick == START_MS + HOUR_MS + GAP_TICKS


def test_the_living_are_told_from_the_dead(rig: Rig) -> None:
    """X-180"""
    living = rig.start("job-1", "worker-1")
    rig.start("job-2", "worker-2")
    rig.stall_ms(HOUR_MS)
    assert rig.one(heartbeat(living)).ok
    rig.pass_ms(GAP_TICKS)
    assert (rig.state("job-1"), rig.state("job-2")) == ("RUNNING", "RETRYING")


def test_the_grace_ends_as_soon_as_every_worker_has_been_heard(rig: Rig) -> None:
    """X-180: no longer than needed."""
    grants = [rig.start("job-1"), rig.start("job-2")]
    rig.stall_ms(HOUR_MS)
    rig.one(heartbeat(grants[0]))
    rig.pass_ms(1)
    assert rig.tick == START_MS
    rig.one(heartbeat(grants[1]))
    rig.pass_ms(1)
    assert rig.tick == START_MS + HOUR_MS + 2
    assert (rig.state("job-1"), rig.state("job-2")) == ("RUNNING", "RUNNING")


def test_a_lease_about_to_run_out_when_the_stall_ends_is_waited_for_too(rig: Rig) -> None:
    """X-180: its worker was asleep with the owner, and its heartbeat needs a moment."""
    grant = rig.start()
    rig.stall_ms(LEASE_TICKS - 1)
    rig.owner.step()
    rig.pass_ms(2, step_ms=1)
    assert rig.state() == "RUNNING"
    assert rig.one(heartbeat(grant)).ok
    rig.pass_ms(GAP_TICKS + 10)
    assert rig.state() == "RUNNING"


def test_a_worker_with_a_longer_lease_gets_a_third_of_that_to_be_heard(store: Store) -> None:
    """X-180: the shortest lease of a home says nothing of how soon a worker with another one speaks."""
    rig = Rig(store, settings=config(lease_policies=(LeasePolicy("default", 30, 30), LeasePolicy("remote", 300, 300))))
    rig.start("job-1", "here")
    rig.one(submit("job-2"))
    (elsewhere,) = rig.one(Claim(0, "elsewhere", lease="remote")).grants
    rig.stall_ms(HOUR_MS)
    rig.pass_ms(90)
    assert (rig.state("job-1"), rig.state("job-2")) == ("RUNNING", "RUNNING")
    assert rig.one(Heartbeat(0, "job-2", elsewhere.lease_id, lease="remote")).ok
    rig.pass_ms(10)
    assert (rig.state("job-1"), rig.state("job-2")) == ("RETRYING", "RUNNING"), "no longer than needed"
    rig.pass_ms(200)
    assert rig.one(finish(elsewhere)).ok


def test_a_stall_with_no_lease_in_danger_costs_no_waiting(rig: Rig) -> None:
    """X-180"""
    rig.one(submit("job-1"))
    rig.stall_ms(HOUR_MS)
    rig.one(submit("job-2"))
    assert rig.tick == START_MS + HOUR_MS


def test_a_stall_delays_no_retry_when_no_lease_is_in_danger(rig: Rig) -> None:
    """X-180"""
    rig.one(fail(rig.start()))
    rig.stall_ms(HOUR_MS)
    rig.owner.step()
    assert rig.state() == "QUEUED"
    assert rig.tick == START_MS + HOUR_MS


def test_a_lease_granted_during_the_grace_is_safe(rig: Rig) -> None:
    """X-180"""
    rig.start("job-1", "dead")
    rig.one(submit("job-2"))
    rig.stall_ms(HOUR_MS)
    (grant,) = rig.one(Claim(0, "living")).grants
    rig.pass_ms(GAP_TICKS)
    assert (rig.state("job-1"), rig.state("job-2")) == ("RETRYING", "RUNNING")
    rig.pass_ms(50)
    assert rig.one(finish(grant)).ok


def test_what_is_asked_during_the_grace_is_decided(rig: Rig) -> None:
    rig.start("job-1")
    rig.stall_ms(HOUR_MS)
    assert rig.one(submit("job-2")).ok
    assert rig.one(cancel("job-2")).ok
    assert rig.one(cancel("job-1")).ok
    rig.pass_ms(1)
    assert rig.tick >= START_MS + HOUR_MS, "with the last lease in danger the grace is over"


def test_a_result_during_the_grace_is_in_time(rig: Rig) -> None:
    grant = rig.start()
    rig.stall_ms(HOUR_MS)
    assert rig.one(finish(grant)).ok
    assert rig.edges() == ["QUEUED->RUNNING", "RUNNING->SUCCEEDED"]


def test_a_restart_after_a_long_downtime_leaves_a_live_worker_its_lease(rig: Rig) -> None:
    """X-180"""
    grant = rig.start()
    rig.stall_ms(HOUR_MS)
    rig.open()
    assert rig.state() == "RUNNING"
    assert rig.one(heartbeat(grant)).ok
    rig.pass_ms(GAP_TICKS)
    assert rig.state() == "RUNNING"
    assert rig.one(finish(grant)).ok


def test_a_restart_after_a_long_downtime_expires_a_dead_workers_lease(rig: Rig) -> None:
    """X-180"""
    rig.start()
    rig.stall_ms(HOUR_MS)
    rig.open()
    rig.pass_ms(GAP_TICKS - 1, step_ms=1)
    assert rig.state() == "RUNNING"
    rig.pass_ms(1)
    assert rig.state() == "RETRYING"


def test_a_restart_in_the_middle_of_the_grace_begins_it_anew(rig: Rig) -> None:
    grant = rig.start()
    rig.stall_ms(HOUR_MS)
    rig.one(heartbeat(grant))
    rig.open()
    assert rig.one(heartbeat(grant)).ok
    rig.pass_ms(GAP_TICKS)
    assert rig.state() == "RUNNING"


def test_closing_in_the_middle_of_the_grace_expires_nothing(rig: Rig) -> None:
    grant = rig.start()
    rig.open(checkpoint_records=1)
    rig.stall_ms(HOUR_MS)
    future = rig.ask(heartbeat(grant))
    rig.owner.close()
    assert future.result(timeout=0)[0].ok
    assert rig.state() == "RUNNING"
    rig.open()
    rig.one(heartbeat(grant))
    rig.pass_ms(GAP_TICKS)
    assert rig.state() == "RUNNING"


def test_what_fell_due_before_a_new_epoch_is_decided_under_it(rig: Rig) -> None:
    """The records of a batch name its signer; time that passed before the epoch would name the one before."""
    rig.one(fail(rig.start()))
    rig.stall_ms(20)
    rig.open()
    assert [type(command) for command in rig.commands()] == [RaiseEpoch]
    assert rig.state() == "RETRYING"
    rig.owner.step()
    assert rig.state() == "QUEUED"


def test_a_replay_across_a_stall_gives_the_same_state(rig: Rig) -> None:
    """X-165, X-180: the stall is in the recorded commands, not in the replayer's clock."""
    living = rig.start("job-1")
    rig.start("job-2")
    rig.stall_ms(HOUR_MS)
    rig.one(heartbeat(living))
    rig.one(submit("job-3"))
    rig.pass_ms(GAP_TICKS + 50)
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()


# -- the loop ----------------------------------------------------------------------------------------------------------


def test_the_loop_never_sleeps_as_long_as_a_stall_while_something_will_fall_due() -> None:
    """X-180: an owner that slept until a lease ran out would take its own sleep for a stall, and wait once more."""
    rig = Rig(MemoryStore.create(ORIGIN, 1))
    rig.start()
    before = time.monotonic()
    assert rig.owner._look_again_at() - before <= GAP_TICKS / 1_000


def test_a_turn_wakes_the_loop_only_for_what_cannot_wait_until_it_looks_by_itself() -> None:
    rig = Rig(MemoryStore.create(ORIGIN, 1))
    owner = rig.owner
    owner._wake_at = time.monotonic()
    owner.call([stamped(submit("job-1"))])
    assert not owner._wake.is_set()
    owner._wake_at = asleep = time.monotonic() + 3_600
    owner.call([stamped(submit("job-2"))])
    assert owner._wake.is_set()
    assert owner._wake_at < asleep


def test_leases_shorter_than_a_gap_can_be_measured_do_not_stop_time(store: Store) -> None:
    rig = Rig(store, settings=config(lease_policies=(LeasePolicy("default", 2, 1),)))
    rig.start()
    rig.pass_ms(2, step_ms=1)
    assert rig.state() == "RETRYING"


@pytest.mark.parametrize("tick_ms", [1, 10])
def test_ticks_coarser_than_milliseconds_are_kept(tick_ms: int) -> None:
    settings = config(tick_ms=tick_ms, backoff_schedules=(BackoffSchedule("default", (50,)),))
    rig = Rig(MemoryStore.create(ORIGIN, 1), settings=settings)
    rig.one(fail(rig.start()))
    rig.pass_ms(40, step_ms=10)
    assert rig.state() == "RETRYING"
    rig.pass_ms(10, step_ms=10)
    assert rig.state() == "QUEUED"


# -- many leases at once -----------------------------------------------------------------------------------------------


def test_leases_that_end_at_once_are_ended_in_bounded_batches_before_any_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PIPE-082, X-065: a batch holds a bounded number of records however many leases run out at one tick"""
    rig = Rig(store)
    for number in range(11):
        rig.one(submit(f"job-{number:02}"))
    grants = rig.one(Claim(0, "worker-1", 11)).grants
    monkeypatch.setattr(pace_module, "AdvanceTick", partial(AdvanceTick, due_max=2))
    monkeypatch.setattr(owner_module, "TURN_RECORDS_MAX", 4)
    before = rig.size
    for _ in range(LEASE_TICKS // 10 - 1):
        rig.clock.jump(10)
        rig.do()
    rig.clock.jump(10)
    late = rig.do(finish(grants[-1]))[0]
    assert late.refusal is not None
    assert late.refusal.code == "LEASE_INVALID"
    rows = list(store.batches(0, before))
    assert [row.record_count for row in rows] == [4, 4, 3]
    assert len({row.last_tick for row in rows}) == 1
    assert {rig.state(grant.job_id) for grant in grants} == {"RETRYING"}
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()


@pytest.mark.parametrize("left", [1, 2, 3])
def test_an_owner_that_dies_between_two_parts_leaves_the_rest_to_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    """PIPE-060, X-065: the rest is ended under the new epoch, at no other tick than it would have been"""
    rig = Rig(store)
    for number in range(7):
        rig.one(submit(f"job-{number}"))
    rig.one(Claim(0, "worker-1", 7))
    monkeypatch.setattr(pace_module, "AdvanceTick", partial(AdvanceTick, due_max=2))
    monkeypatch.setattr(owner_module, "TURN_RECORDS_MAX", 2)
    rig.open(crash_point=CrashAt("appended", left + 1))
    rig.pass_ms(LEASE_TICKS)
    assert rig.owner.closed
    rig.open()
    assert [type(command) for command in rig.commands()] == [RaiseEpoch]
    rig.do()
    assert sorted(rig.edges(f"job-{number}") for number in range(7)) == [["QUEUED->RUNNING", "RUNNING->RETRYING"]] * 7
    for row in store.records(0):
        if row.kind == "transition":
            assert store.batch(0, row.batch_no).last_tick == decode(row.body)["tick"]  # type: ignore[union-attr]
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()
