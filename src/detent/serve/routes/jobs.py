"""Jobs, read: lists, one job, and everything that is known about it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from detent.access.cursor import read_cursor, write_cursor
from detent.access.headers import weak_tag
from detent.jobs.status import project_job
from detent.owner.views import JobView
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import LIMIT, Cursor, Id, Limit, word_typed
from detent.serve.table import READING, Route
from detent.words.states import JOB_STATES, kernel_name, word_of

IDS_MAX: Final = 500


class JobSummary(Shape):
    """A job as it stands, without what it was asked to do and without its result."""

    job_id: str
    run_id: str | None
    status: str
    """As the platform shows it: `queued`, `running`, `succeeded`, `failed`, `timed_out` or `cancelled`."""
    detail: str | None
    """`retrying`: its last attempt is over and its next one has not begun."""
    state: str
    """As the ledger has it: `queued`, `running`, `retrying`, `succeeded`, `failed` or `cancelled`."""
    reason_code: str | None
    attempt: int | None
    """Counted from 1; null for a job that no worker ever had."""
    transition_seq: int
    priority: int
    submitted_at: str
    changed_at: str


class JobsQuery(Shape):
    """Which jobs, and where to go on."""

    state: str | None = None
    run: Id | None = None
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class JobsPage(Shape):
    """Jobs as they were submitted, newest first."""

    items: list[JobSummary]
    next: str | None
    """The cursor of the following page; null on the last one."""


class JobIds(Shape):
    """The jobs that are asked about."""

    job_ids: Annotated[list[Id], Field(min_length=1, max_length=IDS_MAX)]


class JobsFound(Shape):
    """Those that exist in this workspace, in the order asked."""

    items: list[JobSummary]


def summary(view: JobView) -> JobSummary:
    """A job as lists show it."""
    shown = project_job(view.job)
    return JobSummary(
        job_id=view.row.job_id,
        run_id=view.row.run_id,
        status=word_of(shown.status),
        detail=shown.detail,
        state=word_of(view.row.state),
        reason_code=view.job.reason_code,
        attempt=view.attempt,
        transition_seq=view.row.transition_seq,
        priority=view.job.priority,
        submitted_at=view.times.iso(view.job.submitted_tick),
        changed_at=view.times.iso(view.row.tick),
    )


async def _list(call: Call) -> Answer:
    query: JobsQuery = call.query
    state = None if query.state is None else kernel_name(word_typed("query.state", query.state, JOB_STATES))
    filters = {"state": state, "run": query.run}
    before = None
    if query.cursor is not None:
        (number,) = read_cursor(query.cursor, "/v1/jobs", filters, (int,))
        before = int(number)
    found = await call.read(
        lambda reader: reader.jobs(call.workspace, run_id=query.run, state=state, before=before, limit=query.limit + 1)
    )
    shown = found[: query.limit]
    following = write_cursor("/v1/jobs", filters, (shown[-1][0],)) if len(found) > len(shown) else None
    return Answer(JobsPage(items=[summary(view) for _, view in shown], next=following))


async def _one(call: Call) -> Answer:
    view = await call.read(lambda reader: reader.job(call.workspace, call.path["job_id"]))
    return Answer(summary(view), tag=weak_tag(view.row.job_id, view.row.transition_seq))


async def _some(call: Call) -> Answer:
    body: JobIds = call.body
    found = await call.read(lambda reader: reader.jobs_of(call.workspace, body.job_ids))
    return Answer(JobsFound(items=[summary(view) for view in found]))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/jobs",
        _list,
        "List jobs, newest first.",
        "jobs:read",
        READING,
        {200: JobsPage},
        query=JobsQuery,
        pages=True,
    ),
    Route(
        "POST",
        "/v1/jobs:read",
        _some,
        "Read many jobs at once.",
        "jobs:read",
        READING,
        {200: JobsFound},
        body=JobIds,
        body_bytes_max=256 * 1024,
    ),
    Route(
        "GET",
        "/v1/jobs/{job_id}",
        _one,
        "Read a job.",
        "jobs:read",
        ("UNKNOWN_JOB", *READING),
        {200: JobSummary},
        etag=True,
    ),
)
