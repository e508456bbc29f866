"""Mapped steps whose elements share jobs: each element has its outcome, retries, log, reuse and proof, as if it had a job of its own."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import apsw
import pytest

from detent.canon import decode
from detent.store.sqlite import SqliteStore
from tests.cli.project import Project, detent_home, eventually, project

__all__ = ["detent_home", "project"]

FUNCTIONS = """
import os
from pathlib import Path

def listed(n):
    return list(range(n))

def double(n):
    return 2 * n

def total(values):
    return sum(values)

def odd(n):
    if n in (7, 30):
        raise ValueError(f"{n} does not fit")
    print("seen", n)
    return n

def held(n):
    # Tell which element is at work; the thirteenth waits to be let go, the first time.
    with open("seen.txt", "a") as file:
        file.write(f"{n}\\n")
    if n == 13 and not Path("go").exists():
        with open("running", "w") as file:
            file.write(str(os.getpid()))
        with open("release") as file:
            file.read()
    return n

def mended(n):
    flag = Path(f"tried-{n}")
    if n % 10 == 3 and not flag.exists():
        flag.touch()
        raise OSError("busy")
    return n
"""
MAPPED = """
name: mapped
params: {{count: {{type: integer, default: 40}}}}
steps:
  - {{id: listed, run: {{python: "arrayed:listed", with: {{n: {{$param: count}}}}}}}}
  - {{id: each, run: {{python: "arrayed:{function}"}}, map: {{n: {{$from: listed}}}}, chunk: 10{more}}}
  - {{id: total, run: {{python: "arrayed:total", with: {{values: {{$from: each}}}}}}}}
