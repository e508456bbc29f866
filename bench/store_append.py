"""How fast the SQLite store appends, beside the barest loop that writes the same records to the same disk.

The bare loop is what one would write first: one transaction for each batch, one insert and one upsert for each record,
nothing checked, no batch record, no index but the two keys. Both sides run in turns in one process and on one directory,
so the ratios mean something on a busy machine; the rates themselves do not. A sync costs what the disk makes it cost, and
at batch 1 it is nearly all there is.

With ``--postgres URL`` the same for PostgreSQL, beside a bare loop of psycopg that signs and chains each record by itself, as one would write
a ledger there: ``COPY`` and one upsert for each batch, or one statement for a batch of 1. Our side signs and chains one batch
record over all of them, which is what the store is given by its owner. A schema is made for it and dropped again.

    python bench/store_append.py [--directory DIR] [--seconds S] [--postgres URL]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import apsw

from detent.canon import SigningKey
from detent.store.api import BatchRow, Commit, JobRow, RecordRow
from detent.store.sqlite import SqliteStore

BODY_BYTES = 300
STATES = ("QUEUED", "RUNNING", "SUCCEEDED")

BARE_SCHEMA = """
CREATE TABLE records (position INTEGER PRIMARY KEY, job_id TEXT, seq INTEGER, body BLOB);
CREATE TABLE jobs (job_id TEXT PRIMARY KEY, state TEXT, seq INTEGER, body BLOB) WITHOUT ROWID;
"""
BARE_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?)"
BARE_UPSERT = """
INSERT INTO jobs VALUES (?, ?, ?, ?)
ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, seq = excluded.seq, body = excluded.body
"""


def commits(batch_size: int) -> Iterator[Commit]:
    """Jobs that are submitted, leased and finished, each step of ``batch_size`` of them in one commit."""
    position = batch_no = 0
    body, digest = os.urandom(BODY_BYTES), os.urandom(32)
    while True:
        generation, step = divmod(batch_no, len(STATES))
        job_ids = [hashlib.sha256(b"%d/%d" % (generation, index)).hexdigest()[:32] for index in range(batch_size)]
        kind, seq = ("submitted", None) if step == 0 else ("transition", step - 1)
        records = [
            RecordRow(0, position + index, batch_no, kind, job_id, None, seq, body, None)
            for index, job_id in enumerate(job_ids)
        ]
        jobs = [
            JobRow(0, job_id, "tenant", "run", STATES[step], step, 0, digest, batch_no, body, step - 1)
            for job_id in job_ids
        ]
        node_count = (batch_no ^ (batch_no + 1)).bit_length() - 1
        batch = BatchRow(
            0, batch_no, 1, body, bytes(64), digest, bytes(32 * node_count), bytes(40 * batch_size), position, batch_size,
            batch_no, batch_no,
        )  # fmt: skip
        yield Commit(batch, records, jobs)
        position += batch_size
        batch_no += 1


class Bare:
    """The loop without anything around it, with the store's own settings."""

    def __init__(self, path: Path, batch_size: int) -> None:
        self.connection = apsw.Connection(str(path))
        for pragma, value in (("journal_mode", "WAL"), ("synchronous", "FULL"), ("cache_size", -32768)):
            self.connection.pragma(pragma, value)
        self.connection.execute(BARE_SCHEMA)
        self.source = commits(batch_size)

    def prepared(self, count: int) -> list[tuple[list[tuple[object, ...]], list[tuple[object, ...]]]]:
        return [
            (
                [(row.position, row.job_id, row.transition_seq, row.body) for row in commit.records],
                [(job.job_id, job.state, job.transition_seq, job.body) for job in commit.jobs],
            )
            for commit in islice(self.source, count)
        ]

    def run(self, count: int) -> float:
        work = self.prepared(count)
        connection = self.connection
        started = time.perf_counter()
        for records, jobs in work:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(BARE_INSERT, records)
            connection.executemany(BARE_UPSERT, jobs)
            connection.execute("COMMIT")
        return time.perf_counter() - started


class Ours:
    """The store, through its protocol."""

    def __init__(self, path: Path, batch_size: int) -> None:
        self.store = SqliteStore.create(path, "bench/store", 1)
        self.store.take_ownership(0)
        self.source = commits(batch_size)

    def run(self, count: int) -> float:
        work = list(islice(self.source, count))
        append = self.store.append
        started = time.perf_counter()
        for commit in work:
            append(commit)
        return time.perf_counter() - started


BARE_POSTGRES = """
CREATE TABLE {s}.bare_records (position bigint PRIMARY KEY, job_id text, seq bigint, body bytea, hash bytea, signature bytea);
CREATE TABLE {s}.bare_jobs (job_id text PRIMARY KEY, state text, seq bigint, body bytea);
"""
BARE_COPY = "COPY {s}.bare_records FROM STDIN (FORMAT BINARY)"
BARE_MERGE = """
INSERT INTO {s}.bare_jobs SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bytea[])
ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, seq = excluded.seq, body = excluded.body
"""
BARE_SINGLE = """
WITH record AS (INSERT INTO {s}.bare_records VALUES (%s, %s, %s, %s, %s, %s))
INSERT INTO {s}.bare_jobs VALUES (%s, %s, %s, %s)
ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, seq = excluded.seq, body = excluded.body
"""
COLUMN_TYPES = ("int8", "text", "int8", "bytea", "bytea", "bytea")


