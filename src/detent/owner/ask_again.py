"""Asking again: for requests that are safe to repeat, while the owner that answers them may come back (X-173).

An owner that ends is replaced within moments, and a failed commit may have been made or not; either way the same request
again gets the same answer. A disk that stays full does not get better by asking: after a while the caller gets an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from detent.errors import OutcomeUnknown, StoreUnavailable

PATIENCE_SECONDS: Final = 20.0
"""How long a request is repeated; longer than it takes to take over a home from an owner that ended."""
PAUSE_SECONDS: Final = 0.05

T = TypeVar("T")


def ask_again(
    ask: Callable[[], T],
    stop: threading.Event,
    *,
    before_again: Callable[[], None] = lambda: None,
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """What ``ask`` answers, however often it has to be asked. Raises what it raised last when ``stop`` or the time ends it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except (OutcomeUnknown, StoreUnavailable) as exc:
            if not exc.retryable or time.monotonic() > deadline or stop.wait(PAUSE_SECONDS):
                raise
            before_again()
