"""Retries: who may try again, how often, after how long, and what happens when the queue is full."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from detent.kernel import AdvanceTick, BackoffSchedule, Claim, Finish, Grant, Kernel, KernelConfig, LeasePolicy, Submit
from detent.kernel.manifest import MAX_INTERRUPTIONS_DEFAULT
from detent.kernel.policy import INTERRUPTION_PAUSES
from tests.kernel.builders import (
    BACKOFF,
    Scene,
    body_of,
    code_of,
    config,
    edges_of,
    evidence_of,
    queue_of,
    verified,
    waiting_retries,
)

NO_DELAY = BackoffSchedule("default", (0,))


def attempts(scene: Scene, job_id: str = "job-1", **failure: Any) -> int:
    """Let every attempt of a job end the same way until the job has ended; the number of attempts."""
    count = 0
    while scene.job(job_id).state == "QUEUED":
        (grant,) = scene.claim()
        count += 1
        scene.fail(grant, **failure)
        ready = scene.job(job_id).ready_tick
        if ready is not None:
            scene.at(max(ready, scene.tick))
    return count


def test_attempt_ids_count_from_zero_and_move_when_the_job_is_queued_again() -> None:
    """PIPE-047, X-038: RETRYING->QUEUED still carries the old id"""
    scene = Scene()
    scene.submit()
    for _ in range(2):
        scene.claim()
        scene.at(scene.tick + 100)
        scene.at(scene.job().ready_tick or 0)
    scene.claim()
    assert [body["attempt_id"] for body in scene.bodies()] == [0, 0, 0, 1, 1, 1, 2]


def test_sequences_are_those_before_the_move_and_chain_without_a_gap() -> None:
    """PIPE-048, PIPE-056, X-037"""
    scene = Scene()
    scene.submit()
    attempts(scene)
    bodies = scene.bodies()
    assert [body["transition_seq"] for body in bodies] == list(range(len(bodies)))
    assert scene.job().transition_seq == len(bodies)
    states = [bodies[0]["from_state"], *(body["to_state"] for body in bodies)]
    assert [(body["from_state"], body["to_state"]) for body in bodies] == list(pairwise(states))


@pytest.mark.parametrize("max_retries", [0, 1, 2, 5])
def test_failures_are_bounded_by_max_retries(max_retries: int) -> None:
    """PIPE-043, PIPE-090, X-008, X-038"""
    scene = Scene()
    scene.submit(max_retries=max_retries)
    assert attempts(scene) == max_retries + 1
    assert scene.job().state == "FAILED"


def test_the_last_expiry_fails_the_job() -> None:
    """PIPE-090, PIPE-091, X-039"""
    scene = Scene()
    scene.submit(max_retries=2)
    for _ in range(3):
        scene.claim()
        scene.at(scene.tick + 100)
        scene.at(scene.job().ready_tick or scene.tick)
    assert (scene.job().state, scene.job().reason_code) == ("FAILED", "LEASE_EXPIRED")
    assert scene.edges().count("RUNNING->RETRYING") == 2
    assert evidence_of(scene.records[-1]).kind == "expiry"


def test_retry_k_waits_for_the_kth_delay() -> None:
    """PIPE-093, PIPE-094, X-041"""
    scene = Scene()
    scene.submit(max_retries=5)
    waits = []
    for _ in range(5):
        (grant,) = scene.claim()
        scene.fail(grant)
        ready = scene.job().ready_tick
        assert ready is not None
        waits.append(ready - scene.tick)
        scene.at(ready - 1)
        assert scene.job().state == "RETRYING"
        scene.at(ready)
        assert scene.job().state == "QUEUED"
    assert waits == [10, 20, 40, 40, 40]


@pytest.mark.parametrize(
    ("categories", "category", "state"),
    [
        (("INTERNAL_ERROR",), "INTERNAL_ERROR", "RETRYING"),
        (("INTERNAL_ERROR",), "ValueError", "FAILED"),
        (("INTERNAL_ERROR",), None, "FAILED"),
        (("ValueError",), "ValueError", "RETRYING"),
        (("ValueError",), "INTERNAL_ERROR", "FAILED"),
        ((), "INTERNAL_ERROR", "FAILED"),
    ],
)
def test_only_the_categories_of_the_manifest_are_retried(
    categories: tuple[str, ...], category: str, state: str
) -> None:
    """X-164"""
    scene = Scene()
    scene.fail(scene.start(retry_categories=categories), category=category)
    assert scene.job().state == state


def test_a_task_that_fails_twice_and_then_succeeds() -> None:
    """X-164"""
    scene = Scene()
    scene.submit(retry_categories=("ConnectionError",))
    for _ in range(2):
        (grant,) = scene.claim()
        scene.fail(grant, category="ConnectionError")
        scene.at(scene.job().ready_tick or 0)
    (grant,) = scene.claim()
    scene.finish(grant)
    assert (scene.job().state, scene.job().attempt_id) == ("SUCCEEDED", 2)


def test_a_watchdogs_verdict_is_final() -> None:
    """X-019: lease expiry means that the worker is lost, the watchdog that the job is stuck"""
    scene = Scene()
    grant = scene.start()
    scene.fail(grant, kind="watchdog", reason_code="WATCHDOG_IDLE", category=None)
    assert (scene.job().state, scene.job().reason_code) == ("FAILED", "WATCHDOG_IDLE")


@pytest.mark.parametrize("kind", ["interrupted", "worker_lost"])
def test_interruptions_have_a_bound_of_their_own(kind: str) -> None:
    """X-163"""
    scene = Scene()
    scene.submit(max_retries=0, max_interruptions=3)
    assert attempts(scene, kind=kind, reason_code="GONE", category=None) == 4
    assert (scene.job().state, scene.job().reason_code) == ("FAILED", "GONE")


def test_interruptions_and_failures_do_not_use_up_each_others_bound() -> None:
    """X-163: killed five times inside one step, it still finishes"""
    scene = Scene()
    scene.submit(max_retries=1)
    for _ in range(5):
        (grant,) = scene.claim()
        scene.fail(grant, kind="interrupted", reason_code="INTERRUPTED", category=None)
        scene.at(scene.tick)
    (grant,) = scene.claim()
    scene.fail(grant)
    scene.at(scene.tick + 10)
    (grant,) = scene.claim()
    assert scene.finish(grant).ok
    assert (scene.job().state, scene.job().attempt_id) == ("SUCCEEDED", 6)


@pytest.mark.parametrize("kind", ["interrupted", "worker_lost"])
def test_the_pause_after_an_interruption_doubles_from_the_third_on(kind: str) -> None:
    """X-191: a task whose process is killed each time has ended within minutes, whatever kills it"""
    scene = Scene(config(backoff_schedules=(NO_DELAY, INTERRUPTION_PAUSES)))
    scene.submit(max_retries=0, max_interruptions=MAX_INTERRUPTIONS_DEFAULT)
    pauses = []
    while scene.job().state == "QUEUED":
        (grant,) = scene.claim()
        scene.fail(grant, kind=kind, reason_code="GONE", category=None)
        ready = scene.job().ready_tick
        if ready is not None:
            pauses.append(ready - scene.tick)
            scene.at(ready)
    job = scene.job()
    assert pauses == [0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]
    assert (job.state, job.reason_code, job.attempt_id) == ("FAILED", "GONE", 10)


def test_failures_between_interruptions_do_not_lengthen_the_pause() -> None:
    """X-191, X-041: each count has its own schedule"""
    scene = Scene(config(backoff_schedules=(BACKOFF, INTERRUPTION_PAUSES)))
    scene.submit(max_retries=5)
    pauses = []
    for kind, category in (("worker_lost", None), ("result", "INTERNAL_ERROR")) * 4:
        (grant,) = scene.claim()
        scene.fail(grant, kind=kind, reason_code="GONE", category=category)
        pauses.append((scene.job().ready_tick or 0) - scene.tick)
        scene.at(scene.job().ready_tick or 0)
    assert pauses == [0, 10, 0, 20, 1_000, 40, 2_000, 40]


def test_a_recorded_configuration_without_pauses_has_none() -> None:
    """X-191: what was decided before there were pauses replays to the same bytes"""
    old = KernelConfig.decode(config().encode())
    assert [old.interruption_ticks(k) for k in range(12)] == [0] * 12
    new = KernelConfig.decode(config(backoff_schedules=(BACKOFF, INTERRUPTION_PAUSES)).encode())
    assert [new.interruption_ticks(k) for k in (1, 2, 11)] == [0, 1_000, 60_000]


def test_the_kth_delay_counts_failures_and_not_interruptions() -> None:
    """X-041, X-163"""
    scene = Scene()
    scene.submit()
    (grant,) = scene.claim()
    scene.fail(grant, kind="worker_lost", reason_code="WORKER_LOST", category=None)
    assert scene.job().ready_tick == scene.tick  # replaced without waiting
    scene.at(scene.tick)
    (grant,) = scene.claim()
    scene.fail(grant)
    assert scene.job().ready_tick == scene.tick + 10


# -- a full queue --------------------------------------------------------------------------------------------------


def full_scene(**changes: Any) -> tuple[Scene, Grant]:
    """``job-1`` runs; ``job-2`` holds the only place of the queue."""
    scene = Scene(config(queue=queue_of(1, 1), **changes))
    grant = scene.start("job-1")
    scene.submit("job-2")
    return scene, grant


def test_a_retry_waits_for_room_and_is_never_dropped() -> None:
    """PIPE-096, X-042"""
    scene, grant = full_scene()
    scene.fail(grant)
    scene.at(10)
    scene.at(5_000)
    assert (scene.job("job-1").state, len(scene.kernel.queue), waiting_retries(scene.kernel)) == ("RETRYING", 1, 1)
    scene.claim()  # takes job-2, and the place goes to job-1 in the same command
    assert edges_of(scene.outcomes[-1].records) == ["QUEUED->RUNNING", "RETRYING->QUEUED"]
    assert (scene.job("job-1").state, waiting_retries(scene.kernel)) == ("QUEUED", 0)


def test_a_waiting_retry_takes_room_before_anyone_new() -> None:
    """X-042"""
    scene, grant = full_scene()
    scene.fail(grant)
    scene.at(10)
    scene.cancel("job-2")
    assert scene.job("job-1").state == "QUEUED"
    assert code_of(scene.submit("job-3")) == "QUEUE_FULL"


def test_a_waiting_retry_can_be_canceled_and_gives_its_turn_to_the_next() -> None:
    """PIPE-077, X-042"""
    scene, grant = full_scene()
    scene.fail(grant)
    scene.at(10)
    scene.cancel("job-1")
    assert (scene.job("job-1").state, waiting_retries(scene.kernel)) == ("CANCELED", 0)
    (second,) = scene.claim()
    scene.submit("job-3")
    scene.fail(second)
    scene.at(30)
    scene.claim()
    assert scene.job("job-2").state == "QUEUED"


def test_a_canceled_retry_in_the_middle_of_the_line_is_passed_over() -> None:
    """X-042"""
    scene = Scene(config(queue=queue_of(1, 1)))
    grants = [scene.start(f"job-{number}") for number in (1, 2, 3)]
    scene.submit("blocker")
    for grant in grants:
        scene.fail(grant)
    scene.at(10)
    scene.cancel("job-2")
    assert waiting_retries(scene.kernel) == 2
    served = [scene.claim()[0].job_id for _ in range(3)]
    assert served == ["blocker", "job-1", "job-3"]
    assert waiting_retries(scene.kernel) == 0


def test_waiting_retries_go_by_ready_tick_then_class_then_id() -> None:
    """X-042"""
    scene = Scene(config(queue=queue_of(1, 1)))
    order = [("late", 9, 2), ("b-low", 3, 1), ("a-low", 3, 1), ("high", 8, 1)]
    grants = {job_id: scene.start(job_id, priority=priority) for job_id, priority, _ in order}
    scene.submit("blocker", priority=10)
    for job_id, _, tick in order[1:] + order[:1]:
        scene.tick = tick
        scene.fail(grants[job_id])
    scene.at(50)
    assert waiting_retries(scene.kernel) == 4
    served = []
    for _ in range(5):
        (grant,) = scene.claim()
        served.append(grant.job_id)
    assert served == ["blocker", "high", "a-low", "b-low", "late"]


def test_a_class_without_room_does_not_hold_up_another() -> None:
    """X-042"""
    scene = Scene(config(queue=queue_of(1)))
    low, high = scene.start("low", priority=1), scene.start("high", priority=9)
    scene.submit("blocker", priority=1)
    scene.fail(low)
    scene.fail(high)
    scene.at(10)
    assert (scene.job("low").state, scene.job("high").state) == ("RETRYING", "QUEUED")


def test_a_retried_job_goes_to_the_tail_of_its_class() -> None:
    """X-043"""
    scene = Scene()
    grant = scene.start("job-1")
    scene.submit("job-2")
    scene.fail(grant)
    scene.submit("job-3")
    scene.at(10)
    scene.submit("job-4")
    assert [grant.job_id for grant in scene.claim(4)] == ["job-2", "job-3", "job-1", "job-4"]


def test_a_retry_is_not_let_go_early_by_a_refusal_that_was_ahead_of_its_time() -> None:
    """X-009, X-042: a refused command at tick 12 must leave a retry that is ready at 10 where it found it"""
    scene, grant = full_scene()
    scene.fail(grant)
    refused = scene.apply(Claim(12, ""))
    assert (code_of(refused), refused.recorded) == ("INVALID_PARAMS", True)
    outcome = scene.apply(Claim(7, "worker-1"))
    assert edges_of(outcome.records) == ["QUEUED->RUNNING", "RETRYING->QUEUED"]
    assert body_of(outcome.records[1])["tick"] == 12


def test_a_retry_without_delay_is_queued_before_the_next_command() -> None:
    """PIPE-082, X-065"""
    scene = Scene(config(backoff_schedules=(NO_DELAY,)))
    scene.fail(scene.start())
    assert scene.job().state == "RETRYING"
    (again,) = scene.claim()
    assert (again.job_id, again.attempt_id) == ("job-1", 1)


def test_timers_of_ended_jobs_do_not_pile_up() -> None:
    """X-168: memory is bounded by what is alive, however long the leases are; and those alive keep their order"""
    ttls = (900, 300, 700, 100, 500)
    kernel = Kernel(config(lease_policies=tuple(LeasePolicy(f"ttl-{ttl}", ttl, 1) for ttl in ttls)))
    alive = []
    for number in range(2_500):
        job_id, ttl = f"job-{number:04d}", ttls[number * 7 // 3 % 5]
        kernel.apply(Submit(0, verified(job_id, lease_policy_id=f"ttl-{ttl}")))
        (grant,) = kernel.apply(Claim(0, "worker-1")).grants
        if number % 5:
            kernel.apply(Finish(0, grant.job_id, grant.lease_id))
        else:
            alive.append((ttl, job_id))
    assert len(kernel.jobs) == len(alive) == 500
    assert len(kernel._timers) <= 2 * len(alive) + 1_024 + 1
    expired = [record.job_id for record in kernel.apply(AdvanceTick(899)).records]
    assert expired == [job_id for ttl, job_id in sorted(alive) if ttl < 899]
    assert kernel.next_due() == 900
