"""`detent cancel`: from another terminal, of a run that is driven, left or waiting for others, and of a single job."""

from __future__ import annotations

from functools import partial

import pytest

from detent.kernel import EndRun, StartRun
from detent.runs.cancel import Canceller
from detent.runs.record.identity import RunLock
from tests.cli.project import Project, detent_home, eventually, gone, project

__all__ = ["detent_home", "project"]

SLOW = """\
name: slow
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: 3}}}
  - {id: wait, run: {python: "tasks:wait", with: {values: {$from: numbers}}}}
  - {id: after, run: {python: "tasks:double", with: {n: {$from: wait}}}}
"""


def test_a_run_that_is_in_the_middle_of_a_task_is_cancelled_from_another_terminal(project: Project) -> None:
    """X-172: the process that drives it is told by the ledger, stops the task at once and closes the run."""
    project.write("slow.yaml", SLOW)
    running = project.terminal("run", "slow.yaml", "-w", "1")
    task = project.wait_running()
    run_id = project.newest()
    said = project.json("cancel", run_id[:8], "--reason", "wrong file")
    assert (said["kind"], said["run_id"], said["status"]) == ("run", run_id, "cancelled")
    assert (said["cancelled"], said["had_ended"]) == (True, False)
    (job_id,) = said["jobs_cancelled"]
    ended = running.ended()
    assert ended.code == 130
    assert "slow cancelled" in ended.out
    assert "1 run, 0 reused, 2 cancelled" in ended.out
    eventually(lambda: gone(task), "the task goes on")
    shown = project.json("show", run_id)
    assert shown["status"] == "cancelled"
    assert {step["step"]: step["state"] for step in shown["step_list"]} == {
        "numbers": "succeeded",
        "wait": "cancelled",
        "after": "cancelled",
    }
    told = project("explain", job_id)
    assert "(WORKFLOW_CANCELLED: the workflow was cancelled)" in told.out
    assert "The reason that was given: wrong file" in told.out
    assert project.json("explain", job_id)["reason"] == "wrong file"
    assert project.json("show", job_id)["reason"] == "wrong file"


def test_a_run_whose_process_was_killed_is_closed_by_the_one_who_cancels(project: Project) -> None:
    project.write("slow.yaml", SLOW)
    running = project.terminal("run", "slow.yaml", "-w", "1")
    project.wait_running()
    running.kill()
    run_id = project.newest()
    assert "interrupted" in project("list").out
    result = project("cancel", run_id)
    assert result.code == 0
    assert result.out.startswith(f"cancelled run {run_id}\n  stopped  1 job: ")
    assert project.json("list")[0]["status"] == "cancelled"
    assert not list((project.home.path / "runs").iterdir())


def test_what_was_cancelled_before_is_fine_and_what_ended_otherwise_is_not(project: Project) -> None:
    project.write(
        "quick.yaml", 'name: quick\nsteps:\n  - {id: one, run: {python: "tasks:numbers", with: {count: 1}}}\n'
    )
    run_id = project.run("quick.yaml")["run_id"]
    result = project("cancel", run_id)
    assert (result.code, result.out) == (1, f"run {run_id} has already ended: succeeded\n")
    (job,) = project.json("list", "--run", run_id)
    result = project("cancel", job["job_id"])
    assert (result.code, result.out) == (1, f"job {job['job_id']} has already ended: succeeded\n")
    project.write("slow.yaml", SLOW)
    project.terminal("run", "slow.yaml", "-w", "1")
    project.wait_running()
    run_id = project.newest()
    assert project("cancel", run_id).code == 0
    assert project("cancel", run_id).out == f"run {run_id} was cancelled before\n"
    said = project.json("cancel", run_id)
    assert (said["cancelled"], said["had_ended"], said["jobs_cancelled"]) == (True, True, [])


def test_an_unknown_id_is_bad_input_and_a_step_is_not_enough(project: Project) -> None:
    result = project("cancel", "nix")
    assert result.code == 2
    assert "there is no job, run or step 'nix'" in result.err
    project.write(
        "quick.yaml", 'name: quick\nsteps:\n  - {id: one, run: {python: "tasks:numbers", with: {count: 1}}}\n'
    )
    run_id = project.run("quick.yaml")["run_id"]
    result = project("cancel", "one")
    assert result.code == 2
    assert f"'one' is a step of run {run_id}" in result.err
    assert project("cancel", run_id, "--reason", " ").code == 2


