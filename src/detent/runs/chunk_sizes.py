"""How many elements share one job. Pure: durations come from reports.

A job costs some hundred microseconds beside the work itself. Elements that take less share a job, one after the other: as many as fit into
`TARGET_US`, by the mean of what was measured under the same label. The first ones run alone, and a job has at most `GROWTH` times as many
elements as were measured, so that a few quick ones at the beginning decide little. Elements that take `ALONE_US` or longer each have a job
of their own: there is nothing to save. The last elements are spread over the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.canon.grammar import CHUNK_HINT, CHUNK_MAX
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput

TARGET_US: Final = 20_000
"""How long a job of several elements is to take."""
ALONE_US: Final = 5_000
"""An element that takes so long has a job of its own."""
GROWTH: Final = 4
CHUNK_AUTO_MAX: Final = 128
"""Elements of one job, where durations decide: their order and their report are kept beside the record, not in files of their own."""
REMEMBERED_MAX: Final = 1_024
"""Measured elements that count: with more, the past gives way to what is measured now."""


@dataclass(slots=True)
class _Pace:
    ended: int = 0
    took_us: int = 0


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
        mean_us = pace.took_us // pace.ended
        if mean_us >= ALONE_US:
            return 1
        spread = -(-left // (2 * max(1, workers)))
        return max(1, min(TARGET_US // max(1, mean_us), GROWTH * pace.ended, spread, CHUNK_AUTO_MAX))

    def is_known(self, label: str) -> bool:
        """Whether anything was measured under a label, or nothing has to be."""
        return self._fixed is not None or label in self._paces

    def learn(self, label: str, took_us: Sequence[int]) -> None:
        """Some elements have ended after so long each."""
        if not took_us:
            return
        pace = self._paces.setdefault(label, _Pace())
        if pace.ended > REMEMBERED_MAX:
            pace.ended, pace.took_us = pace.ended // 2, pace.took_us // 2
        pace.ended += len(took_us)
        pace.took_us += sum(took_us)


def check_chunk(value: object, what: str) -> int | None:
    """A number of elements that a user asks for; None: durations decide. Raises `InvalidInput` for anything else."""
    if value is None or (type(value) is int and 1 <= value <= CHUNK_MAX):
        return value
    raise InvalidInput(f"{what}={show(value)} is not allowed", hint=CHUNK_HINT)