result: {{$from: total}}
"""


@pytest.fixture
def arrayed(project: Project) -> Project:
    """A project with functions to map, four arrays of ten elements each."""
    project.write("arrayed.py", FUNCTIONS)
    return project


def write(project: Project, function: str, more: str = "") -> None:
    project.write("mapped.yaml", MAPPED.format(function=function, more=more))


def elements(project: Project, step: str = "each") -> list[dict[str, object]]:
    """What `show` says of each element of the newest run."""
    (found,) = [one for one in project.json("show", "mapped")["step_list"] if one["step"] == step]
    return list(found["jobs"])


def done(project: Project) -> int:
    """How many elements have succeeded."""
    return sum(one["state"] == "succeeded" for one in elements(project))


def test_elements_share_jobs_and_have_results_of_their_own(arrayed: Project) -> None:
    """X-185: four jobs for forty elements, and the next step is given forty results."""
    write(arrayed, "double")
    shown = arrayed.run("mapped.yaml")
    assert shown["result"] == 2 * sum(range(40))
    found = elements(arrayed)
    assert [one["index"] for one in found] == list(range(40))
    assert {one["state"] for one in found} == {"succeeded"}
    assert len({str(one["job_id"]).rpartition(".")[0] for one in found}) == 4
    assert len(arrayed.json("list", "--jobs")) == 6


def test_an_element_of_an_array_is_reused_by_itself(arrayed: Project) -> None:
    """X-148: more items, and only the new ones run; the plan, the record and `show` name the element."""
    write(arrayed, "double")
    arrayed.run("mapped.yaml")
    before = {one["index"]: one["job_id"] for one in elements(arrayed)}
    again = arrayed.run("mapped.yaml", "-p", "count=41")
    assert again["result"] == 2 * sum(range(41))
    found = elements(arrayed)
    assert [one["job_id"] for one in found if one["reused"]] == [before[index] for index in range(40)]
    assert [one["index"] for one in found if not one["reused"]] == [40]
    assert arrayed.json("verify")["ok"]
    assert arrayed.json("replay")["ok"]


def test_elements_that_fail_leave_the_results_of_the_others(arrayed: Project) -> None:
    """X-154, X-149: two of forty fail; a retry runs these two and takes the others from arrays that failed."""
    write(arrayed, "odd")
    failed = arrayed.run("mapped.yaml", code=1)
    assert failed["status"] == "failed"
    states = {one["index"]: one["state"] for one in elements(arrayed)}
    assert {index for index, state in states.items() if state == "failed"} == {7, 30}
    assert sum(state == "succeeded" for state in states.values()) == 38
    assert "7 does not fit" in arrayed("show", "mapped").out
    arrayed.write("arrayed.py", FUNCTIONS)  # The same code: what succeeded is taken over.
    assert arrayed("retry", str(failed["run_id"])).code == 1
    found = elements(arrayed)
    assert sum(bool(one["reused"]) for one in found) == 38
    assert {one["index"] for one in found if one["state"] == "failed"} == {7, 30}
    assert arrayed.json("verify")["ok"]


def test_elements_that_are_retried_do_not_run_their_neighbours_again(arrayed: Project) -> None:
    """X-164: four elements fail once; each attempt at an array runs only what is left of it."""
    write(arrayed, "mended", ", retry: {max: 2, on: [USER_CODE_ERROR]}")
    shown = arrayed.run("mapped.yaml")
    assert shown["result"] == sum(range(40))
    assert {one["state"] for one in elements(arrayed)} == {"succeeded"}
    assert arrayed.json("verify")["ok"]


def test_chunk_one_gives_each_element_a_job(arrayed: Project) -> None:
    arrayed.write("mapped.yaml", MAPPED.format(function="double", more="").replace("chunk: 10", "chunk: 1"))
    arrayed.run("mapped.yaml", "-p", "count=12")
    assert len({one["job_id"] for one in elements(arrayed)}) == 12
    assert not any("." in str(one["job_id"]) for one in elements(arrayed))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{id: a, run: {python: "arrayed:double", with: {n: 1}}, chunk: 5}',
            "chunk means nothing in a step without map",
        ),
        ('{id: a, run: {python: "arrayed:double"}, map: {n: [1]}, chunk: 0}', "from 1 to 1,000"),
        ('{id: a, run: {shell: "echo $n"}, map: {n: [1]}, chunk: 5}', "cannot share a job"),
        ('{id: a, run: {python: "arrayed:double"}, map: {n: [1]}, chunk: 5, timeout: 5s}', "cannot have timeout"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused_with_its_line(arrayed: Project, line: str, message: str) -> None:
    arrayed.write("mapped.yaml", f"name: mapped\nsteps:\n  - {line}\n")
    refused = arrayed("validate", "mapped.yaml")
    assert refused.code == 2
    assert message in " ".join((refused.out + refused.err).split())
    assert "mapped.yaml:3" in refused.out + refused.err


def test_a_killed_run_goes_on_with_the_elements_that_have_no_outcome(arrayed: Project) -> None:
    """X-174: the driver and its workers are killed inside the second array; the first is not computed again, and no element is lost."""
    write(arrayed, "held")
    driver = arrayed.terminal("run", "mapped.yaml", "--workers", "1")
    arrayed.wait_running()
    eventually(lambda: done(arrayed) >= 10, "the first array is not reported")
    driver.kill()
    arrayed.write("go", "")
    shown = arrayed.run("mapped.yaml")
    assert shown["result"] == sum(range(40))
    seen = [int(line) for line in (arrayed.directory / "seen.txt").read_text().splitlines()]
    assert set(seen) == set(range(40))
    assert {number for number in seen if seen.count(number) > 1} <= set(range(10, 20))
    assert len(arrayed.json("list")) == 1
    assert arrayed.json("verify")["ok"]


def test_a_cancelled_run_ends_with_its_arrays(arrayed: Project) -> None:
    """X-193: from another terminal; what had ended stays, and the next run takes it."""
    write(arrayed, "held")
    driver = arrayed.terminal("run", "mapped.yaml", "--workers", "1")
    arrayed.wait_running()
    eventually(lambda: done(arrayed) >= 10, "the first array is not reported")
    assert arrayed("cancel", "mapped").code == 0
    assert driver.ended().code != 0
    states = {one["index"]: one["state"] for one in elements(arrayed)}
    assert {states[index] for index in range(10)} == {"succeeded"}
    assert states[13] == "cancelled"
    arrayed.write("go", "")
    shown = arrayed.run("mapped.yaml")
    assert shown["result"] == sum(range(40))
    assert sum(bool(one["reused"]) for one in elements(arrayed)) == 10


def test_a_run_with_arrays_is_exported_and_erased(arrayed: Project) -> None:
    """X-171: its bundle verifies by itself; after the erasure nothing is reused, and the history verifies."""
    write(arrayed, "double")
    run_id = str(arrayed.run("mapped.yaml")["run_id"])
    root = arrayed.json("export", run_id, "--output", "run.detent")["root"]
    assert arrayed.json("verify", "run.detent", "--root", root)["ok"]
    assert arrayed("erase", "--run", run_id, "--yes").code == 0
    assert arrayed.run("mapped.yaml")["steps"]["reused"] == 0
    assert not any(one["reused"] for one in elements(arrayed))
    assert arrayed.json("verify")["ok"]


def test_explain_and_plan_name_the_element_of_an_array(arrayed: Project) -> None:
    write(arrayed, "odd")
    arrayed.run("mapped.yaml", code=1)
    (failed,) = [str(one["job_id"]) for one in elements(arrayed) if one["index"] == 7]
    assert f"job {failed} of the same work ended as failed" in " ".join(arrayed("plan", "mapped.yaml").out.split())
    again = arrayed("run", "mapped.yaml", "--force")
    assert "at arrayed.py" in again.out + again.err  # The line of the user's own code, for an element as for a job.
    assert "was the same work and its result was not taken" in " ".join(arrayed("explain", "mapped").out.split())


def edit(project: Project, change: str) -> None:
    connection = apsw.Connection(str(project.home.ledger))
    try:
        connection.execute(change)
    finally:
        connection.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE work_elements SET element = 1000 - element",
        "UPDATE work_elements SET execution_key = zeroblob(32) WHERE element = 3",
        "DELETE FROM work_elements WHERE element = 3",
    ],
)
def test_keys_of_elements_that_were_changed_are_found_and_give_no_wrong_result(arrayed: Project, change: str) -> None:
    """X-196: the index is not signed; the array's signed payload decides."""
    write(arrayed, "double")
    arrayed.run("mapped.yaml")
    arrayed.checked = False
    edit(arrayed, change)
    assert {one["code"] for one in arrayed.json("verify", code=1)["findings"]} == {"WORK_INDEX_WRONG"}
    assert arrayed.run("mapped.yaml")["result"] == 2 * sum(range(40))


