"""Killed at any moment and started again: the destination has each item once, in order, and the history holds."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.executor.own_targets import COMPUTE_CHUNK
from tests.runs.ordered.rig import ListTarget, OrderedRig, lines
from tests.runs.rig import WAIT_SECONDS, environment, eventually, in_thread

TOTAL = 150
SQUARES = [number * number for number in range(TOTAL)]
CYCLES = 12
KILLS, KILLS_SOAK = 8, 17


def killed(rig: OrderedRig, commit: str | None, seed: int, *, cycles: int = CYCLES, **said: Any) -> dict[str, Any]:
    """Run the programme to its end."""
    task = {"home": str(rig.home.path), "base": str(rig.project), "commit": commit, "seed": seed, "cycles": cycles}
    task["compute"] = compute_of(commit)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kill_loop.py")), json.dumps({"total": TOTAL, **task, **said})],
        env=environment(rig.home),
        cwd=rig.project,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS * 5,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def compute_of(commit: str | None) -> str:
    """The function whose results fit a destination."""
    return "line" if commit is not None and commit.startswith("append:") else "square"


def from_json_lines(path: Path) -> list[Any]:
    return lines(path)


def from_appended(path: Path) -> list[Any]:
    return [int(line) for line in path.read_text().split()]


def from_table(path: Path) -> list[Any]:
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT * FROM squares ORDER BY rowid").fetchall()
    db.close()
    return [json.loads(row[-1]) if isinstance(row[-1], str) else row[-1] for row in rows]


TARGETS = pytest.mark.parametrize(
    ("commit", "found"),
    [("jsonl:{}.jsonl", from_json_lines), ("append:{}.txt", from_appended), ("sqlite:{}.db#squares", from_table)],
    ids=["jsonl", "append", "sqlite"],
)


def killed_so_often(rig: OrderedRig, commit: str, found: Callable[[Path], list[Any]], seed: int, wanted: int) -> int:
    """Run after run, each to a destination of its own, until so many kills have happened; every destination is looked at."""
    kills = rounds = 0
    digests = {rig.map(range(TOTAL), compute_of(commit), ListTarget(), window=16).summary.digest().hex()}
    while kills < wanted:
        rounds += 1
        written = commit.format(f"out-{rounds}")
        answer = killed(rig, written, seed * 1000 + rounds, cycles=wanted - kills, earlier=rounds)
        assert answer["status"] == "completed"
        assert found(rig.project / written.partition(":")[2].partition("#")[0]) == SQUARES
        digests |= {answer["digest"]} if "digest" in answer else set()  # Not told by one that was killed after its end.
        kills += answer["kills"]
    assert len(digests) == 1
    assert [run.status for run in rig.runs()] == ["completed"] * (rounds + 1)
    return kills


@TARGETS
def test_each_item_is_there_once_however_often_the_run_was_killed(
    rig: OrderedRig, commit: str, found: Callable[[Path], list[Any]]
) -> None:
    """ORD-034, ORD-055, X-163: kills at points of the owner, around writes and at any moment, then the end.

    Eight for each destination: twenty-four in all.
    """
    assert killed_so_often(rig, commit, found, len(commit), KILLS) == KILLS


def test_a_function_gets_each_item_at_least_once_and_its_token_tells_a_repeat(rig: OrderedRig) -> None:
    """ORD-034: repeats have the seq they had before, so a consumer that keeps the tokens has each item once, in order."""
    answer = killed(rig, "steps.py:keep", seed=3)
    assert answer["status"] == "completed"
    kept = [line.split() for line in (rig.project / "kept").read_text().splitlines()]
    once = {int(seq): int(value) for seq, value in kept}
    assert list(once.items()) == list(enumerate(SQUARES))
    assert answer["kills"] >= 1
    assert len(kept) < TOTAL * (answer["kills"] + 1)


def test_a_loop_gets_everything_again_from_the_start(rig: OrderedRig) -> None:
    """X-184: the sum over a resumed run is right, although most of it was computed before."""
    answer = killed(rig, None, seed=5)
    assert (answer["sum"], answer["status"]) == (sum(SQUARES), "completed")
    assert answer["kills"] >= 3
    assert answer["resumed_at"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@TARGETS
def test_many_kills(rig: OrderedRig, commit: str, found: Callable[[Path], list[Any]], seed: int) -> None:
    """ORD-034, ORD-055: seventeen for each of ten seeds and three destinations, 510 in all."""
    assert killed_so_often(rig, commit, found, 1000 + seed, KILLS_SOAK) == KILLS_SOAK


def test_a_killed_runtime_with_real_workers_leaves_nothing_behind(rig: OrderedRig) -> None:
    """X-163: two kills of a process that has children of its own."""
    answer = killed(rig, "jsonl:out.jsonl", seed=2, cycles=2, pool=True, total=60)
    assert answer["status"] == "completed"
    assert answer["kills"] >= 1
    assert from_json_lines(rig.project / "out.jsonl") == SQUARES[:60]


def test_a_killed_worker_costs_no_item(rig: OrderedRig) -> None:
    """ORD-027, X-163: the chunk is tried again at once, and its items are there once."""
    rig.write("import os, pathlib, signal\ndef deadly(x):\n"
              "    if x == 7 and not pathlib.Path('died').exists():\n"
              "        pathlib.Path('died').touch()\n"
              "        os.kill(os.getpid(), signal.SIGKILL)\n"
              "    return x\n")  # fmt: skip
    target = ListTarget()
    with rig.pool() as work:
        result = rig.ordered(work, range(20), "deadly", target, window=8, chunk=4).run()
    assert (result.status, target.values) == ("completed", list(range(20)))
    assert rig.job(f"{result.run_id}/seq-4-7").attempt_id == 1


def test_a_second_process_does_not_drive_the_same_run(rig: OrderedRig) -> None:
    """X-174: the run that is under way is left to its driver."""
    rig.lane.held = {COMPUTE_CHUNK}
    work = rig.work()
    first = rig.ordered(work, range(4), "same", ListTarget())
    first.open()
    waiting = in_thread(first.run)
    eventually(lambda: rig.lane.waiting(COMPUTE_CHUNK) > 0, "it has not begun")
    with pytest.raises(Exception, match="does the same in another process"):
        rig.ordered(work, range(4), "same", ListTarget()).open()
    rig.lane.release()
    assert waiting().ok
