"""Time limits at the command line: what they end is called by its name, in the answer and on the ledger."""

from __future__ import annotations

from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

WAITING = """\
name: slow
steps:
  - id: a
    run: {python: "tasks:wait"}
"""
LATE = """\
name: late
timeout: 3s
steps:
  - id: open
    run: {python: "tasks:wait"}
  - id: after
    needs: [open]
    run: {python: "tasks:total", with: {values: [1]}}
"""


def limit_attempts(project: Project, wall_ms: int) -> None:
    """Have the operator's own limit end every attempt."""
    path = project.home.path / "config.toml"
    text = path.read_text()
    line = 'placement_order = "least-loaded"\n'
    assert line in text
    path.write_text(text.replace(line, f"{line}watchdog_wall_ms = {wall_ms}\n"))


def test_an_attempt_over_the_operators_limit_is_a_resource_limit_and_timed_out(project: Project) -> None:
    """X-146, X-091: its worker reports nothing, so the code alone says what it was; it used to be called INTERNAL_ERROR."""
    limit_attempts(project, 300)
    document = project.run(project.write("slow.yaml", WAITING), code=1)
    (failure,) = document["failures"]
    assert (failure["category"], failure["code"]) == ("RESOURCE_LIMIT", "WATCHDOG_WALL")
    said = "it ran longer than watchdog_wall_ms under [scheduling] in config.toml allows an attempt"
    assert failure["message"] == said
    shown = project.json("show", failure["job_id"])
    assert (shown["status"], shown["category"], shown["reason_code"]) == (
        "timed_out",
        "RESOURCE_LIMIT",
        "WATCHDOG_WALL",
    )
    assert "WATCHDOG_WALL (RESOURCE_LIMIT)" in project("show", failure["job_id"]).out


def test_what_a_run_had_under_way_when_its_time_was_over_is_reported_failed(project: Project) -> None:
    """X-116: its open jobs are cancelled and their steps failed, in the answer and whenever it is asked for later."""
    document = project.run(project.write("late.yaml", LATE), code=1)
    assert document["status"] == "failed"
    expected = {"open": "failed", "after": "skipped"}
    assert {step["step"]: step["state"] for step in document["step_list"]} == expected
    (failure,) = document["failures"]
    said = (failure["step"], failure["category"], failure["code"], failure["message"])
    assert said == ("open", "RESOURCE_LIMIT", "RUN_TIMEOUT", "the run's 3000 ms had elapsed (timeout of the workflow)")
    shown = project.json("show", document["run_id"])
    assert {step["step"]: step["state"] for step in shown["step_list"]} == expected
    job = project.json("show", failure["job_id"])
    assert (job["state"], job["reason_code"]) == ("cancelled", "RUN_TIMEOUT")


def test_the_ledger_records_that_a_run_ended_by_its_own_limit(project: Project) -> None:
    """X-116, X-167: `run_ended` says so, signed; nothing infers it, and a run that failed otherwise has no such reason."""
    late = project.run(project.write("late.yaml", LATE), code=1)["run_id"]
    failed = project.run(
        project.write("bad.yaml", 'name: bad\ntimeout: 1h\nsteps: [{id: a, run: {shell: "exit 3"}}]\n'), code=1
    )["run_id"]
    for run_id, reason in ((late, "RUN_TIMEOUT"), (failed, None)):
        shown = project.json("show", run_id)
        (end,) = [record for record in shown["records"] if record["kind"] == "run_ended"]
        assert (shown["reason_code"], end.get("reason_code")) == (reason, reason)
        assert bool(shown["message"]) is (reason is not None)
        bundle = project.write("run.detent", "")
        root = project.json("export", run_id, "--output", bundle)["root"]
        assert project.json("verify", bundle, "--root", root)["ok"]
    assert project.json("verify")["ok"]
    assert project.json("replay")["ok"]
