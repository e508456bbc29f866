from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import EPS_DENOM, EPS_EQ, approx_equal, bucket, compare, numbers, rank_key
from detent.canon.numbers import OBJECTIVE_TYPE, SENSE, require_binary64
from detent.errors import InvalidInput, InvariantBroken

NAN, INF = float("nan"), float("inf")
SMALL_NUMBER = re.compile(r"[0-9_.][eE]-|\.0[0_]{4}")
"""How a number below a millionth can be written; a module without it need not be parsed."""
# Multiples of half a bucket and their neighbours: where a rule that is not transitive shows it.
NEAR_TIES = st.builds(lambda halves, nudge: halves * EPS_EQ / 2 + nudge * 1e-12, st.integers(-6, 6), st.integers(-2, 2))
METRICS = st.tuples(*[NEAR_TIES | st.floats() | st.integers(-2, 2)] * 2)


def test_the_tolerances_have_their_exact_values() -> None:
    """PIPE-021"""
    assert (EPS_EQ, EPS_DENOM) == (1e-10, 1e-12)


def test_no_other_module_writes_a_tolerance_as_a_bare_number() -> None:
    """PIPE-021"""
    home = Path(numbers.__file__)
    bare = [
        (path.name, node.value)
        for path in sorted(home.parents[1].rglob("*.py"))
        if SMALL_NUMBER.search(source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < node.value < 1e-6
    ]
    assert bare == [("numbers.py", 1e-10), ("numbers.py", 1e-12)]


def test_two_numbers_are_close_up_to_the_tolerance_and_not_beyond() -> None:
    """PIPE-022"""
    above = math.nextafter(1e-10, 1.0)
    assert approx_equal(0.0, 1e-10)
    assert approx_equal(1e-10, 0.0)
    assert not approx_equal(0.0, above)
    assert not approx_equal(above, 0)
    assert approx_equal(2**53, 2**53)
    assert not approx_equal(2**53, 2**53 + 1)


def test_closeness_is_computed_without_rounding() -> None:
    """PIPE-022: in floats, 1e-10 - (-1e-27) is 1e-10 again"""
    assert 1e-10 - -1e-27 == 1e-10
    assert not approx_equal(1e-10, -1e-27)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_number_that_is_not_finite_aborts_a_check_in_the_same_way_each_time(value: float) -> None:
    """PIPE-023, X-054"""
    checks: list[Callable[[], object]] = [
        lambda: approx_equal(value, 0),
        lambda: approx_equal(0, value),
        lambda: bucket(value),
    ]
    for check in checks * 2:
        with pytest.raises(InvariantBroken, match="reached a numeric check") as caught:
            check()
        assert caught.value.code == "INVARIANT_VIOLATION"


@pytest.mark.parametrize("value", [True, "1", None, Fraction(1, 2)])
def test_only_plain_numbers_are_measured(value: Any) -> None:
    """PIPE-019"""
    with pytest.raises(InvalidInput):
        bucket(value)
    with pytest.raises(InvalidInput):
        rank_key([value])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (-0.0, 0),
        (EPS_EQ, 1),
        (EPS_EQ / 2, 0),  # halfway, to the even neighbour
        (math.nextafter(EPS_EQ / 2, 1.0), 1),
        (-EPS_EQ / 2, 0),
        (3 * EPS_EQ, 3),
        (-3 * EPS_EQ, -3),
    ],
)
def test_buckets_round_half_to_even(value: float, expected: int) -> None:
    """X-053"""
    assert bucket(value) == expected


def test_buckets_are_exact_where_floats_are_not() -> None:
    """X-053"""
    assert bucket(1) == round(Fraction(1) / Fraction(1e-10))
    assert bucket(1e300) == round(Fraction(1e300) / Fraction(1e-10))


def test_the_smaller_metric_wins() -> None:
    """PIPE-006"""
    assert (SENSE, OBJECTIVE_TYPE) == ("MINIMIZE", "Scalar")
    assert compare([1.0], [2.0]) == -1
    assert compare([2], [1.0]) == 1
    assert sorted([(3.0,), (1.0,), (2.0,)], key=rank_key) == [(1.0,), (2.0,), (3.0,)]


def test_earlier_metrics_decide_first_and_near_ties_pass_on() -> None:
    """PIPE-008"""
    assert compare([1.0, 9.0], [2.0, 0.0]) == -1
    assert compare([1.0 + 1e-12, 0.0], [1.0, 1.0]) == -1
    assert compare([1.0 + 1e-12, 1.0], [1.0, 1.0]) == 0


def test_values_on_both_sides_of_an_edge_do_not_tie() -> None:
    """X-053: the price of transitivity"""
    left, right = EPS_EQ / 2, math.nextafter(EPS_EQ / 2, 1.0)
    assert approx_equal(left, right)
    assert compare([left], [right]) == -1


@given(METRICS, METRICS, METRICS)
def test_the_ranking_is_a_total_preorder(a: Any, b: Any, c: Any) -> None:
    """PIPE-008, X-053: reflexive, total, transitive"""
    assert compare(a, a) == 0
    assert compare(a, b) == -compare(b, a)
    for x, y, z in permutations((a, b, c)):
        if compare(x, y) <= 0 and compare(y, z) <= 0:
            assert compare(x, z) <= 0
        if compare(x, y) == 0 and compare(y, z) == 0:
            assert compare(x, z) == 0


def test_what_is_not_finite_ranks_last_in_a_fixed_order() -> None:
    """PIPE-009, X-054"""
    for arrangement in permutations([1.0, NAN, INF, -INF]):
        ranked = [value for [value] in sorted(([value] for value in arrangement), key=rank_key)]
        assert ranked[:3] == [1.0, INF, -INF]
        assert math.isnan(ranked[3])
    assert compare([NAN], [NAN]) == 0
    assert compare([1e308], [-INF]) == -1


def test_tuples_of_different_length_are_not_compared() -> None:
    """PIPE-008"""
    with pytest.raises(InvalidInput):
        compare([1.0], [1.0, 2.0])


def test_floats_here_are_binary64() -> None:
    """PIPE-019"""
    info = sys.float_info
    require_binary64(info.radix, info.mant_dig, info.max_exp, info.rounds)
    for other in [(10, 53, 1024, 1), (2, 24, 128, 1), (2, 64, 16384, 1), (2, 53, 1024, 0)]:
        with pytest.raises(InvariantBroken, match="binary64"):
            require_binary64(*other)
