"""The stores under test: whatever is in this list goes through the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from detent.store.api import Store
from detent.store.memory import MemoryStore
from detent.store.postgres.store import PostgresStore
from detent.store.sqlite import SqliteStore
from tests.store.ledgers import Ledger
from tests.store.rows import ORIGIN, PARTITIONS, Writer
from tests.store.vfs import FaultyVfs


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        memory = MemoryStore.create(ORIGIN, PARTITIONS)
        yield Ledger(memory, lambda: memory)
        return
    opened: list[SqliteStore | PostgresStore]
    if request.param == "sqlite":
        path = tmp_path / "ledger.db"
        opened = [SqliteStore.create(path, ORIGIN, PARTITIONS)]
        again: Callable[[], SqliteStore | PostgresStore] = partial(SqliteStore.open, path)
    else:
        address = request.getfixturevalue("postgres").address()
        opened = [PostgresStore.create(address, ORIGIN, PARTITIONS)]
        again = partial(PostgresStore.open, address)

    def second() -> Store:
        opened.append(again())
        return opened[-1]

    yield Ledger(opened[0], second)
    for store in opened:
        store.close()


@pytest.fixture
def store(ledger: Ledger) -> Store:
    return ledger.store


@pytest.fixture
def writer(store: Store) -> Writer:
    return Writer(store)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed ledger with a little history."""
    path = tmp_path / "ledger.db"
    store = SqliteStore.create(path, "origin", 1)
    writer = Writer(store)
    writer.submit("a", "b")
    writer.move("a", 1, "RUNNING")
    store.close()
    return path


@pytest.fixture
def vfs() -> Iterator[FaultyVfs]:
    faulty = FaultyVfs()
    yield faulty
    faulty.unregister()
