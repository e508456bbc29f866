"""A proxy between a client and a server that does to answers what networks and proxies do: lose, delay, cut, reset, swallow, repeat and hold them back.

It passes bytes on as they are, on loopback, from a thread of its own. A fault is put on the next answers, one for each piece of bytes
that the server sends:

    with Toxic() as proxy:
        proxy.target = served.port      # start the server with --allow-host 127.0.0.1:{proxy.port}
        proxy.fail(Fault.DROP)          # the next answer is lost after the server gave it
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from enum import Enum
from types import TracebackType
from typing import Self

BUFFER_SECONDS = 0.3
"""How long the server must be silent before what was held back is passed on."""


AGAIN_SECONDS = 0.02
"""Between an answer and its repetition: by then the client has read the first, and may have asked for more."""


class Fault(Enum):
    """What happens to a piece of an answer."""

    DROP = "drop"
    """It is lost, and both connections are closed."""
    RESET = "reset"
    """It is lost, and the client's connection is reset."""
    CUT = "cut"
    """Its first half comes, and both connections are closed."""
    STALL = "stall"
    """It never comes, and neither does anything behind it: the connection is half-open."""
    DELAY = "delay"
    """It comes late."""
    DUPLICATE = "duplicate"
    """It comes twice, as from a proxy that took one request for two."""
    BUFFER = "buffer"
    """It comes when the server has been silent for a while, together with everything before that."""


class Toxic:
    """The proxy."""

    def __init__(self) -> None:
        self.target = 0
        self.delay_seconds = 0.5
        self.again_seconds = AGAIN_SECONDS
        self.refuses = False
        """Whether new connections are closed at once, as by a server that is down behind its proxy."""
        self.accepted = 0
        self.failed = 0
        """How many pieces met a fault."""
        self._fault: Fault | None = None
        self._times: int | None = 0
        self._loop = asyncio.new_event_loop()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._run, name="toxic", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fail(self, fault: Fault | None, times: int | None = 1) -> None:
        """Put a fault on the next pieces; None as ``times``: on all, until told otherwise."""
        self._fault, self._times = fault, times

    def cut_all(self) -> None:
        """Close every connection that is open now."""
        self._loop.call_soon_threadsafe(self._close_writers)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._listening.close()

    # -- on its thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._accepted, sock=self._listening))
        self._loop.run_forever()
        server.close()
        self._close_writers()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.01))
        self._loop.close()

    def _close_writers(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refuses:
            writer.close()
            return
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, upstream}
        try:
            await asyncio.gather(self._requests(reader, upstream), self._answers(upstream_reader, writer, upstream))
        finally:
            for one in (writer, upstream):
                one.close()
                self._writers.discard(one)

    async def _requests(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                upstream.write(piece)
                await upstream.drain()
        upstream.close()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                fault = self._taken()
                if fault is Fault.BUFFER:
                    piece += await _until_silent(reader)
                elif fault is Fault.DUPLICATE:
                    writer.write(piece)
                    await asyncio.sleep(self.again_seconds)
                elif fault is Fault.DELAY:
                    await asyncio.sleep(self.delay_seconds)
                elif fault is Fault.STALL:
                    while await reader.read(65536):
                        pass
                elif fault is not None:
                    _end(writer, piece, fault)
                    upstream.close()
                    return
                writer.write(piece)
                await writer.drain()
        writer.close()

    def _taken(self) -> Fault | None:
        if self._fault is None or self._times == 0:
            return None
        if self._times is not None:
            self._times -= 1
        self.failed += 1
        return self._fault


def _end(writer: asyncio.StreamWriter, piece: bytes, fault: Fault) -> None:
    """End a connection in one of the ways in which an answer is lost."""
    if fault is Fault.CUT:
        writer.write(piece[: len(piece) // 2])
    if fault is Fault.RESET:
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
    writer.close()


async def _until_silent(reader: asyncio.StreamReader) -> bytes:
    held = b""
    while True:
        try:
            piece = await asyncio.wait_for(reader.read(65536), BUFFER_SECONDS)
        except TimeoutError:
            return held
        if not piece:
            return held
        held += piece
