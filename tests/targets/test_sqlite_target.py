"""A table as a destination: rows and cursor move together; whose table it is; what goes wrong."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from detent.store.sqlite import SqliteStore
from detent.targets import NOTHING, CommitFailed, DestinationBusy, DestinationChanged, Mark, ValueRefused
from detent.targets.sqlite_target import SqliteTarget
from tests.store.vfs import FaultyVfs
from tests.targets.destinations import RUN, Destination, Value


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def target(path: Path, table: str = "items", vfs: str | None = None) -> SqliteTarget:
    return SqliteTarget(f"sqlite:out.db#{table}", path, table, busy_ms=0, vfs=vfs)


def sql(path: Path, statement: str) -> list[Any]:
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(statement).fetchall()


def commit(path: Path, values: list[Value], table: str = "items", run_id: str = RUN) -> None:
    with closing(target(path, table)) as destination:
        destination.open(run_id, None)
        destination.write(0, values)


@pytest.fixture
def opened(path: Path) -> Iterator[SqliteTarget]:
    destination = target(path)
    destination.open(RUN, None)
    yield destination
    destination.close()


def test_a_new_table_has_the_seq_and_the_value_as_json(path: Path) -> None:
    commit(path, ["x", NOTHING, {"b": [1, 2.5], "a": None}, {"$$price": 1}])
    assert sql(path, "SELECT * FROM items") == [(0, '"x"'), (2, '{"a":null,"b":[1,2.5]}'), (3, '{"$price":1}')]
    assert sql(path, "SELECT json_extract(value, '$.b[1]') FROM items WHERE seq = 2") == [(2.5,)]
    assert sql(path, "SELECT * FROM detent_commits") == [(RUN, "items", 4)]


def test_rows_and_cursor_are_committed_durably(path: Path, opened: SqliteTarget) -> None:
    """ORD-034"""
    connection = opened._connection
    assert connection is not None
    assert (connection.pragma("journal_mode"), connection.pragma("synchronous")) == ("wal", 3)


def test_the_database_knows_better_than_an_older_mark(path: Path) -> None:
    """ORD-034"""
    commit(path, ["a", "b", "c"])
    again = target(path)
    assert again.open(RUN, Mark(1)) == 3
    assert again.write(1, ["b", "c", "d"]) == Mark(4)
    again.close()
    assert sql(path, "SELECT value FROM items") == [('"a"',), ('"b"',), ('"c"',), ('"d"',)]


def test_a_database_of_before_the_mark_is_refused(path: Path) -> None:
    commit(path, ["a"])
    old = path.read_bytes()
    again = target(path)
    again.open(RUN, Mark(1))
    recorded = again.write(1, ["b"])
    again.close()
    path.write_bytes(old)
    with pytest.raises(DestinationChanged, match="has 1 entries of this run in items, and 2 were committed"):
        target(path).open(RUN, recorded)


def test_a_table_that_was_dropped_is_not_made_again(path: Path) -> None:
    commit(path, ["a"])
    sql(path, "DROP TABLE items")
    with pytest.raises(DestinationChanged, match="no table"):
        target(path).open(RUN, Mark(1))
    assert sql(path, "SELECT name FROM sqlite_schema WHERE name = 'items'") == []


def test_a_cursor_moved_from_outside_stops_the_run(path: Path, opened: SqliteTarget) -> None:
    opened.write(0, ["a"])
    sql(path, "UPDATE detent_commits SET next_seq = 5")
    with pytest.raises(DestinationChanged, match="cursor"):
        opened.write(1, ["b"])
    assert sql(path, "SELECT count(*) FROM items") == [(1,)]


def test_two_runs_have_two_tables_of_one_database(path: Path) -> None:
    commit(path, ["a"], "first", "run-1")
    commit(path, ["b"], "second", "run-2")
    assert sql(path, "SELECT * FROM detent_commits ORDER BY run_id") == [("run-1", "first", 1), ("run-2", "second", 1)]


def test_a_second_run_into_a_made_table_is_refused_and_nothing_is_added(path: Path) -> None:
    """X-192: its seqs would meet those of the first; said when it is opened, not at some later row."""
    commit(path, ["a", "b"])
    with pytest.raises(CommitFailed, match="made for one run") as caught:
        commit(path, ["c"], run_id="run-2")
    assert (caught.value.retryable, caught.value.code) == (False, "DESTINATION_NOT_EMPTY")
    assert sql(path, "SELECT value FROM items") == [('"a"',), ('"b"',)]
    assert sql(path, "SELECT next_seq FROM detent_commits WHERE run_id = 'run-2'") == []


def test_a_table_with_a_run_column_takes_many_runs(path: Path) -> None:
    sql(path, "CREATE TABLE items (Run_ID, seq, value, PRIMARY KEY (run_id, seq))")
    commit(path, ["a"])
    commit(path, ["b"], "ITEMS", run_id="run-2")
    assert sql(path, "SELECT * FROM items ORDER BY run_id") == [("run-1", 0, '"a"'), ("run-2", 0, '"b"')]


def test_a_mapping_is_spread_over_the_columns_of_a_table_that_has_no_value(path: Path) -> None:
    sql(path, "CREATE TABLE items (seq INTEGER PRIMARY KEY, name TEXT, size INTEGER DEFAULT 7, tags)")
    commit(path, [{"name": "x", "tags": ["a", {"b": 1}]}, {"size": 2, "name": None}, {}, {"size": True}])
    assert sql(path, "SELECT * FROM items") == [
        (0, "x", 7, '["a",{"b":1}]'),
        (1, None, 2, None),
        (2, None, 7, None),
        (3, None, 1, None),
    ]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("text", "no column value"),
        ({"colour": 1}, "the key 'colour'"),
        ({"seq": 4}, "the key 'seq'"),
        ({"name": 2**64}, "64 bits"),
        ({"name": "\udc80"}, "not valid Unicode"),
        ({"name": {"$result": "sha256:00"}}, "strict JSON"),
    ],
)
def test_a_value_that_does_not_fit_the_table_is_refused_by_its_seq(path: Path, value: Value, word: str) -> None:
    sql(path, "CREATE TABLE items (seq INTEGER PRIMARY KEY, name)")
    with pytest.raises(ValueRefused, match=word) as caught:
        commit(path, [{"name": "fits"}, value])
    assert caught.value.seq == 1
    assert sql(path, "SELECT count(*) FROM items") == [(0,)]


def test_a_row_that_the_table_refuses_is_named_and_takes_the_batch_with_it(path: Path) -> None:
    sql(path, "CREATE TABLE items (seq, value CHECK (value <> '\"bad\"'))")
    with pytest.raises(CommitFailed, match="at seq 2") as caught:
        commit(path, ["a", "b", "bad", "c"])
    assert (caught.value.seq, caught.value.retryable) == (2, False)
    assert sql(path, "SELECT count(*) FROM items") == [(0,)]


def test_a_table_and_a_database_of_others_are_not_altered(path: Path) -> None:
    sql(path, "CREATE TABLE items (value, more)")
    before = sql(path, "SELECT sql FROM sqlite_schema WHERE name = 'items'")
    commit(path, ["a"])
    assert sql(path, "SELECT sql FROM sqlite_schema WHERE name = 'items'") == before
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    assert sql(path, "SELECT * FROM items") == [('"a"', None)]


def test_names_of_tables_are_names_whatever_is_in_them(path: Path) -> None:
    name = 'a "b"; DROP TABLE x -- ü'
    commit(path, ["a"], name)
    assert sql(path, "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") == [
        (name,),
        ("detent_commits",),
    ]


def test_what_cannot_be_a_destination_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is no database, and long enough to be looked at. " * 20)
    (tmp_path / "link").symlink_to(tmp_path / "real.db")
    (tmp_path / "directory").mkdir()
    SqliteStore.create(tmp_path / "ledger.db", "origin", 1).close()
    sql(tmp_path / "view.db", "CREATE VIEW items AS SELECT 1 AS value")
    for name, word in (
        ("text", "not a database"),
        ("link", "symbolic link"),
        ("directory", "unable to open"),
        ("missing/out.db", "unable to open"),
        ("ledger.db", "ledger of detent"),
        ("view.db", "has a view"),
        (os.fsdecode(b"\xff.db"), "not UTF-8"),
    ):
        with pytest.raises(CommitFailed, match=word) as caught:
            target(tmp_path / name).open(RUN, None)
        assert caught.value.retryable is False, name
    assert not (tmp_path / "real.db").exists()


def test_a_database_that_may_not_be_written_is_said(path: Path) -> None:
    sql(path, "CREATE TABLE items (value)")
    vfs = FaultyVfs()
    vfs.read_only = True
    with pytest.raises(CommitFailed, match="readonly") as caught:
        target(path, vfs=vfs.name).open(RUN, None)
    assert caught.value.retryable is False


def test_a_database_that_another_program_writes_to_is_tried_again(path: Path, opened: SqliteTarget) -> None:
    """X-076"""
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DestinationBusy) as caught:
            opened.write(0, ["a"])
        assert caught.value.retryable is True
        other.execute("ROLLBACK")
    assert opened.write(0, ["a"]) == Mark(1)


def test_a_database_that_may_not_grow_keeps_what_is_committed_and_goes_on_when_it_may(path: Path) -> None:
    """X-076"""
    destination = target(path)
    destination.open(RUN, None)
    destination.write(0, ["a"])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    try:
        with pytest.raises(CommitFailed) as caught:
            destination.write(1, ["x" * 200_000])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert caught.value.retryable is True
    assert sql(path, "SELECT count(*) FROM items") == [(1,)]
    assert destination.write(1, ["x" * 200_000]) == Mark(2)
    destination.close()
    assert sql(path, "SELECT seq, length(value) FROM items") == [(0, 3), (1, 200_002)]


def test_a_commit_that_failed_half_way_is_looked_up_and_not_repeated(path: Path) -> None:
    """ORD-034: whichever call of a commit fails, the next write finds out whether it was made"""
    vfs = FaultyVfs()
    fails = 0
    for number in range(40):
        name = path.with_name(f"{number}.db")
        destination = target(name, vfs=vfs.name)
        destination.open(RUN, None)
        vfs.arm(apsw.SQLITE_IOERR, lambda at, _, number=number: 7 if at == number else None)  # type: ignore[misc]
        try:
            destination.write(0, ["a", "b"])
        except CommitFailed as exc:
            fails += exc.retryable
        vfs.disarm()
        assert destination.write(0, ["a", "b"]) == Mark(2)
        destination.close()
        assert sql(name, "SELECT value FROM items") == [('"a"',), ('"b"',)]
    assert fails >= 2


def test_a_large_batch_arrives_whole(tmp_path: Path) -> None:
    destination = Destination("sqlite", tmp_path)
    values = [json.dumps({"number": number}) for number in range(5_000)]
    commit(destination.path, values)
    assert destination.held() == destination.expected(values)
