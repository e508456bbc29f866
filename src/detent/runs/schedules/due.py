"""What to do now on a schedule: start a run, note what was missed, or sleep.

A `Watch` starts nothing and waits for nothing. The caller that runs the contract asks `next_action` with the present time, does
what it says, and reports the result. The rules:

* An occurrence is *due* if it is noticed within `LATE_MS_MAX`, and *missed* if later: a machine that was off at six does
  not do the work of six at noon. Of several that passed unnoticed, only the last can be due.
* While a run goes on, or one is due and not started, occurrences *overlap*: they are missed (``overlap: skip``), or wait in
  order, at most `WAITING_MAX` of them (``overlap: queue``).
* Nothing is dropped silently. The inputs of every run name the occurrence it was started for and everything that was
  missed since the one before it, so the ledger alone tells the fate of each occurrence.
* No occurrence is started twice: a wall clock that is set back only lengthens the sleep.

After a restart the watch goes on from the last occurrence that a run was started for; what passed meanwhile was missed.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from detent.canon import encode, sha256
from detent.canon.late import dataclass
from detent.contract.schedule import QUEUE, Schedule, schedule_document
from detent.errors import InvariantBroken
from detent.owner.ticks import Clock
from detent.runs.schedules.times import find_zone, moment_text, next_occurrence, occurrences, passed
from detent.workflow.identity import uuid8

LATE_MS_MAX: Final = 60_000
SLEEP_MS_MAX: Final = 20_000
"""The longest sleep without a look at the wall clock, which may be set, or stand still with the machine: well below what
counts as late."""
WAITING_MAX: Final = 16
LISTED_MAX: Final = 20
"""Missed occurrences that are listed one by one; the rest are counted."""

OCCURRENCE_LABEL: Final = b"detent/occurrence/v1\0"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

DOWN: Final = "down"
"""No process watched."""
LATE: Final = "late"
"""The process, or its machine, was asleep or busy."""
OVERLAP: Final = "overlap"
"""The run before it was still going."""
FULL: Final = "queue_full"
"""As many as may wait were waiting."""
REFUSED: Final = "refused"
"""Its run was refused or could not be started."""


@dataclass(frozen=True, slots=True)
class Due:
    """Start a run for this occurrence, now."""

    tick_ms: int
    late_ms: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that no run is started for. They are remembered for the next run's inputs; this is for telling people."""

    count: int
    first_ms: int
    last_ms: int
    reason: str
    ticks: tuple[int, ...]
    """The first of them, at most `LISTED_MAX`."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing to do for so long. ``next_ms`` is the next occurrence; None: there is none any more."""

    ms: int
    next_ms: int | None


Action: TypeAlias = Due | Missed | Sleep


@dataclass(slots=True)
class _Gap:
    """Everything missed between two occurrences that run."""

    first_ms: int
    last_ms: int
    reasons: Counter[str]
    listed: list[tuple[int, str]]

    def add(self, later: _Gap) -> None:
        self.last_ms = later.last_ms
        self.reasons += later.reasons
        self.listed = [*self.listed, *later.listed][:LISTED_MAX]


