"""The PostgreSQL store's SQL: the same names as SQLite's, one schema by either way, an index for every hot query."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import psycopg
import pytest

from detent.errors import InvariantBroken, StoreUnavailable
from detent.store.api import NEVER_REUSED, JobsWanted
from detent.store.postgres import database, sql, store
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.schema_check import objects
from detent.store.postgres.store import _APPEND_TYPES, PostgresStore
from detent.store.sqlite import schema_check
from tests.postgres_server import Server
from tests.store.rows import Writer, digest, everything, job, submitted, work

WRITTEN_ROW_BY_ROW = {
    "delete_expired_answers", "delete_old_checkpoints", "delete_old_refusals", "erase_labels", "erase_name", "erase_work",
    "erase_work_elements", "insert_batch", "insert_job", "insert_name", "update_job",
}  # fmt: skip
"""What SQLite does by a statement for each row, and PostgreSQL within one call."""
PACKED = {"insert_shape", "insert_signature", "shapes", "signature", "last_signature"}
OF_A_SERVER = {
    "append", "append_beside", "append_refusals", "copying", "create_schema", "end_holder", "forget_servers", "hold",
    "holder", "holders", "keep_alive", "load_tree_head", "mark_copying", "not_synced", "renew", "renew_server", "schema_texts",
    "schema_version", "servers", "set_address", "set_moved", "set_owner", "set_schema_version", "settings", "temporary_schema",
}  # fmt: skip


def test_both_databases_define_the_same_names() -> None:
    ours, sqlites = set(sql.queries("detent")), set(schema_check.queries())
    assert sqlites - ours == WRITTEN_ROW_BY_ROW | PACKED
    assert ours - sqlites == OF_A_SERVER


def test_every_query_is_used_and_python_holds_no_other_sql() -> None:
    room = Path(inspect.getfile(store)).parent
    code = "".join(module.read_text() for module in (*room.glob("*.py"), *room.parent.glob("*.py")))
    assert {name for name in sql.queries("detent") if f'"{name}"' not in code} == set()
    own = "".join(module.read_text() for module in room.glob("*.py"))
    assert not re.search(r"\b(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE)\b", own)


def test_the_types_that_are_bound_are_those_the_function_takes(postgres: Server) -> None:
    address = postgres.address()
    PostgresStore.create(address, "origin", 1).close()
    found = postgres.execute(
        "SELECT proargtypes::oid[]::bigint[] FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace"
        " WHERE proname = 'append' AND nspname = %s",
        address.schema,
    )
    assert found == [([*_APPEND_TYPES],)]


def test_migrations_lead_to_the_present_schema(postgres: Server) -> None:
    """An older ledger becomes what a new one is."""
    new, migrated = postgres.address(), postgres.address()
    PostgresStore.create(new, "origin", 1).close()
    with database.connect(new) as connection:
        connection.execute(f'CREATE SCHEMA "{migrated.schema}"')
        for script in sql.migrations(migrated.schema):
            database.run_script(connection, script)
        assert objects(connection, new, migrated.schema) == objects(connection, new, new.schema)


def as_the_first_version_made_it(postgres: Server, now: PostgresAddress) -> PostgresAddress:
    """A ledger of the first version, with the rows of another."""
    first = postgres.address()
    with database.connect(now) as connection:
        connection.execute(f'CREATE SCHEMA "{first.schema}"')
        database.run_script(connection, sql.migrations(first.schema)[0])
        columns = (
            "SELECT table_name, column_name, is_identity = 'YES' FROM information_schema.columns"
            " WHERE table_schema = $1 AND is_generated = 'NEVER' ORDER BY ordinal_position"
        )
        tables: dict[str, list[str]] = {}
        numbered = []
        for table, column, is_identity in connection.execute(columns, [first.schema]).fetchall():
            tables.setdefault(table, []).append(f'"{column}"')
            numbered += [(table, column)] if is_identity else []
        for table, names in tables.items():
            connection.execute(
                f"INSERT INTO {first.schema}.{table} ({', '.join(names)}) OVERRIDING SYSTEM VALUE"
                f" SELECT {', '.join(names)} FROM {now.schema}.{table}"
            )
        for table, column in numbered:
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{first.schema}.{table}', '{column}'),"
                f" greatest(1, (SELECT max({column}) FROM {first.schema}.{table})))"
            )
        connection.execute(f"UPDATE {first.schema}.ledger SET schema_version = 1")
    return first


def test_a_ledger_of_the_first_version_is_read_as_it_is_and_brought_forward_by_its_owner(postgres: Server) -> None:
    now = postgres.address()
    ledger = PostgresStore.create(now, "origin", 1)
    writer = Writer(ledger)
    rows = [work("a", workspace="tenant"), work("b", workspace="tenant", label="gone")]
    writer.append([submitted(name) for name in "abc"], [job(name) for name in "abc"], work=rows)
    writer.append(erased=[digest("payload of b")])
    before = everything(ledger)
    ledger.close()
    address = as_the_first_version_made_it(postgres, now)
    reader = PostgresStore.open_reader(address)
    assert everything(reader) == before | {"label_rows": [], "labels of jobs": [None] * 3, "pages": [[], [], []]}
    ledger = PostgresStore.open(address)
    try:
        assert ledger.schema_faults() == []
        assert everything(ledger) == everything(reader) == before
        assert [row.job_id for row in ledger.label_rows()] == ["a"]
        ledger.append_beside([work("c", workspace="tenant", execution_key=NEVER_REUSED, pool="gpu")], [])
        Writer(ledger).submit("d")
        for one in (ledger, reader):
            assert [row.job_id for _, row in one.jobs_page(JobsWanted("tenant", pool="gpu"), limit=9)] == ["c"]
            assert [row.job_id for _, row in one.jobs_page(JobsWanted("tenant", label="flow/step"), limit=9)] == [
                "c",
                "a",
            ]
    finally:
        reader.close()
        ledger.close()


def test_a_ledger_of_a_newer_version_is_refused(postgres: Server) -> None:
    address = postgres.address()
    PostgresStore.create(address, "origin", 1).close()
    postgres.execute(f"UPDATE {address.schema}.ledger SET schema_version = 99")
    for opening in (PostgresStore.open, PostgresStore.open_reader):
        with pytest.raises(StoreUnavailable, match="newer detent"):
            opening(address)


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ("CREATE INDEX extra ON {s}.jobs (tick)", "index extra was added"),
        ("ALTER TABLE {s}.records DISABLE TRIGGER records_are_append_only", "trigger records.records_are_append_only was changed"),
        ("DROP INDEX {s}.runs_open", "index runs_open is missing"),
        ("ALTER TABLE {s}.jobs DROP CONSTRAINT jobs_tick_check", "constraint jobs.jobs_tick_check is missing"),
        (
            "CREATE OR REPLACE FUNCTION {s}.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "function refuse_change was changed",
        ),
    ],
)  # fmt: skip
def test_a_changed_schema_is_named(postgres: Server, planted: str, fault: str) -> None:
    address = postgres.address()
    PostgresStore.create(address, "origin", 1).close()
    reader = PostgresStore.open_reader(address)
    try:
        assert reader.schema_faults() == []
        postgres.execute(planted.format(s=address.schema))
        assert fault in reader.schema_faults()
    finally:
        reader.close()


@pytest.mark.parametrize("statement", ["UPDATE {t} SET body = 'x'", "DELETE FROM {t}", "TRUNCATE {t}"])
@pytest.mark.parametrize("table", ["batches", "records", "decisions"])
def test_history_cannot_be_changed_by_a_statement(postgres: Server, statement: str, table: str) -> None:
    """PIPE-057"""
    address = postgres.address()
    ledger = PostgresStore.create(address, "origin", 1)
    try:
        Writer(ledger).submit("a")
        with pytest.raises(psycopg.DatabaseError, match="append-only"):
            postgres.execute(statement.format(t=f"{address.schema}.{table}"))
    finally:
        ledger.close()


HOT = {
    "head": (0,), "batches": (0, 0, 9), "records": (0, 0, 9), "records_of_job": (b"a",), "records_of_run": (b"r",),
    "records_of_rare_kind": (0, b"k", 0), "record_of_run": (b"r", b"k"), "transition": (b"a", 1), "submissions": ([b"a"],),
    "transitions": ([b"a"], [1]), "job": (b"a",), "jobs_of": ([b"a"],), "jobs_of_run": (None, b"", 9, b"r"),
    "jobs_in_state": (b"QUEUED", b"", 9), "recent_jobs": (None, 9), "recent_jobs_of_run": (None, 9, b"r"),
    "jobs_page": (b"t", 9, 9, None, None), "jobs_page_live": (b"t", 9, 9, b"QUEUED", None),
    "jobs_page_of_run": (b"t", 9, 9, None, b"r"), "jobs_page_labelled": (b"t", 9, 9, None, b"l"),
    "jobs_page_in_pool": (b"t", 9, 9, None, b"p"), "label": (b"a",),
    "run": (b"r",), "runs_open": (9,), "runs_page": (b"t", 9, b"r", 9, None), "runs_page_of_status": (b"t", 9, b"r", 9, b"s"),
    "content": (b"d",), "contents": ([b"d"],), "is_erased": (b"d",), "decisions": (0, 0, 9), "checkpoints": (0,),
    "tree_heads": (0,), "work": (b"w", b"k"), "work_in_elements": (b"w", b"k"), "work_of_keys": (b"w", [b"k"]),
    "work_of_keys_in_elements": (b"w", [b"k"]), "work_labelled": (b"w", b"l", 9), "labels_of_run": (b"r",),
    "answer": (b"s",), "answers_kept": (0,),
}  # fmt: skip


def test_no_hot_query_reads_all_of_a_table(postgres: Server) -> None:
    """An index leads to what each asks for: with scans forbidden, none is left in the plan."""
    address = postgres.address()
    PostgresStore.create(address, "origin", 1).close()
    scanned = []
    with database.connect(address) as connection:
        connection.execute("SET enable_seqscan = off")
        connection.execute("SET enable_bitmapscan = off")
        for name, values in HOT.items():
            plan = "\n".join(
                row[0] for row in connection.execute(f"EXPLAIN {sql.queries(address.schema)[name]}", values).fetchall()
            )
            if "Seq Scan" in plan or ("Index Cond" not in plan and name not in {"recent_jobs", "runs_open"}):
                scanned.append((name, plan))
    assert scanned == []


def test_a_row_the_kernel_would_never_write_is_refused_by_the_database_too(postgres: Server) -> None:
    ledger = PostgresStore.create(postgres.address(), "origin", 1)
    try:
        writer = Writer(ledger)
        commit = writer.commit()
        with pytest.raises(InvariantBroken):
            ledger.append(commit._replace(batch=commit.batch._replace(signature=b"short")))
        assert ledger.head(0).size == 0
    finally:
        ledger.close()
