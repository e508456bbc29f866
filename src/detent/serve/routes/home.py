"""The home as a whole: how many jobs and runs, what waits in the queue, and events as they happen."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field

from detent.access.scopes import roles_hint
from detent.errors import InvalidInput, RequestRefused
from detent.serve.call import Answer, Call, Shape
from detent.serve.serving import Serving
from detent.serve.table import READING, Route
from detent.words.states import word_of

TOPICS_MAX: Final = 50
ABSENT: Final = frozenset({"silent", "never", "retired"})
"""The states of workers elsewhere that take no job now."""
_TOPIC: Final = re.compile(r"jobs|runs|queue|workers|audit|(?:job|run|log|session):[A-Za-z0-9._:~/-]{1,200}")
_SCOPES: Final = {
    "run": "runs:read",
    "runs": "runs:read",
    "log": "logs:read",
    "queue": "queue:read",
    "workers": "workers:read",
    "audit": "audit:read",
    "session": "sessions:read",
}
"""What a topic needs beside jobs:read."""


class Counts(Shape):
    """Exact numbers of this workspace, kept with every commit."""

    jobs: dict[str, int]
    """By state, as the ledger has it."""
    runs: dict[str, int]
    """By status."""


class QueueClass(Shape):
    """One class of priority in one pool."""

    priority: int
    waiting: int
    capacity: int


class QueuePool(Shape):
    """One pool of workers."""

    pool: str
    """Empty for the pool of workers that are not registered as replicas."""
    waiting: int
    oldest_at: str | None
    """Since when the job waits that has waited longest of those that go next in their classes; null when none waits."""
    classes: list[QueueClass]


class QueuePlace(Shape):
    """Where a waiting job of this workspace stands."""

    job_id: str
    pool: str
    priority: int
    place: int
    """Among all that wait for its pool (and its partition, where the home has several); 1 goes next."""
    queued_at: str


class Queue(Shape):
    """What waits, of all workspaces together."""

    waiting: int
    capacity: int
    rejected_per_minute: int
    """Jobs of any workspace that were refused for want of room in the last minute."""
    slots: int
    """Jobs that the workers elsewhere can have at once, of all that are not silent."""
    slots_busy: int
    """How many of them they have."""
    pools: list[QueuePool]
    own: list[QueuePlace]
    """The first 50 waiting jobs of this workspace; empty in events, and while more than 10,000 jobs wait for their pool."""


class EventsQuery(Shape):
    """What to follow."""

    topics: Annotated[str, Field(min_length=1, max_length=12_000)]
    """Up to 50, comma-joined: `jobs`, `runs`, `job:ID`, `run:ID` (the run and its jobs), `log:JOB` (its output as it comes), `queue`
    (at most once a second), `workers` (those elsewhere that may run this workspace's jobs), `session:ID` (what is left of its budgets), `audit` (actions of operators)."""


class Topics(Shape):
    """What a stream follows from now on."""

    topics: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=210)]], Field(min_length=1, max_length=TOPICS_MAX)
    ]


async def _counts(call: Call) -> Answer:
    hub, own = call.serving.hub, call.workspace
    jobs = {word_of(state): number for (tenant, state), number in hub.jobs.items() if tenant == own and number}
    runs = {word_of(status): number for (tenant, status), number in hub.runs.items() if tenant == own and number}
    return Answer(Counts(jobs=dict(sorted(jobs.items())), runs=dict(sorted(runs.items()))))


async def _queue(call: Call) -> Answer:
    return Answer(await queue_of(call.serving, call.workspace))


async def queue_of(serving: Serving, workspace: str | None = None) -> Queue:
    """What waits now, and where jobs of a workspace stand."""
    found = await asyncio.to_thread(serving.metrics.queues, serving.session, workspace)
    moments: dict[int, str] = await serving.readers.read(
        lambda reader: reader.moments({*found.oldest.values(), *(one.queued_tick for one in found.own)})
    )
    present = [worker for worker in serving.turns.fleet if worker.state not in ABSENT]
    pools = [
        QueuePool(
            pool=pool,
            waiting=sum(depths.values()),
            oldest_at=moments[found.oldest[pool]] if pool in found.oldest else None,
            classes=[
                QueueClass(priority=priority, waiting=depth, capacity=found.capacity_per_class[priority])
                for priority, depth in sorted(depths.items(), reverse=True)
            ],
        )
        for pool, depths in sorted(found.depths.items())
    ]
    return Queue(
        waiting=sum(pool.waiting for pool in pools),
        capacity=found.capacity_total,
        rejected_per_minute=serving.counters.rejected.in_last_minute(time.monotonic()),
        slots=sum(worker.slots for worker in present),
        slots_busy=sum(len(worker.leases) for worker in present),
        pools=pools,
        own=[
            QueuePlace(
                job_id=one.job_id,
                pool=one.pool,
                priority=one.priority,
                place=one.place,
                queued_at=moments[one.queued_tick],
            )
            for one in found.own
        ],
    )


