"""A contract's schedule and its next occurrences, for those who look at contracts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detent.contract import Contract

SHOWN = 3
"""Occurrences that are shown: enough to see what the schedule means."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A schedule as text and as data, and its next occurrences with the offset of its zone."""

    text: str
    document: dict[str, Any]
    moments: tuple[str, ...]
    fault: str = ""
    """Why the occurrences cannot be told on this machine; empty: they can."""

    @property
    def next_text(self) -> str:
        """The next occurrences in one line."""
        return self.fault or ", ".join(moment.replace("T", " ") for moment in self.moments) or "never again"

    def map(self) -> dict[str, Any]:
        """As JSON."""
        return {**self.document, "next": list(self.moments)}


def coming_of(contract: Contract) -> Coming | None:
    """What comes next by a contract's schedule; None: it has none."""
    schedule = contract.schedule
    if schedule is None:
        return None
    from detent.contract.schedule import schedule_document, schedule_text  # noqa: PLC0415 - keeps `--help` fast
    from detent.owner.ticks import SystemClock  # noqa: PLC0415
    from detent.runs.schedules.times import MOMENT_MS_MAX, NoTimeZones, moment_text, occurrences  # noqa: PLC0415

    moments: tuple[str, ...] = ()
    fault = ""
    try:
        ticks = occurrences(schedule, SystemClock().wall_ms(), MOMENT_MS_MAX, SHOWN)
        moments = tuple(moment_text(tick, schedule.timezone) for tick in ticks)
    except NoTimeZones as exc:
        fault = str(exc)
    return Coming(schedule_text(schedule), schedule_document(schedule), moments, fault)


def refuse_unknown_zone(contract: Contract) -> None:
    """Raise `ContractInvalid` if the schedule's time zone is not in this machine's database.

    A machine without any database says nothing: the contract may well be right, and run elsewhere.
    """
    if contract.schedule is None:
        return
    from detent.contract import ContractInvalid, Finding  # noqa: PLC0415
    from detent.runs.schedules.times import NoTimeZones, TimeZoneUnknown, find_zone  # noqa: PLC0415

    try:
        find_zone(contract.schedule.timezone)
    except NoTimeZones:
        return
    except TimeZoneUnknown as exc:
        place = contract.schedule_place
        line, column = (place.line, place.column) if place is not None else (0, 0)
        finding = Finding(contract.name, line, column, str(exc), exc.hint or "", path="schedule.timezone")
        raise ContractInvalid([finding]) from exc
