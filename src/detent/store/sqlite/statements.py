"""How a reader runs the named queries of ``queries.sql``.

Each iterator is one statement on a connection of its own, so it sees the commits of the moment it was asked for, and
nothing else that is asked meanwhile is held back to that moment: all statements that are open on one SQLite connection
share one view. The connections are kept for the next iterator.

An iterator holds its moment until it is used up or dropped, and as long as it does the WAL cannot be emptied: read what is
needed and let go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from detent.store.named_queries import Binding, NamedQueries
from detent.store.sqlite.database import Options, close_quietly, open_for_reading
from detent.store.sqlite.errors import translated
from detent.store.sqlite.schema_check import queries

_Row = TypeVar("_Row")
_IDLE_CONNECTIONS_MAX: Final = 4


class Statements(NamedQueries):
    """The queries of one open file; the parts of a reader ask through it."""

    def __init__(self, path: Path, connection: apsw.Connection, options: Options, *, pinned: bool) -> None:
        """``pinned``: everything is read through this connection, which holds one moment."""
        self._path, self._named = path, str(path)
        self._connection = connection
        self._options = replace(options, any_schema=True)  # Judged once, when the file was opened.
        self._pinned = pinned
        self._idle: list[apsw.Connection] = []
        self._closed = False
        self._schema = 0
        self._sql = queries()

    def close(self) -> None:
        """Let go of the file."""
        self._closed = True
        while self._idle:
            close_quietly(self._idle.pop())
        close_quietly(self._connection)  # last: a writer empties the WAL when it is the last to go

    def _knows(self, schema: int) -> bool:
        """Whether the tables of a schema are there by now: an owner may have brought them since this was opened."""
        if self._schema < schema:
            try:
                self._schema = self._connection.pragma("user_version")
            except apsw.Error as exc:
                raise translated(exc, self._path) from exc
        return self._schema >= schema

    def _rows(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: Binding) -> Iterator[_Row]:
        connection = self._connection_for_rows()
        # The statement starts here and not at the first row, so that "now" is the moment of the call.
        try:
            cursor = connection.execute(self._sql[name], [*map(_bound, bindings)])
        except (apsw.Error, OverflowError, UnicodeDecodeError) as exc:
            raise translated(exc, self._path) from exc
        return self._made(make, cursor, connection)

    def _made(
        self, make: Callable[[tuple[Any, ...]], _Row], cursor: apsw.Cursor, connection: apsw.Connection
    ) -> Iterator[_Row]:
        try:
            for row in cursor:
                yield make(row)
        except (apsw.Error, UnicodeDecodeError) as exc:
            raise translated(exc, self._path) from exc
        finally:
            cursor.close(force=True)
            self._give_back(connection)

    def _connection_for_rows(self) -> apsw.Connection:
        if self._pinned or self._closed:  # a closed one answers as closed connections do
            return self._connection
        return self._idle.pop() if self._idle else open_for_reading(self._path, self._options)

    def _give_back(self, connection: apsw.Connection) -> None:
        if connection is self._connection:
            return
        if self._closed or len(self._idle) == _IDLE_CONNECTIONS_MAX:
            close_quietly(connection)
        else:
            self._idle.append(connection)

    def _one(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: Binding) -> _Row | None:
        try:
            row = self._connection.execute(self._sql[name], [*map(_bound, bindings)]).fetchone()
        except (apsw.Error, OverflowError, UnicodeDecodeError) as exc:
            raise translated(exc, self._path) from exc
        return None if row is None else make(row)


def _bound(value: Binding) -> int | str | bytes | None:
    """A binding as SQLite takes it: a list becomes JSON, in which bytes are hex."""
    if value is None or isinstance(value, int | str | bytes):
        return value
    return json.dumps([each.hex() if isinstance(each, bytes) else each for each in value])
