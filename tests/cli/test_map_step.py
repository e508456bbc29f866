"""A map step on the command line: planned, run, killed, interrupted and cancelled with its workflow."""

from __future__ import annotations

import json

import pytest

from tests.cli.project import Project, detent_home, eventually, project

__all__ = ["detent_home", "project"]

FUNCTIONS = """
import os, pathlib

def slow(x):
    if x == 40 and not pathlib.Path("go").exists():
        with open("running", "w") as file:
            file.write(str(os.getpid()))
        with open("release") as file:
            file.read()
    return x
"""
CONTRACT = """
name: flow
steps:
  - id: rows
    run: {map: {items: rows.jsonl, compute: 'slow.py:slow', commit: 'jsonl:out/rows.jsonl', window: 8, chunk: 2}}
  - id: count
    run: {python: 'slow.py:slow', with: {x: {$from: rows}}}
result: {$from: count}
"""


@pytest.fixture
def flow(project: Project) -> Project:
    project.write("slow.py", FUNCTIONS)
    project.write("flow.yaml", CONTRACT)
    project.write("rows.jsonl", "".join(f"{number}\n" for number in range(100)))
    return project


def committed(project: Project) -> list[int]:
    path = project.directory / "out" / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def statuses(project: Project) -> dict[str, str]:
    return {run["name"]: run["status"] for run in project.json("list")}


def test_the_plan_shows_what_is_mapped_to_where(flow: Project) -> None:
    document = flow("plan", "flow.yaml", "-o", "json").document
    assert document["steps"][0]["runs"] == 'map slow.py:slow over "rows.jsonl" to jsonl:out/rows.jsonl'
    assert [action["target_node_type"] for action in document["actions"]] == ["NodeEffect", "NodeCompute"]


def test_validate_says_line_and_column(flow: Project) -> None:
    text = CONTRACT.replace("window: 8", "window: 0")
    flow.write("flow.yaml", text)
    column = text.splitlines()[4].index("window: 0") + len("window: ") + 1
    result = flow("validate", "flow.yaml")
    assert result.code == 2
    assert f"flow.yaml:5:{column}: window must be a whole number from 1 to 1,000,000, not 0" in result.out + result.err


def test_killed_with_kill_9_and_run_again_it_goes_on_at_the_first_item_that_is_not_committed(flow: Project) -> None:
    """X-183: with real workers, which are killed too."""
    terminal = flow.terminal("run", "flow.yaml", "-w", "2")
    flow.wait_running()
    terminal.kill()
    before = len((flow.directory / "out" / "rows.jsonl").read_bytes().splitlines())
    flow.write("go", "")
    result = flow("run", "flow.yaml", "-w", "2", "-o", "json")
    assert result.code == 0, result.err
    assert (result.document["resumed"], result.document["result"]["succeeded"]) == (True, 100)
    assert committed(flow) == list(range(100))
    assert before <= 40
    assert statuses(flow) == {"flow": "completed", "flow/rows": "completed"}
    step = next(line for line in flow("logs", "rows").out.splitlines() if line.startswith("ordered run flow-rows-"))
    assert "100 committed, of 100 items, resumed at item" in step


def test_ctrl_c_cancels_the_workflow_and_the_ordered_run(flow: Project) -> None:
    """X-069: the destination has everything up to the recorded boundary, and nothing else."""
    terminal = flow.terminal("run", "flow.yaml", "-w", "2")
    flow.wait_running()
    terminal.interrupt()
    assert terminal.ended().code == 130
    assert statuses(flow) == {"flow": "cancelled", "flow/rows": "cancelled"}
    run_id = next(run["run_id"] for run in flow.json("list") if run["name"] == "flow/rows")
    ordered = flow("show", run_id, "-o", "json").document["ordered"]
    assert committed(flow) == list(range(ordered["cancel_boundary"]))


def test_detent_cancel_from_another_terminal_ends_both(flow: Project) -> None:
    terminal = flow.terminal("run", "flow.yaml", "-w", "2")
    flow.wait_running()
    run_id = next(run["run_id"] for run in flow.json("list") if run["name"] == "flow")
    assert flow("cancel", run_id).code == 0
    terminal.ended()
    eventually(lambda: statuses(flow) == {"flow": "cancelled", "flow/rows": "cancelled"}, "the ordered run is open")
