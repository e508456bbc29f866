"""What the class queues are made of, shaped by what a step costs when a million jobs wait.

Most of such a step is waiting for memory, and most of the rest is making the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from detent.kernel.queue import Enqueued


def name_index() -> dict[str, Any]:
    """An empty index by name, in which the hash of each name stands beside it.

    A dict that has only ever held text does without, and follows every collision to some other name in memory. With a
    million waiting, that took a sixth of an enqueue and a dequeue.
    """
    index: dict[Any, Any] = {None: None}
    del index[None]
    return index


class Lines:
    """The two lines of one class and its free places."""

    __slots__ = ("evictable", "kept", "number", "room")

    def __init__(self, number: int, room: int, kept: deque[str], evictable: deque[str]) -> None:
        self.number = number
        """The number of the evictable line; the kept one has the number before."""
        self.room = room
        """Below zero where more wait than the bounds of now allow."""
        self.kept = kept
        self.evictable = evictable


class _MadeFromSequence(tuple[object, ...]):
    """Undoes the constructor of a named tuple, which would take a third of an enqueue."""

    __slots__ = ()
    __new__ = tuple.__new__


class _EnqueuedAlone(_MadeFromSequence, Enqueued):
    """An `Enqueued` that is made from the sequence of its fields."""

    __slots__ = ()


enqueued_alone: Final[Callable[[tuple[object, ...]], Enqueued]] = _EnqueuedAlone
