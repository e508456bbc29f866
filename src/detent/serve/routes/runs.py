"""Runs, read: lists, one run, its steps, its graph, and why each step is where it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Final

from pydantic import Field, JsonValue

from detent.access.cursor import read_cursor, write_cursor
from detent.access.headers import weak_tag
from detent.errors import InvalidInput
from detent.kernel.run import COMPLETED
from detent.kernel.run import RUNNING as RUN_RUNNING
from detent.owner.views import RunView
from detent.runs.record.inputs import RETRY_OF
from detent.runs.record.recorded_run import RecordedRun, RecordedStep
from detent.runs.schedules.keeper import SCHEDULE_ID
from detent.serve.call import Answer, Call, Shape
from detent.serve.listing import Place, RunFilter
from detent.serve.paging import (
    LIMIT,
    NDJSON,
    Cursor,
    Limit,
    Moment,
    Position,
    Prefix,
    RunStatus,
    StepState,
    moment_ms,
    whole_listing,
)
from detent.serve.requesters import Starter
from detent.serve.table import READING, Route
from detent.serve.times import written_ms
from detent.serve.waiting import Wait, until_ended
from detent.words.states import SUCCEEDED, word_of

STEPS_MAX: Final = 2_000
JOBS_SHOWN_MAX: Final = 20
"""Jobs of one step that its row names; `GET /v1/jobs?run=` has all."""


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


class RunVerified(Shape):
    """The last verification of a run that this server made; `GET /v1/runs/{run_id}/verify` has what it proved and what it did not."""

    state: str
    """`running`, `done`, or `failed` where it could not be made."""
    ok: bool | None
    """Whether everything that was checked holds; null until it is done."""
    started_at: str
    """What was recorded later, it did not see."""
    ended_at: str | None


class RunListed(RunSummary):
    """A run in a list."""

    requested_by: str | None
    """The name of the principal that started it, or its id; null for a run that was started in the home itself."""
    schedule_id: str | None
    """The schedule that started it."""
    verified: RunVerified | None
    """Null for a run that this server has not verified since it was started."""


class StepCounts(Shape):
    """Steps by state."""

    state: str
    steps: int


class RunOccurrence(Shape):
    """The occurrence of a schedule that a run was started for."""

    scheduled_for: str
    schedule_id: str | None
    """Null for a run of `detent run --watch`."""
    missed: JsonValue
    """The occurrences since the run before it that no run was started for, with the reasons; null when there were none."""


class RunDetail(RunSummary):
    """A run with its inputs and a summary of its steps."""

    operation_id: str
    occurrence: RunOccurrence | None
    """Null for a run that was not started by a schedule."""
    file: str | None
    """The contract file or flow it was started from; null when that was erased."""
    requested_by: str | None
    """The name of the principal that started it, or its id; null for a run that was started in the home itself."""
    params: JsonValue
    message: str | None
    """Why it ended as a whole, where its steps do not say it."""
    steps: list[StepCounts] | None
    """Null for a run without steps: of `detent map`, or whose inputs were erased."""


class RunQuery(Shape):
    """Whether to wait for its end."""

    wait: Wait = 0


class RunsQuery(Shape):
    """Which runs, and where to go on."""

    status: RunStatus | None = None
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    q: Prefix | None = None
    """The beginning of their ids; listed by id then, and goes with no other filter."""
    since: Moment | None = None
    """Started then or later."""
    until: Moment | None = None
    """Started before."""
    limit: Limit = LIMIT
    cursor: Cursor | None = None


class RunsPage(Shape):
    """Runs, newest first."""

    items: list[RunListed]
    next: str | None
    """The cursor of the following page; null on the last one."""


class StepJob(Shape):
    """A job of a step."""

    index: int | None
    job_id: str
    state: str
    reused: bool


class Step(Shape):
    """One step of a run."""

    step: str
    name: str
    state: str
    needs: list[str]
    waits_for: list[str]
    mapped: bool
    total: int | None
    done: int
    reused: int
    running: int
    failed: int
    retries: int
    started_ms: int | None
    ended_ms: int | None
    ran_ms: int | None
    message: str | None
    jobs: list[StepJob]
    """The first of its jobs."""


class StepsQuery(Shape):
    """Which steps, and where to go on."""

    state: StepState | None = None
    q: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Only the steps whose key or name has this text, in whatever case."""
    changed_since: Position | None = None
    """Only the steps that may have changed behind this position: of an earlier answer, or the id of an event."""
    limit: Annotated[int, Field(ge=1, le=STEPS_MAX)] = STEPS_MAX
    cursor: Cursor | None = None


