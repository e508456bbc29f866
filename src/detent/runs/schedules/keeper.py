"""The schedules of a server, kept by its driver host: each has a `Watch`, and a run is begun for every occurrence that is due.

Which schedules there are is a fold of the ledger (`access.schedules`), and which occurrences were started is read off the ids of runs: a
schedule's run is named for its occurrence. So nothing is remembered beside the ledger, a host that is killed leaves no state
behind, and an occurrence cannot have two runs: they would have the same id.

`look` is called again and again by one thread; runs are begun by others, since that may take a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from detent.access.schedules import Scheduled
from detent.canon.late import dataclass, pattern
from detent.contract.schedule import QUEUE, Schedule, read_schedule
from detent.errors import DetentError
from detent.owner.ticks import Clock
from detent.runs.record.identity import new_run_id
from detent.runs.schedules.due import LATE_MS_MAX, SLEEP_MS_MAX, WAITING_MAX, Due, Missed, Watch
from detent.runs.schedules.times import MOMENT_MS_MAX, Passed, next_occurrence, occurrences, passed

SCHEDULE_ID: Final = "schedule_id"
"""What the inputs of a run say that a server's schedule began."""
UPCOMING_MAX: Final = 5
"""Occurrences that are told ahead."""
_RUN_ID: Final = pattern(r"[a-z0-9-]+\.([a-z2-7]+)\.([0-9]{8}t[0-9]{6})")
_STAMP: Final = "%Y%m%dt%H%M%S"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID_PREFIX: Final = "sch_"


def schedule_id_of(random: str) -> str:
    """The id of a schedule, out of small letters and digits of base 32."""
    return _ID_PREFIX + random


def runs_prefix(name: str, schedule_id: str) -> str:
    """How the ids of a schedule's runs begin. No other run has a full stop in its id."""
    slug = new_run_id(name, bytes).rpartition("-")[0]
    return f"{slug}.{schedule_id.removeprefix(_ID_PREFIX)}."


