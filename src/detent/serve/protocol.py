"""One HTTP connection: the bytes of requests, with a deadline for each phase and a bound for all that is kept.

A stranger's slow bytes cost nothing and hold a connection. Every phase of a request has a deadline here, and everything that is kept before
a handler runs has a bound:

    waiting for a request ── keep-alive ──> head ── 10 s, 32 KiB, 100 fields ──> body ── 1 KiB/s after 5 s ──> answer ── 30 s a stall

What cannot be read as one request in one way is answered with 400 and the connection ends: request smuggling needs two readers that
go on after a disagreement. An answer that ends before the request's body does ends the connection, too; what still arrives
is thrown away for a moment first, because closing at once would destroy the answer on its way.

llhttp (httptools) reads the bytes. uvicorn accepts connections and stops in order; of a connection it knows that it can be told to end.
A request becomes an `Exchange`, and a task of the application answers it. A connection has one timer, which looks at its deadline
when it rings and not whenever the deadline changes: most requests are whole at once and never have one.

tests/serve/test_framing.py, test_bodies.py and test_deadlines.py try every rule on a running server.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache, partial
from typing import Any, Final, Protocol

import httptools

from detent.access.problem import MEDIA_TYPE, Problem
from detent.serve.exchange import Exchange, answer_head
from detent.serve.limits import CONNECTIONS
from detent.serve.security import new_request_id

HEAD_SECONDS: Final = 10.0
HEAD_BYTES_MAX: Final = 32 * 1024
FIELDS_MAX: Final = 100
BODY_GRACE_SECONDS: Final = 5
BODY_BYTES_PER_SECOND: Final = 1024
STALL_SECONDS: Final = 30.0
"""How long an answer may wait for a reader that does not read."""
KEEP_ALIVE_SECONDS: Final = 75
LINGER_SECONDS: Final = 2.0
LINGER_BYTES_MAX: Final = 1 << 20
PIPELINED_MAX: Final = 8
"""Requests that wait behind the one that is being answered."""
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_BROKEN: Final = re.compile(rb"[\r\n\0]")

Application = Callable[[Exchange], Coroutine[Any, Any, None]]


class Accepted(Protocol):
    """What a server knows about its connections."""

    connections: set[Any]
    tasks: set[asyncio.Task[None]]


class Connection(asyncio.Protocol):
    """One connection, with a deadline in each phase."""

    def __init__(self, application: Application, accepted: Accepted, connections_max: int = CONNECTIONS) -> None:
        self._application, self._accepted, self._connections_max = application, accepted, connections_max
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        # What follows a request that ends the connection is thrown away by us, behind the answer.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._transport: asyncio.Transport
        self.peer, self.scheme = "unknown", "http"
        # The request that is read now.
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._head_bytes = self._field_bytes = self._body_bytes = self._body_seconds = self._requests_read = 0
        self._in_head, self._in_body, self._begun = True, False, False
        self._problem: Problem | None = None
        self._over = False
        """Whether nothing more is read as a request."""
        self._drained_bytes = 0
        # The one that is answered now, the one that was read last, and those between.
        self._now: Exchange | None = None
        self._last: Exchange | None = None
        self._pipeline: deque[Exchange] = deque()
        # Its flow and its deadlines.
        self._read_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._due: Callable[[], None] | None = None
        """What is done at the deadline; None: there is none."""

    # -- the server's calls --------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the connection, behind the answers that are under way."""
        if self._last is None or self._last.complete:
            self._transport.close()
        else:
            self._last.keep_alive = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request's head."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._accepted.connections.add(self)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if isinstance(peer, tuple) else "unknown"
        self.scheme = "http" if transport.get_extra_info("sslcontext") is None else "https"
        if len(self._accepted.connections) > self._connections_max:
            self._refuse(Problem("CONNECTIONS_FULL", f"{self._connections_max:,} connections are open"))
        else:
            self._arm(HEAD_SECONDS, self._head_over)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as asyncio calls it
        """Tell the requests under way, and forget the deadlines."""
        self._accepted.connections.discard(self)
        self._over, self._due = True, None
        for timer in (self._timer, self._stall):
            if timer is not None:
                timer.cancel()
        self._pipeline.clear()
        for exchange in (self._now, self._last):
            if exchange is not None and not exchange.complete:
                exchange.lose()
        self._let_write()
        self._parser = None  # Each of the two knows the other.

    def data_received(self, data: bytes) -> None:
        """Read on, a bounded piece of a head at a time."""
        while data and not self._over:
            if not self._in_head:
                data = self._feed(data, b"")
                continue
            read, room = self._requests_read, HEAD_BYTES_MAX + 1 - self._head_bytes
            piece, data = data[:room], self._feed(data[:room], data[room:])
            if self._in_head and not self._over and read == self._requests_read:
                self._head_bytes += len(piece)
                if self._head_bytes > HEAD_BYTES_MAX:
                    self._refuse(_TOO_LARGE)
        if not self._over:
            self._watch()
        elif data:
            self._drained_bytes += len(data)
            if self._drained_bytes > LINGER_BYTES_MAX:
                self._transport.abort()

    def _feed(self, data: bytes, rest: bytes) -> bytes:
        """Have the parser read; gives back the rest."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No upgrade is on offer. The request is answered as if it had asked for none, and the connection ends with it.
            self._over = True
            self._disarm()
            if self._last is not None:
                self._last.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._problem or Problem("REQUEST_INVALID", "the request cannot be read as HTTP/1.1"))
        return rest

    def pause_writing(self) -> None:
        """The reader lags: it has some time to go on."""
        self._writable = self._loop.create_future()
        self._stall = self._loop.call_later(STALL_SECONDS, self._transport.abort)

    def resume_writing(self) -> None:
        """It goes on."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        self._let_write()

    # -- the parser's calls --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url, self._fields, self._field_bytes = b"", [], 0
        self._in_head = self._begun = True
        if len(self._pipeline) >= PIPELINED_MAX:
            self._stop(Problem("REQUEST_INVALID", f"more than {PIPELINED_MAX} requests were sent without waiting"))

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._count(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        self._count(len(name) + len(value) + 4)
        if len(self._fields) >= FIELDS_MAX:
            self._stop(Problem("HEADERS_TOO_LARGE", f"a request has at most {FIELDS_MAX} header fields"))
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole: judge how the body is framed, then let the application begin."""
        version = self._parser.get_http_version()
        fields, fault = _fields_of(self._fields, version)
        if fault is not None:
            self._stop(Problem("REQUEST_INVALID", fault))
        if not self._url.startswith(b"/"):
            self._stop(Problem("REQUEST_INVALID", "the request's target is not a path of this server"))
        exchange = Exchange(
            self,
            self._parser.get_method().decode("ascii"),
            _path_of(self._url),
            fields,
            keep_alive=version == "1.1" and self._parser.should_keep_alive(),
        )
        before, self._last = self._last, exchange
        if before is None or before.complete:
            self._start(exchange)
        else:
            self._pause_reading()
            self._pipeline.append(exchange)
        self._in_head, self._in_body, self._begun = False, True, False
        self._head_bytes = self._body_bytes = self._body_seconds = 0
        self._disarm()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._last is not None and not self._last.take(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        """The request is whole; the next one has its own deadline, from its first byte."""
        self._in_head, self._in_body = True, False
        self._requests_read += 1
        self._disarm()
        if self._last is not None:
            self._last.end()

    # -- the exchange's calls ------------------------------------------------------------------------------------------

    @property
    def moment(self) -> str:
        """The line of an answer's head that says when it was sent."""
        return _date(int(time.time()))

    @property
    def lags(self) -> bool:
        """Whether the reader does not read as fast as answers are sent."""
        return self._writable is not None

    def write(self, data: bytes) -> None:
        """Send bytes."""
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait for a reader that lags."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def read_on(self) -> None:
        """Go on reading."""
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()

    def answered(self, exchange: Exchange) -> None:
        """Begin with the next request, or wait for it, unless this one was answered before it was whole."""
        if not exchange.keep_alive:
            self._transport.close()
        if self._transport.is_closing():
            return
        if self._in_body and exchange is self._last:
            self._over = True
            self._disarm()
            self._linger()
            return
        self.read_on()
        if self._pipeline:
            self._start(self._pipeline.popleft())
        elif self._due is None:
            self._arm(KEEP_ALIVE_SECONDS, self._idle_over)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _start(self, exchange: Exchange) -> None:
        self._now = exchange
        task = self._loop.create_task(self._application(exchange))
        self._accepted.tasks.add(task)
        task.add_done_callback(partial(self._ended, exchange))

    def _ended(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        """An answer that was not ended ends with its connection."""
        self._accepted.tasks.discard(task)
        if not exchange.complete and not exchange.disconnected:
            self._transport.close()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()

    def _let_write(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Give what has begun to arrive its deadline; what arrived whole needs none."""
        if self._in_body:
            if self._due != self._body_due:
                self._arm(BODY_GRACE_SECONDS, self._body_due)
        elif (self._begun or self._head_bytes) and self._due != self._head_over:
            self._arm(HEAD_SECONDS, self._head_over)

    def _arm(self, seconds: float, due: Callable[[], None]) -> None:
        self._due, self._deadline = due, self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._ring)

    def _disarm(self) -> None:
        self._due = None

    def _ring(self) -> None:
        """Look whether the deadline has passed: it may have changed since the timer was set."""
        self._timer, due = None, self._due
        if due is None:
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._ring)
            return
        self._due = None
        due()

    def _idle_over(self) -> None:
        if not self._transport.is_closing():
            self._transport.close()

    def _head_over(self) -> None:
        self._refuse(Problem("REQUEST_TIMEOUT", f"the request's head did not arrive within {HEAD_SECONDS:g} s"))

    def _body_due(self) -> None:
        # While the application is not reading, the client cannot send: that time does not count.
        self._body_seconds += 0 if self._read_paused else 1
        if self._body_bytes < BODY_BYTES_PER_SECOND * self._body_seconds:
            self._refuse(
                Problem("REQUEST_TIMEOUT", f"the body arrived slower than {BODY_BYTES_PER_SECOND} bytes a second")
            )
        else:
            self._arm(1, self._body_due)

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _count(self, size: int) -> None:
        self._field_bytes += size
        if self._field_bytes > HEAD_BYTES_MAX:
            self._stop(_TOO_LARGE)

    def _stop(self, problem: Problem) -> None:
        """Leave the parser: it turns what its callbacks raise into an error of its own."""
        self._problem = problem
        raise ValueError(problem.code)

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem and end the connection; an answer under way comes first."""
        self._over = True
        self._disarm()
        if self._transport.is_closing():
            return
        last = self._last if self._last is not None and not self._last.complete else None
        if last is not None and self._in_head:
            last.keep_alive = False  # It is the last one that was read whole: behind its answer the connection ends.
            return
        if last is not None:
            if last.status or self._pipeline:
                self._transport.abort()
                return
            last.lose()
        self._transport.write(_problem_bytes(problem))
        self._linger()

    def _linger(self) -> None:
        """Say that nothing more comes, and give what is on its way a moment to arrive."""
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self.read_on()
        self._loop.call_later(LINGER_SECONDS, self._transport.abort)


_TOO_LARGE: Final = Problem("HEADERS_TOO_LARGE", f"a request's head has at most {HEAD_BYTES_MAX:,} bytes")


def _path_of(url: bytes) -> tuple[str, str]:
    """The path and the query as they were sent."""
    parsed = httptools.parse_url(url)
    return parsed.path.decode("ascii"), "" if parsed.query is None else parsed.query.decode("latin-1")


def _fields_of(given: Sequence[tuple[bytes, bytes]], version: str) -> tuple[dict[bytes, str], str | None]:
    """The fields of a head, several lines of one as a list; and what makes the end of the request doubtful, or None.

    The parser refuses most of it by itself.
    """
    fields: dict[bytes, str] = {}
    again: set[bytes] = set()
    broken = False
    for name, value in given:
        broken = broken or _BROKEN.search(value) is not None
        text = value.decode("latin-1")
        if name in fields:
            again.add(name)
            text = f"{fields[name]}, {text}"
        fields[name] = text
    return fields, _framing_fault(fields, again, version, broken=broken)


def _framing_fault(fields: Mapping[bytes, str], again: Collection[bytes], version: str, *, broken: bool) -> str | None:
    length, coding = fields.get(b"content-length"), fields.get(b"transfer-encoding")
    if version not in {"1.0", "1.1"}:
        return f"HTTP/{version} is not spoken here"
    if version == "1.1" and (b"host" not in fields or b"host" in again):
        return "a request has exactly one Host field"
    if length is not None and not _LENGTH.fullmatch(length):
        return "the request has no usable Content-Length"
    if coding is not None and (length is not None or coding != "chunked" or version == "1.0"):
        return "the request's Transfer-Encoding is not chunked alone"
    if broken:
        return "a header field has a line break or a zero byte"
    return None


@lru_cache(2)
def _date(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}\r\n"


def _problem_bytes(problem: Problem) -> bytes:
    request_id = new_request_id()
    body = json.dumps(problem.document(request_id)).encode()
    fields = {"content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
    if problem.retry_after_seconds is not None:
        fields["retry-after"] = str(problem.retry_after_seconds)
    return f"{answer_head(problem.status, request_id, fields)}\r\n".encode("latin-1") + body
