"""The watchdog: who is stuck, when, and in which order; the rule and the heap that keeps it agree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import UINT64_MAX, decode, encode
from detent.errors import InvalidInput, InvariantBroken
from detent.kernel import Finish
from detent.scheduling import Limits, Verdict, Watchdog, Watched, limits_of, watchdog
from tests.kernel.builders import Scene

LIMIT = st.one_of(st.none(), st.integers(1, 12))
JOB = st.integers(0, 7).map(lambda number: f"job-{number}")
OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.one_of(
            st.tuples(st.just("start"), JOB, LIMIT, LIMIT),
            st.tuples(st.just("progress"), JOB, st.integers(0, 3)),
            st.tuples(st.just("end"), JOB),
            st.tuples(st.just("look")),
            st.tuples(st.just("restore")),
        ),
    ),
    min_size=10,
    max_size=60,
)


def verdicts(running: Iterable[Watched], tick: int) -> list[Verdict]:
    """Who is to be aborted at ``tick``, one verdict for each job, by due tick and then job id."""
    found = (watched.deadline() for watched in running)
    return sorted(verdict for verdict in found if verdict is not None and verdict.due_tick <= tick)


def next_due_tick(running: Iterable[Watched]) -> int | None:
    """The tick of the next verdict if there is no progress until then; None when there is none."""
    return min((verdict.due_tick for watched in running if (verdict := watched.deadline()) is not None), default=None)


def due_tick(dog: Watchdog) -> int | None:
    """The tick of the next verdict that the heap has."""
    verdict = dog.next_due()
    return None if verdict is None else verdict.due_tick


@given(OPERATIONS)
def test_the_heap_says_what_the_rule_says(operations: list[tuple[int, tuple[Any, ...]]]) -> None:
    """OC-CORE-1022a, OC-CORE-1022b"""
    dog, running, tick = Watchdog(), dict[str, Watched](), 0
    for passed, operation in operations:
        tick += passed
        match operation:
            case "start", job_id, wall, idle if job_id not in running:
                running[job_id] = Watched(job_id, tick, tick, Limits(wall, idle))
                dog.start(job_id, tick, Limits(wall, idle))
            case "progress", job_id, ago:
                was = running.get(job_id)
                moved = was is not None and tick - ago > was.progress_tick
                if was is not None and moved:
                    running[job_id] = Watched(job_id, was.started_tick, tick - ago, was.limits)
                assert dog.progress(job_id, max(0, tick - ago)) == moved
            case "end", job_id:
                assert dog.end(job_id) == (running.pop(job_id, None) is not None)
            case ("look",):
                expected = verdicts(running.values(), tick)
                assert dog.due(tick) == expected
                for verdict in expected:
                    del running[verdict.job_id]
            case ("restore",):
                snapshot, dog = dog.snapshot(), Watchdog()
                dog.restore(decode(encode(snapshot)))
                assert dog.snapshot() == snapshot
        assert due_tick(dog) == next_due_tick(running.values())
        assert dog.running() == [running[job_id] for job_id in sorted(running)]
        assert len(dog) == len(running)


@pytest.mark.parametrize(
    ("wall", "idle", "tick", "code"), [(50, None, 150, watchdog.WALL), (None, 30, 130, watchdog.IDLE)]
)
def test_a_job_that_never_ends_is_aborted_when_its_limit_is_reached(
    wall: int | None, idle: int | None, tick: int, code: str
) -> None:
    """OC-CORE-1022a, OC-CORE-1022b"""
    dog = Watchdog()
    dog.start("stuck", 100, Limits(wall, idle))
    assert dog.due(tick - 1) == []
    assert dog.due(tick) == [Verdict(tick, "stuck", code)]
    assert dog.due(tick + 1_000) == []


def test_progress_resets_the_idle_time_and_not_the_wall_time() -> None:
    """OC-CORE-1022b"""
    dog = Watchdog()
    dog.start("job", 0, Limits(wall_ticks=100, idle_ticks=30))
    for tick in (20, 45, 70, 90):
        assert dog.due(tick) == []
        assert dog.progress("job", tick)
    assert due_tick(dog) == 100
    assert dog.due(100) == [Verdict(100, "job", "WATCHDOG_WALL")]


def test_without_a_limit_nothing_is_ever_due() -> None:
    """X-162"""
    dog = Watchdog()
    dog.start("long", 0, Limits())
    assert due_tick(dog) is None
    assert dog.due(UINT64_MAX) == []
    assert len(dog) == 1


def test_a_deadline_past_the_last_tick_never_comes() -> None:
    running = [Watched("job", UINT64_MAX - 5, UINT64_MAX - 5, Limits(6, 5))]
    assert verdicts(running, UINT64_MAX) == [Verdict(UINT64_MAX, "job", "WATCHDOG_IDLE")]
    assert next_due_tick([Watched("job", UINT64_MAX, UINT64_MAX, Limits(1, 1))]) is None


def test_verdicts_come_by_due_tick_then_job_id_and_wall_goes_before_idle() -> None:
    running = [
        Watched("d", 0, 0, Limits(20, 20)),
        Watched("c", 0, 5, Limits(None, 15)),
        Watched("b", 0, 0, Limits(90, 19)),
        Watched("a", 0, 0, Limits(20)),
        Watched("e", 0, 0, Limits(21)),
    ]
    expected = [
        Verdict(19, "b", "WATCHDOG_IDLE"),
        Verdict(20, "a", "WATCHDOG_WALL"),
        Verdict(20, "c", "WATCHDOG_IDLE"),
        Verdict(20, "d", "WATCHDOG_WALL"),
    ]
    assert verdicts(running, 20) == verdicts(reversed(running), 20) == expected


def test_the_smallest_wall_limit_binds_and_silence_is_idle_only_for_who_promised_to_speak() -> None:
    """X-162"""
    assert limits_of([None, 5_000, 3_000], 60_000, reports_progress=True) == Limits(3_000, 60_000)
    assert limits_of([None, 5_000], 60_000, reports_progress=False) == Limits(5_000, None)
    assert limits_of([None, None], 60_000, reports_progress=False) == Limits(None, None)
    assert limits_of([], None, reports_progress=True) == Limits(None, None)
    assert limits_of([1_001], 999, reports_progress=True, tick_ms=100) == Limits(11, 10)


@pytest.mark.parametrize(
    ("wall", "idle", "reports"),
    [([0], None, True), ([-1], None, True), ([True], None, True), ([], 0, True), ([], 1, "yes")],
)
def test_a_limit_of_nothing_is_refused(wall: Any, idle: Any, reports: Any) -> None:
    with pytest.raises(InvalidInput):
        limits_of(wall, idle, reports_progress=reports)


@pytest.mark.parametrize("limits", [(0, None), (None, -1), (True, None), (1.5, None), ("1", None)])
def test_limits_are_whole_ticks(limits: Any) -> None:
    with pytest.raises(InvalidInput):
        Limits(*limits)


def test_an_alive_but_stuck_job_fails_for_good_and_a_lost_one_is_tried_again() -> None:
    """X-091: the verdict is handed to the kernel as the end of the attempt."""
    scene = Scene()
    stuck = scene.start("stuck")
    lost = scene.start("lost")
    dog = Watchdog()
    for grant in (stuck, lost):
        dog.start(grant.job_id, 0, Limits(idle_ticks=80 if grant is stuck else 500))
    scene.tick = 60
    scene.heartbeat(stuck)
    (verdict,) = dog.due(80)
    scene.apply(Finish(80, "stuck", stuck.lease_id, ok=False, kind="watchdog", reason_code=verdict.code))
    ended = scene.job("stuck")
    assert (ended.state, ended.reason_code) == ("FAILED", "WATCHDOG_IDLE")
    scene.at(100)
    assert scene.job("lost").state == "RETRYING"


def test_an_attempt_is_watched_once_at_a_time() -> None:
    dog = Watchdog()
    dog.start("job", 0, Limits(10))
    with pytest.raises(InvariantBroken, match="watched already"):
        dog.start("job", 1, Limits(10))
    dog.end("job")
    dog.start("job", 5, Limits(10))
    assert dog.due(14) == []
    assert dog.due(15) == [Verdict(15, "job", "WATCHDOG_WALL")]


def test_entries_of_ended_jobs_are_swept_before_they_outnumber_the_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "SWEPT_MIN", 4)
    dog = Watchdog()
    dog.start("stays", 0, Limits(1_000_000))
    for number in range(1_000):
        dog.start(f"job-{number}", number, Limits(1_000_000))
        dog.end(f"job-{number}")
    assert len(dog._heap) <= 7
    assert due_tick(dog) == 1_000_000


def test_an_attempt_that_starts_again_leaves_no_entries_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "SWEPT_MIN", 4)
    dog = Watchdog()
    for number in range(500):
        dog.end("again")
        dog.start("again", number, Limits(1_000_000))
        dog.start("other", number, Limits(1_000_000))
        dog.end("other")
    assert len(dog._heap) <= 10
    assert due_tick(dog) == 1_000_499


@pytest.mark.parametrize(
    "snapshot",
    [
        None,
        [["job", 0, 0, 1]],
        [["job", 5, 4, 1, None]],
        [["job", -1, 0, 1, None]],
        [["job", 0, 0, 0, None]],
        [["", 0, 0, 1, None]],
        [["job", 0, 0, 1, None], ["job", 0, 0, 1, None]],
    ],
)
def test_a_snapshot_that_no_watchdog_wrote_is_refused_and_changes_nothing(snapshot: object) -> None:
    dog = Watchdog()
    dog.start("old", 0, Limits(3))
    with pytest.raises(InvalidInput):
        dog.restore(snapshot)
    assert dog.snapshot() == [["old", 0, 0, 3, None]]
