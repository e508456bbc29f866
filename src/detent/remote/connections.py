"""Connections to one server: kept between requests, closed when idle for long, with the server's key checked.

An answer is read up to a limit, within a deadline; what does not fit is an error and closes the connection.

Known weak spot: the deadline is looked at between reads, so a server that trickles header lines can stretch it.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from typing import Any, BinaryIO, Final

from detent.errors import DetentError, RequestRefused
from detent.remote.address import Address
from detent.remote.pins import spki_digest
from detent.remote.problems import AnswerInvalid, ServerUnreachable

CONNECT_SECONDS: Final = 10.0
KEPT_MAX: Final = 8
"""Connections that are kept between requests."""
KEPT_SECONDS: Final = 60.0
"""A connection that has been idle for longer is not used again: servers and proxies close them."""
EVENT_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
TRY_AGAIN: Final = "is the server running, and the address right? The same command may be repeated safely"
_CHUNK: Final = 256 * 1024
_UNSURE: Final = "the answer does not say how long it is"
"""Cut off among its headers, or of unknown length: nothing tells whether all of it came."""
_CLOSED: Final = "it closed the connection without an answer: does it speak https://?"
_REQUEST_ID: Final = "detent-request-id"
"""The header in which a server gives every answer a name of its own."""
_TWICE: Final = "an answer came twice, as through a proxy that is at fault"
_PLAIN: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"})
"""What OpenSSL says of a server that answers in plain text."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """By their names in small letters."""
    body: bytes

    @property
    def json(self) -> Any:
        """The document of the answer."""
        try:
            return json.loads(self.body)
        except ValueError as exc:
            raise AnswerInvalid(
                "the server's answer is not JSON", hint="is this the address of a Detent server?"
            ) from exc


@dataclass(frozen=True, slots=True)
class Opened:
    """An answer that is being read."""

    headers: Mapping[str, str]
    """By their names in small letters."""
    _answer: HTTPResponse
    _socket: socket.socket
    _address: Address

    def cut(self) -> None:
        """End it from another thread than the one that reads it, which sees its end then."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def pieces(self) -> Iterator[bytes]:
        """Its bytes; `ServerUnreachable` where it ends before its end."""
        try:
            while piece := self._answer.read1(_CHUNK):
                yield piece
        except (OSError, HTTPException) as exc:
            raise unreachable(self._address, exc) from exc
        if self._answer.length:
            raise unreachable(self._address, ConnectionError("the answer ended before its end"))
        if self._answer.length is None and not self._answer.chunked:
            raise unreachable(self._address, ConnectionError(_UNSURE))

    def lines(self) -> Iterator[bytes]:
        """Its lines, for as long as it goes on; one that is cut off in its middle is left out."""
        while True:
            try:
                line = self._answer.readline(EVENT_LINE_BYTES_MAX)
            except (OSError, HTTPException) as exc:
                raise unreachable(self._address, exc) from exc
            if not line:
                return
            if not line.endswith(b"\n"):
                if len(line) >= EVENT_LINE_BYTES_MAX:
                    raise AnswerInvalid(f"a line of the answer is longer than {EVENT_LINE_BYTES_MAX:,} bytes")
                return  # The rest comes when the stream is resumed.
            yield line.rstrip(b"\r\n")


