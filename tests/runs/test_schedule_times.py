"""From a schedule to moments: aligned, by the calendar, through the odd hours of wall clocks."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from detent.contract.schedule import BadCron, Every, Schedule, parse_cron
from detent.errors import InvalidInput
from detent.runs.schedules.times import (
    MOMENT_MS_MAX,
    TimeZoneUnknown,
    find_zone,
    moment_text,
    next_occurrence,
    occurrences,
    passed,
)
from tests.runs.cron_oracle import brute_force

BERLIN = "Europe/Berlin"
DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    """A moment, in UTC unless the text says otherwise."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * 1000


def cron(line: str, timezone: str = "UTC") -> Schedule:
    return Schedule(parse_cron(line), timezone)


def texts(schedule: Schedule, after: str, count: int) -> list[str]:
    return [moment_text(moment) for moment in occurrences(schedule, ms(after), MOMENT_MS_MAX, count)]


def test_a_period_is_aligned_to_1970_and_not_to_the_time_of_the_question() -> None:
    quarter = Schedule(Every(900_000))
    assert texts(quarter, "2024-05-01T10:07:31", 2) == ["2024-05-01T10:15:00Z", "2024-05-01T10:30:00Z"]
    assert texts(quarter, "2024-05-01T10:15:00", 1) == ["2024-05-01T10:30:00Z"]
    shifted = Schedule(Every(900_000, 120_000))
    assert texts(shifted, "2024-05-01T10:01:00", 2) == ["2024-05-01T10:02:00Z", "2024-05-01T10:17:00Z"]
    assert (
        moment_text(next_occurrence(Schedule(Every(7_500)), ms("2024-05-01T10:00:00")) or 0)
        == "2024-05-01T10:00:07.500Z"
    )


@given(st.integers(1_000, 40 * DAY_MS), st.integers(0, 10**6), st.integers(0, 2 * 10**12), st.integers(0, 10**9))
def test_periods_follow_one_another_and_are_counted_right(
    every_ms: int, part: int, after_ms: int, span_ms: int
) -> None:
    schedule = Schedule(Every(every_ms, part % every_ms))
    first = next_occurrence(schedule, after_ms)
    assert first is not None
    assert (first - part % every_ms) % every_ms == 0
    assert after_ms < first <= after_ms + every_ms
    listed = occurrences(schedule, after_ms, after_ms + span_ms, 10**7)
    seen = passed(schedule, after_ms, after_ms + span_ms)
    assert (seen.count, seen.last_ms) == (len(listed), listed[-1]) if seen else listed == []


def test_working_days_at_six_in_berlin() -> None:
    schedule = cron("0 6 * * 1-5", BERLIN)
    assert texts(schedule, "2024-03-28T12:00:00", 3) == [
        "2024-03-29T05:00:00Z",
        "2024-04-01T04:00:00Z",  # Summer time began on Sunday.
        "2024-04-02T04:00:00Z",
    ]


def test_a_time_that_the_clock_jumps_over_happens_at_the_jump() -> None:
    schedule = cron("30 2 * * *", BERLIN)
    assert texts(schedule, "2024-03-30T00:00:00", 3) == [
        "2024-03-30T01:30:00Z",
        "2024-03-31T01:00:00Z",
        "2024-04-01T00:30:00Z",
    ]


def test_several_times_of_one_jump_are_one_occurrence() -> None:
    schedule = cron("*/15 * * * *", BERLIN)
    assert texts(schedule, "2024-03-31T00:30:00", 3) == [
        "2024-03-31T00:45:00Z",
        "2024-03-31T01:00:00Z",
        "2024-03-31T01:15:00Z",
    ]


def test_a_time_that_the_clock_shows_twice_happens_once_at_the_first() -> None:
    schedule = cron("30 2 * * *", BERLIN)
    assert texts(schedule, "2024-10-27T00:00:00", 2) == ["2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"]
    assert texts(schedule, "2024-10-27T00:30:00", 1) == ["2024-10-28T01:30:00Z"]


