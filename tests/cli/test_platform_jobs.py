"""Steps that are whole platform jobs, typed at the command line: what they run in is in their key, their report and their limits."""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from detent.canon import parse_digest
from detent.contract import load
from detent.executor.sandbox import Profile
from detent.workflow import ExecutionContext, execute_workflow
from detent.workflow.identity import uuid8
from tests.cli.project import Project, detent_home, project
from tests.cli.submitted import needs_sandbox, settings
from tests.executor.runners.rig import execute, render
from tests.tamper.test_missing_content import delete

__all__ = ["detent_home", "project"]

INSTALLED = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}", "site-packages")


def contract(project: Project, payload: dict[str, Any], **step: Any) -> str:
    """A contract with one step, which is this platform job."""
    draft = {name: value for name, value in payload.items() if name != "job_id"}
    return project.write(
        "job.yaml", json.dumps({"name": "page", "steps": [{"id": "draw", "run": {"job": draft}, **step}]})
    )


def upgraded(directory: Path, name: str, version: str) -> Path:
    """A directory in which a distribution is installed in another version: its own files, found before the real ones."""
    real = metadata.version(name)
    shutil.copytree(INSTALLED / name, directory / name)
    info = directory / f"{name}-{version}.dist-info"
    shutil.copytree(INSTALLED / f"{name}-{real}.dist-info", info)
    for file in ("METADATA", "RECORD"):
        path = info / file
        path.write_text(
            path.read_text().replace(f"Version: {real}\n", f"Version: {version}\n").replace(f"-{real}.", f"-{version}.")
        )
    return directory


def in_terminal(project: Project, *arguments: str, code: int = 0) -> Any:
    """The document of a command that runs in a process of its own, where packages are looked for anew."""
    ended = project.terminal(*arguments, "-o", "json").ended()
    assert ended.code == code, ended.err
    return json.loads(ended.out)


def job_of(project: Project, run: dict[str, Any]) -> str:
    """The job of the only step of a run."""
    ((job,),) = (step["jobs"] for step in project.json("show", run["run_id"])["step_list"])
    return str(job["job_id"])


def report_of(project: Project, run: dict[str, Any]) -> dict[str, Any]:
    """The result of the only step of a run."""
    report: dict[str, Any] = project.json("show", job_of(project, run))["report"]
    return report


@needs_sandbox
def test_a_rendered_page_is_drawn_again_when_the_renderer_is_upgraded(project: Project, tmp_path: Path) -> None:
    """JOB-024, JOB-052, JOB-078, X-151: tools and versions are in the key and in the report, and `explain` names the change."""
    file = contract(project, render("x^2", "svg"))
    first = in_terminal(project, "run", file, "-w", "1")
    again = in_terminal(project, "run", file, "-w", "1")
    real = metadata.version("ziamath")
    project.environment["PYTHONPATH"] = (
        f"{upgraded(tmp_path / 'new', 'ziamath', '99.1')}:{project.environment['PYTHONPATH']}"
    )
    foreseen = in_terminal(project, "plan", file)
    after = in_terminal(project, "run", file, "-w", "1")

    assert [run["step_list"][0]["state"] for run in (first, again, after)] == ["succeeded", "reused", "succeeded"]
    drawn, drawn_again = report_of(project, first), report_of(project, after)
    assert f"+ziamath-{real}+" in drawn["env_version"]
    assert "+ziamath-99.1+" in drawn_again["env_version"]
    assert drawn["env_version"].startswith(f"render@1+py{platform.python_version()}+")
    why = project.json("explain", job_of(project, after))
    assert f"tool ziamath {real} -> 99.1" in json.dumps(why)
    assert f"tool ziamath {real} -> 99.1" in json.dumps(foreseen)


@needs_sandbox
def test_a_platform_job_keeps_its_files_and_its_sandbox(project: Project) -> None:
    """JOB-052, X-152: the report has the artifacts and the profile of the sandbox that made them."""
    run = project.run(contract(project, render("x^2", "svg", "png")))
    report = report_of(project, run)
    files = {file["name"]: file["content_type"] for file in report["files"]}
    assert files == {"formula.png": "image/png", "formula.svg": "image/svg+xml"}
    assert all(project.home.content_files().has(bytes.fromhex(file["digest"][7:])) for file in report["files"])
    assert Profile(report["sandbox"]).strength >= Profile.FULL_ROOTLESS.strength


def test_every_job_of_a_run_is_an_action_of_the_planner(project: Project) -> None:
    """X-023: who has the contract and the recorded operation can tell the ids of the jobs."""
    project.write(
        "two.yaml",
        "name: two\nsteps:\n"
        "  - {id: one, run: {python: 'tasks:numbers', with: {count: 1}}}\n"
        "  - {id: two, needs: one, run: {python: 'tasks:numbers', with: {count: 2}}}\n",
    )
    run = project.json("show", project.run("two.yaml")["run_id"])
    loaded = load((project.directory / "two.yaml").read_bytes())
    context = ExecutionContext(operation_id=UUID(run["operation_id"]))
    workflow_id = uuid8(bytes.fromhex(run["contract_digest"].removeprefix("sha256:")))
    planned = asyncio.run(execute_workflow(loaded.definition, list(loaded.steps), workflow_id, context=context))
    jobs = [job["job_id"] for step in run["step_list"] for job in step["jobs"]]
    assert jobs == [str(action.action_id) for action in planned.actions_emitted]


