"""Several processes that start at once on a new home: one makes it, and all of them work on it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detent.owner.home import Home
from detent.owner.wiring import Parts
from tests.owner.processes import surroundings
from tests.owner.start_child import EMPTY, FOUND, NAMED

CHILD = Path(__file__).with_name("start_child.py")
PROCESSES = 8
KINDS = (NAMED, FOUND, EMPTY)
FEW, MANY = 1, 50
WAIT_SECONDS = 3600


def environment(directory: Path) -> dict[str, str]:
    state = {"XDG_STATE_HOME": str(directory / "state")}
    return {**{name: value for name, value in surroundings().items() if name != "DETENT_HOME"}, **state}


def started(directory: Path, kind: str, rounds: int) -> list[list[dict[str, Any]]]:
    command = [sys.executable, str(CHILD), str(directory), kind, str(rounds), str(PROCESSES)]
    ended = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, timeout=WAIT_SECONDS, env=environment(directory)
    )
    return [json.loads(line) for line in ended.stdout.splitlines()]


def insist_that_all_shared_one_home(directory: Path, kind: str, rounds: int) -> None:
    answered = started(directory, kind, rounds)
    assert len(answered) == rounds
    for number, answers in enumerate(answered):
        assert [answer["error"] for answer in answers if "error" in answer] == []
        assert [answer["result"] for answer in answers] == [n * n for n in range(PROCESSES)]
        home = directory / f"round-{number}" / (".detent" if kind == FOUND else "home")
        assert {answer["home"] for answer in answers} == {str(home)}
        assert len({answer["root"] for answer in answers}) == 1
        assert not list(home.parent.glob("*.new-*")) + list(home.glob(".new-*")), "nothing of the losers' is left"
        with Parts().open_reader(Home(home).ledger) as reader:
            assert reader.job_counts() == {"SUCCEEDED": PROCESSES}


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_eight_processes_that_start_at_once_work_on_the_home_that_one_made(tmp_path: Path, kind: str) -> None:
    """X-172: named by the script, found from the working directory, or made of an empty directory."""
    insist_that_all_shared_one_home(tmp_path, kind, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_eight_processes_started_at_once_fifty_times_always_share_one_home(tmp_path: Path, kind: str) -> None:
    """X-172"""
    insist_that_all_shared_one_home(tmp_path, kind, MANY)


def test_two_runs_of_a_pipeline_that_start_at_once_share_a_new_home(tmp_path: Path) -> None:
    """X-172"""
    (tmp_path / "one.yaml").write_text("name: one\nsteps:\n  - {id: one, run: {shell: 'true'}}\n")
    (tmp_path / "two.yaml").write_text("name: two\nsteps:\n  - {id: two, run: {shell: 'true'}}\n")
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "detent", "run", f"{name}.yaml", "-w", "1"],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for name in ("one", "two")
    ]
    said = [command.communicate(timeout=WAIT_SECONDS)[0].decode() for command in commands]
    assert [command.returncode for command in commands] == [0, 0], said
    with Parts().open_reader(tmp_path / ".detent" / "ledger.db") as reader:
        assert reader.job_counts() == {"SUCCEEDED": 2}
    assert {path.name for path in tmp_path.iterdir()} == {".detent", "one.yaml", "two.yaml", "state"}
