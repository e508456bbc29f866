"""The server itself: is it alive, can it work, what does it speak, what does it count, what does a code mean."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Final

from detent.access.scopes import PUBLIC
from detent.errors import CODES, RequestRefused
from detent.owner.ledgers import no_room
from detent.serve.call import Answer, Call, Shape
from detent.serve.routes.pages import HTML, page_answer
from detent.serve.table import READING, Route
from detent.version import __version__


class Health(Shape):
    """The process answers."""

    status: str


class Readiness(Shape):
    """The server can work on its home."""

    status: str
    owner: str
    """`here`: this process writes the ledger; `elsewhere`: another process does, and this one takes over when it ends."""
    free_bytes: int


class Version(Shape):
    """What is spoken here."""

    name: str
    version: str
    api: str
    origin: str
    """The name of the ledger that is served."""


class ProblemPage(Shape):
    """What a code means."""

    code: str
    title: str
    status: int
    retryable: bool
    exit_code: int
    """What a command ends with that meets it."""


async def _healthz(_call: Call) -> Answer:
    return Answer(Health(status="ok"))


async def _readyz(call: Call) -> Answer:
    home, session = call.serving.home, call.serving.session
    ledger = home.ledger
    if (full := no_room(ledger)) is not None:
        raise RequestRefused(str(full), code="NOT_READY", hint=full.hint, details=full.details)
    if isinstance(ledger, Path) and not os.access(ledger, os.W_OK):
        raise RequestRefused("the ledger cannot be written", code="NOT_READY")
    if not session.linked:
        raise RequestRefused("no process owns the home right now", code="NOT_READY")
    owner = "here" if session.owns else "elsewhere"
    disk = os.statvfs(home.path)
    return Answer(Readiness(status="ok", owner=owner, free_bytes=disk.f_bavail * disk.f_frsize))


async def _version(call: Call) -> Answer:
    settings = call.serving.home.settings()
    return Answer(Version(name="detent", version=__version__, api="v1", origin=settings.origin))


async def _openapi(call: Call) -> Answer:
    data, tag = await asyncio.to_thread(call.serving.openapi)
    return Answer(data, tag=tag)


async def _problem(call: Call) -> Answer:
    code = call.path["code"]
    entry = CODES.get(code)
    if entry is None or entry.http_status < 400:
        raise RequestRefused("no answer has this code", code="NOT_FOUND")
    if call.media_type == HTML:
        return page_answer()
    page = ProblemPage(
        code=code,
        title=entry.meaning,
        status=entry.http_status,
        retryable=entry.retryable,
        exit_code=entry.exit_code,
    )
    return Answer(page)


async def _metrics(call: Call) -> Answer:
    home = await asyncio.to_thread(call.serving.metrics.text, call.serving.session)
    call.serving.counters.workers((worker.state, worker.silent_seconds) for worker in call.serving.turns.fleet)
    call.serving.counters.streams.set(call.serving.hub.streams)
    return Answer(home + call.serving.counters.exposition())


ROUTES: Final = (
    Route("GET", "/healthz", _healthz, "Say that the process answers.", PUBLIC, (), {200: Health}),
    Route(
        "GET",
        "/readyz",
        _readyz,
        "Say whether the server can work: its home has an owner, can be written and has room.",
        PUBLIC,
        ("NOT_READY",),
        {200: Readiness},
    ),
    Route(
        "GET",
        "/metrics",
        _metrics,
        "Print the metrics of the home and of the server for Prometheus.",
        "metrics:read",
        READING,
        media_type="text/plain; version=0.0.4; charset=utf-8",
    ),
    Route(
        "GET", "/v1/version", _version, "Name the version and the ledger.", PUBLIC, ("HOME_INVALID",), {200: Version}
    ),
    Route("GET", "/v1/openapi.json", _openapi, "Describe every route in OpenAPI 3.1.", PUBLIC, (), etag=True),
    Route(
        "GET",
        "/problems/{code}",
        _problem,
        "Explain a code: as a document, and as a page of the dashboard for browsers.",
        PUBLIC,
        ("NOT_FOUND",),
        {200: ProblemPage},
        also=(HTML,),
    ),
)
