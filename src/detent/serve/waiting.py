"""Requests that wait: they are answered when something has ended, when their time is over, or when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeVar

from pydantic import Field

from detent.serve.events import Hub

T = TypeVar("T")

WAIT_SECONDS_MAX: Final = 60
Wait = Annotated[int, Field(ge=0, le=WAIT_SECONDS_MAX)]
"""How long a request waits for an end, in seconds."""


async def until_ended(
    hub: Hub, kind: str, name: str, seconds: int, read: Callable[[], Awaitable[T]], ended: Callable[[T], bool]
) -> T:
    """What ``read`` gives when it has ended, or as it stands when the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with hub.waiter(kind, name) as changed:
        while True:
            changed.clear()
            found = await read()
            left = deadline - loop.time()
            if ended(found) or left <= 0 or hub.draining.is_set():
                return found
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return await read()
