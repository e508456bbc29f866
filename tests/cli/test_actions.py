"""Steps of a workflow as actions: found by their correlation id, and run only under the lease that their run gave them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from detent.jobs.order import Order
from detent.kernel import Run
from detent.owner.backend import Backend, commands_of
from detent.owner.content import Content, order_of
from detent.owner.wiring import Parts
from detent.runs.runtime import Runtime
from detent.workflow.identity import derive_id, uuid8
from tests.cli.project import Project, detent_home, eventually, project

__all__ = ["detent_home", "project"]

CORRELATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
LONG = f"""\
workflow_coordination:
  workflow_definition:
    version: {{major: 1, minor: 0, patch: 0}}
    workflow_metadata:
      version: {{major: 1, minor: 0, patch: 0}}
      workflow_version: {{major: 1, minor: 0, patch: 0}}
      workflow_name: traced
      description: ""
      execution_mode: parallel
    execution_graph: {{version: {{major: 1, minor: 0, patch: 0}}, nodes: []}}
  steps:
    - {{id: numbers, step_name: numbers, step_type: compute, run: {{python: "tasks:numbers", with: {{count: 2}}}}}}
    - id: doubled
      step_name: doubled
      step_type: effect
      correlation_id: {CORRELATION}
      depends_on: [numbers]
      map: {{n: {{$from: numbers}}}}
      run: {{python: "tasks:double"}}
"""
WAITS = """
name: waits
steps:
  - {id: only, run: {python: "tasks:wait"}}
"""


def test_a_correlation_id_finds_the_step_its_action_and_its_jobs(project: Project) -> None:
    """WF-064, WF-065: as the contract says it, whatever the case of its letters."""
    project.run(project.write("traced.yaml", LONG))
    first = project.newest()
    project.run("traced.yaml", "--force")
    jobs = project.json("list", "--correlation", CORRELATION.upper())
    assert [(job["step"], job["state"]) for job in jobs] == [
        ("doubled[0]", "succeeded"),
        ("doubled[1]", "succeeded"),
    ] * 2
    assert {job["run_id"] for job in jobs[2:]} == {first}
    shown = project.json("show", CORRELATION)
    assert (shown["kind"], shown["run_id"]) == ("run", project.newest())
    for job in jobs:
        action = project.json("show", job["job_id"])["action"]
        assert (action["correlation_id"], action["step_type"], action["epoch"]) == (CORRELATION, "effect", 1)
    assert project.json("list", "--correlation", CORRELATION, "--run", first) == jobs[2:]
    assert project.json("list", "--correlation", CORRELATION, "--state", "failed") == []
    assert project.json("list", "--correlation", str(uuid4())) == []
    assert f"correlation {CORRELATION}" in project("show", jobs[0]["job_id"]).out


def test_a_step_that_says_no_correlation_id_has_the_one_that_its_contract_gives_it(project: Project) -> None:
    """WF-064"""
    project.run(project.write("traced.yaml", LONG))
    (job,) = [job for job in project.json("list", "--jobs") if job["step"] == "numbers"]
    given = project.json("show", job["job_id"])["action"]["correlation_id"]
    assert project.json("list", "--correlation", given) == [job]
    assert project.json("show", given)["job_id"] == job["job_id"]


def test_the_order_of_a_step_carries_the_lease_of_its_runs_operation(project: Project) -> None:
    """X-013, X-014: two leases; the one of the action is a UUID, and its epoch counts successes."""
    failing = WAITS.replace("tasks:wait", "tasks:fragile").replace('"}}', '", with: {values: [1]}}}')
    project.run(project.write("fragile.yaml", failing), code=1)
    run = project.json("show", project.newest())
    (job,) = project.json("list", "--jobs")
    action = project.json("show", job["job_id"])["action"]
    of = (None, uuid8(bytes.fromhex(run["contract_digest"].removeprefix("sha256:"))), UUID(run["operation_id"]))
    assert action["action_id"] == job["job_id"] == str(derive_id("action", *of, UUID(action["step_id"])))
    assert action["lease_id"] == str(derive_id("lease", *of, UUID(action["step_id"])))
    assert (action["epoch"], action["step_type"]) == (0, "compute")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lease_id": str(UUID(int=7))}, "does not hold the lease"),
        ({"action_id": str(UUID(int=7))}, "does not hold the lease"),
        ({"lease_id": "mine"}, "names no action lease that can be read"),
        ({"epoch": -1}, "names no action lease that can be read"),
    ],
    ids=["another lease", "another action", "no lease", "no epoch"],
)
def test_an_order_under_another_lease_than_its_runs_is_not_begun(
    project: Project, change: dict[str, Any], said: str
) -> None:
    """X-013: as a second orchestrator would make one for a run that is not its own."""
    running = project.terminal("run", project.write("waits.yaml", WAITS), "-w", "1", "-o", "json")
    project.wait_running()
    run_id = project.newest()
    with Runtime(project.home, workers=1, idle=True) as work:
        order = order_in(work.backend, run_id)
        foreign = replace(order, origin=replace(order.origin, ingredients={}, action={**order.origin.action, **change}))
        job_id = str(uuid4())
        submission = work.backend.submission(
            foreign, job_id=job_id, job_kind="action", priority=5, key=None, run_id=run_id
        )
        (answer,) = work.session.ask(commands_of([submission]), content=submission.inline)
        assert answer.refusal is None
    project.release()
    eventually(lambda: project.json("show", job_id)["state"] == "failed", "the foreign order did not fail")
    error = project.json("show", job_id)["report"]["error"]
    assert (error["category"], error["code"]) == ("VALIDATION_ERROR", "LEASE_INVALID")
    assert said in error["message"]
    running.ended()


def order_in(backend: Backend, run_id: str) -> Order:
    with Parts().open_reader(backend.home.ledger) as reader:
        (row,) = reader.jobs(run_id=run_id)
        assert Run.decode(reader.run(run_id).body).run_id == run_id  # type: ignore[union-attr]
        order = order_of(Content(reader, backend.files), row)
    assert order is not None
    return order
