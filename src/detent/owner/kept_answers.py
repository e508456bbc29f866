"""How many answers to idempotency keys are kept, and whether there is room for another (JOB-030).

An answer is kept for as long as its key counts, and never goes before. So the number has a limit of its own, and at that
limit a request under a new key is refused, before anything of it is decided; keys that are known are answered as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from detent.canon import digest, json_encode
from detent.errors import Refused
from detent.jobs.dedupe import IdempotencyLimits, body_digest
from detent.jobs.order import Order
from detent.jobs.platform_order import is_platform_order, request_of
from detent.store.api import AnswerRow, Store
from detent.workflow.identity import uuid8

DECIDED: Final = "IDEMPOTENCY_KEY_DECIDED"
JOB_LABEL: Final = b"detent/idempotent_job/v1\0"


def request_digest(order: Order) -> bytes:
    """What a request under an idempotency key is recognised by: its order, without what was found out for it."""
    asked = request_of(order) if is_platform_order(order) else order
    said = replace(asked, origin=replace(order.origin, ingredients={}, again=None, traceparent=None, request_id=None))
    return body_digest(json_encode({**said.document(), "ingredients": {}}, name=order.label))


def free_job_id(scope: bytes, is_taken: Callable[[str], bool]) -> str:
    """The id that the next job under a key gets: the same for all who ask at once, so that only one of them gets it."""
    named = scope
    while is_taken(job_id := _job_id(named)):
        named = job_id.encode()
    return job_id


def is_under_key(job_id: str, scope: bytes, is_taken: Callable[[str], bool]) -> tuple[str | None, bool]:
    """The first job that was submitted under a key, if there is one, and whether this job was."""
    named, first = scope, None
    while is_taken(other := _job_id(named)):
        first = first or other
        if other == job_id:
            return first, True
        named = other.encode()
    return first, False


def _job_id(named: bytes) -> str:
    return str(uuid8(digest(JOB_LABEL, named)))


class KeptAnswers:
    """The answers that one owner keeps. For the holder of the turn.

    Counting reads all of them. It happens when the first answer is kept, and when there seems to be no room; after that
    not again before the oldest has had its time.
    """

    def __init__(self, store: Store, limits: IdempotencyLimits) -> None:
        self._store = store
        self._limits = limits
        self._count: int | None = None
        self._full_until_ms = 0

    @property
    def window_ms(self) -> int:
        """How long an answer is kept."""
        return self._limits.window_ms

    def refusal(self, rows: Sequence[AnswerRow], pending: Sequence[AnswerRow]) -> Refused | None:
        """Why these answers cannot be kept, or nothing. ``pending`` are those of the same turn, not stored yet."""
        if any(self._is_decided(row, pending) for row in rows):
            return Refused(
                DECIDED, "another request under the idempotency key was decided first; ask again for its answer", {}
            )
        new = len(self._new(rows, pending))
        if not new:
            return None
        now_ms = min(row.stored_at_ms for row in rows)
        limit = self._limits.keys_max
        if self._count is None or (self._count + new > limit and now_ms >= self._full_until_ms):
            self._recount(now_ms, pending)
        if self._count is None or self._count + new <= limit:
            return None
        return Refused(
            "IDEMPOTENCY_KEYS_FULL",
            f"{limit:,} idempotency keys are remembered, which is the limit, and each for {self._limits.window_ms:,} ms",
            {"keys_max": limit, "retry_at_ms": self._full_until_ms},
        )

    def keep(self, rows: Sequence[AnswerRow], pending: Sequence[AnswerRow]) -> None:
        """Count answers that are about to be kept."""
        if self._count is not None:
            self._count += len(self._new(rows, pending))

    def _new(self, rows: Sequence[AnswerRow], pending: Sequence[AnswerRow]) -> set[bytes]:
        """The scopes for which nothing is kept that still counts."""
        before = {row.scope for row in pending}
        return {row.scope for row in rows if row.scope not in before and not self._counts(row)}

    def _is_decided(self, row: AnswerRow, pending: Sequence[AnswerRow]) -> bool:
        """Whether another answer counts under the same key. A server looks before it asks, but it may have been deposed in between,
        and what it asked then comes to the next owner. The same answer is the same request, sent again.
        """
        found = next((one for one in pending if one.scope == row.scope), None) or self._kept(row)
        return found is not None and found.response != row.response

    def _counts(self, row: AnswerRow) -> bool:
        return self._kept(row) is not None

    def _kept(self, row: AnswerRow) -> AnswerRow | None:
        kept = self._store.answer(row.scope)
        return kept if kept is not None and row.stored_at_ms < kept.stored_at_ms + self._limits.window_ms else None

    def _recount(self, now_ms: int, pending: Sequence[AnswerRow]) -> None:
        stored, oldest_ms = self._store.answers_kept(max(now_ms - self._limits.window_ms, -1))
        self._count = stored + len({row.scope for row in pending})
        self._full_until_ms = (now_ms if oldest_ms is None else oldest_ms) + self._limits.window_ms