class StepsPage(Shape):
    """Steps in the order of the contract."""

    items: list[Step]
    next: str | None
    position: str
    """Where the ledger stood: ask with `changed_since` to get only what has changed behind it."""


class Graph(Shape):
    """The steps and what they need, as columns: row n of each is step n."""

    steps: list[str]
    names: list[str]
    wave: list[int]
    """How many steps must end before it, one after the other."""
    mapped: list[bool]
    edges: list[list[int]]
    """Pairs of rows: the first is needed by the second."""


class RunExplanation(Shape):
    """Why each step of a run is where it is."""

    run_id: str
    name: str
    status: str
    driven: bool | None
    """Whether a process drives it now; null for a run that has ended."""
    options: JsonValue
    lines: list[str]
    steps: list[JsonValue]


class ExplainQuery(Shape):
    """Which step; all where none is named."""

    step: Annotated[str, Field(min_length=1, max_length=200)] | None = None


def summary(view: RunView) -> dict[str, object]:
    """What lists show of a run."""
    row, times = view.row, view.times
    return {
        "run_id": row.run_id,
        "name": row.name,
        "status": word_of(row.status),
        "reason_code": view.run.reason_code,
        "jobs": view.run.jobs,
        "live_jobs": view.run.live_jobs,
        "jobs_reused": view.run.steps_reused,
        "started_at": times.iso(row.started_tick),
        "ended_at": None if row.ended_tick is None else times.iso(row.ended_tick),
    }


def _tag(view: RunView) -> str | None:
    """The entity tag of a run that has ended; until then its steps go on without a change of its row."""
    return None if view.row.status == RUN_RUNNING else weak_tag(view.row.run_id, view.row.body)


async def _list(call: Call) -> Answer:
    query: RunsQuery = call.query
    filters = {name: getattr(query, name) for name in ("status", "name", "q", "since", "until")}
    place = None if query.cursor is None else read_cursor(query.cursor, "/v1/runs", filters, (int, str))
    wanted = RunFilter(
        COMPLETED if query.status == SUCCEEDED else query.status,
        *(query.name, query.q, moment_ms(query.since), moment_ms(query.until)),
    )
    wanted.insist_on_index()

    async def page(at: Place | None, limit: int) -> tuple[list[tuple[RunView, Starter]], Place | None]:
        return await call.read(lambda reader: reader.runs(call.workspace, wanted, at, limit))

    if call.media_type == NDJSON:
        return whole_listing(page, place, partial(_listed, call))
    found, behind = await page(place, query.limit)
    following = None if behind is None else write_cursor("/v1/runs", filters, behind)
    return Answer(RunsPage(items=[_listed(call, one) for one in found], next=following))


def _listed(call: Call, one: tuple[RunView, Starter]) -> RunListed:
    view, starter = one
    known = call.serving.auditing.verification(call.workspace, view.row.run_id)
    verified = known and {
        "state": known.state,
        "ok": None if known.report is None else known.report["ok"],
        "started_at": written_ms(known.started_ms),
        "ended_at": written_ms(known.ended_ms),
    }
    named = _named(call, starter.principal_id)
    return RunListed.model_validate(
        {**summary(view), "requested_by": named, "schedule_id": starter.schedule_id, "verified": verified}
    )


