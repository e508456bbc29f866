"""One request and its answer, between the connection that it came over and the application.

The connection (`protocol`) puts in the head, the pieces of the body, and that the caller has gone. The application (`app`) reads the body
piece by piece and sends an answer, whole or in pieces. Nothing lies between the two: what a general interface would ask for, a table of
values for each request and a message for each step, took longer than most answers do.

For the HTTP loop alone.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, Protocol

from detent.access.problem import MEDIA_TYPE, Problem
from detent.access.scopes import Principal
from detent.serve.authenticate import Known
from detent.serve.caller import Caller
from detent.serve.incoming import Gone, Head
from detent.serve.security import SECURITY_HEADERS, new_request_id
from detent.serve.table import Route

DRAINED_BYTES_MAX: Final = 64 * 1024
DRAIN_SECONDS: Final = 1.0
"""How long a refusal waits for the rest of a small body."""
KEPT_BYTES_MAX: Final = 64 * 1024
"""Bytes of a body that are kept for a handler that reads slowly; then the connection is not read on."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_LINE: Final = re.compile(r"[a-z0-9-]+: [^\x00-\x08\x0a-\x1f\x7f]*")
_STATUS: Final = {one.value: f"HTTP/1.1 {one.value} {one.phrase}\r\n" for one in HTTPStatus}
_SECURITY: Final = "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items())


