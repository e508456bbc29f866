"""Room in the queue: how fast jobs leave it, for those who are told to come back, and the sign for those who wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from detent.errors import NO_ROOM, DetentError, Refused, error_of
from detent.owner.socket_messages import Answer

WINDOW_SECONDS: Final = 10.0
LEAVINGS_MAX: Final = 1_000
"""Jobs whose leaving is remembered: enough to see a rate."""
LOOK_SECONDS: Final = 1.0
"""How often a request that waits tries again when it is not told of room."""


class Room:
    """Jobs that left the queue lately, and the requests that wait for room. For the HTTP loop alone."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._left: deque[float] = deque(maxlen=LEAVINGS_MAX)
        self._changed = asyncio.Event()

    def left(self) -> None:
        """A job has left the queue."""
        self._left.append(self._now())
        self._changed.set()

    def retry_after_ms(self) -> int:
        """When there may be room again, by how fast jobs leave the queue: 1 to 60 s."""
        now = self._now()
        recent = [at for at in self._left if now - at <= WINDOW_SECONDS]
        if not recent:
            return 60_000
        return max(1_000, min(60_000, round(WINDOW_SECONDS * 1_000 / len(recent))))

    async def admitted(self, seconds: float, write: Callable[[], Awaitable[list[Answer]]]) -> list[Answer]:
        """What is answered once there is room, or when the time is over. What is not written is tried again, and nothing else."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            self._changed.clear()
            answers = await write()
            left = deadline - loop.time()
            if left <= 0 or not _is_full(answers):
                return answers
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, LOOK_SECONDS))
            except TimeoutError:
                continue

    def refusal_of(self, refused: Refused) -> DetentError:
        """A refusal as an error; a full queue says when to come back."""
        error = error_of(refused)
        if refused.code in NO_ROOM:
            error.details["retry_after_ms"] = self.retry_after_ms()
        return error


def _is_full(answers: Sequence[Answer]) -> bool:
    return any(answer.refusal is not None and answer.refusal.code in NO_ROOM for answer in answers)
