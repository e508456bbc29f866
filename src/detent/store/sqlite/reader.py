"""The reading half of the SQLite store: what is packed is unpacked, and what the file itself says about its health."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import apsw

from detent.errors import StoreCorrupt
from detent.store.api import BatchRow, JobRow, RecordRow, StoreReader
from detent.store.checks import maker
from detent.store.ledger_reader import NamedReader
from detent.store.named_queries import first_column
from detent.store.sqlite.database import DEFAULT_OPTIONS, Options, open_for_reading
from detent.store.sqlite.errors import translated
from detent.store.sqlite.moments import Moments
from detent.store.sqlite.packing import PACKED, SHARED_MARK, Shapes, SharedSignatures, unzip_commands
from detent.store.sqlite.schema_check import schema_faults
from detent.store.sqlite.statements import Statements

_BATCH_ROW: Final = maker(BatchRow)
_JOB_ROW: Final = maker(JobRow)
_RECORD_ROW: Final = maker(RecordRow)

_SCHEMA_WITH_SHAPES: Final = 7
"""The schema that packs; a ledger of an older one has no packed rows."""


class SqliteReader(Statements, NamedReader):
    """A ledger opened for reading: safe from any process, beside any writer."""

    def __init__(self, path: Path, connection: apsw.Connection, options: Options, *, pinned: bool = False) -> None:
        super().__init__(path, connection, options, pinned=pinned)
        self._moments = Moments(
            path, partial(open_for_reading, path, self._options), partial(_pinned, path, self._options)
        )
        self._begin_packing()
        self._introduce()

    @classmethod
    def open(cls, path: Path, *, _options: Options = DEFAULT_OPTIONS) -> Self:
        """Open an existing ledger without the right to change it."""
        return cls(path, open_for_reading(path, _options), _options)

    def snapshot(self) -> AbstractContextManager[StoreReader]:
        """A reader of its own that sees the commits of this moment and none that follow."""
        return self._moments.now()

    def look_through(self, connection: apsw.Connection) -> None:
        """Read what another connection sees from now on; what is known of shapes and signatures stays true."""
        self._connection = connection

    def jobs_of(self, job_ids: Sequence[str]) -> list[JobRow]:
        """The rows of these jobs, in no order."""
        # A name with anything unusual in it, such as a zero byte, is not left to what JSON makes of it.
        plain = [job_id for job_id in dict.fromkeys(job_ids) if job_id.isascii() and job_id.isprintable()]
        try:
            rows = self._connection.execute(self._sql["jobs_of"], (json.dumps(plain),)).fetchall()
        except (apsw.Error, OverflowError, UnicodeDecodeError) as exc:
            raise translated(exc, self._path) from exc
        found = [_JOB_ROW(row) for row in rows]
        if len(plain) < len(job_ids):
            others = (self.job(job_id) for job_id in set(job_ids).difference(plain))
            found += [row for row in others if row is not None]
        return found

    def damage(self) -> list[str]:
        """What SQLite's own integrity check finds in the file: pages and indexes. Reads all of it.

        Not the ``CHECK``s: SQLite does not even read them from a file it has opened for reading only.
        """
        try:
            rows = self._connection.pragma("integrity_check")
        except apsw.Error as exc:
            return [str(exc)]
        found = [rows] if isinstance(rows, str) else [str(row) for row in rows]
        return [] if found == ["ok"] else found

    def schema_faults(self) -> list[str]:
        """In what the file differs from the schema that it says it has: a planted trigger, a changed table."""
        try:
            return schema_faults(self._connection)
        except apsw.Error as exc:
            raise translated(exc, self._path) from exc

    def close(self) -> None:
        """Let go of the file."""
        self._moments.close()
        super().close()

    def _record(self, values: tuple[Any, ...]) -> RecordRow:
        """A record as it was appended."""
        row = _RECORD_ROW(values)
        job_id, body, evidence = row[4], row[7], row[8]
        if body[:1] not in PACKED and (evidence is None or evidence[:1] not in PACKED):
            return row
        evidence = None if evidence is None else self._message(evidence, job_id)
        return RecordRow(*row[:7], self._shapes.unpack(body, job_id), evidence)

    def _batch(self, values: tuple[Any, ...]) -> BatchRow:
        """A batch as it was appended."""
        row = _BATCH_ROW(values)
        return row._replace(commands=unzip_commands(row.commands)) if row.commands[:1] in PACKED else row

    def _message(self, stored: bytes, job_id: str | None) -> bytes:
        """Evidence as it was appended: its signature may be shared, and the rest of a shape."""
        if stored[:1] == SHARED_MARK:
            return self._signatures.put_back(stored, lambda rest: self._shapes.unpack(rest, job_id))
        return self._shapes.unpack(stored, job_id)

    def _begin_packing(self) -> None:
        """Know no shapes and no signatures yet; what is needed of them is read."""
        self._shapes = Shapes(self._load_shapes)
        self._signatures = SharedSignatures(self._load_signature, self._last_signature)

    def _load_shapes(self, after: int) -> list[tuple[int, bytes]]:
        if not self._knows(_SCHEMA_WITH_SHAPES):
            return []
        try:
            rows: list[Any] = self._connection.execute(self._sql["shapes"], (after,)).fetchall()
        except (apsw.Error, UnicodeDecodeError) as exc:
            raise translated(exc, self._path) from exc
        return [(number, body) for number, body in rows if type(number) is int and type(body) is bytes]

    def _load_signature(self, number: int) -> bytes | None:
        body = self._one(first_column, "signature", number) if self._knows(_SCHEMA_WITH_SHAPES) else None
        return body if type(body) is bytes else None

    def _last_signature(self) -> int:
        last: int | None = self._one(first_column, "last_signature")
        return last or 0

    def _checked(self, digest: bytes, stored: bytes) -> bytes:
        if type(stored) is bytes and sha256(stored).digest() == digest:
            return stored
        # Bytes that merely look like a message without its signature have their digest, and were handed out above.
        data = self._signatures.put_back(stored, _verbatim) if type(stored) is bytes else b""
        if sha256(data).digest() != digest:
            raise StoreCorrupt(
                f"{self._path}: the content kept as {digest.hex()} has another digest",
                hint="the job that made it can be run again, or restore a backup of the file",
                details={"path": str(self._path), "digest": digest.hex()},
            )
        return data


def _pinned(path: Path, options: Options, moment: apsw.Connection) -> SqliteReader:
    return SqliteReader(path, moment, options, pinned=True)


def _verbatim(data: bytes) -> bytes:
    return data
