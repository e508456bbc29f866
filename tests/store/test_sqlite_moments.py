"""Snapshots of a reader that stays open, as a server takes them: connections are kept, moments are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from detent.errors import InvariantBroken
from detent.store.sqlite import SqliteReader, SqliteStore
from detent.store.sqlite.database import Options
from tests.store.rows import ORIGIN, PARTITIONS, Writer, content, digest

PAGES = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    SqliteStore.create(path, ORIGIN, PARTITIONS).close()
    return path


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    store = SqliteStore.open(path, _options=Options(synchronous="OFF", wal_pages_max=PAGES))
    yield Writer(store)
    store.close()


@pytest.fixture
def reader(path: Path, writer: Writer) -> Iterator[SqliteReader]:
    writer.submit("first")
    reader = SqliteReader.open(path)
    yield reader
    reader.close()


def _connections(path: Path) -> int:
    """How often this process has the ledger open."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += entry.readlink() == path
    return found


def _wal_bytes(path: Path) -> int:
    return path.with_name("ledger.db-wal").stat().st_size


def _write_much(writer: Writer) -> None:
    for number in range(200):
        writer.submit(f"job-{number}")


def test_each_snapshot_sees_its_own_moment_through_a_connection_that_is_kept(
    path: Path, writer: Writer, reader: SqliteReader
) -> None:
    with reader.snapshot() as moment:
        assert moment.job("first") is not None
    held = _connections(path)
    for number in range(5):
        with reader.snapshot() as moment:
            writer.submit(f"later-{number}")
            assert moment.job(f"later-{number}") is None
            assert number == 0 or moment.job(f"later-{number - 1}") is not None
    assert _connections(path) == held
    with reader.snapshot() as outer:
        writer.submit("between")
        with reader.snapshot() as inner:
            assert (outer.job("between"), inner.job("between") is None) == (None, False)


def test_content_that_is_erased_is_gone_for_the_next_snapshot(writer: Writer, reader: SqliteReader) -> None:
    writer.append(content=[content("secret")])
    with reader.snapshot() as moment:
        assert moment.content(digest("secret")) is not None
    writer.append(erased=[digest("secret")])
    with reader.snapshot() as moment:
        assert (moment.content(digest("secret")), moment.is_erased(digest("secret"))) == (None, True)


def test_between_two_snapshots_the_wal_can_be_emptied(path: Path, writer: Writer, reader: SqliteReader) -> None:
    with reader.snapshot() as moment:
        assert moment.job("first") is not None
    _write_much(writer)
    assert _wal_bytes(path) < 2 * PAGES * 4120
    with reader.snapshot() as moment:
        assert moment.job("job-199") is not None


def test_a_statement_that_was_left_open_does_not_keep_the_moment(
    path: Path, writer: Writer, reader: SqliteReader
) -> None:
    with reader.snapshot() as moment:
        left = moment.records(0)
        next(left)
    _write_much(writer)
    assert _wal_bytes(path) < 2 * PAGES * 4120
    with reader.snapshot() as moment:
        assert moment.job("job-199") is not None


def test_a_snapshot_that_is_over_answers_as_a_closed_reader(reader: SqliteReader) -> None:
    with reader.snapshot() as moment:
        pass
    with pytest.raises(InvariantBroken):
        moment.job("first")
    with pytest.raises(InvariantBroken):
        moment.jobs()
    with reader.snapshot() as again:
        assert again.job("first") is not None


def test_closing_a_reader_closes_what_it_kept(path: Path) -> None:
    store, reader = SqliteStore.open(path), SqliteReader.open(path)
    Writer(store).submit("first")
    with reader.snapshot() as moment:
        assert moment.job("first") is not None
    reader.close()
    store.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["ledger.db"]