class BarePostgres(Bare):
    """The same for PostgreSQL, each record chained to the one before and signed."""

    def __init__(self, url: str, schema: str, batch_size: int) -> None:
        import psycopg  # noqa: PLC0415 - an extra

        self.database = psycopg.connect(url, autocommit=True)
        self.schema, self.source = schema, commits(batch_size)
        self.database.execute(BARE_POSTGRES.format(s=schema).encode())
        self.key, self.last = SigningKey(os.urandom(32)), bytes(32)

    def run(self, count: int) -> float:
        work = self.prepared(count)
        copy, merge, single = (text.format(s=self.schema).encode() for text in (BARE_COPY, BARE_MERGE, BARE_SINGLE))
        started = time.perf_counter()
        for records, jobs in work:
            signed = [(*row, *self.chained(row[3])) for row in records]
            if len(signed) == 1:
                self.database.execute(single, (*signed[0], *jobs[0]), prepare=True)
                continue
            with self.database.transaction(), self.database.cursor() as cursor:
                with cursor.copy(copy) as stream:
                    stream.set_types(COLUMN_TYPES)
                    for row in signed:
                        stream.write_row(row)
                cursor.execute(merge, [list(column) for column in zip(*jobs, strict=True)], prepare=True)
        return time.perf_counter() - started

    def chained(self, body: object) -> tuple[bytes, bytes]:
        """A record's place in the chain, and a signature on it."""
        assert isinstance(body, bytes)
        self.last = hashlib.sha256(self.last + body).digest()
        return self.last, self.key.sign(self.last)


class OursPostgres(Ours):
    """The store in PostgreSQL; each batch is chained and signed as its owner does it."""

    def __init__(self, url: str, schema: str, batch_size: int) -> None:
        from detent.store.postgres.address import parse_address  # noqa: PLC0415 - an extra
        from detent.store.postgres.store import PostgresStore  # noqa: PLC0415

        address = parse_address(f"{url}{'&' if '?' in url else '?'}schema={schema}", "--postgres")
        self.store = PostgresStore.create(address, "bench/store", 1)  # type: ignore[assignment]
        self.store.take_ownership(0)
        self.source = commits(batch_size)
        self.key = SigningKey(os.urandom(32))

    def run(self, count: int) -> float:
        work = list(islice(self.source, count))
        append = self.store.append
        started = time.perf_counter()
        for commit in work:
            for record in commit.records:
                hashlib.sha256(record.body).digest()
            append(commit._replace(batch=commit.batch._replace(signature=self.key.sign(commit.batch.body))))
        return time.perf_counter() - started


def compare_postgres(url: str, batch_size: int, seconds: float) -> None:
    """The comparison in a schema of its own, which is dropped at the end."""
    schema = f"detent_bench_{os.getpid()}_{batch_size}"
    ours = OursPostgres(url, schema, batch_size)
    bare = BarePostgres(url, schema, batch_size)
    try:
        take_turns(bare, ours, batch_size, seconds)
    finally:
        ours.store.close()
        bare.database.execute(f"DROP SCHEMA {schema} CASCADE".encode())
        bare.database.close()


def compare(directory: Path, batch_size: int, seconds: float) -> None:
    """The comparison for SQLite."""
    bare, ours = (
        Bare(directory / f"bare{batch_size}.db", batch_size),
        Ours(directory / f"ours{batch_size}.db", batch_size),
    )
    take_turns(bare, ours, batch_size, seconds)


def take_turns(bare: Bare, ours: Ours, batch_size: int, seconds: float) -> None:
    """Run both sides in turns for about as long as asked and print what came out."""
    count = max(10, int(0.1 / (bare.run(20) / 20)))
    rates: list[tuple[float, float]] = []
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends or len(rates) < 5:
        rates.append((count * batch_size / bare.run(count), count * batch_size / ours.run(count)))
    bare_rate, our_rate = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(one / other for one, other in rates)
    print(
        f"batch {batch_size:>4}: bare loop {bare_rate:>9,.0f} records/s, store {our_rate:>9,.0f} records/s, "
        f"bare/store = {ratio:.2f} ({len(rates)} turns of {count} commits)"
    )


def main() -> None:
    """Print one line for each batch size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where to write (default: the system's temporary directory)")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each batch size")
    parser.add_argument("--postgres", metavar="URL", help="compare on this PostgreSQL instead")
    arguments = parser.parse_args()
    if arguments.postgres:
        print("PostgreSQL")
        for batch_size in (1, 10, 100, 1000):
            compare_postgres(arguments.postgres, batch_size, arguments.seconds)
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        print(f"SQLite {apsw.sqlite_lib_version()} in {directory}")
        for batch_size in (1, 10, 100, 1000):
            compare(Path(directory), batch_size, arguments.seconds)


if __name__ == "__main__":
    main()
