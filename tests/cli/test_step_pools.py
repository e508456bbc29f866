"""What a step says of its type, its priority and its group, as it shows in a real run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.project import Project, detent_home, eventually, project

__all__ = ["detent_home", "project"]

TWO = """
name: two
steps:
  - {id: slow, type: %s, run: {python: "tasks:wait"}}
  - {id: quick, type: %s, run: {python: "tasks:double", with: {n: 2}}}
  - {id: after, type: compute, needs: quick, run: {python: "tasks:double", with: {n: 3}}}
"""


def pool(project: Project, step_type: str, count: object) -> None:
    with (project.home.path / "config.toml").open("a") as settings:
        settings.write(f"\n[workers.{step_type}]\ncount = {count}\n")


def states(project: Project) -> dict[str, str]:
    return {step["step"]: step["state"] for step in project.json("show", project.newest())["step_list"]}


@pytest.mark.parametrize("types", [("compute", "effect"), ("effect", "reducer"), ("orchestrator", "effect")], ids=str)
def test_a_step_with_a_pool_of_its_own_is_not_held_up_by_steps_of_another_type(
    project: Project, types: tuple[str, str]
) -> None:
    """WF-081: the type decides where a step runs. There is one shared worker, and the slow step has it."""
    pool(project, types[1], 1)
    running = project.terminal("run", project.write("two.yaml", TWO % types), "-w", "1", "-o", "json")
    project.wait_running()
    eventually(lambda: states(project)["quick"] == "succeeded", "the step waits for a worker of another pool")
    assert states(project)["slow"] == "running"
    project.release()
    ended = running.ended()
    assert (ended.code, ended.document["steps"]["run"]) == (0, 3)


def test_a_pool_runs_as_many_steps_at_once_as_it_has_workers(project: Project) -> None:
    """Four shared workers, one for effects: the second effect waits, and what is no effect does not."""
    pool(project, "effect", 1)
    text = TWO.replace("needs: quick, ", "") % ("effect", "effect")
    running = project.terminal("run", project.write("two.yaml", text), "-w", "4", "-o", "json")
    project.wait_running()
    eventually(lambda: states(project)["after"] == "succeeded", "the compute step waits for the effects")
    assert states(project) == {"slow": "running", "quick": "ready", "after": "succeeded"}
    (job,) = [job for job in project.json("list", "--jobs") if job["step"] == "quick"]
    assert "waits for a worker of the pool for effect steps, which has 1." in " ".join(
        project("explain", job["job_id"]).out.split()
    )
    project.release()
    assert running.ended().code == 0


def test_steps_of_all_types_share_one_pool_where_nothing_is_set(project: Project) -> None:
    text = "name: all\nsteps:\n" + "".join(
        f'  - {{id: {name}, type: {name}, run: {{shell: "echo {name} >> started"}}}}\n'
        for name in ("compute", "effect", "reducer", "orchestrator", "parallel", "custom")
    )
    project.run(project.write("all.yaml", text))
    assert started(project) == ["compute", "effect", "reducer", "orchestrator", "parallel", "custom"]


def test_a_step_that_needs_more_workers_than_its_pool_has_is_refused_before_anything_runs(project: Project) -> None:
    pool(project, "effect", 1)
    text = 'name: big\nsteps:\n  - {id: big, type: effect, resources: {cpu: 2}, run: {shell: "echo x"}}\n'
    refused = project("run", project.write("big.yaml", text), "-w", "4", "-o", "json")
    assert refused.code == 3
    assert refused.document["error"]["code"] == "NO_FEASIBLE_POOL"
    assert "needs 2 cpu, and only 1 can be had here" in refused.document["error"]["message"]


@pytest.mark.parametrize(
    ("step_type", "count", "said"),
    [
        ("effects", 1, "workers.'effects' is not a type of steps"),
        ("conditional", 1, "workers.'conditional' is not a type of steps"),
        ("effect", 0, "workers.effect needs exactly count, a whole number from 1 to 1024"),
        ("effect", '"2"', "workers.effect needs exactly count"),
        ("effect", "1\nkind = 2", "workers.effect needs exactly count"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_by_its_key(
    project: Project, step_type: str, count: object, said: str
) -> None:
    project.checked = False  # The settings stay wrong.
    pool(project, step_type, count)
    refused = project("run", project.write("two.yaml", TWO % ("compute", "effect")))
    assert refused.code == 2
    assert said in refused.err


LONG = """\
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_version: {major: 1, minor: 0, patch: 0}
      workflow_name: starts
      description: ""
      execution_mode: parallel
    execution_graph: {version: {major: 1, minor: 0, patch: 0}, nodes: []}
  steps:
"""


def started(project: Project) -> list[str]:
    return (project.directory / "started").read_text().split()


def starts(project: Project, steps: dict[str, str]) -> list[str]:
    """The order in which one worker starts steps that are all ready at once."""
    lines = "".join(
        f'    - {{id: {name}, step_name: {name}, step_type: compute, {said}run: {{shell: "echo {name} >> started"}}}}\n'
        for name, said in steps.items()
    )
    project.run(project.write("starts.yaml", LONG + lines))
    return started(project)


def test_one_worker_starts_the_steps_of_higher_priority_first_and_equal_ones_as_declared(project: Project) -> None:
    """WF-060, WF-062, X-124: priority acts in the queue, and in nothing else."""
    said = {"a": "priority: 1, ", "b": "priority: 10, ", "c": "", "d": "priority: 10, ", "e": "priority: 5, "}
    assert starts(project, said) == ["b", "d", "c", "e", "a"]


@pytest.mark.parametrize("groups", [("x", "y", "x"), ("3", "2", "1"), ("wave:2", "wave:1", "wave:1")])
def test_a_parallel_group_changes_neither_the_order_nor_what_waits(project: Project, groups: Any) -> None:
    """WF-052, WF-053: a label; steps of one group still wait for one another."""
    said = {
        "a": f"parallel_group: '{groups[0]}', depends_on: [c], ",
        "b": f"parallel_group: '{groups[1]}', ",
        "c": f"parallel_group: '{groups[2]}', ",
    }
    assert starts(project, said) == ["b", "c", "a"]
