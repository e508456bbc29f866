"""Who waits for which job: elements for their own jobs, and for jobs of others that do the same work."""

from __future__ import annotations

from collections.abc import Iterator

from detent.jobs.keys import ExecutionKey
from detent.reuse.work_keys import Limits, WorkKey
from detent.runs.record.step_run import Element


class JobWaiters:
    """The open jobs of one run, and the elements that wait for each."""

    def __init__(self) -> None:
        self._by_job: dict[str, list[Element]] = {}
        self._flights: dict[tuple[ExecutionKey | None, Limits | None], str] = {}
        """Jobs of this run that are under way, by execution key and limits."""
        self._recipe_of: dict[str, WorkKey] = {}
        self.live = 0
        """Elements that wait for a job which was submitted."""
        self.joined = 0
        """Of those, the ones that wait for another element's job, or another run's."""
        self._polled = 0

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._by_job

    def add(self, element: Element, job_id: str, work_key: WorkKey | None, *, live: bool = True) -> None:
        """An element waits for a job from now on. One that is not ``live`` yet is about to be submitted."""
        self._by_job.setdefault(job_id, []).append(element)
        if work_key is not None:
            self._recipe_of[element.job_id] = work_key
            if work_key.key is not None and element.job_id == job_id:
                self._flights[work_key.flight] = job_id
        if live:
            self.live += 1
            self.joined += element.job_id != job_id

    def submitted(self) -> None:
        """The job of an element that was added before is there now."""
        self.live += 1

    def withdraw(self, element: Element) -> None:
        """An element does not wait for its own job after all: it was not submitted."""
        elements = self._by_job.get(element.job_id, [])
        if element in elements:
            elements.remove(element)
        if not elements:
            self._by_job.pop(element.job_id, None)

    def same_work(self, element: Element, work_key: WorkKey) -> str | None:
        """An open job of this run that does the same work as an element."""
        job_id = None if work_key.key is None else self._flights.get(work_key.flight)
        return job_id if job_id is not None and job_id != element.job_id and job_id in self._by_job else None

    def work_key(self, element: Element) -> WorkKey | None:
        """What an element's work is made of, as it was when it began to wait."""
        return self._recipe_of.get(element.job_id)

    def pop(self, job_id: str) -> list[Element]:
        """The elements that waited for a job; they wait no longer."""
        elements = self._by_job.pop(job_id, None)
        if elements is None:
            return []
        # The work key of an element that waited for its own job has had its use; a run may have very many of them.
        work_key = self._recipe_of.pop(job_id, None)
        if work_key is not None and work_key.key is not None and self._flights.get(work_key.flight) == job_id:
            del self._flights[work_key.flight]
        self.live -= len(elements)
        for element in elements:
            if element.job_id != job_id:
                self.joined -= 1
        return elements

    def of(self, job_id: str) -> list[Element]:
        """The elements that wait for a job."""
        return self._by_job.get(job_id, [])

    def own_jobs(self) -> list[str]:
        """Open jobs that this run submitted."""
        return [job_id for job_id, elements in self._by_job.items() if any(one.job_id == job_id for one in elements)]

    def strangers(self) -> list[str]:
        """Jobs that only others submitted, or that will never be submitted."""
        own = set(self.own_jobs())
        return [job_id for job_id in self._by_job if job_id not in own]

    def some(self, count: int) -> Iterator[str]:
        """Some open jobs, others each time."""
        jobs = list(self._by_job)
        if jobs:
            first = self._polled % len(jobs)
            self._polled = first + count
            yield from jobs[first : first + count]
