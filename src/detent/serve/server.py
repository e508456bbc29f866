"""Put the parts of a server together, run them, and stop them in order.

The HTTP loop has the main thread. The owner has threads of its own, so a slow disk stops no answer that needs none. A server takes the
home's lock if it is free. If an embedded process has it, the server works as that process's client and takes over when it
ends; `/readyz` says which. A failed commit ends the process (X-173): nothing is answered from memory that is ahead of the
ledger, and whatever started the server starts it again.

Stopping: no new connection is taken, streams are told to come back, requests under way are answered, the workers finish what
they have begun, then the owner finishes what waits and gives the home up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import uvicorn
from starlette.types import Receive, Scope, Send

from detent.errors import DetentError, InvalidInput, OutcomeUnknown, RequestRefused
from detent.inspect.monitoring import Exposition
from detent.owner.home import Home
from detent.owner.lock import OwnerLock, owner_pid, try_lock
from detent.owner.names import DIRECTORY
from detent.owner.server_address import ADDRESS_FILE, LOCK_FILE, insist_on_owning, told_address
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.runs.runtime import Runtime
from detent.serve.access import Access, Surroundings
from detent.serve.alerts import Alerts
from detent.serve.app import Application
from detent.serve.auditing import Auditing
from detent.serve.authenticate import local_token
from detent.serve.budgets import Budgets
from detent.serve.children import Children, ChildSpec
from detent.serve.counters import Counters
from detent.serve.downloads import Downloads, checked_public_url, url_keys
from detent.serve.driving import CHECKER, DRIVER, Driving
from detent.serve.ended_jobs import EndedJobs
from detent.serve.enrolling import Enrolling
from detent.serve.events import Hub
from detent.serve.idempotency import Idempotency
from detent.serve.limits import Rates
from detent.serve.listening import BACKLOG, Listening, bound, bracketed, hosts_of, insist_on_protection, origins_of
from detent.serve.live_topics import LiveTopics
from detent.serve.login import link, make_login
from detent.serve.notifying import Notifier
from detent.serve.openapi import described
from detent.serve.operator_auth import OperatorSignatures
from detent.serve.placing import Placing
from detent.serve.protocol import KEEP_ALIVE_SECONDS, LimitedProtocol
from detent.serve.readers import Readers
from detent.serve.routes import ALL
from detent.serve.routes.home import queue_of
from detent.serve.serving import Serving
from detent.serve.submitting import Submitting
from detent.serve.table import Table
from detent.serve.turns import Turns
from detent.serve.uploading import Uploading
from detent.serve.writing import Writer
from detent.store.files import replace_no_follow


@dataclass(frozen=True, slots=True)
class Beside:
    """What runs beside a server, as processes of their own."""

    workers: int = 0
    """How many workers its own child has; none at all for 0."""
    project: Path | None = None
    """Where functions are found whose jobs name no directory; the directory that the server was started in, if None."""


@dataclass(frozen=True, slots=True)
class Started:
    """What to tell when a server listens."""

    url: str
    token_file: Path
    login: str
    """The address that logs a browser in, once."""
    owner: str
    """`here` or `elsewhere`."""
    queue_capacity: int
    """Jobs of one class that the queue holds."""


def run(
    home: Home,
    listening: Listening,
    *,
    started: Callable[[Started], None],
    log: TextIO | None = None,
    parts: Parts | None = None,
    beside: Beside | None = None,
) -> int:
    """Serve a home until a signal ends it; gives the signal. Raises what kept it from starting, or what ended it."""
    insist_on_protection(listening)
    if listening.public_url is not None:
        listening = replace(listening, public_url=checked_public_url(listening.public_url))
    parts = replace(parts or Parts(), serves=True)
    with _only_server(home), bound(listening) as listener:
        faults: list[BaseException] = []
        server = _Server(listening, faults, Rates.from_settings(home.settings().access).connections)
        with Session(home, parts, on_failed=lambda: server.stop_for(_commit_failed())) as session:
            with parts.open_reader(home.ledger) as ledger:
                insist_on_owning(home, ledger, owns=session.owns)
            made = _Assembly(home, listening, parts, session, beside or Beside(), server.stop_for, listener)
            server.begin, server.on_draining = made.serving, made.children.ask_to_end
            server.on_started = lambda: started(made.start())
            server.application = lambda serving: made.application(serving, log)
            try:
                server.run([listener])
            finally:
                made.close()
        if faults:
            raise faults[0]
        return server.ended_by


class _Assembly:
    """The parts of a server, and how they know one another."""

    def __init__(
        self,
        home: Home,
        listening: Listening,
        parts: Parts,
        session: Session,
        beside: Beside,
        stop_for: Callable[[BaseException], None],
        listener: socket.socket,
    ) -> None:
        self._home, self._listening, self._parts, self._session = home, listening, parts, session
        self._stop_for = stop_for
        self._port = listener.getsockname()[1]
        self._url = f"{listening.scheme}://{bracketed(listening.host)}:{self._port}"
        self._token, self._token_file = local_token(home.path)
        self._table = Table(ALL)
        self._readers = Readers(home, parts)
        self._downloads = Downloads(home.content_files(), url_keys(home.path / DIRECTORY), listening.public_url)
        self._project = beside.project or Path.cwd()
        self.children = Children(_specs(home, beside, listening), drain_seconds=listening.drain_seconds)
        self._driving = Driving(home, session, parts, self.children, project=self._project)
        self._work = Runtime(home, workers=0, idle=True, parts=parts, session=session)

    def serving(self) -> Serving:
        """What the handlers share; made within the loop."""
        home, session, readers, work = self._home, self._session, self._readers, self._work
        budgets = Budgets(session)
        access = self._access()
        writer, hub = Writer(session), Hub(session, readers, budgets.left)
        turns = Turns(session, work.backend, hub.draining)
        enrolling = Enrolling(home, session, turns)
        turns.follow = enrolling.take_in
        alerts = Alerts(session, turns.fleet)
        return Serving(
            writer=writer,
            budgets=budgets,
            submitting=Submitting(
                work, self._project.resolve(), access.plan_of, Placing(turns.fleet, work.settings.pools)
            ),
            home=home,
            session=session,
            access=access,
            readers=readers,
            hub=hub,
            notifier=Notifier(home.path, hub, readers, writer, access, work.backend, turns.fleet),
            alerts=alerts,
            uploads=Uploading(home, access.quota),
            downloads=self._downloads,
            turns=turns,
            enrolling=enrolling,
            origin=home.settings().origin,
            signatures=OperatorSignatures(lambda: access.state, home.settings().origin, self._parts.clock.wall_ms),
            counters=Counters(),
            hosts=hosts_of(self._listening, self._port),
            openapi=cache(partial(described, self._table)),  # It takes longer than all else at start-up.
            metrics=Exposition(home, self._parts),
            broken=self._stop_for,
            driving=self._driving,
            ended_jobs=EndedJobs(),
            auditing=Auditing(self._home, self._parts.clock.wall_ms, alerts.verify_failed),
        )

    def application(self, serving: Serving, log: TextIO | None) -> Application:
        """What answers requests."""
        once = Idempotency(self._work.idempotency, self._parts.clock.wall_ms)
        return Application(serving, self._table, once, log)

    def start(self) -> Started:
        """Start the children and write the address down, once the server listens."""
        _keep_address(self._home, self._url)
        self.children.start()
        login = link(self._url, make_login(self._home.path, now_ms=self._parts.clock.wall_ms()))
        capacity = self._work.settings.scheduling_policy().queue_policy().capacity_per_class
        return Started(self._url, self._token_file, login, "here" if self._session.owns else "elsewhere", capacity)

    def close(self) -> None:
        """Stop what the server started."""
        self._driving.close()
        self.children.stop()  # While the owner still answers: they report what they have finished.
        self._readers.close()
        self._work.close()
        self._downloads.close()
        with contextlib.suppress(OSError):
            (self._home.path / DIRECTORY / ADDRESS_FILE).unlink()

    def _access(self) -> Access:
        hosts = hosts_of(self._listening, self._port)
        origins = origins_of(self._listening, hosts)
        surroundings = Surroundings(origins, self._listening.behind_proxy, self._listening.proxy_header)
        rates = Rates.from_settings(self._home.settings().access)
        plans, now = self._work.settings.plans, self._parts.clock.wall_ms
        return Access(self._home.path, self._session, self._token, rates, surroundings, plans, now)


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it listens, drains, and stops for a fault."""

    begin: Callable[[], Serving]
    application: Callable[[Serving], Application]
    on_started: Callable[[], None]
    on_draining: Callable[[], None]
    serving: Serving
    live: LiveTopics
    ended_by = 0

    def __init__(self, listening: Listening, faults: list[BaseException], connections: int) -> None:
        self.deferred = _Deferred()
        super().__init__(_config(listening, self.deferred, connections))
        self._faults = faults

    def stop_for(self, fault: BaseException) -> None:
        """Stop because something is broken; from any thread."""
        self._faults.append(fault)
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Follow the ledger, listen, then say so."""
        self.serving = self.begin()
        serving = self.serving
        serving.hub.heard = serving.heard
        await serving.hub.start(partial(serving.access.load, serving.readers))
        serving.access.refused.start()
        await serving.uploads.start()
        self.live = LiveTopics(
            serving.hub, serving.readers, partial(_queue_now, serving), serving.turns.watch, serving.turns.fleet
        )
        self.live.start()
        serving.notifier.start()
        await serving.turns.start()
        serving.alerts.start()
        self.deferred.application = self.application(self.serving)
        await super().startup(sockets)
        self.on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell streams and waiting requests that the end has come, then let everything finish."""
        self.serving.hub.drain()
        self.on_draining()
        await super().shutdown(sockets)
        await self.serving.auditing.stop()
        await self.serving.alerts.stop()
        await self.serving.notifier.stop()
        await self.serving.access.stop()
        await asyncio.to_thread(self.serving.writer.close)
        await self.live.stop()
        await self.serving.hub.stop()
        await self.serving.uploads.stop()
        self.serving.turns.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals end the server in order; a second Ctrl-C ends it at once."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Remember which signal it was."""
        self.ended_by = self.ended_by or sig
        super().handle_exit(sig, frame)