def reuse_records(project: Project, run_id: str) -> list[dict[str, Any]]:
    """How a run says what it took."""
    with closing(SqliteStore.open_reader(project.home.ledger_file)) as reader:
        bodies = [decode(row.body) for row in reader.records_of_run(run_id)]
    return [body for body in bodies if isinstance(body, dict) and body["kind"] in {"run_reused", "step_reused"}]


def test_a_run_with_arrays_that_is_repeated_is_named_once(arrayed: Project) -> None:
    """X-167: one record for 42 results; every command tells each element from the array that did it."""
    write(arrayed, "double")
    first = arrayed.run("mapped.yaml")["run_id"]
    before = [one["job_id"] for one in elements(arrayed)]
    second = arrayed.run("mapped.yaml")
    (said,) = reuse_records(arrayed, second["run_id"])
    assert (said["kind"], said["reused_run_id"], said["except_steps"]) == ("run_reused", first, [])
    assert said["steps_reused"] == 6, "four arrays and two steps of their own"
    assert f"6 jobs of run {first}" in arrayed("show", second["run_id"]).out
    found = elements(arrayed)
    assert [one["job_id"] for one in found] == before
    assert all(one["reused"] for one in found)
    assert second["steps"]["reused"] == 3
    assert arrayed.json("show", second["run_id"])["steps_reused"] == 3
    assert f"job {before[0]} of run {first}" in arrayed("explain", second["run_id"], "each").out
    assert len(arrayed.json("list", "--jobs")) == 6
    third = arrayed.run("mapped.yaml")["run_id"]
    assert [record["reused_run_id"] for record in reuse_records(arrayed, third)] == [first]
    assert arrayed.json("retry", second["run_id"])["retried"] is False
    assert arrayed.json("verify")["ok"]
    assert arrayed.json("replay")["ok"]


def test_an_array_of_which_one_element_changed_is_an_exception(arrayed: Project) -> None:
    """Its other elements are recorded one by one, and what ran is told as such; a repetition names the original again."""
    write(arrayed, "double")
    first = arrayed.run("mapped.yaml")["run_id"]
    before = [one["job_id"] for one in elements(arrayed)]
    arrayed.write("arrayed.py", FUNCTIONS.replace("list(range(n))", "[99 if x == 17 else x for x in range(n)]"))
    run_id = arrayed.run("mapped.yaml")["run_id"]
    whole, *single = reuse_records(arrayed, run_id)
    assert (whole["kind"], whole["reused_run_id"]) == ("run_reused", first)
    assert len(whole["except_steps"]) == 3, "listed, the array that begins with the eleventh element, and total"
    assert [name.rpartition("[")[2] for name in whole["except_steps"] if "[" in name] == ["10]"]
    assert {record["element"] for record in single} == set(range(10)) - {7}
    found = elements(arrayed)
    assert [one["index"] for one in found if not one["reused"]] == [17]
    assert [one["job_id"] for one in found if one["reused"]] == [*before[:17], *before[18:]]
    assert arrayed.json("verify")["ok"]
    assert arrayed.json("replay")["ok"]
    again = arrayed.run("mapped.yaml")["run_id"]
    assert reuse_records(arrayed, again)[0]["reused_run_id"] == first
    assert all(one["reused"] for one in elements(arrayed))
    assert arrayed.json("verify")["ok"]


def test_a_longer_list_is_not_told_as_part_of_an_earlier_array(arrayed: Project) -> None:
    write(arrayed, "double")
    first = arrayed.run("mapped.yaml")["run_id"]
    run_id = arrayed.run("mapped.yaml", "-p", "count=41")["run_id"]
    assert reuse_records(arrayed, run_id)[0]["reused_run_id"] == first
    assert [one["index"] for one in elements(arrayed) if not one["reused"]] == [40]
    shorter = arrayed.run("mapped.yaml", "-p", "count=25")
    assert shorter["result"] == 2 * sum(range(25))
    assert [one["reused"] for one in elements(arrayed)] == [True] * 25
    assert arrayed.json("verify")["ok"]


def test_a_reused_run_is_told_when_the_earlier_one_was_erased(arrayed: Project) -> None:
    """X-171: the orders of the arrays are gone, and with them which elements the last one had."""
    write(arrayed, "double")
    first = arrayed.run("mapped.yaml")["run_id"]
    before = [one["job_id"] for one in elements(arrayed)]
    second = arrayed.run("mapped.yaml")["run_id"]
    assert arrayed("erase", "--run", first, "--yes").code == 0
    shown = arrayed.json("show", second)["step_list"]
    assert {step["step"]: step["state"] for step in shown} == {"listed": "reused", "each": "reused", "total": "reused"}
    found = elements(arrayed)
    assert [one["job_id"] for one in found] == before[:31]
    assert all(one["reused"] for one in found)
    assert arrayed.json("verify")["ok"]
