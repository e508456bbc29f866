"""Whether work that was asked for has been done already: reuse, join, or run (JOB-026 to JOB-028, X-149, X-186)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

from detent.canon.late import dataclass
from detent.jobs.keys import ExecutionKey
from detent.jobs.status import TERMINAL_STATUSES, JobStatus

InFlight: TypeAlias = Literal["new", "join"]
IN_FLIGHT_DEFAULT: Final[InFlight] = "new"


@dataclass(frozen=True, slots=True)
class PriorJob:
    """A job of the index that may answer a request."""

    workspace_id: str
    execution_key: ExecutionKey
    job_id: str
    status: JobStatus
    position: int
    """Ascending with time: of the commit that ended the job, or of its submission while it has not ended."""
    limits: object = None
    """The limits it ran under; only compared."""
    limit_bound: bool = False
    """Other limits might have given another outcome: it failed by RESOURCE_LIMIT, or its output was cut."""
    available: bool = True
    """Its result and artifacts can still be read; an erased result cannot be an answer."""


@dataclass(frozen=True, slots=True)
class DedupeRequest:
    """Work that is asked for, and what the caller accepts instead of running it."""

    workspace_id: str
    execution_key: ExecutionKey
    reuse_failed: bool = False
    in_flight_policy: InFlight = IN_FLIGHT_DEFAULT
    limits: object = None


@dataclass(frozen=True, slots=True)
class Reuse:
    """Answer with an ended job's outcome. No kernel job is made; the answer says ``deduplicated``."""

    job_id: str
    status: JobStatus
    deduplicated: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Join:
    """Wait for a job that is already under way. No kernel job is made; the answer says ``deduplicated``."""

    job_id: str
    deduplicated: Literal[True] = True


@dataclass(frozen=True, slots=True)
class Run:
    """Nothing answers the request: make a job."""

    deduplicated: Literal[False] = False


def dedupe(request: DedupeRequest, prior_jobs: Iterable[PriorJob]) -> Reuse | Join | Run:
    """Decide how a request is answered, given the jobs the index holds under its key.

    A success is always reused, the first committed one if there are several; a failure only when asked for; CANCELLED
    and TIMED_OUT never. Work under way is joined only under the same limits: others may end it otherwise (X-190). Jobs
    of another workspace or key do not count.
    """
    same = sorted(
        (
            job
            for job in prior_jobs
            if (job.workspace_id, job.execution_key) == (request.workspace_id, request.execution_key)
        ),
        key=lambda job: (job.position, job.job_id),
    )
    answers = [job for job in same if job.available and not (job.limit_bound and job.limits != request.limits)]
    reusable = (JobStatus.SUCCEEDED, JobStatus.FAILED) if request.reuse_failed else (JobStatus.SUCCEEDED,)
    for status in reusable:
        for job in answers:
            if job.status is status:
                return Reuse(job.job_id, job.status)
    if request.in_flight_policy == "join":
        for job in same:
            if job.status not in TERMINAL_STATUSES and job.limits == request.limits:
                return Join(job.job_id)
    return Run()
