"""Requests under an `Idempotency-Key`: done once, and answered with the same bytes for as long as the key counts (JOB-029 to JOB-033).

It is the same for every route that takes a key. A key belongs to a workspace, a principal and a route. The whole answer is kept
in the commit of what the request does, so an answer that was lost on the way, by a broken connection or by a killed server, is the answer to the
next try. Two requests under one key that come at once wait for each other. A refused request leaves nothing, and may be tried again.

A handler adds `Once.row` to what it writes. A handler that does not gets its answer kept right behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from pydantic import BaseModel

from detent.errors import DetentError, InvariantBroken, Refused, error_of
from detent.jobs.dedupe import (
    IdempotencyLimits,
    IdempotencyScope,
    Repeated,
    StoredAnswer,
    body_digest,
    decide_idempotency,
    parse_idempotency_key,
)
from detent.jobs.kept_answer import KeptAnswer, read_kept
from detent.owner.kept_answers import DECIDED
from detent.serve.call import Answer, Call
from detent.serve.table import JSON, Route
from detent.serve.writing import Writing
from detent.store.api import ANSWER_BYTES_MAX, AnswerRow

KEY: Final = b"idempotency-key"
REPLAYED: Final = "detent-replayed"


@dataclass(slots=True)
class Once:
    """A request under a key that was not used before."""

    scope: bytes
    body: bytes
    """The digest of what was asked."""
    now_ms: Callable[[], int] = field(repr=False)
    kept: bool = False
    """Whether its answer is part of what was written."""

    def row(self, answer: Answer, jobs: Sequence[str] = ()) -> AnswerRow:
        """The answer as it is kept, for the commit of what the request does. ``jobs`` are those that it names."""
        packed = KeptAnswer(answer.status, answer.headers, body_of(answer), jobs).pack()
        if len(packed) > ANSWER_BYTES_MAX:
            raise InvariantBroken(f"an answer of {len(packed)} bytes is too large to be kept")
        self.kept = True
        return AnswerRow(self.scope, self.body, packed, self.now_ms())


class Idempotency:
    """The keys that are in use at this moment. For the HTTP loop alone."""

    def __init__(self, limits: IdempotencyLimits, now_ms: Callable[[], int]) -> None:
        self._limits, self._now_ms = limits, now_ms
        self._under_way: dict[bytes, list[asyncio.Lock]] = {}

    async def answered(
        self, call: Call, route: Route, said: bytes, handler: Callable[[Call], Awaitable[Answer]]
    ) -> Answer:
        """The answer to a request: that of an earlier one under its key, or the handler's, which is kept if there is a key."""
        header = call.head.header(KEY) if route.idempotent else None
        if header is None:
            return await handler(call)
        assert call.principal is not None
        endpoint = f"{route.method} {route.path}"
        key = parse_idempotency_key(header)
        scope = IdempotencyScope(call.workspace, call.principal.principal_id, endpoint, key).digest()
        body = body_digest(f"{call.head.path}?{call.head.query}\n".encode() + said)
        async with self._alone(scope):
            known = await self._known(call, scope, body)
            if known is not None:
                return known
            try:
                return await self._decided(call, Once(scope, body, self._now_ms), handler)
            except DetentError as exc:
                # By another server, which owns the ledger now: what it answered is the answer.
                known = await self._known(call, scope, body) if exc.code == DECIDED else None
                if known is None:
                    raise
                return known

    async def _decided(self, call: Call, once: Once, handler: Callable[[Call], Awaitable[Answer]]) -> Answer:
        answer = await handler(replace(call, once=once))
        if not once.kept and answer.status < 300:
            for told in await call.write(lambda: Writing(answers=[once.row(answer)])):
                if told.refusal is not None and told.refusal.code == DECIDED:
                    raise error_of(told.refusal)
        return answer

    async def _known(self, call: Call, scope: bytes, body: bytes) -> Answer | None:
        workspace = call.workspace
        row = await call.read(lambda reader: reader.kept_answer(workspace, scope))
        stored = None if row is None else StoredAnswer(row.body_digest, row.response, row.stored_at_ms)
        decided = decide_idempotency(stored, body_digest=body, now_ms=self._now_ms(), window_ms=self._limits.window_ms)
        if isinstance(decided, Refused):
            raise error_of(decided, hint="use another key for another request")
        kept = read_kept(decided.response) if isinstance(decided, Repeated) else None
        if kept is None:
            return None
        return Answer(kept.body, kept.status, headers={**kept.headers, REPLAYED: "true"}, media_type=JSON)

    @asynccontextmanager
    async def _alone(self, scope: bytes) -> AsyncIterator[None]:
        """One request at a time under a key."""
        locks = self._under_way.setdefault(scope, [])
        own = asyncio.Lock()
        await own.acquire()
        before = locks[-1] if locks else None
        locks.append(own)
        try:
            if before is not None:
                async with before:
                    pass
            yield
        finally:
            locks.remove(own)
            own.release()
            if not locks:
                self._under_way.pop(scope, None)


def body_of(answer: Answer) -> bytes:
    """The bytes of an answer that is whole."""
    content = answer.content
    if isinstance(content, BaseModel):
        return content.model_dump_json().encode()
    if content is None or isinstance(content, bytes):
        return content or b""
    raise InvariantBroken("an answer that streams cannot be kept")
