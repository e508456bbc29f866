"""Readers of one moment each, whose connections are kept: opening a ledger costs more than most answers read.

Between two moments a connection holds none, so the WAL can be emptied. One that is still busy when its moment ends, because a
statement was left open, is closed instead of being kept. A reader whose moment is over answers as a closed one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import apsw

from detent.store.sqlite.database import close_quietly
from detent.store.sqlite.errors import translated
from detent.store.sqlite.schema_check import queries

_KEPT_MAX: Final = 2
"""Moments that are read at once are rare: a snapshot within a snapshot."""


class Pinned(Protocol):
    """A reader that is moved from moment to moment."""

    def look_through(self, connection: apsw.Connection) -> None:
        """Read what this connection sees from now on."""


Reader = TypeVar("Reader", bound=Pinned)


class Moments(Generic[Reader]):
    """The moments of one ledger."""

    def __init__(
        self, path: Path, connect: Callable[[], apsw.Connection], make: Callable[[apsw.Connection], Reader]
    ) -> None:
        """``make`` has to read, because the first read is what fixes the moment."""
        self._path, self._connect, self._make = path, connect, make
        self._sql = queries()
        self._kept: list[tuple[apsw.Connection, Reader]] = []
        self._closed = False

    @contextmanager
    def now(self) -> Iterator[Reader]:
        """A reader that sees the commits of this moment and none that follow."""
        connection, reader = self._kept.pop() if self._kept else (self._connect(), None)
        try:
            try:
                connection.execute(self._sql["begin_read"])
                if reader is not None:
                    connection.execute(self._sql["ledger"]).fetchone()  # What `make` does for a new one.
            except apsw.Error as exc:
                raise translated(exc, self._path) from exc
            if reader is None:
                reader = self._make(connection)
            else:
                reader.look_through(connection)
            yield reader
        finally:
            if reader is not None:
                reader.look_through(_over())
            self._let_go(connection, reader)

    def close(self) -> None:
        """Let go of the connections that are kept."""
        self._closed = True
        while self._kept:
            close_quietly(self._kept.pop()[0])

    def _let_go(self, connection: apsw.Connection, reader: Reader | None) -> None:
        try:
            if connection.in_transaction:
                connection.execute(self._sql["rollback"])
            free = connection.txn_state() == apsw.SQLITE_TXN_NONE
        except apsw.Error:
            free = False
        if free and reader is not None and not self._closed and len(self._kept) < _KEPT_MAX:
            self._kept.append((connection, reader))
        else:
            close_quietly(connection)


@cache
def _over() -> apsw.Connection:
    """What a reader looks through when its moment is over."""
    connection = apsw.Connection(":memory:")
    connection.close()
    return connection
