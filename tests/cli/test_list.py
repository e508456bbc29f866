"""`detent list`."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli
from tests.cli.project import Project, detent_home, project
from tests.cli.test_page import on_terminal

__all__ = ["detent_home", "project"]


def test_runs_are_listed_newest_first_under_their_fixed_names(cli: Cli) -> None:
    runs = cli.json("list")
    assert [(run["run_id"], run["name"], run["status"]) for run in runs] == [
        ("run-2", "second", "running"),
        ("run-1", "first", "failed"),
    ]
    assert runs[1]["jobs"] == 5
    assert runs[1]["started_at"] == "2023-11-14T22:13:20.000Z"
    assert runs[1]["ended_at"] == "2023-11-14T22:14:00.000Z"
    assert (runs[0]["ended_tick"], runs[0]["ended_at"]) == (None, None)


def test_jobs_are_listed_by_id_state_and_run(cli: Cli) -> None:
    states = {job["job_id"]: job["state"] for job in cli.json("list", "--jobs")}
    assert states == {
        "broken": "failed",
        "done": "succeeded",
        "dropped": "cancelled",
        "large": "succeeded",
        "slow": "succeeded",
        "waiting": "queued",
    }
    assert [job["job_id"] for job in cli.json("list", "--jobs", "--state", "failed")] == ["broken"]
    assert [job["job_id"] for job in cli.json("list", "--run", "run-2")] == ["waiting"]
    assert cli.json("list", "--run", "run-2", "--state", "failed") == []


def test_the_page_has_a_row_for_each(cli: Cli) -> None:
    lines = cli("list").out.splitlines()
    assert lines[0].split() == ["RUN", "NAME", "STATUS", "JOBS", "REUSED", "TOOK", "AGE"]
    assert lines[1].split()[:5] == ["run-2", "second", "interrupted", "1", "(1"]
    assert lines[2].split()[:6] == ["run-1", "first", "failed", "5", "-", "40.0s"]
    assert lines[2].endswith("d")
    jobs = cli("list", "--jobs").out.splitlines()
    assert [line.split()[0] for line in jobs[1:]] == ["waiting", "dropped", "slow", "broken", "large", "done"]
    assert sorted(line.split()[:4] for line in jobs[1:]) == [
        ["broken", "-", "failed", "1"],
        ["done", "-", "succeeded", "1"],
        ["dropped", "-", "cancelled", "-"],
        ["large", "-", "succeeded", "1"],
        ["slow", "-", "succeeded", "2"],
        ["waiting", "-", "queued", "-"],
    ]


SUMS = """\
name: sums
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: 2}}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
"""


def test_jobs_are_listed_with_their_steps_and_fit_a_narrow_terminal(project: Project) -> None:
    """An id that is broken over seven lines can be neither read nor copied; its beginning can."""
    project.write("sums.yaml", SUMS)
    run_id = project.run("sums.yaml")["run_id"]
    jobs = {job["job_id"] for job in project.json("list", "--run", "sums")}
    whole = [line.split() for line in project("list", "--run", run_id[:8]).out.splitlines()[1:]]
    assert {row[0] for row in whole} == jobs
    assert {row[1] for row in whole} == {"numbers", "double[0]", "double[1]"}
    narrow = on_terminal(
        "list", "--jobs", home=project.home.path, columns=80, variables={"NO_COLOR": "1", **project.environment}
    )
    header, _, *rows = narrow.splitlines()
    assert header.split() == ["JOB", "STEP", "STATE", "ATTEMPT", "RUN", "REASON"]
    assert {row.split()[0] for row in rows} == {job_id[:8] for job_id in jobs}
    assert all(row.split()[4] == run_id and len(row) <= 80 for row in rows)


def test_jobs_are_listed_as_they_were_submitted_newest_first(project: Project) -> None:
    project.write("sums.yaml", SUMS)
    project.run("sums.yaml")
    project.run("sums.yaml", "--force")
    jobs = project.json("list", "--jobs")
    assert [job["submitted_tick"] for job in jobs] == sorted((job["submitted_tick"] for job in jobs), reverse=True)
    newest = {job["run_id"] for job in jobs[:3]}
    assert newest == {project.json("list")[0]["run_id"]}
    assert project.json("list", "--jobs", "--limit", "2") == jobs[:2]
    assert [job["job_id"] for job in project.json("list", "--jobs", "--state", "succeeded")] == [
        job["job_id"] for job in jobs
    ]
    assert [job["job_id"] for job in project.json("show", "sums")["job_list"]] == [job["job_id"] for job in jobs[2::-1]]


def test_reused_steps_and_reused_jobs_are_counted_apart(project: Project) -> None:
    """A mapped step is one step and many jobs (X-185), and is reused when none of them had to run."""
    project.write("sums.yaml", SUMS)
    reused = []
    for count in (2, 2, 3):
        project.write("sums.yaml", SUMS.replace("count: 2", f"count: {count}"))
        ran = project.run("sums.yaml")
        listed = project.json("list")[0]
        shown = project.json("show", ran["run_id"])
        assert (shown["steps_reused"], shown["jobs_reused"]) == (listed["steps_reused"], listed["jobs_reused"])
        assert (listed["steps_reused"], listed["jobs_reused"]) == (ran["steps"]["reused"], ran["jobs"]["reused"])
        reused.append((listed["steps_reused"], listed["jobs_reused"]))
    assert reused == [(0, 0), (2, 3), (0, 2)]


def test_attempts_count_from_one_in_words_and_in_json(cli: Cli) -> None:
    """X-038: the record's own number counts from 0 and keeps its name."""
    jobs = {job["job_id"]: (job["attempt"], job["attempt_id"]) for job in cli.json("list", "--jobs")}
    assert (jobs["done"], jobs["slow"], jobs["waiting"]) == ((1, 0), (2, 1), (None, 0))
    shown = cli.json("show", "slow")
    assert (shown["attempt"], shown["attempt_id"]) == (2, 1)
    records = [record for record in shown["records"] if "attempt_id" in record]
    assert records
    assert all(record["attempt"] == record["attempt_id"] + 1 for record in records)


