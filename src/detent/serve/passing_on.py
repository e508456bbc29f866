"""A server that stands by passes every connection on to the server that owns the ledger, byte by byte.

    a client connects  ->  the owner's address, signed by the owner  ->  a connection there  ->  bytes both ways until one side ends

* TLS is between the client and the owner: what passes here is not opened, and the owner authenticates every request by itself.
* While no owner is known, connections wait in the backlog of the socket. They are passed on to the next owner, or answered here if that is
  this server. A connection that is being passed on when the owner ends is closed, and its client asks again.
* At the take-over everything that is being passed on is closed: an owner that hangs would never answer.

The owner sees this machine as the peer, as it would see a load balancer. One thread has a loop for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from functools import partial
from typing import Final

from detent.owner.owner_address import Address

FRESH_SECONDS: Final = 1.0
"""How long an address counts after it was last told; an owner that lives is told five times a second."""
CONNECT_SECONDS: Final = 5.0
LINGER_SECONDS: Final = 5.0
"""How long a client may go on sending after the owner has ended the connection."""
CANCEL_SECONDS: Final = 0.1
"""How long a connection that is to be closed may take before it is told again."""
PIECE_BYTES: Final = 64 * 1024


class PassingOn:
    """Passes connections on from a socket that listens, until it is closed; the socket stays open."""

    def __init__(self, listener: socket.socket, connections_max: int) -> None:
        self._listener, self._connections_max = listener, connections_max
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._owner: Address | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self._accepts = False
        self._carried: set[asyncio.Task[None]] = set()
        self._peers: set[object] = set()
        self._own_ends: set[object] = set()
        """The near ends of the connections to the owner. One that is also a peer has come round in a circle."""
        self._thread = threading.Thread(target=self._run, name="detent-pass-on", daemon=True)
        self._thread.start()

    def to(self, owner: Address | None) -> None:
        """Say who owns the ledger at this moment; None while no server is known to."""
        self._loop.call_soon_threadsafe(self._told, owner)

    def close(self) -> None:
        """Accept nothing more, and close what is being passed on."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        self._listener.setblocking(False)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        await self._ended.wait()
        self._told(None)
        while self._carried:  # One that has just connected may not have heard of it.
            for task in self._carried:
                task.cancel()
            await asyncio.wait(self._carried, timeout=CANCEL_SECONDS)

    def _told(self, owner: Address | None) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        self._owner = None if self._ended.is_set() else owner
        if self._owner is not None:
            self._forgetting = self._loop.call_later(FRESH_SECONDS, self._told, None)
        self._accept_or_not()

    def _accept_or_not(self) -> None:
        accepts = self._owner is not None and len(self._carried) < self._connections_max
        if accepts and not self._accepts:
            self._loop.add_reader(self._listener, self._accept)
        elif self._accepts and not accepts:
            self._loop.remove_reader(self._listener)
        self._accepts = accepts

    def _accept(self) -> None:
        try:
            client, peer = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return  # The client has gone.
        except OSError:
            self._told(
                None
            )  # No descriptor is left for it: until the owner is told again, clients wait in the backlog.
            return
        if self._owner is None or peer[:2] in self._own_ends:
            client.close()
            return
        task = self._loop.create_task(self._carry(client, peer[:2], self._owner))
        self._carried.add(task)
        task.add_done_callback(partial(self._carry_ended, client))
        self._accept_or_not()

    def _carry_ended(self, client: socket.socket, task: asyncio.Task[None]) -> None:
        client.close()  # Here, because a task that is cancelled before it begins does nothing at all.
        self._carried.discard(task)
        if not self._ended.is_set():
            self._accept_or_not()

    async def _carry(self, client: socket.socket, peer: object, address: Address) -> None:
        """Pass one connection on."""
        self._peers.add(peer)
        try:
            client.setblocking(False)
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    owner = await self._connected(address)
            except (OSError, TimeoutError):
                if self._owner == address:
                    self._told(None)  # Until it is told again: the others wait in the backlog meanwhile.
                return
            with owner, contextlib.suppress(OSError):
                await self._joined(client, owner)
        finally:
            self._peers.discard(peer)

    async def _joined(self, client: socket.socket, owner: socket.socket) -> None:
        near = owner.getsockname()[:2]
        if near in self._peers:
            return
        self._own_ends.add(near)
        try:
            await self._both_ways(client, owner)
        finally:
            self._own_ends.discard(near)

    async def _connected(self, address: Address) -> socket.socket:
        found = await self._loop.getaddrinfo(*address, type=socket.SOCK_STREAM)
        family, kind, protocol, _, where = found[0]
        owner = socket.socket(family, kind, protocol)
        try:
            owner.setblocking(False)
            await self._loop.sock_connect(owner, where)
        except BaseException:
            owner.close()
            raise
        return owner

    async def _both_ways(self, client: socket.socket, owner: socket.socket) -> None:
        for end in (client, owner):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asking = self._loop.create_task(self._pump(client, owner))
        answering = self._loop.create_task(self._pump(owner, client))
        # A client that is gone asks nothing more, and what it asked is the owner's to finish.
        asking.add_done_callback(lambda done: done.cancelled() or (done.exception() and answering.cancel()))
        try:
            await asyncio.wait({answering})
            await asyncio.wait({asking}, timeout=LINGER_SECONDS)
        finally:
            for one in (asking, answering):
                one.cancel()
            await asyncio.gather(asking, answering, return_exceptions=True)

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        while data := await self._loop.sock_recv(source, PIECE_BYTES):
            await self._loop.sock_sendall(sink, data)
        sink.shutdown(socket.SHUT_WR)
