"""Filling a schema with the ledger of another store, piece by piece, and finishing it all at once.

An unfinished copy has its tables and a note on its schema that says of which ledger it is; it has no row in ``ledger``, so nothing
opens it as one. What was copied is seen by the number of its batches, so a copy that was cut short goes on where it ended.
"""

from __future__ import annotations

import re
from typing import Any, Final

import psycopg

from detent.canon.late import pattern
from detent.errors import HomeError
from detent.store.api import Load
from detent.store.postgres.address import PostgresAddress
from detent.store.postgres.database import (
    close_quietly,
    connect,
    insist_on_durable,
    run_script,
)
from detent.store.postgres.errors import translated
from detent.store.postgres.sql import migrations, queries, schema_text
from detent.store.postgres.store import PostgresStore

_NOTE: Final = "unfinished detent copy of "
_ORIGIN: Final = pattern(r"[A-Za-z0-9/._-]{1,200}", re.ASCII)


class PostgresLoader:
    """The target of a copy."""

    def __init__(self, address: PostgresAddress, origin: str, partitions: int) -> None:
        """Begin a copy in an empty schema, or go on with one of the same ledger; `HomeError` for anything else there."""
        self._address, self._origin, self._partitions = address, origin, partitions
        self._sql = queries(address.schema)
        self._connection = connect(address)
        try:
            insist_on_durable(self._connection, address)
            self._begin()
        except psycopg.Error as exc:
            close_quietly(self._connection)
            raise translated(exc, address) from exc
        except BaseException:
            close_quietly(self._connection)
            raise

    def sizes(self) -> list[int]:
        """How many batches of each partition are here already."""
        return [
            self._connection.execute(self._sql["head"], [number]).fetchall()[0][1] for number in range(self._partitions)
        ]

    def load(self, rows: Load) -> None:
        """Keep a piece of the source, whole or not at all."""
        try:
            with self._connection.transaction(), self._connection.cursor() as cursor:
                for name, values in _statements(rows):
                    if values:
                        cursor.executemany(self._sql[name], [[*map(_bytes, row)] for row in values])
        except psycopg.Error as exc:
            raise translated(exc, self._address) from exc

    def finish(self, rows: Load) -> PostgresStore:
        """Keep the last piece and make the copy a ledger, together."""
        try:
            with self._connection.transaction():
                self.load(rows)
                self._connection.execute(
                    self._sql["insert_ledger"], [len(migrations(self._address.schema)), self._origin, self._partitions]
                )
                self._note("")
        except psycopg.Error as exc:
            raise translated(exc, self._address) from exc
        return PostgresStore.open(self._address)

    def close(self) -> None:
        """Let go of the server; what was loaded stays."""
        close_quietly(self._connection)

    def _begin(self) -> None:
        schema = self._address.schema
        self._connection.execute(self._sql["create_schema"])
        held = self._connection.execute(self._sql["schema_objects"], [schema]).fetchall()
        noted = self._connection.execute(self._sql["copying"], [schema]).fetchall()[0][0] or ""
        if held and noted != f"{_NOTE}{self._origin}":
            raise HomeError(
                f"{self._address}: the schema {schema} is not empty",
                hint="name another schema with ?schema=NAME, or drop this one if nothing in it is needed",
                details={"address": str(self._address)},
            )
        if not held:
            with self._connection.transaction():
                run_script(self._connection, schema_text(schema))
                self._connection.execute(self._sql["insert_partition"], [self._partitions])
                self._note(f"{_NOTE}{self._origin}")

    def _note(self, text: str) -> None:
        if text and _ORIGIN.fullmatch(self._origin) is None:
            raise HomeError(f"a ledger that calls itself {self._origin!r} cannot be copied")
        self._connection.execute(self._sql["mark_copying"].replace("$1", text))


def _statements(rows: Load) -> list[tuple[str, Any]]:
    names = {row[4]: None for row in rows.records if row[3] != "transition" and row[4] is not None}
    names.update({job[1]: None for job in rows.jobs})
    return [
        ("insert_job_name", [(name,) for name in names]),
        ("load_batch", rows.batches),
        ("insert_decisions", rows.decisions),
        ("insert_record", rows.records),
        ("load_job", [job[:10] for job in rows.jobs]),
        ("upsert_run", rows.runs),
        ("insert_content", rows.content),
        ("erase_content", [(digest,) for digest in rows.erased]),
        ("insert_checkpoint", rows.checkpoints),
        ("load_tree_head", rows.tree_heads),
        ("insert_refusal", rows.refusals),
        ("insert_work", [row[:6] for row in rows.work]),
        ("insert_work_element", rows.elements),
        ("insert_label", rows.labels),
        ("upsert_answer", rows.answers),
        ("load_epoch", rows.epochs),
    ]


def _bytes(value: object) -> object:
    return value.encode() if isinstance(value, str) else value
