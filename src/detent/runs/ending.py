"""When a process that works for a server ends: on a signal, or when the server that started it has gone.

The server holds one end of a pipe, its *lifeline*, and the child reads the other. However the server ends, the system closes its end,
and the child learns of it at once. A child does not end because its server was killed: it finishes what it has begun under the
next owner, takes nothing new, and leaves that to the children of the next server.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from detent.errors import InvalidInput


class Ending:
    """Tells whether the end was asked for, and how urgently. `caught` makes it listen."""

    def __init__(self, lifeline: int | None = None) -> None:
        self.signal = 0
        """The first signal that came; 0 when none did."""
        self.asked = threading.Event()
        self.at_once = threading.Event()
        """Set by a second signal: what is under way is not waited for."""
        self._lifeline = lifeline
        if lifeline is not None:
            try:
                os.set_inheritable(lifeline, False)
            except OSError:
                raise InvalidInput(f"{lifeline} is not a descriptor of this process") from None

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Listen for as long as the block lasts."""
        if self._lifeline is not None:
            threading.Thread(target=self._follow, args=(self._lifeline,), name="detent-lifeline", daemon=True).start()
        before = {number: signal.signal(number, self._arrive) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _arrive(self, number: int, _frame: FrameType | None) -> None:
        if self.signal:
            self.at_once.set()
        self.signal = self.signal or number
        self.asked.set()

    def _follow(self, lifeline: int) -> None:
        while os.read(lifeline, 64):
            pass
        self.asked.set()
