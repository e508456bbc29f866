from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detent.canon import UINT64_MAX, add_uint64, check_uint64, ms_to_ticks, sub_uint64, tick_to_iso
from detent.errors import InvalidInput, InvariantBroken

UINT64 = st.integers(0, UINT64_MAX)


@pytest.mark.parametrize("value", [0, 1, 2**64 - 1])
def test_integers_of_64_bits_pass(value: int) -> None:
    """PIPE-018"""
    assert check_uint64("tick", value) == value


@pytest.mark.parametrize(
    "value", [-1, 2**64, 0.0, 1.5, True, False, None, "1", pytest.param(10**5000, id="huge"), float("nan")]
)
def test_everything_else_is_refused_by_name(value: Any) -> None:
    """PIPE-018"""
    with pytest.raises(InvalidInput, match=r"^tick must be an integer from 0") as caught:
        check_uint64("tick", value)
    assert (caught.value.code, caught.value.details) == ("INVALID_PARAMS", {"argument": "tick"})


@given(UINT64, UINT64)
@example(UINT64_MAX, 1)
@example(0, 1)
def test_arithmetic_is_exact_or_aborts(left: int, right: int) -> None:
    """PIPE-025"""
    for operation, result in ((add_uint64, left + right), (sub_uint64, left - right)):
        if 0 <= result <= UINT64_MAX:
            assert operation(left, right) == result
        else:
            with pytest.raises(InvariantBroken, match="does not fit in 64 bits"):
                operation(left, right)


def test_a_float_does_not_slip_into_a_counter() -> None:
    """PIPE-018, PIPE-025"""
    with pytest.raises(InvariantBroken):
        add_uint64(1, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ms", "tick_ms", "ticks"), [(0, 1, 0), (1, 1, 1), (1, 10, 1), (10, 10, 1), (11, 10, 2), (2**64 - 1, 2, 2**63)]
)
def test_milliseconds_become_ticks_rounded_up(ms: int, tick_ms: int, ticks: int) -> None:
    """X-009"""
    assert ms_to_ticks(ms, tick_ms) == ticks


@pytest.mark.parametrize(("ms", "tick_ms"), [(1, 0), (-1, 1), (1.0, 1), (1, True), (2**64, 1)])
def test_impossible_durations_are_refused(ms: Any, tick_ms: Any) -> None:
    """X-009, PIPE-018"""
    with pytest.raises(InvalidInput):
        ms_to_ticks(ms, tick_ms)


@pytest.mark.parametrize(
    ("tick", "tick_ms", "base", "text"),
    [
        (0, 1, 0, "1970-01-01T00:00:00.000Z"),
        (1, 1, 0, "1970-01-01T00:00:00.001Z"),
        (86_399_999, 1, 0, "1970-01-01T23:59:59.999Z"),
        (3, 1000, 1_771_372_800_000, "2026-02-18T00:00:03.000Z"),
        (0, 1, 951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (0, 1, 4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (0, 1, 253_402_300_800_000, "+10000-01-01T00:00:00.000Z"),
        (2**64 - 1, 1, 0, "+584556019-04-03T14:25:51.615Z"),
    ],
)
def test_a_tick_names_a_moment(tick: int, tick_ms: int, base: int, text: str) -> None:
    """X-009: epoch_base_ms + tick * tick_ms"""
    assert tick_to_iso(tick, tick_ms, base) == text


@given(st.integers(0, 253_402_300_799_999))
def test_the_calendar_agrees_with_the_standard_library(ms: int) -> None:
    """X-009"""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    assert tick_to_iso(ms, 1, 0) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize("arguments", [(1.0, 1, 0), (1, True, 0), (1, 1, -1), (2**64, 1, 0)])
def test_a_moment_is_computed_from_integers_only(arguments: Any) -> None:
    """X-009, PIPE-018"""
    with pytest.raises(InvalidInput):
        tick_to_iso(*arguments)
