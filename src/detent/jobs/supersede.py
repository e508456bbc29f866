"""The optional rule by which newer work replaces older work that has not ended (X-034)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from detent.canon.late import dataclass
from detent.jobs.status import TERMINAL_STATUSES, JobStatus

SUPERSEDE_DEFAULT: Final = False
SUPERSEDED: Final = "SUPERSEDED"
"""Reason code of the cancellations."""


@dataclass(frozen=True, slots=True)
class Revised:
    """A platform job, and how new the revision is that it is about."""

    workspace_id: str
    job_id: str
    job_type: str
    document_id: str
    object_ids: frozenset[str]
    revision_number: int
    """Position of the revision in its document's history: revision ids do not say which came first."""
    status: JobStatus = JobStatus.PENDING


def superseded_by(new: Revised, jobs: Iterable[Revised], *, enabled: bool = SUPERSEDE_DEFAULT) -> list[str]:
    """The ids of the jobs that a new one replaces, sorted; each is to be cancelled with the reason ``SUPERSEDED``.

    Replaced is what has not ended, does the same to the same objects of the same document, and is about an older
    revision. A second job for the same revision replaces nothing.
    """
    if not enabled:
        return []
    return sorted(
        job.job_id
        for job in jobs
        if _subject(job) == _subject(new)
        and job.revision_number < new.revision_number
        and job.status not in TERMINAL_STATUSES
    )


def _subject(job: Revised) -> tuple[str, str, str, frozenset[str]]:
    return job.workspace_id, job.document_id, job.job_type, job.object_ids
