"""uvicorn's HTTP protocol with deadlines and limits of our own.

uvicorn waits for ever: for headers that trickle in byte by byte, for a body that never comes, for a reader that never reads; and it
takes headers of any size. Each of these costs an attacker nothing and the server a connection. Here every phase of a request has a
deadline, and everything that is kept before a handler runs has a bound:

    waiting for a request ── keep-alive ──> head ── 10 s, 32 KiB, 100 fields ──> body ── 1 KiB/s after 5 s ──> answer ── 30 s a stall

What cannot be read as one request in one way is answered with 400 and the connection ends: request smuggling needs two readers that
go on after a disagreement. An answer that ends before the request's body does ends the connection, too; what still arrives
is thrown away for a moment first, because closing at once would destroy the answer on its way.

Subclassing internals is a risk of its own: the release of uvicorn is pinned, and tests/serve/test_framing.py and
test_deadlines.py try every rule on a running server.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from detent.access.problem import MEDIA_TYPE, Problem
from detent.serve.limits import CONNECTIONS
from detent.serve.security import SECURITY_HEADERS, new_request_id

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
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")


class LimitedProtocol(HttpToolsProtocol):
    """One connection, with a deadline in each phase."""

    connections_max = CONNECTIONS
    _problem: Problem | None = None
    _over = False
    """Whether nothing more is read as a request."""
    _in_head = True
    _in_body = False
    _head_bytes = 0
    _drained_bytes = 0
    _body_bytes = 0
    _body_seconds = 0
    _timer: asyncio.TimerHandle | None = None
    """The deadline of the phase: of the head, or the next look at the body."""
    _stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request's head."""
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            self._refuse(Problem("CONNECTIONS_FULL", f"{self.connections_max:,} connections are open"))
        else:
            self._arm(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self._disarm()
        self._over = True
        if self._stall is not None:
            self._stall.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, a bounded piece of a head at a time."""
        self._unset_keepalive_if_required()
        while data and not self._over:
            if not self._in_head:
                data = self._feed(data, b"")
                continue
            if self._timer is None:
                self._arm(HEAD_SECONDS)
            room = HEAD_BYTES_MAX + 1 - self._head_bytes
            piece, data = data[:room], self._feed(data[:room], data[room:])
            if self._in_head and not self._over:
                self._count(len(piece))
        if self._over and data:
            self._drained_bytes += len(data)
            if self._drained_bytes > LINGER_BYTES_MAX:
                self.transport.abort()

    def _feed(self, data: bytes, rest: bytes) -> bytes:
        """Have the parser read; gives back the rest, or nothing where the connection is over."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # No upgrade is on offer. The request is answered as if it had asked for none, and the connection ends with it.
            self._over = True
            self._disarm()
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._problem or Problem("REQUEST_INVALID", "the request cannot be read as HTTP/1.1"))
        return rest

    # -- the parser's calls --------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._timer is None:
            self._arm(HEAD_SECONDS)
        if len(self.pipeline) >= PIPELINED_MAX:
            self._stop(Problem("REQUEST_INVALID", f"more than {PIPELINED_MAX} requests were sent without waiting"))

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._count_or_stop(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One field of the head."""
        self._count_or_stop(len(name) + len(value) + 4)
        if len(self.headers) >= FIELDS_MAX:
            self._stop(Problem("HEADERS_TOO_LARGE", f"a request has at most {FIELDS_MAX} header fields"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is whole: judge how the body is framed, then let the application begin."""
        fault = _framing_fault(self.headers, self.parser.get_http_version())
        if fault is not None:
            self._stop(Problem("REQUEST_INVALID", fault))
        if not self.url.startswith(b"/"):
            self._stop(Problem("REQUEST_INVALID", "the request's target is not a path of this server"))
        super().on_headers_complete()
        self._in_head, self._in_body = False, True
        self._body_bytes = self._body_seconds = 0
        self._arm(BODY_GRACE_SECONDS)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole; the next one has its own deadline, from its first byte."""
        self._in_head, self._in_body, self._head_bytes = True, False, 0
        self._disarm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless this one was answered before it was whole."""
        if self._in_body and not self.pipeline and not self.transport.is_closing():
            self._over = True
            self._disarm()
            self._linger()
            return
        super().on_response_complete()

    # -- writing -------------------------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The reader lags: it has some time to go on."""
        super().pause_writing()
        self._stall = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It goes on."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        super().resume_writing()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._due)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        if self._in_head:
            self._refuse(Problem("REQUEST_TIMEOUT", f"the request's head did not arrive within {HEAD_SECONDS:g} s"))
            return
        # While the application is not reading, the client cannot send: that time does not count.
        self._body_seconds += 0 if self.flow.read_paused else 1
        if self._body_bytes < BODY_BYTES_PER_SECOND * self._body_seconds:
            self._refuse(
                Problem("REQUEST_TIMEOUT", f"the body arrived slower than {BODY_BYTES_PER_SECOND} bytes a second")
            )
        else:
            self._arm(1)

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(_TOO_LARGE)

    def _count_or_stop(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES_MAX:
            self._stop(_TOO_LARGE)

    def _stop(self, problem: Problem) -> None:
        """Leave the parser: it turns what its callbacks raise into an error of its own."""
        self._problem = problem
        raise ValueError(problem.code)

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem and end the connection; an answer under way comes first."""
        self._over = True
        self._disarm()
        if self.transport.is_closing():
            return
        current = self.cycle if self.cycle is not None and not self.cycle.response_complete else None
        if current is not None and self._in_head:
            current.keep_alive = False  # It is the last one that was read whole: behind its answer the connection ends.
            return
        if current is not None:
            if current.response_started or self.pipeline:
                self.transport.abort()
                return
            current.disconnected = True
            current.message_event.set()
        self.transport.write(_problem_bytes(problem))
        self._linger()

    def _linger(self) -> None:
        """Say that nothing more comes, and give what is on its way a moment to arrive."""
        if not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        self.flow.resume_reading()
        self.loop.call_later(LINGER_SECONDS, self.transport.abort)


_TOO_LARGE: Final = Problem("HEADERS_TOO_LARGE", f"a request's head has at most {HEAD_BYTES_MAX:,} bytes")


def _framing_fault(headers: list[tuple[bytes, bytes]], version: str) -> str | None:
    """What makes the end of a request doubtful; the parser refuses most of it by itself."""
    names = [name for name, _ in headers]
    lengths = [value for name, value in headers if name == b"content-length"]
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if version not in {"1.0", "1.1"}:
        return f"HTTP/{version} is not spoken here"
    if names.count(b"host") != 1 and version == "1.1":
        return "a request has exactly one Host field"
    if len(lengths) > 1 or any(not _LENGTH.fullmatch(value) for value in lengths):
        return "the request has no usable Content-Length"
    if codings and (lengths or codings != [b"chunked"] or version == "1.0"):
        return "the request's Transfer-Encoding is not chunked alone"
    if any(b"\n" in value or b"\r" in value or b"\0" in value for _, value in headers):
        return "a header field has a line break or a zero byte"
    return None


def _problem_bytes(problem: Problem) -> bytes:
    request_id = new_request_id()
    body = json.dumps(problem.document(request_id)).encode()
    fields: dict[str, Any] = {
        "content-type": MEDIA_TYPE,
        "content-length": len(body),
        "connection": "close",
        "detent-request-id": request_id,
        **SECURITY_HEADERS,
    }
    if problem.retry_after_seconds is not None:
        fields["retry-after"] = problem.retry_after_seconds
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return STATUS_LINE[problem.status] + head.encode("latin-1") + b"\r\n" + body