class Connection:
    """One connection, and when it was used last."""

    def __init__(self, address: Address, context: ssl.SSLContext | None) -> None:
        self._address = address
        self.used_at: float | None = None
        self._answered: str | None = None
        """The name of the last answer."""
        if context is None:
            self.http = HTTPConnection(address.host, address.port, timeout=CONNECT_SECONDS)
        else:
            self.http = HTTPSConnection(address.host, address.port, timeout=CONNECT_SECONDS, context=context)
        self.http.connect()
        self.socket: socket.socket = self.http.sock
        if context is not None and address.pin is not None:
            shown = self.http.sock.getpeercert(binary_form=True) if isinstance(self.http.sock, ssl.SSLSocket) else None
            if shown is None or spki_digest(shown) != address.pin:
                self.http.close()
                raise RequestRefused(
                    f"{address.url} shows another public key than the pinned one",
                    code="SERVER_UNTRUSTED",
                    hint="ask the operator whether the server's key was changed; until then, do not send it anything",
                )

    def is_silent(self) -> bool:
        """Whether nothing has come since the last answer. What came is not asked for: an end, or an answer that was given twice."""
        self.socket.setblocking(False)
        try:
            self.socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def send(
        self,
        method: str,
        target: str,
        content: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> HTTPResponse:
        """Send a request; gives its answer as soon as that begins, within so many seconds."""
        self.http.sock.settimeout(seconds)
        try:
            try:
                self.http.request(method, target, body=content, headers=dict(headers))
            except (BrokenPipeError, ConnectionResetError):
                # The server may have answered and closed before it read everything; what it said is worth more.
                if content is None:
                    raise
            answer = self.http.getresponse()
            self._insist_on_another(answer.headers.get(_REQUEST_ID))
            return answer
        except (OSError, HTTPException) as exc:
            raise unreachable(self._address, exc) from exc

    def _insist_on_another(self, name: str | None) -> None:
        """Raise where an answer is the one before, given again: it came too late to be seen before the request was sent."""
        if name is not None and name == self._answered:
            raise ConnectionError(_TWICE)
        self._answered = name

    def body(self, answer: HTTPResponse, deadline: float, bytes_max: int) -> bytes:
        """The body of an answer, up to a limit and a deadline."""
        pieces, size = [], 0
        try:
            while piece := answer.read1(_CHUNK):
                size += len(piece)
                if size > bytes_max:
                    raise AnswerInvalid(f"the answer of {self._address.url} is larger than {bytes_max:,} bytes")
                pieces.append(piece)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the answer took too long")
                if self.http.sock is not None:
                    self.http.sock.settimeout(left)
        except (OSError, HTTPException) as exc:
            raise unreachable(self._address, exc) from exc
        expected = answer.headers.get("content-length")
        if answer.length:
            raise unreachable(self._address, ConnectionError(f"the answer ended after {size:,} of {expected} bytes"))
        if answer.length is None and not answer.chunked:
            raise unreachable(self._address, ConnectionError(_UNSURE))
        answer.close()  # Read to its end: the connection is free for the next request.
        return b"".join(pieces)


class Connections:
    """The connections to one server. Safe for several threads: each request has one of its own while it lasts."""

    def __init__(self, address: Address) -> None:
        self._address, self._context = address, _context(address)
        self._kept: list[Connection] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close those that are kept."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.http.close()

    def take(self) -> Connection | None:
        """One that was kept, if there is one."""
        with self._lock:
            while self._kept:
                connection = self._kept.pop()
                recent = connection.used_at is not None and time.monotonic() - connection.used_at < KEPT_SECONDS
                if recent and connection.is_silent():
                    return connection
                connection.http.close()
        return None

    def let_go(self, connection: Connection, *, keep: bool) -> None:
        """Keep a connection for the next request, or close it."""
        with self._lock:
            if keep and connection.http.sock is not None and len(self._kept) < KEPT_MAX:
                connection.used_at = time.monotonic()
                self._kept.append(connection)
                return
        connection.http.close()

    def open(self) -> Connection:
        """A fresh one."""
        try:
            return Connection(self._address, self._context)
        except ssl.SSLCertVerificationError as exc:
            raise RequestRefused(
                f"the certificate of {self._address.url} is not valid: {exc.verify_message}",
                code="SERVER_UNTRUSTED",
                hint="install its authority on this machine, point SSL_CERT_FILE to it, or pin its key: --pin sha256:...",
            ) from exc
        except ssl.SSLError as exc:
            plain = exc.reason in _PLAIN
            raise AnswerInvalid(
                f"{self._address.url} does not speak TLS"
                if plain
                else f"no TLS with {self._address.url}: {exc.reason}",
                hint="use http:// for a server on this machine without TLS" if plain else "ask the server's operator",
            ) from exc
        except DetentError:
            raise
        except (OSError, HTTPException) as exc:
            raise unreachable(self._address, exc) from exc


def unreachable(address: Address, exc: BaseException) -> ServerUnreachable:
    """The error of a server that gave no answer."""
    what = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
    closed = isinstance(exc, RemoteDisconnected | ConnectionResetError) and address.scheme == "http"
    hint = f"{_CLOSED} Else: {TRY_AGAIN}" if closed else TRY_AGAIN
    return ServerUnreachable(f"no answer from {address.url}: {what}", hint=hint)


def _context(address: Address) -> ssl.SSLContext | None:
    if address.scheme == "http":
        return None
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if address.pin is not None:
        # The pin says who the server is; a certificate that it signed itself will do.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def fields_of(answer: HTTPResponse) -> dict[str, str]:
    """The headers of an answer, by their names in small letters."""
    return {name.lower(): value for name, value in answer.getheaders()}
