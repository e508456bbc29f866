"""The elements of a mapped step, read: one row for each item that it goes through, with its job, its attempts and its error."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from pydantic import Field

from detent.access.cursor import read_cursor, write_cursor
from detent.errors import InvalidInput
from detent.runs.record.recorded_run import RecordedElement
from detent.serve.call import Answer, Call, Shape
from detent.serve.element_facts import ElementFacts, ElementsWanted
from detent.serve.paging import LIMIT, Cursor, JobState, Limit
from detent.serve.table import READING, Route
from detent.words.states import word_of

INDEX_MAX: Final = 1 << 31


class ElementError(Shape):
    """Why the last attempt at an element failed."""

    category: str
    code: str
    message: str
    type: str | None


class Element(Shape):
    """One element of a step: a job of the run, a part of one, or a result of an earlier run."""

    name: str
    """As commands call it: `fetch[17]`, or the step alone where it is not mapped."""
    index: int | None
    """Its place in the list that the step goes through; null where the step is not mapped."""
    job_id: str
    """The job that it is, or that it shares with others; of an earlier run where it was reused."""
    element: int | None
    """Which part of that job it is; null where it has the job for itself."""
    state: str
    reused: bool
    reason_code: str | None
    attempt: int | None
    """The last attempt, counted from 1; null before the first."""
    failures: int
    """Attempts that failed."""
    worker: str | None
    changed_at: str | None
    ran_ms: int | None
    """How long its last attempt that ended took."""
    error: ElementError | None


class ElementsQuery(Shape):
    """Which elements, and where to go on."""

    state: JobState | None = None
    index: Annotated[int, Field(ge=0, le=INDEX_MAX)] | None = None
    """Only the element at this place."""
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class ElementsPage(Shape):
    """Elements in the order of their places. Those whose jobs are not submitted yet are not among them."""

    items: list[Element]
    next: str | None
    """The cursor of the following page; null on the last one."""
    mapped: bool
    total: int | None
    """How many elements the step has; null while that is not known."""


async def _list(call: Call) -> Answer:
    query: ElementsQuery = call.query
    run_id, key = call.path["run_id"], call.path["step"]
    filters = {"run": run_id, "step": key, "state": query.state, "index": _text(query.index)}
    first = 0
    if query.cursor is not None:
        first = int(read_cursor(query.cursor, "/v1/runs/steps/elements", filters, (int,))[0])
    wanted = ElementsWanted(key, partial(_fits, query), first, query.limit + 1)
    step, chosen = await call.read(lambda reader: reader.elements(call.workspace, run_id, wanted))
    if step is None:
        raise InvalidInput("what the run was started with is gone, and with it its steps", code="CONTENT_GONE")
    shown = chosen[: query.limit]
    more = len(chosen) > len(shown)
    following = write_cursor("/v1/runs/steps/elements", filters, (shown[-1].place + 1,)) if more else None
    items = [_shown(key, one) for one in shown]
    return Answer(ElementsPage(items=items, next=following, mapped=step.mapped, total=step.view.total))


def _fits(query: ElementsQuery, one: RecordedElement) -> bool:
    return query.state in {None, word_of(one.state)} and query.index in {None, one.index}


def _text(index: int | None) -> str | None:
    return None if index is None else str(index)


def _shown(key: str, facts: ElementFacts) -> Element:
    one, view, report = facts.element, facts.view, facts.report
    result = None if report is None else report.result
    failure = None if result is None else result.failure
    return Element(
        name=key if one.index is None else f"{key}[{one.index}]",
        index=one.index,
        job_id=one.carrier,
        element=one.place,
        state=word_of(one.state),
        reused=one.reused,
        reason_code=report.reason_code if report is not None else None if view is None else view.job.reason_code,
        attempt=None if view is None else view.attempt,
        failures=0 if view is None else view.job.failures,
        worker=None if view is None else view.job.lease_holder or (None if report is None else report.worker or None),
        changed_at=None if view is None else view.times.iso(view.row.tick),
        ran_ms=None if result is None else result.finished_ms - result.started_ms,
        error=None
        if failure is None
        else ElementError(category=failure.category, code=failure.code, message=failure.message, type=failure.type),
    )


ROUTES: Final = (
    Route(
        "GET",
        "/v1/runs/{run_id}/steps/{step}/elements",
        _list,
        "List the elements of a step: of a mapped one, those of each item with state, attempts and error.",
        "runs:read",
        ("UNKNOWN_RUN", "NOT_FOUND", "CONTENT_GONE", *READING),
        {200: ElementsPage},
        query=ElementsQuery,
        pages=True,
    ),
)
