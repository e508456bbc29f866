"""Commands between the servers of one ledger: the messages of ``owner.sock`` over TCP, under TLS 1.3 between two known certificates.

Only the server that leads connects, and only to servers whose certificate a key of the ledger has signed (`holdings.py`). It says under
which epoch it owns the first partition. A higher epoch ends the connections of all earlier ones, and is greeted only when what those
asked has been decided: from then on nothing of an earlier leader is decided any more, so two leaders never decide side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from detent.errors import EpochLost, InvalidInput, StoreUnavailable
from detent.owner.link_keys import LinkKey
from detent.owner.owner import Owner
from detent.owner.socket_client import PIECE_BYTES, SocketStream
from detent.owner.socket_messages import FRAME_BYTES_MAX, error_to_map
from detent.owner.socket_server import Asked, SocketServer

if TYPE_CHECKING:
    from detent.owner.socket_server import Accept

CONNECT_SECONDS: Final = 2.0
HANDSHAKE_SECONDS: Final = 5.0
BEAT_SECONDS: Final = 0.5
SILENT_SECONDS: Final = 5.0
"""After which silence a connection is given up: the network between two servers may swallow everything and end nothing."""
CONNECTIONS_MAX: Final = 64
"""Connections at a time; all but one are attempts of others, which TLS ends."""


class TlsStream(SocketStream):
    """A connection to another server. Python's own ``SSLSocket`` may not be read and written by two threads at once."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__()
        self._socket = socket.create_connection((host, port), CONNECT_SECONDS)
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send)
        self._lock = threading.Lock()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._shake_hands()
            self._socket.settimeout(None)
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
            if not (data := self._socket.recv(PIECE_BYTES)):
                raise ConnectionResetError("the server ended the connection")
            self._received.write(data)
        self._flush()

    def _flush(self) -> None:
        if self._to_send.pending:
            self._socket.sendall(self._to_send.read())

    def send(self, data: bytes) -> None:
        """Send all of it."""
        with self._lock:
            self._tls.write(data)
            self._flush()

    def _more(self) -> bytes:
        while True:
            with self._lock:
                piece = self._decrypted()
                self._flush()
            if piece is not None:
                return piece
            if not (data := super()._more()):
                return b""
            with self._lock:
                self._received.write(data)

    def _decrypted(self) -> bytes | None:
        try:
            return self._tls.read(PIECE_BYTES)
        except ssl.SSLWantReadError:
            return None


class LinkServer(SocketServer):
    """Takes commands from the server that leads, for the partitions that are owned here."""

    def __init__(
        self, listener: socket.socket, key: LinkKey, asked: Asked, owners: Mapping[int, Owner], partitions: int
    ) -> None:
        super().__init__(None, asked, owners, partitions)
        self._listener = listener
        self._context = key.accepting(key.certificate)  # Until it is known who leads, nobody can connect.
        self._known: set[bytes] = set()
        self._leader: asyncio.StreamWriter | None = None
        self._epoch = 0
        self._telling = False
        self._heard_at = time.monotonic()

    @property
    def linked(self) -> int:
        """The epoch of the leader that is connected; 0 while none is."""
        return 0 if self._leader is None else self._epoch

    def trust(self, certificate: bytes) -> None:
        """Let the holder of a certificate connect. What it may ask depends on the epoch under which it leads."""
        if certificate not in self._known:
            self._known.add(certificate)
            self._context.load_verify_locations(cadata=certificate)

    def attach(self, owner: Owner) -> None:
        """Tell the leader of an owner's commits."""
        owner.observers.append(lambda _first, _records: self._soon(self._tell))

    def _bind(self) -> socket.socket:
        return self._listener

    async def _listen(self, accept: Accept, served: socket.socket) -> asyncio.AbstractServer:
        open_now = 0

        async def bounded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal open_now
            if open_now >= CONNECTIONS_MAX:
                writer.transport.abort()
                return
            open_now += 1
            try:
                await accept(reader, writer)
            finally:
                open_now -= 1
                if self._leader is writer:
                    self._leader = None

        self._beat()
        return await asyncio.start_server(
            *(bounded,),
            sock=served,
            ssl=self._context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            limit=FRAME_BYTES_MAX,
        )

    def _handle(self, message: dict[str, object], writer: asyncio.StreamWriter) -> None:
        if message.get("op") != "hello" and writer is not self._leader:
            raise InvalidInput("another server leads", hint="begin with a hello under the present epoch")
        self._heard_at = time.monotonic()
        if message.get("op") != "here":
            super()._handle(message, writer)

    def _beat(self) -> None:
        """Ask the leader for a word now and then, and hang up when none comes."""
        if self._loop is None:
            return
        if self._leader is not None:
            if time.monotonic() - self._heard_at > SILENT_SECONDS:
                self._leader.transport.abort()
                self._leader = None
            else:
                self._send(self._leader, {"news": False})
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _greet(self, message: dict[str, object], writer: asyncio.StreamWriter) -> None:
        epoch, number = message.get("epoch"), message.get("id")
        if type(epoch) is not int or epoch < max(1, self._epoch):
            refusal = EpochLost(f"a server leads under epoch {self._epoch}, which is later than {epoch!r:.40}")
            self._send(writer, {"id": number, "error": error_to_map(refusal)})
            return
        before, self._leader, self._epoch = self._leader, None, epoch
        if before is not None and before is not writer:
            before.transport.abort()
        waiting: list[Future[None]] = []
        for owner in [*self._owners.values()]:
            with contextlib.suppress(StoreUnavailable):  # One that has closed decides nothing more.
                waiting.append(owner.look(lambda _kernel: None))
        left = len(waiting)

        def decided(_done: Future[None]) -> None:
            self._soon(one_less)

        def one_less() -> None:
            nonlocal left
            left -= 1
            if left <= 0 and epoch == self._epoch:
                self._leader = writer
                super(LinkServer, self)._greet(message, writer)

        for one in waiting:
            one.add_done_callback(decided)
        if not waiting:
            one_less()

    def _tell(self) -> None:
        """Tell the leader once of all commits of this moment."""
        if self._telling or self._leader is None or self._loop is None:
            return
        self._telling = True
        self._loop.call_soon(self._tell_now)

    def _tell_now(self) -> None:
        self._telling = False
        if self._leader is not None:
            self._send(self._leader, {"news": True})