class Connection(Protocol):
    """What an exchange asks of its connection."""

    peer: str
    scheme: str

    @property
    def moment(self) -> str:
        """The line of an answer's head that says when it was sent."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    @property
    def lags(self) -> bool:
        """Whether the reader does not read as fast as answers are sent."""

    async def drain(self) -> None:
        """Wait for a reader that lags."""

    def read_on(self) -> None:
        """Go on reading."""

    def answered(self, exchange: Exchange) -> None:
        """The answer is whole."""


class Exchange:
    """One request and its answer."""

    def __init__(
        self,
        connection: Connection,
        method: str,
        address: tuple[str, str],
        fields: Mapping[bytes, str],
        *,
        keep_alive: bool,
    ) -> None:
        self._connection = connection
        self.method, self.fields = method, fields
        self.path, self.query = address
        self.keep_alive = keep_alive
        self.request_id = new_request_id()
        self.route = "none"
        self.used: Route | None = None
        """The route, once it is found."""
        self.named: dict[str, str] = {}
        """What its path names."""
        self.known: Known | None = None
        self.caller: Caller
        self.status = 0
        self.code = ""
        self.sent_bytes = 0
        self.said = b""
        """Its body, if that is a document."""
        self.disconnected = False
        self.complete = False
        """Whether the answer is whole."""
        self._kept = bytearray()
        self._whole = False
        self._waiting: list[asyncio.Future[None]] = []
        self._continue = fields.get(b"expect", "").lower() == "100-continue"
        self._chunked = False
        self._left_bytes = 0

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The address of the other end of the connection."""
        return self._connection.peer

    @property
    def scheme(self) -> str:
        """That of the connection."""
        return self._connection.scheme

    @property
    def principal(self) -> Principal | None:
        """Who asks, once that is known."""
        return None if self.known is None else self.known.principal

    @property
    def target(self) -> str:
        """The address with its query, as it was sent."""
        return f"{self.path}?{self.query}" if self.query else self.path

    def header(self, name: bytes) -> str | None:
        """The value of a header; several lines of it are one list."""
        return self.fields.get(name)

    def head(self) -> Head:
        """The request as its handler sees it."""
        host = self.fields[b"host"]  # It is one that the server answers for.
        return Head(self.method, self.caller.scheme, host, self.path, self.query, self.fields.get)

    # -- the connection puts in ----------------------------------------------------------------------------------------

    def take(self, data: bytes) -> bool:
        """Keep a piece of the body; gives whether there is room for more."""
        if self.complete:
            return True
        self._kept += data
        self._wake()
        return len(self._kept) <= KEPT_BYTES_MAX

    def end(self) -> None:
        """The body is whole."""
        self._whole = True
        self._wake()

    def lose(self) -> None:
        """The caller has gone, or is no longer listened to."""
        self.disconnected = True
        self._wake()

    # -- the application reads -----------------------------------------------------------------------------------------

    async def piece(self) -> bytes:
        """The next piece of the body; an empty one is its end. Raises `Gone` when the caller has gone."""
        if self._continue:
            self._continue = False
            self._connection.write(CONTINUE)
        while not (self._kept or self._whole or self.disconnected):
            self._connection.read_on()
            await self._change()
        if self.disconnected:
            raise Gone
        data, self._kept = bytes(self._kept), bytearray()
        return data

    async def gone(self) -> None:
        """Wait until the caller closes the connection."""
        while not (self.disconnected or self.complete):
            self._kept.clear()
            self._connection.read_on()
            await self._change()

    async def drained(self) -> None:
        """Take what is still to come of a small body, so that the connection of a refused request can be used again."""
        length = self.fields.get(b"content-length", "0")
        if self._whole or not 0 < int(length) <= DRAINED_BYTES_MAX:
            return
        with suppress(TimeoutError, Gone):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._whole:
                    await self.piece()

    # -- and answers ---------------------------------------------------------------------------------------------------

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the head of the answer."""
        await self._send(self._head(status, headers, None))

    async def body(self, data: bytes, *, more: bool = False) -> None:
        """Send a piece of an answer that was begun; the last one ends it."""
        self.sent_bytes += len(data)
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data += b"" if more else b"0\r\n\r\n"
        elif self.method != "HEAD":
            self._left_bytes -= len(data)
        await self._send(data)
        if more:
            return
        if self._left_bytes and self.method != "HEAD":
            raise ValueError("an answer is not as long as it says")
        self._end()

    async def whole(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        """Send an answer of known length, in one piece."""
        self.sent_bytes += len(data)
        head = self._head(status, headers, len(data))
        await self._send(head if self.method == "HEAD" else head + data)
        self._end()

    async def bare(self, status: int, headers: Mapping[str, str]) -> None:
        """Send an answer that has no content: 204, 304, or any to HEAD."""
        await self._send(self._head(status, headers, None))
        self._end()

    async def problem(self, problem: Problem, headers: Mapping[str, str]) -> None:
        """Answer with a problem."""
        await self.drained()
        self.code = problem.code
        fields = {"content-type": MEDIA_TYPE, "cache-control": "no-store", **headers}
        if problem.retry_after_seconds is not None:
            fields["retry-after"] = str(problem.retry_after_seconds)
        await self.whole(problem.status, fields, json.dumps(problem.document(self.request_id)).encode())

    # -- inside --------------------------------------------------------------------------------------------------------

    def _head(self, status: int, headers: Mapping[str, str], length: int | None) -> bytes:
        said = answer_head(status, self.request_id, headers) + self._connection.moment
        if length is not None:
            said += f"content-length: {length}\r\n"
        elif "content-length" in headers:
            self._left_bytes = int(headers["content-length"])
        elif self.method != "HEAD" and status not in {204, 304}:
            self._chunked = True
            said += "transfer-encoding: chunked\r\n"
        if not self.keep_alive:
            said += "connection: close\r\n"
        head = f"{said}\r\n".encode("latin-1")
        self.status = status
        return head

    async def _send(self, data: bytes) -> None:
        self._continue = False
        if self._connection.lags and not self.disconnected:
            await self._connection.drain()
        if data and not self.disconnected:
            self._connection.write(data)

    def _end(self) -> None:
        self.complete = True
        self._wake()
        self._connection.answered(self)

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)


def answer_head(status: int, request_id: str, headers: Mapping[str, str]) -> str:
    """The head of an answer, without its end: with the headers of every answer, unless it has others of these names."""
    common = _SECURITY
    if not SECURITY_HEADERS.keys().isdisjoint(headers):
        common = "".join(f"{name}: {value}\r\n" for name, value in SECURITY_HEADERS.items() if name not in headers)
    lines = []
    for name, value in headers.items():
        line = f"{name}: {value}"
        if _LINE.fullmatch(line) is None:
            raise ValueError(f"the header {name!r} of an answer cannot be sent")
        lines.append(f"{line}\r\n")
    return f"{_STATUS[status]}detent-request-id: {request_id}\r\n{common}{''.join(lines)}"
