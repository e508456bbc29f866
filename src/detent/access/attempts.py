"""Refused attempts that are recorded: one a second for each principal and action, and how many more there were.

A refusal on the ledger is worth having and costs a commit, which a program in a loop must not be able to ask for as fast as it can. So the
first attempt is recorded at once, and those of the next second are counted and recorded together when it is over.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

PAUSE_MS: Final = 1_000
KNOWN_MAX: Final = 10_000
"""Principals and actions that are counted at once; the oldest is settled early when there are more."""

T = TypeVar("T")


@dataclass(slots=True)
class _Counted(Generic[T]):
    since_ms: int
    last: T
    count: int = 0


class Attempts(Generic[T]):
    """Counts attempts by principal and action. ``T`` is what is recorded of one."""

    def __init__(self) -> None:
        self._counted: OrderedDict[tuple[str, str], _Counted[T]] = OrderedDict()

    def refused(self, principal_id: str, action: str, attempt: T, *, now_ms: int) -> bool:
        """Whether to record this attempt now; one that is not is counted."""
        known = self._counted.get((principal_id, action))
        if known is not None and (known.count or now_ms - known.since_ms < PAUSE_MS):
            known.count, known.last = known.count + 1, attempt
            return False
        self._counted.pop((principal_id, action), None)  # What is kept is in the order of its time.
        self._counted[principal_id, action] = _Counted(now_ms, attempt)
        return True

    def due(self, *, now_ms: int) -> list[tuple[T, int]]:
        """What was counted and not recorded, for those whose second is over: the last attempt and how many there were."""
        found: list[tuple[T, int]] = []
        for name, counted in list(self._counted.items()):
            over = now_ms - counted.since_ms >= PAUSE_MS
            if not over and len(self._counted) <= KNOWN_MAX:
                break
            del self._counted[name]
            if counted.count:
                found.append((counted.last, counted.count))
            if counted.count and over:
                self._counted[name] = _Counted(now_ms, counted.last)
        return found
