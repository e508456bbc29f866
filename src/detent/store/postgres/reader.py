"""The reading half of the PostgreSQL store. Rows are stored as they were appended; content is hashed when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, Final, Self

import psycopg

from detent.canon.late import NamedTuple
from detent.errors import StoreCorrupt
from detent.store.api import BatchRow, JobRow, RecordRow, StoreReader
from detent.store.beside_reader import SCHEMA_WITH_LABELS
from detent.store.checks import INTEGER_MAX, maker
from detent.store.ledger_reader import NamedReader
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.database import Connection, close_quietly, open_for_reading
from detent.store.postgres.errors import translated
from detent.store.postgres.schema_check import schema_faults
from detent.store.postgres.statements import Statements

_BATCH_ROW: Final = maker(BatchRow)
_JOB_ROW: Final = maker(JobRow)
_RECORD_ROW: Final = maker(RecordRow)
_VERSIONS: Final = {SCHEMA_WITH_LABELS: 4}
"""Which version of this schema brought what a schema of SQLite did; what is not named was there from the beginning."""


class Holder(NamedTuple):
    """The process that holds a partition, as it described itself."""

    host: str
    process: str
    socket: str
    backend_pid: int
    silent_ms: int
    """Since it last renewed its lease, by the server's clock; below zero while it need not."""
    address: str = ""
    """Where it takes requests over HTTP, as HOST:PORT; empty where it does not."""
    proof: bytes = b""
    """Its key's signature of the address."""
    epoch: int = 0
    """The epoch of the partition."""


class PostgresReader(Statements, NamedReader):
    """A ledger opened for reading: safe from any process, beside any writer."""

    def __init__(self, address: PostgresAddress, connection: Connection, *, pinned: bool = False) -> None:
        super().__init__(address, connection, pinned=pinned)
        self._version = 0
        self._introduce()

    @classmethod
    def open(cls, address: PostgresAddress) -> Self:
        """Open an existing ledger without the right to change it."""
        connection = open_for_reading(address)
        try:
            return cls(address, connection)
        except BaseException:
            close_quietly(connection)
            raise

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A reader of its own that sees the commits of this moment and none that follow.

        As long as the block lasts, PostgreSQL keeps row versions that it would otherwise vacuum.
        """
        connection = self._idle.pop() if self._idle else open_for_reading(self._address)
        if connection.closed:
            connection = open_for_reading(self._address)
        try:
            try:
                connection.execute(self._sql["begin_read"])
            except psycopg.OperationalError:
                connection = open_for_reading(self._address)  # An idle one that the server has dropped.
                connection.execute(self._sql["begin_read"])
            reader = PostgresReader(self._address, connection, pinned=True)  # Reads, which fixes the moment.
            try:
                yield reader
            finally:
                reader.end()
        finally:
            with suppress(psycopg.Error):
                connection.execute(self._sql["rollback"])
            self._give_back(connection)

    def end(self) -> None:
        """Answer as a closed reader from now on: its moment is over."""
        self._pinned, self._closed = False, True

    def holder(self, partition: int) -> Holder | None:
        """The process that holds a partition; None where none does."""
        found = self._all("holder", partition)
        return Holder(*found[0]) if found else None

    def transitions(self, wanted: Sequence[tuple[str, int]]) -> Iterator[RecordRow]:
        """The transition records that carry these sequence numbers, in no order."""
        known = [*dict.fromkeys(pair for pair in wanted if pair[1] <= INTEGER_MAX)]
        return self._rows(self._record, "transitions", [job_id for job_id, _ in known], [number for _, number in known])

    def jobs_of(self, job_ids: Sequence[str]) -> list[JobRow]:
        """The rows of these jobs, in no order."""
        return [_JOB_ROW(row) for row in self._all("jobs_of", [*dict.fromkeys(job_ids)])]

    def damage(self) -> list[str]:
        """Nothing: pages and indexes are PostgreSQL's to check (``pg_amcheck``), and what is signed is for `verify`."""
        return []

    def schema_faults(self) -> list[str]:
        """In what the ledger's schema differs from the one it says it has: a planted trigger, a changed table."""
        try:
            return schema_faults(self._connection, self._address)
        except psycopg.Error as exc:
            raise translated(exc, self._address) from exc

    def _knows(self, schema: int) -> bool:
        """Whether the tables of a schema are there by now: an owner may have brought them since this was opened."""
        wanted = _VERSIONS.get(schema, 0)
        if self._version < wanted:
            self._version = self._all("schema_version")[0][0]
        return self._version >= wanted

    def _record(self, values: tuple[Any, ...]) -> RecordRow:
        return _RECORD_ROW(values)

    def _batch(self, values: tuple[Any, ...]) -> BatchRow:
        return _BATCH_ROW(values)

    def _checked(self, digest: bytes, stored: bytes) -> bytes:
        if sha256(stored).digest() != digest:
            raise StoreCorrupt(
                f"{self._address}: the content kept as {digest.hex()} has another digest",
                hint="the job that made it can be run again, or restore a backup of the database",
                details={"address": str(self._address), "digest": digest.hex()},
            )
        return stored
