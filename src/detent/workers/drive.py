"""Who takes the supervisor's steps: its own thread, or a caller that waits for what they bring.

While a caller sleeps until a result is there, the supervisor's thread receives it, reports it and claims the next job. Between the
two, every result costs two changes of threads, which on a small machine take as long as the rest. So a caller that waits takes
the steps itself: it *drives*.

The rules of this file:

* One thread at a time takes steps. Whether it is the supervisor's or a caller's makes no difference to what a step does.
* The supervisor's thread makes way for a caller at once, and comes back by itself: `LINGER_SECONDS` after the last caller was seen,
  or when it is called. It sleeps with a time limit always, so a caller that leaves, or never returns, cannot keep it away and no
  lease runs out over it.
* A signal that arrives while a caller drives is handled when its step is over (`HeldSignals`). Otherwise Ctrl-C would end a step in the
  middle, and with it a commit.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

LINGER_SECONDS: Final = 0.004
"""How long the supervisor's thread stays away after a caller drove: one that takes results one by one is back before that."""
REST_SECONDS_MAX: Final = 0.1
"""How long it stays away without a look while one caller drives."""
_FAR_PAST: Final = -1e9


class Drive:
    """Whose turn it is to take steps. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._wheel = threading.Lock()
        """Held by the thread that takes a step."""
        self._caller: int | None = None
        """The caller that drives or is about to."""
        self._taken_at = self._seen_at = self._gone_at = _FAR_PAST
        self._sleeping = 0
        """Callers that wait while another one drives."""
        self._bell = threading.Event()
        """Ends the rest of the supervisor's thread, if only for a look."""
        self._is_called = False
        """Whether it is to come at once."""
        self._closed = False

    # -- for callers ---------------------------------------------------------------------------------------------------

    def take(self, seconds: float, make_way: Callable[[], None]) -> bool:
        """Begin to drive; ``make_way`` has the supervisor's thread end its sleep. False when another caller drives already.

        Also False when the supervisor's thread does not end its step within so many seconds.
        """
        if not self._claim():
            return False
        got = self._wheel.acquire(blocking=False)
        try:
            if not got:
                make_way()
                got = self._wheel.acquire(timeout=max(0.0, seconds))  # The caller's time may be over already.
        finally:
            if not got:
                self._caller = None
        return got

    def take_free(self) -> bool:
        """Begin to drive if no thread takes a step right now; never waits.

        A caller that comes again soon after it was `gone` is expected once more: the supervisor's thread then leaves its place free.
        """
        now = time.monotonic()
        if now - self._gone_at < LINGER_SECONDS:
            self._seen_at = now
        if not self._claim():
            return False
        if self._wheel.acquire(blocking=False):
            return True
        self._caller = None
        return False

    def gone(self) -> None:
        """A caller that would have driven has done what it came for, however long that took."""
        self._gone_at = time.monotonic()

    def leave(self, *, has_work: bool) -> None:
        """Drive no longer. The supervisor's thread is called at once if there is work, or callers that wait for it."""
        now = self._seen_at = time.monotonic()
        self._caller = None
        self._wheel.release()
        if has_work or self._sleeping:
            self.call()
        elif now - self._taken_at > LINGER_SECONDS:
            self._bell.set()  # It may have lain down for longer.

    @contextmanager
    def sleeping(self) -> Iterator[None]:
        """Waiting for what another thread brings."""
        with self._guard:
            self._sleeping += 1
        try:
            yield
        finally:
            with self._guard:
                self._sleeping -= 1

    @property
    def is_mine(self) -> bool:
        """Whether the present thread is the caller that drives."""
        return self._caller == threading.get_ident()

    @property
    def is_anothers(self) -> bool:
        """Whether a caller drives, and it is not the present thread."""
        return self._caller is not None and self._caller != threading.get_ident()

    def _claim(self) -> bool:
        with self._guard:
            if self._caller is not None or self._closed:
                return False
            self._caller = threading.get_ident()
        self._taken_at = time.monotonic()
        return True

    # -- for the supervisor's thread -----------------------------------------------------------------------------------

    def rest(self) -> None:
        """Stay away while a caller drives, and for a moment after it."""
        longest = LINGER_SECONDS
        while not self._closed:
            self._bell.clear()
            is_called, self._is_called = self._is_called, False
            seconds = longest
            if self._caller is None:
                seconds, longest = self._seen_at + LINGER_SECONDS - time.monotonic(), LINGER_SECONDS
                if is_called or seconds <= 0:
                    return
            else:
                longest = min(2 * longest, REST_SECONDS_MAX)
            self._bell.wait(seconds)

    @contextmanager
    def turn(self) -> Iterator[bool]:
        """One step of the supervisor's own thread; False when a caller came first."""
        with self._wheel:
            yield self._caller is None

    @property
    def is_wanted(self) -> bool:
        """Whether a caller drives, is about to, or is expected again: not the time to go to sleep with the place taken."""
        return self._caller is not None or time.monotonic() - self._seen_at < LINGER_SECONDS

    def call(self) -> None:
        """There is work: the supervisor's thread need not stay away any longer, unless a caller drives."""
        if self._caller is None:
            self._is_called = True
            self._bell.set()

    def close(self) -> None:
        """Let no caller drive any more, and wait until the one that does has left."""
        with self._guard:
            self._closed = True
        self._bell.set()
        with self._wheel:
            pass


_signals: Final = sys.modules["_signal"]
"""The interpreter's own functions: those of `signal` look every number and handler up in an enum, ten times the time of the call."""
_HELD: Final = tuple(
    map(
        int,
        (
            signal.SIGHUP,
            signal.SIGQUIT,
            signal.SIGUSR1,
            signal.SIGUSR2,
            signal.SIGALRM,
            signal.SIGTERM,
            signal.SIGINT,
        ),
    )
)
"""What programs have handlers for that may raise."""


class HeldSignals:
    """Holds back the handlers of signals for as long as the block lasts, and runs them after it, in the order of arrival.

    Python runs handlers between any two steps of the main thread; one that raises, as Ctrl-C does, would cut what is under way in
    two. Does nothing on other threads, which handle no signals.
    """

    __slots__ = ("_handlers", "_wake", "arrived")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        """Ends a sleep: the block is to be left soon."""
        self._handlers: list[tuple[int, Any]] = []
        self.arrived: list[tuple[int, FrameType | None]] = []
        """What has come, in order."""

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _HELD:
                handler = _signals.getsignal(number)
                if callable(handler):
                    self._handlers.append((number, handler))
                    _signals.signal(number, self._arrive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._handlers:
            return
        try:
            self._restore()
        except BaseException:  # From a handler that was put back first.
            self._restore()
            raise
        handlers = dict(self._handlers)
        for number, frame in self.arrived:
            handlers[number](number, frame)

    def _restore(self) -> None:
        for number, handler in self._handlers:
            _signals.signal(number, handler)

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        self.arrived.append((number, frame))
        self._wake()