def test_a_day_that_a_country_left_out_happens_at_its_end() -> None:
    """Samoa went from the 29th to the 31st of December 2011"""
    schedule = cron("0 12 * * *", "Pacific/Apia")
    assert texts(schedule, "2011-12-29T12:00:00", 3) == [
        "2011-12-29T22:00:00Z",
        "2011-12-30T10:00:00Z",  # The jump, in place of the 30th.
        "2011-12-30T22:00:00Z",
    ]


def test_a_jump_at_midnight_moves_midnight() -> None:
    schedule = cron("0 0 * * *", "America/Sao_Paulo")
    assert texts(schedule, "2018-11-03T12:00:00", 2) == ["2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"]


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("0 0 29 2 *", "2024-03-01T00:00:00", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        ("0 0 29 2 *", "2096-03-01T00:00:00", ["2104-02-29T00:00:00Z"]),
        ("0 0 29 2 */6", "2024-03-01T00:00:00", ["2032-02-29T00:00:00Z", "2048-02-29T00:00:00Z"]),
        ("0 0 31 * *", "2024-01-31T00:00:00", ["2024-03-31T00:00:00Z", "2024-05-31T00:00:00Z"]),
        ("59 23 31 dec *", "2024-01-01T00:00:00", ["2024-12-31T23:59:00Z", "2025-12-31T23:59:00Z"]),
        ("0 0 13 * fri", "2024-09-01T00:00:00", ["2024-09-06T00:00:00Z", "2024-09-13T00:00:00Z"]),
        ("0 0 1 * 0", "2024-08-28T00:00:00", ["2024-09-01T00:00:00Z", "2024-09-08T00:00:00Z"]),
        ("@monthly", "2024-12-01T00:00:00", ["2025-01-01T00:00:00Z"]),
    ],
)
def test_days_of_the_calendar(line: str, after: str, expected: list[str]) -> None:
    assert texts(cron(line), after, len(expected)) == expected


