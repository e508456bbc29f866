"""What waits for which job: an element or a caller for its own job, or for another one that does the same work (X-186).

Work is waited for under an id of its own, its *work id*: that of its job, or of an element that shares a job with others. An array
carries the work of its elements; which array, is known once it is submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from detent.jobs.dedupe import ExecutionKey
from detent.jobs.order import JobLimits

Flight: TypeAlias = tuple[ExecutionKey | None, JobLimits | None]
"""What work under way must be equal in to be waited for: its key and its limits."""

W = TypeVar("W")


class Waiters(Generic[W]):
    """Open work, and what waits for each piece of it. Its users keep it to one thread at a time."""

    def __init__(self) -> None:
        self._by_work: dict[str, list[W]] = {}
        self._own: dict[str, None] = {}
        self._flights: dict[Flight, str] = {}
        self._flight_of: dict[str, Flight] = {}
        self._cargo: dict[str, dict[int, str]] = {}
        self._carrier: dict[str, tuple[str, int]] = {}
        self._polled = 0

    def __contains__(self, job_id: object) -> bool:
        """Whether a job, an array or a piece of work is waited for."""
        return job_id in self._by_work or job_id in self._cargo

    def __len__(self) -> int:
        """How many pieces of work are waited for."""
        return len(self._by_work)

    @property
    def under_way(self) -> Mapping[Flight, str]:
        """The work begun here that equal work can join."""
        return self._flights

    @property
    def own(self) -> Collection[str]:
        """The open jobs that were, or are about to be, submitted here."""
        return self._own.keys()

    @property
    def foreign(self) -> list[str]:
        """Work that was submitted elsewhere, or that will never be submitted."""
        return [work_id for work_id in self._by_work if self.job_of(work_id) not in self._own]

    def add(self, waiter: W, work_id: str, *, own: bool = False, flight: Flight | None = None) -> None:
        """Have something wait for work, its ``own`` job or another one; equal work may join one with a ``flight``."""
        self._by_work.setdefault(work_id, []).append(waiter)
        if own:
            self._own[work_id] = None
        if flight is not None:
            self.announce(work_id, flight)

    def announce(self, work_id: str, flight: Flight) -> None:
        """Let equal work join a piece of work from now on, unless it has ended already."""
        if work_id in self._by_work:
            self._flights[flight] = work_id
            self._flight_of[work_id] = flight

    def submit(self, job_id: str) -> None:
        """A job that is waited for is about to be submitted here."""
        self._own[job_id] = None

    def carry(self, job_id: str, place: int, work_id: str, *, own: bool = False) -> None:
        """An array does a piece of work as the element at a place; ``own``: it was, or is about to be, submitted here."""
        self._cargo.setdefault(job_id, {})[place] = work_id
        self._carrier[work_id] = (job_id, place)
        if own:
            self._own[job_id] = None

    def cargo(self, job_id: str) -> dict[int, str]:
        """The work that an array carries and that is waited for, by places; empty for any other job."""
        return dict(self._cargo.get(job_id, ()))

    def job_of(self, work_id: str) -> str:
        """The job that does a piece of work: its array, or the job of that id."""
        carrier = self._carrier.get(work_id)
        return work_id if carrier is None else carrier[0]

    def unload(self, job_id: str) -> None:
        """An array was not submitted: its elements go on waiting, for another job."""
        self._own.pop(job_id, None)
        for work_id in self._cargo.pop(job_id, {}).values():
            self._carrier.pop(work_id, None)

    def withdraw(self, waiter: W, work_id: str) -> None:
        """Have something no longer wait for its own job, which was not submitted; what joined the job goes on waiting."""
        self._own.pop(work_id, None)
        left = [one for one in self._by_work.get(work_id, ()) if one is not waiter]
        if left:
            self._by_work[work_id] = left
        else:
            self.pop(work_id)

    def pop(self, work_id: str) -> list[W]:
        """What waited for a piece of work, and waits no longer."""
        self._own.pop(work_id, None)
        flight = self._flight_of.pop(work_id, None)
        if flight is not None and self._flights.get(flight) == work_id:
            del self._flights[flight]
        carrier = self._carrier.pop(work_id, None)
        if carrier is not None:
            job_id, place = carrier
            left = self._cargo[job_id]
            del left[place]
            if not left:
                self.unload(job_id)
        return self._by_work.pop(work_id, [])

    def of(self, work_id: str) -> list[W]:
        """What waits for a piece of work."""
        return self._by_work.get(work_id, [])

    def some(self, count: int) -> Iterator[str]:
        """Some of the jobs that are waited for, others each time."""
        jobs = list(
            dict.fromkeys(self.job_of(work_id) for work_id in self._by_work) if self._carrier else self._by_work
        )
        if jobs:
            first = self._polled % len(jobs)
            self._polled = first + count
            yield from jobs[first : first + count]
