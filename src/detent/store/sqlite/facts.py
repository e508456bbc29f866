"""What SQLite says about a ledger's file, for `detent doctor`: versions, settings and its own integrity check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import apsw

from detent.canon.late import dataclass
from detent.store.sqlite.database import SQLITE_VERSION_MIN, Options, open_for_reading
from detent.store.sqlite.errors import translated
from detent.store.sqlite.sources import migrations


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A ledger's file as SQLite sees it."""

    sqlite_version: str
    sqlite_version_min: str
    schema: int
    schema_known: int
    journal_mode: str
    page_bytes: int
    pages: int
    free_pages: int


def file_facts(path: Path) -> FileFacts:
    """Read the file's own settings; raises what opening it raises."""
    with closing(open_for_reading(path, Options(any_schema=True))) as connection, _translating(path):
        return FileFacts(
            apsw.sqlite_lib_version(),
            ".".join(map(str, SQLITE_VERSION_MIN)),
            connection.pragma("user_version"),
            len(migrations()),
            connection.pragma("journal_mode"),
            connection.pragma("page_size"),
            connection.pragma("page_count"),
            connection.pragma("freelist_count"),
        )


@contextmanager
def _translating(path: Path) -> Iterator[None]:
    try:
        yield
    except apsw.Error as exc:
        raise translated(exc, path) from exc
