"""The job contract at the command line: statuses that only move forward, limits that hold, and what untrusted code cannot reach."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from detent.jobs.status import STATUS_MOVES, TERMINAL_STATUSES, JobStatus
from tests.cli.project import Project, detent_home, eventually, project
from tests.cli.submitted import draft, needs_sandbox, settings, square, submit
from tests.executor.runners.rig import execute, export, render, thumbnail

__all__ = ["detent_home", "project"]

FOREVER = "def main():\n    while True:\n        pass\n"


def history(project: Project, job: str) -> list[str]:
    """The statuses of a job by its records; every two neighbours are a move that the contract allows."""
    told: list[str] = project.json("show", job)["timeline"]["history"]
    statuses = [JobStatus(word.upper()) for word in told]
    assert all(after in STATUS_MOVES[before] for before, after in pairwise(statuses))
    assert statuses[-1] in TERMINAL_STATUSES
    return told


def begun(project: Project, document: dict[str, Any]) -> tuple[str, Any]:
    """A job that runs in another terminal, and that terminal."""
    job = submit(project, document)["job_id"]
    terminal = project.terminal("result", job, "--wait", "-o", "json")
    eventually(lambda: project.json("show", job)["state"] == "running", "the job does not begin")
    return job, terminal


@needs_sandbox
def test_the_statuses_of_a_job_move_forward_only_whatever_its_end(project: Project) -> None:
    """JOB-011, JOB-012, JOB-013, JOB-014, JOB-015, JOB-016, JOB-018, X-002, X-003, X-005"""
    begin = ["pending", "queued"]
    assert history(project, submit(project, square(), "--wait")["job_id"]) == [*begin, "running", "succeeded"]
    failed = submit(project, draft(execute("def main(): raise ValueError")), "--wait", code=1)
    assert history(project, failed["job_id"]) == [*begin, "running", "failed"]
    slow = submit(project, draft(execute(FOREVER, limits={"timeout_ms": 200})), "--wait", code=1)
    assert history(project, slow["job_id"]) == [*begin, "running", "timed_out"]
    waiting = submit(project, square(11))["job_id"]
    assert project("cancel", waiting).code == 0
    assert history(project, waiting) == [*begin, "cancelled"]
    page = project("show", slow["job_id"]).out
    assert "queued" in page
    assert "timed_out" in page


@needs_sandbox
def test_a_running_job_that_is_cancelled_ends_at_once_and_leaves_no_result(project: Project) -> None:
    """JOB-014, JOB-067, JOB-068, JOB-069, X-157, X-158: the worker's answer comes after the end, and counts for nothing."""
    job, terminal = begun(project, draft(execute(FOREVER, limits={"timeout_ms": 600_000, "cpu_ms": 600_000})))
    assert project("cancel", job, "--reason", "not needed").code == 0
    assert terminal.ended().code == 1
    assert history(project, job) == ["pending", "queued", "running", "cancelled"]
    told = project.json("result", job, code=1)
    assert (told["status"], told["reason_code"], told["result"]) == ("cancelled", "CANCELLED_BY_USER", None)
    assert project.json("artifacts", job)["artifacts"] == []


@needs_sandbox
def test_a_job_whose_worker_was_killed_is_begun_again_and_never_shown_as_queued(project: Project) -> None:
    """JOB-017, JOB-066, X-004, X-033"""
    job, terminal = begun(project, draft(execute(FOREVER, limits={"timeout_ms": 3000})))
    terminal.kill()
    told = project.json("result", job, "--wait", code=1)
    assert (told["status"], told["attempt"]) == ("timed_out", 2)
    assert history(project, job) == ["pending", "queued", "running", "timed_out"]
    times = project.json("show", job)["timeline"]
    assert times["first_started_at"] < times["started_at"]
    assert times["attempt"] == 1


@needs_sandbox
def test_two_processes_that_want_one_job_get_one_lease(project: Project) -> None:
    """JOB-082, X-007"""
    job = submit(project, square())["job_id"]
    both = [project.terminal("result", job, "--wait", "-o", "json") for _ in range(2)]
    ended = [terminal.ended() for terminal in both]
    assert [one.code for one in ended] == [0, 0]
    assert ended[0].document == ended[1].document
    records = project.json("show", job)["records"]
    assert [record.get("dispatch") for record in records].count(True) == 1


