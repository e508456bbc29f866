"""Refused attempts of known principals, recorded: one a second for each principal and action, and then how many more there were."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from detent.access.attempts import PAUSE_MS, Attempts
from detent.access.changes import Change
from detent.access.scopes import Principal
from detent.canon import decode, encode
from detent.errors import DetentError
from detent.kernel import Operate
from detent.owner.operating import commit, operate
from detent.owner.session import Session

OBJECT_CHARS_MAX: Final = 200


class RefusedAttempts:
    """Records refused attempts. For the HTTP loop alone."""

    def __init__(self, session: Session, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        self._session, self._now_ms = session, now_ms
        self._attempts: Attempts[Operate] = Attempts()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Settle counts every second."""
        self._task = asyncio.create_task(self._settle())

    async def stop(self) -> None:
        """Record what is counted, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._record([_counted(*one) for one in self._attempts.due(now_ms=self._now_ms() + PAUSE_MS)])

    async def refused(
        self,
        principal: Principal,
        action: str,
        object_id: str,
        *,
        request_id: str,
        route: str,
        digest: bytes,
        code: str,
    ) -> None:
        """Take note that a principal was refused; returns when it is on the ledger, or counted."""
        change = Change(action, action.partition(".")[0], object_id[:OBJECT_CHARS_MAX], principal.workspace)
        attempt = operate(
            principal, change, request_id=request_id, route=route, request_digest=digest, outcome_code=code
        )
        if self._attempts.refused(principal.principal_id, action, attempt, now_ms=self._now_ms()):
            await self._record([attempt])

    async def _settle(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_MS / 1_000)
            await self._record([_counted(*one) for one in self._attempts.due(now_ms=self._now_ms())])

    async def _record(self, attempts: list[Operate]) -> None:
        if attempts:
            with contextlib.suppress(DetentError):  # The refusal is answered also when it cannot be recorded.
                await asyncio.to_thread(commit, self._session, attempts)


def _counted(attempt: Operate, count: int) -> Operate:
    """An attempt that stands for several."""
    said: Any = {} if attempt.evidence is None else decode(attempt.evidence)
    return replace(attempt, evidence=encode({**said, "parameters": {**said.get("parameters", {}), "attempts": count}}))
