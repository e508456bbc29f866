"""Taking turns: who computes, among the threads of a process that work on one home.

A client's thread, the driver of a run and the supervisor each have bursts of work, made of many small steps: a signature, a row, a
message. Whenever two of them are at it together, each such step hands the interpreter to the other and has to get it back,
which costs more than the step (two thirds more processor time for each job, on two cores). So a thread with a burst before it
takes its turn first, and gets it in the order of asking.

It is a courtesy and not a lock: nothing is guarded by it, and a thread that has waited long enough goes on without it. A thread
that holds the turn may therefore do anything, at the cost of the others.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Final

PATIENCE_SECONDS: Final = 0.1
"""How long one waits for the turn; much less than a lease, which the supervisor has to keep alive."""


_mine = threading.local()


def step_aside() -> None:
    """Give up the turn before waiting for another thread's work; harmless for a thread that has none."""
    turn: TurnTaking | None = getattr(_mine, "turn", None)
    if turn is not None:
        turn.__exit__(None, None, None)


class TurnTaking:
    """A context manager for bursts of work; not to be entered twice by the same thread."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._guard = threading.Lock()
        self._holder: int | None = None
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    def __enter__(self) -> None:
        me = threading.get_ident()
        _mine.turn = self
        with self._guard:
            if self._holder is None:
                self._holder = me
                return
            bell = threading.Lock()
            bell.acquire()
            self._waiting.append((me, bell))
        try:
            got = bell.acquire(timeout=self._patience_seconds)
        except BaseException:
            self._leave(me, bell)
            self.__exit__(None, None, None)
            raise
        if not got:
            self._leave(me, bell)

    def _leave(self, me: int, bell: threading.Lock) -> None:
        """Wait no longer; the turn may have come at that very moment."""
        with self._guard:
            if self._holder != me:
                self._waiting.remove((me, bell))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _mine.turn = None
        with self._guard:
            if self._holder != threading.get_ident():
                return  # It went on without, or stepped aside.
            self._holder = None
            if self._waiting:
                self._holder, bell = self._waiting.popleft()
                bell.release()
