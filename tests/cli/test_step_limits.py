"""What a contract says of how many steps run at once and how much each may use, seen by the steps themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

TRACED = """
import os, time

def write(line):
    handle = os.open("trace", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (line + "\\n").encode())
    os.close(handle)

def step(name):
    write(f"{name} begins")
    time.sleep(0.2)
    write(f"{name} ends")

def element(name):
    step(name)
"""
VERSION = {"major": 1, "minor": 0, "patch": 0}


def long_form(steps: list[dict[str, Any]], mode: str = "parallel", **rules: Any) -> str:
    """A contract in the long form, as text."""
    metadata = {
        "version": VERSION,
        "workflow_name": "long",
        "workflow_version": VERSION,
        "description": "",
        "execution_mode": mode,
    }
    definition: dict[str, Any] = {
        "version": VERSION,
        "workflow_metadata": metadata,
        "execution_graph": {"version": VERSION},
    }
    if rules:
        definition["coordination_rules"] = {"version": VERSION, **rules}
    return json.dumps({"workflow_coordination": {"workflow_definition": definition, "steps": steps}})


def traced(name: str, **more: Any) -> dict[str, Any]:
    """A step that writes down when it begins and ends."""
    run = {"python": "traced:step", "with": {"name": name}}
    return {"id": name, "step_name": name, "step_type": "compute", "run": run, **more}


def trace(project: Project, contract: str, *, code: int = 0) -> list[str]:
    """What the steps of a contract wrote down, with four workers at hand."""
    project.write("traced.py", TRACED)
    project.json("run", project.write("contract.json", contract), "-w", "4", code=code)
    return (project.directory / "trace").read_text().splitlines()


def one_by_one(*names: str) -> list[str]:
    return [line for name in names for line in (f"{name} begins", f"{name} ends")]


# In the planner's order: `d` stands before `c`, though what `c` needs ends first.
STEPS = [traced("a"), traced("b"), traced("d", depends_on=["b"]), traced("c", depends_on=["a"])]


@pytest.mark.parametrize(("mode", "rules"), [("sequential", {}), ("parallel", {"parallel_execution_allowed": False})])
def test_steps_run_one_at_a_time_in_the_planners_order(project: Project, mode: str, rules: dict[str, Any]) -> None:
    """X-194, X-136"""
    assert trace(project, long_form(STEPS, mode, **rules)) == one_by_one("a", "b", "d", "c")


def test_mode_sequential_of_the_short_form_runs_the_elements_of_a_step_one_at_a_time_too(project: Project) -> None:
    """X-194"""
    steps = [
        {"id": "all", "run": {"python": "traced:element"}, "map": {"name": ["1", "2", "3"]}},
        {"id": "beside", "run": {"python": "traced:step", "with": {"name": "beside"}}},
    ]
    document = {"name": "short", "mode": "sequential", "steps": steps}
    assert trace(project, json.dumps(document)) == one_by_one("1", "2", "3", "beside")


def test_no_more_elements_of_a_step_run_at_once_than_it_allows(project: Project) -> None:
    """X-194: `max_parallel_instances` holds one step, not those beside it."""
    run = {"python": "traced:element"}
    names = [str(number) for number in range(6)]
    mapped = {"id": "all", "step_name": "all", "step_type": "compute", "run": run, "map": {"name": names}}
    lines = trace(project, long_form([{**mapped, "max_parallel_instances": 2}, traced("beside")]))
    running: set[str] = set()
    most = 0
    for line in lines:
        name, _, what = line.partition(" ")
        (running.add if what == "begins" else running.discard)(name)
        most = max(most, len(running - {"beside"}))
    assert most <= 2
    assert sorted(line for line in lines if line.endswith("ends")) == sorted(
        f"{name} ends" for name in [*names, "beside"]
    )
    assert lines.index("beside begins") < lines.index("5 begins")


def test_a_held_step_whose_element_fails_begins_no_other(project: Project) -> None:
    """X-194: what was held back is skipped with the rest of the step, and the run ends."""
    project.write("broken.py", "def element(name): raise ValueError(name)\n")
    mapped = {
        "id": "all",
        "step_name": "all",
        "step_type": "compute",
        "run": {"python": "broken:element"},
        "map": {"name": ["1", "2", "3", "4"]},
        "max_parallel_instances": 1,
    }
    run = project.json("run", project.write("contract.json", long_form([mapped])), "-w", "4", code=1)
    assert (run["status"], run["jobs"]["failed"]) == ("failed", 1)
    assert run["failures"][0]["message"].endswith("1")
