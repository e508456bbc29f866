"""Numbers, sizes and lengths of time as people read them."""

from __future__ import annotations

import pytest

from detent.words.quantities import age_text, count_text, duration_text, short_duration, size_text, time_text


def test_sizes_and_counts_read_well() -> None:
    assert [size_text(size) for size in (0, 1023, 1024, 40_000, 5 * 1024**3)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "39.1 KiB",
        "5.0 GiB",
    ]
    assert [count_text(count, "batch", "batches") for count in (0, 1, 1_234)] == [
        "0 batches",
        "1 batch",
        "1,234 batches",
    ]
    assert [count_text(count, "job") for count in (0, 1, 2)] == ["0 jobs", "1 job", "2 jobs"]


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0s"),
        (59_949, "59.9s"),
        (59_950, "1m00s"),
        (723_000, "12m03s"),
        (11_220_000, "3h07m"),
        (1_047_600_000, "12d03h"),
    ],
)
def test_durations_in_columns_are_short(ms: int, text: str) -> None:
    assert short_duration(ms) == text
    assert len(text) <= 6


def test_durations_read_as_people_say_them() -> None:
    said = {0: "0 ms", 999: "999 ms", 1_000: "1.0 s", 59_940: "59.9 s", 60_000: "1 min", 61_000: "1 min 1 s"}
    said |= {3_600_000: "1 h", 5_400_000: "1 h 30 min", 48 * 3_600_000: "2 d", 49 * 3_600_000: "2 d 1 h"}
    assert {ms: duration_text(ms) for ms in said} == said


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0 s"), (1, "1 s"), (1_000, "1 s"), (1_001, "2 s"), (59_001, "1 min"), (61_500, "1 min 2 s")],
)
def test_a_time_to_come_is_said_in_whole_seconds(ms: int, text: str) -> None:
    assert duration_text(ms, whole_seconds=True) == text


@pytest.mark.parametrize(
    ("ms", "text"), [(-5, "0s"), (59_999, "59s"), (60_000, "1m"), (7_200_000, "2h"), (10**10, "115d")]
)
def test_an_age_is_said_in_its_largest_unit(ms: int, text: str) -> None:
    assert age_text(ms) == text


def test_a_moment_is_said_without_the_letters_of_its_form() -> None:
    assert time_text("2026-01-02T03:04:05.678Z") == "2026-01-02 03:04:05.678"