async def _one(call: Call) -> Answer:
    query: RunQuery = call.query
    run_id = call.path["run_id"]
    await until_ended(
        call.serving.hub,
        "run",
        run_id,
        query.wait,
        lambda: call.read(lambda reader: reader.run(call.workspace, run_id)),
        lambda view: view.row.ended_tick is not None,
    )
    view, recorded = await call.read(lambda reader: reader.recorded(call.workspace, run_id))
    counts: dict[str, int] = {}
    for step in () if recorded is None else recorded.steps:
        counts[step.view.state] = counts.get(step.view.state, 0) + 1
    detail = RunDetail.model_validate(
        {
            **summary(view),
            "operation_id": view.run.operation_id,
            "occurrence": None if recorded is None else _occurrence(recorded.inputs.about),
            "file": None if recorded is None else recorded.inputs.contract.name,
            "requested_by": None if recorded is None else _requester(call, recorded.inputs.about),
            "params": None if recorded is None else dict(recorded.inputs.params),
            "message": None if recorded is None else recorded.message or None,
            "steps": None
            if recorded is None
            else [{"state": state, "steps": number} for state, number in sorted(counts.items())],
        }
    )
    return Answer(detail, tag=_tag(view))


def _requester(call: Call, about: Mapping[str, JsonValue]) -> str | None:
    named = about.get("requested_by")
    return _named(call, named) if isinstance(named, str) else None


def _named(call: Call, principal_id: str | None) -> str | None:
    """What a principal is called: its name, or its id where it has none."""
    return None if principal_id is None else call.serving.access.names().get(principal_id, principal_id)


def _occurrence(about: Mapping[str, JsonValue]) -> RunOccurrence | None:
    scheduled_for, schedule_id = about.get("scheduled_for"), about.get(SCHEDULE_ID)
    if not isinstance(scheduled_for, str) or RETRY_OF in about:
        return None
    own = schedule_id if isinstance(schedule_id, str) else None
    return RunOccurrence(scheduled_for=scheduled_for, schedule_id=own, missed=about.get("missed"))


async def _steps(call: Call) -> Answer:
    query: StepsQuery = call.query
    run_id = call.path["run_id"]
    filters = {"run": run_id, "state": query.state, "q": query.q, "changed_since": query.changed_since}
    first = 0
    if query.cursor is not None:
        (place,) = read_cursor(query.cursor, "/v1/runs/steps", filters, (int,))
        first = int(place)
    asked = ("steps", query.state, query.q, query.limit, first)
    view, shown = await call.read(
        lambda reader: reader.steps(
            call.workspace, run_id, query.changed_since, asked, partial(_steps_page, query, filters, first)
        )
    )
    if shown is None:
        raise _gone()
    tag = _tag(view)
    return Answer(shown, tag=None if tag is None else weak_tag(tag, query.changed_since, query.state, query.q, first))


def _steps_page(
    query: StepsQuery,
    filters: Mapping[str, str | None],
    first: int,
    recorded: RecordedRun,
    position: str,
    changed: frozenset[str] | None,
) -> bytes:
    """A page of steps, made on a thread that reads: thousands of them take a while."""
    state, text = query.state, (query.q or "").lower()
    chosen = [
        (place, step)
        for place, step in enumerate(recorded.steps)
        if place >= first
        and (state is None or step.view.state == state)
        and (changed is None or step.key in changed)
        and (text in step.key.lower() or text in step.view.name.lower())
    ]
    shown = chosen[: query.limit]
    following = write_cursor("/v1/runs/steps", filters, (shown[-1][0] + 1,)) if len(chosen) > len(shown) else None
    page = StepsPage(items=[_step(step) for _, step in shown], next=following, position=position)
    return page.model_dump_json().encode()


