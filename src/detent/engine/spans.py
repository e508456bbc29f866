"""Spans of time in which something ran, to tell running from waiting: spans that overlap count once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Spans:
    """Disjoint spans of milliseconds, in order. Adding is cheap where spans come about as they end."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in spans:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Something ran from ``start`` to ``end``; a span that ends before it starts, by a clock set back, counts for nothing."""
        if end <= start:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def total_ms(self, more: Iterable[tuple[int, int]] = ()) -> int:
        """For how long something ran, with what runs still counted among it."""
        still = [span for span in more if span[1] > span[0]]
        if not still:
            return sum(self._ends) - sum(self._starts)
        return Spans([*zip(self._starts, self._ends, strict=True), *still]).total_ms()
