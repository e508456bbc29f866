"""A proxy between the store and PostgreSQL that loses what it is told to lose.

It reads the messages of the protocol as they pass: a client's are a letter, a length and a body (the first one has no letter), and so
are the server's. A test names a moment in the life of one statement, and the connection is cut there.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from enum import Enum, auto
from typing import Final

import psycopg

from detent.store.postgres.address import PostgresAddress, parse_address

EXECUTE: Final = b"E"
COMPLETE: Final = b"C"
KEY_DATA: Final = b"K"


class Cut(Enum):
    """Where in an execution the connection ends."""

    BEFORE_IT_IS_SENT = auto()
    WITHIN_THE_REQUEST = auto()
    BEFORE_THE_ANSWER = auto()
    WITHIN_THE_ANSWER = auto()
    AFTER_THE_ANSWER = auto()


class Proxy:
    """Passes connections on, until it is told otherwise."""

    def __init__(self, url: str, *, other_pid: bool = False) -> None:
        """``other_pid``: answer with a process number of its own, as a pooler does."""
        given = psycopg.conninfo.conninfo_to_dict(url)
        self._target = (str(given["host"]), int(given["port"] or 5432))
        self._url, self._other_pid = url, other_pid
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._cut: Cut | None = None
        self._held = threading.Event()
        self._held.set()
        self.reached = threading.Event()
        """Set when a request that is held back has arrived."""
        threading.Thread(target=self._accept, daemon=True).start()

    def address(self, schema: str) -> PostgresAddress:
        """The ledger as it is reached through here."""
        host, port = self._target
        there = self._url.replace(f"{host}:{port}", f"127.0.0.1:{self._listener.getsockname()[1]}")
        # Encryption is asked for in a message of another form, and would hide what passes here.
        plain = f"{there}{'&' if '?' in there else '?'}sslmode=disable&gssencmode=disable"
        return parse_address(f"{plain}&schema={schema}", "the test")

    def cut(self, moment: Cut) -> None:
        """Lose the connection of the next execution at this moment."""
        self._cut = moment

    def hold(self) -> None:
        """Keep the next request from arriving until it is let go."""
        self.reached.clear()
        self._held.clear()

    def let_go(self) -> None:
        """Let what was held arrive."""
        self._held.set()

    def close(self) -> None:
        """End everything."""
        self.let_go()
        self._listener.close()
        for each in self._sockets:
            _end(each)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError, EOFError):
            server.sendall(_untyped(client))
            while True:
                kind, message = _typed(client)
                if kind == EXECUTE:
                    if not self._held.is_set():
                        self.reached.set()
                        self._held.wait()
                    if self._cut is Cut.BEFORE_IT_IS_SENT:
                        break
                    if self._cut is Cut.WITHIN_THE_REQUEST:
                        server.sendall(message[:-3])
                        break
                server.sendall(message)
        _end(client)
        _end(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while True:
                kind, message = _typed(server)
                if kind == KEY_DATA and self._other_pid:
                    message = message[:5] + struct.pack("!i", 4711) + message[9:]
                if kind == COMPLETE and self._cut is Cut.BEFORE_THE_ANSWER:
                    break
                if kind == COMPLETE and self._cut is Cut.WITHIN_THE_ANSWER:
                    client.sendall(message[:-2])
                    break
                client.sendall(message)
                if kind == COMPLETE and self._cut is Cut.AFTER_THE_ANSWER:
                    break
        _end(client)
        _end(server)


def _typed(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _untyped(source: socket.socket) -> bytes:
    """The first message, after which messages have letters."""
    length = _exactly(source, 4)
    return length + _exactly(source, struct.unpack("!i", length)[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def _end(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
