"""What commands print, as data: for `detent ... --connect`, which draws it on the terminal of its user.

The functions are those of the local commands, so the words are the same. They read through a reader that finds the rows of one
workspace alone (`serve/own_rows.py`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue

from detent.errors import InvalidInput
from detent.owner.ticks import SystemClock
from detent.pages import logs
from detent.pages.explain import explain
from detent.pages.list import Wanted, list_rows
from detent.pages.result import result
from detent.pages.sheet import Told
from detent.pages.show import show
from detent.serve.call import Answer, Call, Shape
from detent.serve.paging import JobState
from detent.serve.table import READING, Route
from detent.serve.tenant_reader import TenantReader
from detent.words.states import kernel_name

ROWS_MAX: Final = 100_000
JOBS_MAX: Final = 500
FOLLOWED_MAX: Final = 10_000
FOLLOW_SECONDS_MAX: Final = 20
FOLLOW_PAUSE: Final = 0.2
SEEN_BYTES_MAX: Final = 4 * 1024 * 1024

Name = Annotated[str, Field(min_length=1, max_length=200)]
"""What a user types for a job, run or step: an id, its beginning, or a name."""
Place = Annotated[int, Field(ge=0, le=1 << 53)]


class PageAnswer(Shape):
    """What a command prints."""

    document: JsonValue
    """What `-o json` prints; null where only the page was asked for."""
    page: list[JsonValue]
    """The page, as parts that a terminal draws: lines, fields, hanging text and tables."""
    notes: list[str]
    """What is said beside it, on standard error."""
    exit_code: int


class PageListQuery(Shape):
    """Which rows."""

    jobs: bool = False
    run: Name | None = None
    state: JobState | None = None
    correlation: Name | None = None
    label: Name | None = None
    pool: Name | None = None
    most: Annotated[int, Field(ge=1, le=ROWS_MAX)] = ROWS_MAX
    whole: bool = False
    """Whether the document is wanted."""


class PageShowQuery(Shape):
    """What to show."""

    id: Name
    what: Literal["job", "run"] | None = None
    raw: bool = False
    snapshot: bool = False


class PageExplainQuery(Shape):
    """What to explain."""

    id: Name
    step: Name | None = None


class PageResultQuery(Shape):
    """Which job."""

    id: Name


class FindQuery(Shape):
    """What a user typed."""

    id: Name
    run: Name | None = None
    named: Literal["newest", "open", "only"] = "newest"
    """Which run the name of a workflow stands for."""


class FoundJobShape(Shape):
    """A job with its name."""

    job_id: str
    step: str
    index: int | None
    reused: bool
    element: int | None
    elements: int


class FoundShape(Shape):
    """What an identifier stands for."""

    kind: str
    run_id: str | None
    step: str | None
    jobs: list[FoundJobShape]


class LogOf(Shape):
    """A job, or one element of it."""

    job_id: Name
    element: Place | None = None


class LogsBody(Shape):
    """Whose output."""

    jobs: Annotated[list[LogOf], Field(min_length=1, max_length=JOBS_MAX)]


class LogsAnswer(Shape):
    """What jobs printed, in the order asked: as many as fit into an answer, at least the first."""

    items: list[JsonValue]


class SeenShape(Shape):
    """How far something was followed; as the last answer had it."""

    position: Place
    quiet: Place
    failed: bool
    jobs: Annotated[dict[Name, JsonValue], Field(max_length=FOLLOWED_MAX)]


class FollowBody(Shape):
    """What to follow, and from where on."""

    job_ids: Annotated[list[Name], Field(max_length=1, default_factory=list)]
    run_id: Name | None = None
    step: Name | None = None
    seen: SeenShape | None = None
    wait: Annotated[int, Field(ge=0, le=FOLLOW_SECONDS_MAX)] = 0
    """For how long the answer may wait for something new, in seconds."""


class FollowAnswer(Shape):
    """What is new."""

    jobs: list[FoundJobShape]
    pieces: list[JsonValue]
    seen: JsonValue
    ended: bool
    ok: bool
    waiting: bool
    owned: bool


async def _list(call: Call) -> Answer:
    query: PageListQuery = call.query
    state = None if query.state is None else kernel_name(query.state)
    wanted = Wanted(
        query.jobs, query.run, state, query.correlation, query.most, query.whole, label=query.label, pool=query.pool
    )
    now_ms = SystemClock().wall_ms()
    found = await call.read(
        lambda reader: reader.page(
            call.workspace, lambda home, rows: list_rows(home, rows, wanted, now_ms=now_ms, tenant=call.workspace)
        )
    )
    return _page(found)


async def _show(call: Call) -> Answer:
    query: PageShowQuery = call.query
    found = await call.read(
        lambda reader: reader.page(
            call.workspace,
            lambda home, rows: show(
                home, rows, query.id, query.what, raw=query.raw, snapshot=query.snapshot, local=False
            ),
        )
    )
    return _page(found)


async def _explain(call: Call) -> Answer:
    query: PageExplainQuery = call.query
    own = call.workspace
    found = await call.read(
        lambda reader: reader.page(own, lambda home, rows: explain(home, rows, query.id, query.step, tenant=own))
    )
    return _page(found)


async def _result(call: Call) -> Answer:
    query: PageResultQuery = call.query

    found = await call.read(lambda reader: reader.page(call.workspace, lambda home, rows: result(home, rows, query.id)))
    return _page(found)


async def _find(call: Call) -> Answer:
    query: FindQuery = call.query
    found = await call.read(
        lambda reader: reader.page(
            call.workspace, lambda home, rows: logs.find(home, rows, query.id, query.run, query.named)
        )
    )
    return Answer(FoundShape.model_validate(found))


async def _logs(call: Call) -> Answer:
    body: LogsBody = call.body
    wanted = [(one.job_id, one.element) for one in body.jobs]
    await call.serving.turns.watch_first(call.workspace, [job_id for job_id, _ in wanted])
    items = await call.read(
        lambda reader: reader.page(call.workspace, lambda home, rows: logs.logs(home, rows, wanted))
    )
    return Answer(LogsAnswer(items=list[JsonValue](items)))


async def _follow(call: Call) -> Answer:
    body: FollowBody = call.body
    asked = logs.Asked(body.job_ids, body.run_id, body.step, _seen(body.seen))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + body.wait
    while True:
        poll = partial(logs.follow, asked=asked)
        news = await call.read(partial(TenantReader.page, tenant=call.workspace, make=poll))
        for job_id in news.seen.jobs:
            call.serving.turns.watch(call.workspace, job_id)
        if news.pieces or news.ended or loop.time() >= deadline or call.serving.hub.draining.is_set():
            return Answer(FollowAnswer.model_validate(news.to_map()))
        asked = logs.Asked(asked.job_ids, asked.run_id, asked.step, news.seen)
        await asyncio.sleep(FOLLOW_PAUSE)


def _seen(sent: SeenShape | None) -> Any:
    try:
        return None if sent is None else logs.read_seen(sent.model_dump())
    except (KeyError, TypeError, ValueError):
        message = "is what an earlier answer had"
        raise InvalidInput(
            f"body.seen {message}",
            code="VALIDATION_ERROR",
            details={"errors": [{"path": "body.seen", "message": message}]},
        ) from None


def _page(found: Told) -> Answer:
    return Answer(PageAnswer.model_validate(found.to_map()))


_NAMED: Final = ("UNKNOWN_JOB", "UNKNOWN_RUN", "INVALID_PARAMS", *READING)
ROUTES: Final = (
    Route(
        "GET",
        "/v1/pages/list",
        _list,
        "Give what `detent list` prints.",
        "jobs:read",
        _NAMED,
        {200: PageAnswer},
        query=PageListQuery,
    ),
    Route(
        "GET",
        "/v1/pages/show",
        _show,
        "Give what `detent show` prints.",
        "jobs:read",
        _NAMED,
        {200: PageAnswer},
        query=PageShowQuery,
    ),
    Route(
        "GET",
        "/v1/pages/explain",
        _explain,
        "Give what `detent explain` prints.",
        "jobs:read",
        _NAMED,
        {200: PageAnswer},
        query=PageExplainQuery,
    ),
    Route(
        "GET",
        "/v1/pages/result",
        _result,
        "Give what `detent result` prints.",
        "jobs:read",
        (*_NAMED, "RESULT_NOT_READY", "CONTENT_GONE"),
        {200: PageAnswer},
        query=PageResultQuery,
    ),
    Route(
        "GET",
        "/v1/pages/find",
        _find,
        "Find the job, run or step that a user means by an id, its beginning or a name.",
        "jobs:read",
        _NAMED,
        {200: FoundShape},
        query=FindQuery,
    ),
    Route(
        "POST",
        "/v1/pages/logs",
        _logs,
        "Give what jobs printed, attempt by attempt, in base64.",
        "logs:read",
        _NAMED,
        {200: LogsAnswer},
        body=LogsBody,
        body_bytes_max=256 * 1024,
    ),
    Route(
        "POST",
        "/v1/pages/follow",
        _follow,
        "Give what jobs have printed since the last answer; what was seen comes with the question.",
        "logs:read",
        _NAMED,
        {200: FollowAnswer},
        body=FollowBody,
        body_bytes_max=SEEN_BYTES_MAX,
    ),
)
