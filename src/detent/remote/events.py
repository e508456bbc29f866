"""News of a server, by a stream of its events: a caller waits until something has happened, and looks then.

The stream is read on a thread of its own and resumed behind the last event that came, so that nothing is missed while a connection is lost
or the server restarts. What happened is not told from here, only that something did: the server's pages say what, and they are the same
however often they are read.

A proxy may hold the stream back, or the server may have no stream left. `is_live` is then false, and the caller looks by the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, Self

from detent.errors import DetentError
from detent.remote.connections import Opened
from detent.remote.http import Http, Pauses
from detent.remote.problems import ServerUnreachable

SILENCE_SECONDS: Final = 45.0
"""A server gives a sign of life every 15 s; a stream that is silent for three of them is opened anew."""
HELLO_SECONDS: Final = 15.0
"""A stream whose first event has not come by then is held back on its way."""
REFUSED_SECONDS: Final = 60.0
"""After which a server that has no stream left is asked again."""
_HELLO: Final = "hello"
_NEWS: Final = frozenset({"job", "run", "step", "reset"})
"""After which a look is worth it. So it is after the first `hello`: what happened before the stream began is not told."""


class Events:
    """The news about some topics, for as long as the block lasts."""

    def __init__(self, http: Http, topics: Sequence[str]) -> None:
        self._http, self._topics = http, ",".join(topics)
        self._happened = threading.Event()
        self._ending = threading.Event()
        self._opened: Opened | None = None
        self._last_id: str | None = None
        self.is_live = False
        """Whether events come through as they happen."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._follow, name="detent-events", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        if (opened := self._opened) is not None:
            opened.cut()

    def wait(self, seconds: float) -> bool:
        """Wait for news, at most so long; whether there were any."""
        happened = self._happened.wait(seconds)
        self._happened.clear()
        return happened

    # -- on its thread -------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        pauses = Pauses()
        while not self._ending.is_set():
            pause = pauses.next()
            try:
                if self._read():
                    pauses = Pauses()
            except ServerUnreachable:
                pass  # The caller meets the same silence, and decides how long it waits.
            except DetentError:
                pause = REFUSED_SECONDS
            finally:
                if self.is_live:
                    self._happened.set()  # A look tells whether the server is away.
                self.is_live, self._opened = False, None
            self._ending.wait(pause)

    def _read(self) -> bool:
        """Read one stream to its end; whether anything came."""
        headers, behind = {"accept": "text/event-stream"}, self._last_id
        if behind is not None:
            headers["last-event-id"] = behind
        query, asked = {"topics": self._topics}, time.monotonic()
        with self._http.opened("/v1/events", query=query, headers=headers, silence=SILENCE_SECONDS, patience=0) as told:
            self._opened = told
            if self._ending.is_set():
                return False
            for event, event_id in _frames(told.lines()):
                self._last_id = event_id or self._last_id
                if event == _HELLO:
                    self.is_live = time.monotonic() - asked < HELLO_SECONDS
                if event in _NEWS or (event == _HELLO and behind is None):
                    self._happened.set()
        return self._last_id is not None


def _frames(lines: Iterator[bytes]) -> Iterator[tuple[str, str | None]]:
    """The events of a stream: the name of each, empty for a sign of life, and its id if it has one."""
    event, event_id = "", None
    for line in lines:
        name, _, value = line.partition(b":")
        text = value.strip().decode("utf-8", "replace")
        if not line:
            yield event, event_id
            event, event_id = "", None
        elif name == b"event":
            event = text
        elif name == b"id" and text:
            event_id = text
