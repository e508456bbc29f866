"""What is left of sessions' budgets, asked of the owner between two turns: for headers of answers and for streams.

A session belongs to a workspace: the scheduler knows it under a name that begins with the workspace, so the same id in another workspace is
another session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final, TypeVar

from detent.canon import decode_trusted, encode
from detent.errors import InvalidInput
from detent.kernel import Order
from detent.owner.questions import BUDGET, LISTED_MAX, SESSIONS, Question
from detent.owner.session import Session
from detent.scheduling.orders import write_request

T = TypeVar("T")

NAMES: Final = {"tokens": "tokens", "time": "time_ms", "cost": "cost"}
"""The scheduler's words for budgets, and those of the API."""


def name_of(workspace: str, session_id: str) -> str:
    """What the scheduler calls a session of a workspace."""
    return f"{workspace}/{session_id}"


def opened(workspace: str, session_id: str, budgets: Mapping[str, int | None]) -> Order:
    """The command that gives a session its budgets."""
    data = {"session_id": name_of(workspace, session_id), **{name: budgets.get(name) for name in NAMES.values()}}
    return Order(0, "session_open", encode(data))


def closed(workspace: str, session_id: str) -> Order:
    """The command that ends a session."""
    return Order(0, "session_close", encode({"session_id": name_of(workspace, session_id)}))


def paid_by(workspace: str, session_id: str, most: Mapping[str, int | None], beside: bytes | None = None) -> bytes:
    """What a job asks of the scheduler: that a session pays for it, at most so much; ``beside`` is what it asks anyway."""
    said: dict[str, object] = {} if beside is None else dict(decode_trusted(beside))
    said["session_id"] = name_of(workspace, session_id)
    if most.get("tokens") is not None:
        said["max_new_tokens"] = most["tokens"]
    said |= {name: most[name] for name in ("time_ms", "cost") if most.get(name) is not None}
    return write_request(**said)


class Budgets:
    """The sessions of a home, as its owner has them. For the HTTP loop."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def left(self, workspace: str, session_id: str) -> dict[str, int]:
        """What is left of each budget of a session. Raises `InvalidInput` for one that is not there."""
        name = name_of(workspace, session_id)
        found = await self._look(self._session.partition(name), BUDGET, name)
        if found is None:
            raise InvalidInput(
                "there is no such session in this workspace", code="NOT_FOUND", hint="POST /v1/sessions opens one"
            )
        return {NAMES[budget]: amount for budget, amount in found.items()}

    async def listed(self, workspace: str) -> list[str]:
        """The sessions of a workspace."""
        prefix = name_of(workspace, "")
        names: list[str] = []
        for partition in range(self._session.partitions):
            found: list[str] = await self._look(partition, SESSIONS, prefix)
            names += found
        return [name.removeprefix(prefix) for name in sorted(names)[:LISTED_MAX]]

    async def _look(self, partition: int, question: Question[T], about: str) -> T:
        look = partial(self._session.look, question, partition, about)
        asked = look() if self._session.owns_partition(partition) else await asyncio.to_thread(look)
        return question.read(await asyncio.wrap_future(asked))


def headers_of(left: Mapping[str, int]) -> dict[str, str]:
    """What is left, as the fields of an answer (OC-CORE-1024)."""
    return {f"detent-budget-{name.replace('_', '-')}": str(amount) for name, amount in left.items()}
