"""What a job is charged for memory that its processes share."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from detent.executor.sandbox.tree import SharedMemory

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_what_is_gone_is_let_go_and_the_rest_is_charged_as_the_largest() -> None:
    """JOB-037"""
    shared = SharedMemory()
    for pages in (1, 5, 3):
        shared.map(pages * PAGE - 1)
    assert shared.charged_bytes == 9 * PAGE
    shared.settle(2)
    assert (shared.charged_bytes, shared.peak_bytes) == (8 * PAGE, 8 * PAGE)
    shared.settle(None)
    assert shared.charged_bytes == 8 * PAGE
    shared.settle(0)
    assert (shared.charged_bytes, shared.peak_bytes) == (0, 8 * PAGE)


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans(), st.booleans()), max_size=30))
def test_a_job_is_never_charged_less_than_it_holds(steps: list[tuple[int, bool, bool]]) -> None:
    """JOB-037: whichever mappings go, and however late one comes that was asked for."""
    shared = SharedMemory()
    held: list[int] = []
    late: list[int] = []
    for pages, keeps, comes_late in steps:
        shared.map(pages * PAGE)
        (late if comes_late else held).append(pages * PAGE)
        if not keeps and held:
            held.pop(0)
        shared.settle(len(held))
        assert shared.charged_bytes >= sum(held)
    shared.settle(len(held) + len(late))
    assert shared.charged_bytes >= sum(held) + sum(late)