@needs_sandbox
@pytest.mark.parametrize(
    ("source", "limits", "status", "code"),
    [
        (FOREVER, {"timeout_ms": 200}, "TIMED_OUT", "LIMIT_WALL"),
        (FOREVER, {"cpu_ms": 100}, "TIMED_OUT", "LIMIT_CPU"),
        ("def main(): return len(bytearray(10**9))", {"memory_mb": 64}, "FAILED", "LIMIT_MEMORY"),
        ("def main(): return 'x' * 3000", {"max_output_kb": 2}, "FAILED", "LIMIT_OUTPUT"),
        (
            "def main():\n    for n in range(4): open(f'/job/out/{n}.txt', 'w').write('x')\n",
            {"max_artifacts": 3},
            "FAILED",
            "LIMIT_ARTIFACTS",
        ),
    ],
)
def test_every_limit_of_a_payload_is_enforced_and_ends_its_job_for_good(
    project: Project, source: str, limits: dict[str, int], status: str, code: str
) -> None:
    """JOB-037, JOB-060, JOB-063, JOB-080, X-146, X-147"""
    told = submit(project, draft(execute(source, limits=limits)), "--wait", code=1)
    result = told["result"]
    assert (result["status"], result["error"]["category"], result["error"]["code"]) == (status, "RESOURCE_LIMIT", code)
    assert told["attempt"] == 1
    assert result["artifacts"] == []


@needs_sandbox
@pytest.mark.parametrize(
    ("source", "category"),
    [
        ("def main(): assert False", "USER_CODE_ERROR"),
        ("import socket\n\ndef main(): socket.socket()", "SANDBOX_VIOLATION"),
    ],
)
def test_a_failure_of_the_code_is_tried_once_and_told_whole(project: Project, source: str, category: str) -> None:
    """JOB-061, JOB-064, JOB-072, X-153, X-160: the envelope of a failure has its usage and its log, too."""
    told = submit(project, draft(execute(source)), "--wait", code=1)
    assert (told["result"]["error"]["category"], told["attempt"]) == (category, 1)
    assert {"duration_ms", "resource_usage", "logs", "environment"} <= told["result"].keys()


@needs_sandbox
def test_code_runs_outside_of_the_platform_and_reaches_neither_its_home_nor_its_keys(project: Project) -> None:
    """JOB-002, JOB-070, JOB-073"""
    look = "import os, pathlib\n\ndef main(home):\n    return [pathlib.Path(home).exists(), sorted(os.environ), os.getpid()]\n"
    told = submit(project, draft(execute(look, parameters={"home": str(project.home.path)})), "--wait")
    exists, variables, pid = told["result"]["outputs"]["result_json"]
    assert not exists
    assert not any(name.startswith("DETENT_HOME") for name in variables)
    assert pid < 100
    payload = project("show", told["job_id"], "-o", "json").out
    secrets = [path.read_bytes() for path in (project.home.path / "keys").rglob("*") if path.is_file()]
    assert secrets
    assert not any(
        line.decode(errors="replace") in payload for secret in secrets for line in secret.split() if len(line) > 20
    )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"target": {}}, "target.object_id"),
        ({"target": {"object_id": "a", "object_ids": ["b"]}}, "target.object_id"),
        ({"environment": {"network_access": "maybe"}}, "environment.network_access"),
        ({"environment": {"language": "Python 3"}}, "environment.language"),
    ],
)
def test_a_target_and_an_environment_are_written_in_one_way(
    project: Project, change: dict[str, Any], path: str
) -> None:
    """JOB-020, JOB-039, X-156"""
    assert submit(project, square(**change), code=2)["error"]["details"]["path"] == path


def test_a_newer_minor_version_is_read_and_what_it_adds_is_kept(project: Project) -> None:
    """JOB-075, JOB-076, JOB-077, X-161"""
    told = submit(project, square(schema_version="1.7", colour="blue"))
    target = project.json("show", told["job_id"])["order"]["target"]
    assert (target["schema_version"], target["colour"]) == ("1.7", "blue")


def test_no_view_is_asked_for_outside_of_an_export(project: Project) -> None:
    """JOB-001: of the four job types, only an export says how the document is looked at."""
    digest = "sha256:" + "0" * 64
    drafts = (execute("def main(): pass"), render("x"), thumbnail(digest, width=10, height=10))
    assert all("view_mode" not in str(document) for document in drafts)
    shown = [submit(project, draft(document))["job_id"] for document in (*drafts, export({"blocks": []}))]
    orders = [project.json("show", job)["order"]["target"] for job in shown]
    assert ["view_mode" in order["inputs"] for order in orders] == [False, False, False, True]


@needs_sandbox
def test_the_quota_of_a_workspace_holds_for_its_platform_jobs(project: Project) -> None:
    """X-018, X-032: by [tenants.NAME], which names a policy of [quotas.NAME]."""
    settings(project, '[quotas.tiny]\ncpu_time_budget_ms = 1\n\n[tenants.team-a]\nquota = "tiny"\n')
    work = "def main(): return sum(range(3_000_000))"
    told = submit(project, draft(execute(work), workspace_id="team-a"), "--wait", code=1)
    assert (told["status"], told["reason_code"]) == ("failed", "QUOTA_CPU_TIME")
    assert submit(project, draft(execute(work)), "--wait")["status"] == "succeeded"
