"""`detent run --watch`: a run for each occurrence, from the ledger on after a restart, nothing dropped in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from detent.contract import load
from detent.errors import QueueFull
from detent.runs.handle import RunHandle
from detent.runs.record.inputs import RunInputs
from detent.runs.runtime import Runtime
from detent.runs.schedules.runner import Hands, Taken, Watching
from detent.testing import FakeClock
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

START_MS = 1_704_067_200_000
"""2024-01-01 00:00 UTC."""
HOURLY = """\
name: hourly
schedule: {every: 1h}
params:
  count: {type: integer, default: 2}
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: {$param: count}}}}
"""


@dataclass(slots=True)
class Watcher:
    """One process that watches, with time that passes while it waits."""

    project: Project
    clock: FakeClock
    runs: int
    """How many it drives before it is told to end."""
    text: str = HOURLY
    params: dict[str, Any] = field(default_factory=lambda: {"count": 2})
    during: Callable[[RunHandle], None] = lambda _handle: None
    said: list[str] = field(default_factory=list)
    driven: list[str] = field(default_factory=list)
    waits: int = 0

    def watch(self) -> Watcher:
        """Watch until as many runs were driven, or nothing came for a day."""
        contract = load(self.text.encode(), name="hourly.yaml", base=str(self.project.directory))
        hands = Hands(self.clock, self._wait, self._drive, self.said.append, self._ending)
        Watching(self.project.home, RunInputs(contract, self.params), hands).run()
        return self

    def _ending(self) -> bool:
        return len(self.driven) >= self.runs or self.waits > 24 * 200

    def _wait(self, seconds: float) -> None:
        self.waits += 1
        self.clock.jump(int(seconds * 1000))

    def _drive(self, inputs: RunInputs, taken: Taken) -> None:
        self.driven.append(taken[0].run_id)
        with Runtime(self.project.home, workers=1) as work:
            handle = RunHandle(work, inputs, taken=taken)
            self.during(handle)
            handle.run()


def test_each_occurrence_has_its_run_whose_inputs_name_it(project: Project) -> None:
    clock = FakeClock(START_MS + 600_000)
    watcher = Watcher(project, clock, runs=2).watch()
    assert watcher.said == [
        "next run of hourly at 2024-01-01 01:00:00Z",
        "next run of hourly at 2024-01-01 02:00:00Z",
    ]
    runs = project.json("list")
    assert [run["status"] for run in runs] == ["succeeded", "succeeded"]
    assert [run["run_id"] for run in runs] == watcher.driven[::-1]
    abouts = [dict(project.inputs(run_id).about) for run_id in watcher.driven]
    assert abouts == [
        {"scheduled_for": "2024-01-01T01:00:00Z", "schedule": {"every": "1h"}},
        {"scheduled_for": "2024-01-01T02:00:00Z", "schedule": {"every": "1h"}},
    ]
    assert "for       2024-01-01 02:00:00\n" in project("show", watcher.driven[1]).out
    # Asleep between them: a look at the clock at least every 20 s, and no more than that.
    assert watcher.waits <= 2 * 3600 // 20


def test_a_restart_goes_on_from_the_ledger_and_records_what_was_missed(project: Project) -> None:
    Watcher(project, FakeClock(START_MS + 1), runs=1).watch()
    later = FakeClock(START_MS + 4 * 3_600_000 + 1_800_000)
    watcher = Watcher(project, later, runs=1).watch()
    missed = "missed 3 occurrences from 2024-01-01 02:00:00Z to 2024-01-01 04:00:00Z: no process was watching"
    assert watcher.said == [f"{missed}; the next run records it", "next run of hourly at 2024-01-01 05:00:00Z"]
    about = project.inputs(watcher.driven[0]).about
    assert about["scheduled_for"] == "2024-01-01T05:00:00Z"
    assert about["missed"]["count"] == 3
    assert about["missed"]["reasons"] == {"down": 3}
    assert "missed    3 occurrences" in project("show", watcher.driven[0]).out


def test_an_edited_schedule_or_contract_is_the_same_series_and_other_parameters_are_another(project: Project) -> None:
    Watcher(project, FakeClock(START_MS + 1), runs=1).watch()
    noon = START_MS + 3_600_000 + 1_800_000
    edited = HOURLY.replace("1h", "30m").replace("id: numbers", "id: other")
    watcher = Watcher(project, FakeClock(noon + 1), runs=1, text=edited).watch()
    assert watcher.said == []
    assert project.inputs(watcher.driven[0]).about["scheduled_for"] == "2024-01-01T01:30:00Z"
    other = Watcher(project, FakeClock(noon + 4 * 3_600_000), runs=1, params={"count": 3}).watch()
    assert other.said == ["next run of hourly at 2024-01-01 06:00:00Z"]
    assert set(other.driven).isdisjoint(watcher.driven)


def test_a_run_that_was_left_in_its_middle_is_taken_up_again(project: Project) -> None:
    """X-174"""
    left = Watcher(project, FakeClock(START_MS + 1), runs=1, during=RunHandle.stop).watch()
    assert project.json("list")[0]["status"] == "running"
    clock = FakeClock(START_MS + 3_600_000 + 60_000)
    watcher = Watcher(project, clock, runs=2).watch()
    assert watcher.driven[0] == left.driven[0]
    assert watcher.said[0] == f"goes on with run {left.driven[0]}, which was started for 2024-01-01 01:00:00Z"
    assert [run["status"] for run in project.json("list")] == ["succeeded", "succeeded"]
    assert "missed" not in project.inputs(watcher.driven[1]).about


def test_two_watchers_on_one_home_run_an_occurrence_once(project: Project) -> None:
    beside = Watcher(project, FakeClock(START_MS + 1), runs=2)
    # One gets to it while the run of the other goes on; a third while that one sleeps, and finds it over.
    watcher = Watcher(project, FakeClock(START_MS + 1), runs=1, during=lambda _handle: _until_told(beside)).watch()
    assert beside.driven == []
    assert beside.said[-1] == "2024-01-01 01:00:00Z is run, or was run, by another process"
    early = FakeClock(START_MS + 3_600_001)
    slow = Watcher(project, early, runs=2)
    _until_told(slow, first=lambda: Watcher(project, FakeClock(START_MS + 3_600_001), runs=1).watch())
    assert slow.driven == []
    assert slow.said[-1] == "2024-01-01 02:00:00Z is run, or was run, by another process"
    assert [run["run_id"] for run in project.json("list")][1:] == watcher.driven


def test_an_occurrence_that_cannot_be_started_is_missed_and_recorded(project: Project) -> None:
    refused: list[int] = []

    def refuse(_handle: RunHandle) -> None:
        if not refused:
            refused.append(1)
            raise QueueFull("no room")

    watcher = Watcher(project, FakeClock(START_MS + 1), runs=2, during=refuse).watch()
    assert "error: no room (QUEUE_FULL)" in watcher.said
    assert "no run could be started for 2024-01-01 01:00:00Z; the next run records it" in watcher.said
    about = project.inputs(watcher.driven[1]).about
    assert about["missed"]["reasons"] == {"refused": 1}


def test_occurrences_that_pass_during_a_run_are_missed_and_said(project: Project) -> None:
    clock = FakeClock(START_MS + 1)
    watcher = Watcher(project, clock, runs=2, during=lambda _handle: _once(clock, 2 * 3_600_000)).watch()
    assert "missed 2 occurrences" in " ".join(watcher.said)
    assert project.inputs(watcher.driven[1]).about["missed"]["reasons"] == {"overlap": 2}


def test_a_contract_without_a_schedule_is_refused_with_what_to_write(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("plain.yaml", HOURLY.replace("schedule: {every: 1h}\n", ""))
    nowhere = project.directory / "nowhere"
    monkeypatch.setenv("DETENT_HOME", str(nowhere))
    result = project("run", "plain.yaml", "--watch")
    assert result.code == 2
    assert "plain.yaml has no schedule" in result.err
    assert "write `schedule: {every: 15m}`" in result.err
    assert not nowhere.exists()
    project.write("hourly.yaml", HOURLY)
    assert project("run", "hourly.yaml", "--watch", "--new").code == 2


def test_ctrl_c_while_it_waits_ends_the_watch(project: Project) -> None:
    project.write("yearly.yaml", HOURLY.replace("every: 1h", "cron: '0 6 29 2 *'"))
    terminal = project.terminal("run", "yearly.yaml", "--watch", "-w", "1")
    assert terminal.process.stderr is not None
    assert "next run of hourly at" in terminal.process.stderr.readline()
    terminal.interrupt()
    assert terminal.ended().code == 130
    assert project.json("list") == []


def test_ctrl_c_during_a_run_ends_the_watch_after_it_and_twice_at_once(project: Project) -> None:
    project.write(
        "often.yaml", 'name: often\nschedule: {every: 1s}\nsteps:\n  - {id: wait, run: {python: "tasks:wait"}}\n'
    )
    terminal = project.terminal("run", "often.yaml", "--watch", "-w", "1")
    project.wait_running()
    terminal.interrupt()
    assert terminal.process.stderr is not None
    while "the watch ends after this run" not in (line := terminal.process.stderr.readline()):
        assert line
    project.release()
    ended = terminal.ended()
    assert ended.code == 130
    assert "often succeeded" in ended.out
    project.edit('return "released"', 'return "let go"')
    terminal = project.terminal("run", "often.yaml", "--watch", "-w", "1")
    project.wait_running()
    terminal.interrupt()
    assert terminal.process.stderr is not None
    while "the watch ends after this run" not in (line := terminal.process.stderr.readline()):
        assert line
    terminal.interrupt()
    assert terminal.ended().code == 130
    assert project.json("list")[0]["status"] == "running"


def _until_told(watcher: Watcher, first: Callable[[], object] = lambda: None) -> None:
    """Have a watcher watch until it learns of another process; ``first`` happens when it first sleeps."""

    def wait(seconds: float) -> None:
        if not watcher.waits:
            first()
        watcher._wait(seconds)

    def told() -> bool:
        return watcher.waits > 1_000 or any("another process" in line for line in watcher.said)

    contract = load(watcher.text.encode(), name="hourly.yaml", base=str(watcher.project.directory))
    hands = Hands(watcher.clock, wait, watcher._drive, watcher.said.append, told)
    Watching(watcher.project.home, RunInputs(contract, watcher.params), hands).run()


def _once(clock: FakeClock, ms: int) -> None:
    if clock.wall_ms() < START_MS + 3 * 3_600_000:
        clock.jump(ms)
