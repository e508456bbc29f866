"""The schema is the sum of its migrations, and no hot query reads more the longer the history is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import apsw
import pytest

from detent.errors import InvariantBroken, StoreUnavailable
from detent.store import checks
from detent.store.api import ANSWER_BYTES_MAX
from detent.store.sqlite import SqliteStore, database, schema_check, store
from tests.store.rows import Writer, everything

NOT_PLANNED = {"begin_write", "begin_read", "commit", "rollback"}

READ_THROUGH = {
    # Not asked while a job is on its way, and the answer itself is as long as what is read.
    "records_of_common_kind": "SEARCH records USING INTEGER PRIMARY KEY",
    "job_heads": "SCAN job_names USING COVERING INDEX",
    "job_counts": "SCAN jobs USING COVERING INDEX jobs_by_state",
    "content_digests": "SCAN content USING INDEX",
    "erased_digests": "SCAN content USING INDEX content_erased",
    "work_rows": "SCAN work",
    "label_rows": "SCAN job_labels",
    "work_element_rows": "SCAN work_elements USING COVERING INDEX work_elements_by_job",
    "jobs_outside_work": "SCAN jobs",
    "tenant_job_counts": "SCAN jobs",
    "tenant_run_counts": "SCAN runs USING COVERING INDEX runs_by_tenant_status",
    "answer_rows": "SCAN answers",
    # Stops after as many rows as were asked for.
    "runs": "SCAN runs USING INDEX runs_by_start",
    "recent_jobs": "SCAN jobs",
    # As long as its answer: the index holds nothing else.
    "runs_open": "SCAN runs USING INDEX runs_open",
    # Bounded: one row, and the newest 10,000 refusals.
    "ledger": "SCAN ledger",
    "schema_objects": "SCAN sqlite_schema",
    "refusals": "SCAN refusals",
    "whole_answers": "SCAN answers",  # Read when content is erased, which is rare.
    "answered_jobs": "SCAN answers",  # Bounded: at most ANSWERS_KEPT_MAX of them.
}
"""Queries that read a whole table or index, each with the plan it must have."""

BOUNDED_SORTS = {
    "records_of_job",
    "work_of_keys",
    "work_of_keys_in_elements",
    "jobs_in_state",
    "jobs_of_run",
    "job_heads_of_run",
    "tenant_job_counts",
}
"""Queries that sort what they found: one job's records, one run's jobs, the jobs of some keys or in a state where few stand."""


@pytest.fixture(scope="module")
def plans() -> dict[str, list[str]]:
    connection = apsw.Connection(":memory:")
    connection.execute(schema_check.schema())
    found = {}
    for name, statement in schema_check.queries().items():
        if name not in NOT_PLANNED:
            count = max((int(number) for number in re.findall(r"\?(\d+)", statement)), default=0)
            rows = connection.execute("EXPLAIN QUERY PLAN " + statement, (None,) * count)
            found[name] = [row[3] for row in rows]
    return found


def objects(connection: apsw.Connection) -> list[tuple[object, ...]]:
    return list(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"))


def test_the_schema_is_the_sum_of_its_migrations() -> None:
    whole, grown = apsw.Connection(":memory:"), apsw.Connection(":memory:")
    whole.execute(schema_check.schema())
    for script in schema_check.migrations():
        grown.execute(script)
    assert objects(whole) == objects(grown)
    assert len(objects(whole)) > 20


def test_every_table_is_strict() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(schema_check.schema())
    tables = list(connection.execute("SELECT name, strict FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%'"))
    assert len(tables) >= 10
    assert [name for name, strict in tables if not strict] == []


def test_the_schemas_numbers_are_those_of_the_code() -> None:
    text = schema_check.schema()
    assert f"BETWEEN 1 AND {checks.PARTITIONS_MAX}" in text
    assert f"BETWEEN 1 AND {checks.RECORD_BYTES_MAX}" in text
    assert f"length(bytes) <= {16 * 1024}" in text
    assert f"length(response) <= {ANSWER_BYTES_MAX}" in text
    assert set(re.findall(r"state = '(\w+)'", text)) == checks.JOB_STATES
    assert f">> {checks.POSITION_BITS}" in text
    assert (1 << checks.POSITION_BITS) - 1 == 0xFFFFFFFFFF
    assert "0xFFFFFFFFFF" in text


@pytest.mark.parametrize(
    "name",
    [
        "insert_batch",
        "insert_job_name",
        "insert_record",
        "insert_job",
        "update_job",
        "upsert_run",
        "insert_work",
        "insert_label",
    ],
)
def test_no_row_of_a_commit_is_written_by_way_of_a_temporary_table(name: str) -> None:
    """A list of more than two values in a CHECK is one: SQLite builds it anew for every row."""
    connection = apsw.Connection(":memory:")
    connection.execute(schema_check.schema())
    sql = schema_check.queries()[name]
    values = (1,) * max(int(number) for number in re.findall(r"\?(\d+)", sql))
    assert "OpenEphemeral" not in [row[1] for row in connection.execute(f"EXPLAIN {sql}", values)]


def test_no_hot_query_scans_what_grows_with_history(plans: dict[str, list[str]]) -> None:
    for name, plan in plans.items():
        if name in READ_THROUGH:
            assert READ_THROUGH[name] in " / ".join(plan), name
        else:
            scans = [step for step in plan if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"]
            # What was asked for stands in a list, and is gone through.
            assert not [step for step in scans if not step.startswith("SCAN wanted VIRTUAL TABLE")], (name, plan)


def test_only_queries_with_a_bounded_answer_sort(plans: dict[str, list[str]]) -> None:
    assert {name for name, plan in plans.items() if any("TEMP B-TREE" in step for step in plan)} == BOUNDED_SORTS


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("transition", "records_by_job (job_no=? AND transition_seq=?)"),
        ("records_of_job", "records_by_job (job_no=?)"),
        ("records_of_run", "records_by_run (run_id=?)"),
        ("records_of_rare_kind", "records_by_rare_kind (kind=? AND rowid>? AND rowid<?)"),
        ("jobs_of_run", "jobs_by_run (run_id=?)"),
        ("jobs_in_state", "jobs_by_state (state=?)"),
        ("recent_jobs_of_run", "jobs_by_run (run_id=?)"),
        ("recent_jobs_in_state", "jobs_by_state (state=?)"),
        ("jobs_page", "jobs_by_tenant (tenant_id=? AND rowid<?)"),
        ("jobs_page_live", "jobs_by_state (state=? AND rowid<?)"),
        ("jobs_page_ended", "jobs_ended_by_tenant (tenant_id=? AND state=? AND rowid<?)"),
        ("jobs_page_of_run", "jobs_by_run (run_id=? AND rowid<?)"),
        ("jobs_page_labelled", "job_labels_by_label (label_no=? AND rowid<?)"),
        ("jobs_page_in_pool", "job_labels_by_pool (pool_no=? AND rowid<?)"),
        ("erase_labels", "job_labels_by_payload (payload_mark=?)"),
        ("jobs_prefixed", "sqlite_autoindex_job_names_1 (job_id>? AND job_id<?)"),
        ("runs_prefixed", "sqlite_autoindex_runs_1 (run_id>? AND run_id<?)"),
        ("last_run_prefixed", "sqlite_autoindex_runs_1 (run_id>? AND run_id<?)"),
        ("runs_page", "runs_by_tenant (tenant_id=? AND (started_tick,run_id)<(?,?))"),
        ("runs_page_of_status", "runs_by_tenant_status (tenant_id=? AND status=? AND (started_tick,run_id)<(?,?))"),
        ("labels_of_run", "jobs_by_run (run_id=?)"),
        ("batches", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("records", "INTEGER PRIMARY KEY (rowid>? AND rowid<?)"),
        ("update_job", "INTEGER PRIMARY KEY (rowid=?)"),
        ("work", "work_by_key (execution_key=? AND workspace=?)"),
        ("work_of_keys", "work_by_key (execution_key=? AND workspace=?)"),
        ("transitions", "records_by_job (job_no=? AND transition_seq=?)"),
        ("record_of_run", "records_by_run (run_id=?)"),
        ("submissions", "records_by_job (job_no=? AND transition_seq=?)"),
        ("work_labelled", "work_by_label (label=? AND workspace=?)"),
        ("erase_work", "work_by_payload (payload_digest=?)"),
        ("delete_expired_answers", "answers_by_time (stored_at_ms<?)"),
    ],
)
def test_a_query_uses_the_index_that_was_made_for_it(plans: dict[str, list[str]], name: str, index: str) -> None:
    assert any(step.endswith(index) for step in plans[name]), plans[name]


def test_every_query_is_used_and_every_used_query_is_there() -> None:
    room = Path(inspect.getfile(store)).parent
    code = "".join(module.read_text() for module in (*room.glob("*.py"), *room.parent.glob("*.py")))
    used = {name for name in schema_check.queries() if f'"{name}"' in code}
    assert set(schema_check.queries()) == used
    asked = re.findall(
        r'(?:_SQL|_sql|statements|queries\(\))\["(\w+)"\]|(?:_make|first_column|_pair|tuple), "(\w+)"', code
    )
    names = {first or second for first, second in asked}
    assert len(names) > 30
    assert names <= set(schema_check.queries())


def test_python_holds_no_sql_but_pragmas() -> None:
    sql = re.compile(
        r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE (TABLE|INDEX)|BEGIN (IMMEDIATE|DEFERRED))\b"
    )
    for module in Path(inspect.getfile(store)).parent.glob("*.py"):
        assert not sql.search(module.read_text()), module


# Migrations


def _at_version(path: Path, version: int) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", version)
    connection.close()


def test_an_older_ledger_is_brought_forward_when_it_is_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    ledger = SqliteStore.create(path, "origin", 1)
    Writer(ledger).submit("a")
    before = everything(ledger)
    ledger.close()
    later = (
        *schema_check.migrations(),
        "CREATE TABLE second (a INTEGER) STRICT",
        "CREATE TABLE third (a INTEGER) STRICT",
    )
    monkeypatch.setattr(database, "migrations", lambda: later)
    with monkeypatch.context() as needs_more:
        needs_more.setattr(database, "SCHEMA_READABLE_MIN", len(later))
        with pytest.raises(StoreUnavailable, match="older detent"):
            SqliteStore.open_reader(path)
    ledger = SqliteStore.open(path)
    assert everything(ledger) == before
    assert ledger._writer.pragma("user_version") == len(later)
    assert [row[1] for row in objects(ledger._writer) if row[1] in {"second", "third"}] == ["second", "third"]
    ledger.close()


def test_of_a_migration_that_fails_nothing_stays(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    SqliteStore.create(path, "origin", 1).close()
    connection = apsw.Connection(str(path))
    before = objects(connection)
    scripts = (*schema_check.migrations(), "CREATE TABLE second (a INTEGER) STRICT", "CREATE TABLE jobs (a INTEGER)")
    with pytest.raises(apsw.SQLError):
        database.migrate(connection, path, scripts)
    assert objects(connection) == before
    assert connection.pragma("user_version") == len(schema_check.migrations())
    connection.close()


def test_the_database_states_the_invariants_once_more() -> None:
    """What `check_rows` asks of a row, the schema refuses by itself."""
    connection = apsw.Connection(":memory:")
    connection.execute(schema_check.schema())
    connection.execute("INSERT INTO job_names VALUES (1, 'a')")
    head = bytes(32)
    job = "INSERT INTO jobs VALUES (?, 0, 't', NULL, ?, ?, 0, ?, 0, x'')"
    connection.execute(job, (1, "QUEUED", 0, head))
    for wrong in (
        (2, "PAUSED", 0, head),
        (2, "QUEUED", -1, head),
        (2, "QUEUED", 0, head[1:]),
        (2, "QUEUED", "one", head),
    ):
        with pytest.raises(apsw.ConstraintError):
            connection.execute(job, wrong)
    record = (
        "INSERT INTO records (record_key, batch_no, kind, job_no, transition_seq, body) VALUES (?, 0, ?, ?, ?, x'01')"
    )
    connection.execute(record, (0, "transition", 1, 0))
    for key, kind, job_no, seq in (
        (1, "transition", 1, 0),
        (1, "transition", None, 1),
        (1, "submitted", 1, 1),
        (-1, "x", 1, None),
    ):
        with pytest.raises(apsw.ConstraintError):
            connection.execute(record, (key, kind, job_no, seq))


def test_a_query_without_a_description_or_with_a_name_used_twice_is_a_broken_invariant() -> None:
    from detent.store.queries import parse_queries

    assert dict(
        parse_queries("-- name: one\n-- Says one.\nSELECT 1\n-- aside\n\n-- name: two\n-- Says two.\nSELECT 2\n")
    ) == {
        "one": "SELECT 1",
        "two": "SELECT 2",
    }
    for text in (
        "-- name: one\nSELECT 1\n",
        "-- name: one\n-- Only words.\n",
        "-- name: a\n-- A.\nX\n-- name: a\n-- A.\nX\n",
    ):
        with pytest.raises(InvariantBroken):
            parse_queries(text)
