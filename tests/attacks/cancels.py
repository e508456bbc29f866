"""Cancels at random moments, from other processes: a run with plain, shell and sandboxed steps and maps, or an ordered map.

Afterwards the run has ended, nothing of it is left (no process, mount, control group or file), the history verifies, and `retry`, or
the same line, brings the right result.
"""

from __future__ import annotations

import random
import signal
import threading
from pathlib import Path
from typing import Any

from detent.executor.sandbox import cgroup
from detent.executor.sandbox.capabilities import group_place
from tests.attacks.asked import Desk
from tests.attacks.case import Case
from tests.faults.audit import audit
from tests.faults.commands import Command, Commands
from tests.faults.site import Site, new_site, until
from tests.hostile.rig import mounts

SECONDS = 1.2
"""How long a run takes here, about: the latest moment of a cancel."""
FINAL = frozenset({"completed", "failed", "cancelled"})
EXIT_CODES = frozenset({0, 1, 130})
ITEMS = 120
FLOW = """
name: cancelled
steps:
- {id: numbers, run: {python: "steps:numbers", with: {count: 8}}}
- {id: squares, map: {number: {$from: numbers}}, run: {python: "steps:square"}}
- id: cells
  map: {number: [0, 1, 2, 3]}
  run:
    code: |
      import time
      def main(number):
          time.sleep(0.1)
          return number
- {id: shell, run: {shell: "sleep 0.2; printf done"}, cache: false}
- {id: children, run: {shell: "sleep 0.3 & sleep 0.2; wait; printf done"}, cache: false}
- id: total
  needs: [shell, children]
  run: {python: "steps:total", with: {squares: {$from: squares}, chain: 0, words: [], cells: {$from: cells}}}
result: {$from: total}
"""
RESULT = {"squares": 140, "chain": 0, "words": [], "cells": 6}
MAP = """
import time


def slow(x):
    time.sleep(0.02)
    return x * x
"""


def attack(commands: Commands, seed: int) -> Case:
    """One case."""
    draw = random.Random(f"cancels/{seed}")
    ordered = draw.random() < 0.3
    case = Case("cancels, ordered map" if ordered else "cancels, run", seed)
    with new_site(commands, task_ms=draw.choice((0.0, 5.0, 20.0))) as site:
        desk = Desk(commands, site.project, {**site.environment, "DETENT_DEBUG": ""}, site.outputs)
        (site.project / "slow.py").write_text(MAP)
        (site.project / "rows.jsonl").write_text("".join(f"{number}\n" for number in range(ITEMS)))
        site.write(FLOW)
        line = _map_line() if ordered else ("run", "flow.yaml", "-w", "2", "-o", "json")
        command = desk.start(*line)
        until(lambda: bool(_run_ids(site)), command)
        threading.Event().wait(draw.random() * SECONDS)
        (run_id,) = _run_ids(site)
        typed = _cancel(site, desk, draw, command, run_id)
        case.done = "; ".join([f"{len(typed)} more terminals", *(" ".join(words) for words, _ in typed)])
        _ended(case, [command, *(one for _, one in typed)])
        (status,) = _statuses(site)
        case.outcome = status
        if status not in FINAL:
            case.problems.append(f"run {run_id} is {status}: {site.errors()[-800:]}")
            return case
        _again(case, desk, run_id, status, line, ordered=ordered)
        if ordered:
            _check_rows(case, site.project / "out.jsonl")
        case.problems += audit(site).problems
        case.problems += [f"mount: {one}" for one in mounts()] + _groups(command.pid)
    return case


def _map_line() -> tuple[str, ...]:
    words = "map --items rows.jsonl --compute slow:slow --commit jsonl:out.jsonl --chunk 2 --window 8 -w 2 -o json"
    return tuple(words.split())


def _cancel(
    site: Site, desk: Desk, draw: random.Random, command: Command, run_id: str
) -> list[tuple[tuple[str, ...], Command]]:
    """Cancel, in one of the ways a person or an unlucky machine would; the lines typed in other terminals."""
    jobs: list[Any] = desk.one("list", "--run", run_id, "-o", "json").document or [{"job_id": run_id}]
    ways: dict[str, list[tuple[str, ...]]] = {
        "run": [("cancel", run_id)],
        "twice": [("cancel", run_id), ("cancel", run_id, "--reason", "twice")],
        "job, then run": [("cancel", draw.choice(jobs)["job_id"]), ("cancel", run_id)],
        "Ctrl-C": [],
        "Ctrl-C and cancel": [("cancel", run_id)],
        "killed canceller": [("cancel", run_id)],
    }
    way = draw.choice(list(ways))
    if "Ctrl-C" in way:
        command.signal(signal.SIGINT)
    typed = [(words, desk.start(*words)) for words in ways[way]]
    if way == "killed canceller":
        threading.Event().wait(draw.random() * 0.3)
        typed[0][1].signal(signal.SIGKILL)
        typed[0][1].wait()
        typed = [(("cancel", run_id), desk.start("cancel", run_id))]
    return typed


def _ended(case: Case, commands: list[Command]) -> None:
    for command in commands:
        code = command.wait()
        if code not in EXIT_CODES:
            said = command.out.with_suffix(".err").read_text()[-800:]
            case.problems.append(f"a command ended with {code}: {said}")


def _again(case: Case, desk: Desk, run_id: str, status: str, line: tuple[str, ...], *, ordered: bool) -> None:
    """Retry what was cancelled, or type the line again; it completes, with the right result."""
    answer = desk.one(*line) if status == "completed" else desk.one("retry", run_id, "-w", "2", "-o", "json")
    if answer.fault is not None or answer.code != 0:
        case.problems.append(
            f"after {status}: `{' '.join(answer.line)}` ended with {answer.code}: {answer.err[-800:]} {answer.out[:800]}"
        )
    elif not ordered and answer.document["result"] != RESULT:
        case.problems.append(f"after {status} the result is {answer.document['result']!r:.300}")


def _check_rows(case: Case, path: Path) -> None:
    said = [int(line) for line in path.read_text().splitlines()]
    if said != [number * number for number in range(ITEMS)]:
        case.problems.append(f"the destination has {said}")


def _run_ids(site: Site) -> list[str]:
    with site.reader() as reader:
        return [row.run_id for row in reader.runs()]


def _statuses(site: Site) -> list[str]:
    with site.reader() as reader:
        return [row.status for row in reader.runs()]


def _groups(pid: int) -> list[str]:
    """Control groups that a command has left."""
    place = group_place()
    if place is None:
        return []
    names = {str(path) for key in cgroup.KEYS for path in Path(str(place[key])).glob(f"{cgroup.PREFIX}{pid}-*")}
    return [f"control group: {name}" for name in sorted(names)]
