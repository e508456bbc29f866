"""Reading a queue's snapshot back: what no queue could have written is refused before anything is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from detent.canon.priority import PRIORITY_MAX, PRIORITY_MIN
from detent.canon.show import show
from detent.errors import InvalidInput


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
