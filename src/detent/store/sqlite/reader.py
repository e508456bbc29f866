"""The reading half of the SQLite store.

Each iterator is one statement on a connection of its own, so it sees the commits of the moment it was asked for, and
nothing else that is asked meanwhile is held back to that moment: all statements that are open on one SQLite connection
share one view. The connections are kept for the next iterator.

An iterator holds its moment until it is used up or dropped, and as long as it does the WAL cannot be emptied: read what is
needed and let go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from heapq import merge
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import apsw

from detent.errors import StoreCorrupt
from detent.kernel.run import RUNNING as RUN_OPEN
from detent.kernel.table import State
from detent.store.api import (
    AnswerRow,
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
    WorkRow,
)
from detent.store.checks import INTEGER_MAX, JOB_RECORD_KINDS, PARTITIONS_MAX, POSITION_BITS, check_partition, maker
from detent.store.sqlite.database import (
    DEFAULT_OPTIONS,
    Options,
    close_quietly,
    open_for_reading,
)
from detent.store.sqlite.errors import translated
from detent.store.sqlite.moments import Moments
from detent.store.sqlite.packing import PACKED, SHARED_MARK, Shapes, SharedSignatures, unzip_commands
from detent.store.sqlite.pages import TenantPages
from detent.store.sqlite.schema_check import queries, schema_faults

_Row = TypeVar("_Row")
_Binding = int | str | bytes | None

_ANSWER_ROW: Final = maker(AnswerRow)
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
_WHOLE_WORK_ROW: Final = maker(WorkRow)

_NUMBERS: Final = 1 << POSITION_BITS
_UNLIMITED: Final = -1
_WORK_COLUMNS: Final = len(WorkRow._fields) - 1
"""All but the keys to be written."""
_IDLE_CONNECTIONS_MAX: Final = 4
_SCHEMA_WITH_WORK: Final = 2
"""The schema that brought the index of work and the answers; a ledger of an older one has none."""
_SCHEMA_WITH_DECISIONS: Final = 4
"""The schema that keeps the decision records of a commit together; an older one has a piece of content for each."""
_SCHEMA_WITH_ELEMENTS: Final = 6
"""The schema that brought the elements of arrays into that index."""
_SCHEMA_WITH_SHAPES: Final = 7
"""The schema that packs; a ledger of an older one has no packed rows."""


class SqliteReader(TenantPages):
    """A ledger opened for reading: safe from any process, beside any writer."""

    def __init__(self, path: Path, connection: apsw.Connection, options: Options, *, pinned: bool = False) -> None:
        self._path = path
        self._connection = connection
        self._options = replace(options, any_schema=True)  # Judged once, when the file was opened.
        self._pinned = pinned
        self._idle: list[apsw.Connection] = []
        self._moments = Moments(
            path, partial(open_for_reading, path, self._options), partial(_pinned, path, self._options)
        )
        self._closed = False
        self._schema = 0
        self._begin_packing()
        self._sql = queries()
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
        data = self._one(_first, "content", digest)
        return None if data is None else self._checked(digest, data)

    def contents(self, digests: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """What is stored inline under these digests, each with its digest. Raises `StoreCorrupt` for other bytes."""
        for digest, data in self._rows(_pair, "contents", _hex_list(digests)):
            yield digest, self._checked(digest, data)

    def content_digests(self) -> Iterator[tuple[bytes, int]]:
        """Digest and size of all inline content that is still there, by digest."""
        return self._rows(_pair, "content_digests")

    def is_erased(self, digest: bytes) -> bool:
        """Whether the digest is known as erased."""
        return self._one(_first, "is_erased", digest) is not None

    def erased_digests(self) -> Iterator[bytes]:
        """Every digest known as erased, in order."""
        return self._rows(_first, "erased_digests")

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

    def work(self, workspace: str, execution_key: bytes) -> Iterator[WorkRow]:
        """Jobs and elements of arrays that do this work, in the order in which they were submitted."""
        return self._found_work(_numbered_work, "work", "work_in_elements", workspace, execution_key)

    def work_of_keys(self, workspace: str, execution_keys: Sequence[bytes]) -> Iterator[tuple[WorkRow, JobRow]]:
        """The same for any of these pieces of work, each with its job's row."""
        keys = _hex_list(execution_keys)
        return self._found_work(_numbered_work_and_job, "work_of_keys", "work_of_keys_in_elements", workspace, keys)

    def work_labelled(self, workspace: str, label: str, limit: int = 100) -> Iterator[WorkRow]:
        """Jobs under a label, newest first."""
        if not self._knows(_SCHEMA_WITH_WORK):
            return iter(())
        return self._rows(_work_row, "work_labelled", workspace, label, limit)

    def work_rows(self) -> Iterator[WorkRow]:
        """The whole index, in the order in which the jobs were submitted; without the elements of arrays."""
        return self._rows(_work_row, "work_rows") if self._knows(_SCHEMA_WITH_WORK) else iter(())

    def work_element_rows(self) -> Iterator[tuple[str, int, bytes]]:
        """The keys of all elements of arrays: job, element and key, in the order of submission."""
        return self._rows(_element_key, "work_element_rows") if self._knows(_SCHEMA_WITH_ELEMENTS) else iter(())

    def jobs_outside_work(self) -> Iterator[JobRow]:
        """Jobs that have no row in the index, in the order in which they were submitted."""
        return self._rows(_JOB_ROW, "jobs_outside_work") if self._knows(_SCHEMA_WITH_WORK) else iter(())

    def labels_of_run(self, run_id: str) -> set[str]:
        """The labels of what a run's jobs do."""
        return set(self._rows(_first, "labels_of_run", run_id)) if self._knows(_SCHEMA_WITH_WORK) else set()

    def answer(self, scope: bytes) -> AnswerRow | None:
        """What was answered under a client's idempotency key."""
        return self._one(_ANSWER_ROW, "answer", scope) if self._knows(_SCHEMA_WITH_WORK) else None

    def answer_rows(self) -> Iterator[AnswerRow]:
        """Every answer that is kept, oldest first."""
        return self._rows(_ANSWER_ROW, "answer_rows") if self._knows(_SCHEMA_WITH_WORK) else iter(())

    def answers_kept(self, after_ms: int) -> tuple[int, int | None]:
        """How many answers were stored after a moment, and when the oldest of them was."""
        found = (
            self._one(lambda row: (row[0], row[1]), "answers_kept", after_ms)
            if self._knows(_SCHEMA_WITH_WORK)
            else None
        )
        return (0, None) if found is None else found

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
        self._closed = True
        self._moments.close()
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

    def _found_work(
        self, make: Callable[[tuple[Any, ...]], tuple[int, _Row]], jobs: str, elements: str, *bindings: _Binding
    ) -> Iterator[_Row]:
        """What jobs and elements of arrays do, by the numbers of their jobs."""
        if not self._knows(_SCHEMA_WITH_WORK):
            return iter(())
        found = self._rows(make, jobs, *bindings)
        if self._knows(_SCHEMA_WITH_ELEMENTS) and (inside := list(self._rows(make, elements, *bindings))):
            found = merge(found, inside, key=_first)
        return (row for _, row in found)

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
        body = self._one(_first, "signature", number) if self._knows(_SCHEMA_WITH_SHAPES) else None
        return body if type(body) is bytes else None

    def _last_signature(self) -> int:
        last: int | None = self._one(_first, "last_signature")
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

    def _rows(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: _Binding) -> Iterator[_Row]:
        connection = self._connection_for_rows()
        # The statement starts here and not at the first row, so that "now" is the moment of the call.
        try:
            cursor = connection.execute(self._sql[name], bindings)
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

    def _one(self, make: Callable[[tuple[Any, ...]], _Row], name: str, *bindings: _Binding) -> _Row | None:
        try:
            row = self._connection.execute(self._sql[name], bindings).fetchone()
        except (apsw.Error, OverflowError, UnicodeDecodeError) as exc:
            raise translated(exc, self._path) from exc
        return None if row is None else make(row)


