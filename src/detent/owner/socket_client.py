"""The other end of ``owner.sock``: ask another process's owner as if it were here."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self, TypeVar

from detent.errors import DetentError, HomeError, OutcomeUnknown, StoreUnavailable
from detent.kernel import Command, Grant
from detent.owner.socket_messages import (
    FRAME_BYTES_MAX,
    LENGTH_BYTES,
    PROTOCOL,
    Answer,
    answer_from_list,
    command_items,
    error_from_map,
    frame,
    grants_from_list,
    read_message,
    work_items,
)
from detent.owner.socket_server import short_path
from detent.store.api import AnswerRow, WorkRow
from detent.store.files import refuse_links

_T = TypeVar("_T")

HELLO_SECONDS = 5.0
PIECE_BYTES = 256 * 1024


class Stream(Protocol):
    """Bytes to and from an owner. One thread reads; those that send take turns."""

    def send(self, data: bytes) -> None:
        """Send all of it, or raise `OSError`."""

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end."""

    def close(self) -> None:
        """End both directions, also under a thread that reads."""


class SocketStream:
    """What streams over a socket have in common: reading as many bytes as were asked for."""

    _socket: socket.socket

    def __init__(self) -> None:
        self._ahead = bytearray()

    def _more(self) -> bytes:
        """The next bytes that have come; none at the end."""
        return self._socket.recv(PIECE_BYTES)

    def read(self, size: int) -> bytes:
        """So many bytes; fewer at the end."""
        while len(self._ahead) < size and (piece := self._more()):
            self._ahead += piece
        found = bytes(self._ahead[:size])
        del self._ahead[:size]
        return found

    def close(self) -> None:
        """End both directions."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class UnixStream(SocketStream):
    """A connection to a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        refuse_links(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(HELLO_SECONDS)
            with short_path(path) as name:
                self._socket.connect(name)
            self._socket.settimeout(None)
        except OSError:
            self._socket.close()
            raise

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.sendall(data)


class NotSent(StoreUnavailable):
    """The owner had gone before the whole request was sent: nothing was done."""


class Connection:
    """One connection to the owner of a home. Its requests may be in flight side by side.

    ``on_lost`` is called, on a thread of the connection's own, when the owner goes away.
    """

    def __init__(
        self,
        stream: Stream,
        on_lost: Callable[[Connection], None],
        *,
        said: Mapping[str, object] = MappingProxyType({}),
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """``said`` goes with the first message. ``on_news`` is called, on the connection's thread, when the owner tells of a commit.

        An owner may also ask whether this end is still there, and gets a word.
        """
        self._stream = stream
        self._on_lost, self._on_news = on_lost, on_news
        self._numbers = itertools.count()
        self._waiting: dict[int, Future[dict[str, object]]] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.heard_at = time.monotonic()
        """When the owner last said anything."""
        self._thread = threading.Thread(target=self._read, name="detent-client", daemon=True)
        self._thread.start()
        try:
            answered = self._send({"op": "hello", **said}).result(timeout=HELLO_SECONDS)
            hello = answered.get("hello")
            if "error" in answered:
                raise error_from_map(answered["error"])
            if not isinstance(hello, dict) or hello.get("protocol") != PROTOCOL:
                raise HomeError("the home's owner runs another version of Detent", hint="stop it, then start this one")
        except BaseException:
            self.close()
            raise
        self.owner_pid = hello.get("pid")

    @classmethod
    def to(cls, path: Path, on_lost: Callable[[Connection], None]) -> Self:
        """Connect to the socket of an owner on this machine."""
        return cls(UnixStream(path), on_lost)

    def ask(
        self,
        partition: int,
        commands: Sequence[Command],
        *,
        content: Sequence[tuple[bytes, bytes]] = (),
        work: Sequence[WorkRow] = (),
        answers: Sequence[AnswerRow] = (),
    ) -> Future[list[Answer]]:
        """Have the owner decide commands; answered after its commit.

        If the connection ends first, the future raises `OutcomeUnknown`: asking again is safe. Raises `NotSent` when it
        has ended already.
        """
        message: dict[str, object] = {
            "op": "ask",
            "partition": partition,
            "commands": command_items(commands),
            "content": [list(pair) for pair in content],
        }
        if work:
            message["work"] = work_items(work)
        if answers:
            message["keep"] = [list(row) for row in answers]
        return self._asked(message, "answers", _answers)

    def result(
        self, partition: int, envelope: bytes, *, content: Sequence[tuple[bytes, bytes]] = ()
    ) -> Future[list[Answer]]:
        """Hand in a signed report; the last answer is that to the attempt's end."""
        pieces = [list(pair) for pair in content]
        message = {"op": "result", "partition": partition, "envelope": envelope, "content": pieces}
        return self._asked(message, "answers", _answers)

    def grants(self, partition: int, replica_id: str, after: str | None = None) -> Future[list[Grant]]:
        """A page of the leases that a worker holds in a partition, by job id."""
        message = {"op": "grants", "partition": partition, "replica_id": replica_id, "after": after}
        return self._asked(message, "grants", grants_from_list)

    def turn(self, partition: int, turn: list[object]) -> Future[list[Any]]:
        """Have the owner decide a worker's turn; gives what came of it."""
        return self._asked({"op": "turn", "partition": partition, "turn": turn}, "outcome", list)

    def look(self, partition: int, question: str, about: list[str | None]) -> Future[Any]:
        """Ask the owner a question between two of its turns."""
        message: dict[str, object] = {"op": "look", "partition": partition, "question": question, "about": about}
        answer: Future[Any] = self._asked(message, "found", lambda found: found[0])
        return answer

    def forward(self, message: dict[str, object]) -> Future[dict[str, object]]:
        """Pass on the message of another process; the future has the whole answer."""
        return self._send(message)

    def close(self) -> None:
        """Hang up. Requests still in flight are answered with `OutcomeUnknown`."""
        self._closed = (
            True  # Not under the lock: a thread may hold it that sends to a machine which takes nothing any more.
        )
        self._stream.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _asked(self, message: dict[str, object], name: str, read: Callable[[list[Any]], _T]) -> Future[_T]:
        """Send a message; the future has what the answer says under a name."""
        answer: Future[_T] = Future()
        self._send(message).add_done_callback(lambda done: _resolve(done, answer, name, read))
        return answer

    def _send(self, message: dict[str, object], *, answered: bool = True) -> Future[dict[str, object]]:
        future: Future[dict[str, object]] = Future()
        number = next(self._numbers)
        data = frame({**message, "id": number})
        with self._lock:
            if self._closed:
                raise _not_sent()
            if answered:
                self._waiting[number] = future
            try:
                self._stream.send(data)
            except OSError as exc:
                # Not all of it was sent, and half a message is none.
                self._waiting.pop(number, None)
                raise _not_sent() from exc
        return future

    def _read(self) -> None:
        read = self._stream.read
        try:
            while len(head := read(LENGTH_BYTES)) == LENGTH_BYTES:
                length = int.from_bytes(head, "big")
                if length > FRAME_BYTES_MAX:
                    break
                message = read_message(read(length))
                self.heard_at = time.monotonic()
                if "news" in message:
                    self._on_news() if message["news"] else self._send({"op": "here"}, answered=False)
                    continue
                number = message.get("id")
                future = self._waiting.pop(number, None) if isinstance(number, int) else None
                if future is not None:
                    future.set_result(message)
        except (OSError, DetentError, ValueError):
            pass
        with self._lock:
            lost = not self._closed
            self._closed = True
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(_lost())
        if lost:
            self._on_lost(self)


def _resolve(done: Future[dict[str, object]], answer: Future[_T], name: str, read: Callable[[list[Any]], _T]) -> None:
    error = done.exception()
    if error is not None:
        answer.set_exception(error)
        return
    message = done.result()
    items = message.get(name)
    try:
        if not isinstance(items, list):
            raise error_from_map(message.get("error"))
        answer.set_result(read(items))
    except DetentError as exc:
        answer.set_exception(exc)


def _answers(items: list[object]) -> list[Answer]:
    return [answer_from_list(item) for item in items]


def _not_sent() -> NotSent:
    return NotSent("the home's owner has gone", hint="repeat the request")


def _lost() -> OutcomeUnknown:
    return OutcomeUnknown(
        "the home's owner went away before it answered",
        hint="repeat the request: a repeated request is decided only once",
    )
