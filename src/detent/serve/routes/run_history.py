"""Runs, looked back on: the timeline of one, and the difference of two."""

from __future__ import annotations

from typing import Final

from pydantic import JsonValue

from detent.access.cursor import read_cursor, write_cursor
from detent.access.headers import weak_tag
from detent.errors import InvalidInput
from detent.kernel.run import RUNNING
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import LIMIT, Cursor, Limit, Position
from detent.serve.records import LedgerRecord, record_of
from detent.serve.table import READING, Route


class Timeline(Shape):
    """The attempts of a run's own jobs as columns: row n of each is attempt n. Times are milliseconds since 1970."""

    step: list[str]
    index: list[int | None]
    job_id: list[str]
    attempt: list[int]
    waited_ms: list[int | None]
    """How long it waited for a worker before it began."""
    started_ms: list[int | None]
    ended_ms: list[int | None]
    worker: list[str | None]
    state: list[str]
    complete: bool
    """Whether all jobs are there; a large run is told for its first 2,000."""
    position: str
    """Where the ledger stood: ask with `since` to get only what has changed behind it."""


class TimelineQuery(Shape):
    """From where on."""

    since: Position | None = None
    """Only the jobs that have changed behind this position: of an earlier answer, or the id of an event."""


class RecordsQuery(Shape):
    """How many records, and where to go on."""

    limit: Limit = LIMIT
    cursor: Cursor | None = None


class RunRecords(Shape):
    """Records of a run on the ledger, in the order of partition and position: its own, and the submissions of its jobs."""

    items: list[LedgerRecord]
    next: str | None
    """The cursor of the following page; null on the last one."""


class Changed(Shape):
    """A name with two values."""

    name: str
    old: JsonValue
    new: JsonValue


class ElementDifference(Shape):
    """What differs in one job of a step."""

    index: int | None
    job_ids: list[str]
    ingredients: list[Changed]
    """What its key was made of: code, arguments, inputs, versions; by digest."""
    result_digests: list[str | None]


class StepDifference(Shape):
    """What differs in a step that both runs have; pairs are the first run's and the second's."""

    step: str
    state: list[str]
    ran_ms: list[int | None]
    total: list[int | None]
    elements: list[ElementDifference]


class RunDifference(Shape):
    """What differs between two runs."""

    params: list[Changed]
    steps_added: list[str]
    steps_removed: list[str]
    steps_changed: list[StepDifference]
    complete: bool
    """Whether everything was compared; of a step, the first 2,000 elements are."""


def _gone() -> InvalidInput:
    return InvalidInput(
        "the run has no steps to show: it is not a run of a contract, or its inputs were erased",
        code="CONTENT_GONE",
        hint="GET /v1/jobs?run= lists its jobs",
    )


async def _timeline(call: Call) -> Answer:
    query: TimelineQuery = call.query
    view, columns = await call.read(lambda reader: reader.timeline(call.workspace, call.path["run_id"], query.since))
    if columns is None:
        raise _gone()
    tag = None if view.row.status == RUNNING else weak_tag("timeline", view.row.run_id, view.row.body, query.since)
    return Answer(Timeline.model_validate(columns), tag=tag)


async def _records(call: Call) -> Answer:
    query: RecordsQuery = call.query
    run_id, behind = call.path["run_id"], (-1, -1)
    filters = {"run": run_id}
    if query.cursor is not None:
        partition, position = read_cursor(query.cursor, "/v1/runs/records", filters, (int, int))
        behind = (int(partition), int(position))
    found = await call.read(lambda reader: reader.run_records(call.workspace, run_id, behind, query.limit + 1))
    shown = [record_of(one) for one in found[: query.limit]]
    more = len(found) > len(shown)
    following = write_cursor("/v1/runs/records", filters, (shown[-1].partition, shown[-1].position)) if more else None
    return Answer(RunRecords(items=shown, next=following))


async def _diff(call: Call) -> Answer:
    first, second = call.path["run_id"], call.path["other_id"]
    told = await call.read(lambda reader: reader.difference(call.workspace, first, second))
    if told is None:
        raise _gone()
    return Answer(RunDifference.model_validate(told))


_OWN: Final = ("UNKNOWN_RUN", "CONTENT_GONE", *READING)
ROUTES: Final = (
    Route(
        "GET",
        "/v1/runs/{run_id}/timeline",
        _timeline,
        "Read when each attempt of a run waited, began and ended, as columns.",
        "runs:read",
        _OWN,
        {200: Timeline},
        query=TimelineQuery,
        etag=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/records",
        _records,
        "List a run's records on the ledger: its own, and the submissions of its jobs.",
        "runs:read",
        ("UNKNOWN_RUN", *READING),
        {200: RunRecords},
        query=RecordsQuery,
        pages=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/diff/{other_id}",
        _diff,
        "Compare two runs: parameters, steps, what their work was made of, and results.",
        "runs:read",
        (*_OWN, "NO_STEPS"),
        {200: RunDifference},
    ),
)
