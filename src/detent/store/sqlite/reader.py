"""The reading half of the SQLite store: records, jobs, runs and content of a ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import apsw

from detent.errors import StoreCorrupt
from detent.kernel.run import RUNNING as RUN_OPEN
from detent.kernel.table import State
from detent.store.api import (
    BatchRow,
    CheckpointRow,
    DecisionsRow,
    JobHead,
    JobRow,
    LedgerHead,
    RecordRow,
    RefusalRow,
    RunRow,
    StoreReader,
    TreeHeadRow,
)
from detent.store.checks import INTEGER_MAX, JOB_RECORD_KINDS, PARTITIONS_MAX, POSITION_BITS, check_partition, maker
from detent.store.sqlite.beside import BesideReader
from detent.store.sqlite.database import DEFAULT_OPTIONS, Options, open_for_reading
from detent.store.sqlite.errors import translated
from detent.store.sqlite.moments import Moments
from detent.store.sqlite.packing import PACKED, SHARED_MARK, Shapes, SharedSignatures, unzip_commands
from detent.store.sqlite.pages import TenantPages
from detent.store.sqlite.schema_check import schema_faults
from detent.store.sqlite.statements import first_column, hex_list

_BATCH_ROW: Final = maker(BatchRow)
_DECISIONS_ROW: Final = maker(DecisionsRow)
_CHECKPOINT_ROW: Final = maker(CheckpointRow)
_JOB_HEAD: Final = maker(JobHead)
_JOB_ROW: Final = maker(JobRow)
_LEDGER_HEAD: Final = maker(LedgerHead)
_RECORD_ROW: Final = maker(RecordRow)
_REFUSAL_ROW: Final = maker(RefusalRow)
_RUN_ROW: Final = maker(RunRow)
_TREE_HEAD_ROW: Final = maker(TreeHeadRow)

_NUMBERS: Final = 1 << POSITION_BITS
_UNLIMITED: Final = -1
_SCHEMA_WITH_DECISIONS: Final = 4
"""The schema that keeps the decision records of a commit together; an older one has a piece of content for each."""
_SCHEMA_WITH_SHAPES: Final = 7
"""The schema that packs; a ledger of an older one has no packed rows."""


class SqliteReader(BesideReader, TenantPages):
    """A ledger opened for reading: safe from any process, beside any writer."""

    def __init__(self, path: Path, connection: apsw.Connection, options: Options, *, pinned: bool = False) -> None:
        super().__init__(path, connection, options, pinned=pinned)
        self._moments = Moments(
            path, partial(open_for_reading, path, self._options), partial(_pinned, path, self._options)
        )
        self._begin_packing()
        row = self._one(tuple, "ledger")
        # The table is strict when it is written; a damaged page, or an edited file, can hold any value. Nearly
        # everything goes through all partitions, so their number is believed only as far as their rows are there.
        if (
            row is None
            or type(row[0]) is not str
            or type(row[1]) is not int
            or not 1 <= row[1] <= PARTITIONS_MAX
            or row[1] != row[2]
        ):
            raise StoreCorrupt(
                f"{path} has lost its name or its number of partitions",
                hint="restore a backup of the file",
                details={"path": str(path)},
            )
        self._origin: str = row[0]
        self._partitions: int = row[1]

    @classmethod
    def open(cls, path: Path, *, _options: Options = DEFAULT_OPTIONS) -> Self:
        """Open an existing ledger without the right to change it."""
        return cls(path, open_for_reading(path, _options), _options)

    @property
    def origin(self) -> str:
        """The ledger's own name."""
        return self._origin

    @property
    def partitions(self) -> int:
        """P, fixed when the ledger was made."""
        return self._partitions

    def snapshot(self) -> AbstractContextManager[StoreReader]:
        """A reader of its own that sees the commits of this moment and none that follow."""
        return self._moments.now()

    def look_through(self, connection: apsw.Connection) -> None:
        """Read what another connection sees from now on; what is known of shapes and signatures stays true."""
        self._connection = connection

    def head(self, partition: int) -> LedgerHead:
        """Where the partition's log stands."""
        check_partition(partition, self._partitions)
        head = self._one(_LEDGER_HEAD, "head", partition)
        if head is None:
            raise StoreCorrupt(
                f"{self._path} has lost partition {partition}",
                hint="restore a backup of the file",
                details={"path": str(self._path), "partition": partition},
            )
        return head

    def batch(self, partition: int, batch_no: int) -> BatchRow | None:
        """One batch, or None when the log is not that long."""
        return next(self.batches(partition, batch_no, batch_no + 1), None)

    def batches(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[BatchRow]:
        """Batches from ``first`` up to but not including ``stop``."""
        check_partition(partition, self._partitions)
        return self._rows(_batch, "batches", partition, *_between(first, stop))

    def records(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[RecordRow]:
        """Records from position ``first`` up to but not including ``stop``."""
        check_partition(partition, self._partitions)
        return self._rows(self._record, "records", partition, *_between(first, stop))

    def records_of_job(self, job_id: str) -> Iterator[RecordRow]:
        """A job's records in the order of their positions."""
        return self._rows(self._record, "records_of_job", job_id)

    def records_of_kind(self, partition: int, kind: str) -> Iterator[RecordRow]:
        """A partition's records of one kind, in the order of their positions."""
        check_partition(partition, self._partitions)
        name = "records_of_common_kind" if kind in JOB_RECORD_KINDS else "records_of_rare_kind"
        return self._rows(self._record, name, partition, kind)

    def records_of_run(self, run_id: str) -> Iterator[RecordRow]:
        """A run's own records and its jobs' submissions, by partition and position."""
        return self._rows(self._record, "records_of_run", run_id)

    def record_of_run(self, run_id: str, kind: str) -> RecordRow | None:
        """The newest record of a kind that a run has of its own."""
        return self._one(self._record, "record_of_run", run_id, kind)

    def transition(self, job_id: str, transition_seq: int) -> RecordRow | None:
        """The transition record of a job that carries this sequence number."""
        if transition_seq > INTEGER_MAX:
            return None
        return self._one(self._record, "transition", job_id, transition_seq)

    def submissions(self, job_ids: Sequence[str]) -> Iterator[RecordRow]:
        """The ``submitted`` records of these jobs, in no order."""
        return self._rows(self._record, "submissions", json.dumps(list(dict.fromkeys(job_ids))))

    def transitions(self, wanted: Sequence[tuple[str, int]]) -> Iterator[RecordRow]:
        """The transition records that carry these sequence numbers, in no order."""
        known = [pair for pair in wanted if pair[1] <= INTEGER_MAX]
        return self._rows(self._record, "transitions", json.dumps(known))

    def job(self, job_id: str) -> JobRow | None:
        """The job's row."""
        return self._one(_JOB_ROW, "job", job_id)

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

    def jobs(
        self,
        *,
        run_id: str | None = None,
        state: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobRow]:
        """Jobs by the UTF-8 bytes of their ids."""
        page = (state, after or "", _UNLIMITED if limit is None else limit)
        if run_id is not None:
            return self._rows(_JOB_ROW, "jobs_of_run", *page, run_id)
        # Nearly every job of a long history has succeeded: there the order of ids is the shorter way to the next page.
        name = "jobs" if state in {None, State.SUCCEEDED} else "jobs_in_state"
        return self._rows(_JOB_ROW, name, *page)

    def recent_jobs(
        self, *, run_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[JobRow]:
        """Jobs in the order in which they were submitted, newest first."""
        page = (state, _UNLIMITED if limit is None else limit)
        if run_id is not None:
            return self._rows(_JOB_ROW, "recent_jobs_of_run", *page, run_id)
        # As above: a state that most jobs are in is found soonest by going through all of them.
        name = "recent_jobs" if state in {None, State.SUCCEEDED} else "recent_jobs_in_state"
        return self._rows(_JOB_ROW, name, *page)

    def job_heads(self, *, run_id: str | None = None) -> Iterator[JobHead]:
        """Every job's head in canonical order."""
        if run_id is None:
            return self._rows(_JOB_HEAD, "job_heads")
        return self._rows(_JOB_HEAD, "job_heads_of_run", run_id)

    def job_counts(self) -> dict[str, int]:
        """How many jobs are in each state; states without a job are left out."""
        return dict(self._rows(_pair, "job_counts"))

    def run(self, run_id: str) -> RunRow | None:
        """The run's row."""
        return self._one(_RUN_ROW, "run", run_id)

    def runs(self, *, status: str | None = None, limit: int | None = None) -> Iterator[RunRow]:
        """Runs, or those of one status, newest first."""
        most = _UNLIMITED if limit is None else limit
        if status == RUN_OPEN:
            return self._rows(_RUN_ROW, "runs_open", most)
        return self._rows(_RUN_ROW, "runs", most, status)

    def content(self, digest: bytes) -> bytes | None:
        """Bytes stored inline under a digest; None when absent or erased. Raises `StoreCorrupt` for other bytes."""
        data = self._one(first_column, "content", digest)
        return None if data is None else self._checked(digest, data)

    def contents(self, digests: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """What is stored inline under these digests, each with its digest. Raises `StoreCorrupt` for other bytes."""
        for digest, data in self._rows(_pair, "contents", hex_list(digests)):
            yield digest, self._checked(digest, data)

    def content_digests(self) -> Iterator[tuple[bytes, int]]:
        """Digest and size of all inline content that is still there, by digest."""
        return self._rows(_pair, "content_digests")

    def is_erased(self, digest: bytes) -> bool:
        """Whether the digest is known as erased."""
        return self._one(first_column, "is_erased", digest) is not None

    def erased_digests(self) -> Iterator[bytes]:
        """Every digest known as erased, in order."""
        return self._rows(first_column, "erased_digests")

    def decisions(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[DecisionsRow]:
        """What was kept of the decisions of batches, by batch number."""
        check_partition(partition, self._partitions)
        if not self._knows(_SCHEMA_WITH_DECISIONS):
            return iter(())
        return self._rows(_DECISIONS_ROW, "decisions", partition, *_between(first, stop))

    def checkpoints(self, partition: int) -> Iterator[CheckpointRow]:
        """Kept checkpoints, newest first."""
        check_partition(partition, self._partitions)
        return self._rows(_CHECKPOINT_ROW, "checkpoints", partition)

    def tree_heads(self, partition: int) -> Iterator[TreeHeadRow]:
        """Stored tree heads, newest first."""
        check_partition(partition, self._partitions)
        return self._rows(_TREE_HEAD_ROW, "tree_heads", partition)

    def refusals(self, *, job_id: str | None = None, limit: int = 100) -> Iterator[RefusalRow]:
        """The newest refusals first."""
        return self._rows(_REFUSAL_ROW, "refusals", job_id, limit)

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


def _batch(values: tuple[Any, ...]) -> BatchRow:
    """A batch as it was appended."""
    row = _BATCH_ROW(values)
    return row._replace(commands=unzip_commands(row.commands)) if row.commands[:1] in PACKED else row


def _pair(row: tuple[Any, ...]) -> tuple[Any, Any]:
    return row[0], row[1]


def _between(first: int, stop: int | None) -> tuple[int, int]:
    return min(max(first, 0), _NUMBERS - 1), _NUMBERS if stop is None else min(max(stop, 0), _NUMBERS)
