"""Durations: what people write, exactly in milliseconds, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.contract.words import DURATION_MS_MAX, BadDuration, format_duration, parse_duration


@pytest.mark.parametrize(
    ("written", "duration_ms"),
    [
        ("100ms", 100),
        ("500ms", 500),
        ("90s", 90_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("1.5h", 5_400_000),
        ("0.1001s", 101),
        (1, 1000),
        (0.1, 100),
        (0.1001, 101),
        (1e3, 1_000_000),
    ],
)
def test_a_duration_is_exact_in_milliseconds(written: object, duration_ms: int) -> None:
    assert parse_duration(written) == duration_ms


@pytest.mark.parametrize(
    "written",
    [
        "",
        "5",
        "5 m",
        "m",
        "30m1h",
        "1h1h",
        "-5m",
        "1e3s",
        "٣s",
        "5M",
        None,
        True,
        [],
        {},
        "1" * 18 + "s",
        "1.s",
        ".5s",
        float("inf"),
    ],
)
def test_what_is_no_duration_is_told_how_to_write_one(written: object) -> None:
    with pytest.raises(BadDuration, match="cannot be") as caught:
        parse_duration(written)
    assert "1h30m" in caught.value.hint


@pytest.mark.parametrize("written", [0, -1, 0.0999, "0s", "99ms", "99.9ms", -1e300])
def test_less_than_a_tenth_of_a_second_is_refused(written: object) -> None:
    """WF-075"""
    with pytest.raises(BadDuration, match="must be at least 100 ms"):
        parse_duration(written)


@pytest.mark.parametrize("written", [DURATION_MS_MAX // 1000 + 1, 1e300, 10**600, "99999999999999999d"])
def test_a_huge_duration_is_refused(written: object) -> None:
    with pytest.raises(BadDuration, match="longer than"):
        parse_duration(written)


@given(st.integers(100, DURATION_MS_MAX))
def test_a_formatted_duration_reads_back_the_same(duration_ms: int) -> None:
    assert parse_duration(format_duration(duration_ms)) == duration_ms
