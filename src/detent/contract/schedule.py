"""``schedule:``: when a contract is run again, as its file says it.

A schedule says *when*, never *what*: it is part of neither digest of a contract and of no id made from them. Moving a run
from six o'clock to seven must not turn its steps into other steps, nor make a stranger who compares two runs believe that
they ran something else. The run's own inputs say which occurrence it was started for.

This module knows the words and the calendar. It reads no clock and no time zone: `detent.runs.schedules.times` turns a schedule
into moments.

Cron lines: five fields, read strictly, and the days of the calendar they fit.

``minute hour day-of-month month day-of-week``, each a ``*``, a number, a name (``jan``, ``mon``), a range, a list, and a step
on ``*`` or on a range. If both day fields are restricted, a day that fits either of them fits (as in Vixie's cron, where a
field that begins with ``*`` is not restricted). What nearly every cron understands differently (``5/15``, ``L``, ``#``, a
sixth field) is refused rather than guessed.

Everything here is about the calendar alone: days are numbered from 1970-01-01, minutes from midnight, and no time zone
has a say. What a clock on a wall makes of them is for `detent.runs.schedules.times`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, Final

from detent.canon.late import NamedTuple, dataclass, pattern
from detent.canon.show import show
from detent.canon.strict_json import JsonValue
from detent.contract.findings import Report, Spot
from detent.contract.shapes import BAD, Check, check_keys, choice, text
from detent.contract.words import BadDuration, format_duration, parse_duration, shown
from detent.errors import InvalidInput

CRON_CHARACTERS_MAX: Final = 500
CRON_YEAR_MAX: Final = 9998
"""Dates end with 9999; the year before leaves room for every time zone."""
_EPOCH: Final = date(1970, 1, 1)
_ONE_DAY: Final = timedelta(days=1)
_DAYS_OF_MONTH_MAX: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_ITEM: Final = pattern(r"(?:(\*)|([0-9a-z]+)(?:-([0-9a-z]+))?)(?:/([0-9]{1,4}))?")
_NUMBER: Final = pattern(r"[0-9]{1,4}")
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


EVERY_MS_MIN: Final = 1_000
EVERY_MS_MAX: Final = 366 * 86_400_000
"""Longer periods are better said as dates; and a multiple of this is soon beyond every calendar."""
SKIP: Final = "skip"
QUEUE: Final = "queue"
OVERLAPS: Final = (SKIP, QUEUE)
UTC: Final = "UTC"
_ZONE: Final = pattern(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")
_HOW: Final = "write `schedule: {every: 15m}` or `schedule: {cron: '0 6 * * 1-5', timezone: Europe/Berlin}`"


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed period, counted from 1970-01-01 00:00 UTC: two machines agree, whenever each of them was started."""

    every_ms: int
    offset_ms: int = 0

    def next_ms(self, after_ms: int) -> int:
        """The first moment later than ``after_ms``."""
        return ((after_ms - self.offset_ms) // self.every_ms + 1) * self.every_ms + self.offset_ms

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many moments there are after ``after_ms``, up to and with ``until_ms``."""
        if until_ms <= after_ms:
            return 0
        return (until_ms - self.offset_ms) // self.every_ms - (after_ms - self.offset_ms) // self.every_ms


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a contract is run: every so often, or by the calendar of a time zone."""

    rule: Every | Cron
    timezone: str = UTC
    """A name of the time zone database. Whether this machine knows it is not looked at here."""
    overlap: str = SKIP
    """What happens to an occurrence whose predecessor still runs: ``skip`` (it is missed) or ``queue`` (it waits)."""


def check_schedule(value: Any, spot: Spot) -> Any:
    """The schedule that ``schedule:`` says; what is wrong with it is reported."""
    if type(value) is not dict:
        spot.fault(f"schedule must be a mapping (key: value), not {shown(value)}", _HOW)
        return BAD
    said = check_keys(value, KEYS, spot, "schedule")
    if "every" in value and "cron" in value:
        spot.fault("schedule has every and cron; it needs one of them", _HOW)
        return BAD
    if "every" not in value and "cron" not in value:
        if all(key in KEYS for key in value):  # Otherwise the unknown key is most likely the one that was meant.
            spot.fault("schedule says neither every nor cron", _HOW)
        return BAD
    has_fault = any(key in KEYS and key not in said for key in value)
    for key, other in (("timezone", "cron"), ("offset", "every")):
        if key in value and other not in value:
            hint = "a period is the same in every time zone" if key == "timezone" else "say it in the cron line"
            spot.at(key).fault(f"{key} means nothing without {other}", f"{hint}; leave it out", at_key=True)
            has_fault = True
    every_ms, offset_ms = said.get("every"), said.get("offset", 0)
    if every_ms is not None and offset_ms >= every_ms:
        spot.at("offset").fault(
            f"an offset of {format_duration(offset_ms)} is not within a period of {format_duration(every_ms)}",
            "write a shorter one",
        )
        has_fault = True
    if has_fault:
        return BAD
    if every_ms is None:
        return Schedule(said["cron"], said.get("timezone", UTC), said.get("overlap", SKIP))
    return Schedule(Every(every_ms, offset_ms), overlap=said.get("overlap", SKIP))


def read_schedule(document: Mapping[str, Any]) -> Schedule:
    """The schedule that `schedule_document` wrote; `InvalidInput` for anything else."""
    report = Report()
    found = check_schedule(dict(document), Spot(report))
    if not isinstance(found, Schedule):
        raise InvalidInput("; ".join(fault.message for fault in report.faults) or "is not a schedule")
    return found


def schedule_document(schedule: Schedule) -> dict[str, JsonValue]:
    """A schedule as the long form writes it; what has its default is left out."""
    written: dict[str, JsonValue] = {}
    if isinstance(schedule.rule, Every):
        written["every"] = format_duration(schedule.rule.every_ms)
        if schedule.rule.offset_ms:
            written["offset"] = format_duration(schedule.rule.offset_ms)
    else:
        written["cron"] = schedule.rule.text
        if schedule.timezone != UTC:
            written["timezone"] = schedule.timezone
    if schedule.overlap != SKIP:
        written["overlap"] = schedule.overlap
    return written


def schedule_text(schedule: Schedule) -> str:
    """A schedule in one line, for people."""
    if isinstance(schedule.rule, Every):
        after = f", {format_duration(schedule.rule.offset_ms)} after" if schedule.rule.offset_ms else ""
        when = f"every {format_duration(schedule.rule.every_ms)}{after}"
    else:
        when = f"cron {schedule.rule.text} in {schedule.timezone}"
    return when + (", overlapping runs wait" if schedule.overlap == QUEUE else "")


def _every(value: Any, spot: Spot) -> Any:
    try:
        every_ms = parse_duration(value, least_ms=EVERY_MS_MIN)
    except BadDuration as exc:
        spot.fault(f"a period {exc}", "write it as 30s, 15m, 2h, 1d or 1h30m, at least 1s")
        return BAD
    if every_ms > EVERY_MS_MAX:
        spot.fault(
            f"a period of {shown(value)} is longer than 366 days", "write a cron line: '0 0 1 1 *' is once a year"
        )
        return BAD
    return every_ms


def _offset(value: Any, spot: Spot) -> Any:
    try:
        return parse_duration(value, least_ms=0)
    except BadDuration as exc:
        spot.fault(f"an offset {exc}", "write it as 30s, 15m, 2h or 1h30m, shorter than the period")
        return BAD


def _cron(value: Any, spot: Spot) -> Any:
    line = text(value, spot)
    if line is BAD:
        return BAD
    try:
        return parse_cron(line)
    except BadCron as exc:
        for fault in (exc, *exc.others):
            spot.fault(str(fault), fault.hint)
        return BAD


def _timezone(value: Any, spot: Spot) -> Any:
    if type(value) is str and _ZONE.fullmatch(value):
        return value
    spot.fault(f"timezone cannot be {shown(value)}", "write a name such as Europe/Berlin, or leave it out for UTC")
    return BAD


def _overlap(value: Any, spot: Spot) -> Any:
    return choice(value, spot, OVERLAPS, "overlap")


KEYS: Final[Mapping[str, Check]] = {
    "every": _every,
    "offset": _offset,
    "cron": _cron,
    "timezone": _timezone,
    "overlap": _overlap,
}
