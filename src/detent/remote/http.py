"""Requests to a server: kept connections, deadlines, bounded answers, and a repeat where an answer was lost.

The rules:

* A connection that was kept may have been closed by the server meanwhile. A request on it that gets no answer is sent once more on a
  fresh connection.
* A request may be repeated only where that is safe. GET, HEAD, PUT and DELETE are. A POST carries an ``Idempotency-Key``, made
  here unless the caller has one, so that the server answers a repeat with what it answered first.
* ``patience`` says for how long a request is repeated while the server cannot be reached or says that it is busy or stopping. The
  pause grows from 0.1 s to 2 s, or is what ``Retry-After`` says.
* An answer is read up to a limit, within a deadline; what does not fit is an error and closes the connection.

Safe for several threads: each request has a connection of its own while it lasts.

Known weak spot: the deadline is looked at between reads, so a server that trickles header lines can stretch it.
"""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from types import TracebackType
from typing import Any, BinaryIO, Final, Self
from urllib.parse import quote, urlencode
from uuid import uuid4

from detent.errors import DetentError, InvalidInput, RequestRefused
from detent.remote.address import Address
from detent.remote.pins import spki_digest
from detent.remote.problems import AnswerInvalid, ServerUnreachable, error_from
from detent.version import __version__

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
ANSWER_SECONDS: Final = 60.0
CONNECT_SECONDS: Final = 10.0
KEPT_MAX: Final = 8
"""Connections that are kept between requests."""
KEPT_SECONDS: Final = 60.0
"""A connection that has been idle for longer is not used again: servers and proxies close them."""
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
RETRY_AFTER_MAX: Final = 60.0
EVENT_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
JSON: Final = "application/json"
_CHUNK: Final = 256 * 1024
_BUSY: Final = frozenset({429, 502, 503, 504})
"""Answers that a later repeat may not get; 502 and 504 are a proxy's words for a server that is restarting."""


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


class _Connection:
    """One connection, and whether it has been used."""

    def __init__(self, address: Address, context: ssl.SSLContext | None) -> None:
        self.used_at: float | None = None
        if context is None:
            self.http = HTTPConnection(address.host, address.port, timeout=CONNECT_SECONDS)
        else:
            self.http = HTTPSConnection(address.host, address.port, timeout=CONNECT_SECONDS, context=context)
        self.http.connect()
        if context is not None and address.pin is not None:
            shown = self.http.sock.getpeercert(binary_form=True) if isinstance(self.http.sock, ssl.SSLSocket) else None
            if shown is None or spki_digest(shown) != address.pin:
                self.http.close()
                raise RequestRefused(
                    f"{address.url} shows another public key than the pinned one",
                    code="SERVER_UNTRUSTED",
                    hint="ask the operator whether the server's key was changed; until then, do not send it anything",
                )


Signer = Callable[[str, str, str, bytes], Mapping[str, str]]
"""Headers for a request: by its method, path and query as the server sees them, and its body."""