def run_id_of(name: str, schedule_id: str, tick_ms: int) -> str:
    """The id of the run of an occurrence. No two occurrences of a schedule are in one second, so ids sort as moments do."""
    return runs_prefix(name, schedule_id) + (_EPOCH + timedelta(seconds=tick_ms // 1000)).strftime(_STAMP)


def schedule_of_run(run_id: str) -> str | None:
    """The schedule that began a run, by its id; None for any other run."""
    found = _RUN_ID.fullmatch(run_id)
    return None if found is None else schedule_id_of(found[1])


def tick_of_run(schedule: Schedule, run_id: str) -> int | None:
    """The occurrence that a run of a schedule was begun for; None where its id tells none."""
    found = _RUN_ID.fullmatch(run_id)
    if found is None:
        return None
    try:
        moment = datetime.strptime(found[2], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None
    return next_occurrence(schedule, max(0, (moment - _EPOCH) // timedelta(milliseconds=1) - 1))


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes next on a schedule, and what has been missed since its last occurrence that was started."""

    upcoming: tuple[int, ...]
    missed: Passed | None
    first_missed_ms: int | None = None


def outlook(schedule: Schedule, after_ms: int, now_ms: int, *, running: bool) -> Outlook:
    """The outlook of a schedule that is not paused. ``after_ms`` is its last occurrence that was started, or its beginning.

    It follows from the rules of `due`: what has passed is missed unless it can still be started, or waits its turn.
    """
    upcoming = tuple(occurrences(schedule, max(after_ms, now_ms), MOMENT_MS_MAX, UPCOMING_MAX))
    if running and schedule.overlap == QUEUE:
        waiting = occurrences(schedule, after_ms, now_ms, WAITING_MAX)
        after_ms = waiting[-1] if len(waiting) == WAITING_MAX else now_ms
    until_ms = now_ms if running else now_ms - LATE_MS_MAX
    missed = passed(schedule, after_ms, until_ms) if after_ms < until_ms else None
    first = None if missed is None else next_occurrence(schedule, after_ms)
    return Outlook(upcoming, missed, first)


class Hands(Protocol):
    """What a keeper needs from the host."""

    def last_started(self, scheduled: Scheduled) -> str | None:
        """The run of a schedule's last occurrence that was started."""

    def running(self) -> Mapping[str, str]:
        """The schedules whose runs have not ended, each with such a run."""

    def begin(self, scheduled: Scheduled, tick_ms: int, about: Mapping[str, Any]) -> None:
        """Have the run of an occurrence recorded, on another thread. Raises what it is refused by."""

    def failed(self, scheduled: Scheduled, tick_ms: int, exc: DetentError) -> None:
        """Tell that no run could be begun for an occurrence."""


@dataclass(slots=True)
class _Kept:
    """A schedule under watch."""

    since_ms: int
    watch: Watch
    begun: tuple[int, Future[None]] | None = None
    """The occurrence whose run is being begun."""


class Keeper:
    """Has a run begun for every occurrence that is due."""

    def __init__(self, hands: Hands, clock: Clock, pool: Executor, wake: Callable[[], None]) -> None:
        self._hands, self._clock, self._pool, self._wake = hands, clock, pool, wake
        self._kept: dict[str, _Kept] = {}
        self._broken: set[tuple[str, int]] = set()

    def look(self, schedules: Iterable[Scheduled]) -> int:
        """Do what is due now; for how many milliseconds nothing else will be, as far as the clock tells."""
        active = {one.schedule_id: one for one in schedules if one.paused_ms is None}
        self._kept = {
            name: kept for name, kept in self._kept.items() if name in active and active[name].since_ms == kept.since_ms
        }
        for name, kept in self._kept.items():
            self._settle(active[name], kept)
        # Behind what was begun: a run that has just been recorded is one of those that have not ended.
        running = self._hands.running()
        waits = [self._keep(one, running.get(name)) for name, one in active.items()]
        return min(waits, default=SLEEP_MS_MAX)

    def _settle(self, scheduled: Scheduled, kept: _Kept) -> None:
        """Take note of how it went to begin a run."""
        if kept.begun is None or not kept.begun[1].done():
            return
        (tick_ms, future), kept.begun = kept.begun, None
        exc = future.exception()
        if exc is None:
            kept.watch.started(tick_ms)
        elif isinstance(exc, DetentError):
            kept.watch.refused(tick_ms)
            self._hands.failed(scheduled, tick_ms, exc)
        else:
            raise exc

    def _keep(self, scheduled: Scheduled, run_id: str | None) -> int:
        now_ms = self._clock.wall_ms()
        kept = self._kept.get(scheduled.schedule_id)
        if kept is not None and kept.begun is not None:
            return SLEEP_MS_MAX  # It wakes this thread when it is done.
        if kept is None or (run_id is not None and kept.watch.running is None):
            kept = self._watched(scheduled, run_id, now_ms)
            if kept is None:
                return SLEEP_MS_MAX
        watch = kept.watch
        if run_id is None and watch.running is not None:
            watch.ended(watch.running, now_ms)
        while isinstance(action := watch.next_action(now_ms), Missed):
            pass  # The watch remembers it for the inputs of the next run.
        if not isinstance(action, Due):
            return action.ms
        about = {**watch.to_inputs(action.tick_ms), SCHEDULE_ID: scheduled.schedule_id}
        future = self._pool.submit(self._hands.begin, scheduled, action.tick_ms, about)
        kept.begun = (action.tick_ms, future)
        future.add_done_callback(lambda _: self._wake())
        return SLEEP_MS_MAX

    def _watched(self, scheduled: Scheduled, run_id: str | None, now_ms: int) -> _Kept | None:
        """Begin to watch a schedule behind its last occurrence that was started; None when its rule cannot be followed here."""
        try:
            schedule = read_schedule(scheduled.rule)
            last = self._hands.last_started(scheduled)
            last_ms = None if last is None else tick_of_run(schedule, last)
            since_ms = max(scheduled.since_ms, last_ms or 0)
            running_ms = None if run_id is None else tick_of_run(schedule, run_id) or since_ms
            watch = Watch(schedule, self._clock, since_ms, running_ms=running_ms)
        except DetentError as exc:  # A zone that this machine does not know any more.
            if (scheduled.schedule_id, scheduled.since_ms) not in self._broken:
                self._broken.add((scheduled.schedule_id, scheduled.since_ms))
                self._hands.failed(scheduled, now_ms, exc)
            return None
        kept = self._kept[scheduled.schedule_id] = _Kept(scheduled.since_ms, watch)
        return kept
