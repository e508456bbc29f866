"""Put the parts of a server together, run them, and stop them in order.

The HTTP loop has the main thread. The owner has threads of its own, so a slow disk stops no answer that needs none. A server takes the
home's lock if it is free. If an embedded process has it, the server works as that process's client and takes over when it
ends; `/readyz` says which. If a process on another machine owns the ledger, the server stands by and passes requests on (`standing_by.py`). A failed commit ends the process (X-173): nothing is answered from memory that is ahead of the
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
from typing import Any, TextIO, cast

import uvicorn

from detent.errors import DetentError, EpochLost, InvalidInput, OutcomeUnknown, RequestRefused
from detent.inspect.monitoring import Exposition
from detent.owner.home import Home
from detent.owner.lock import OwnerLock, owner_pid, try_lock
from detent.owner.names import DIRECTORY
from detent.owner.server_address import ADDRESS_FILE, LOCK_FILE, insist_on_owning, told_address
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.remote.pins import spki_digest
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
from detent.serve.known_jobs import ShownJobs
from detent.serve.lifecycle import DRAINED, STOPPED, LastStart, record_end, record_start, settings_digest
from detent.serve.limits import Rates
from detent.serve.listening import (
    BACKLOG,
    Listening,
    advertised,
    bound,
    bracketed,
    hosts_of,
    insist_on_protection,
    origins_of,
)
from detent.serve.live_topics import LiveTopics
from detent.serve.login import link, make_login
from detent.serve.notifying import Notifier
from detent.serve.openapi import described
from detent.serve.operator_auth import OperatorSignatures
from detent.serve.passing_on import PassingOn
from detent.serve.pools import Pools
from detent.serve.protocol import Connection
from detent.serve.readers import Readers
from detent.serve.repeating import Repeating
from detent.serve.routes import ALL
from detent.serve.routes.home import queue_of
from detent.serve.routes.jobs import summary_of
from detent.serve.serving import Serving
from detent.serve.standing_by import ToldToEnd, owning_session, shared_partitions
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
    reads_only: bool = False
    """Whether it shows the home and changes nothing: no worker, no driver of runs, no credential that writes."""
    reads_beside_owner: bool = False
    """Whether it only reads if another process owns the home when it starts."""


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
    reads_only: bool = False


def run(
    home: Home,
    listening: Listening,
    *,
    started: Callable[[Started], None],
    log: TextIO | None = None,
    parts: Parts | None = None,
    beside: Beside | None = None,
    note: Callable[[str], None] = lambda _text: None,
) -> int:
    """Serve a home until a signal ends it; gives the signal. Raises what kept it from starting, or what ended it."""
    insist_on_protection(listening)
    if listening.public_url is not None:
        listening = replace(listening, public_url=checked_public_url(listening.public_url))
    parts = replace(parts or Parts(), serves=True)
    with _only_server(home), bound(listening) as listener, contextlib.ExitStack() as stack:
        faults: list[BaseException] = []
        connections = Rates.from_settings(home.settings().access).connections
        server = _Server(listening, faults, connections)
        parts = replace(parts, address=advertised(listening, listener.getsockname()[1]))
        if not (beside or Beside()).reads_only:
            parts = replace(parts, holdings=stack.enter_context(shared_partitions(home, parts, listening)))
        try:
            session = owning_session(
                *(home, parts, lambda failure: server.stop_for(_why_ended(failure)), note),
                pass_on=lambda: PassingOn(listener, connections),
            )
        except ToldToEnd as told:
            return told.signal
        with session:
            with parts.open_reader(home.ledger) as ledger:
                insist_on_owning(home, ledger, owns=session.owns)
            made = _Assembly(
                home, listening, parts, session, _settled(beside or Beside(), session), server.stop_for, listener
            )
            server.begin, server.on_draining = made.serving, made.children.ask_to_end
            server.on_starting = made.record_start
            server.on_drained = lambda: record_end(session, DRAINED, server.ended_by)
            server.on_started = lambda: started(made.start())
            server.application = lambda serving: made.application(serving, log)
            try:
                server.run([listener])
            finally:
                made.close()
                if made.began and not faults:
                    record_end(session, STOPPED, server.ended_by)
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
        self._last_start = LastStart()
        self.began = False
        """Whether its start is on the ledger."""
        self._port = listener.getsockname()[1]
        self._url = f"{listening.scheme}://{bracketed(listening.host)}:{self._port}"
        self._token, self._token_file = local_token(home.path)
        self._table = Table(ALL)
        self._readers = Readers(home, parts)
        self._downloads = Downloads(home.content_files(), url_keys(home.path / DIRECTORY), listening.public_url)
        self._project = beside.project or Path.cwd()
        self._own_workers, self._reads_only = beside.workers > 0, beside.reads_only
        self.children = Children(_specs(home, beside, listening), drain_seconds=listening.drain_seconds)
        self._work = Runtime(home, workers=0, idle=True, parts=parts, session=session)
        self._driving = Driving(
            *(home, session, parts, self.children, self._work.backend),
            project=self._project,
            drives=not beside.reads_only,
        )

    def serving(self) -> Serving:
        """What the handlers share; made within the loop."""
        home, session, readers, work = self._home, self._session, self._readers, self._work
        budgets = Budgets(session)
        access = self._access()
        self._last_start = access.last_start
        writer, hub = Writer(session), Hub(session, readers, budgets.left)
        turns = Turns(session, work.backend, hub.draining)
        work.offers = turns.fleet.offers
        enrolling = Enrolling(home, session, turns)
        turns.follow = enrolling.take_in
        pools = Pools(home.settings().provisioned, enrolling.scales, turns.fleet)
        turns.fleet.to_come = pools.offered
        alerts, counters = Alerts(session, turns.fleet), Counters()
        return Serving(
            writer=writer,
            budgets=budgets,
            submitting=Submitting(work, self._project.resolve(), access.plan_of),
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
            pools=pools,
            origin=home.settings().origin,
            logs_attempts=home.settings().log is not None,
            signatures=OperatorSignatures(lambda: access.state, home.settings().origin, self._parts.clock.wall_ms),
            counters=counters,
            repeating=Repeating(
                *(work, turns, writer),
                own_workers=self._own_workers,
                mismatched=alerts.mismatched,
                counted=counters.audited,
            ),
            hosts=hosts_of(self._listening, self._port),
            openapi=cache(partial(described, self._table)),  # It takes longer than all else at start-up.
            metrics=Exposition(home, self._parts),
            broken=self._stop_for,
            driving=self._driving,
            ended_jobs=EndedJobs(),
            shown_jobs=ShownJobs(summary_of),
            auditing=Auditing(self._home, self._parts.clock.wall_ms, alerts.verify_failed),
        )

    def application(self, serving: Serving, log: TextIO | None) -> Application:
        """What answers requests."""
        once = Idempotency(self._work.idempotency, self._parts.clock.wall_ms)
        return Application(serving, self._table, once, log)

    def record_start(self) -> None:
        """Put the start on the ledger, before anything is answered."""
        settings = settings_digest(self._home.settings().path)
        record_start(self._session, self._last_start, settings, self._url)
        self.began = True

    def start(self) -> Started:
        """Start the children and write the address down, once the server listens."""
        _keep_address(self._home, self._url)
        self.children.start()
        login = link(self._url, make_login(self._home.path, now_ms=self._parts.clock.wall_ms()))
        capacity = self._work.settings.scheduling_policy().queue_policy().capacity_per_class
        owner = "here" if self._session.owns else "elsewhere"
        return Started(self._url, self._token_file, login, owner, capacity, self._reads_only)

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
        surroundings = Surroundings(
            origins, self._listening.behind_proxy, self._listening.proxy_header, self._reads_only
        )
        rates = Rates.from_settings(self._home.settings().access)
        plans, now = self._work.settings.plans, self._parts.clock.wall_ms
        return Access(self._home.path, self._session, self._token, rates, surroundings, plans, now)


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it listens, drains, and stops for a fault."""

    begin: Callable[[], Serving]
    application: Callable[[Serving], Application]
    on_started: Callable[[], None]
    on_starting: Callable[[], None]
    on_draining: Callable[[], None]
    on_drained: Callable[[], None]
    serving: Serving
    live: LiveTopics
    _answer: Application
    ended_by = 0

    def __init__(self, listening: Listening, faults: list[BaseException], connections: int) -> None:
        super().__init__(_config(listening, self._connection))
        self._faults, self._connections = faults, connections

    def _connection(self, **_: Any) -> Connection:
        """A connection that was accepted. Of what uvicorn offers it needs the set that it belongs to."""
        return Connection(self._answer, self.server_state, self._connections)

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
        serving.take_up()  # What begins later is heard of.
        serving.access.refused.start()
        await serving.uploads.start()
        self.live = LiveTopics(serving.hub, serving.readers, partial(_queue_now, serving), serving.turns)
        self.live.start()
        serving.notifier.start()
        await serving.turns.start()
        await serving.repeating.start()
        serving.alerts.start()
        self._answer = self.application(self.serving)
        await asyncio.to_thread(self.on_starting)
        await serving.hub.caught_up()
        await super().startup(sockets)
        self.on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell streams and waiting requests that the end has come, then let everything finish."""
        self.serving.hub.drain()
        self.on_draining()
        await super().shutdown(sockets)
        if not self._faults:
            await asyncio.to_thread(self.on_drained)
        self.serving.repeating.close()
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


def _config(listening: Listening, connection: Callable[..., Connection]) -> uvicorn.Config:
    options: dict[str, Any] = {}
    if listening.tls_certificate is not None:
        options = {"ssl_certfile": str(listening.tls_certificate), "ssl_keyfile": str(listening.tls_key)}
    config = uvicorn.Config(
        cast("Any", None),  # Connections ask the application themselves.
        http=cast("Any", connection),
        loop="asyncio",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        date_header=False,
        server_header=False,
        backlog=BACKLOG,
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


def _settled(beside: Beside, session: Session) -> Beside:
    """What runs beside the server, now that it is known who owns the home."""
    if beside.reads_beside_owner and not session.owns:
        return replace(beside, workers=0, reads_only=True)
    return beside


def _specs(home: Home, beside: Beside, listening: Listening) -> list[ChildSpec]:
    """The children that a server has."""
    directory = None if beside.project is None else str(beside.project)
    specs = [
        ChildSpec(DRIVER, ["detent.runs.driver_host", "--home", str(home.path)], directory, on_demand=True),
        ChildSpec(CHECKER, ["detent.inspect.contract_checker", "--home", str(home.path)], directory, on_demand=True),
    ]
    if beside.workers:
        words = ["detent", "worker", "--home", str(home.path), "--workers", str(beside.workers)]
        specs.append(ChildSpec("workers", [*words, "--drain-timeout", str(listening.drain_seconds)], directory))
    for pool in home.settings().provisioned:
        words = ["detent.remote.pool_keeper", "--home", str(home.path), "--pool", pool]
        specs.append(ChildSpec(f"keeper of pool {pool}", [*words, *_pinned(listening)], directory))
    return specs


def _pinned(listening: Listening) -> list[str]:
    """How a child knows this server: by its public key, where it has one."""
    if listening.tls_certificate is None:
        return []
    der = ssl.PEM_cert_to_DER_cert(_first_certificate(listening.tls_certificate.read_text()))
    return ["--pin", f"sha256:{spki_digest(der).hex()}"]


def _first_certificate(text: str) -> str:
    """The first certificate of a chain: the server's own."""
    end = ssl.PEM_FOOTER
    return text[text.index(ssl.PEM_HEADER) : text.index(end) + len(end)]


def _keep_address(home: Home, url: str) -> None:
    """Write down where the server is, for commands and for the next one that tries to start."""
    data = json.dumps({"url": url, "pid": os.getpid()}).encode()
    replace_no_follow(home.path / DIRECTORY / ADDRESS_FILE, data)


def _why_ended(failure: BaseException | None) -> DetentError:
    """What to say of a server whose owner failed: it was deposed, or a commit failed."""
    if isinstance(failure, EpochLost):
        return failure
    return OutcomeUnknown(
        "a commit failed, and the server ended rather than answer from memory",
        hint="check the disk of the home, or the database, then start the server again",
    )
