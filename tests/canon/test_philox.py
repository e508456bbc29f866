from __future__ import annotations

from typing import Any

import pytest

from detent.canon import PRNG_FAMILY, Philox, philox4x32_10, seed_to_key
from detent.errors import InvalidInput, InvariantBroken

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES, ONES, ONES, ONES), (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_published_answers_of_random123(
    counter: tuple[int, ...], key: tuple[int, ...], block: tuple[int, ...]
) -> None:
    """PIPE-014, X-052"""
    assert philox4x32_10(counter, key) == block
    assert PRNG_FAMILY == "Philox4x32-10"


def test_the_low_half_of_the_seed_is_the_first_key_word() -> None:
    """PIPE-015"""
    assert seed_to_key(0x299F31D0A4093822) == (0xA4093822, 0x299F31D0)


def test_the_counter_starts_at_zero_and_its_word_0_runs_fastest() -> None:
    """PIPE-015"""
    stream = Philox(0x299F31D0A4093822)
    key = seed_to_key(0x299F31D0A4093822)
    expected = [*philox4x32_10((0, 0, 0, 0), key), *philox4x32_10((1, 0, 0, 0), key)]
    assert [stream.uint32() for _ in range(8)] == expected
    assert stream.position == 8


@pytest.mark.parametrize(
    ("block", "counter"),
    [
        (2**32 - 1, (ONES, 0, 0, 0)),
        (2**32, (0, 1, 0, 0)),
        (2**96 + 2**64, (0, 0, 1, 1)),
        (2**128 - 1, (ONES, ONES, ONES, ONES)),
    ],
)
def test_a_stream_resumes_at_any_position(block: int, counter: tuple[int, ...]) -> None:
    """PIPE-015"""
    assert Philox(7, block * 4 + 2).uint32() == philox4x32_10(counter, (7, 0))[2]


def test_the_end_of_the_stream_is_an_abort() -> None:
    """PIPE-025"""
    stream = Philox(0, 2**130 - 1)
    stream.uint32()
    with pytest.raises(InvariantBroken, match="used up"):
        stream.uint32()


def test_a_64_bit_draw_is_two_words_low_half_first() -> None:
    assert Philox(0).uint64() == 0xE169C58D_6627E8D5


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_the_ends_of_the_range_are_seeds(seed: int) -> None:
    """PIPE-013"""
    assert Philox(seed).uint32() == philox4x32_10((0, 0, 0, 0), (seed & ONES, seed >> 32))[0]


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, 1.0, True, False, None, "1", pytest.param(10**5000, id="huge")])
def test_anything_else_is_refused_as_a_seed(seed: Any) -> None:
    """PIPE-013"""
    with pytest.raises(InvalidInput, match="seed must be an integer from 0"):
        seed_to_key(seed)
    with pytest.raises(InvalidInput):
        Philox(seed)


@pytest.mark.parametrize(
    ("counter", "key"),
    [
        ((0, 0, 0), (0, 0)),
        ((0, 0, 0, 0), (0,)),
        ((0, 0, 0, 2**32), (0, 0)),
        ((0, 0, 0, 0), (0, -1)),
        ((0, 0, 0, True), (0, 0)),
        ((0.0, 0, 0, 0), (0, 0)),
    ],
)
def test_words_that_are_not_32_bits_are_refused(counter: Any, key: Any) -> None:
    """PIPE-014"""
    with pytest.raises(InvalidInput):
        philox4x32_10(counter, key)


@pytest.mark.parametrize("position", [-1, 0.0, True])
def test_a_position_is_a_count(position: Any) -> None:
    with pytest.raises(InvalidInput):
        Philox(0, position)


def test_bounded_draws_stay_in_range_and_reach_every_number() -> None:
    stream = Philox(2026)
    drawn = [stream.below(6) for _ in range(600)]
    assert set(drawn) == set(range(6))
    assert all(70 <= drawn.count(number) <= 130 for number in range(6))
    assert Philox(0).below(1) == 0
    assert Philox(0).below(2**64) == Philox(0).uint64()


def test_a_bounded_draw_that_would_favour_small_numbers_is_drawn_again() -> None:
    # For a bound of 2**63 + 1 nearly half of all draws fall into the unfair rest.
    bound = 2**63 + 1
    stream = Philox(1)
    drawn = [stream.below(bound) for _ in range(50)]
    raw = Philox(1)
    words = [raw.uint64() for _ in range(stream.position // 2)]
    assert drawn == [word for word in words if word < bound]
    assert stream.position > 100


@pytest.mark.parametrize("bound", [0, -1, 2**64 + 1, 1.0, True])
def test_a_bound_that_is_no_bound_is_refused(bound: Any) -> None:
    with pytest.raises(InvalidInput):
        Philox(0).below(bound)
