"""Ctrl-C while a command drives something that can be cancelled, or left as it stands."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Protocol


class Interruptible(Protocol):
    """A run that a command drives."""

    def cancel(self, reason: str) -> object:
        """End it as cancelled."""

    def stop(self) -> object:
        """Leave it as it stands, to be resumed."""


@contextmanager
def interrupts(handle: Interruptible) -> Iterator[None]:
    """Ctrl-C cancels the run; once more, or a request to terminate, leaves it as it stands."""
    seen: list[int] = []

    def interrupted(number: int, _frame: FrameType | None) -> None:
        seen.append(number)
        cancels = number == signal.SIGINT and len(seen) == 1
        # On a thread of its own: this one may hold, at this very moment, the lock that the answer needs.
        answer = partial(handle.cancel, "interrupted") if cancels else handle.stop
        threading.Thread(target=answer, name="detent-interrupt", daemon=True).start()

    before = {number: signal.signal(number, interrupted) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
