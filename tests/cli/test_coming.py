"""`detent plan` and `detent validate` show when a contract is run next."""

from __future__ import annotations

import pytest

from detent.owner import ticks
from detent.runs.schedules.times import NoTimeZones
from tests.cli.contracts import Desk, desk

__all__ = ["desk"]

NOW_MS = 1_711_756_800_000  # 2024-03-30 00:00 UTC, a day before clocks change in Berlin.
HEAD = "name: timed\nschedule: {}\n"
STEPS = "steps: [{id: s, run: {shell: ls}}]\n"
BERLIN = "{cron: '30 2 * * *', timezone: Europe/Berlin}"


@pytest.fixture(autouse=True)
def _stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks.SystemClock, "wall_ms", lambda _: NOW_MS)


def contract(schedule: str) -> str:
    return HEAD.format(schedule) + STEPS


def test_a_plan_shows_the_schedule_and_the_next_three_occurrences(desk: Desk) -> None:
    said = desk("plan", desk.write(contract(BERLIN)))
    assert said.code == 0
    assert said.out.splitlines()[1:4] == [
        "  file      pipeline.yaml",
        "  schedule  cron 30 2 * * * in Europe/Berlin",
        "  next      2024-03-30 02:30:00+01:00, 2024-03-31 03:00:00+02:00, 2024-04-01 02:30:00+02:00",
    ]


def test_a_plan_in_json_has_the_schedule_and_the_moments(desk: Desk) -> None:
    document = desk("plan", desk.write(contract("{every: 1h, offset: 5m}")), "-o", "json").document
    assert document["schedule"] == {
        "every": "1h",
        "offset": "5m",
        "next": ["2024-03-30T00:05:00Z", "2024-03-30T01:05:00Z", "2024-03-30T02:05:00Z"],
    }
    assert document["contract"]["workflow_coordination"]["schedule"] == {"every": "1h", "offset": "5m"}


def test_a_plan_without_a_schedule_has_none(desk: Desk) -> None:
    document = desk("plan", desk.write(f"name: plain\n{STEPS}"), "-o", "json").document
    assert document["schedule"] is None


def test_validate_shows_them_too(desk: Desk) -> None:
    file = desk.write(contract("{cron: '@daily'}"))
    said = desk("validate", file)
    assert said.code == 0
    assert "cron @daily in UTC; next: 2024-03-31 00:00:00Z, 2024-04-01 00:00:00Z, 2024-04-02 00:00:00Z" in said.out
    (checked,) = desk("validate", file, "-o", "json").document["files"]
    assert checked["schedule"]["next"][0] == "2024-03-31T00:00:00Z"


@pytest.mark.parametrize("command", ["plan", "validate"])
def test_an_unknown_zone_is_a_finding_with_its_line(desk: Desk, command: str) -> None:
    said = desk(command, desk.write(contract("{cron: '@daily', timezone: Europe/Berln}")))
    assert said.code == 2
    assert "pipeline.yaml:2:11: there is no time zone 'Europe/Berln'" in said.out + said.err
    assert "did you mean 'Europe/Berlin'?" in said.out + said.err


def test_a_machine_without_time_zones_still_plans(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_zone(name: str) -> object:
        raise NoTimeZones(f"the time zone {name!r} cannot be looked up: this machine has no time zone database")

    monkeypatch.setattr("detent.runs.schedules.times.find_zone", find_zone)
    said = desk("plan", desk.write(contract(BERLIN)))
    assert said.code == 0
    assert "next      the time zone 'Europe/Berlin' cannot be looked up" in said.out
