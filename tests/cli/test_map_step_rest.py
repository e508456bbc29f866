"""A map step that was cancelled, run again: what its destination has stays there, and the rest is added behind it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.project import Project, detent_home, eventually, project

__all__ = ["detent_home", "project"]

FUNCTIONS = """
import os, pathlib

def square(x):
    with open("calls", "a") as file:
        file.write(f"{x}\\n")
    if x in (12, 24, 30) and not pathlib.Path(f"go{x}").exists():
        with open("running", "w") as file:
            file.write(str(os.getpid()))
        with open("release") as file:
            file.read()
    if x == 5 and pathlib.Path("faulty").exists():
        raise ConnectionError("503")
    return x * x

def take(value, token):
    with open("taken", "a") as file:
        file.write(f"{value}\\n")
"""
CONTRACT = """
name: flow
steps:
  - id: squares
    run: {map: {items: rows.jsonl, compute: 'squares.py:square', commit: 'jsonl:out.jsonl', window: 8, chunk: 3}}
result: {$from: squares}
"""
SQUARES = [x * x for x in range(40)]


@pytest.fixture
def flow(project: Project) -> Project:
    project.write("squares.py", FUNCTIONS)
    project.write("rows.jsonl", "".join(f"{number}\n" for number in range(40)))
    project.write("flow.yaml", CONTRACT)
    return project


def cancelled(flow: Project, *arguments: str, item: int = 12) -> str:
    """Begin a run and cancel it from another terminal when it has come to an item that waits; its id."""
    terminal = flow.terminal(*(arguments or ("run", "flow.yaml")), "-w", "1")
    flow.wait_running()
    run_id = next(run["run_id"] for run in flow.json("list") if run["name"] == "flow")
    assert flow("cancel", run_id).code == 0
    terminal.ended()
    eventually(lambda: all(run["status"] == "cancelled" for run in flow.json("list")), "the ordered run is open")
    flow.write(f"go{item}", "")
    (flow.directory / "calls").unlink()
    return str(run_id)


def go(flow: Project) -> None:
    """Let nothing wait any more."""
    for item in (12, 24, 30):
        flow.write(f"go{item}", "")


def calls(flow: Project) -> list[int]:
    path = flow.directory / "calls"
    return sorted(map(int, path.read_text().split())) if path.exists() else []


def lines(directory: Path) -> list[object]:
    return [json.loads(line) for line in (directory / "out.jsonl").read_text().splitlines()]


def table(directory: Path) -> list[object]:
    with closing(sqlite3.connect(directory / "out.db")) as database:
        return [json.loads(value) for (value,) in database.execute("SELECT value FROM squares ORDER BY seq")]


def taken(directory: Path) -> list[object]:
    return [json.loads(line) for line in (directory / "taken").read_text().splitlines()]


@pytest.mark.parametrize(
    ("destination", "held", "expected"),
    [
        ("jsonl+seq:out.jsonl", lines, [{"seq": seq, "value": value} for seq, value in enumerate(SQUARES)]),
        ("sqlite:out.db#squares", table, SQUARES),
        ("squares.py:take", taken, SQUARES),
    ],
)
def test_retry_adds_the_rest_to_every_kind_of_destination(
    flow: Project, destination: str, held: Callable[[Path], list[object]], expected: list[object]
) -> None:
    flow.write("flow.yaml", CONTRACT.replace("jsonl:out.jsonl", destination))
    run_id = cancelled(flow)
    go(flow)
    kept = held(flow.directory)
    assert kept == expected[: len(kept)]
    assert len(kept) >= 9
    retried = flow.json("retry", run_id, "-w", "1")
    assert (retried["status"], retried["result"]["succeeded"], retried["result"]["total"]) == ("succeeded", 40, 40)
    assert calls(flow) == list(range(len(kept), 40))
    assert held(flow.directory) == expected
    again = flow.run("flow.yaml")
    assert (again["steps"]["reused"], again["result"]) == (1, retried["result"])


def test_the_same_line_goes_on_too_and_the_step_says_which_run_did_the_first_items(flow: Project) -> None:
    cancelled(flow)
    go(flow)
    before, kept = (
        next(run["run_id"] for run in flow.json("list") if run["name"] == "flow/squares"),
        lines(flow.directory),
    )
    flow.run("flow.yaml")
    assert calls(flow) == list(range(len(kept), 40))
    assert f"40 committed, of 40 items, {len(kept)} of them before by run {before}" in flow("logs", "squares").out


def test_force_does_all_of_it_again(flow: Project) -> None:
    cancelled(flow)
    go(flow)
    flow.run("flow.yaml", "--force")
    assert calls(flow) == list(range(40))
    assert lines(flow.directory) == SQUARES


def test_a_step_that_is_never_reused_is_gone_on_with_by_retry_alone(flow: Project) -> None:
    flow.write("flow.yaml", CONTRACT.replace("    run:", "    cache: false\n    run:"))
    run_id = cancelled(flow)
    kept = lines(flow.directory)
    retried = cancelled(flow, "retry", run_id, item=24)
    assert lines(flow.directory)[: len(kept)] == kept
    assert len(lines(flow.directory)) > len(kept)
    assert retried != run_id
    go(flow)
    flow.run("flow.yaml")
    assert calls(flow) == list(range(40))
    assert lines(flow.directory) == SQUARES


@pytest.mark.parametrize("change", ["function", "lines added", "lines removed"])
def test_what_is_not_as_the_run_left_it_is_done_anew(flow: Project, change: str) -> None:
    """The destination never holds the results of two programs, or the lines of another one between those of the step."""
    run_id = cancelled(flow)
    go(flow)
    out = flow.directory / "out.jsonl"
    if change == "function":
        flow.write("squares.py", FUNCTIONS.replace("return x * x", "return x * x + 0"))
    elif change == "lines added":
        out.write_text(out.read_text() + "1\n")
    else:
        out.write_text("".join(out.read_text().splitlines(keepends=True)[:-1]))
    assert flow("retry", run_id, "-w", "1").code == 0
    assert calls(flow) == list(range(40))
    assert lines(flow.directory) == SQUARES


def test_a_killed_retry_goes_on_with_the_rest(flow: Project) -> None:
    """The rest is an ordered run of its own, which is found again by what it is."""
    run_id = cancelled(flow)
    kept = len(lines(flow.directory))
    terminal = flow.terminal("retry", run_id, "-w", "1")
    flow.wait_running()
    terminal.kill()
    (flow.directory / "calls").unlink()
    go(flow)
    retried = next(run["run_id"] for run in flow.json("list") if run["name"] == "flow")
    assert flow.json("retry", retried, "-w", "1")["result"]["succeeded"] == 40
    assert calls(flow)[0] > kept
    assert lines(flow.directory) == SQUARES
    assert [run["status"] for run in flow.json("list") if run["name"] == "flow/squares"] == ["succeeded", "cancelled"]


def test_items_that_failed_before_the_cancellation_stay_failed_where_the_step_goes_on_after_failures(
    flow: Project,
) -> None:
    flow.write("flow.yaml", CONTRACT.replace("chunk: 3", "chunk: 3, on_error: continue"))
    flow.write("faulty", "")
    run_id = cancelled(flow)
    go(flow)
    (flow.directory / "faulty").unlink()
    result = flow.json("retry", run_id, "-w", "1")["result"]
    assert (result["succeeded"], result["failed"], result["total"]) == (39, 1, 40)
    assert lines(flow.directory) == [value for value in SQUARES if value != 25]


def test_a_step_that_stopped_at_a_failure_with_items_committed_behind_it_is_done_anew(flow: Project) -> None:
    """Added behind them, the item that failed would stand out of order."""
    go(flow)
    flow.write("faulty", "")
    run_id = flow.run("flow.yaml", code=1)["run_id"]
    assert 36 in lines(flow.directory)
    (flow.directory / "faulty").unlink()
    assert flow("retry", run_id, "-w", "1").code == 0
    assert lines(flow.directory) == SQUARES