class Watch:
    """One schedule being watched, from the last occurrence that was started on (None: from now on).

    ``running_ms`` names the occurrence whose run was interrupted and is taken up again: it counts as running.
    """

    def __init__(
        self, schedule: Schedule, clock: Clock, last_ms: int | None = None, *, running_ms: int | None = None
    ) -> None:
        self.schedule = schedule
        find_zone(schedule.timezone)  # A zone that is not known fails now and not at six in the morning.
        self._begun_ms = clock.wall_ms()
        self._seen_ms = self._begun_ms if last_ms is None else last_ms
        """The last occurrence that was looked at: everything up to it runs, waits, or was missed."""
        self._running = running_ms
        self._waiting: deque[int] = deque()
        self._gaps: list[_Gap] = []

    @property
    def running(self) -> int | None:
        """The occurrence whose run goes on."""
        return self._running

    @property
    def waiting(self) -> tuple[int, ...]:
        """The occurrences that are due, in order."""
        return tuple(self._waiting)

    def next_action(self, now_ms: int) -> Action:
        """What to do at this moment of the wall clock; a `Due` is repeated until it is said to have started or not."""
        missed = self._take_in(now_ms)
        if missed is not None:
            self._remember(missed)
            return missed
        if self._running is None and self._waiting:
            tick_ms = self._waiting[0]
            return Due(tick_ms, max(0, now_ms - tick_ms))
        next_ms = next_occurrence(self.schedule, self._seen_ms)
        left_ms = SLEEP_MS_MAX if next_ms is None else max(1, next_ms - now_ms)
        return Sleep(min(left_ms, SLEEP_MS_MAX), next_ms)

    def started(self, tick_ms: int) -> None:
        """A run was started for the occurrence that is due, with what `to_inputs` says on the ledger."""
        self._leave(tick_ms)
        self._running = tick_ms
        self._gaps = [gap for gap in self._gaps if gap.first_ms > tick_ms]

    def refused(self, tick_ms: int) -> None:
        """No run could be started for the occurrence that is due: it counts as missed."""
        self._leave(tick_ms)
        self._remember(Missed(1, tick_ms, tick_ms, REFUSED, (tick_ms,)))

    def ended(self, tick_ms: int, now_ms: int) -> Missed | None:
        """The run of an occurrence is over, however it ended; gives back what was missed since the last look."""
        if self._running != tick_ms:
            raise InvariantBroken(f"the run of {tick_ms} ended, but {self._running} was going")
        # Before it is forgotten: every occurrence until now has overlapped with it.
        missed = self._take_in(now_ms)
        if missed is not None:
            self._remember(missed)
        self._running = None
        return missed

    def to_inputs(self, tick_ms: int) -> dict[str, Any]:
        """What a run's inputs say about its occurrence: plain JSON, and small however much was missed."""
        said: dict[str, Any] = {
            "scheduled_for": moment_text(tick_ms),
            "schedule": schedule_document(self.schedule),
        }
        gap = next((gap for gap in self._gaps if gap.first_ms < tick_ms), None)
        if gap is not None:
            said["missed"] = {
                "count": gap.reasons.total(),
                "first": moment_text(gap.first_ms),
                "last": moment_text(gap.last_ms),
                "reasons": dict(sorted(gap.reasons.items())),
                "occurrences": [{"at": moment_text(tick), "reason": reason} for tick, reason in gap.listed],
            }
        return said

    def _take_in(self, now_ms: int) -> Missed | None:
        """Look at what has passed since the last look; give back what of it is missed, if anything is."""
        seen = passed(self.schedule, self._seen_ms, now_ms)
        if seen is None:
            return None
        if self._running is None and not self._waiting:
            if now_ms - seen.last_ms <= LATE_MS_MAX:
                self._waiting.append(seen.last_ms)
                return self._missed(seen.last_ms - 1, seen.last_ms)
            return self._missed(seen.last_ms, seen.last_ms)
        if self.schedule.overlap != QUEUE:
            return self._missed(seen.last_ms, seen.last_ms, OVERLAP)
        room = WAITING_MAX - len(self._waiting)
        fitting = occurrences(self.schedule, self._seen_ms, now_ms, room) if room > 0 else []
        self._waiting.extend(fitting)
        self._seen_ms = fitting[-1] if fitting else self._seen_ms
        return self._missed(seen.last_ms, seen.last_ms, FULL)

    def _missed(self, until_ms: int, seen_ms: int, reason: str | None = None) -> Missed | None:
        """What was missed since the last look, up to and with ``until_ms``; ``seen_ms`` is the new last look."""
        after_ms, self._seen_ms = self._seen_ms, seen_ms
        found = passed(self.schedule, after_ms, until_ms)
        if found is None:
            return None
        ticks = tuple(occurrences(self.schedule, after_ms, until_ms, LISTED_MAX))
        if reason is None:
            reason = DOWN if ticks[0] <= self._begun_ms else LATE
        return Missed(found.count, ticks[0], found.last_ms, reason, ticks)

    def _remember(self, missed: Missed) -> None:
        """Keep it for the next run that comes after it: at most one gap before each occurrence that waits, and one beyond."""
        listed = [(tick, missed.reason) for tick in missed.ticks]
        new = _Gap(missed.first_ms, missed.last_ms, Counter({missed.reason: missed.count}), listed)
        gaps: list[_Gap] = []
        for gap in sorted([*self._gaps, new], key=lambda gap: gap.first_ms):
            if gaps and not any(gaps[-1].last_ms < tick < gap.first_ms for tick in self._waiting):
                gaps[-1].add(gap)
            else:
                gaps.append(gap)
        self._gaps = gaps

    def _leave(self, tick_ms: int) -> None:
        if self._running is not None or not self._waiting or self._waiting[0] != tick_ms:
            raise InvariantBroken(f"the occurrence {tick_ms} is not the one that is due")
        self._waiting.popleft()


def scheduled_for_ms(inputs: Mapping[str, Any]) -> int | None:
    """The occurrence that a run was started for, read off its inputs; None: it was started by hand."""
    text = inputs.get("scheduled_for")
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1) if type(text) is str else None
    except (ValueError, TypeError):
        return None  # A text that another program put there.


def last_started_ms(runs: Iterable[Mapping[str, Any]]) -> int | None:
    """The last occurrence that any of these runs (their inputs) was started for: where a new `Watch` goes on."""
    return max((tick for inputs in runs if (tick := scheduled_for_ms(inputs)) is not None), default=None)


def occurrence_id(name: str, tick_ms: int) -> UUID:
    """The operation id of the run of an occurrence: asked twice, after a crash or by two watchers, it is one run.

    ``name`` tells schedules of one home apart: the workflow's name, or the contract's file.
    """
    return uuid8(sha256(OCCURRENCE_LABEL + encode([name, tick_ms])))
