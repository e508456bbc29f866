"""Requests to a server: kept connections, deadlines, bounded answers, and a repeat where an answer was lost.

The rules:

* A connection that was kept may have been closed by the server meanwhile. A request on it that gets no answer is sent once more on a
  fresh connection.
* A request may be repeated only where that is safe. GET, HEAD, PUT and DELETE are. A POST carries an ``Idempotency-Key``, made
  here unless the caller has one, so that the server answers a repeat with what it answered first.
* ``patience`` says for how long a request is repeated while the server cannot be reached or says that it is busy or stopping. The
  pause grows from 0.1 s to 2 s, or is what ``Retry-After`` says.

Safe for several threads: each request has a connection of its own while it lasts (`connections`).
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from types import TracebackType
from typing import Any, BinaryIO, Final, Self, TypeVar
from urllib.parse import quote, urlencode
from uuid import uuid4

from detent.errors import InvalidInput
from detent.remote.address import Address
from detent.remote.connections import TRY_AGAIN, Connection, Connections, Opened, Reply, fields_of
from detent.remote.problems import AnswerInvalid, ServerUnreachable, error_from
from detent.version import __version__

T = TypeVar("T")
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
ANSWER_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 0.1
PAUSE_SECONDS_MAX: Final = 2.0
RETRY_AFTER_MAX: Final = 60.0
JSON: Final = "application/json"
_BUSY: Final = frozenset({429, 502, 503, 504})
"""Answers that a later repeat may not get; 502 and 504 are a proxy's words for a server that is restarting."""


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
        self.greet = greet
        self._is_greeted, self._greeter = False, threading.Lock()
        self._greeting: int | None = None
        """The thread that is looking at the server."""
        self.patience = patience
        self._agent = f"{agent}/{__version__}"
        self._connections = Connections(address)
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
        self._connections.close()

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
        reply = self._repeated(
            lambda: self._tried(method, target, content, sent, seconds, bytes_max), lambda one: one, patience
        )
        return self._judged(reply) if refusals else reply

    def _repeated(self, once: Callable[[], T], reply_of: Callable[[T], Reply], patience: float | None) -> T:
        """Try until the server answers and is not busy, as long as patience lasts."""
        until = time.monotonic() + (self.patience if patience is None else patience)
        pauses = Pauses()
        while True:
            pause = pauses.next()
            try:
                self._meet()
                tried = once()
            except ServerUnreachable:
                self._is_greeted = False
                if time.monotonic() + pause > until:
                    raise
            else:
                reply = reply_of(tried)
                pause = max(pause, _retry_after(reply))
                if reply.status not in _BUSY or time.monotonic() + pause > until:
                    return tried
            time.sleep(pause)

    def get(self, path: str, query: Mapping[str, object] | None = None, **options: Any) -> Any:
        """The document at a path."""
        return self.ask("GET", path, query=query, **options).json

    def post(self, path: str, body: object, **options: Any) -> Any:
        """The document that answers a POST."""
        return self.ask("POST", path, body=body, **options).json

    @contextmanager
    def opened(
        self,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float = ANSWER_SECONDS,
        patience: float | None = None,
        signed: bool = False,
    ) -> Iterator[Opened]:
        """An answer of any length, for as long as the block lasts; ``silence`` is how long its next bytes may take.

        ``patience`` is for its beginning, as with `ask`. ``signed``: the query is the credential, and no key is shown.
        """
        sent = {"user-agent": self._agent, "accept": "*/*", **(headers or {})}
        if self.address.key is not None and not signed:
            sent.setdefault("authorization", f"Bearer {self.address.key}")
        target = self.target(path, query)

        def once() -> tuple[Connection, HTTPResponse, Reply]:
            connection = self._connections.open()
            try:
                answer = connection.send("GET", target, None, sent, silence)
                if answer.status == 200:
                    return connection, answer, Reply(answer.status, fields_of(answer), b"")
                refusal = Reply(answer.status, fields_of(answer), answer.read(ANSWER_BYTES_MAX))
            except BaseException:
                connection.http.close()
                raise
            connection.http.close()
            return connection, answer, refusal

        connection, answer, reply = self._repeated(once, lambda tried: tried[2], patience)
        try:
            self._judged(reply)
            if reply.status != 200:
                raise AnswerInvalid(f"{self.address.url} answered with status {reply.status} and nothing to read")
            yield Opened(reply.headers, answer, connection.socket, self.address)
        finally:
            connection.http.close()

    def put_file(
        self, path: str, file: BinaryIO, size_bytes: int, *, query: Mapping[str, object], headers: Mapping[str, str]
    ) -> None:
        """Send a file of any length."""
        connection = self._connections.open()
        try:
            sent = {
                "user-agent": self._agent,
                "content-type": "application/octet-stream",
                "content-length": str(size_bytes),
                **headers,
            }
            answer = connection.send("PUT", self.target(path, query), file, sent, ANSWER_SECONDS)
            self._judged(Reply(answer.status, fields_of(answer), answer.read(ANSWER_BYTES_MAX)))
        finally:
            connection.http.close()

    def target(self, path: str, query: Mapping[str, object] | None = None) -> str:
        """The path and query as they are sent; a value of None is left out."""
        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        return self.address.prefix + path + (f"?{urlencode(given, quote_via=quote)}" if given else "")

    def _meet(self) -> None:
        """Look at a server that was not seen before, or not for a while; requests of the look itself are sent without one."""
        if self.greet is None or self._is_greeted or self._greeting == threading.get_ident():
            return
        with self._greeter:  # Requests of other threads wait for it.
            if self._is_greeted:
                return
            self._greeting = threading.get_ident()
            try:
                self.greet(self)
                self._is_greeted = True
            finally:
                self._greeting = None

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
        connection = self._connections.take()
        if connection is not None:
            with suppress(ServerUnreachable):
                return self._exchange(connection, method, target, content, headers, seconds, bytes_max)
        return self._exchange(self._connections.open(), method, target, content, headers, seconds, bytes_max)

    def _exchange(
        self,
        connection: Connection,
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
            answer = connection.send(method, target, content, headers, seconds)
            body = connection.body(answer, deadline, bytes_max)
            keep = not answer.will_close
            return Reply(answer.status, fields_of(answer), body)
        finally:
            self._connections.let_go(connection, keep=keep)

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
        # Where a client knows better than the server what its user can do.
        hints = {"UNAUTHENTICATED": _NO_KEY if self.address.key is None else _OTHER_KEY}
        error = error_from(reply.status, document, self.address.url, hints)
        if error.code == "NOT_FOUND" and self.address.prefix:
            raise AnswerInvalid(
                f"there is no Detent server at {self.address.url}",
                hint=f"leave {self.address.prefix} out, unless a proxy serves it there",
            )
        if reply.status in _BUSY and isinstance(error, AnswerInvalid):
            raise ServerUnreachable(f"{self.address.url} is not available now (status {reply.status})", hint=TRY_AGAIN)
        raise error


_NO_KEY: Final = (
    "set DETENT_KEY to a key of this server; on its own machine, the file that `detent serve` names holds one"
)
_OTHER_KEY: Final = "the key in DETENT_KEY has expired, was revoked or is of another server: ask its operator for one (`detent keys create`)"


class Pauses:
    """Growing pauses, each a little different, so that many clients of one server do not come back at once."""

    def __init__(self) -> None:
        self._seconds = PAUSE_SECONDS

    def next(self) -> float:
        """How long to wait before the next try."""
        pause = self._seconds * random.uniform(0.75, 1.25)  # noqa: S311 - not a secret
        self._seconds = min(PAUSE_SECONDS_MAX, self._seconds * 2)
        return pause


def _retry_after(reply: Reply) -> float:
    written = reply.headers.get("retry-after", "")
    return min(RETRY_AFTER_MAX, float(written)) if written.isascii() and written.isdecimal() else 0.0


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    raise InvalidInput(f"a query value is text or a number, not {type(value).__name__}")
