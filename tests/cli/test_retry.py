"""`detent retry`: what failed is run again, what succeeded is not, and what has ended stays as it is."""

from __future__ import annotations

import sys
from contextlib import closing

import apsw

from detent.cli.app import run as run_cli
from detent.sdk.client import Client
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

FRAGILE = """\
name: fragile
params:
  count: {type: integer, default: 3}
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: {$param: count}}}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
  - {id: sum, run: {python: "tasks:fragile", with: {values: {$from: double}}}}
result: {$from: sum}
"""


def test_what_failed_is_run_again_as_a_new_run_and_the_rest_is_reused(project: Project) -> None:
    """X-154: a new job; the old one stays as it ended."""
    project.write("fragile.yaml", FRAGILE)
    failed = project.run("fragile.yaml", "-p", "count=4", code=1)
    project.write("fixed", "")
    retried = project.json("retry", failed["run_id"], "-w", "1")
    assert (retried["status"], retried["result"]) == ("succeeded", 12)
    assert retried["run_id"] != failed["run_id"]
    assert retried["steps"] == {
        "total": 3, "run": 1, "reused": 2, "failed": 0, "skipped": 0, "cancelled": 0, "open": 0,
    }  # fmt: skip
    inputs = project.inputs(retried["run_id"])
    assert dict(inputs.about) == {"retry_of": failed["run_id"]}
    assert dict(inputs.params) == {"count": 4}
    assert f"retry of  run {failed['run_id']}\n" in project("show", retried["run_id"]).out
    assert project.json("show", failed["run_id"])["status"] == "failed"
    assert [job["state"] for job in project.json("list", "--run", retried["run_id"])] == ["succeeded"]


def test_a_retry_fails_as_a_run_does_and_can_be_retried_again(project: Project) -> None:
    project.write("fragile.yaml", FRAGILE)
    failed = project.run("fragile.yaml", code=1)["run_id"]
    again = project("retry", failed, "-q")
    assert again.code == 1
    assert "ValueError: not yet" in again.out
    second = project.newest()
    assert f"detent retry {second}" in again.out
    project.write("fixed", "")
    assert project.json("retry", second)["status"] == "succeeded"
    assert dict(project.inputs(project.newest()).about) == {"retry_of": second}


def test_a_completed_run_has_nothing_to_run_again(project: Project) -> None:
    project.write("fragile.yaml", FRAGILE)
    project.write("fixed", "")
    run_id = project.run("fragile.yaml")["run_id"]
    assert project("retry", run_id).out == f"run {run_id} succeeded: there is nothing to run again\n"
    assert project.json("retry", run_id) == {
        "run_id": run_id,
        "name": "fragile",
        "status": "succeeded",
        "retried": False,
    }
    assert len(project.json("list")) == 1


def test_a_run_whose_inputs_were_erased_says_so(project: Project) -> None:
    """X-171"""
    project.write("fragile.yaml", FRAGILE)
    run_id = project.run("fragile.yaml", code=1)["run_id"]
    digest = project.json("show", run_id)["inputs_digest"]
    assert project("erase", digest).code == 0
    result = project("retry", run_id)
    assert result.code == 2
    assert f"run '{run_id}' cannot be retried: what it was started with was erased" in result.err
    assert "`detent run FILE`" in result.err
    told = project("explain", run_id)
    assert told.code == 2
    assert "its steps cannot be told" in told.err
    assert "step_list" not in project.json("show", run_id)


def test_a_run_that_was_killed_goes_on_under_its_own_id(project: Project) -> None:
    """X-174"""
    project.write(
        "wait.yaml", 'name: wait\nsteps:\n  - {id: wait, run: {python: "tasks:wait"}}\nresult: {$from: wait}\n'
    )
    running = project.terminal("run", "wait.yaml", "-w", "1")
    project.wait_running()
    run_id = project.newest()
    under_way = project("retry", run_id)
    assert under_way.code == 1
    assert f"run '{run_id}' is under way in another process" in under_way.err
    running.kill()
    project.write("go", "")
    retried = project.json("retry", run_id)
    assert (retried["run_id"], retried["resumed"], retried["result"]) == (run_id, True, "went on")
    assert len(project.json("list")) == 1


