"""What waits for which job: an element or a caller for its own job, or for another one that does the same work (X-186)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeAlias, TypeVar

from detent.jobs.dedupe import ExecutionKey
from detent.jobs.order import JobLimits

Flight: TypeAlias = tuple[ExecutionKey | None, JobLimits | None]
"""What work under way must be equal in to be waited for: its key and its limits."""

W = TypeVar("W")


class Waiters(Generic[W]):
    """Open jobs, and what waits for each. Its users keep it to one thread at a time."""

    def __init__(self) -> None:
        self._by_job: dict[str, list[W]] = {}
        self._own: dict[str, None] = {}
        self._flights: dict[Flight, str] = {}
        self._flight_of: dict[str, Flight] = {}
        self._polled = 0

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._by_job

    def __len__(self) -> int:
        """How many jobs are waited for."""
        return len(self._by_job)

    @property
    def under_way(self) -> Mapping[Flight, str]:
        """The jobs submitted here that equal work can join."""
        return self._flights

    @property
    def own(self) -> Collection[str]:
        """The open jobs that were, or are about to be, submitted here."""
        return self._own.keys()

    @property
    def foreign(self) -> list[str]:
        """Jobs that were submitted elsewhere, or that will never be submitted."""
        return [job_id for job_id in self._by_job if job_id not in self._own]

    def add(self, waiter: W, job_id: str, *, own: bool = False, flight: Flight | None = None) -> None:
        """Have something wait for a job, its ``own`` or another one; equal work may join a job with a ``flight``."""
        self._by_job.setdefault(job_id, []).append(waiter)
        if own:
            self._own[job_id] = None
        if flight is not None:
            self.announce(job_id, flight)

    def announce(self, job_id: str, flight: Flight) -> None:
        """Let equal work join a job from now on, unless it has ended already."""
        if job_id in self._by_job:
            self._flights[flight] = job_id
            self._flight_of[job_id] = flight

    def withdraw(self, waiter: W, job_id: str) -> None:
        """Have something no longer wait for its own job, which was not submitted; what joined the job goes on waiting."""
        self._own.pop(job_id, None)
        left = [one for one in self._by_job.get(job_id, ()) if one is not waiter]
        if left:
            self._by_job[job_id] = left
        else:
            self.pop(job_id)

    def pop(self, job_id: str) -> list[W]:
        """What waited for a job, and waits no longer."""
        self._own.pop(job_id, None)
        flight = self._flight_of.pop(job_id, None)
        if flight is not None and self._flights.get(flight) == job_id:
            del self._flights[flight]
        return self._by_job.pop(job_id, [])

    def of(self, job_id: str) -> list[W]:
        """What waits for a job."""
        return self._by_job.get(job_id, [])

    def some(self, count: int) -> Iterator[str]:
        """Some open jobs, others each time."""
        jobs = list(self._by_job)
        if jobs:
            first = self._polled % len(jobs)
            self._polled = first + count
            yield from jobs[first : first + count]