FOREVER = "def main():\n    while True:\n        pass\n"


@needs_sandbox
@pytest.mark.parametrize(
    ("timeout", "own_ms", "told"),
    [
        ("300ms", 60_000, "ran longer than its limit of 300 ms (timeout of the step)"),
        ("1h", 400, "ran longer than its limit of 400 ms (limits.timeout_ms of the payload)"),
    ],
)
def test_of_a_steps_timeout_and_its_payloads_the_smaller_one_ends_a_platform_job(
    project: Project, timeout: str, own_ms: int, told: str
) -> None:
    """X-019, X-162, A.6: and the error and `explain` say which one it was."""
    run = project.run(contract(project, execute(FOREVER, limits={"timeout_ms": own_ms}), timeout=timeout), code=1)
    report = report_of(project, run)
    assert (report["status"], report["error"]["code"], report["error"]["message"]) == ("timed_out", "LIMIT_WALL", told)
    limits = project.json("explain", job_of(project, run))["limits"]
    assert f"({limits['wall'][0]['by']})" in told


LONG_STEP = """
workflow_coordination:
  workflow_definition:
    version: {major: 1, minor: 0, patch: 0}
    workflow_metadata:
      version: {major: 1, minor: 0, patch: 0}
      workflow_name: slow
      workflow_version: {major: 1, minor: 0, patch: 0}
      description: One step that never ends.
      execution_mode: parallel
    execution_graph: {version: {major: 1, minor: 0, patch: 0}}
  steps:
    - {id: draw, step_name: draw, step_type: compute, timeout_ms: STEP, timeout: BINDING, run: RUN}
"""
ENDLESS = {
    "python": '{python: "endless:task"}',
    "shell": '{shell: "sleep 600"}',
    "map": '{map: {items: [1], compute: "endless:item", commit: "jsonl:out.jsonl"}}',
    "code": json.dumps({"code": FOREVER}),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=needs_sandbox if kind == "code" else ()) for kind in ENDLESS]
)
@pytest.mark.parametrize(("step", "binding", "by"), [("300", "1h", "timeout_ms"), ("300000", "300ms", "timeout")])
def test_of_a_steps_own_limits_the_smaller_one_ends_every_kind_of_step(
    project: Project, kind: str, step: str, binding: str, by: str
) -> None:
    """X-019, X-162, A.6"""
    wait = "import threading\n\ndef task(): threading.Event().wait()\n\ndef item(x): threading.Event().wait()\n"
    project.write("endless.py", wait)
    said = LONG_STEP.replace("STEP", step).replace("BINDING", binding).replace("RUN", ENDLESS[kind])
    run = project.run(project.write("slow.yaml", said), code=1)
    error = report_of(project, run)["error"]
    assert error["code"] == "LIMIT_WALL"
    assert error["message"].startswith(f"ran longer than its limit of 300 ms ({by} of the step)")


@pytest.mark.parametrize(("timeout", "code"), [("1h", "WATCHDOG_WALL"), ("200ms", "LIMIT_WALL")])
def test_of_the_operators_limit_and_a_steps_the_smaller_one_holds(project: Project, timeout: str, code: str) -> None:
    """X-019, OC-CORE-1022a: `explain` tells both limits, the one that holds first."""
    settings = project.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("[scheduling]\n", "[scheduling]\nwatchdog_wall_ms = 2000\n"))
    document = {"name": "slow", "steps": [{"id": "draw", "run": {"shell": "sleep 600"}, "timeout": timeout}]}
    run = project.run(project.write("slow.yaml", json.dumps(document)), code=1)
    told = project.json("explain", job_of(project, run))
    assert code in json.dumps(told["story"])
    by = [limit["by"] for limit in told["limits"]["wall"]]
    own, operator = "timeout of the step", "watchdog_wall_ms in the settings of this home"
    assert by == ([operator, own] if code == "WATCHDOG_WALL" else [own, operator])


@needs_sandbox
def test_a_deleted_artifact_of_a_platform_job_is_found(project: Project) -> None:
    """X-196: `artifacts` would say that it is gone, and nothing would say why."""
    project.checked = False
    run = project.run(contract(project, render(r"x^2")))
    assert project.json("verify")["ok"]
    (artifact, *_) = report_of(project, run)["files"]
    delete(project, parse_digest(artifact["digest"]))
    findings = project.json("verify", code=1)["findings"]
    assert [(finding["code"], finding["job_id"]) for finding in findings] == [("CONTENT_MISSING", job_of(project, run))]


@needs_sandbox
def test_a_step_that_is_a_platform_job_is_held_to_the_plan_of_its_workspace(project: Project) -> None:
    """JOB-038, X-032: by [plans.NAME] in the settings; a limit that it leaves open is no more than the plan's."""
    settings(project, "[plans.default]\nmemory_mb = 200\n")
    wide = project.run(contract(project, execute("def main(): return 1", limits={"memory_mb": 201})), code=1)
    error = report_of(project, wide)["error"]
    assert (error["category"], error["message"]) == (
        "VALIDATION_ERROR",
        "limits.memory_mb is 201; the plan 'default' allows 200",
    )
    assert project.run(contract(project, execute("def main(): return 2")))["status"] == "succeeded"
