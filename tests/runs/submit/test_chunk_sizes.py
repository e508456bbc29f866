"""How many elements share a job, by how long they took."""

from __future__ import annotations

import pytest

from detent.errors import InvalidInput
from detent.runs.submit.chunk_sizes import CHUNK_AUTO_MAX, ChunkSizes, check_chunk


def sizes(*took_us: int) -> ChunkSizes:
    made = ChunkSizes()
    made.learn("step", took_us)
    return made


def test_the_first_elements_run_alone() -> None:
    assert ChunkSizes().next("step", 1_000, 2) == 1
    assert not ChunkSizes().is_known("step")


def test_a_job_grows_with_what_was_measured() -> None:
    assert sizes(10).next("step", 100_000, 2) == 4
    assert sizes(*[10] * 8).next("step", 100_000, 2) == 32
    assert sizes(*[10] * 500).next("step", 100_000, 2) == CHUNK_AUTO_MAX


def test_a_job_gets_what_fits_into_its_time() -> None:
    assert sizes(*[2_000] * 50).next("step", 100_000, 2) == 10
    assert sizes(*[4_999] * 50).next("step", 100_000, 2) == 4
    assert sizes(*[5_000] * 50).next("step", 100_000, 2) == 1


def test_the_first_element_of_each_worker_does_not_count() -> None:
    """It waits for the module to be loaded."""
    assert sizes(900_000, 900_000, *[10] * 6).next("step", 100_000, 2) == 32


def test_elements_that_become_long_run_alone_and_short_ones_share_again() -> None:
    measured = sizes(*[10] * 500)
    measured.learn("step", [50_000] * 64)
    assert measured.next("step", 100_000, 2) == 1
    assert measured.is_known("step")
    measured.learn("step", [10] * 64)
    assert measured.next("step", 100_000, 2) == CHUNK_AUTO_MAX


def test_the_last_elements_are_spread_over_the_workers() -> None:
    assert sizes(*[10] * 500).next("step", 100, 4) == 13
    assert sizes(*[10] * 500).next("step", 1, 4) == 1


def test_labels_are_measured_apart() -> None:
    assert sizes(*[10] * 500).next("other", 100, 4) == 1


def test_what_a_user_asks_for_is_obeyed() -> None:
    fixed = ChunkSizes(7)
    assert [fixed.next("step", left, 4) for left in (100, 7, 3)] == [7, 7, 3]
    fixed.learn("step", [900_000] * 50)
    assert fixed.next("step", 100, 4) == 7


@pytest.mark.parametrize("value", [0, -1, 1_001, True, "5", 2.0])
def test_a_number_that_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="is not allowed"):
        check_chunk(value, "chunk")
