"""What-if: the same traffic under two policies, and exactly what changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from detent.canon import encode
from detent.kernel import Arrival, KernelConfig
from detent.scheduling import ReplicaStatus, SchedulingPolicy
from detent.scheduling.orders import write_request
from detent.scheduling.what_if import (
    EVICTED,
    REFUSED,
    STOPPED,
    Attempt,
    Came,
    Cancelled,
    Configured,
    Fate,
    Input,
    Ordered,
    Traffic,
    Work,
    WorkerCame,
    WorkerLeft,
    simulate,
)
from detent.scheduling.what_if_figures import Comparison, Waits, compare
from detent.words.states import CANCELLED, FAILED, RETRYING, SUCCEEDED, WAITING
from tests.scheduling.fleets import generic, needs, replica

LEASE_TICKS = 100
DONE = (Attempt(10, SUCCEEDED),)


def policy(**settings: Any) -> SchedulingPolicy:
    return SchedulingPolicy.from_settings(settings)


def configured(**settings: Any) -> KernelConfig:
    chosen = policy(**settings)
    return KernelConfig(queue=chosen.queue_policy(), scheduling=chosen.to_map())


def came(
    tick: int,
    job_id: str,
    *attempts: Attempt,
    priority: int = 5,
    kind: str = "task",
    settled: bytes | None = None,
    **request: Any,
) -> Came:
    asked = write_request(**request) if request else None
    arrival = Arrival(job_id, priority, kind, kind in {"task", "inference"}, None, asked)
    return Came(tick, Work(arrival, attempts or DONE, LEASE_TICKS, settled))


def registered(tick: int, *replicas: ReplicaStatus) -> list[Input]:
    return [Ordered(tick, "replica_register", encode({"replica": one.to_map()})) for one in replicas]


def traffic(*inputs: Input, **settings: Any) -> Traffic:
    return Traffic(configured(**settings), inputs)


def ends(fates: dict[str, Fate]) -> dict[str, str]:
    return {job_id: fate.state for job_id, fate in fates.items()}


def starts(fates: dict[str, Fate]) -> dict[str, int | None]:
    return {job_id: fate.started_tick for job_id, fate in fates.items()}


def compared(recorded: Traffic, **settings: Any) -> Comparison:
    before, other = simulate(recorded), policy(**settings)
    recorded_policy = SchedulingPolicy.from_map(dict(recorded.config.scheduling or {}))
    return compare(before, before, simulate(recorded, other), policies=(recorded_policy, other), tick_ms=1)


# -- policies ----------------------------------------------------------------------------------------------------------

BUSY: tuple[Input, ...] = (WorkerCame(0, "w", 1), *(came(tick, f"job-{tick}") for tick in range(5)))
"""One worker, a job at each tick, ten ticks each: the first runs, the others wait."""


def test_a_full_queue_refuses_the_newest_or_drops_the_oldest() -> None:
    """OC-CORE-1002a, X-082"""
    recorded = traffic(*BUSY, capacity_total=2, admission_policy="drop-lru")
    dropped = simulate(recorded)
    assert ends(dropped) == {
        "job-0": SUCCEEDED,
        "job-1": EVICTED,
        "job-2": EVICTED,
        "job-3": SUCCEEDED,
        "job-4": SUCCEEDED,
    }
    assert starts(dropped) == {"job-0": 0, "job-1": None, "job-2": None, "job-3": 10, "job-4": 20}
    rejected = simulate(recorded, policy(capacity_total=2))
    assert ends(rejected) == {
        "job-0": SUCCEEDED,
        "job-1": SUCCEEDED,
        "job-2": SUCCEEDED,
        "job-3": REFUSED,
        "job-4": REFUSED,
    }
    assert (rejected["job-4"].reason, dropped["job-1"].reason) == ("QUEUE_FULL", "DROPPED_LRU")

    difference = compared(recorded, capacity_total=2)
    assert [(change.name, change.after) for change in difference.settings] == [("admission_policy", "reject")]
    assert difference.turned == ((EVICTED, SUCCEEDED, 2), (SUCCEEDED, REFUSED, 2))
    assert (difference.before.states[EVICTED], difference.after.states[EVICTED]) == (2, 0)
    assert (difference.before.states[REFUSED], difference.after.states[REFUSED]) == (0, 2)
    assert difference.before.waits == Waits(3, 8, 7, 16, 16)
    assert difference.after.waits == Waits(3, 9, 9, 18, 18)
    assert (difference.wait_changes_total, difference.moved, difference.same) == (0, 0, False)


def test_more_room_lets_everybody_wait() -> None:
    difference = compared(traffic(*BUSY, capacity_total=2), capacity_total=9)
    assert difference.turned == ((REFUSED, SUCCEEDED, 2),)
    assert difference.after.waits == Waits(5, 18, 18, 36, 36)


def test_another_placement_order_puts_jobs_elsewhere() -> None:
    """OC-CORE-1017, CORE-X013"""
    fleet = registered(
        0, replica("empty", free_vram_mb=900, max_slots=2), replica("half", free_vram_mb=300, max_slots=2)
    )
    jobs = [came(tick, f"job-{tick}", kind="inference", requirements=needs(), vram_mb=200) for tick in (1, 2, 3)]
    recorded = traffic(*fleet, *jobs)
    assert [fate.replicas for fate in simulate(recorded).values()] == [["empty"], ["empty"], ["half"]]
    packed = simulate(recorded, policy(placement_order="pack"))
    assert [fate.replicas for fate in packed.values()] == [["half"], ["half"], ["empty"]]
    difference = compared(recorded, placement_order="pack")
    assert [tuple(change) for change in difference.placements] == [("empty", 2, 1), ("half", 1, 2)]
    assert (difference.moved, difference.turned, difference.wait_changes) == (3, (), ())


def test_the_jobs_that_wait_longer_or_shorter_are_named_by_the_size_of_the_change() -> None:
    actions = [came(0, f"action-{number}", priority=9, kind="action") for number in range(3)]
    recorded = traffic(WorkerCame(0, "w", 1), *actions, came(0, "task", priority=5), workflow_priority_cap=1)
    difference = compared(recorded)
    assert [(change.job_id, change.change_ms) for change in difference.wait_changes] == [
        ("task", 30),
        ("action-0", -10),
        ("action-1", -10),
        ("action-2", -10),
    ]
    assert {priority: waits.max_ms for priority, waits in difference.before.waits_by_class.items()} == {9: 30, 5: 0}
    assert {priority: waits.max_ms for priority, waits in difference.after.waits_by_class.items()} == {9: 20, 5: 30}


def test_replicas_are_named_by_the_size_of_their_change_and_only_if_there_is_one() -> None:
    def fates(*replicas: str) -> dict[str, Fate]:
        return {str(n): Fate(str(n), 5, 0, SUCCEEDED, None, 0, [name]) for n, name in enumerate(replicas)}

    before, after = fates(*"aaaabbc"), fates(*"aaabddc")
    difference = compare(before, before, after, policies=(policy(), policy()), tick_ms=1)
    assert [tuple(change) for change in difference.placements] == [("d", 0, 2), ("a", 4, 3), ("b", 2, 1)]
    assert difference.moved == 3


def test_when_the_head_of_a_class_is_dropped_its_follower_may_begin() -> None:
    """CORE-X016, X-084"""
    fleet = registered(0, replica("gpu", max_slots=1), generic("plain", pool_id="pool-a"))
    inputs = [
        came(0, "running", Attempt(50, SUCCEEDED), kind="inference", requirements=needs()),
        came(1, "blocked", kind="inference", requirements=needs()),
        came(2, "follower"),
        came(3, "newcomer"),
    ]
    kept = simulate(traffic(*fleet, *inputs, capacity=2))
    assert starts(kept) == {"running": 0, "blocked": 50, "follower": 50, "newcomer": None}
    dropped = simulate(traffic(*fleet, *inputs, capacity=2, admission_policy="drop-lru"))
    assert starts(dropped) == {"running": 0, "blocked": None, "follower": 3, "newcomer": 3}


def test_the_same_policy_changes_nothing() -> None:
    difference = compared(traffic(*BUSY, capacity_total=2), capacity_total=2)
    assert difference.same
    assert difference.settings == ()
    assert difference.before == difference.after


# -- time --------------------------------------------------------------------------------------------------------------


def test_attempts_go_as_they_went_and_retries_come_back_after_their_delay() -> None:
    """X-043"""
    again = (Attempt(5, RETRYING, delay_ticks=20), Attempt(7, FAILED))
    fates = simulate(traffic(WorkerCame(0, "w", 1), came(0, "again", *again), came(1, "next"), came(30, "late")))
    assert starts(fates) == {"again": 0, "next": 5, "late": 32}
    assert (fates["again"].state, fates["again"].replicas) == (FAILED, ["w", "w"])


def test_a_retry_takes_room_before_new_jobs() -> None:
    """X-042"""
    recorded = traffic(
        WorkerCame(0, "w", 1),
        came(0, "again", Attempt(10, RETRYING, delay_ticks=5), Attempt(1, SUCCEEDED)),
        came(1, "long", Attempt(50, SUCCEEDED)),
        came(10, "queued"),
        came(20, "pushy"),
        capacity_total=1,
        admission_policy="drop-lru",
    )
    fates = simulate(recorded)
    assert ends(fates) == {"again": SUCCEEDED, "long": SUCCEEDED, "queued": SUCCEEDED, "pushy": REFUSED}
    assert starts(fates) == {"again": 0, "long": 10, "queued": 60, "pushy": None}


def test_room_that_a_cancellation_makes_is_the_retrys_and_not_the_next_arrivals() -> None:
    """X-042"""
    recorded = traffic(
        WorkerCame(0, "w", 1),
        came(0, "again", Attempt(10, RETRYING, delay_ticks=5), Attempt(1, SUCCEEDED)),
        came(1, "long", Attempt(50, SUCCEEDED)),
        came(12, "queued"),
        Cancelled(20, "queued"),
        came(20, "pushy"),
        capacity_total=1,
    )
    fates = simulate(recorded)
    assert ends(fates) == {"again": SUCCEEDED, "long": SUCCEEDED, "queued": CANCELLED, "pushy": REFUSED}


def test_the_place_of_a_cancelled_job_stays_taken_as_long_as_it_did() -> None:
    """X-092"""
    for hold_ticks, starts_at in ((30, 35), (0, 5), (None, 5 + LEASE_TICKS)):
        running = came(0, "running", Attempt(None, FAILED, hold_ticks=hold_ticks))
        inputs: list[Input] = [running, came(1, "next"), Cancelled(5, "running"), Cancelled(6, "running")]
        for where in ([WorkerCame(0, "w", 1)], registered(0, generic("g", max_slots=1))):
            fates = simulate(traffic(*where, *inputs))
            assert (fates["running"].state, fates["next"].started_tick) == (CANCELLED, starts_at)


def test_cancelled_while_it_waits_a_job_leaves_the_queue() -> None:
    again = came(0, "again", Attempt(2, RETRYING, delay_ticks=50), Attempt(2, SUCCEEDED))
    inputs: list[Input] = [WorkerCame(0, "w", 1), again, came(1, "long", Attempt(9, SUCCEEDED)), came(2, "queued")]
    fates = simulate(traffic(*inputs, Cancelled(5, "queued"), Cancelled(6, "again"), Cancelled(7, "nobody")))
    assert ends(fates) == {"again": CANCELLED, "long": SUCCEEDED, "queued": CANCELLED}
    assert fates["queued"].started_tick is None


def test_a_limit_of_the_other_policy_stops_what_runs_too_long() -> None:
    """OC-CORE-1022a"""
    recorded = traffic(WorkerCame(0, "w", 2), came(0, "short"), came(0, "long", Attempt(90, SUCCEEDED)))
    difference = compared(recorded, watchdog_wall_ms=50)
    assert difference.turned == ((SUCCEEDED, STOPPED, 1),)
    assert simulate(recorded, policy(watchdog_wall_ms=50))["long"].reason == "WATCHDOG_WALL"


def test_recorded_progress_keeps_a_job_alive_as_far_as_it_goes() -> None:
    """OC-CORE-1022b, X-162"""
    reports = Attempt(200, SUCCEEDED, progress=(40, 80, 90))
    recorded = traffic(WorkerCame(0, "w", 1), came(0, "job", reports, reports_progress=True), watchdog_idle_ms=0)
    for idle_ms, state, ended_at in ((39, STOPPED, 39), (41, STOPPED, 131), (111, SUCCEEDED, 200)):
        next_one = came(1, "next")
        again = Traffic(recorded.config, (*recorded.inputs, next_one))
        fates = simulate(again, policy(watchdog_idle_ms=idle_ms))
        assert fates["job"].state == state
        held = 0 if state == SUCCEEDED else LEASE_TICKS
        assert fates["next"].started_tick == ended_at + held


# -- what comes in -----------------------------------------------------------------------------------------------------


def test_replicas_come_and_go_as_they_did() -> None:
    """OC-CORE-1010"""
    away = Ordered(5, "replica_ready", encode({"replica_id": "g", "ready": False}))
    back = Ordered(40, "replica_ready", encode({"replica_id": "g", "ready": True}))
    fates = simulate(traffic(*registered(0, generic("g")), came(1, "one"), away, came(6, "two"), back))
    assert starts(fates) == {"one": 1, "two": 40}


def test_the_open_pool_becomes_a_fleet_with_its_first_replica() -> None:
    """X-007"""
    inputs: list[Input] = [WorkerCame(0, "w", 1), came(0, "one"), came(1, "two"), *registered(5, generic("g"))]
    fates = simulate(traffic(*inputs))
    assert {job_id: (fate.started_tick, fate.replicas) for job_id, fate in fates.items()} == {
        "one": (0, ["w"]),
        "two": (5, ["g"]),
    }


def test_a_worker_that_left_takes_nothing_more() -> None:
    inputs: list[Input] = [
        WorkerCame(0, "a", 1),
        came(0, "one"),
        came(1, "two"),
        WorkerLeft(5, "a"),
        WorkerCame(60, "b", 1),
    ]
    fates = simulate(traffic(*inputs))
    assert fates["two"].replicas == ["b"]
    assert starts(fates) == {"one": 0, "two": 60}


def test_a_submission_that_is_repeated_is_one_job_and_a_refused_one_may_come_again() -> None:
    inputs: list[Input] = [WorkerCame(0, "w", 1), came(0, "a"), came(1, "b"), came(1, "b"), came(2, "c"), came(30, "c")]
    fates = simulate(traffic(*inputs, capacity_total=1))
    assert ends(fates) == {"a": SUCCEEDED, "b": SUCCEEDED, "c": SUCCEEDED}
    assert starts(fates) == {"a": 0, "b": 10, "c": 30}


def test_budgets_are_settled_when_the_job_ends_and_not_by_the_clock() -> None:
    """OC-CORE-1023a"""
    used = encode({"job_id": "one", "tokens": 10, "time_ms": 0, "cost": 0})
    asks: dict[str, Any] = {
        "session_id": "s",
        "requirements": needs(),
        "prompt_tokens": 50,
        "max_new_tokens": 10,
        "kind": "inference",
    }
    inputs = [
        *registered(0, replica("r")),
        Ordered(0, "session_open", encode({"session_id": "s", "tokens": 100, "time_ms": None, "cost": None})),
        came(0, "one", settled=used, **asks),
        came(5, "early", **asks),
        came(10, "late", **asks),
    ]
    assert ends(simulate(traffic(*inputs))) == {"one": SUCCEEDED, "early": REFUSED, "late": SUCCEEDED}


def test_a_job_that_loses_its_place_gets_its_budget_back() -> None:
    """OC-CORE-1023a, CORE-X018"""
    asks: dict[str, Any] = {"session_id": "s", "prompt_tokens": 60}
    inputs: list[Input] = [
        Ordered(0, "session_open", encode({"session_id": "s", "tokens": 100, "time_ms": None, "cost": None})),
        came(0, "first", **asks),
        came(1, "other"),
        came(2, "again", **asks),
    ]
    fates = simulate(traffic(*inputs, capacity_total=1, admission_policy="drop-lru"))
    assert ends(fates) == {"first": EVICTED, "other": EVICTED, "again": WAITING}


def test_the_recorded_side_follows_a_change_of_policy_and_the_other_does_not() -> None:
    changed = Configured(3, configured(capacity_total=2, admission_policy="drop-lru"))
    recorded = traffic(*BUSY[:4], changed, *BUSY[4:], capacity_total=2)
    assert ends(simulate(recorded))["job-1"] == EVICTED
    assert ends(simulate(recorded, policy(capacity_total=2)))["job-1"] == SUCCEEDED


def test_without_a_worker_a_job_waits_and_that_is_counted() -> None:
    difference = compared(traffic(came(0, "job")), capacity_total=5)
    assert (difference.before.states["unfinished"], difference.before.waits) == (1, Waits(0, None, None, None, None))
    assert simulate(traffic(came(0, "job")))["job"].state == WAITING


@pytest.mark.parametrize(
    ("waits", "figures"),
    [
        ([7], Waits(1, 7, 7, 7, 7)),
        ([1, 2], Waits(2, 2, 1, 2, 2)),
        (list(range(1, 101)), Waits(100, 51, 50, 95, 100)),
    ],
)
def test_percentiles_are_waits_that_occurred(waits: list[int], figures: Waits) -> None:
    assert Waits.of(reversed(waits)) == figures


# -- the same again ----------------------------------------------------------------------------------------------------

CHILD = """
import json, sys
from tests.scheduling import test_what_if as t
print(json.dumps(t.crowd().to_map()))
"""


def crowd() -> Comparison:
    """Two pools, all classes, sessions, retries and cancellations; a difference with many faces."""
    fleet = registered(0, *(replica(f"r{n}", pool_id=f"pool-{n % 2}", replica_set_id=f"s{n % 2}") for n in range(4)))
    inputs: list[Input] = [*fleet]
    for tick in range(300):
        attempts = [Attempt(tick % 17 + 3, RETRYING, delay_ticks=tick % 5)] if tick % 7 == 0 else []
        job = came(
            tick,
            f"job-{tick}",
            *attempts,
            Attempt(tick * 7 % 40 + 1, SUCCEEDED),
            priority=tick % 10 + 1,
            kind="inference",
            requirements=needs(),
            session_id=f"session-{tick % 11}",
        )
        inputs.append(job)
        if tick % 13 == 12:
            inputs.append(Cancelled(tick, f"job-{tick - 6}"))
    recorded = traffic(*inputs, capacity=3, capacity_total=12, admission_policy="shed-low-priority")
    return compared(recorded, capacity=3, capacity_total=12, admission_policy="drop-lru", placement_order="pack")


def test_the_same_traffic_gives_the_same_bytes_in_any_process() -> None:
    own = json.dumps(crowd().to_map())
    assert own == json.dumps(crowd().to_map())
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", CHILD]
        child = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert child.stdout.strip() == own
    states = crowd().before.states
    assert all(states[state] for state in (SUCCEEDED, EVICTED, REFUSED, CANCELLED))
