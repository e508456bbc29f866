"""A map step on the command line: planned, run, killed, interrupted and cancelled with its workflow."""

from __future__ import annotations

import json

import pytest

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

FUNCTIONS = """
import os, pathlib

def slow(x):
    with open("calls", "a") as file:
        file.write(f"{x}\\n")
    if x in (40, 70) and not pathlib.Path(f"go{x}").exists():
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
    map_text = 'map slow.py:slow over "rows.jsonl" to jsonl:out/rows.jsonl with window=8, chunk=2'
    assert document["steps"][0]["runs"] == map_text
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
    flow.write("go40", "")
    flow.write("go70", "")
    result = flow("run", "flow.yaml", "-w", "2", "-o", "json")
    assert result.code == 0, result.err
    assert (result.document["resumed"], result.document["result"]["succeeded"]) == (True, 100)
    assert committed(flow) == list(range(100))
    assert before <= 40
    assert statuses(flow) == {"flow": "succeeded", "flow/rows": "succeeded"}
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
    said = flow("cancel", run_id)
    assert said.code == 0
    assert statuses(flow) == {"flow": "cancelled", "flow/rows": "cancelled"}
    kept = len(committed(flow))
    assert f"rows     {kept} of 100 items committed, cancelled from item {kept} on" in said.out
    terminal.ended()


def test_cancel_says_as_data_where_a_map_step_was_cut_that_no_process_works_on(flow: Project) -> None:
    terminal = flow.terminal("run", "flow.yaml", "-w", "2")
    flow.wait_running()
    terminal.kill()
    said = flow.json("cancel", newest(flow))
    kept = len(committed(flow))
    (step,) = said["map_steps"]
    assert (step["step"], step["run_id"][:10]) == ("rows", "flow-rows-")
    assert step["items"] == {"total": 100, "committed": kept, "requested": 0, "boundary": kept}


def newest(project: Project) -> str:
    return str(next(run["run_id"] for run in project.json("list") if run["name"] == "flow"))


def calls(project: Project) -> list[int]:
    """What the function was called with, in order, without what is called once at the end."""
    return [int(line) for line in (project.directory / "calls").read_text().splitlines() if line.isdigit()]


def cancelled_at(project: Project, *arguments: str) -> list[int]:
    """Run a command, cancel it from another terminal when an item waits, and return what is kept."""
    (project.directory / "calls").unlink(missing_ok=True)
    terminal = project.terminal(*arguments, "-w", "2")
    project.wait_running()
    said = project("cancel", newest(project))
    assert said.code == 0
    assert set(statuses(project).values()) == {"cancelled"}
    terminal.ended()
    kept = committed(project)
    assert f"rows     {len(kept)} of 100 items committed, cancelled from item {len(kept)} on" in said.out
    return kept


def test_retry_of_a_cancelled_workflow_computes_only_what_its_map_step_has_not_committed(flow: Project) -> None:
    """X-154: what is done stays done, through one retry that is cancelled as well."""
    kept = cancelled_at(flow, "run", "flow.yaml")
    assert kept == list(range(len(kept)))
    assert len(kept) >= 30
    flow.write("go40", "")
    more = cancelled_at(flow, "retry", newest(flow))
    assert min(calls(flow)) == len(kept)
    assert more == list(range(len(more)))
    assert len(more) >= 60
    flow.write("go70", "")
    (flow.directory / "calls").unlink()
    inode = (flow.directory / "out" / "rows.jsonl").stat().st_ino
    retried = flow("retry", newest(flow), "-w", "2", "-o", "json")
    assert retried.code == 0, retried.err
    assert sorted(calls(flow)) == list(range(len(more), 100))
    assert committed(flow) == list(range(100))
    assert (flow.directory / "out" / "rows.jsonl").stat().st_ino == inode
    flow.write("flow.yaml", CONTRACT.replace("name: flow", "name: whole"))
    assert flow("run", "flow.yaml", "-w", "2", "-o", "json").document["result"] == retried.document["result"]


PARAMS = """
name: flow
params: {rows: rows.jsonl, out: 'jsonl:out/rows.jsonl', ahead: 8}
steps:
  - id: rows
    run:
      map:
        items: {$param: rows}
        compute: slow.py:same
        commit: {$param: out}
        window: {$param: ahead}
"""


@pytest.fixture
def given(project: Project) -> Project:
    project.write("slow.py", "def same(x): return x\n")
    project.write("flow.yaml", PARAMS)
    project.write("rows.jsonl", "1\n2\n")
    return project


def test_what_parameters_of_a_map_turn_into_is_planned_run_shown_and_explained(given: Project) -> None:
    asked = ("-p", "out=jsonl:b.jsonl", "-p", "ahead=4")
    said = 'map slow.py:same over "rows.jsonl" to jsonl:b.jsonl with window=4'
    assert given("plan", "flow.yaml", *asked, "-o", "json").document["steps"][0]["runs"] == said
    assert given("run", "flow.yaml", "-q").code == 0
    assert "destination jsonl:out/rows.jsonl -> jsonl:b.jsonl" in " ".join(
        given("plan", "flow.yaml", *asked).out.split()
    )
    run = given("run", "flow.yaml", *asked, "-o", "json").document
    assert (given.directory / "b.jsonl").read_text() == "1\n2\n"
    (step,) = given.json("show", run["run_id"])["job_list"]
    job = given("show", step["job_id"], "-o", "json").document
    assert job["order"]["target"] == {"compute": "slow.py:same", "commit": "jsonl:b.jsonl", "window": 4}
    assert said in " ".join(given("show", step["job_id"]).out.split())
    explained = " ".join(given("explain", step["job_id"]).out.split())
    assert "destination jsonl:out/rows.jsonl -> jsonl:b.jsonl" in explained


def test_a_plan_leaves_a_gap_for_a_setting_that_has_no_value_yet(given: Project) -> None:
    given.write("flow.yaml", PARAMS.replace("ahead: 8", "ahead: ").replace("out: 'jsonl:out/rows.jsonl'", "out: "))
    runs = given("plan", "flow.yaml", "-o", "json").document["steps"][0]["runs"]
    assert runs == 'map slow.py:same over "rows.jsonl" to <-p out> with window=<-p ahead>'


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_value_that_does_not_fit_is_refused_before_anything_begins(given: Project, command: str) -> None:
    result = given(command, "flow.yaml", "-p", "ahead=0")
    assert result.code == 2
    said = "flow.yaml:11:17: window must be a whole number from 1 to 1,000,000, not 0; window is parameter 'ahead'"
    assert said in " ".join((result.out + result.err).split())
    result = given(command, "flow.yaml", "-p", "out=os:system")
    assert result.code == 2
    assert "is a function, which no parameter can name; commit is parameter 'out'" in result.out + result.err
    assert given("list", "-o", "json").code != 0 or given.json("list") == []
