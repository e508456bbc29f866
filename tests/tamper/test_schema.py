"""A changed schema of `ledger.db`: no command works on it, `verify` and `doctor` name the object, and dropping it mends the home.

A trigger that was planted in the file acts with the rights of the next process that writes to it.
"""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from detent.errors import StoreCorrupt
from detent.store.sqlite import SqliteStore, schema_check
from tests.cli.project import Project, detent_home, project

__all__ = ["detent_home", "project"]

ONE = """
name: one
steps:
  - {id: small, run: {python: "tasks:double", with: {n: 1}}}
"""
TRIGGER = "CREATE TRIGGER planted AFTER INSERT ON content BEGIN DELETE FROM work; END"
PLANTED = [
    (TRIGGER, "the trigger 'planted' is not of its schema"),
    ("CREATE TRIGGER sqliteXstat1 AFTER INSERT ON work BEGIN DELETE FROM work; END", "the trigger 'sqliteXstat1'"),
    ("CREATE VIEW planted AS SELECT 1", "the view 'planted' is not of its schema"),
    ("CREATE TABLE planted (a)", "the table 'planted' is not of its schema"),
    ("CREATE INDEX planted ON jobs (tick)", "the index 'planted' is not of its schema"),
    ("DROP INDEX work_by_key", "the index 'work_by_key' is missing"),
    ("DROP TABLE refusals", "the table 'refusals' is missing"),
    ("DROP TRIGGER records_are_never_deleted", "the trigger 'records_are_never_deleted' is missing"),
    ("ALTER TABLE refusals ADD COLUMN planted TEXT", "the table 'refusals' was changed"),
]


def edit(project: Project, statement: str) -> None:
    connection = apsw.Connection(str(project.home.ledger))
    connection.execute(statement)
    connection.close()


@pytest.fixture
def done(project: Project) -> Project:
    project.write("one.yaml", ONE)
    project.checked = False
    project.run("one.yaml")
    return project


@pytest.mark.parametrize(("statement", "told"), PLANTED)
def test_verify_and_doctor_name_a_changed_object_of_the_schema(done: Project, statement: str, told: str) -> None:
    """X-196"""
    edit(done, statement)
    report = done.json("verify", code=1)
    assert any(finding["code"] == "SCHEMA_CHANGED" and told in finding["message"] for finding in report["findings"])
    checks = done.json("doctor", "--quick", code=1)["checks"]
    (schema,) = [check for check in checks if check["name"] == "schema"]
    assert schema["status"] == "wrong"
    assert told in schema["text"]
    assert schema["hint"]


@pytest.mark.parametrize(("statement", "told"), PLANTED)
def test_no_command_works_on_a_changed_schema(done: Project, statement: str, told: str) -> None:
    """X-196: neither one that writes, for which a trigger would act, nor one that reads."""
    edit(done, statement)
    for words in (
        ["run", "one.yaml"],
        ["list"],
        ["show", "one"],
        ["explain", "one"],
        ["export", "--output", "x.detent"],
        ["gc"],
        ["keys"],
    ):
        refused = done(*words)
        assert refused.code == 4, words
        assert "STORE_CORRUPT" in refused.err, words
        assert told in refused.err, words
        assert "detent verify" in refused.err


def test_an_owner_refuses_a_changed_schema_by_itself(done: Project) -> None:
    """X-196: commands look at the home first; the owner does not rely on that."""
    edit(done, TRIGGER)
    with pytest.raises(StoreCorrupt, match="planted"):
        SqliteStore.open(done.home.ledger_file)


def test_a_home_opens_again_when_the_planted_object_is_dropped(done: Project) -> None:
    """X-196"""
    edit(done, TRIGGER)
    assert done("run", "one.yaml").code == 4
    edit(done, "DROP TRIGGER planted")
    done.run("one.yaml")
    assert done.json("verify")["ok"]


def test_statistics_of_the_query_planner_are_not_a_changed_schema(done: Project) -> None:
    """`ANALYZE` in another tool defines nothing: SQLite keeps its counts in tables of its own."""
    edit(done, "ANALYZE")
    done.run("one.yaml")
    assert done.json("verify")["ok"]
    assert done.json("doctor", "--quick")["ok"]


def test_the_digest_of_each_version_is_that_of_its_migrations() -> None:
    """Comparing a digest spares each opening building the schema; this is what keeps the list true."""
    versions = range(len(schema_check.migrations()) + 1)
    made = [schema_check.digest_of(schema_check.objects_of(version)) for version in versions]
    assert made == list(schema_check.DIGESTS)


def test_the_threat_model_says_of_every_table_what_holds_it() -> None:
    """X-196: a table that is added is derived and compared, listed under "not proved", or harmless by construction."""
    page = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text()
    tables = {name for kind, name in schema_check.objects_of(len(schema_check.migrations())) if kind == "table"}
    assert {name for name in tables if f"`{name}`" not in page} == set()
