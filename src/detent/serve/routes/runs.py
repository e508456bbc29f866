"""Runs, read: lists, one run, and everything that is known about it."""

from __future__ import annotations

from typing import Final

from detent.access.cursor import read_cursor, write_cursor
from detent.access.headers import weak_tag
from detent.kernel.run import COMPLETED
from detent.owner.views import RunView
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import LIMIT, Cursor, Limit, word_typed
from detent.serve.table import READING, Route
from detent.words.states import CANCELLED, FAILED, RUNNING, SUCCEEDED, word_of

FILTERS: Final = (RUNNING, SUCCEEDED, FAILED, CANCELLED)


class RunSummary(Shape):
    """A run as it stands."""

    run_id: str
    name: str
    status: str
    """`running`, `succeeded`, `failed` or `cancelled`."""
    reason_code: str | None
    jobs: int
    live_jobs: int
    jobs_reused: int
    started_at: str
    ended_at: str | None


class RunsQuery(Shape):
    """Which runs, and where to go on."""

    status: str | None = None
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class RunsPage(Shape):
    """Runs, newest first."""

    items: list[RunSummary]
    next: str | None
    """The cursor of the following page; null on the last one."""


def summary(view: RunView) -> RunSummary:
    """A run as lists show it."""
    row, times = view.row, view.times
    return RunSummary(
        run_id=row.run_id,
        name=row.name,
        status=word_of(row.status),
        reason_code=view.run.reason_code,
        jobs=view.run.jobs,
        live_jobs=view.run.live_jobs,
        jobs_reused=view.run.steps_reused,
        started_at=times.iso(row.started_tick),
        ended_at=None if row.ended_tick is None else times.iso(row.ended_tick),
    )


def run_tag(view: RunView) -> str:
    """The entity tag of a run: it changes with every job of it."""
    return weak_tag(view.row.run_id, view.row.body)


async def _list(call: Call) -> Answer:
    query: RunsQuery = call.query
    word = None if query.status is None else word_typed("query.status", query.status, FILTERS)
    status = COMPLETED if word == SUCCEEDED else word
    filters = {"status": status}
    before = None
    if query.cursor is not None:
        tick, run_id = read_cursor(query.cursor, "/v1/runs", filters, (int, str))
        before = (int(tick), str(run_id))
    found = await call.read(
        lambda reader: reader.runs(call.workspace, status=status, before=before, limit=query.limit + 1)
    )
    shown = found[: query.limit]
    following = None
    if len(found) > len(shown):
        last = shown[-1].row
        following = write_cursor("/v1/runs", filters, (last.started_tick, last.run_id))
    return Answer(RunsPage(items=[summary(view) for view in shown], next=following))


async def _one(call: Call) -> Answer:
    view = await call.read(lambda reader: reader.run(call.workspace, call.path["run_id"]))
    return Answer(summary(view), tag=run_tag(view))


ROUTES: Final = (
    Route(
        "GET",
        "/v1/runs",
        _list,
        "List runs, newest first.",
        "runs:read",
        READING,
        {200: RunsPage},
        query=RunsQuery,
        pages=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}",
        _one,
        "Read a run.",
        "runs:read",
        ("UNKNOWN_RUN", *READING),
        {200: RunSummary},
        etag=True,
    ),
)
