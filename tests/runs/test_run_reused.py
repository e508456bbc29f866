"""A run that repeats an earlier one names it in one record, and every command tells its steps as if each had a record of its own."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from detent.canon import decode
from detent.store.sqlite import SqliteStore
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

STEPS = 8
WIDE = "".join(f'  - {{id: s{n}, run: {{python: "tasks:double", with: {{n: {n + 100}}}}}}}\n' for n in range(STEPS))
FLOW = f"""
name: wide
params: {{x: {{type: integer, default: 0}}}}
steps:
  - {{id: first, run: {{python: "tasks:double", with: {{n: {{$param: x}}}}}}}}
{WIDE}
  - {{id: sum, run: {{python: "tasks:total", with: {{values: [{{$from: first}}, {{$from: s0}}, {{$from: s1}}]}}}}}}
result: {{$from: sum}}
"""
ALL = STEPS + 2


@pytest.fixture
def done(project: Project) -> Project:
    """A run of ten steps is done."""
    project.write("flow.yaml", FLOW)
    project.run("flow.yaml")
    return project


def records(project: Project, run_id: str) -> list[dict[str, Any]]:
    """What the run says of itself."""
    reader = SqliteStore.open_reader(project.home.ledger_file)
    try:
        return [decode(row.body) for row in reader.records_of_run(run_id) if row.kind != "submitted"]
    finally:
        reader.close()


def kinds(project: Project, run_id: str) -> Counter[str]:
    return Counter(record["kind"] for record in records(project, run_id))


def reused(project: Project, run_id: str) -> dict[str, Any]:
    (found,) = [record for record in records(project, run_id) if record["kind"] == "run_reused"]
    return found


def jobs_of(project: Project, run_id: str) -> dict[str, list[str]]:
    """The jobs whose results the steps of a run have."""
    return {step["step"]: [job["job_id"] for job in step["jobs"]] for step in project.json("show", run_id)["step_list"]}


def states(project: Project, run_id: str) -> Counter[str]:
    return Counter(step["state"] for step in project.json("show", run_id)["step_list"])


def step_id(project: Project, run_id: str, key: str) -> str:
    contract = project.inputs(run_id).contract
    return next(str(step) for step, name in contract.keys.items() if name == key)


def test_the_same_again_is_one_record_that_names_the_earlier_run(done: Project) -> None:
    """X-167"""
    first = done.newest()
    second = done.run("flow.yaml")
    assert second["steps"]["reused"] == ALL
    assert kinds(done, second["run_id"]) == {"run_started": 1, "run_reused": 1, "run_ended": 1}
    said = reused(done, second["run_id"])
    (end,) = [record for record in records(done, first) if record["kind"] == "run_ended"]
    assert (said["reused_run_id"], said["steps_reused"], said["except_steps"]) == (first, ALL, [])
    assert said["jobs_digest"] == end["jobs_digest"], "it binds what those jobs were asked and what came of them"


def test_a_run_that_repeats_a_repetition_names_the_original(done: Project) -> None:
    first = done.newest()
    runs = [done.run("flow.yaml")["run_id"] for _ in range(3)]
    assert {reused(done, run_id)["reused_run_id"] for run_id in runs} == {first}


def test_every_command_tells_the_steps_of_a_reused_run(done: Project) -> None:
    """The story of each step is that of the job whose result it took, as with a record of its own."""
    first = done.newest()
    jobs = jobs_of(done, first)
    run_id = done.run("flow.yaml")["run_id"]
    shown = done.json("show", run_id)
    assert jobs_of(done, run_id) == jobs
    assert all(job["reused"] for step in shown["step_list"] for job in step["jobs"])
    assert shown["steps_reused"] == ALL
    listed = next(one for one in done.json("list") if one["run_id"] == run_id)
    assert (listed["steps_reused"], listed["jobs_reused"]) == (ALL, ALL)
    told = json.dumps(done.json("explain", run_id))
    assert f"of run {first}" in told
    assert all(job_id in told for (job_id,) in jobs.values())
    assert f"job {jobs['s3'][0]} of run {first}" in done("explain", run_id, "s3").out
    assert "ingredients of its key are equal" in done("explain", run_id, "s3").out
    assert "doubling 103" in done("logs", "s3", "--run", run_id).out
    assert done.json("retry", run_id)["retried"] is False
    done.json("gc")
    assert states(done, run_id) == {"reused": ALL}
    assert f"{ALL} jobs of run {first}" in done("show", run_id).out
    assert done("replay").code == 0


def test_one_changed_input_is_an_exception(done: Project) -> None:
    first = done.newest()
    run_id = done.run("flow.yaml", "-p", "x=5")["run_id"]
    said = reused(done, run_id)
    excepted = sorted(step_id(done, first, key) for key in ("first", "sum"))
    assert (said["reused_run_id"], said["steps_reused"], said["except_steps"]) == (first, STEPS, excepted)
    assert kinds(done, run_id) == {"run_started": 1, "run_reused": 1, "run_ended": 1}
    assert states(done, run_id) == {"reused": STEPS, "succeeded": 2}
    assert done.json("show", run_id)["steps_reused"] == STEPS
    assert f"{STEPS} jobs of run {first}, 2 steps excepted" in done("show", run_id).out
    again = done.run("flow.yaml", "-p", "x=5")["run_id"]
    assert reused(done, again)["reused_run_id"] == first
    assert kinds(done, again)["step_reused"] == 2, "those of the second run are named one by one"
    assert states(done, again) == {"reused": ALL}
    assert done.json("show", again)["steps_reused"] == ALL


def test_changed_code_is_recorded_step_by_step(done: Project) -> None:
    done.edit("return n * FACTOR", "n = n + 0\n    return n * FACTOR")
    run_id = done.run("flow.yaml")["run_id"]
    assert kinds(done, run_id) == {"run_started": 1, "step_reused": 1, "run_ended": 1}
    assert states(done, run_id) == {"reused": 1, "succeeded": ALL - 1}


@pytest.mark.parametrize("option", [("--force",), ("--salt", "another")])
def test_what_asks_for_work_anew_reuses_no_run(done: Project, option: tuple[str, ...]) -> None:
    run_id = done.run("flow.yaml", *option)["run_id"]
    assert "run_reused" not in kinds(done, run_id)
    assert states(done, run_id) == {"succeeded": ALL}


def test_a_step_without_a_cache_runs_and_is_excepted(project: Project) -> None:
    text = FLOW.replace("{id: s7,", "{id: s7, cache: false,")
    assert text != FLOW
    project.write("flow.yaml", text)
    first = project.run("flow.yaml")["run_id"]
    run_id = project.run("flow.yaml")["run_id"]
    assert reused(project, run_id)["except_steps"] == [step_id(project, first, "s7")]
    assert states(project, run_id) == {"reused": ALL - 1, "succeeded": 1}
    assert project.json("show", run_id)["steps_reused"] == ALL - 1


def test_a_step_whose_result_was_erased_runs_again(done: Project) -> None:
    first = done.newest()
    (job_id,) = jobs_of(done, first)["s5"]
    assert done("erase", "--job", job_id, "--yes").code == 0
    run_id = done.run("flow.yaml")["run_id"]
    assert reused(done, run_id)["except_steps"] == [step_id(done, first, "s5")]
    assert states(done, run_id) == {"reused": ALL - 1, "succeeded": 1}


def test_the_story_is_told_after_the_earlier_run_was_erased(done: Project) -> None:
    first = done.newest()
    jobs = jobs_of(done, first)
    run_id = done.run("flow.yaml")["run_id"]
    assert done("erase", "--run", first, "--yes").code == 0
    assert jobs_of(done, run_id) == jobs
    assert done.json("verify")["ok"]


def test_an_output_that_was_changed_on_disk_is_made_again(project: Project) -> None:
    each = "".join(
        f"  - {{id: f{n}, run: {{shell: 'echo {n} > out{n}'}}, inputs: [], outputs: {{file: out{n}}}}}\n"
        for n in range(6)
    )
    project.write("files.yaml", f"name: files\nsteps:\n{each}")
    first = project.run("files.yaml")["run_id"]
    assert reused(project, project.run("files.yaml")["run_id"])["except_steps"] == []
    project.write("out3", "changed")
    run_id = project.run("files.yaml")["run_id"]
    assert reused(project, run_id)["except_steps"] == [step_id(project, first, "f3")]
    assert (project.directory / "out3").read_text() == "3\n"


def test_another_contract_with_the_same_work_is_recorded_step_by_step(done: Project) -> None:
    done.write("other.yaml", FLOW.replace("name: wide", "name: other"))
    run_id = done.run("other.yaml")["run_id"]
    assert kinds(done, run_id) == {"run_started": 1, "step_reused": ALL, "run_ended": 1}


def test_a_failed_run_is_never_named(project: Project) -> None:
    project.write("flow.yaml", FLOW.replace("tasks:total", "tasks:fragile"))
    project.run("flow.yaml", code=1)
    project.write("fixed", "")
    run_id = project.run("flow.yaml")["run_id"]
    assert kinds(project, run_id)["run_reused"] == 0
    assert kinds(project, run_id)["step_reused"] == STEPS + 1


def test_a_killed_run_that_reused_another_is_resumed_with_what_it_took(project: Project) -> None:
    """X-174"""
    text = FLOW.replace("{id: sum,", "{id: sum, cache: false,").replace("tasks:total", "tasks:wait")
    project.write("flow.yaml", text)
    project.write("go", "")
    first = project.run("flow.yaml")["run_id"]
    (project.directory / "go").unlink()
    terminal = project.terminal("run", "flow.yaml", "-w", "1")
    project.wait_running()
    terminal.kill()
    run_id = project.newest()
    assert reused(project, run_id)["reused_run_id"] == first
    project.write("go", "")
    resumed = project.run("flow.yaml")
    assert resumed["run_id"] == run_id
    assert kinds(project, run_id) == {"run_started": 1, "run_reused": 1, "run_ended": 1}
    assert states(project, run_id) == {"reused": ALL - 1, "succeeded": 1}


def test_elements_of_a_mapped_step_are_taken_with_the_run(project: Project) -> None:
    """X-185"""
    flow = """
        name: mapped
        params: {n: {type: integer, default: 9}}
        steps:
          - {id: list, run: {python: "tasks:numbers", with: {count: {$param: n}}}}
          - {id: each, map: {n: {$from: list}}, run: {python: "tasks:double"}}
    """
    project.write("flow.yaml", flow)
    first = project.run("flow.yaml")["run_id"]
    second = project.run("flow.yaml")["run_id"]
    assert reused(project, second)["steps_reused"] == 10
    assert jobs_of(project, second) == jobs_of(project, first)
    assert project.json("show", second)["steps_reused"] == 2
    longer = project.run("flow.yaml", "-p", "n=10")["run_id"]
    assert project.json("show", longer)["step_list"][1]["reused"] == 9
    shorter = project.run("flow.yaml", "-p", "n=4")["run_id"]
    assert len(jobs_of(project, shorter)["each"]) == 4


def test_the_bundle_of_a_reused_run_names_the_other_by_a_digest_that_its_bundle_has(done: Project) -> None:
    first = done.newest()
    run_id = done.run("flow.yaml")["run_id"]
    reports = []
    for name in (first, run_id):
        root = done.json("export", name, "--output", f"{name}.detent")["root"]
        reports.append(done.json("verify", f"{name}.detent", "--root", root))
    assert [report["ok"] for report in reports] == [True, True], reports
    (end,) = [record for record in records(done, first) if record["kind"] == "run_ended"]
    (unseen,) = [sentence for sentence in reports[1]["not_proved"] if first in sentence]
    assert f"sha256:{end['jobs_digest'].hex()}" in unseen


def test_a_process_that_does_not_own_the_home_names_the_run_too(done: Project) -> None:
    first = done.newest()
    with done.temporary.session():
        assert done.terminal("run", "flow.yaml", "-q").ended().code == 0
    assert reused(done, done.newest())["reused_run_id"] == first
