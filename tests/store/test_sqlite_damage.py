"""Damaged and edited files, erased content, the WAL, and what the database itself refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from detent.errors import (
    DetentError,
    InvariantBroken,
    StoreCorrupt,
)
from detent.store.sqlite import SqliteReader, SqliteStore, errors
from detent.store.sqlite.database import Options
from tests.store.ledgers import assert_teaches
from tests.store.rows import Writer, content, digest, everything, job, submitted
from tests.store.vfs import FaultyVfs

# Damage


def _root_pages(path: Path) -> dict[str, int]:
    connection = apsw.Connection(str(path))
    pages = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"))
    connection.close()
    return pages


def _damage(path: Path, page: int) -> None:
    data = bytearray(path.read_bytes())
    data[(page - 1) * 4096 : page * 4096] = b"\xaa" * 4096
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("table", "question"),
    [
        ("batches", lambda store: list(store.batches(0))),
        ("batches", lambda store: store.head(0)),
        ("records", lambda store: list(store.records(0))),
        ("jobs", lambda store: store.job("a")),
        ("job_names", lambda store: list(store.records(0))),
        ("jobs_by_state", lambda store: store.job_counts()),
    ],
)
def test_a_damaged_page_is_reported_by_every_reader(
    path: Path, table: str, question: Callable[[SqliteReader], object]
) -> None:
    _damage(path, _root_pages(path)[table])
    store = SqliteStore.open_reader(path)
    with pytest.raises(StoreCorrupt, match="is damaged") as error:
        question(store)
    assert_teaches(error, path, "backup")
    assert store.damage() != []
    store.close()


def test_an_append_that_meets_a_damaged_page_writes_nothing(path: Path) -> None:
    store = SqliteStore.open(path)
    commit = Writer(store).commit([submitted("c")], [job("c")])
    store.close()
    _damage(path, _root_pages(path)["jobs_by_state"])
    store = SqliteStore.open(path)
    head = store.head(0)
    with pytest.raises(StoreCorrupt) as error:
        store.append(commit)
    assert_teaches(error, path, "backup")
    assert store.head(0) == head
    assert [record.job_id for record in store.records(0)] == ["a", "b", "a"]
    store.close()


def test_content_that_was_changed_in_the_file_is_not_handed_out(path: Path) -> None:
    store = SqliteStore.open(path)
    Writer(store).append(content=[content("what was written")])
    store.close()
    path.write_bytes(path.read_bytes().replace(b"what was written", b"what was changed"))
    store = SqliteStore.open(path)
    with pytest.raises(StoreCorrupt, match=digest("what was written").hex()):
        store.content(digest("what was written"))
    store.close()


@pytest.mark.parametrize("table", ["batches", "records"])
@pytest.mark.parametrize("statement", ["UPDATE {} SET body = x'00'", "DELETE FROM {}"])
def test_the_database_itself_refuses_to_rewrite_history(path: Path, table: str, statement: str) -> None:
    """PIPE-057"""
    connection = apsw.Connection(str(path))
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        connection.execute(statement.format(table))
    connection.close()


def test_a_ledger_whose_number_of_partitions_is_unreadable_is_damaged(path: Path) -> None:
    """A page can be damaged so that a column that is never NULL reads as NULL."""
    strict, loose = "partitions INTEGER NOT NULL", "partitions INTEGER"
    for old, new, change in ((strict, loose, "UPDATE ledger SET partitions = NULL"), (loose, strict, "SELECT 1")):
        connection = apsw.Connection(str(path))
        connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)
        connection.execute("UPDATE sqlite_schema SET sql = replace(sql, ?, ?) WHERE name = 'ledger'", (old, new))
        connection.close()
        connection = apsw.Connection(str(path))
        connection.execute(change)
        connection.close()
    with pytest.raises(StoreCorrupt, match="number of partitions"):
        SqliteStore.open_reader(path)


def test_a_ledger_that_lost_a_table_or_its_name_is_damaged(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM ledger")
    connection.close()
    with pytest.raises(StoreCorrupt, match="lost its name"):
        SqliteStore.open(path)
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO ledger VALUES (1, 'origin', 1); DROP TABLE tree_heads")
    connection.close()
    with pytest.raises(StoreCorrupt, match="the table 'tree_heads' is missing"):
        SqliteStore.open(path)
    reader = SqliteStore.open_reader(path, _options=Options(any_schema=True))
    with pytest.raises(StoreCorrupt, match="does not have the tables"):
        list(reader.tree_heads(0))
    reader.close()


# Erasure


def test_erased_bytes_are_in_no_file_of_the_ledger_any_more(path: Path) -> None:
    secrets = [f"secret number {index} ".encode() * 20 for index in range(30)] + [b"large secret " * 1000]
    store = SqliteStore.open(path)
    writer = Writer(store)
    writer.append(content=[content(secret) for secret in secrets] + [content("kept")])
    store.close()
    store = SqliteStore.open(path)
    assert b"secret number 7" in path.read_bytes()
    writer = Writer(store)
    writer.append(erased=[digest(secret) for secret in secrets[:20]])
    for file in path.parent.iterdir():
        assert b"secret number 7" not in file.read_bytes(), file
    assert store.remove_content([digest(secret) for secret in secrets[20:]]) == sum(map(len, secrets[20:]))
    for file in path.parent.iterdir():
        assert b"secret" not in file.read_bytes(), file
    assert store.content(digest("kept")) == b"kept"
    assert store.damage() == []
    store.close()


def test_erasing_does_not_wait_for_a_reader(path: Path, vfs: FaultyVfs) -> None:
    store = SqliteStore.open(path, _options=Options(vfs=vfs.name))
    writer = Writer(store)
    writer.append(content=[content("secret")])
    reading = store.records(0)
    writer.append(erased=[digest("secret")])
    assert store.is_erased(digest("secret"))
    assert vfs.naps == 0
    assert len(list(reading)) == 3
    store.close()


# The WAL


def test_the_wal_does_not_grow_with_the_ledger(path: Path) -> None:
    store = SqliteStore.open(path, _options=Options(synchronous="OFF", wal_pages_max=50))
    writer = Writer(store)
    for number in range(200):
        writer.submit(f"job-{number}")
    assert path.with_name("ledger.db-wal").stat().st_size < 2 * 50 * 4120
    store.close()


def test_opening_copies_what_the_last_owner_left_in_the_wal(path: Path) -> None:
    """X-173"""
    store = SqliteStore.open(path)
    Writer(store).submit("c")
    left = path.with_name("left.db")
    for suffix in ("", "-wal"):
        left.with_name(left.name + suffix).write_bytes(path.with_name(path.name + suffix).read_bytes())
    state = everything(store)
    store.close()
    assert left.with_name("left.db-wal").stat().st_size > 0
    store = SqliteStore.open(left)
    assert left.with_name("left.db-wal").stat().st_size == 0
    assert everything(store) == state
    store.close()


def test_closing_leaves_one_file(path: Path) -> None:
    store = SqliteStore.open(path)
    Writer(store).submit("c")
    jobs = store.jobs()
    assert next(jobs).job_id == "a"
    list(jobs)
    store.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger.db"]


# The driver's exceptions


def test_every_exception_of_the_driver_is_translated_and_names_the_file(path: Path) -> None:
    kinds = [kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)]
    assert len(kinds) > 30
    for kind in kinds:
        error = errors.translated(kind("what SQLite said"), path)
        assert isinstance(error, DetentError | InvariantBroken), kind
        assert str(path) in str(error)
        assert not isinstance(error, DetentError) or error.hint


def test_a_closed_store_is_not_used_again(path: Path) -> None:
    store = SqliteStore.open(path)
    commit = Writer(store).commit()
    store.close()
    store.close()
    for deed in (lambda: store.append(commit), lambda: store.head(0), lambda: list(store.jobs())):
        with pytest.raises(InvariantBroken):
            deed()