async def _queue_now(serving: Serving) -> dict[str, Any]:
    return (await queue_of(serving)).model_dump()


class _Deferred:
    """The application, which is made within the loop that uvicorn starts after it has asked for the application."""

    application: Application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on."""
        await self.application(scope, receive, send)


def _config(listening: Listening, application: _Deferred, connections: int) -> uvicorn.Config:
    options: dict[str, Any] = {}
    if listening.tls_certificate is not None:
        options = {"ssl_certfile": str(listening.tls_certificate), "ssl_keyfile": str(listening.tls_key)}
    config = uvicorn.Config(
        application,
        http=type("Protocol", (LimitedProtocol,), {"connections_max": connections}),
        loop="asyncio",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # What a proxy says is read with everything else that a request says (`caller`).
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(listening.drain_seconds)),
        **options,
    )
    try:
        if options:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                certfile=options["ssl_certfile"], keyfile=options["ssl_keyfile"]
            )
    except (OSError, ssl.SSLError) as exc:
        raise InvalidInput(f"the TLS certificate or its key cannot be used: {exc}", hint="both are PEM files") from exc
    return config


@contextlib.contextmanager
def _only_server(home: Home) -> Iterator[None]:
    """Be the only server of a home."""
    directory = home.path / DIRECTORY
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        held: OwnerLock | None = try_lock(directory / LOCK_FILE)
    except OSError as exc:
        raise DetentError(
            f"{directory} cannot be made: {exc.strerror}", code="STORE_UNAVAILABLE", hint="the home must be writable"
        ) from exc
    if held is None:
        pid = owner_pid(directory / LOCK_FILE)
        where = told_address(home.path) or "an address that it has not told yet"
        raise RequestRefused(
            f"process {pid or 'unknown'} serves {home.path} at {where}",
            code="SERVER_RUNNING",
            hint="use that one, or end it first",
        )
    try:
        yield
    finally:
        held.release()


def _specs(home: Home, beside: Beside, listening: Listening) -> list[ChildSpec]:
    """The children that a server has."""
    directory = None if beside.project is None else str(beside.project)
    specs = [
        ChildSpec(DRIVER, ["detent.runs.driver_host", "--home", str(home.path)], directory),
        ChildSpec(CHECKER, ["detent.inspect.contract_checker", "--home", str(home.path)], directory),
    ]
    if beside.workers:
        words = ["detent", "worker", "--home", str(home.path), "--workers", str(beside.workers)]
        specs.append(ChildSpec("workers", [*words, "--drain-timeout", str(listening.drain_seconds)], directory))
    return specs


def _keep_address(home: Home, url: str) -> None:
    """Write down where the server is, for commands and for the next one that tries to start."""
    data = json.dumps({"url": url, "pid": os.getpid()}).encode()
    replace_no_follow(home.path / DIRECTORY / ADDRESS_FILE, data)


def _commit_failed() -> DetentError:
    return OutcomeUnknown(
        "a commit failed, and the server ended rather than answer from memory",
        hint="check the disk of the home, then start the server again",
    )
