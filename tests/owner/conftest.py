"""Every test of an owner runs on both stores, and none of them waits for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from detent.store.api import Store
from detent.store.memory import MemoryStore
from detent.store.sqlite import SqliteStore
from tests.owner.homes import scratch_directory
from tests.owner.rig import ORIGIN, Rig


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory where there is one: a sync to a busy disk takes as long as the rest of a test together."""
    with TemporaryDirectory(prefix="detent-", dir=scratch_directory(), ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made: Store
    if request.param == "memory":
        made = MemoryStore.create(ORIGIN, 1)
    else:
        made = SqliteStore.create(tmp_path / "ledger.db", ORIGIN, 1)
    yield made
    made.close()


@pytest.fixture
def rig(store: Store) -> Rig:
    return Rig(store)
