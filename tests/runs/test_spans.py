"""Spans of time: what overlaps counts once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detent.runs.record.view import Spans

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def test_spans_that_overlap_or_touch_count_once() -> None:
    assert Spans([(10, 20), (15, 30), (30, 31), (50, 60), (60, 50)]).total_ms() == 31
    assert Spans().total_ms() == 0


def test_what_still_runs_is_counted_and_not_kept() -> None:
    spans = Spans([(10, 20)])
    assert spans.total_ms([(15, 40), (38, 42)]) == 32
    assert spans.total_ms() == 10


@given(SPANS, SPANS)
def test_they_add_up_as_counting_each_millisecond_does(
    spans: list[tuple[int, int]], more: list[tuple[int, int]]
) -> None:
    counted = {ms for start, end in [*spans, *more] for ms in range(start, end)}
    assert Spans(spans).total_ms(more) == len(counted) == Spans([*more, *spans]).total_ms()
