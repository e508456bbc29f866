"""Pools whose hosts the server has started: what they are to be, what they are, how many hosts operators want."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final

from pydantic import Field

from detent.access.pools import SCALE, scale
from detent.errors import InvalidInput, RequestRefused
from detent.jobs.pools import HOSTS_MAX, Pool
from detent.serve.audit import recorded
from detent.serve.call import WHOLE, Answer, Call, Shape
from detent.serve.pools import Told
from detent.serve.table import READING, Route

FAULT_CHARS_MAX: Final = 2_000
_WRITE: Final = "workers:write"
Hosts = Annotated[int, Field(ge=0, le=HOSTS_MAX), WHOLE]
Fault = Annotated[str | None, Field(max_length=FAULT_CHARS_MAX)]


class PoolWorker(Shape):
    """The worker of a host."""

    worker_id: str
    enrolment_id: str | None
    """The token that enrolled it, which is also the name of its host."""
    state: str
    leases: int


class PoolShown(Shape):
    """A pool whose hosts the server has started."""

    pool: str
    provision: str
    labels: list[str]
    cpus: int
    """Jobs that a host runs at once."""
    resources: dict[str, int]
    min: int
    max: int
    wanted: int | None
    """How many hosts the settings or an operator want; null: as many as the queue asks for."""
    scaled: bool
    """Whether an operator said so."""
    aim: int | None
    """How many hosts there are to be just now; null before the first look."""
    hosts: int
    """How many there are, also those that only begin or end."""
    waiting: int
    """Jobs that wait for this pool."""
    fault: str | None
    """Why no host of this pool can ever run: its jobs are refused."""
    unready: str | None
    """Why hosts cannot be had just now: its jobs wait."""
    workers: list[PoolWorker]


class PoolsShown(Shape):
    """All such pools, by their names."""

    items: list[PoolShown]


class PoolScale(Shape):
    """How many hosts a pool is to have."""

    hosts: Hosts | None
    """Null: as the settings say."""


class PoolReport(Shape):
    """What the keeper of a pool tells with every look."""

    hosts: Hosts
    aim: Hosts | None = None
    fault: Fault = None
    unready: Fault = None


async def _list(call: Call) -> Answer:
    waiting = await _waiting(call)
    seen = [pool for pool in call.serving.pools.pools.values() if _is_seen(call, pool)]
    return Answer(PoolsShown(items=[_shown(call, pool, waiting.get(pool.name, 0)) for pool in seen]))


async def _show(call: Call) -> Answer:
    pool = _found(call)
    return Answer(_shown(call, pool, (await _waiting(call)).get(pool.name, 0)))


async def _scale(call: Call) -> Answer:
    pool, body = _found(call), call.body
    if body.hosts is not None and (fault := pool.range_fault(body.hosts)) is not None:
        raise InvalidInput(
            fault,
            code="VALIDATION_ERROR",
            hint="min and max are in the settings of the server",
            details={"errors": [{"path": "body.hosts", "message": fault}]},
        )
    change = scale(pool.name, body.hosts)
    await call.serving.enrolling.record(recorded(call, change))
    call.serving.pools.scales.set(pool.name, body.hosts)
    return await _show(call)


async def _report(call: Call) -> Answer:
    pool, body = _found(call), call.body
    if call.serving.pools.tell(pool.name, Told(body.hosts, body.aim, body.fault, body.unready)):
        await call.serving.turns.offer_anew()
    return await _show(call)


async def _waiting(call: Call) -> dict[str, int]:
    serving = call.serving
    return dict((await asyncio.to_thread(serving.metrics.queues, serving.session)).asked_for)


def _found(call: Call) -> Pool:
    pool = call.serving.pools.pools.get(call.path["pool"])
    if pool is None or not _is_seen(call, pool):
        raise RequestRefused(
            "the settings of the server name no such pool with a provisioner",
            code="NOT_FOUND",
            hint="GET /v1/pools lists them",
        )
    return pool


def _is_seen(call: Call, pool: Pool) -> bool:
    """A workspace sees the pools that run its jobs; one who may change workers sees all."""
    return pool.covers(call.workspace) or call.may(_WRITE)


def _shown(call: Call, pool: Pool, waiting: int) -> PoolShown:
    pools, told = call.serving.pools, call.serving.pools.told(pool.name)
    tokens = {token.secret: token.enrolment_id for token in call.serving.enrolling.tokens}
    assert pool.provision is not None
    return PoolShown(
        pool=pool.name,
        provision=pool.provision,
        labels=list(pool.labels),
        cpus=pool.cpus,
        resources=dict(pool.resources),
        min=pool.least,
        max=pool.most,
        wanted=pools.wanted(pool),
        scaled=pools.scales.get(pool.name) is not None,
        aim=told.aim,
        hosts=told.hosts,
        waiting=waiting,
        fault=told.fault,
        unready=told.unready,
        workers=[
            PoolWorker(
                worker_id=worker.worker_id,
                enrolment_id=tokens.get(worker.token_digest),
                state=worker.state,
                leases=len(worker.leases),
            )
            for worker in pools.workers(pool)
        ],
    )


_COMMITTING: Final = ("OUTCOME_UNKNOWN", "INBOX_FULL")
ROUTES: Final = (
    Route(
        *("GET", "/v1/pools", _list, "List the pools whose hosts the server has started, with their hosts."),
        *("workers:read", READING, {200: PoolsShown}),
    ),
    Route(
        *("GET", "/v1/pools/{pool}", _show, "Show a pool."),
        *("workers:read", ("NOT_FOUND", *READING), {200: PoolShown}),
    ),
    Route(
        *("POST", "/v1/pools/{pool}/scale", _scale, "Set how many hosts a pool has."),
        *(_WRITE, ("NOT_FOUND", *READING, *_COMMITTING), {200: PoolShown}),
        body=PoolScale,
        audited=True,
        action=SCALE,
    ),
    Route(
        *("PUT", "/v1/pools/{pool}/hosts", _report, "Tell what hosts a pool has. Its keeper does so, every second."),
        *(_WRITE, ("NOT_FOUND", *READING), {200: PoolShown}),
        body=PoolReport,
    ),
)
