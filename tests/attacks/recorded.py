"""A home in which everything that a home can hold has really happened, made by the commands that a user types.

Runs that succeeded, failed, were cancelled, retried and taken from before; steps of every kind; an ordered map; attempts that were
repeated; files; answers to idempotency keys; a refusal; erased content; a checkpoint; and all that is a copy of another home, which
has gone on under keys of its own. It is made once and put back for each case.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from detent.owner.home import Home
from detent.testing.home import scratch_directory, temporary_home
from tests.attacks.asked import Answer, Desk, Line
from tests.faults.commands import ROOT, Commands, Stuck
from tests.faults.site import Site, until
from tests.homes import retry_at_once

TASKS = """
import os
import pathlib
import time


def numbers(count):
    print("counting to", count)
    return list(range(count))


def double(n):
    return n * 2


def large(size):
    return "x" * size


def fragile(flag):
    if not pathlib.Path(flag).exists():
        raise ValueError("not yet")
    return "mended"


def stumble(mark):
    if not pathlib.Path(mark).exists():
        pathlib.Path(mark).touch()
        raise OSError("try again")
    return "stood up"


def hold(path):
    pathlib.Path("held").touch()
    while not os.path.exists(path):
        time.sleep(0.002)


def square(x):
    return x * x
"""
FLOW = """
name: flow
steps:
- {id: numbers, run: {python: "tasks:numbers", with: {count: 3}}}
- {id: doubles, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
- {id: other, run: {python: "tasks:double", with: {n: 1000}}}
- {id: large, run: {python: "tasks:large", with: {size: 40000}}}
- id: cell
  run:
    code: |
      def main(values):
          print("in the sandbox")
          return sum(values)
    with: {values: {$from: doubles}}
- id: files
  run: {shell: "printf one > one.txt; printf two > two.txt"}
  outputs: {one: one.txt, two: two.txt}
- {id: stumble, run: {python: "tasks:stumble", with: {mark: stumbled}}, retry: 2}
result: {cell: {$from: cell}, other: {$from: other}, stumble: {$from: stumble}}
"""
BROKEN = """
name: broken
steps:
- {id: good, run: {python: "tasks:double", with: {n: 7}}}
- {id: fragile, run: {python: "tasks:fragile", with: {flag: mended}}}
result: {$from: fragile}
"""
HELD = """
name: held
steps:
- {id: hold, run: {python: "tasks:hold", with: {path: never}}}
- {id: after, needs: [hold], run: {python: "tasks:double", with: {n: 5}}}
"""
KEYS = """
import detent, tasks
with detent.Client(workers=1) as client:
    for key, number in (("first", 1), ("second", 2)):
        handle = client.submit(tasks.double, number, idempotency_key=key)
        print(key, handle.job_id, handle.result(60))
"""
"""Two calls with idempotency keys; typed again, each key must be given its own job and result."""
RESULT = {"cell": 6, "other": 2000, "stumble": "stood up"}
COPY = "copied"
"""Where the copy lies that is attacked; the home that it was copied from lies beside it."""
ITEMS = 60
"""Of the ordered map: so many jobs that the home is left with a checkpoint."""
JOBS_OF_A_RUN_MAX = 12


class Recorded:
    """The home, and what its commands answer as long as it is untouched."""

    def __init__(self, commands: Commands) -> None:
        self.aside = Path(os.path.realpath(mkdtemp(prefix="detent-attack-", dir=scratch_directory())))
        self.place = self.aside / "place"
        self.home = Home(self.place / COPY / ".detent")
        environment = _make(commands, self.place)
        self.desk = Desk(commands, self.place / "project", environment, self.aside / "outputs")
        self.keys = self.typed_keys()
        shutil.copytree(self.place, self.aside / "whole", symlinks=True)
        self.lines = self._reading_lines()
        self.said = {answer.line: answer for answer in self.desk.ask(self.lines)}
        again = {answer.line: answer for answer in self.desk.ask(self.lines)}
        self.steady = [line for line in self.lines if self.said[line].out == again[line].out]
        """The lines that answer the same twice."""

    def put_back(self) -> None:
        """Have everything as it was."""
        shutil.rmtree(self.place)
        shutil.copytree(self.aside / "whole", self.place, symlinks=True)

    def close(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.aside, ignore_errors=True)

    def typed_keys(self) -> str:
        """What the two idempotency keys are answered."""
        done = subprocess.run(
            [sys.executable, "-c", KEYS],
            cwd=self.desk.directory,
            env={**self.desk.environment, "PYTHONPATH": f"{ROOT / 'src'}:{self.desk.directory}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout + done.stderr[-1500:]

    def _reading_lines(self) -> list[Line]:
        """Every line that shows a person something of this home."""
        runs = [str(run["run_id"]) for run in self.desk.one("list", "-o", "json").document]
        lines: list[Line] = [("list",), ("list", "--jobs")]
        for run_id in runs:
            jobs = self.desk.one("list", "--run", run_id, "-o", "json").document
            lines += [("show", run_id), ("explain", run_id), ("logs", run_id)]
            for job in jobs[:JOBS_OF_A_RUN_MAX]:
                lines += [("show", job["job_id"]), ("explain", job["job_id"])]
        alone = [job["job_id"] for job in self.desk.one("list", "--jobs", "-o", "json").document if not job["run_id"]]
        lines += [line for job_id in alone for line in (("show", job_id), ("explain", job_id), ("logs", job_id))]
        return [(*line, "-o", "json") for line in lines]


def _make(commands: Commands, place: Path) -> dict[str, str]:
    """Let everything happen in a home of its own at ``place``; the environment in which it is asked afterwards."""
    with temporary_home() as home:
        shutil.copytree(home.directory, place)
    made = _At(place)
    site = Site(made, commands, place=place)  # type: ignore[arg-type]
    retry_at_once(made.home)
    for name, text in (("tasks.py", TASKS), ("flow.yaml", FLOW), ("broken.yaml", BROKEN), ("held.yaml", HELD)):
        site.write(text, name)
    (site.project / "rows.jsonl").write_text("".join(f"{number}\n" for number in range(ITEMS)))
    desk = Desk(commands, site.project, {**site.environment, "DETENT_DEBUG": ""}, site.outputs)
    first = _done(desk, 0, "run", "flow.yaml", "-w", "2", "-o", "json")
    assert first.document["result"] == RESULT, first
    second = _done(desk, 0, "run", "flow.yaml", "-w", "2", "-o", "json").document
    assert second["jobs"]["reused"] > 0, second
    failed = _done(desk, 1, "run", "broken.yaml", "-w", "1", "-o", "json").document["run_id"]
    (site.project / "mended").touch()
    _done(desk, 0, "retry", failed, "-w", "1", "-o", "json")
    _cancel(site, desk)
    line = ("map", "--items", "rows.jsonl", "--compute", "tasks:square", "--commit", "jsonl:out.jsonl", "--chunk", "1")
    _done(desk, 0, *line, "-w", "1", "-o", "json")
    _done(desk, 0, "erase", "--run", failed, "--yes")
    _done(desk, 1, "cancel", failed)
    return _copied(desk, place).environment


def _copied(desk: Desk, place: Path) -> Desk:
    """Copy the home, as `cp -r` does, and go on in the copy under keys of its own."""
    shutil.copytree(place / ".detent", place / COPY / ".detent")
    environment = {**desk.environment, "DETENT_HOME": str(place / COPY / ".detent")}
    there = Desk(desk.commands, desk.directory, environment, desk.outputs)
    _done(there, 0, "copy")
    _done(there, 0, "run", "flow.yaml", "-w", "2", "-o", "json")
    return there


def _done(desk: Desk, code: int, *line: str) -> Answer:
    answer = desk.one(*line)
    if answer.code != code:
        raise Stuck(f"`detent {' '.join(line)}` ended with {answer.code}: {answer.out[-1500:]} {answer.err[-1500:]}")
    return answer


def _cancel(site: Site, desk: Desk) -> None:
    """Cancel a run from a second terminal."""
    command = desk.start("run", "held.yaml", "-w", "1", "-o", "json")
    until((site.project / "held").exists, command)
    (run_id,) = site.runs("running")
    _done(desk, 0, "cancel", run_id, "--reason", "no longer wanted")
    command.wait()


class _At:
    """A home where it lies, as `Site` knows one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = Home(directory / ".detent")
        self.path = self.home.path
        self.environment: dict[str, Any] = {"DETENT_HOME": str(self.path), "XDG_STATE_HOME": str(directory / "state")}