def _step(step: RecordedStep) -> Step:
    view = step.view
    return Step(
        step=step.key,
        name=view.name,
        state=view.state,
        needs=list(step.needs),
        waits_for=list(step.waits_for),
        mapped=step.mapped,
        total=view.total,
        done=view.done,
        reused=view.cached,
        running=view.running,
        failed=view.failed,
        retries=view.retries,
        started_ms=view.started_ms,
        ended_ms=view.ended_ms,
        ran_ms=view.ran_ms,
        message=view.message or None,
        jobs=[
            StepJob(index=one.index, job_id=one.job_id, state=word_of(one.state), reused=one.reused)
            for one in step.elements[:JOBS_SHOWN_MAX]
        ],
    )


async def _graph(call: Call) -> Answer:
    view, shown = await call.read(
        lambda reader: reader.shown_run(call.workspace, call.path["run_id"], "graph", _graph_of)
    )
    if shown is None:
        raise _gone()
    # The contract of a run never changes, whatever its steps do.
    return Answer(shown, tag=weak_tag("graph", view.run.contract_digest, view.run.bindings_digest))


def _graph_of(recorded: RecordedRun) -> bytes:
    rows = {step.key: place for place, step in enumerate(recorded.steps)}
    graph = Graph(
        steps=list(rows),
        names=[step.view.name for step in recorded.steps],
        wave=_waves(recorded),
        mapped=[step.mapped for step in recorded.steps],
        edges=[[rows[need], rows[step.key]] for step in recorded.steps for need in step.needs if need in rows],
    )
    return graph.model_dump_json().encode()


def _waves(recorded: RecordedRun) -> list[int]:
    """For each step the length of the longest way to it. Needs that the run does not have count for nothing."""
    needs = {step.key: step.needs for step in recorded.steps}
    open_needs = {key: sum(need in needs for need in own) for key, own in needs.items()}
    needed_by: dict[str, list[str]] = {key: [] for key in needs}
    for key, own in needs.items():
        for need in own:
            if need in needed_by:
                needed_by[need].append(key)
    waves = dict.fromkeys(needs, 0)
    ready = deque(key for key, number in open_needs.items() if not number)
    while ready:
        key = ready.popleft()
        for following in needed_by[key]:
            waves[following] = max(waves[following], waves[key] + 1)
            open_needs[following] -= 1
            if not open_needs[following]:
                ready.append(following)
    return [waves[step.key] for step in recorded.steps]


async def _explain(call: Call) -> Answer:
    query: ExplainQuery = call.query
    found = await call.read(lambda reader: reader.explain_run(call.workspace, call.path["run_id"], query.step))
    return Answer(RunExplanation.model_validate(found))


def _gone() -> InvalidInput:
    return InvalidInput(
        "the run has no steps to show: it is not a run of a contract, or its inputs were erased",
        code="CONTENT_GONE",
        hint="GET /v1/jobs?run= lists its jobs",
    )


_OWN: Final = ("UNKNOWN_RUN", *READING)
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
        also=(NDJSON,),
        pages=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}",
        _one,
        "Read a run; with `wait`, when it has ended or the time is over.",
        "runs:read",
        _OWN,
        {200: RunDetail},
        query=RunQuery,
        etag=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/steps",
        _steps,
        "List the steps of a run.",
        "runs:read",
        (*_OWN, "CONTENT_GONE"),
        {200: StepsPage},
        query=StepsQuery,
        etag=True,
        pages=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/graph",
        _graph,
        "Read which step of a run needs which.",
        "runs:read",
        (*_OWN, "CONTENT_GONE"),
        {200: Graph},
        etag=True,
    ),
    Route(
        "GET",
        "/v1/runs/{run_id}/explain",
        _explain,
        "Explain why each step of a run waits, ran, was reused or failed.",
        "runs:read",
        (*_OWN, "INVALID_PARAMS"),
        {200: RunExplanation},
        query=ExplainQuery,
    ),
)
