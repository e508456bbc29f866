"""Waiting and running are told apart, and timed apart, in `show`, `logs`, the summary and JSON."""

from __future__ import annotations

from typing import Any

import pytest

from detent.workers.live_output import live_since
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

TWO = """
name: two
steps:
  - {id: first, run: {python: "tasks:wait"}%s}
  - {id: second, run: {python: "tasks:double", with: {n: 2}}%s}
"""
GPU = ", resources: {gpu: 1}"


def steps_of(project: Project) -> dict[str, Any]:
    return {step["step"]: step for step in project.json("show", project.newest())["step_list"]}


@pytest.mark.parametrize(("takes", "workers"), [("", "1"), (GPU, "2")])
def test_a_step_that_waits_for_a_worker_or_for_resources_is_not_running(
    project: Project, takes: str, workers: str
) -> None:
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("[resources]\n", "[resources]\ngpu = 1\n"))
    running = project.terminal("run", project.write("two.yaml", TWO % (takes, takes)), "-w", workers, "-o", "json")
    project.wait_running()
    open_steps = steps_of(project)
    by_state = {step["state"]: step for step in open_steps.values()}
    assert sorted(by_state) == ["ready", "running"]
    assert by_state["running"]["ran_ms"] is not None
    assert (by_state["ready"]["ran_ms"], by_state["ready"]["waited_ms"] >= 0) == (None, True)
    (job,) = by_state["ready"]["jobs"] or [None]
    shown = project.json("show", job["job_id"])
    assert (shown["ran_ms"], shown["waited_ms"] >= 0) == (0, True)
    project.release()
    ended = running.ended()
    assert ended.code == 0, ended.err
    for step in ended.document["step_list"]:
        assert step["waited_ms"] + step["ran_ms"] == step["elapsed_ms"]
    for step in steps_of(project).values():
        assert step["state"] == "succeeded"
        assert step["waited_ms"] + step["ran_ms"] == step["ended_ms"] - step["started_ms"]
    (attempt,) = project.json("logs", job["job_id"])["jobs"][0]["attempts"]
    assert attempt["ran_ms"] == attempt["finished_ms"] - attempt["started_ms"]
    shown = project.json("show", job["job_id"])
    assert shown["ran_ms"] == attempt["ran_ms"]
    assert shown["waited_ms"] >= attempt["waited_ms"] > 0
    page = project("show", project.newest()).out
    assert "WAITED" in page
    assert "waited " in project("show", job["job_id"]).out


def test_a_job_runs_since_its_worker_began_it_and_not_since_that_worker_began(project: Project) -> None:
    """Two jobs, one after the other, in the same worker."""
    text = """
name: line
steps:
  - {id: zero, run: {python: "tasks:double", with: {n: 2}}}
  - {id: first, needs: zero, run: {python: "tasks:wait"}}
"""
    running = project.terminal("run", project.write("line.yaml", text), "-w", "1", "-o", "json")
    project.wait_running()
    zero, first = (step["jobs"][0]["job_id"] for step in steps_of(project).values())
    (before,) = project.json("logs", zero)["jobs"][0]["attempts"]
    assert live_since(project.home.path)[first] >= before["finished_ms"]
    project.release()
    assert running.ended().code == 0