def _pinned(path: Path, options: Options, moment: apsw.Connection) -> SqliteReader:
    return SqliteReader(path, moment, options, pinned=True)


def _verbatim(data: bytes) -> bytes:
    return data


def _batch(values: tuple[Any, ...]) -> BatchRow:
    """A batch as it was appended."""
    row = _BATCH_ROW(values)
    return row._replace(commands=unzip_commands(row.commands)) if row.commands[:1] in PACKED else row


def _first(row: tuple[Any, ...]) -> Any:
    return row[0]


def _work_row(row: tuple[Any, ...]) -> WorkRow:
    return _WHOLE_WORK_ROW((*row, ()))


def _numbered_work(row: tuple[Any, ...]) -> tuple[int, WorkRow]:
    return row[0], _work_row(row[1:])


def _numbered_work_and_job(row: tuple[Any, ...]) -> tuple[int, tuple[WorkRow, JobRow]]:
    return row[0], (_work_row(row[1 : _WORK_COLUMNS + 1]), _JOB_ROW(row[_WORK_COLUMNS + 1 :]))


def _element_key(row: tuple[Any, ...]) -> tuple[str, int, bytes]:
    job_id, element, key = row
    return job_id, element, key


def _hex_list(values: Sequence[bytes]) -> str:
    """Bytes as one parameter of a statement."""
    return json.dumps([value.hex() for value in values])


def _pair(row: tuple[Any, ...]) -> tuple[Any, Any]:
    return row[0], row[1]


def _between(first: int, stop: int | None) -> tuple[int, int]:
    return min(max(first, 0), _NUMBERS - 1), _NUMBERS if stop is None else min(max(stop, 0), _NUMBERS)
