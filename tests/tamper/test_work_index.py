"""Tampering with the index of equal work: unsigned rows may send a run looking in the wrong place, never give it a wrong result.

Each attack edits `ledger.db` between two runs of the same contract, as a user with the file and without a key can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import pytest

from detent.canon import decode
from detent.kernel import Job
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

TWO = """
name: two
steps:
  - {id: small, run: {python: "tasks:double", with: {n: 1}}}
  - {id: large, run: {python: "tasks:double", with: {n: 1000}}}
result: {small: {$from: small}, large: {$from: large}}
"""
SHELL = """
name: shell
steps:
  - {id: made, run: {shell: "echo 1 > made.txt"}, inputs: [], outputs: {made: made.txt}}
"""
EXPECTED = {"small": 2, "large": 2000}


def swap_keys(database: apsw.Connection) -> None:
    """Exchange the keys and the labels of the two rows."""
    (first, *theirs), (second, *ours) = database.execute("SELECT job_no, execution_key, label FROM work").fetchall()
    for job_no, values in ((first, ours), (second, theirs)):
        database.execute("UPDATE work SET execution_key = ?, label = ? WHERE job_no = ?", (*values, job_no))


def edit(project: Project, change: str | Callable[[apsw.Connection], object]) -> None:
    """Change the database behind Detent's back."""
    connection = apsw.Connection(str(project.home.ledger))
    try:
        if isinstance(change, str):
            connection.execute(change)
        else:
            change(connection)
    finally:
        connection.close()


def codes(project: Project, code: int = 1) -> set[str]:
    """The codes that `detent verify` finds."""
    return {finding["code"] for finding in project.json("verify", code=code)["findings"]}


def result(project: Project, *arguments: str) -> Any:
    return project.run("two.yaml", *arguments)["result"]


@pytest.fixture
def done(project: Project) -> Project:
    """A project whose two steps have been done once."""
    project.write("two.yaml", TWO)
    project.checked = False
    assert result(project) == EXPECTED
    return project


def test_swapped_keys_and_labels_give_no_step_the_result_of_another(done: Project) -> None:
    """X-196, X-148: the work is done again, the reason is said, and `verify` finds the rows."""
    edit(done, swap_keys)
    assert codes(done) == {"WORK_INDEX_WRONG"}
    assert result(done) == EXPECTED
    told = done("explain", "two").out
    assert "index of work" in told
    assert "detent verify" in told
    assert done.json("replay")["ok"]


def test_a_plan_does_not_promise_the_result_of_another_step(done: Project) -> None:
    """X-196: `detent plan` asks the index as a run does."""
    edit(done, swap_keys)
    shown = done("plan", "two.yaml").out
    assert "which was asked to do something else" in " ".join(shown.split())


def test_a_job_row_that_names_another_payload_gives_no_step_a_wrong_result(done: Project) -> None:
    """X-196: a job's row is not signed either; the manifest that its submitter signed says what it was asked."""

    def swap(database: apsw.Connection) -> None:
        swap_keys(database)
        rows: list[Any] = database.execute("SELECT job_no, body FROM jobs").fetchall()
        (first, one), (second, two) = rows
        jobs = Job.decode(one), Job.decode(two)
        jobs[0].payload_digest, jobs[1].payload_digest = jobs[1].payload_digest, jobs[0].payload_digest
        for job_no, job in zip((first, second), jobs, strict=True):
            database.execute("UPDATE jobs SET body = ? WHERE job_no = ?", (job.encode(), job_no))
            database.execute("UPDATE work SET payload_digest = ? WHERE job_no = ?", (job.payload_digest, job_no))

    edit(done, swap)
    assert result(done) == EXPECTED
    assert "FOLD_DIFFERS" in codes(done)


