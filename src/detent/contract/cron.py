"""Cron lines: five fields, read strictly, and the days of the calendar they fit.

``minute hour day-of-month month day-of-week``, each a ``*``, a number, a name (``jan``, ``mon``), a range, a list, and a step
on ``*`` or on a range. If both day fields are restricted, a day that fits either of them fits (as in Vixie's cron, where a
field that begins with ``*`` is not restricted). What nearly every cron understands differently (``5/15``, ``L``, ``#``, a
sixth field) is refused rather than guessed.

Everything here is about the calendar alone: days are numbered from 1970-01-01, minutes from midnight, and no time zone
has a say. What a clock on a wall makes of them is for `detent.runs.schedules.times`.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Final, NamedTuple

from detent.canon.late import dataclass
from detent.canon.show import show

CRON_CHARACTERS_MAX: Final = 500
CRON_YEAR_MAX: Final = 9998
"""Dates end with 9999; the year before leaves room for every time zone."""
_EPOCH: Final = date(1970, 1, 1)
_ONE_DAY: Final = timedelta(days=1)
_DAYS_OF_MONTH_MAX: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM: Final = re.compile(r"(?:(\*)|([0-9a-z]+)(?:-([0-9a-z]+))?)(?:/([0-9]{1,4}))?")
_NUMBER: Final = re.compile(r"[0-9]{1,4}")
MACROS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()

    @property
    def hint(self) -> str:
        named = f", or {self.words[0]} to {self.words[-1]}" if self.words else ""
        return f"the {self.name} goes from {self.least} to {self.most}{named}"


_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day of month", 1, 31)
_MONTH: Final = _Field("month", 1, 12, tuple("jan feb mar apr may jun jul aug sep oct nov dec".split()))
_WEEKDAY: Final = _Field("day of week", 0, 7, tuple("sun mon tue wed thu fri sat".split()))
FIELDS: Final = (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)


class BadCron(Exception):
    """Not a cron line, or one that never fires. Carries what is wrong and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint
        self.others: list[BadCron] = []
        """What is wrong with further fields of the line."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron line: what was written, and the values that fit each field, in order."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    """0 is Sunday; 7 has become 0."""
    either_day: bool
    """Whether a day fits that fits one of the day fields; otherwise it has to fit both."""

    def minutes_of_day(self) -> tuple[int, ...]:
        """The minutes that fit, counted from midnight, in order; the same on every day that fits."""
        return tuple(hour * 60 + minute for hour in self.hours for minute in self.minutes)

    def fits(self, day: date) -> bool:
        """Whether a date fits the three fields of the calendar."""
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.either_day else by_day and by_weekday

    def next_day(self, day_number: int) -> int | None:
        """The first day that fits, not before ``day_number`` (days since 1970-01-01); None: the calendar ends first."""
        day = _EPOCH + timedelta(days=day_number)
        while day.year <= CRON_YEAR_MAX:
            if day.month not in self.months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
            elif self.fits(day):
                return (day - _EPOCH).days
            else:
                day += _ONE_DAY
        return None


def parse_cron(text: str) -> Cron:
    """The cron line in a text. Raises ``BadCron``, which names the field and its allowed values."""
    if len(text) > CRON_CHARACTERS_MAX:
        raise BadCron(f"a cron line has at most {CRON_CHARACTERS_MAX} characters", "write several contracts instead")
    written = " ".join(text.split())
    plain = written.lower()
    if plain.startswith("@"):
        if plain not in MACROS:
            raise BadCron(f"there is no schedule {show(written)}", f"one of {', '.join(MACROS)}, or five fields")
        plain = MACROS[plain]
    fields = plain.split()
    if len(fields) != len(FIELDS):
        names = ", ".join(field.name for field in FIELDS)
        raise BadCron(f"cron {show(written)} has {len(fields)} fields, not five", f"write five: {names}")
    minutes, hours, days, months, weekdays = _all_values(fields, written)
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not either and not any(_DAYS_OF_MONTH_MAX[month - 1] >= days[0] for month in months):
        raise BadCron(f"cron {show(written)} never fires: no such month has a day {days[0]}", "choose an earlier day")
    return Cron(written, minutes, hours, days, months, tuple(sorted({day % 7 for day in weekdays})), either)


def _all_values(fields: list[str], written: str) -> list[tuple[int, ...]]:
    """The values of every field; what is wrong with more than one of them is raised together."""
    found: list[tuple[int, ...]] = []
    faults: list[BadCron] = []
    for part, field in zip(fields, FIELDS, strict=True):
        try:
            found.append(_values(part, field, written))
        except BadCron as exc:
            faults.append(exc)
    if faults:
        faults[0].others = faults[1:]
        raise faults[0]
    return found


def _values(part: str, field: _Field, written: str) -> tuple[int, ...]:
    """The values that one field allows, in order."""
    found: set[int] = set()
    for item in part.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise BadCron(f"the {field.name} cannot be {show(item)} in cron {show(written)}", _form_hint(field))
        star, first_word, last_word, step_text = match.groups()
        if star:
            # 7 is a second name of Sunday: a step must not count it as an eighth day.
            first, last = field.least, 6 if field is _WEEKDAY else field.most
        else:
            first = _value(first_word, field, written)
            last = first if last_word is None else _value(last_word, field, written)
            if field is _WEEKDAY and last == 0 < first:
                last = 7  # `fri-sun` ends the week.
        if last < first:
            raise BadCron(
                f"the range {show(item)} of the {field.name} runs backwards in cron {show(written)}",
                f"write it as two, joined by a comma: {first}-{field.most},{field.least}-{last}",
            )
        found.update(range(first, last + 1, _step(step_text, item, field, written, last - first)))
    return tuple(sorted(found))


def _value(word: str, field: _Field, written: str) -> int:
    if _NUMBER.fullmatch(word):
        number = int(word)
    elif word in field.words:
        number = field.words.index(word) + field.least
    else:
        raise BadCron(f"the {field.name} cannot be {show(word)} in cron {show(written)}", _form_hint(field))
    if not field.least <= number <= field.most:
        raise BadCron(f"the {field.name} cannot be {number} in cron {show(written)}", field.hint)
    return number


def _step(text: str | None, item: str, field: _Field, written: str, span: int) -> int:
    if text is None:
        return 1
    head = item.partition("/")[0]
    if head != "*" and "-" not in head:
        raise BadCron(
            f"a step needs a range before it: {show(item)} in cron {show(written)}", f"write {head}-{field.most}/{text}"
        )
    step = int(text)
    if not 1 <= step <= span:
        hint = f"from 1 to {span}" if span else "leave it out: the range has one value"
        raise BadCron(f"the step of the {field.name} cannot be {step} in cron {show(written)}", hint)
    return step


def _form_hint(field: _Field) -> str:
    return f"a number, a-b, a list with commas, or */n; {field.hint}"
