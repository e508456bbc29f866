"""How many elements share one job. Pure: durations come from reports.

A job costs some hundred microseconds beside the work itself. Elements that take less share a job, one after the other: as many as fit into
`TARGET_US`, by what was measured last under the same label. The first ones run alone, and a job has at most `GROWTH` times as many
elements as were measured, so that a few quick ones at the beginning decide little. The slowest quarter does not count: the first
element in each worker waits for the module to be loaded. Elements that take `ALONE_US` or longer each have a job of their own: there is
nothing to save. The last elements are spread over the workers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from detent.canon.grammar import CHUNK_HINT, CHUNK_MAX
from detent.canon.show import show
from detent.errors import InvalidInput

TARGET_US: Final = 20_000
"""How long a job of several elements is to take."""
ALONE_US: Final = 5_000
"""An element that takes so long has a job of its own."""
GROWTH: Final = 4
CHUNK_AUTO_MAX: Final = 128
"""Elements of one job, where durations decide: their order and their report are kept beside the record, not in files of their own."""
MEASURED_MAX: Final = 64
"""The last measured elements, which count."""
MEASURED_MIN: Final = 8
"""Measured elements from which on it is known how long they take."""


class _Pace:
    """What was measured under one label."""

    def __init__(self) -> None:
        self.ended = 0
        self.took_us = 0
        """How long an element takes."""
        self._last: deque[int] = deque(maxlen=MEASURED_MAX)

    def add(self, took_us: Sequence[int]) -> None:
        self.ended += len(took_us)
        self._last.extend(took_us[-MEASURED_MAX:])
        quick = sorted(self._last)[: -(-3 * len(self._last) // 4)]
        self.took_us = sum(quick) // len(quick)


class ChunkSizes:
    """Sizes by labels; ``fixed`` is what a user asked for."""

    def __init__(self, fixed: int | None = None) -> None:
        self._fixed = fixed
        self._paces: dict[str, _Pace] = {}

    def next(self, label: str, left: int, workers: int) -> int:
        """How many elements the next job gets, of so many that are left; 1: it is an ordinary job."""
        if self._fixed is not None:
            return max(1, min(self._fixed, left))
        pace = self._paces.get(label)
        if pace is None:
            return 1
        if pace.took_us >= ALONE_US:
            return 1
        spread = -(-left // (2 * max(1, workers)))
        return max(1, min(TARGET_US // max(1, pace.took_us), GROWTH * pace.ended, spread, CHUNK_AUTO_MAX))

    def is_known(self, label: str) -> bool:
        """Whether enough was measured under a label, or nothing has to be."""
        pace = self._paces.get(label)
        return self._fixed is not None or (pace is not None and pace.ended >= MEASURED_MIN)

    def learn(self, label: str, took_us: Sequence[int]) -> None:
        """Some elements have ended after so long each."""
        if took_us:
            self._paces.setdefault(label, _Pace()).add(took_us)


def check_chunk(value: object, what: str) -> int | None:
    """A number of elements that a user asks for; None: durations decide. Raises `InvalidInput` for anything else."""
    if value is None or (type(value) is int and 1 <= value <= CHUNK_MAX):
        return value
    raise InvalidInput(f"{what}={show(value)} is not allowed", hint=CHUNK_HINT)
