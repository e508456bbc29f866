"""The ledger in one SQLite file, through ``apsw``, which brings its own SQLite."""

from detent.store.sqlite.reader import SqliteReader
from detent.store.sqlite.store import SqliteStore

__all__ = ["SqliteReader", "SqliteStore"]
