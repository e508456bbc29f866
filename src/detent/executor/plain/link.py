"""The supervisor's hold on its host: starts it, asks it for workers, hears what becomes of them."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from detent.errors import DetentError
from detent.executor.plain.host_process import HostProcess

_NEWS_BYTES_MAX: Final = 1 << 16
_NOTES_BYTES_MAX: Final = 2000
_END_SECONDS: Final = 2.0


class PoolFailed(DetentError):
    """The processes that should do the work cannot be started."""

    code = "POOL_UNREADY"


class Link:
    """One host process. It ends when this is closed, or when this process does."""

    def __init__(self, host: HostProcess, settings: Mapping[str, Any]) -> None:
        host.taken = True
        self.process, self.control, self._notes = host.process, host.control, host.notes
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # Gone already, which is heard like any end.
            self.control.send(json.dumps(settings).encode())

    def spawn(self, worker: int, directory: str, end: socket.socket) -> None:
        """Ask for a worker that reads from a socket."""
        self._ask({"do": "spawn", "worker": worker, "directory": directory}, end.fileno())

    def stop(self, worker: int, task: int | None, grace_ms: int) -> None:
        """Ask for the end of a task, or of a worker."""
        self._ask({"do": "stop", "worker": worker, "number": task, "grace_ms": grace_ms})

    def limit(self, task: int, memory_bytes: int | None) -> None:
        """Have a task ended that uses more memory, on any worker; None: no longer."""
        self._ask({"do": "limit", "number": task, "bytes": memory_bytes})

    def news(self) -> Iterator[tuple[dict[str, Any], int | None]]:
        """What the host has said, each with the descriptor that came along; an empty one when the host has gone."""
        while True:
            try:
                data, ancillary, _, _ = self.control.recvmsg(
                    _NEWS_BYTES_MAX, socket.CMSG_SPACE(4), socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return
            except ConnectionResetError:
                data, ancillary = b"", []
            handles = array.array("i", ancillary[0][2]) if ancillary else [None]
            yield json.loads(data or b"{}"), handles[0]
            if not data:
                return

    def last_words(self) -> str:
        """What the host wrote to stderr, from the end."""
        notes = self._notes.fileno()
        begin = max(0, os.fstat(notes).st_size - _NOTES_BYTES_MAX)
        return os.pread(notes, _NOTES_BYTES_MAX, begin).decode("utf-8", "replace").strip()

    def end(self, grace_ms: int) -> None:
        """Ask for the end of everything, and wait for it."""
        self._ask({"do": "end", "grace_ms": grace_ms})
        self.close(grace_ms / 1000)

    def close(self, grace: float = 0.0) -> None:
        """Wait for the end of the host, so long; then let go of it, and end it if even that does not help."""
        for step in (None, self.control.close, self.process.kill):
            if step is not None:
                step()
            if self._has_ended(grace + _END_SECONDS):
                break
        self.control.close()
        self._notes.close()

    def _has_ended(self, seconds: float) -> bool:
        """Whether the host ends within this time. `Popen.wait` with a time would look again and again, and sleep between."""
        if self.process.poll() is not None:
            return True
        handle = os.pidfd_open(self.process.pid)
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(seconds * 1000)
        finally:
            os.close(handle)
        return self.process.poll() is not None

    def _ask(self, request: Mapping[str, Any], *descriptors: int) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self.control.sendmsg([json.dumps(request).encode()], ancillary)
        except OSError:
            return  # It has gone, which is heard on the same socket; or we have let go of it.


def import_paths(python: str, paths: Sequence[str] | None) -> list[str] | None:
    """Where workers look for modules: where this process does. Another interpreter has its own places."""
    if paths is not None:
        return list(paths)
    if python != sys.executable:
        return None
    return [os.path.abspath(path) for path in sys.path]  # noqa: PTH100 - an empty one is the working directory
