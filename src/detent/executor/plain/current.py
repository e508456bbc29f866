"""The task that this process is running, if it is a worker that runs one. `detent.context()` looks here."""

from __future__ import annotations

import socket
import time

from detent.executor.plain import wire

PROGRESS_SECONDS = 0.05
"""Between two reports of progress; what comes sooner is dropped, the end of the work excepted."""
_TEXT_CHARS_MAX = 500


class Running:
    """What a task may know and say about itself."""

    __slots__ = ("_context", "_end", "_last", "_shared", "number")

    def __init__(self, number: int, context: bytes, end: socket.socket, shared: memoryview) -> None:
        self.number = number
        self._context = context
        self._end = end
        self._shared = shared
        self._last = 0.0

    @property
    def parts(self) -> wire.Context:
        """Job, run, attempt, token, step, index and trace."""
        return wire.context_parts(self._context)

    @property
    def cancelled(self) -> bool:
        """Whether this task was asked to end."""
        return bool(self._shared[wire.CANCEL] == self.number + 1)

    def begun(self, monotonic_us: int) -> None:
        """Have the limit of this task counted from this moment on; for one that is many things with a limit each."""
        self._end.send(wire.write_begun(self.number, monotonic_us))

    def progress(self, fraction: float, text: str) -> None:
        """Tell the supervisor, unless that was done a moment ago; never waits for it."""
        now = time.monotonic()
        if now - self._last < PROGRESS_SECONDS and fraction < 1:
            return
        self._last = now
        try:
            self._end.send(wire.write_progress(self.number, fraction, text[:_TEXT_CHARS_MAX]), socket.MSG_DONTWAIT)
        except OSError:
            return  # It has more to read than it can hold, or it is gone; neither is the task's concern.


_now: list[Running] = []
_content: list[str] = []


def content() -> str:
    """The directory of the content store that this worker works for; empty in a process that is not a worker."""
    return _content[-1] if _content else ""


def work_for(directory: str) -> None:
    """From now on content is kept there."""
    _content[:] = [directory]


def running() -> Running | None:
    """The task that runs in this process; None in a process that runs none."""
    return _now[-1] if _now else None


def begin(task: Running) -> None:
    """From now on this is the one."""
    _now[:] = [task]


def end() -> None:
    """From now on there is none."""
    _now.clear()