async def _events(call: Call) -> Answer:
    query: EventsQuery = call.query
    topics = await _topics(call, query.topics.split(","), "query.topics")
    serving, principal = call.serving, call.principal
    assert principal is not None
    open_here = serving.hub.streams_of(principal.credential_id)
    most = serving.access.streams_max(call.workspace)
    most_of_all = serving.access.rates.streams_of_server
    if serving.hub.streams >= most_of_all or open_here >= most:
        raise RequestRefused(
            f"a credential has at most {most:,} streams here, the server {most_of_all:,}", code="STREAMS_FULL"
        )
    frames = serving.hub.stream(call.workspace, principal.credential_id, topics, call.last_event_id)
    return Answer(frames, headers={"x-accel-buffering": "no"})


async def _change(call: Call) -> Answer:
    body: Topics = call.body
    topics = await _topics(call, body.topics, "body.topics")
    principal = call.principal
    assert principal is not None
    if not call.serving.hub.choose(call.workspace, principal.credential_id, call.path["stream"], topics):
        raise RequestRefused("the credential has no such stream open", code="NOT_FOUND")
    return Answer(Topics(topics=sorted(topics)))


async def _topics(call: Call, written: Sequence[str], path: str) -> frozenset[str]:
    """The topics of a stream, each one that this workspace has and the credential may see."""
    topics = frozenset(written)
    assert call.principal is not None
    faults = [topic for topic in topics if not _TOPIC.fullmatch(topic)]
    if faults or len(topics) > TOPICS_MAX:
        message = (
            f"is a list of at most {TOPICS_MAX} topics: jobs, runs, job:ID, run:ID, log:JOB, session:ID, queue, workers,"
            " audit"
        )
        raise InvalidInput(
            f"{path} {message}",
            code="VALIDATION_ERROR",
            details={"errors": [{"path": path, "message": message}]},
        )
    for topic in sorted(topics):
        scope = _SCOPES.get(topic.partition(":")[0])
        if scope is not None and not call.principal.may(scope):
            raise RequestRefused(f"the credential lacks the scope {scope}", code="FORBIDDEN", hint=roles_hint(scope))
    named = [topic.partition(":") for topic in sorted(topics) if ":" in topic]
    jobs = list({name for kind, _, name in named if kind in {"job", "log"}})
    if len(await call.read(lambda reader: reader.jobs_of(call.workspace, jobs))) < len(jobs):
        raise InvalidInput("there is no such job in this workspace", code="UNKNOWN_JOB")
    for run_id in (name for kind, _, name in named if kind == "run"):
        await call.read(lambda reader, run_id=run_id: reader.run(call.workspace, run_id))  # type: ignore[misc]
    sessions = [name for kind, _, name in named if kind == "session"]
    for session_id in sessions:
        await call.serving.budgets.left(call.workspace, session_id)
    return topics


ROUTES: Final = (
    Route("GET", "/v1/counts", _counts, "Count jobs by state and runs by status.", "jobs:read", (), {200: Counts}),
    Route(
        "GET",
        "/v1/queue",
        _queue,
        "Show how many jobs wait, by pool and class.",
        "queue:read",
        (*READING, "OUTCOME_UNKNOWN"),
        {200: Queue},
    ),
    Route(
        "GET",
        "/v1/events",
        _events,
        "Follow jobs and runs as server-sent events; `Last-Event-ID` resumes exactly behind an event.",
        "jobs:read",
        ("UNKNOWN_JOB", "UNKNOWN_RUN", "STREAMS_FULL", *READING),
        query=EventsQuery,
        media_type="text/event-stream",
        streams=True,
    ),
    Route(
        "PUT",
        "/v1/events/{stream}/topics",
        _change,
        "Have an open stream follow other topics from now on; its `hello` says its name.",
        "jobs:read",
        ("UNKNOWN_JOB", "UNKNOWN_RUN", "NOT_FOUND", *READING),
        {200: Topics},
        body=Topics,
    ),
)
