"""Leases in force, page by page: how a worker whose answer was lost learns what it holds (X-067, X-173).

A claim cannot be repeated like other requests: asked again, it would take further jobs. So a worker that lost the answer to a
claim asks for its open grants first.
"""

from __future__ import annotations

from heapq import nsmallest

from detent.errors import InvalidInput
from detent.kernel import Grant, Kernel
from detent.kernel.manifest import id_fault
from detent.kernel.table import State

GRANTS_PAGE = 10_000
"""Grants in one answer, at most: as many as one claim can give, and well below what a message may hold."""


def open_grants(kernel: Kernel, replica_id: str, after: str | None = None, limit: int = GRANTS_PAGE) -> list[Grant]:
    """A worker's leases by job id, those after ``after`` only; as many as ``limit`` means that there may be more."""
    held = (
        job
        for job in kernel.jobs.values()
        if job.state == State.RUNNING and job.lease_holder == replica_id and (after is None or job.job_id > after)
    )
    return [Grant.of(job) for job in nsmallest(limit, held, key=lambda job: job.job_id)]


def check_asker(replica_id: object, after: object) -> tuple[str, str | None]:
    """Who asks and from where on; raises `InvalidInput` for what can name neither."""
    fault = id_fault("replica_id", replica_id)
    if after is not None:
        fault = fault or id_fault("after", after)
    if fault or not isinstance(replica_id, str) or not (after is None or isinstance(after, str)):
        raise InvalidInput(fault or "a replica_id is a text")
    return replica_id, after
