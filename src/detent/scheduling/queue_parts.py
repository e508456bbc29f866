"""What the class queues are made of, shaped by what a step costs when a million jobs wait.

Most of such a step is waiting for memory, and most of the rest is making the answer.

Reading a queue's snapshot back: what no queue could have written is refused before anything is changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from detent.canon.grammar import PRIORITY_MAX, PRIORITY_MIN
from detent.canon.late import NamedTuple
from detent.canon.show import show
from detent.errors import InvalidInput
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


class Waiting(NamedTuple):
    """One waiting job of a snapshot."""

    priority: int
    arrival: int
    job_id: str
    evictable: bool


def read_snapshot(snapshot: object) -> tuple[int, list[Waiting]]:
    """The next arrival number and the jobs, in the snapshot's order."""
    if type(snapshot) is not list or len(snapshot) != 2:
        raise InvalidInput("a queue snapshot is a list of the next arrival number and the lines")
    arrivals = read_arrivals(snapshot[0])
    return arrivals, list(read_lines(snapshot[1], arrivals))


def read_arrivals(value: object) -> int:
    """The next arrival number."""
    if type(value) is not int or value < 0:
        raise InvalidInput(f"a queue snapshot begins with the next arrival number, not with {show(value)}")
    return value


def read_lines(lines: object, arrivals: int) -> Iterator[Waiting]:
    """The jobs of one queue: classes from the top, in each the arrivals rising, no job twice.

    A job written as ``[arrival, job_id]``, as the plain queue writes it, is one to keep: nothing says it may be evicted.
    """
    seen: set[str] = set()
    class_before = PRIORITY_MAX + 1
    for line in lines if type(lines) is list else (lines,):
        if type(line) is not list or len(line) != 2 or type(line[0]) is not int or type(line[1]) is not list:
            raise InvalidInput(f"a line of a queue snapshot is [class, jobs], not {show(line)}")
        priority, jobs = line
        if not PRIORITY_MIN <= priority < class_before:
            raise InvalidInput(f"a queue snapshot has class {show(priority)} where no such class can stand")
        class_before = priority
        arrival_before = -1
        for job in jobs:
            waiting = _read_job(priority, job)
            if waiting.job_id in seen or not arrival_before < waiting.arrival < arrivals:
                raise InvalidInput(f"a queue snapshot holds job {show(waiting.job_id)} twice or out of order")
            seen.add(waiting.job_id)
            arrival_before = waiting.arrival
            yield waiting


def _read_job(priority: int, job: object) -> Waiting:
    if type(job) is not list or tuple(map(type, job)) not in ((int, str), (int, str, bool)):
        raise InvalidInput(f"a job in a queue snapshot is [arrival, job_id, evictable], not {show(job)}")
    return Waiting(priority, job[0], job[1], len(job) == 3 and job[2])