def test_a_wrong_result_on_the_ledger_is_found_even_when_the_rows_are_put_back(
    done: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-196: what a step took is compared with what the job was asked, whatever the index says by then."""
    edit(done, swap_keys)
    with monkeypatch.context() as older:
        older.setattr("detent.reuse.work_keys.is_same_work", lambda *_: True)
        assert result(done) == {"small": 2000, "large": 2}
    edit(done, swap_keys)
    found = done.json("verify", code=1)["findings"]
    assert {finding["code"] for finding in found} == {"REUSE_MISMATCH"}
    assert len(found) == 2
    assert all(finding["position"] is not None for finding in found)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE names SET name = 'two/other' WHERE name = 'two/small'", "label"),
        ("UPDATE names SET workspace = 'other' WHERE name = 'two/small'", "workspace"),
        ("UPDATE job_labels SET pool_no = label_no WHERE job_no = 1", "pool"),
        ("UPDATE job_labels SET payload_mark = zeroblob(8) WHERE job_no = 1", "payload_mark"),
        ("DELETE FROM names WHERE name = 'two/small'", "label"),
    ],
)
def test_a_job_that_is_listed_otherwise_than_it_was_submitted_is_found(done: Project, change: str, named: str) -> None:
    """X-196"""
    edit(done, change)
    (finding,) = done.json("verify", code=1)["findings"]
    assert finding["code"] == "LABEL_WRONG"
    assert named in finding["message"]


def test_a_job_that_was_taken_off_the_list_is_counted(done: Project) -> None:
    """X-196: older jobs have no label, so a missing one proves nothing."""
    edit(done, "DELETE FROM job_labels WHERE job_no = 1")
    assert any("lists by label and by pool (1)" in line for line in done.json("verify")["not_proved"])


def test_a_label_that_outlives_its_payload_is_found(done: Project) -> None:
    """X-171"""
    kept: list[Any] = []
    edit(done, lambda database: kept.extend(database.execute("SELECT * FROM job_labels WHERE job_no = 1").fetchall()))
    (row,) = done.json("list", "--label", "two/small")
    done("erase", "--job", row["job_id"])
    assert done.json("list", "--label", "two/small") == []
    edit(done, lambda database: database.execute("INSERT INTO job_labels VALUES (?, ?, ?, ?)", kept[0]))
    assert codes(done) == {"LABEL_WRONG"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("execution_key", "zeroblob(32)"),
        ("label", "'two/other'"),
        ("workspace", "'other'"),
        ("payload_digest", "zeroblob(32)"),
    ],
)
def test_every_column_of_the_work_index_is_compared(done: Project, column: str, value: str) -> None:
    """X-196: the row is derived from the job's signed payload."""
    edit(done, f"UPDATE work SET {column} = {value} WHERE job_no = 1")
    (finding,) = done.json("verify", code=1)["findings"]
    assert finding["code"] == "WORK_INDEX_WRONG"
    assert column in finding["message"]
    assert result(done) == EXPECTED


def test_force_goes_by_the_job_and_not_by_the_tick_in_the_index(done: Project) -> None:
    """X-196: a row that claims to be younger than the run is not taken under `--force`; the tick of a row decides nothing."""
    edit(done, "UPDATE work SET tick = 1 << 60")
    assert codes(done, code=0) == set()
    forced = done.run("two.yaml", "--force")
    assert forced["steps"]["reused"] == 0, forced["steps"]


def test_the_deleted_payload_of_work_in_the_index_is_found(done: Project) -> None:
    """X-196: it was stored with the row; only an erasure on the ledger explains that it is gone."""
    edit(done, "DELETE FROM content WHERE digest = (SELECT payload_digest FROM work WHERE job_no = 1)")
    (finding,) = done.json("verify", code=1)["findings"]
    assert finding["code"] == "CONTENT_MISSING"
    assert finding["job_id"] is not None


def test_a_deleted_row_of_the_work_index_is_found(done: Project) -> None:
    """X-196: the signed payload has a key, so there was a row; without it `explain` names no earlier job."""
    edit(done, "DELETE FROM work WHERE job_no = 1")
    (finding,) = done.json("verify", code=1)["findings"]
    assert finding["code"] == "WORK_INDEX_WRONG"
    assert "its row is missing" in finding["message"]
    assert finding["job_id"] is not None


def test_a_row_deleted_together_with_its_payload_is_found(done: Project) -> None:
    """X-196: the row used to be what the payload was asked for by."""
    edit(done, "DELETE FROM content WHERE digest = (SELECT payload_digest FROM work WHERE job_no = 1)")
    edit(done, "DELETE FROM work WHERE job_no = 1")
    (finding,) = done.json("verify", code=1)["findings"]
    assert finding["code"] == "CONTENT_MISSING"
    assert "the payload" in finding["message"]


def test_reused_ingredients_deleted_together_with_the_index_are_found(done: Project) -> None:
    """X-196"""
    assert result(done) == EXPECTED
    edit(done, swap_to_nothing)
    assert codes(done) == {"CONTENT_MISSING", "WORK_INDEX_WRONG"}


def swap_to_nothing(database: apsw.Connection) -> None:
    """Delete the index, and what the reuses name."""
    named = [
        decode(body)["ingredients_digest"]
        for (body,) in database.execute("SELECT body FROM records WHERE kind IN ('step_reused', 'run_reused')")
    ]
    assert named
    database.executemany("DELETE FROM content WHERE digest = ?", ((digest,) for digest in named))
    database.execute("DELETE FROM work")


def test_commands_that_may_or_may_not_belong_in_the_index_are_counted(project: Project) -> None:
    """X-196: a payload does not say whether its command declared that it reads no file."""
    project.write("shell.yaml", SHELL)
    project.checked = False
    project.run("shell.yaml")
    assert not any("belong in the index" in sentence for sentence in project.json("verify")["not_proved"])
    edit(project, "DELETE FROM work")
    report = project.json("verify")
    assert any("which their payloads do not say (1)" in sentence for sentence in report["not_proved"])


def test_the_name_of_erased_work_is_said_not_to_be_proved(done: Project) -> None:
    """X-196, X-171: the payload that would show it is gone."""
    (job,) = [job for job in done.json("list", "--jobs") if "small" in str(job)]
    assert done("erase", "--job", job["job_id"], "--yes").code == 0
    edit(done, "UPDATE work SET label = 'two/other' WHERE execution_key = payload_digest")
    report = done.json("verify")
    assert any(
        "The names of work in the index whose payloads were erased (1)" in sentence for sentence in report["not_proved"]
    )
    edit(done, "UPDATE work SET execution_key = zeroblob(32) WHERE execution_key = payload_digest")
    assert codes(done) == {"WORK_INDEX_WRONG"}