def test_a_single_job_is_cancelled_alone_and_its_run_goes_on_without_it(project: Project) -> None:
    """A.9: a job cancelled on its own is a step that did not succeed, and not the end of the run."""
    beside = '  - {id: beside, run: {python: "tasks:double", with: {n: 4}}}\n'
    project.write("slow.yaml", SLOW + beside)
    running = project.terminal("run", "slow.yaml", "-w", "2")
    project.wait_running()
    run_id = project.newest()
    (job_id,) = (
        job["job_id"]
        for step in project.json("show", run_id)["step_list"]
        if step["step"] == "wait"
        for job in step["jobs"]
    )
    said = project.json("cancel", job_id, "--reason", "not needed")
    assert (said["kind"], said["status"], said["jobs_cancelled"]) == ("job", "cancelled", [job_id])
    assert running.ended().code == 1
    shown = project.json("show", run_id)
    assert shown["status"] == "failed"
    states = {step["step"]: step["state"] for step in shown["step_list"]}
    assert (states["wait"], states["beside"]) == ("failed", "succeeded")
    assert states["after"] in {"blocked", "skipped"}


def test_a_run_that_only_waits_for_the_work_of_another_can_be_cancelled(project: Project) -> None:
    """X-186, X-193: it has no job of its own by which it would learn of it; its driver is asked, and closes it itself."""
    project.write("slow.yaml", 'name: slow\nsteps:\n  - {id: wait, run: {python: "tasks:wait"}}\n')
    first = project.terminal("run", "slow.yaml", "-w", "1", "-o", "json")
    project.wait_running()
    first_id = project.newest()
    second = project.terminal("run", "slow.yaml", "-w", "1", "--new")
    eventually(lambda: project.newest() != first_id, "the second run begins")
    said = project.json("cancel", project.newest())
    assert (said["status"], said["jobs_cancelled"]) == ("cancelled", [])
    left = second.ended()
    assert (left.code, "slow cancelled" in left.out) == (130, True)
    assert "the run was cancelled" in left.out, "not: it was ended from elsewhere"
    project.release()
    ended = first.ended()
    assert (ended.code, ended.document["status"]) == (0, "succeeded")


def test_the_name_of_a_workflow_cancels_its_one_open_run(project: Project) -> None:
    """Ended runs of the same name are not meant, and neither is a step that is called as the workflow is."""
    project.write("go", "")
    contract = project.write("slow.yaml", SLOW.replace("id: after", "id: slow"))
    assert project("run", contract, "-w", "1").code == 0
    (project.directory / "go").unlink()
    running = project.terminal("run", "slow.yaml", "-w", "1", "--force")
    project.wait_running()
    run_id = project.newest()
    said = project.json("cancel", "slow")
    assert (said["run_id"], said["status"], said["had_ended"]) == (run_id, "cancelled", False)
    assert running.ended().code == 130
    again = project("cancel", "slow")
    assert (again.code, again.out) == (0, f"run {run_id} was cancelled before\n")


def listed(project: Project, count: int) -> bool:
    """Whether so many runs are recorded."""
    return len(project.json("list")) == count


def test_a_name_with_two_open_runs_cancels_none_and_lists_both(project: Project) -> None:
    project.write("slow.yaml", SLOW)
    for count, salt in enumerate(("one", "two"), start=1):
        running = project.terminal("run", "slow.yaml", "-w", "1", "--new", "--salt", salt)
        # Not until a task waits: that may be one which the first run left, begun before the second run is recorded.
        eventually(partial(listed, project, count), "the run begins")
        running.kill()
    runs = [run["run_id"] for run in project.json("list")]
    refused = project("cancel", "slow")
    assert (refused.code, "2 open runs are named 'slow'" in refused.err) == (2, True), refused.err
    assert f"newest first: {', '.join(runs)}" in refused.err
    assert {run["status"] for run in project.json("list")} == {"running"}


def test_a_run_that_completes_while_it_is_being_cancelled_has_ended(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-172: its last job was done when the cancel came. It has ended otherwise, which is 1, and not 4, "has not ended yet"."""
    session = project.temporary.session()
    begun = StartRun(0, "local", "run-1", "first", bytes(32), bytes(32), bytes(32), "op-1")
    assert session.ask([begun])[0].refusal is None
    driver = RunLock.take(project.home.path, "run-1")
    assert driver is not None

    def complete(_seconds: float) -> None:
        """What the driver does while the cancelling command waits for it."""
        assert session.ask([EndRun(0, "run-1", "completed")])[0].refusal is None

    defaults = Canceller.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "pause", complete)
    said = project("cancel", "run-1")
    driver.release()
    assert (said.code, said.out.strip()) == (1, "run run-1 has already ended: succeeded")
