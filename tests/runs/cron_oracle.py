"""A second opinion about cron lines: look at every minute, one after the other, and ask what the wall clock shows.

It shares no code with `detent.contract.schedule` and `detent.runs.schedules.times`: it reads the text again at every minute, and finds
jumps of the clock by watching it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
MONTHS = dict(zip("jan feb mar apr may jun jul aug sep oct nov dec".split(), range(1, 13), strict=True))
WEEKDAYS = dict(zip("sun mon tue wed thu fri sat".split(), range(7), strict=True))


def brute_force(line: str, timezone: str, after_ms: int, until_ms: int) -> list[int]:
    """The occurrences after one moment, up to and with another; both on whole minutes."""
    zone = ZoneInfo(timezone)
    moment = datetime.fromtimestamp(after_ms // 1000, UTC)
    shown = moment.astimezone(zone).replace(tzinfo=None)
    found = []
    while moment < datetime.fromtimestamp(until_ms // 1000, UTC):
        moment += MINUTE
        local = moment.astimezone(zone)
        before, shown = shown, local.replace(tzinfo=None, fold=0)
        passed_over = []
        while before + MINUTE < shown:
            before += MINUTE
            passed_over.append(before)
        again = local.fold == 1
        if (not again and fits(line, shown)) or any(fits(line, time) for time in passed_over):
            found.append(int(moment.timestamp()) * 1000)
    return found


def fits(line: str, time: datetime) -> bool:
    """Whether a time on the wall fits a line."""
    minute, hour, day, month, weekday = line.lower().split()
    if not (_fits(minute, time.minute) and _fits(hour, time.hour) and _fits(month, time.month, MONTHS)):
        return False
    by_day = _fits(day, time.day, start=1)
    by_weekday = any(_fits(weekday, number, WEEKDAYS) for number in {time.isoweekday(), time.isoweekday() % 7})
    if day[0] == "*" or weekday[0] == "*":
        return by_day and by_weekday
    return by_day or by_weekday


def _fits(part: str, value: int, names: dict[str, int] | None = None, start: int | None = None) -> bool:
    least = start if start is not None else 1 if names is MONTHS else 0
    for item in part.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        low = least if span == "*" else (names or {}).get(first, -1) if first.isalpha() else int(first)
        high = 99 if span == "*" else low
        if last:
            high = (names or {}).get(last, -1) if last.isalpha() else int(last)
            high = 7 if names is WEEKDAYS and high == 0 < low else high
        if names is WEEKDAYS and span == "*" and value == 7:
            continue
        if low <= value <= high and (value - low) % int(step or 1) == 0:
            return True
    return False
