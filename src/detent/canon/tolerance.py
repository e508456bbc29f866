"""Comparing measured numbers: one tolerance for single checks, buckets for rankings.

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
from typing import Final, TypeAlias

from detent.canon.show import show
from detent.errors import InvalidInput, InvariantBroken

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


def log_sum_exp(values: Sequence[float]) -> float:
    """``log(sum(exp(v)))``, shifted by the largest value so that nothing overflows."""
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(value - largest) for value in values))


def softmax(values: Sequence[float]) -> list[float]:
    """Normalised exponentials, shifted in the same way: finite for every finite input."""
    largest = max(values)
    weights = [math.exp(value - largest) for value in values]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


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
