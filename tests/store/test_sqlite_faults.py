"""What a broken world gets from the SQLite store: a typed error that names the file and the way out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from detent.errors import (
    EpochLost,
    HomeError,
    StoreCorrupt,
    StoreUnavailable,
)
from detent.store.sqlite import SqliteStore, database
from detent.store.sqlite.database import Options
from tests.store.ledgers import assert_teaches, opened
from tests.store.rows import Writer, everything, job, submitted, transition
from tests.store.vfs import FaultyVfs

IMPATIENT = Options(busy_timeout_ms=0)


# Opening what cannot be opened


def test_a_missing_ledger_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for opening in (SqliteStore.open, SqliteStore.open_reader):
        with pytest.raises(StoreUnavailable, match="does not exist") as error:
            opening(path)
        assert_teaches(error, path, f"restore it from a copy; or move {tmp_path} away, and `detent init`")
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_is_never_made_over_another_file(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(HomeError, match="already there") as error:
        SqliteStore.create(path, "other", 1)
    assert_teaches(error, path, "open it")
    assert path.read_bytes() == before


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "ledger.db"
    with pytest.raises(StoreUnavailable) as error:
        SqliteStore.create(path, "origin", 1)
    assert_teaches(error, path, "DETENT_HOME")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("a letter to a friend\n" * 100)
    for opening in (SqliteStore.open, SqliteStore.open_reader):
        with pytest.raises(StoreCorrupt, match="not a database") as error:
            opening(path)
        assert_teaches(error, path, "right file")
    assert path.read_text().startswith("a letter")


def test_a_foreign_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE t (a)")
    other.close()
    before = path.read_bytes()
    for opening in (SqliteStore.open, SqliteStore.open_reader):
        with pytest.raises(StoreCorrupt, match="not a ledger of detent") as error:
            opening(path)
        assert_teaches(error, path, "right file")
    assert path.read_bytes() == before


def test_an_empty_file_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    with pytest.raises(StoreCorrupt, match="not a ledger"):
        SqliteStore.open(path)


def test_a_ledger_of_a_newer_schema_is_left_alone_and_says_upgrade(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    before = path.read_bytes()
    for opening in (SqliteStore.open, SqliteStore.open_reader):
        with pytest.raises(StoreUnavailable, match=r"newer detent \(schema 99") as error:
            opening(path)
        assert_teaches(error, path, "upgrade")
        assert not error.value.retryable
    assert path.read_bytes() == before


def test_a_reader_does_not_migrate_an_older_ledger(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 0)
    connection.close()
    with pytest.raises(StoreUnavailable, match="older detent") as error:
        SqliteStore.open_reader(path)
    assert_teaches(error, path, "for writing")


def test_an_old_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreUnavailable, match=r"SQLite 3\.51\.2 can lose commits") as error:
        SqliteStore.open(path)
    assert "apsw" in (error.value.hint or "")
    for version in ("3.51.3", "3.52.0", "4.0.0"):
        database.insist_on_version(version)


def test_a_setting_that_sqlite_did_not_take_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(database._SYNCHRONOUS, "FULL", 3)
    with pytest.raises(StoreUnavailable, match="synchronous=2 where 3") as error:
        SqliteStore.open(path)
    assert_teaches(error, path, "DETENT_HOME")


def test_a_ledger_that_left_wal_mode_is_brought_back_to_it(path: Path) -> None:
    connection = apsw.Connection(str(path))
    assert connection.pragma("journal_mode", "DELETE") == "delete"
    connection.close()
    before = opened(path)
    store = SqliteStore.open(path)
    assert store._writer.pragma("journal_mode") == "wal"
    assert everything(store) == before
    store.close()


def test_a_network_file_system_is_refused_and_names_detent_home(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-173"""
    table = path.parent / "mounts"
    table.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/export {path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr("detent.store.files._MOUNT_TABLE", table)
    deeds: list[Callable[[], object]] = [
        lambda: SqliteStore.open(path),
        lambda: SqliteStore.open_reader(path),
        lambda: SqliteStore.create(path.parent / "new.db", "origin", 1),
    ]
    for deed in deeds:
        with pytest.raises(HomeError, match="nfs4") as error:
            deed()
        assert "DETENT_HOME" in (error.value.hint or "")
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["ledger.db", "mounts"]


# Write protection and locks


def test_a_read_only_file_is_refused_when_it_is_opened_for_writing(path: Path, vfs: FaultyVfs) -> None:
    vfs.read_only = True
    with pytest.raises(StoreUnavailable, match="read-only") as error:
        SqliteStore.open(path, _options=Options(vfs=vfs.name))
    assert_teaches(error, path, "writable")
    assert not error.value.retryable


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write every file")
def test_a_file_without_write_permission_is_refused_when_it_is_opened_for_writing(path: Path) -> None:
    path.chmod(0o400)
    with pytest.raises(StoreUnavailable, match="read-only"):
        SqliteStore.open(path)


def test_a_reader_cannot_write(path: Path) -> None:
    reader = SqliteStore.open_reader(path)
    assert not hasattr(reader, "append")
    with pytest.raises(apsw.ReadOnlyError):
        reader._connection.execute("DELETE FROM refusals")
    reader.close()


def test_a_locked_ledger_is_busy_and_the_same_append_succeeds_later(path: Path) -> None:
    store = SqliteStore.open(path, _options=IMPATIENT)
    writer = Writer(store)
    commit = writer.commit([submitted("c")], [job("c")])
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    before = everything(store)
    with pytest.raises(StoreUnavailable, match="locked") as error:
        store.append(commit)
    assert_teaches(error, path, "try again")
    assert error.value.retryable
    assert everything(store) == before
    other.execute("ROLLBACK")
    other.close()
    store.append(commit)
    assert store.head(0).size == commit.batch.batch_no + 1
    store.close()


def test_two_stores_on_one_file_cannot_both_write(path: Path) -> None:
    """PIPE-060, PIPE-065, X-172"""
    first = SqliteStore.open(path)
    second = SqliteStore.open(path)
    early = Writer(first).commit([transition("a", 1)], [job("a", seq=2, state="SUCCEEDED")])
    late = Writer(second).commit([transition("a", 1)], [job("a", seq=2, state="FAILED")])
    second.append(late)
    with pytest.raises(EpochLost) as error:
        first.append(early)
    assert error.value.details["epoch"] == late.batch.epoch
    assert [(record.kind, record.transition_seq) for record in first.records_of_job("a")][-1] == ("transition", 1)
    row = first.job("a")
    assert row is not None
    assert row.state == "FAILED"
    first.close()
    second.close()


# Making a ledger


def test_a_fault_while_the_ledger_is_made_leaves_no_ledger(tmp_path: Path, vfs: FaultyVfs) -> None:
    options = Options(vfs=vfs.name)
    vfs.arm(apsw.SQLITE_FULL, lambda _number, _event: None)
    SqliteStore.create(tmp_path / "whole.db", "origin", 1, _options=options).close()
    writes = [number for number, event in enumerate(vfs.seen) if event.act == "write"]
    assert len(writes) > 20
    for number in writes[:-2:5]:
        path = tmp_path / "ledger.db"
        vfs.arm(apsw.SQLITE_FULL, lambda at, _event, number=number: 0 if at == number else None)  # type: ignore[misc]
        with pytest.raises(StoreUnavailable, match="disk is full") as error:
            SqliteStore.create(path, "origin", 1, _options=options)
        assert_teaches(error, path, "free some space")
        assert [entry.name for entry in tmp_path.iterdir()] == ["whole.db"]


def test_what_an_interrupted_making_left_is_swept_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "ledger.db.abc.new").write_bytes(b"half")
    (tmp_path / "ledger.db.abc.new-wal").write_bytes(b"half")
    SqliteStore.create(tmp_path / "ledger.db", "origin", 1).close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.db"]


def test_a_ledger_is_for_its_owner_alone(tmp_path: Path) -> None:
    store = SqliteStore.create(tmp_path / "ledger.db", "origin", 1)
    Writer(store).submit("a")
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()}
    assert modes == {"ledger.db": 0o600, "ledger.db-shm": 0o600, "ledger.db-wal": 0o600}
    store.close()
