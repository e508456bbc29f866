"""Exact integers for time and counts, and the one tolerance for measured numbers.

Ticks and counters: integers of 64 bits that never wrap, never clamp and never touch a float or a clock (X-009).

A tick is ``tick_ms`` milliseconds of logical time. Arithmetic whose result does not fit is an abort: a counter that
silently started again at zero would make two different transitions look like one.

Comparing measured numbers: one tolerance for single checks, buckets for rankings.

``approx_equal`` is what people expect of a tolerance, but it is not transitive, so nothing can be sorted by it. A ranking
therefore compares ``round_half_even(x / EPS_EQ)`` as exact integers: values in one bucket tie, and the price is that two
close values on both sides of an edge do not (X-053).

What is not finite ranks last when reports are compared, and aborts when it reaches a check (X-054).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken

UINT64_MAX: Final = 2**64 - 1

_MS_PER_DAY: Final = 86_400_000
_DAYS_PER_ERA: Final = 146_097
"""400 Gregorian years, after which the calendar repeats."""
_DAYS_BEFORE_1970: Final = 719_468
"""From 0000-03-01 to 1970-01-01. Years counted from March end with the leap day, which keeps the formula short."""


def check_uint64(name: str, value: int) -> int:
    """Return ``value`` if it is an integer from 0 to 2**64-1; booleans and floats are refused, however round."""
    if type(value) is not int or not 0 <= value <= UINT64_MAX:
        raise InvalidInput(
            f"{name} must be an integer from 0 to 2**64-1, got {show(value)}", details={"argument": name}
        )
    return value


def add_uint64(left: int, right: int) -> int:
    """The sum, or an abort if it does not fit in 64 bits."""
    return _fitting(left + right, left, "+", right)


def sub_uint64(left: int, right: int) -> int:
    """The difference, or an abort if it is negative."""
    return _fitting(left - right, left, "-", right)


def ms_to_ticks(ms: int, tick_ms: int) -> int:
    """The ticks that cover ``ms`` milliseconds: rounded up, so that nothing ends early."""
    check_uint64("ms", ms)
    if check_uint64("tick_ms", tick_ms) == 0:
        raise InvalidInput("tick_ms must be at least 1", details={"argument": "tick_ms"})
    return -(-ms // tick_ms)


def tick_to_iso(tick: int, tick_ms: int, epoch_base_ms: int) -> str:
    """The moment a tick stands for, as ISO 8601 in UTC with milliseconds.

    Years beyond 9999 are written in the expanded form, ``+10000-01-01T00:00:00.000Z``.
    """
    check_uint64("tick", tick)
    check_uint64("tick_ms", tick_ms)
    days, ms = divmod(check_uint64("epoch_base_ms", epoch_base_ms) + tick * tick_ms, _MS_PER_DAY)
    seconds, ms = divmod(ms, 1000)
    return f"{_date_text(days)}T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{ms:03d}Z"


def _fitting(result: int, left: int, sign: str, right: int) -> int:
    if type(result) is not int or not 0 <= result <= UINT64_MAX:
        raise InvariantBroken(f"{left} {sign} {right} does not fit in 64 bits")
    return result


@lru_cache(64)  # A page of jobs has a few days, and two moments a job.
def _date_text(days: int) -> str:
    year, month, day = _date(days)
    year_text = f"{year:04d}" if year <= 9999 else f"+{year}"
    return f"{year_text}-{month:02d}-{day:02d}"


def _date(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970-01-01 (the standard library's calendar ends in 9999)."""
    era, day_of_era = divmod(days + _DAYS_BEFORE_1970, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return era * 400 + year_of_era + (month <= 2), month, day


EPS_EQ: Final = 1e-10
"""Two numbers this close are the same for a single check; also the width of a bucket."""
EPS_DENOM: Final = 1e-12
"""A denominator smaller than this counts as zero."""
SENSE: Final = "MINIMIZE"
OBJECTIVE_TYPE: Final = "Scalar"

Number: TypeAlias = int | float
RankKey: TypeAlias = tuple[tuple[int, int], ...]

_EPS_EQ_EXACT: Final = Fraction(EPS_EQ)


def require_binary64(radix: int, mantissa_bits: int, exponent_max: int, rounds: int) -> None:
    """Abort unless floats, as ``sys.float_info`` describes them, are IEEE 754 binary64 rounded to nearest."""
    if (radix, mantissa_bits, exponent_max, rounds) != (2, 53, 1024, 1):
        raise InvariantBroken("floats on this machine are not IEEE 754 binary64 rounded to nearest")


def approx_equal(left: Number, right: Number) -> bool:
    """Whether two finite numbers differ by at most ``EPS_EQ``, computed without rounding."""
    return abs(_exact(left) - _exact(right)) <= _EPS_EQ_EXACT


def bucket(value: Number) -> int:
    """The bucket of width ``EPS_EQ`` that a finite number falls into."""
    return round(_exact(value) / _EPS_EQ_EXACT)  # Fraction rounds half to even


def rank_key(metrics: Sequence[Number]) -> RankKey:
    """Sort key of a metric tuple: smaller is better, earlier metrics decide first.

    Numbers that are not finite come after all others, in the order +Inf, -Inf, NaN.
    """
    return tuple(_component(value) for value in metrics)


def compare(left: Sequence[Number], right: Sequence[Number]) -> int:
    """-1 if ``left`` ranks before ``right``, 0 if they tie, 1 otherwise. A total preorder."""
    if len(left) != len(right):
        raise InvalidInput(f"metric tuples of {len(left)} and {len(right)} numbers cannot be compared")
    left_key, right_key = rank_key(left), rank_key(right)
    return (left_key > right_key) - (left_key < right_key)


def _exact(value: Number) -> Fraction:
    if type(value) is not int and type(value) is not float:
        raise InvalidInput(f"expected a number, got {show(value)}")
    if not math.isfinite(value):
        raise InvariantBroken(f"{value} reached a numeric check")
    return Fraction(value)


def _component(value: Number) -> tuple[int, int]:
    if type(value) is float and not math.isfinite(value):
        return 1, 2 if math.isnan(value) else int(value < 0)
    return 0, bucket(value)


require_binary64(sys.float_info.radix, sys.float_info.mant_dig, sys.float_info.max_exp, sys.float_info.rounds)
