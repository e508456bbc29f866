"""One scale of priorities, wherever people write one (X-010): 1 to 10 or a name, 5 where nothing is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import detent
from detent.errors import InvalidInput
from detent.kernel import Job
from detent.sdk.client import Client
from detent.store.sqlite import SqliteStore
from tests.cli.project import Project, detent_home, project
from tests.sdk import work_functions as functions

__all__ = ["detent_home", "project"]

RENDER = """\
      schema_version: "1.0"
      job_type: object_render
      workspace_id: home
      project_id: papers
      document_id: paper
      document_revision_id: "1"
      target: {object_id: parabola}
      inputs: {object: {type: equation, content: {format: latex, value: "y = x^2"}}}
      output_spec: {formats: [svg]}
"""
LONG = """\
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_version: {major: 1, minor: 0, patch: 0}
      workflow_name: long
      description: ""
      execution_mode: parallel
    execution_graph: {version: {major: 1, minor: 0, patch: 0}, nodes: []}
  steps:
    - {id: plain, step_name: plain, step_type: effect, run: {shell: echo a}}
    - {id: said, step_name: said, step_type: effect, priority: 7, run: {shell: echo b}}
"""


def classes(home: Path) -> list[int]:
    """The classes of the jobs of a home, in ascending order."""
    reader = SqliteStore.open_reader(home / "ledger.db")
    try:
        return sorted(Job.decode(row.body).priority for row in reader.jobs())
    finally:
        reader.close()


@pytest.fixture
def client(project: Project) -> Iterator[Client]:
    with Client(project.home.path, workers=0) as made:
        yield made


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, 5),
        ({"priority": 1}, 1),
        ({"priority": 10}, 10),
        ({"priority": "low"}, 1),
        ({"priority": "normal"}, 5),
        ({"priority": "high"}, 10),
    ],
    ids=str,
)
def test_a_priority_means_the_same_in_a_flow_a_contract_and_a_client(
    project: Project, client: Client, said: dict[str, Any], expected: int
) -> None:
    """X-010, WF-281: the class of the job is what was written, and 5 for each that says nothing."""
    client.submit(detent.task(functions.square).options(**said), 1)
    client.close()

    @detent.flow
    def alone() -> Any:
        return detent.task(functions.square).options(**said)(2)

    detent.run(alone.contract(), home=project.home.path, workers=1)
    written = "".join(f", {name}: {value}" for name, value in said.items())
    project.write("short.yaml", f'name: short\nsteps:\n  - {{id: a, run: {{shell: "echo x"}}{written}}}\n')
    assert project("run", "short.yaml", "-q").code == 0
    assert classes(project.home.path) == [expected] * 3


@pytest.mark.parametrize("said", [0, 11, 900, -1, True, 5.0, "urgent", "5", "High"])
def test_a_priority_outside_the_scale_is_refused_where_it_is_written(project: Project, said: Any) -> None:
    """X-010: 900 looked like a priority and had no effect."""
    with pytest.raises(InvalidInput, match=r"priority=.* is not allowed") as refused:
        detent.task(priority=said)
    assert "from 1 to 10" in str(refused.value.hint)
    assert "low (1), normal (5), high (10)" in str(refused.value.hint)
    written = f'"{said}"' if isinstance(said, str) else str(said).lower()
    project.write("short.yaml", f"name: short\nsteps:\n  - id: a\n    run: {{shell: echo}}\n    priority: {written}\n")
    done = project("validate", "short.yaml")
    assert done.code == 2
    assert "short.yaml:5:15: priority cannot be" in done.out
    assert "from 1 to 10" in done.out


def test_the_long_form_has_the_same_scale_and_the_same_default(project: Project) -> None:
    """X-010, WF-194: for steps that run here; a plan without `run:` is the workflow contract's own."""
    project.write("long.yaml", LONG)
    assert project("run", "long.yaml", "-q").code == 0
    assert classes(project.home.path) == [5, 7]
    project.write("long.yaml", LONG.replace("priority: 7", "priority: 900"))
    done = project("validate", "long.yaml")
    assert done.code == 2
    assert "long.yaml:13:64: priority 900 would change nothing: above 10 all is alike" in done.out
    project.write("long.yaml", LONG.replace("priority: 7, run: {shell: echo b}", "priority: 900"))
    assert project("validate", "long.yaml").code == 0


@pytest.mark.parametrize(
    ("step", "payload", "expected"), [("", "", 5), ("", "low", 1), ("", "high", 10), ("2", "high", 2)]
)
def test_a_platform_job_has_the_priority_of_its_payload_unless_its_step_says_another(
    project: Project, step: str, payload: str, expected: int
) -> None:
    """X-010, JOB-035."""
    text = "name: render\nsteps:\n- id: a\n" + (f"  priority: {step}\n" if step else "") + "  run:\n    job:\n" + RENDER
    project.write("render.yaml", text + (f"      priority: {payload}\n" if payload else ""))
    project("run", "render.yaml", "-q")
    assert classes(project.home.path) == [expected]


@pytest.mark.parametrize("priority", ["", ", priority: low", ", priority: 7"])
def test_a_plan_shows_the_priority_that_the_jobs_get(project: Project, priority: str) -> None:
    """X-010: the action of a step that says nothing said 10, and its job had 5."""
    project.write("short.yaml", f'name: short\nsteps:\n  - {{id: a, run: {{shell: "echo x"}}{priority}}}\n')
    plan = project.json("plan", "short.yaml")
    project.run("short.yaml")
    (job,) = project.json("list", "--jobs")
    assert [step["priority"] for step in plan["steps"]] == [job["priority"]]
    assert [action["priority"] for action in plan["actions"]] == [job["priority"]]


def test_a_plan_without_run_keeps_the_scale_of_the_workflow_contract(project: Project) -> None:
    """WF-060: such a step has no job here."""
    project.write("long.yaml", LONG.replace(", run: {shell: echo a}", "").replace(", run: {shell: echo b}", ""))
    plan = project.json("plan", "long.yaml")
    assert [action["priority"] for action in plan["actions"]] == [10, 7]
