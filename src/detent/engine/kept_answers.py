"""How many answers to idempotency keys are kept, and whether there is room for another (JOB-030).

An answer is kept for as long as its key counts, and never goes before. So the number has a limit of its own, and at that
limit a request under a new key is refused, before anything of it is decided; keys that are known are answered as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.errors import Refused
from detent.jobs.idempotency import IdempotencyLimits
from detent.store.api import AnswerRow, Store


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

    def _counts(self, row: AnswerRow) -> bool:
        kept = self._store.answer(row.scope)
        return kept is not None and row.stored_at_ms < kept.stored_at_ms + self._limits.window_ms

    def _recount(self, now_ms: int, pending: Sequence[AnswerRow]) -> None:
        stored, oldest_ms = self._store.answers_kept(max(now_ms - self._limits.window_ms, -1))
        self._count = stored + len({row.scope for row in pending})
        self._full_until_ms = (now_ms if oldest_ms is None else oldest_ms) + self._limits.window_ms
