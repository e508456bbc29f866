"""From a schedule to the moments it means: the one place where a calendar meets a time zone.

A cron line names times as a wall clock shows them, and twice a year most wall clocks do something odd. The rules:

* A time that the clock jumps over happens once, at the moment of the jump. Several such times are one occurrence.
* A time that the clock shows twice happens once, at the first.

So a daily run happens once on every day, and never twice. The price: a line that fires every hour leaves out one hour when
clocks are set back. For every hour of that day, write `every: 1h`, or leave the time zone out.

An occurrence is a number, milliseconds since 1970 (UTC). Nothing here reads a clock, and nothing is random: the same
schedule gives the same moments on every machine whose time zone database says the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC as UTC_ZONE
from datetime import datetime, timedelta, tzinfo
from itertools import islice
from typing import Final

from detent.canon.late import dataclass
from detent.contract.schedule import UTC, Cron, Every, Schedule
from detent.errors import InvalidInput

DAY_MS: Final = 86_400_000
MOMENT_MS_MAX: Final = 253_370_764_800_000
"""9999-01-01. No calendar holds a time beyond it."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's; the zone is put on where it is asked
_MS: Final = timedelta(milliseconds=1)


class TimeZoneUnknown(InvalidInput):
    """This machine's time zone database has no such zone."""


class NoTimeZones(TimeZoneUnknown):
    """This machine has no time zone database at all."""


@dataclass(frozen=True, slots=True)
class Passed:
    """The occurrences within a stretch of time: how many there are, and which one is the last."""

    count: int
    last_ms: int


def occurrences(schedule: Schedule, after_ms: int, until_ms: int, limit: int) -> list[int]:
    """The occurrences after ``after_ms``, up to and with ``until_ms``, in order; the first ``limit`` of them.

    Raises `TimeZoneUnknown`.
    """
    found = []
    for moment in islice(_moments(schedule, _checked(after_ms)), limit):
        if moment > until_ms:
            break
        found.append(moment)
    return found


def next_occurrence(schedule: Schedule, after_ms: int) -> int | None:
    """The first occurrence after ``after_ms``; None: there is none before the calendar ends."""
    return next(_moments(schedule, _checked(after_ms)), None)


def passed(schedule: Schedule, after_ms: int, until_ms: int) -> Passed | None:
    """What `occurrences` would list without a limit, without listing it; None: nothing.

    A process may have been down for years: a day costs one look at the time zone, however often the line fires in it.
    """
    _checked(after_ms)
    rule = schedule.rule
    if isinstance(rule, Every):
        count = rule.count(after_ms, until_ms)
        last_ms = rule.next_ms(after_ms) + (count - 1) * rule.every_ms
        return Passed(count, last_ms) if count else None
    wall, count, last_ms = _Wall(rule, schedule.timezone), 0, after_ms
    for day in wall.days(after_ms):
        moments = wall.moments(day)
        if moments[0] > until_ms:
            break
        if moments[0] <= last_ms or moments[-1] > until_ms:
            moments = [moment for moment in moments if last_ms < moment <= until_ms]
        if moments:
            count, last_ms = count + len(moments), moments[-1]
    return Passed(count, last_ms) if count else None


def find_zone(name: str) -> tzinfo:
    """The time zone of a name; UTC is known everywhere. Raises `TimeZoneUnknown`, with the names that lie near."""
    if name == UTC:
        return UTC_ZONE
    from zoneinfo import ZoneInfo, available_timezones  # noqa: PLC0415 - most schedules have no need of it

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError) as exc:
        known = available_timezones()
        if not known:
            raise NoTimeZones(
                f"the time zone {name!r} cannot be looked up: this machine has no time zone database",
                hint="install the system's tzdata, or `pip install tzdata`; or leave timezone out for UTC",
            ) from exc
        from difflib import get_close_matches  # noqa: PLC0415 - only for a name that is wrong

        close = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
        raise TimeZoneUnknown(
            f"there is no time zone {name!r} in this machine's database",
            hint=f"did you mean {close[0]!r}?" if close else "write a name such as Europe/Berlin",
        ) from exc


def moment_text(moment_ms: int, timezone: str = UTC) -> str:
    """A moment as people and programs read it: ``2024-01-31T06:00:00Z``, or with the offset of another zone."""
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC_ZONE).astimezone(find_zone(timezone))
    precise = "milliseconds" if moment_ms % 1000 else "seconds"
    text = (moment + moment_ms % 1000 * _MS).isoformat(timespec=precise)
    return text.removesuffix("+00:00") + "Z" if timezone == UTC else text


def _checked(after_ms: int) -> int:
    if not 0 <= after_ms <= MOMENT_MS_MAX:
        raise InvalidInput(f"{after_ms} is not a time between 1970 and 9999", hint="set the machine's clock")
    return after_ms


def _moments(schedule: Schedule, after_ms: int) -> Iterator[int]:
    rule = schedule.rule
    if isinstance(rule, Every):
        moment = after_ms
        while (moment := rule.next_ms(moment)) <= MOMENT_MS_MAX:
            yield moment
        return
    wall, last_ms = _Wall(rule, schedule.timezone), after_ms
    for day in wall.days(after_ms):
        for moment in wall.moments(day):
            # Times that one jump passes over can stand on two days and are one occurrence all the same.
            if moment > last_ms:
                last_ms = moment
                yield moment


class _Wall:
    """A cron line on the wall clock of one zone. Local times are milliseconds since 1970 as that clock shows them.

    Later local times never come at an earlier moment, so going through them in order meets moments in order.
    """

    def __init__(self, cron: Cron, timezone: str) -> None:
        self._cron = cron
        self._zone = find_zone(timezone)
        self._times = [minute * 60_000 for minute in cron.minutes_of_day()]

    def days(self, after_ms: int) -> Iterator[int]:
        """The days that fit, from the one on which the clock shows ``after_ms``."""
        day = self._cron.next_day((after_ms + self._offset_at(after_ms)) // DAY_MS)
        while day is not None:
            yield day
            day = self._cron.next_day(day + 1)

    def moments(self, day: int) -> list[int]:
        """The moments of one day, in order and each once."""
        begins, ends = day * DAY_MS, (day + 1) * DAY_MS
        offset = self._offset(begins)
        # No zone has changed its offset twice within a day: with the same one at both ends, nothing odd lies between.
        if offset == self._offset(ends):
            return [begins - offset + time for time in self._times]
        return list(dict.fromkeys(self._moment(begins + time) for time in self._times))

    def _moment(self, local_ms: int) -> int:
        moment = local_ms - self._offset(local_ms)
        if moment + self._offset_at(moment) == local_ms:
            return moment
        # Jumped over: with the offset before the jump the time lies after it, with the offset after the jump before it.
        early, late = local_ms - self._offset(local_ms, fold=1), moment
        before = self._offset_at(early)
        while late - early > 1:
            middle = (early + late) // 2
            if self._offset_at(middle) == before:
                early = middle
            else:
                late = middle
        return late

    def _offset(self, local_ms: int, fold: int = 0) -> int:
        """What the clock is ahead of UTC when it shows a time, the first time it does."""
        shown = (_EPOCH + local_ms * _MS).replace(tzinfo=self._zone, fold=fold)
        return (shown.utcoffset() or timedelta()) // _MS

    def _offset_at(self, moment_ms: int) -> int:
        """What the clock is ahead of UTC at a moment."""
        moment = (_EPOCH + moment_ms * _MS).replace(tzinfo=UTC_ZONE)
        return (moment.astimezone(self._zone).utcoffset() or timedelta()) // _MS