def test_the_recorded_contract_is_run_and_a_changed_file_is_mentioned(project: Project) -> None:
    project.write("fragile.yaml", FRAGILE)
    run_id = project.run("fragile.yaml", code=1)["run_id"]
    project.write("fixed", "")
    project.write("fragile.yaml", FRAGILE.replace("$from: sum", "$from: double").replace("tasks:double", "tasks:total"))
    result = project("retry", run_id, "-q")
    assert result.code == 0
    assert "fragile.yaml has changed since; retry uses the recorded contract" in result.err
    assert "result  6\n" in result.out


def test_a_job_of_a_run_stands_for_its_run(project: Project) -> None:
    project.write("fragile.yaml", FRAGILE)
    run_id = project.run("fragile.yaml", code=1)["run_id"]
    (job,) = project.json("list", "--run", run_id, "--state", "failed")
    project.write("fixed", "")
    result = project("retry", job["job_id"], "-q")
    assert result.code == 0
    assert f"{job['job_id']} belongs to run {run_id}" in result.err
    assert dict(project.inputs(project.newest()).about) == {"retry_of": run_id}


def test_a_task_is_submitted_once_more_with_the_same_order(project: Project) -> None:
    """X-154: a new job id with `retry_of`, and the old job is still FAILED."""
    job_id = _failed_task(project)
    still = project("retry", job_id)
    assert still.code == 1
    assert "ValueError: not yet" in still.out
    project.write("fixed", "")
    retried = project.json("retry", job_id)
    assert (retried["state"], retried["retry_of"], retried["result"]) == ("succeeded", job_id, 5)
    assert retried["job_id"] != job_id
    assert project.json("show", job_id)["state"] == "failed"
    shown = project.json("show", retried["job_id"])
    assert shown["order"]["retry_of"] == job_id
    assert shown["order"]["keywords"] == {"values": [2, 3]}
    assert f"retry of  {job_id}\n" in project("show", retried["job_id"]).out
    again = project("retry", retried["job_id"])
    assert (again.code, "there is nothing to run again" in again.out) == (0, True)


def test_a_task_whose_order_was_erased_says_so(project: Project) -> None:
    job_id = _failed_task(project)
    assert project("erase", "--job", job_id).code == 0
    result = project("retry", job_id)
    assert result.code == 2
    assert "what it was asked to do was erased" in result.err
    assert "cannot be told: what it was asked to do was erased" in project("explain", job_id).out


def test_what_was_never_stored_is_not_called_erased(project: Project) -> None:
    """A copy of a ledger without its content, for instance: nothing was taken away."""
    job_id = _failed_task(project)
    project.checked = False
    with closing(apsw.Connection(str(project.home.ledger))) as database:
        database.execute("DELETE FROM content")
    told = project("explain", job_id).out
    assert "Why it ran cannot be told: what it was asked to do was never stored here." in told
    assert "erased" not in told


def test_an_unknown_id_is_bad_input(project: Project) -> None:
    assert run_cli(["retry", "nix"]) == 2


def _failed_task(project: Project) -> str:
    """A task that was submitted by a client and has failed."""
    sys.path.insert(0, str(project.directory))
    try:
        sys.modules.pop("tasks", None)
        import tasks  # type: ignore[import-not-found]

        with Client(project.home.path, workers=1) as client:
            handle = client.submit(tasks.fragile, [2, 3])
            assert "not yet" in str(handle.exception(60.0))
            return str(handle.job_id)
    finally:
        sys.path.remove(str(project.directory))
        sys.modules.pop("tasks", None)