def test_a_limit_is_said_beside_the_answer(cli: Cli) -> None:
    result = cli("list", "--jobs", "--limit", "2")
    assert len(result.out.splitlines()) == 3
    assert result.err == "only the first 2 rows; --limit 0 shows all\n"
    assert len(cli.json("list", "--jobs", "--limit", "4")) == 4
    assert len(cli.json("list", "--jobs", "--limit", "0")) == 6
    assert cli("list", "--jobs", "--limit", "6").err == ""


def test_nothing_to_list_is_said(cli: Cli) -> None:
    assert cli("list", "--jobs", "--state", "retrying").out == "no such jobs\n"
    cli.played.edit(lambda database: database.execute("DELETE FROM runs"))
    assert cli("list").out == "no runs; 6 jobs without one, see `detent list --jobs`\n"
    cli("init", "--home", "fresh")
    assert cli("list", "--home", "fresh").out == "no runs yet\n"


def test_a_run_that_is_not_there_is_refused(cli: Cli) -> None:
    result = cli("list", "--run", "nix")
    assert result.code == 2
    assert "there is no run 'nix'" in result.err


def test_a_home_in_use_can_be_listed(cli: Cli) -> None:
    """X-172"""
    with cli.played.session():
        assert len(cli.json("list")) == 2


def test_jobs_are_listed_with_their_steps_as_data_too(project: Project) -> None:
    project.run(project.write("sums.yaml", SUMS))
    said = {job["job_id"]: job["step"] for job in project.json("list", "--jobs")}
    assert "double[1]" in said.values()
    rows = [line.split() for line in project("list", "--jobs").out.splitlines()[1:]]
    assert {row[0]: row[1] for row in rows} == said


@pytest.mark.parametrize("typed", ["cancelled", "CANCELLED", "canceled", "CANCELED", "Canceled"])
def test_a_state_is_understood_in_either_spelling_and_either_case(cli: Cli, typed: str) -> None:
    assert [(job["job_id"], job["state"]) for job in cli.json("list", "--state", typed)] == [("dropped", "cancelled")]


def test_success_is_typed_as_the_ledger_calls_it_too(cli: Cli) -> None:
    expected = cli.json("list", "--state", "succeeded")
    assert {job["state"] for job in expected} == {"succeeded"}
    assert cli.json("list", "--state", "SUCCEEDED") == cli.json("list", "--state", "completed") == expected


def test_a_word_that_is_no_state_of_a_job_is_refused_with_those_that_are(cli: Cli) -> None:
    result = cli("list", "--state", "lost")
    assert result.code == 2
    assert "'lost' is not a job state; use one of queued, running, retrying, succeeded, failed, cancelled" in result.err
