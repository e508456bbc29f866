"""The three examples of the workflow contract, run by `detent run` with something bound to each of their steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

CONTRACTS = Path(__file__).resolve().parents[2] / "examples" / "contracts"
STAGES = '''\
import pathlib


def stage(name, **before):
    """Note that it ran, and give its name behind those of the stages before it."""
    with open("ran", "a") as file:
        file.write(name + "\\n")
    return [*dict.fromkeys(one for part in before.values() for one in part), name]


def fails(name):
    stage(name)
    raise ValueError(f"{name} is broken")


def recovers(name, **before):
    """Fails twice, as a database that is away for a while."""
    ran = stage(name, **before)
    tries = pathlib.Path("ran").read_text().split().count(name)
    if tries < 3:
        raise ConnectionError(f"try {tries} of {name}")
    return ran
'''
THIRD = """\
# The third example of the workflow contract: steps that handle errors differently.
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_version: {major: 1, minor: 0, patch: 0}
      workflow_name: conditional_errors
      description: A critical step, an optional one, and one that is retried
      execution_mode: sequential
    execution_graph: {version: {major: 1, minor: 0, patch: 0}, nodes: []}
  steps:
    - id: critical_step
      step_name: Critical Step
      step_type: compute
      error_action: stop
      retry_count: 3
      run: {python: "stages:stage", with: {name: critical_step}}
    - id: optional_enrichment
      step_name: Optional Enrichment
      step_type: compute
      error_action: continue
      continue_on_error: true
      run: {python: "stages:fails", with: {name: optional_enrichment}}
    - id: final_persist
      step_name: Final Persist
      step_type: effect
      error_action: retry
      retry: {max: 5, on: [USER_CODE_ERROR]}
      run: {python: "stages:recovers", with: {name: final_persist}}
"""


def bound(name: str, needs: dict[str, list[str]]) -> str:
    """An example of the contract, with a function behind each step that is given what those before it gave."""
    text = (CONTRACTS / name).read_text()
    for step, before in needs.items():
        given = "".join(f", {need}: {{$from: {need}}}" for need in before)
        run = f'run: {{python: "stages:stage", with: {{name: {step}{given}}}}}'
        text, flow = re.subn(rf"- {{id: {step}, (.*)}}$", rf"- {{id: {step}, \1, {run}}}", text, flags=re.MULTILINE)
        text, block = re.subn(rf"( +)- id: {step}$", rf"\1- id: {step}\n\1  {run}", text, flags=re.MULTILINE)
        assert flow + block == 1, f"{step} is not a step of {name}"
    return text


def run(project: Project, name: str, text: str, *, code: int = 0) -> Any:
    project.write("stages.py", STAGES)
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("default = [1000, 2000, 4000]", "default = [0]"))
    ended = project.terminal("run", project.write(name, text), "-w", "2", "-o", "json").ended()
    assert ended.code == code, ended.err
    return ended.document


def ran(project: Project) -> list[str]:
    return (project.directory / "ran").read_text().split()


def results(project: Project) -> dict[str, Any]:
    jobs = project.json("list", "--jobs")
    return {job["step"]: project.json("show", job["job_id"])["report"]["value"] for job in jobs}


def test_the_data_processing_pipeline_runs_its_four_steps_in_sequence(project: Project) -> None:
    """WF-265, WF-267: the first example."""
    steps = ["fetch_data", "validate_schema", "enrich_data", "persist_results"]
    needs = {step: steps[place - 1 : place] for place, step in enumerate(steps)}
    said = run(project, "data.yaml", bound("data_processing_pipeline.yaml", needs))
    assert (said["status"], said["steps"]["run"]) == ("succeeded", 4)
    assert ran(project) == steps
    assert results(project)["persist_results"] == steps


def test_the_etl_pipeline_merges_three_extracts_and_loads_them(project: Project) -> None:
    """WF-227, WF-265, WF-267: the second example, in three waves."""
    extracts = ["extract_source_a", "extract_source_b", "extract_source_c"]
    needs = {**{one: [] for one in extracts}, "transform_merge": extracts, "load_warehouse": ["transform_merge"]}
    said = run(project, "etl.yaml", bound("etl_pipeline.yaml", needs))
    assert (said["status"], said["steps"]["run"]) == ("succeeded", 5)
    assert (sorted(ran(project)[:3]), ran(project)[3:]) == (extracts, ["transform_merge", "load_warehouse"])
    assert results(project)["load_warehouse"] == [*extracts, "transform_merge", "load_warehouse"]
    types = {
        job["step"]: project.json("show", job["job_id"])["action"]["step_type"]
        for job in project.json("list", "--jobs")
    }
    assert types == {**dict.fromkeys(extracts, "effect"), "transform_merge": "compute", "load_warehouse": "effect"}


def test_errors_stop_the_run_are_passed_over_or_are_retried_as_each_step_says(project: Project) -> None:
    """WF-097, WF-098, WF-232, WF-233, WF-267: the third example."""
    third = run(project, "third.yaml", THIRD, code=1)
    states = {step["step"]: step["state"] for step in third["step_list"]}
    assert states == {"critical_step": "succeeded", "optional_enrichment": "failed", "final_persist": "succeeded"}
    assert ran(project).count("final_persist") == 3
    (project.directory / "ran").unlink()
    broken = THIRD.replace('"stages:stage"', '"stages:fails"').replace("conditional_errors", "critical_errors")
    stopped = run(project, "stopped.yaml", broken, code=1)
    states = {step["step"]: step["state"] for step in stopped["step_list"]}
    assert states["critical_step"] == "failed"
    assert set(ran(project)) == {"critical_step"}
