"""What to do now on a schedule: what is due, what was missed and why, and what the ledger is told of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.contract.schedule import QUEUE, SKIP, Cron, Every, Schedule, parse_cron
from detent.errors import InvariantBroken
from detent.runs.schedules.due import (
    LATE_MS_MAX,
    LISTED_MAX,
    SLEEP_MS_MAX,
    WAITING_MAX,
    Action,
    Due,
    Missed,
    Sleep,
    Watch,
    last_started_ms,
    occurrence_id,
    scheduled_for_ms,
)
from detent.runs.schedules.times import TimeZoneUnknown, moment_text, occurrences
from detent.testing import FakeClock

HOUR_MS = 3_600_000
START_MS = 1_700_000_400_000 // HOUR_MS * HOUR_MS
HOURLY = Schedule(Every(HOUR_MS))
QUEUED = Schedule(Every(HOUR_MS), overlap=QUEUE)


def watch(schedule: Schedule = HOURLY, *, now_ms: int = START_MS, last_ms: int | None = None) -> Watch:
    return Watch(schedule, FakeClock(now_ms), last_ms)


def missed(first: int, last: int, reason: str) -> Missed:
    """The hours from one to another, counted from the start."""
    ticks = tuple(START_MS + hour * HOUR_MS for hour in range(first, last + 1))
    return Missed(len(ticks), ticks[0], ticks[-1], reason, ticks[:LISTED_MAX])


def at(hours: float) -> int:
    return START_MS + int(hours * HOUR_MS)


def run_one(it: Watch, hour: int) -> dict[str, Any]:
    """Start what is due at an hour; gives what its inputs say."""
    assert it.next_action(at(hour)) == Due(at(hour), 0)
    said = it.to_inputs(at(hour))
    it.started(at(hour))
    return said


def test_it_sleeps_until_the_next_occurrence_but_looks_at_the_clock_now_and_then() -> None:
    it = watch()
    assert it.next_action(START_MS) == Sleep(SLEEP_MS_MAX, at(1))
    assert it.next_action(at(1) - 5) == Sleep(5, at(1))
    assert it.next_action(at(1)) == Due(at(1), 0)
    assert SLEEP_MS_MAX < LATE_MS_MAX


def test_what_is_due_stays_due_until_it_has_started() -> None:
    it = watch()
    assert it.next_action(at(1) + 7) == Due(at(1), 7)
    assert it.next_action(at(1) + 9) == Due(at(1), 9)
    it.started(at(1))
    assert it.running == at(1)
    assert it.next_action(at(1) + 10) == Sleep(SLEEP_MS_MAX, at(2))


def test_a_run_names_its_occurrence_and_nothing_is_missed_when_nothing_was() -> None:
    said = run_one(watch(), 1)
    assert said == {"scheduled_for": moment_text(at(1)), "schedule": {"every": "1h"}}
    assert scheduled_for_ms(said) == at(1)


@pytest.mark.parametrize(("late_ms", "due"), [(LATE_MS_MAX, True), (LATE_MS_MAX + 1, False)])
def test_an_occurrence_noticed_too_late_is_missed(late_ms: int, due: bool) -> None:
    action = watch().next_action(at(1) + late_ms)
    assert action == (Due(at(1), late_ms) if due else missed(1, 1, "late"))


def test_a_machine_that_slept_tells_what_it_missed_and_runs_the_present_one() -> None:
    it = watch()
    assert it.next_action(at(4) + 3) == missed(1, 3, "late")
    assert it.next_action(at(4) + 3) == Due(at(4), 3)
    assert it.to_inputs(at(4))["missed"] == {
        "count": 3,
        "first": moment_text(at(1)),
        "last": moment_text(at(3)),
        "reasons": {"late": 3},
        "occurrences": [{"at": moment_text(at(hour)), "reason": "late"} for hour in (1, 2, 3)],
    }


def test_a_restart_goes_on_from_the_last_run_and_counts_what_passed_as_down() -> None:
    it = watch(now_ms=at(5.5), last_ms=at(2))
    assert it.next_action(at(5.5)) == missed(3, 5, "down")
    assert it.next_action(at(5.5)) == Sleep(SLEEP_MS_MAX, at(6))
    assert run_one(it, 6)["missed"]["reasons"] == {"down": 3}


def test_a_quick_restart_misses_nothing() -> None:
    assert watch(now_ms=at(3) + 900, last_ms=at(2)).next_action(at(3) + 900) == Due(at(3), 900)


def test_a_run_that_is_taken_up_again_counts_as_running() -> None:
    it = Watch(HOURLY, FakeClock(at(3.5)), at(2), running_ms=at(2))
    assert it.next_action(at(3.5)) == missed(3, 3, "overlap")
    assert it.next_action(at(4)) == missed(4, 4, "overlap")
    assert it.ended(at(2), at(4) + 1) is None
    assert run_one(it, 5)["missed"]["count"] == 2


def test_a_first_start_has_missed_nothing() -> None:
    assert watch(now_ms=at(2)).next_action(at(2)) == Sleep(SLEEP_MS_MAX, at(3))


def test_an_occurrence_during_a_run_is_skipped_and_recorded() -> None:
    it = watch()
    run_one(it, 1)
    assert it.next_action(at(2)) == missed(2, 2, "overlap")
    assert it.next_action(at(3)) == missed(3, 3, "overlap")
    assert it.ended(at(1), at(3.5)) is None
    assert run_one(it, 4)["missed"]["reasons"] == {"overlap": 2}


def test_occurrences_until_a_run_ended_overlapped_even_if_the_schedule_was_not_checked_meanwhile() -> None:
    it = watch()
    run_one(it, 1)
    assert it.ended(at(1), at(3) + 1) == missed(2, 3, "overlap")
    assert it.next_action(at(3) + 1) == Sleep(SLEEP_MS_MAX, at(4))


def test_occurrences_wait_in_order_where_they_may() -> None:
    it = watch(QUEUED)
    run_one(it, 1)
    assert it.next_action(at(3)) == Sleep(SLEEP_MS_MAX, at(4))
    assert it.waiting == (at(2), at(3))
    assert it.ended(at(1), at(3.5)) is None
    for hour in (2, 3):
        assert it.next_action(at(3.5)) == Due(at(hour), at(3.5) - at(hour))
        assert "missed" not in it.to_inputs(at(hour))
        it.started(at(hour))
        it.ended(at(hour), at(3.5))


def test_a_queue_is_bounded_and_what_does_not_fit_is_named_by_the_run_after_it() -> None:
    it = watch(QUEUED)
    run_one(it, 1)
    beyond = WAITING_MAX + 2
    assert it.next_action(at(beyond + 1)) == missed(beyond, beyond + 1, "queue_full")
    it.ended(at(1), at(beyond + 1))
    assert it.next_action(at(beyond + 1)) == Due(at(2), at(beyond + 1) - at(2))
    assert "missed" not in it.to_inputs(at(2))
    it.started(at(2))
    it.next_action(at(beyond + 2))  # Fits again: one has left.
    assert it.next_action(at(beyond + 3)) == missed(beyond + 3, beyond + 3, "queue_full")
    last, said = at(2), dict[str, Any]()
    while it.waiting:
        it.ended(last, at(beyond + 3))
        last = it.waiting[0]
        said = it.to_inputs(last)
        it.started(last)
        assert ("missed" in said) == (last == at(beyond + 2))
    assert said["missed"]["count"] == 2
    it.ended(last, at(beyond + 3))
    assert it.next_action(at(beyond + 4)) == Due(at(beyond + 4), 0)
    assert it.to_inputs(at(beyond + 4))["missed"]["occurrences"] == [
        {"at": moment_text(at(beyond + 3)), "reason": "queue_full"}
    ]


def test_a_run_that_was_refused_is_an_occurrence_that_was_missed() -> None:
    it = watch()
    it.next_action(at(1))
    it.refused(at(1))
    assert it.next_action(at(1)) == Sleep(SLEEP_MS_MAX, at(2))
    assert run_one(it, 2)["missed"]["occurrences"] == [{"at": moment_text(at(1)), "reason": "refused"}]


def test_a_refusal_before_others_that_wait_is_named_by_the_next_of_them() -> None:
    it = watch(QUEUED)
    run_one(it, 1)
    it.next_action(at(WAITING_MAX + 2))  # One more than may wait.
    it.ended(at(1), at(WAITING_MAX + 2))
    it.refused(at(2))
    assert it.to_inputs(at(3))["missed"]["reasons"] == {"refused": 1}
    it.started(at(3))
    assert it.ended(at(3), at(WAITING_MAX + 2)) is None


def test_a_clock_that_is_set_back_starts_nothing_twice() -> None:
    it = watch()
    run_one(it, 1)
    it.ended(at(1), at(1) + 1)
    assert it.next_action(at(0.5)) == Sleep(SLEEP_MS_MAX, at(2))
    assert it.next_action(at(1)) == Sleep(SLEEP_MS_MAX, at(2))


def test_what_was_missed_is_small_however_much_it_was() -> None:
    it = Watch(Schedule(Every(1_000)), FakeClock(START_MS + 10**11), last_ms=START_MS)
    action = it.next_action(START_MS + 10**11)
    assert isinstance(action, Missed)
    assert (action.count, len(action.ticks)) == (10**8 - 1, LISTED_MAX)
    assert it.next_action(START_MS + 10**11) == Due(START_MS + 10**11, 0)
    said = it.to_inputs(START_MS + 10**11)
    assert (said["missed"]["count"], len(said["missed"]["occurrences"])) == (10**8 - 1, LISTED_MAX)
    assert len(json.dumps(said)) < 2_000


def test_what_is_missed_one_by_one_is_counted_on_beyond_what_is_listed() -> None:
    it = watch()
    run_one(it, 1)
    for hour in range(2, LISTED_MAX + 12):
        assert it.next_action(at(hour)) == missed(hour, hour, "overlap")
    it.ended(at(1), at(LISTED_MAX + 11.5))
    said = run_one(it, LISTED_MAX + 12)["missed"]
    assert (said["count"], len(said["occurrences"])) == (LISTED_MAX + 10, LISTED_MAX)


def test_a_zone_that_is_not_known_fails_at_once() -> None:
    with pytest.raises(TimeZoneUnknown):
        watch(Schedule(parse_cron("@daily"), "Europe/Atlantis"))


def test_reports_that_fit_nothing_are_our_own_fault() -> None:
    it = watch()
    for report in (it.started, it.refused):
        with pytest.raises(InvariantBroken):
            report(at(1))
    with pytest.raises(InvariantBroken):
        it.ended(at(1), at(1))
    it.next_action(at(1))
    with pytest.raises(InvariantBroken):
        it.started(at(2))


@pytest.mark.parametrize("text", [None, 5, "soon", "2024-01-01", "2024-01-01T00:00:00"])
def test_inputs_of_a_run_by_hand_name_no_occurrence(text: object) -> None:
    assert scheduled_for_ms({"scheduled_for": text}) is None
    assert scheduled_for_ms({}) is None


def test_a_watch_goes_on_from_the_last_occurrence_on_the_ledger() -> None:
    runs = [{"scheduled_for": moment_text(at(hour))} for hour in (2, 5, 3)]
    assert last_started_ms([{}, *runs]) == at(5)
    assert last_started_ms([{}]) is None
    assert scheduled_for_ms({"scheduled_for": moment_text(at(1) + 250)}) == at(1) + 250


def test_an_occurrence_has_one_operation_id() -> None:
    assert occurrence_id("sales", at(1)) == occurrence_id("sales", at(1))
    assert len({occurrence_id(name, at(hour)) for name in ("sales", "stock") for hour in (1, 2)}) == 4
    assert str(occurrence_id("sales", 1_700_000_000_000)) == "75a2d410-d99e-8a5c-8dce-75e35e83434f"


RULES: list[tuple[Every | Cron, str]] = [
    (Every(60_000), "UTC"),
    (Every(HOUR_MS, 7), "UTC"),
    (parse_cron("*/20 * * * *"), "Europe/Berlin"),
    (parse_cron("30 2 * * *"), "America/New_York"),
]
SCHEDULES = st.sampled_from([Schedule(rule, zone, overlap) for rule, zone in RULES for overlap in (SKIP, QUEUE)])
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["look", "look", "end", "refuse", "restart"]),
        st.integers(0, 200_000) | st.integers(0, 9_000_000) | st.integers(-100_000, 100_000),
    ),
    max_size=60,
)


@given(SCHEDULES, EVENTS)
def test_every_occurrence_is_either_run_or_named_as_missed_by_the_next_run(
    schedule: Schedule, events: list[tuple[str, int]]
) -> None:
    """Through sleeps, overlaps, refusals, restarts and a clock that is set back: the ledger has all of them, once"""
    now, runs = START_MS, list[dict[str, Any]]()
    it = watch(schedule)
    for event, pause_ms in events:
        now += pause_ms
        if event == "restart" and runs:
            it = watch(schedule, now_ms=now, last_ms=last_started_ms(runs))
        if event == "end" and it.running is not None:
            it.ended(it.running, now)
        action: Action = it.next_action(now)
        while isinstance(action, Missed):
            action = it.next_action(now)
        if isinstance(action, Due) and event == "refuse":
            it.refused(action.tick_ms)
        elif isinstance(action, Due):
            runs.append(it.to_inputs(action.tick_ms))
            it.started(action.tick_ms)
        assert len(it.waiting) <= WAITING_MAX
    ticks = [scheduled_for_ms(run) or 0 for run in runs]
    assert ticks == sorted(set(ticks))
    for before, tick, run in zip([START_MS, *ticks], ticks, runs, strict=False):
        between = occurrences(schedule, before, tick - 1, 10**6)
        said = run.get("missed", {"count": 0, "occurrences": []})
        assert said["count"] == len(between)
        assert [entry["at"] for entry in said["occurrences"]] == [moment_text(each) for each in between[:LISTED_MAX]]
        if between:
            assert (said["first"], said["last"]) == (moment_text(between[0]), moment_text(between[-1]))
            assert sum(said["reasons"].values()) == len(between)
