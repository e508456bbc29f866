"""Ledgers to test on, and what is asked of them again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from detent.errors import DetentError
from detent.store.api import Store
from detent.store.memory import MemoryStore
from detent.store.postgres.store import PostgresStore
from detent.store.sqlite import SqliteStore
from tests.store.rows import everything


@dataclass
class Ledger:
    """A ledger under test, and the way to another handle on it."""

    store: MemoryStore | SqliteStore | PostgresStore
    second: Callable[[], Store]


def opened(path: Path) -> dict[str, object]:
    """What the ledger holds when it is opened afresh, and that it is sound."""
    store = SqliteStore.open(path)
    try:
        assert store.damage() == []
        return everything(store)
    finally:
        store.close()


def assert_teaches(error: pytest.ExceptionInfo[DetentError], path: Path, hint: str) -> None:
    """The error names the file and says what to do."""
    assert str(path) in str(error.value)
    assert hint in (error.value.hint or "")
    assert error.value.details["path"] == str(path)