class Http:
    """Sends requests to one server."""

    def __init__(
        self,
        address: Address,
        *,
        patience: float = 0.0,
        agent: str = "detent",
        greet: Callable[[Http], None] | None = None,
    ) -> None:
        """``patience``: for how many seconds a request is repeated while the server cannot answer; 0 gives up at once.

        ``greet`` is called before the first request, and before the first after a silence of the server: another one may
        have come back. What it raises, the request raises.
        """
        self.address = address
        self._greet, self._is_greeted, self._is_greeting = greet, False, False
        self.patience = patience
        self._agent = f"{agent}/{__version__}"
        self._context = _context(address)
        self._kept: list[_Connection] = []
        self._lock = threading.Lock()
        self.signer: Signer | None = None
        """Adds a signature to every try of a request (`remote/operator_key.py`)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.http.close()

    def ask(  # noqa: PLR0913 - options, all by name
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: object = None,
        data: bytes | None = None,
        media_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        seconds: float = ANSWER_SECONDS,
        bytes_max: int = ANSWER_BYTES_MAX,
        patience: float | None = None,
        refusals: bool = True,
    ) -> Reply:
        """Send one request and read its answer.

        ``body`` is sent as JSON, ``data`` as it is. ``seconds`` is the deadline of one try. ``refusals``: raise the error that a
        problem document stands for; without it every answer is given back as it came.
        """
        sent = {
            "accept": "*/*",
            "user-agent": self._agent,
            **{name.lower(): value for name, value in (headers or {}).items()},
        }
        content = data if body is None else json.dumps(body).encode()
        if content is not None:
            sent.setdefault("content-type", media_type)
        if self.address.key is not None:
            sent.setdefault("authorization", f"Bearer {self.address.key}")
        if method == "POST":
            sent.setdefault("idempotency-key", idempotency_key or uuid4().hex)
        target = self.target(path, query)
        until = time.monotonic() + (self.patience if patience is None else patience)
        for wait in _pauses():
            try:
                self._meet()
                reply = self._tried(method, target, content, sent, seconds, bytes_max)
            except ServerUnreachable:
                self._is_greeted = False
                if time.monotonic() + wait > until:
                    raise
            else:
                pause = max(wait, _retry_after(reply))
                if reply.status not in _BUSY or time.monotonic() + pause > until:
                    return self._judged(reply) if refusals else reply
                wait = pause  # noqa: PLW2901 - what the server asks for, if it is longer
            time.sleep(wait)
        raise AssertionError

    def get(self, path: str, query: Mapping[str, object] | None = None, **options: Any) -> Any:
        """The document at a path."""
        return self.ask("GET", path, query=query, **options).json

    def post(self, path: str, body: object, **options: Any) -> Any:
        """The document that answers a POST."""
        return self.ask("POST", path, body=body, **options).json

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float = ANSWER_SECONDS,
    ) -> Iterator[Iterator[bytes]]:
        """The lines of an answer that goes on for as long as the block lasts; ``silence`` is how long the next may take."""
        sent = {"user-agent": self._agent, **(headers or {})}
        if self.address.key is not None:
            sent["authorization"] = f"Bearer {self.address.key}"
        connection = self._connect()
        try:
            answer = self._sent(connection, "GET", self.target(path, query), None, sent, silence)
            if answer.status != 200:
                body = answer.read(ANSWER_BYTES_MAX)
                self._judged(Reply(answer.status, _fields(answer), body))
                raise AnswerInvalid(f"{self.address.url} answered a stream with status {answer.status}")
            yield self._lines(answer)
        finally:
            connection.http.close()

    @contextmanager
    def pieces(
        self, path: str, *, query: Mapping[str, object], headers: Mapping[str, str], silence: float = ANSWER_SECONDS
    ) -> Iterator[Iterator[bytes]]:
        """The bytes of an answer of any length, for as long as the block lasts; ``silence`` is how long the next may take."""
        connection = self._connect()
        try:
            sent = {"user-agent": self._agent, "accept": "*/*", **headers}
            answer = self._sent(connection, "GET", self.target(path, query), None, sent, silence)
            if answer.status != 200:
                self._judged(Reply(answer.status, _fields(answer), answer.read(ANSWER_BYTES_MAX)))
            yield self._read(answer)
        finally:
            connection.http.close()

    def _read(self, answer: HTTPResponse) -> Iterator[bytes]:
        try:
            while piece := answer.read1(_CHUNK):
                yield piece
        except (OSError, HTTPException) as exc:
            raise self._unreachable(exc) from exc
        if answer.length:
            raise self._unreachable(ConnectionError("the answer ended before its end"))

    def put_file(
        self, path: str, file: BinaryIO, size_bytes: int, *, query: Mapping[str, object], headers: Mapping[str, str]
    ) -> None:
        """Send a file of any length."""
        connection = self._connect()
        try:
            sent = {
                "user-agent": self._agent,
                "content-type": "application/octet-stream",
                "content-length": str(size_bytes),
                **headers,
            }
            answer = self._sent(connection, "PUT", self.target(path, query), file, sent, ANSWER_SECONDS)
            self._judged(Reply(answer.status, _fields(answer), answer.read(ANSWER_BYTES_MAX)))
        finally:
            connection.http.close()

    def target(self, path: str, query: Mapping[str, object] | None = None) -> str:
        """The path and query as they are sent; a value of None is left out."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        return self.address.prefix + path + (f"?{urlencode(given, quote_via=quote)}" if given else "")

    def _meet(self) -> None:
        """Look at a server that was not seen before, or not for a while; requests of the look itself are sent without one."""
        if self._greet is None or self._is_greeted or self._is_greeting:
            return
        self._is_greeting = True
        try:
            self._greet(self)
            self._is_greeted = True
        finally:
            self._is_greeting = False

    # -- one try -------------------------------------------------------------------------------------------------------

    def _tried(
        self,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        bytes_max: int,
    ) -> Reply:
        """One try, and a second one where a kept connection turned out to be closed."""
        connection = self._taken()
        if connection is not None:
            with suppress(ServerUnreachable):
                return self._exchange(connection, method, target, content, headers, seconds, bytes_max)
        return self._exchange(self._connect(), method, target, content, headers, seconds, bytes_max)

    def _exchange(
        self,
        connection: _Connection,
        method: str,
        target: str,
        content: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        bytes_max: int,
    ) -> Reply:
        deadline = time.monotonic() + seconds
        keep = False
        try:
            if self.signer is not None and "signature" not in headers:
                # For each try anew: a server takes a signature once. What a proxy cuts off is not part of what is signed.
                path, _, query = target.removeprefix(self.address.prefix).partition("?")
                headers = {**headers, **self.signer(method, path, query, content or b"")}
            answer = self._sent(connection, method, target, content, headers, seconds)
            body = self._body(connection, answer, deadline, bytes_max)
            keep = not answer.will_close
            return Reply(answer.status, _fields(answer), body)
        finally:
            self._let_go(connection, keep=keep)

    def _sent(
        self,
        connection: _Connection,
        method: str,
        target: str,
        content: bytes | BinaryIO | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> HTTPResponse:
        connection.http.sock.settimeout(seconds)
        try:
            try:
                connection.http.request(method, target, body=content, headers=dict(headers))
            except (BrokenPipeError, ConnectionResetError):
                # The server may have answered and closed before it read everything; what it said is worth more.
                if content is None:
                    raise
            return connection.http.getresponse()
        except (OSError, HTTPException) as exc:
            raise self._unreachable(exc) from exc

    def _body(self, connection: _Connection, answer: HTTPResponse, deadline: float, bytes_max: int) -> bytes:
        """The body, up to a limit and a deadline."""
        pieces, size = [], 0
        try:
            while piece := answer.read1(_CHUNK):
                size += len(piece)
                if size > bytes_max:
                    raise AnswerInvalid(f"the answer of {self.address.url} is larger than {bytes_max:,} bytes")
                pieces.append(piece)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the answer took too long")
                if connection.http.sock is not None:
                    connection.http.sock.settimeout(left)
        except (OSError, HTTPException) as exc:
            raise self._unreachable(exc) from exc
        expected = answer.headers.get("content-length")
        if answer.length:
            raise self._unreachable(ConnectionError(f"the answer ended after {size:,} of {expected} bytes"))
        if answer.length is None and not answer.chunked:
            # Cut off among its headers, or or of unknown length: nothing tells whether all of it came.
            raise self._unreachable(ConnectionError("the answer does not say how long it is"))
        answer.close()  # Read to its end: the connection is free for the next request.
        return b"".join(pieces)

    def _lines(self, answer: HTTPResponse) -> Iterator[bytes]:
        while True:
            try:
                line = answer.readline(EVENT_LINE_BYTES_MAX)
            except (OSError, HTTPException) as exc:
                raise self._unreachable(exc) from exc
            if not line:
                return
            if not line.endswith(b"\n"):
                if len(line) >= EVENT_LINE_BYTES_MAX:
                    raise AnswerInvalid(f"a line of {self.address.url} is longer than {EVENT_LINE_BYTES_MAX:,} bytes")
                return  # Cut off in the middle of a line: the rest comes when the stream is resumed.
            yield line.rstrip(b"\r\n")

    def _judged(self, reply: Reply) -> Reply:
        if 200 <= reply.status < 300 or reply.status == 304:
            return reply
        if 300 <= reply.status < 400:
            where = reply.headers.get("location", "elsewhere")
            raise AnswerInvalid(
                f"{self.address.url} redirects to {where!r:.200}", hint="use that address itself if you trust it"
            )
        try:
            document = json.loads(reply.body)
        except ValueError:
            document = None
        error = error_from(reply.status, document, self.address.url)
        if reply.status in _BUSY and isinstance(error, AnswerInvalid):
            raise ServerUnreachable(f"{self.address.url} is not available now (status {reply.status})", hint=_TRY_AGAIN)
        raise error

    # -- connections ---------------------------------------------------------------------------------------------------

    def _taken(self) -> _Connection | None:
        with self._lock:
            while self._kept:
                connection = self._kept.pop()
                if connection.used_at is not None and time.monotonic() - connection.used_at < KEPT_SECONDS:
                    return connection
                connection.http.close()
        return None

    def _let_go(self, connection: _Connection, *, keep: bool) -> None:
        with self._lock:
            if keep and connection.http.sock is not None and len(self._kept) < KEPT_MAX:
                connection.used_at = time.monotonic()
                self._kept.append(connection)
                return
        connection.http.close()

    def _connect(self) -> _Connection:
        try:
            return _Connection(self.address, self._context)
        except ssl.SSLCertVerificationError as exc:
            raise RequestRefused(
                f"the certificate of {self.address.url} is not valid: {exc.verify_message}",
                code="SERVER_UNTRUSTED",
                hint="install its authority on this machine, point SSL_CERT_FILE to it, or pin its key: --pin sha256:...",
            ) from exc
        except DetentError:
            raise
        except (OSError, HTTPException) as exc:
            raise self._unreachable(exc) from exc

    def _unreachable(self, exc: BaseException) -> ServerUnreachable:
        what = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc) or type(exc).__name__
        return ServerUnreachable(f"no answer from {self.address.url}: {what}", hint=_TRY_AGAIN)


_TRY_AGAIN: Final = "is the server running, and the address right? The same command may be repeated safely"


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


def _pauses() -> Iterator[float]:
    """Growing pauses, each a little different, so that many clients of one server do not come back at once."""
    pause = PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
        pause = min(PAUSE_SECONDS_MAX, pause * 2)


def _retry_after(reply: Reply) -> float:
    written = reply.headers.get("retry-after", "")
    return min(RETRY_AFTER_MAX, float(written)) if written.isascii() and written.isdecimal() else 0.0


def _fields(answer: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.getheaders()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidInput(f"a query value is text or a number, not {type(value).__name__}")
