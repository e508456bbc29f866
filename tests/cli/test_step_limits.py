"""What a contract says of how many steps run at once and how much each may use, seen by the steps themselves."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from detent.contract import ContractInvalid, from_document
from detent.contract.yaml_reader import read
from tests.cli.project import Project, detent_home, project
from tests.cli.submitted import needs_sandbox
from tests.executor.runners.rig import execute

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


GREEDY = """
import os, subprocess, sys, threading, time

SOURCE = "kept = bytearray(b'x') * (400 << 20)\\nimport threading\\nthreading.Event().wait()\\n"
KEPT = []

def itself():
    exec(SOURCE, {})

def keeps():
    KEPT.append(bytearray(b"x") * (400 << 20))

def small():
    return len(KEPT)

def shares():
    kept = bytearray(b"x") * (120 << 20)
    reading, writing = os.pipe()
    for _ in range(4):
        if os.fork() == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    time.sleep(0.3)
    os.close(writing)
    for _ in range(4):
        os.wait()
    return len(kept)
"""
CELL = "def main():\n    kept = bytearray(b'x') * (400 << 20)\n    while True:\n        pass\n"
CHILD = "kept = bytearray(b'x') * (400 << 20); import threading; threading.Event().wait()"
HUNGRY: dict[str, dict[str, Any]] = {
    "python": {"python": "greedy:itself"},
    "shell": {"shell": f'{shlex.quote(sys.executable)} -c "{CHILD}" & wait'},
    "code": {"code": CELL},
    "job": {"job": {name: value for name, value in execute(CELL).items() if name != "job_id"}},
}


def limited(name: str, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A step that may use 256 MB."""
    return {"id": name, "step_name": name, "step_type": "compute", "run": run, "max_memory_mb": 256, **more}


def reports(project: Project, contract: str, *, code: int) -> dict[str, dict[str, Any]]:
    """The result of each step of a contract, with one worker."""
    project.write("greedy.py", GREEDY)
    run = project.run(project.write("contract.json", contract), code=code)
    steps = project.json("show", run["run_id"])["step_list"]
    return {step["step"]: project.json("show", step["jobs"][0]["job_id"]) for step in steps}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs_sandbox if kind in {"code", "job"} else ()) for kind in HUNGRY]
)
def test_a_step_that_uses_more_memory_than_it_may_is_ended(project: Project, kind: str) -> None:
    """X-194, A.6: with everything it started, whatever it is; the error says which limit that was."""
    document = reports(project, long_form([limited("greedy", HUNGRY[kind])]), code=1)["greedy"]
    error = document["report"]["error"]
    assert (error["category"], error["code"]) == ("RESOURCE_LIMIT", "LIMIT_MEMORY")
    assert error["message"].endswith(": the limit is 256 MB (max_memory_mb of the step)")
    memory = project.json("explain", document["job_id"])["limits"]["memory"]
    assert memory == {"mb": 256, "by": "max_memory_mb of the step"}


def test_what_other_work_left_in_a_worker_does_not_count_for_a_limited_step(project: Project) -> None:
    """X-194: such a step gets a worker of its own; pages that it shares with its children count once."""
    steps = [
        {"id": "keeps", "step_name": "keeps", "step_type": "compute", "run": {"python": "greedy:keeps"}},
        limited("small", {"python": "greedy:small"}, depends_on=["keeps"]),
        limited("shares", {"python": "greedy:shares"}, depends_on=["small"]),
    ]
    found = reports(project, long_form(steps), code=0)
    assert found["small"]["report"]["value"] == 0
    assert found["shares"]["report"]["value"] == 120 << 20


@pytest.mark.parametrize(
    ("step", "line", "told"),
    [
        ("max_cpu_percent: 50\n      run: {shell: make}", 14, "max_cpu_percent cannot be enforced"),
        (
            "max_memory_mb: 50\n      run: {map: {items: [1], compute: 'a:b', commit: 'jsonl:x'}}",
            14,
            "max_memory_mb cannot be enforced for an ordered run",
        ),
        (
            "max_memory_mb: 2\n      run: {code: 'def main(): return 1'}",
            14,
            "max_memory_mb is 2, and a step in the sandbox needs at least 16",
        ),
    ],
)
def test_a_limit_that_cannot_be_enforced_is_refused_with_its_place(
    project: Project, step: str, line: int, told: str
) -> None:
    """X-194: by `validate` and by `run`. A step that is only planned may say it, and so may a run that was recorded before."""
    head = """\
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_name: long
      workflow_version: {major: 1, minor: 0, patch: 0}
      description: ""
      execution_mode: parallel
    execution_graph: {version: {major: 1, minor: 0, patch: 0}}
  steps:
    - step_name: a
      step_type: compute
"""
    file = project.write("limits.yaml", f"{head}      {step}\n")
    for command in ("validate", "run"):
        refused = project(command, file)
        assert refused.code == 2
        assert f"{file}:{line}:7: {told}" in refused.out + refused.err
    project.write("planned.yaml", f"{head}      {step.partition('run:')[0].strip()}\n")
    assert project("validate", "planned.yaml").code == 0
    text = (project.directory / file).read_text()
    with pytest.raises(ContractInvalid, match=told):
        from_document(read(text.encode()).value)
    assert from_document(read(text.encode()).value, recorded=True).plain_steps[0].step_name == "a"


def test_validate_says_which_fields_change_nothing(project: Project) -> None:
    """X-120, X-194: they are valid, and kept; a field with the value it has anyway is not worth a word."""
    steps = [traced("a", order_index=3, parallel_group="x", checkpoint_required=True), traced("b", order_index=0)]
    file = project.write("contract.json", long_form(steps, max_retries=9, synchronization_points=[]))
    (told,) = project.json("validate", file)["files"]
    assert told["ok"]
    assert [warning["message"].partition(" changes nothing")[0] for warning in told["warnings"]] == [
        "coordination_rules.max_retries",
        "step 'a': order_index",
        "step 'a': parallel_group",
        "step 'a': checkpoint_required",
    ]
