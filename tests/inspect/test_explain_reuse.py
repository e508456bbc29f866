"""Why a step ran although it had run before, why it was reused, and what a run would do with it, on a real home."""

from __future__ import annotations

from typing import Any

import pytest

from detent.reuse.earlier_jobs import COMPARED_MAX
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

SUMS = """\
name: sums
params:
  count: {type: integer, default: 3}
steps:
  - {id: numbers, run: {python: "tasks:numbers", with: {count: {$param: count}}}}
  - {id: double, map: {n: {$from: numbers}}, run: {python: "tasks:double"}}
  - {id: total, run: {python: "tasks:total", with: {values: {$from: double}}}}
result: {$from: total}
"""


@pytest.fixture
def sums(project: Project) -> Project:
    """A project that has been run once."""
    project.write("sums.yaml", SUMS)
    assert project.run("sums.yaml")["result"] == 6
    return project


def told(project: Project, *arguments: str) -> dict[str, Any]:
    """The steps of the newest run, or of one that is named, as `explain -o json` tells them."""
    document = project.json("explain", *(arguments or (project.newest(),)))
    return {step["step"]: step for step in document["steps"]}


def why(step: dict[str, Any], place: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = step["jobs"][place]["why"]
    return found


def foreseen(project: Project, *arguments: str, file: str = "sums.yaml") -> dict[str, Any]:
    """What `plan -o json` foresees, by step."""
    return {step["key"]: step["foreseen"] for step in project.json("plan", file, *arguments)["steps"]}


def test_what_was_never_done_says_so(sums: Project) -> None:
    steps = told(sums)
    assert [step["state"] for step in steps.values()] == ["succeeded", "succeeded", "succeeded"]
    assert why(steps["numbers"])["kind"] == "first"
    assert steps["double"]["total"] == 3
    assert "Nothing of its name had been done here before." in sums("explain", "total").out


def test_a_reused_step_names_the_job_and_run_it_was_taken_from(sums: Project) -> None:
    first = sums.newest()
    assert sums.run("sums.yaml")["steps"]["reused"] == 3
    steps = told(sums)
    assert {step["state"] for step in steps.values()} == {"reused"}
    (job,) = steps["total"]["jobs"]
    assert (job["reused"], job["run_id"], job["why"]) == (True, first, None)
    assert job["ingredients"] > 3
    out = sums("explain", sums.newest(), "total").out
    assert f"Its result was taken from job {job['job_id']} of run {first}, which ended at " in out
    assert f"All {job['ingredients']} ingredients of its key are equal" in out


def test_a_changed_argument_is_named_with_its_old_and_new_value(sums: Project) -> None:
    before = foreseen(sums, "-p", "count=4")
    assert (before["numbers"]["verdict"], before["numbers"]["why"]) == ("run", "argument count changed: 3 -> 4")
    assert (before["double"]["verdict"], before["double"]["why"]) == ("depends", "depends on numbers")
    assert before["total"]["depends_on"] == ["double"]
    first = sums.newest()
    sums.run("sums.yaml", "-p", "count=4")
    steps = told(sums)
    reason = why(steps["numbers"])
    assert (reason["kind"], reason["earlier_run"]) == ("changed", first)
    (change,) = reason["changes"]
    assert (change["ingredient"], change["text"]) == ("argument:count", "argument count changed")
    assert change["old"].startswith("sha256:")
    assert change["old"] != change["new"]
    assert reason["lines"][-1] == "  - argument count changed: 3 -> 4"
    # Only the new element ran; of the earlier ones each argument differs, so the newest is named.
    assert (steps["double"]["total"], steps["double"]["reused"]) == (4, 3)
    assert why(steps["total"])["lines"][-1] == "  - argument values changed: [0, 2, 4] -> [0, 2, 4, 6]"


def test_a_changed_function_or_name_is_named_and_exactly_what_uses_it_runs(sums: Project) -> None:
    sums.edit("FACTOR = 2", "FACTOR = 3")
    before = foreseen(sums)
    assert before["numbers"]["verdict"] == "reuse"
    assert (before["double"]["verdict"], before["double"]["reused"]) == ("run", 0)
    assert before["double"]["why"] == "all 3: module-level name tasks:FACTOR changed"
    assert [change["ingredient"] for change in before["double"]["changes"]] == ["value:tasks:FACTOR"]
    sums.run("sums.yaml")
    steps = told(sums)
    assert steps["numbers"]["state"] == "reused"
    for place in range(3):
        assert [change["ingredient"] for change in why(steps["double"], place)["changes"]] == ["value:tasks:FACTOR"]
    out = sums("explain", sums.newest()).out
    assert "Elements 0, 1 and 2: done before, and one thing changed since:" in out
    assert "module-level name tasks:FACTOR changed: sha256:" in out
    assert {step["verdict"] for step in foreseen(sums).values()} == {"reuse"}


def test_an_element_of_a_long_list_is_compared_with_the_one_that_had_its_place(project: Project) -> None:
    items = ", ".join(map(str, range(COMPARED_MAX + 6)))
    steps = f"steps: [{{id: far, map: {{n: [{items}]}}, run: {{python: 'far:far', with: {{by: {{$param: by}}}}}}}}]"
    project.write("far.py", "def far(n, by):\n    return n + by\n")
    project.write("far.yaml", f"name: far\nparams: {{by: 1}}\n{steps}\n")
    first = project.run("far.yaml")["run_id"]
    assert foreseen(project, "-p", "by=2", file="far.yaml")["far"]["why"] == (
        f"all {COMPARED_MAX + 6}: argument by changed: 1 -> 2"
    )
    project.run("far.yaml", "-p", "by=2")
    for place in (0, 40, COMPARED_MAX + 5):
        reason = why(told(project, project.newest(), "far")["far"], place)
        assert (reason["kind"], reason["earlier_run"]) == ("changed", first)
        assert reason["lines"][1:] == ["  - argument by changed: 1 -> 2"]


def test_a_job_is_explained_with_the_same_reason(sums: Project) -> None:
    sums.edit("return sum(values)\n\n\ndef wait", "return sum(values) + 1\n\n\ndef wait")
    sums.run("sums.yaml")
    (job,) = told(sums)["total"]["jobs"]
    document = sums.json("explain", job["job_id"])
    assert document["reuse"] == job["why"]
    assert document["reuse"]["changes"][0]["text"] == "function tasks:total changed"
    assert "one thing changed since:" in sums("explain", job["job_id"][:8]).out


def test_work_that_is_never_reused_says_why(project: Project) -> None:
    """X-175, X-176"""
    project.write(
        "never.yaml",
        """\
name: never
steps:
  - {id: shell, run: {shell: "echo hello"}}
  - {id: off, cache: false, run: {python: "tasks:numbers", with: {count: 1}}}
  - {id: unclear, run: {python: "tasks:unclear", with: {n: 1.5}}}
""",
    )
    project.run("never.yaml")
    steps = told(project)
    assert {why(step)["kind"] for step in steps.values()} == {"never"}
    assert "a command that declares no inputs and outputs may depend on anything" in why(steps["shell"])["lines"][0]
    assert "its cache is turned off" in why(steps["off"])["lines"][0]
    unclear = why(steps["unclear"])["lines"][0]
    assert "its code cannot be read completely (" in unclear
    assert "give it a `version`" in unclear
    before = foreseen(project, file="never.yaml")
    assert {step["verdict"] for step in before.values()} == {"run"}
    assert before["off"]["why"] == "done every time: its cache is turned off"


def test_the_same_work_again_says_what_spoke_against_the_earlier_result(sums: Project) -> None:
    first = sums.newest()
    sums.run("sums.yaml", "--force")
    reason = why(told(sums)["total"])
    assert (reason["kind"], reason["earlier_run"]) == ("again", first)
    assert reason["lines"][0].endswith("was the same work and its result was not taken: `--force` asked for it again.")
    for job in sums.json("list", "--jobs"):
        if job["run_id"] != first:
            assert sums("erase", "--job", job["job_id"]).code == 0
    sums.write("fragile.yaml", SUMS.replace("tasks:total", "tasks:fragile").replace("sums", "fragile"))
    sums.run("fragile.yaml", code=1)
    sums.run("fragile.yaml", code=1)
    assert "had failed, and failures are not reused" in why(told(sums)["total"])["lines"][0]
    assert "ended as failed" in foreseen(sums, file="fragile.yaml")["total"]["why"]


def test_outputs_that_are_not_as_they_were_are_told_from_force(project: Project) -> None:
    """Issue 6: the order says which of the two it was; no later guess is needed."""
    project.write("in.txt", "a")
    project.write(
        "copy.yaml",
        "name: copy\nsteps: [{id: copy, run: {shell: cp in.txt out.txt}, inputs: in.txt, outputs: out.txt}]\n",
    )
    project.run("copy.yaml")
    (project.directory / "out.txt").unlink()
    project.run("copy.yaml")
    line = why(told(project)["copy"])["lines"][0]
    assert "its result was not taken: its output out.txt is" in line
    assert "--force" not in line
    project.run("copy.yaml", "--force")
    line = why(told(project)["copy"])["lines"][0]
    assert line.endswith("was not taken: `--force` asked for it again.")


def test_a_run_says_with_which_options_it_was_started(sums: Project) -> None:
    assert sums.json("explain", sums.newest())["options"] == {}
    sums.run("sums.yaml", "--force", "--salt", "secret", "--new")
    newest = sums.newest()
    assert sums.json("explain", newest)["options"] == {"force": True, "salt": True, "new": True}
    assert "It was started with --force: no result that was there before" in sums("explain", newest).out
    shown = sums("show", newest).out
    assert "--force --new --salt" in shown
    assert "secret" not in shown + sums("show", newest, "-o", "json").out


def test_a_result_that_is_gone_is_foreseen_as_a_miss(sums: Project) -> None:
    (job,) = told(sums)["numbers"]["jobs"]
    digest = sums.json("show", job["job_id"])["records"][-1]["evidence"]["detail_digest"]
    assert sums("erase", digest).code == 0
    before = foreseen(sums)
    assert (before["numbers"]["verdict"], before["numbers"]["why"]) == ("run", "its result is gone")
    assert before["double"]["verdict"] == "depends"


def test_failed_skipped_blocked_and_disabled_steps_say_what_became_of_them(project: Project) -> None:
    project.write(
        "mixed.yaml",
        """\
name: mixed
steps:
  - {id: none, run: {python: "tasks:numbers", with: {count: 0}}}
  - {id: each, map: {n: {$from: none}}, run: {python: "tasks:double"}}
  - {id: sum, run: {python: "tasks:total", with: {values: {$from: each}}}}
  - {id: bad, on_error: continue, run: {python: "tasks:fragile", with: {values: {$from: each}}}}
  - {id: after, run: {python: "tasks:double", with: {n: {$from: bad}}}}
  - {id: "off", enabled: false, run: {python: "tasks:numbers", with: {count: 1}}}
""",
    )
    project.run("mixed.yaml", code=1)
    steps = told(project)
    assert {key: step["state"] for key, step in steps.items()} == {
        "none": "succeeded",
        "each": "succeeded",
        "sum": "succeeded",
        "bad": "failed",
        "after": "blocked",
        "off": "skipped",
    }
    assert steps["each"]["lines"] == ["There was nothing to do: its list was empty."]
    assert steps["each"]["total"] == 0
    assert steps["after"]["lines"] == ["It never ran: needs bad, which did not succeed."]
    assert steps["off"]["lines"] == ["It was skipped: disabled."]
    failed = steps["bad"]["lines"][0]
    assert failed.startswith("It failed: ValueError: not yet (USER_CODE_ERROR PYTHON_EXCEPTION), at tasks.py:")
    assert project("explain", project.newest(), "nix").code == 2
    assert "did you mean 'after'?" in project("explain", project.newest(), "aftr").err


def test_a_step_that_failed_before_it_had_a_job_says_why_then_and_later(project: Project) -> None:
    project.write(
        "flat.yaml",
        """\
name: flat
steps:
  - {id: one, run: {python: "tasks:total", with: {values: [1]}}}
  - {id: each, map: {n: {$from: one}}, run: {python: "tasks:double"}}
  - {id: sum, run: {python: "tasks:total", with: {values: {$from: each}}}}
""",
    )
    document = project.run("flat.yaml", code=1)
    (failure,) = document["failures"]
    assert (failure["step"], failure["category"], failure["code"]) == ("each", "VALIDATION_ERROR", "NOT_RUN")
    assert failure["job_id"] is None
    assert [line.split()[1] for line in document["next"]] == ["retry", "verify"]
    steps = told(project)
    assert [step["state"] for step in steps.values()] == ["succeeded", "failed", "skipped"]
    assert steps["each"]["lines"] == ["It failed before it began: what step 'each' goes through is not a list."]
    assert steps["sum"]["lines"] == ["It was skipped: after the failure of each."]


def test_a_mapped_step_names_the_elements_that_failed(project: Project) -> None:
    project.write("some.py", "def some(n):\n    assert n % 2, f'{n} is even'\n    return n\n")
    project.write("some.yaml", "name: some\nsteps:\n  - {id: each, map: {n: [1, 3, 4]}, run: {python: 'some:some'}}\n")
    (failure,) = project.run("some.yaml", code=1)["failures"]
    assert (failure["step"], failure["index"]) == ("each", 2)
    assert told(project)["each"]["lines"][-1] == "Element 2 failed: AssertionError: 4 is even"


def test_a_run_under_way_says_what_runs_and_what_waits(project: Project) -> None:
    project.write(
        "wait.yaml",
        """\
name: wait
steps:
  - {id: wait, run: {python: "tasks:wait"}}
  - {id: after, run: {python: "tasks:double", with: {n: {$from: wait}}}}
""",
    )
    terminal = project.terminal("run", "wait.yaml", "-w", "1")
    project.wait_running()
    run_id = project.newest()
    document = project.json("explain", run_id)
    assert (document["status"], document["driven"]) == ("running", True)
    wait, after = document["steps"]
    assert (wait["state"], after["state"], after["waits_for"]) == ("running", "waiting", ["wait"])
    assert after["lines"] == ["It waits for wait."]
    before = foreseen(project, file="wait.yaml")
    assert (before["wait"]["verdict"], before["after"]["verdict"]) == ("join", "depends")
    terminal.kill()
    assert project.json("explain", run_id)["driven"] is False
    assert "No process is working on it" in project("explain", run_id).out
    plan = project("plan", "wait.yaml").out
    assert f"`detent run` resumes run {run_id}" in plan


def test_cancelled_elements_are_counted(project: Project) -> None:
    project.write("hold.yaml", "name: hold\nsteps: [{id: wait, map: {n: [1, 2]}, run: {python: 'tasks:wait'}}]\n")
    terminal = project.terminal("run", "hold.yaml", "-w", "1")
    project.wait_running()
    run_id = project.newest()
    assert told(project)["wait"]["lines"][0] == "2 of 2 elements: 1 under way, 1 waiting."
    assert project("cancel", run_id).code == 0
    assert terminal.ended().code == 130
    assert told(project)["wait"]["lines"][0] == "2 of 2 elements: 2 cancelled."


def test_a_step_whose_job_waits_says_so(project: Project) -> None:
    steps = "{id: a, run: {python: 'tasks:wait'}}, {id: b, run: {python: 'tasks:double', with: {n: 1}}}"
    project.write("two.yaml", f"name: two\nsteps: [{steps}]\n")
    terminal = project.terminal("run", "two.yaml", "-w", "1")
    project.wait_running()
    first, second = (step["lines"][0] for step in told(project).values())
    assert first.startswith("It is under way: `detent explain ")
    assert second.startswith("It waits for its turn: `detent explain ")
    project.release()
    assert terminal.ended().code == 0


def test_a_plan_looks_and_leaves_no_trace(sums: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def files() -> dict[str, bytes]:
        found = (path for path in sums.home.path.rglob("*") if path.is_file() and path.suffix != ".db-shm")
        return {str(path): path.read_bytes() for path in found}

    before = files()
    assert "now     3 reused" in sums("plan", "sums.yaml").out
    assert files() == before
    nowhere = sums.directory / "nowhere"
    monkeypatch.setenv("DETENT_HOME", str(nowhere))
    document = sums.json("plan", "sums.yaml")
    assert (document["home"], document["steps"][0]["foreseen"]) == (None, None)
    assert not nowhere.exists()
    assert sums("plan", "sums.yaml", "--home", str(nowhere)).code == 2


def test_a_plan_with_a_parameter_that_has_no_value_tells_the_rest(project: Project) -> None:
    project.write("sums.yaml", SUMS.replace("type: integer, default: 3", "type: integer"))
    project.run("sums.yaml", "-p", "count=3")
    before = foreseen(project)
    assert (before["numbers"]["verdict"], before["numbers"]["why"]) == ("unknown", "needs a value for count")
    assert before["double"]["verdict"] == "depends"
    assert {step["verdict"] for step in foreseen(project, "-p", "count=3").values()} == {"reuse"}


def test_a_home_that_cannot_be_read_is_no_reason_not_to_plan(sums: Project) -> None:
    sums.checked = False
    (sums.home.path / "ledger.db").write_bytes(b"no database")
    result = sums("plan", "sums.yaml")
    assert result.code == 0
    assert "cannot tell what would be reused" in result.err
    assert "numbers" in result.out