def _parts(least: int, most: int, names: str = "") -> st.SearchStrategy[str]:
    words = names.split()
    numbers = st.integers(least, most)
    written = numbers.map(str) | (st.sampled_from(words) if words else numbers.map(str))
    ranges = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.tuples(st.integers(least, least + 1), st.integers(1, (most - least) // 2)).map(
        lambda pair: f"{pair[0]}-{most}/{pair[1]}"
    )
    stars = st.just("*") | st.integers(1, (most - least) // 2).map(lambda step: f"*/{step}")
    return stars | st.lists(written | ranges | steps, min_size=1, max_size=3).map(",".join)


lines = st.builds(
    lambda *parts: " ".join(parts),
    _parts(0, 59),
    _parts(0, 23),
    st.just("*") | _parts(1, 31),
    st.just("*") | _parts(1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"),
    st.just("*") | _parts(0, 7, "sun mon tue wed thu fri sat"),
)
zones = st.sampled_from(
    [
        *("UTC", BERLIN, "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Africa/Casablanca"),
        *("Asia/Kathmandu", "Pacific/Apia", "America/St_Johns", "Africa/Cairo", "Antarctica/Troll", "Asia/Gaza"),
    ]
)
# Days with a jump, and any other: most draws should meet something odd.
odd_days = st.sampled_from(
    "2024-03-31 2024-10-27 2024-03-10 2024-11-03 2018-11-04 2018-02-18 2024-04-07 2024-10-06 2011-12-30 2024-02-29".split()
).map(ms)
days = odd_days | st.integers(ms("1990-01-01"), ms("2037-01-01")).map(lambda moment: moment // DAY_MS * DAY_MS)


@given(lines, zones, days, st.integers(-1_440, 1_440))
@example("*/7 * * * *", "Australia/Lord_Howe", ms("2024-04-07"), -1_000)
@example("15,45 0-3 * * *", "Pacific/Apia", ms("2011-12-30"), -1_440)
@example("* * * * *", "America/Sao_Paulo", ms("2018-02-18"), -600)
def test_every_minute_is_what_a_look_at_the_wall_says(line: str, zone: str, day_ms: int, minutes: int) -> None:
    """Against a reading of the clock minute by minute, which shares no code with ours"""
    try:
        schedule = cron(line, zone)
    except BadCron as exc:
        assume("never fires" not in str(exc))
        raise
    after_ms, until_ms = day_ms + minutes * 60_000, day_ms + 2 * DAY_MS
    expected = brute_force(line, zone, after_ms, until_ms)
    assert occurrences(schedule, after_ms, until_ms, 10_000) == expected
    seen = passed(schedule, after_ms, until_ms)
    assert (seen.count, seen.last_ms) == (len(expected), expected[-1]) if seen else expected == []
    if expected:
        assert next_occurrence(schedule, after_ms) == expected[0]


@given(lines, zones, days, st.integers(0, DAY_MS))
def test_it_does_not_matter_from_where_one_looks(line: str, zone: str, day_ms: int, part_ms: int) -> None:
    try:
        schedule = cron(line, zone)
    except BadCron:
        assume(False)
        raise
    whole = occurrences(schedule, day_ms, day_ms + 3 * DAY_MS, 10_000)
    rest = occurrences(schedule, day_ms + part_ms, day_ms + 3 * DAY_MS, 10_000)
    assert rest == [moment for moment in whole if moment > day_ms + part_ms]


def test_a_limit_is_kept() -> None:
    assert len(occurrences(cron("* * * * *"), 0, MOMENT_MS_MAX, 5)) == 5
    assert occurrences(cron("* * * * *"), 0, MOMENT_MS_MAX, 0) == []


def test_years_are_counted_without_being_listed() -> None:
    after, until = ms("2020-01-01T00:00:00"), ms("2030-01-01T00:00:00")
    seen = passed(cron("* * * * *"), after, until)
    assert seen is not None
    assert seen.count == (until - after) // 60_000
    assert seen.last_ms == until


def test_the_calendar_ends() -> None:
    assert next_occurrence(cron("0 0 1 1 *"), MOMENT_MS_MAX) is None
    assert next_occurrence(Schedule(Every(1_000)), MOMENT_MS_MAX) is None
    for moment in (-1, MOMENT_MS_MAX + 1):
        with pytest.raises(InvalidInput, match="not a time between 1970 and 9999"):
            next_occurrence(cron("0 0 1 1 *"), moment)


def test_an_unknown_zone_is_named_with_the_nearest_that_is_known() -> None:
    with pytest.raises(TimeZoneUnknown, match="no time zone 'Europe/Berln'") as caught:
        next_occurrence(cron("@daily", "Europe/Berln"), 0)
    assert caught.value.hint == "did you mean 'Europe/Berlin'?"
    with pytest.raises(TimeZoneUnknown):
        find_zone("Europe")


def test_a_machine_without_time_zones_says_so_and_still_knows_utc() -> None:
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        if zoneinfo.available_timezones():
            pytest.skip("the tzdata package is installed")
        with pytest.raises(TimeZoneUnknown, match="has no time zone database") as caught:
            next_occurrence(cron("@daily", BERLIN), 0)
        assert "pip install tzdata" in (caught.value.hint or "")
        assert next_occurrence(cron("@daily"), 0) == DAY_MS
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()


def test_a_moment_is_written_in_utc_or_with_its_offset() -> None:
    assert moment_text(1_700_000_000_000) == "2023-11-14T22:13:20Z"
    assert moment_text(1_700_000_000_250) == "2023-11-14T22:13:20.250Z"
    assert moment_text(1_700_000_000_000, BERLIN) == "2023-11-14T23:13:20+01:00"
