"""``schedule:``: when a contract is run again, as its file says it.

A schedule says *when*, never *what*: it is part of neither digest of a contract and of no id made from them. Moving a run
from six o'clock to seven must not turn its steps into other steps, nor make a stranger who compares two runs believe that
they ran something else. The run's own inputs say which occurrence it was started for.

This module knows the words and the calendar. It reads no clock and no time zone: `detent.runs.schedules.times` turns a schedule
into moments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract.cron import BadCron, Cron, parse_cron
from detent.contract.durations import BadDuration, format_duration, parse_duration
from detent.contract.findings import Spot
from detent.contract.shapes import BAD, Check, check_keys, choice, text
from detent.contract.words import shown

EVERY_MS_MIN: Final = 1_000
EVERY_MS_MAX: Final = 366 * 86_400_000
"""Longer periods are better said as dates; and a multiple of this is soon beyond every calendar."""
SKIP: Final = "skip"
QUEUE: Final = "queue"
OVERLAPS: Final = (SKIP, QUEUE)
UTC: Final = "UTC"
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,3}")
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
