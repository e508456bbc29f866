"""The core journeys at the doors, on a home of four partitions: what holds for one holds for four."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.inspect.replay import replay_home
from detent.kernel import partition_of
from detent.store.sqlite import SqliteStore
from detent.testing.plugin import detent_home
from tests.cli.project import Project, project

__all__ = ["detent_home", "project"]

P = 4
CONTRACT = """\
name: sums
steps:
  - id: numbers
    run: {python: "tasks:numbers", with: {count: 5}}
  - id: double
    map: {n: {$from: numbers}}
    run: {python: "tasks:double"}
  - id: total
    run: {python: "tasks:total", with: {values: {$from: double}}}
result: {$from: total}
"""
WAITING = """\
name: waiting
steps:
  - id: first
    run: {python: "tasks:numbers", with: {count: 2}}
  - id: wait
    needs: [first]
    run: {python: "tasks:wait"}
"""
FRAGILE = """\
name: fragile
steps:
  - id: numbers
    run: {python: "tasks:numbers", with: {count: 3}}
  - id: sum
    run: {python: "tasks:fragile", with: {values: {$from: numbers}}}
"""


@pytest.fixture(autouse=True)
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the home is made."""
    monkeypatch.setenv("DETENT_PARTITIONS", str(P))


@pytest.fixture
def spread(four: None, project: Project) -> Project:
    """The project, on a home of four partitions."""
    return project


def partitions_of(project: Project, kind: str = "jobs") -> set[int]:
    """The partitions in which there are jobs, or runs."""
    reader = SqliteStore.open_reader(project.home.ledger_file)
    try:
        rows: Any = reader.jobs() if kind == "jobs" else reader.runs()
        return {row.partition for row in rows}
    finally:
        reader.close()


def assert_whole(project: Project) -> None:
    """The history verifies, replays, and every run's jobs lie in its partition."""
    assert project("verify").code == 0
    assert replay_home(project.home).ok
    reader = SqliteStore.open_reader(project.home.ledger_file)
    try:
        assert reader.partitions == P
        for row in reader.jobs():
            assert row.partition == int(sha256(row.job_id.encode()).hexdigest(), 16) % P
            assert row.run_id is None or row.partition == partition_of(row.run_id, P)
    finally:
        reader.close()


def test_init_fixes_the_number_of_partitions_and_partitions_shows_them(spread: Project, tmp_path: Path) -> None:
    made = spread("init", "--home", str(tmp_path / "two"), "--partitions", "2")
    assert made.code == 0, made.err
    shown = spread.json("partitions", "--home", str(tmp_path / "two"))
    assert [(one["partition"], one["owner"], one["epoch"], one["jobs_open"]) for one in shown] == [
        (0, None, 1, 0),
        (1, None, 1, 0),
    ]
    for wrong in ("0", "257", "-1"):
        refused = spread("init", "--home", str(tmp_path / "wrong"), "--partitions", wrong)
        assert refused.code == 2
        assert "1 to 256 partitions" in refused.err
    assert not (tmp_path / "wrong").exists()
    with detent.Client(spread.home.path, workers=0) as client:
        handles = [client.submit(max, number, 2) for number in range(8)]
        shown = spread.json("partitions")
        assert sum(one["jobs_open"] for one in shown) == len(handles)
        assert {one["owner"]["pid"] for one in shown} == {os.getpid()}
    assert "OPEN JOBS" in spread("partitions").out


def test_single_jobs_and_maps_run_in_every_partition(spread: Project) -> None:
    """X-044: each by the digest of its id. Before, most submissions were refused with NOT_PARTITION_OWNER."""
    with detent.Client(spread.home.path, workers=2) as client:
        handles = [client.submit(max, number, 5) for number in range(16)]
        assert [handle.result(timeout=60) for handle in handles] == [max(number, 5) for number in range(16)]
        assert list(client.map(abs, range(300))) == list(range(300))
        assert (
            client.submit(max, 1, 2, idempotency_key="one").job_id
            == client.submit(max, 1, 2, idempotency_key="one").job_id
        )
    assert partitions_of(spread) == set(range(P))
    assert_whole(spread)


def test_runs_spread_and_take_results_from_each_other(spread: Project) -> None:
    spread.write("sums.yaml", CONTRACT)
    first = again = spread.run("sums.yaml")
    assert first["result"] == 20
    for _ in range(6):
        again = spread.run("sums.yaml", "--new")
        assert (again["result"], again["status"]) == (20, "succeeded")
    assert len(partitions_of(spread, "runs")) > 1
    assert len(spread.json("list", "--jobs")) == 7  # Only the first run ran anything.
    shown = spread("show", again["run_id"]).out
    assert "reused" in shown
    assert "reused" in spread("explain", again["run_id"]).out
    newest = [one["run_id"] for one in spread.json("list")]
    assert newest[0] == again["run_id"]
    assert newest[-1] == first["run_id"]
    spread.edit("FACTOR = 2", "FACTOR = 3")
    assert spread.run("sums.yaml")["result"] == 30
    assert_whole(spread)


def test_a_killed_run_is_resumed(spread: Project) -> None:
    spread.write("waiting.yaml", WAITING)
    terminal = spread.terminal("run", "waiting.yaml", "-w", "1")
    spread.wait_running()
    terminal.kill()
    (spread.directory / "go").touch()
    again = spread.run("waiting.yaml")
    assert (again["status"], again["run_id"]) == ("succeeded", spread.newest())
    assert len(spread.json("list")) == 1
    assert len(spread.json("list", "--jobs")) == 2
    assert_whole(spread)


def test_a_run_is_cancelled_from_another_terminal(spread: Project) -> None:
    spread.write("waiting.yaml", WAITING)
    terminal = spread.terminal("run", "waiting.yaml", "-w", "1")
    spread.wait_running()
    assert spread("cancel", spread.newest()).code == 0
    assert terminal.ended().code == 130
    assert spread.json("list")[0]["status"] == "cancelled"
    assert_whole(spread)


def test_a_failed_run_is_retried_explained_and_exported(spread: Project, tmp_path: Path) -> None:
    spread.write("fragile.yaml", FRAGILE)
    failed = spread.run("fragile.yaml", code=1)
    assert "not yet" in spread("explain", failed["run_id"]).out
    (spread.directory / "fixed").touch()
    retried = spread.json("retry", failed["run_id"], "-w", "1")
    assert retried["status"] == "succeeded"
    for run_id in (failed["run_id"], retried["run_id"]):
        bundle = tmp_path / f"{run_id}.detent"
        root = spread.json("export", run_id, "--output", str(bundle))["root"]
        assert detent.verify(bundle, root).ok
    whole = tmp_path / "all.detent"
    root = spread.json("export", "--output", str(whole))["root"]
    assert detent.verify(whole, root).ok
    assert_whole(spread)


def test_an_ordered_map_is_resumed_shown_and_erased(spread: Project) -> None:
    spread.write("items.jsonl", "".join(f"{number}\n" for number in range(50)))
    line = ("map", "--items", "items.jsonl", "--compute", "tasks:double", "--commit", "jsonl:out.jsonl")
    made = spread.json(*line, "--window", "20", "--chunk", "5", "-w", "1")
    assert made["status"] == "succeeded"
    assert [json.loads(line) for line in (spread.directory / "out.jsonl").read_text().splitlines()] == [
        2 * number for number in range(50)
    ]
    assert spread("show", made["run_id"]).code == 0
    assert spread("gc").code == 0
    assert spread("erase", "--run", made["run_id"], "--yes").code == 0
    assert_whole(spread)
