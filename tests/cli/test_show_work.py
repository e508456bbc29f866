"""`detent show` of runs and jobs that did real work: steps, orders, reports, results and files."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

MIXED = """\
name: mixed
params:
  count: {type: integer, default: 2}
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: {$param: count}}}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
  - id: made
    run: {shell: "echo made > made.txt; echo told >&2"}
    inputs: tasks.py
    outputs: {made: made.txt}
  - {id: bad, run: {python: "tasks:fragile", with: {values: {$from: double}}}}
"""


def test_a_run_is_shown_with_its_steps_results_and_files(project: Project) -> None:
    project.write("mixed.yaml", MIXED)
    run_id = project.run("mixed.yaml", code=1)["run_id"]
    shown = project.json("show", run_id)
    assert (shown["file"], shown["params"], shown["about"]) == ("mixed.yaml", {"count": 2}, {})
    steps = {step["step"]: step for step in shown["step_list"]}
    assert {key: step["state"] for key, step in steps.items()} == {
        "numbers": "succeeded",
        "made": "succeeded",
        "double": "succeeded",
        "bad": "failed",
    }
    assert steps["numbers"]["result"] == [0, 1]
    assert (steps["double"]["total"], steps["double"]["done"], steps["double"]["result"]) == (2, 2, None)
    assert [job["index"] for job in steps["double"]["jobs"]] == [0, 1]
    assert steps["bad"]["message"] == "ValueError: not yet"
    assert steps["bad"]["needs"] == ["double"]
    (artifact,) = shown["artifacts"]
    assert (artifact["step"], artifact["name"]) == ("made", "made.txt")
    lines = project("show", run_id).out.splitlines()
    assert [line.split()[:3] for line in lines if line.startswith(("numbers", "double", "bad "))] == [
        ["numbers", "succeeded", "1"],
        ["double", "succeeded", "2/2"],
        ["bad", "failed", "1"],
    ]
    assert "file  made.txt  5 B, made" in lines
    again = project.run("mixed.yaml", code=1)["run_id"]
    out = project("show", again).out
    assert "numbers from job " in out
    assert "double[1] from job " in out


MANY = """\
name: many
steps:
  - id: split
    run: {shell: "for n in 1 2 3 4 5 6 7 8; do echo $n > part-$n; done"}
    outputs: {parts: "part-*"}
  - {id: report, run: {shell: "echo done > report.txt"}, outputs: {report: report.txt}}
"""


def test_a_step_with_many_files_hides_no_other(project: Project) -> None:
    project.write("many.yaml", MANY)
    run_id = project.run("many.yaml")["run_id"]
    assert len(project.json("show", run_id)["artifacts"]) == 9
    shown = [line for line in project("show", run_id).out.splitlines() if line.startswith("file  ")]
    assert shown[-2:] == ["file  part-1 and 7 more  16 B, split", "file  report.txt  5 B, report"]


FLOW = """\
import detent

@detent.task
def one():
    return 1

@detent.flow(name="nightly")
def every_night():
    return one()
"""


def test_a_run_of_a_flow_is_shown_with_the_file_and_the_flow_in_it(project: Project) -> None:
    """As a command line names it, so that it can be given again; without the directory, which is another field."""
    project.write("shown_flows.py", FLOW)
    run_id = project.run("shown_flows.py")["run_id"]
    shown = project.json("show", run_id)
    assert (shown["name"], shown["file"]) == ("nightly", "shown_flows.py:every_night")
    lines = [line.split() for line in project("show", run_id).out.splitlines()]
    assert ["file", "shown_flows.py:every_night"] in lines


def test_a_job_is_shown_with_what_it_ran_and_what_came_of_it(project: Project) -> None:
    project.write("mixed.yaml", MIXED)
    run_id = project.run("mixed.yaml", code=1)["run_id"]
    steps = {step["step"]: step for step in project.json("show", run_id)["step_list"]}
    job_id = steps["double"]["jobs"][1]["job_id"]
    shown = project.json("show", job_id)
    assert (shown["order"]["target"], shown["order"]["keywords"], shown["order"]["index"]) == (
        "tasks:double",
        {"n": 1},
        1,
    )
    report = shown["report"]
    assert (report["status"], report["value"], report["sandbox"], report["error"]) == ("succeeded", 2, "process", None)
    assert report["stdout"] == {"size_bytes": len("doubling 1\n"), "truncated": False}
    out = project("show", job_id).out
    assert "work      python tasks:double(n=1)\n" in out
    assert "step      double, element 1\n" in out
    assert "ran in    a process of its own, not sandboxed\n" in out
    assert "result    2\n" in out
    assert "printed   11 B on stdout: `detent logs` shows it\n" in out
    made = project.json("show", steps["made"]["jobs"][0]["job_id"])["report"]
    assert [(file["name"], file["size_bytes"], file["output"]) for file in made["files"]] == [("made.txt", 5, "made")]
    assert "file      made.txt  5 B, sha256:" in project("show", "made").out


def test_a_failed_job_shows_the_users_traceback(project: Project) -> None:
    project.write("mixed.yaml", MIXED)
    project.run("mixed.yaml", code=1)
    out = project("show", "bad").out
    assert "failed    USER_CODE_ERROR PYTHON_EXCEPTION\n" in out
    assert "work      python tasks:fragile(values=[<result>, <result>])\n" in out
    assert "  ValueError: not yet\n  Traceback (most recent call last):\n" in out
    assert 'raise ValueError("not yet")' in out
    error = project.json("show", "bad")["report"]["error"]
    assert (error["category"], error["type"], error["message"]) == ("USER_CODE_ERROR", "ValueError", "not yet")


def test_the_beginning_of_an_id_is_enough(project: Project) -> None:
    project.write("mixed.yaml", MIXED)
    run_id = project.run("mixed.yaml", code=1)["run_id"]
    assert project.json("show", run_id[:9])["run_id"] == run_id
    assert project("show", "nix").code == 2


def test_a_run_that_ran_out_of_time_says_so_for_ever_after(project: Project) -> None:
    """A.6: not only to the terminal that it ran in."""
    project.write("late.yaml", 'name: late\ntimeout: 1s\nsteps: [{id: wait, run: {python: "tasks:wait"}}]\n')
    assert project("run", "late.yaml").code == 1
    assert project.json("show", "late")["message"] == "the run's 1000 ms had elapsed (timeout of the workflow)"
    assert "because   the run's 1000 ms had elapsed (timeout of the workflow)" in project("show", "late").out
    assert (
        "It did not end in time: the run's 1000 ms had elapsed (timeout of the workflow)."
        in project("explain", "late").out
    )
