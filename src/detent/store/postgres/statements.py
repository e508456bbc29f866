"""How a reader runs the named queries of ``queries.sql``.

Each iterator is one statement on a connection of its own, sent when it is asked for, so it sees the commits of that moment; its
rows arrive in chunks and are never all in memory. In a snapshot everything goes through the one connection that holds the
moment, as cursors of the server, of which several can be open at a time.

A server can be restarted under a reader that lives long. A read is repeated once on a new connection when its connection
turns out to be dead; what was committed is still there, so the answer is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Any, Final, TypeVar

import psycopg

from detent.errors import StoreUnavailable
from detent.store.named_queries import Binding, NamedQueries
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.database import Connection, close_quietly, open_for_reading
from detent.store.postgres.errors import translated
from detent.store.postgres.sql import queries

_Row = TypeVar("_Row")

_IDLE_CONNECTIONS_MAX: Final = 4
_CHUNK_ROWS: Final = 1000 if psycopg.pq.version() >= 170_000 else 1
"""Rows that arrive together; an older libpq hands them out one by one."""
_NOTHING: Final = object()


class Statements(NamedQueries):
    """The queries of one open ledger; the parts of a reader ask through it."""

    def __init__(self, address: PostgresAddress, connection: Connection, *, pinned: bool) -> None:
        """``pinned``: everything is read through this connection, which holds one moment."""
        self._address, self._named = address, str(address)
        self._connection = connection
        self._pinned = pinned
        self._idle: list[Connection] = []
        self._closed = False
        self._sql = queries(address.schema)
        self._cursor_numbers = count()

    def close(self) -> None:
        """Let go of the server."""
        self._closed = True
        while self._idle:
            close_quietly(self._idle.pop())
        close_quietly(self._connection)

    def _rows(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: Binding) -> Iterator[_Row]:
        values = [*map(_bound, bindings)]
        if self._pinned:
            return self._through_cursor(make, name, values)
        self._insist_on_open()
        while True:
            kept = bool(self._idle)
            connection = self._idle.pop() if kept else open_for_reading(self._address)
            stream = connection.cursor().stream(self._sql[name], values, binary=True, size=_CHUNK_ROWS)
            # The first row is fetched here, so that "now" is the moment of the call.
            try:
                first = next(stream, _NOTHING)
            except psycopg.Error as exc:
                lost = connection.closed
                close_quietly(connection)
                if kept and lost:
                    continue
                raise translated(exc, self._address) from exc
            if first is _NOTHING:
                self._give_back(connection)
                return iter(())
            return self._made(make, chain([first], stream), stream, connection)

    def _made(
        self,
        make: Callable[[tuple[Any, ...]], _Row],
        rows: Iterator[Any],
        stream: Any,
        connection: Connection,
    ) -> Iterator[_Row]:
        try:
            for row in rows:
                yield make(row)
        except (psycopg.Error, UnicodeDecodeError) as exc:
            raise translated(exc, self._address) from exc
        finally:
            stream.close()
            self._give_back(connection)

    def _through_cursor(self, make: Callable[[tuple[Any, ...]], _Row], name: str, values: list[Any]) -> Iterator[_Row]:
        try:
            cursor = self._connection.cursor(f"detent_{next(self._cursor_numbers)}")
            cursor.itersize = 1000
            cursor.execute(self._sql[name], values, binary=True)
        except (psycopg.Error, UnicodeDecodeError) as exc:
            raise translated(exc, self._address) from exc
        return self._fetched(make, cursor)

    def _fetched(self, make: Callable[[tuple[Any, ...]], _Row], cursor: Any) -> Iterator[_Row]:
        try:
            for row in cursor:
                yield make(row)
        except (psycopg.Error, UnicodeDecodeError) as exc:
            raise translated(exc, self._address) from exc
        finally:
            if not self._connection.closed:
                cursor.close()

    def _one(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: Binding) -> _Row | None:
        row = next(iter(self._all(name, *bindings)), None)
        return None if row is None else make(row)

    def _all(self, name: str, *bindings: Binding) -> list[tuple[Any, ...]]:
        """All rows at once, through the reader's own connection: for what is known to be short."""
        values = [*map(_bound, bindings)]
        try:
            try:
                return self._connection.execute(self._sql[name], values, binary=True).fetchall()
            except psycopg.OperationalError:
                if not self._connection.closed or not self._reconnected():
                    raise
                return self._connection.execute(self._sql[name], values, binary=True).fetchall()
        except (psycopg.Error, UnicodeDecodeError) as exc:
            raise translated(exc, self._address) from exc

    def _reconnected(self) -> bool:
        """Whether there is a new connection in place of one that is dead; never for a moment, which is gone with it."""
        if self._pinned or self._closed:
            return False
        self._connection = open_for_reading(self._address)
        return True

    def _insist_on_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self._address}: the reader is closed")

    def _give_back(self, connection: Connection) -> None:
        idle = (
            connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE if not connection.closed else False
        )
        if self._closed or not idle or len(self._idle) >= _IDLE_CONNECTIONS_MAX:
            close_quietly(connection)
        else:
            self._idle.append(connection)


def _bound(value: Binding) -> Any:
    """A binding as PostgreSQL takes it: texts as the bytes that the columns hold."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list | tuple):
        return [each.encode() if isinstance(each, str) else each for each in value]
    return value
