"""A destination that is the caller's loop: what `for result in detent.ordered_map(...)` reads from.

It has no memory, so every run begins at its first item, and what was committed before a crash comes again (X-184). A consumer
that is slow holds the commit lane back, and with it the windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Empty, Full, Queue
from typing import Final

from detent.canon.strict_json import JsonValue
from detent.targets.api import NOTHING, CommitFailed, Mark, Nothing

AHEAD: Final = 2
"""Writes that wait for the consumer."""
LOOK_SECONDS: Final = 0.2


class Abandoned(CommitFailed):
    """The loop was left before its end."""

    def __init__(self) -> None:
        super().__init__("the loop over the results has ended", spec="iterator", retryable=False)


class HandOver:
    """Takes writes on one thread and gives their values out on another."""

    spec = "iterator"
    is_recorded = False

    def __init__(self) -> None:
        self._writes: Queue[list[JsonValue] | None] = Queue(AHEAD)
        self._next_seq = 0
        self._left = False

    def open(self, run_id: str, recorded: Mark | None) -> int:  # noqa: ARG002 - nothing is remembered
        """Everything comes, from the first item on."""
        return 0

    def begin(self) -> Mark:
        """Nothing has been given out."""
        return Mark(self._next_seq)

    def write(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        """Wait until there is room, then leave the values there."""
        self._put([value for value in values if value is not NOTHING])
        self._next_seq = first_seq + len(values)
        return Mark(self._next_seq)

    def close(self) -> None:
        """Nothing is held."""

    def end(self) -> None:
        """Nothing more will come."""
        if not self._left:
            self._put(None)

    def leave(self) -> None:
        """Tell the writer that the consumer wants no more."""
        self._left = True
        while True:
            try:
                self._writes.get_nowait()
            except Empty:
                return

    def values(self) -> Iterator[JsonValue]:
        """The values of the successes, in order, until `end`."""
        for values in self.batches():
            yield from values

    def batches(self) -> Iterator[list[JsonValue]]:
        """The same write by write."""
        while (values := self._writes.get()) is not None:
            yield values

    def _put(self, values: list[JsonValue] | None) -> None:
        while not self._left:
            try:
                self._writes.put(values, timeout=LOOK_SECONDS)
            except Full:  # Look again whether it is still wanted.
                continue
            return
        raise Abandoned
