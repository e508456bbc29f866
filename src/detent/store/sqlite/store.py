"""The writing half of the SQLite store: every change is one transaction that begins with the write lock.

Rows go to prepared statements as they come; the only Python that runs once for each row is in `check_commit`. What the
kernel decided in memory is checked again here by predicates: the partition moves on from the owner's epoch and batch
number or not at all, and so does each job from the sequence number the writer saw.

After a failed sync it is unknown what is on the disk, even to SQLite: its next transaction would be written over frames
that the disk may or may not have. From then on the store refuses to write, and closing leaves the WAL as it is for the
next opening to recover (X-173).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import apsw

from detent.errors import EpochLost, InvariantBroken, StoreUnavailable
from detent.store.api import (
    ANSWERS_KEPT_MS,
    CHECKPOINTS_KEPT,
    NEVER_REUSED,
    REFUSALS_KEPT_MAX,
    AnswerRow,
    BatchRow,
    Commit,
    JobRow,
    LabelRow,
    Load,
    RecordRow,
    RefusalRow,
    TreeHeadRow,
    WorkRow,
    label_of,
)
from detent.store.checks import (
    JOB_RECORD_KINDS,
    check_beside,
    check_commit,
    check_ledger,
    check_partition,
    check_refusals,
    check_tree_head,
)
from detent.store.sqlite.database import (
    DEFAULT_OPTIONS,
    Options,
    close_quietly,
    create_file,
    open_writer,
    settle_wal,
)
from detent.store.sqlite.errors import translated, translated_commit
from detent.store.sqlite.packing import PACKED, VERBATIM, zip_commands
from detent.store.sqlite.reader import SqliteReader
from detent.store.sqlite.schema_check import queries

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

_SQL: Final = queries()
_BEGIN: Final = _SQL["begin_write"]
_COMMIT: Final = _SQL["commit"]
_ROLLBACK: Final = _SQL["rollback"]
_INSERT_BATCH: Final = _SQL["insert_batch"]
_INSERT_JOB_NAME: Final = _SQL["insert_job_name"]
_INSERT_RECORD: Final = _SQL["insert_record"]
_INSERT_JOB: Final = _SQL["insert_job"]
_WORK_COLUMNS: Final = WorkRow._fields.index("element")
"""What a row of the index is written with; its elements have rows of their own."""
_UPDATE_JOB: Final = _SQL["update_job"]


class _WalPages:
    """How long SQLite said the WAL was after the last commit. Apart from the store, so that no cycle keeps that alive."""

    count = 0

    def noted(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self.count = pages
        return apsw.SQLITE_OK


class SqliteStore(SqliteReader):
    """A ledger opened for writing, from one thread.

    Iterators read through connections of their own, so that each shows whole commits even while its owner goes on writing.
    A single row is read through the writer itself, between two transactions: it alone still has in memory what it wrote
    last, where every other connection begins anew after each commit.
    """

    def __init__(self, path: Path, writer: apsw.Connection, options: Options) -> None:
        super().__init__(path, writer, options)
        self._writer = writer
        self._cursor = writer.cursor()
        self._wal = _WalPages()
        writer.set_wal_hook(self._wal.noted)
        self._outcome_unknown = False

    @classmethod
    def create(cls, path: Path, origin: str, partitions: int, *, _options: Options = DEFAULT_OPTIONS) -> Self:
        """Make an empty ledger at a path where nothing is, and open it."""
        cls.make(path, origin, partitions, _options=_options)
        return cls.open(path, _options=_options)

    @staticmethod
    def make(path: Path, origin: str, partitions: int, *, _options: Options = DEFAULT_OPTIONS) -> None:
        """Make an empty ledger at a path where nothing is."""
        check_ledger(origin, partitions)
        create_file(path, origin, partitions, _options)

    @classmethod
    def open(cls, path: Path, *, _options: Options = DEFAULT_OPTIONS) -> Self:
        """Open an existing ledger for writing; an older schema is brought up to date first."""
        writer = open_writer(path, _options)
        try:
            return cls(path, writer, _options)
        except BaseException:
            close_quietly(writer)
            raise

    @staticmethod
    def open_reader(path: Path, *, _options: Options = DEFAULT_OPTIONS) -> SqliteReader:
        """Open an existing ledger without the right to change it."""
        return SqliteReader.open(path, _options=_options)

    def take_ownership(self, partition: int) -> int:
        """Raise the partition's epoch by one, durably, and return it."""
        check_partition(partition, self._partitions)
        return self._transact(self._raise_epoch, partition)

    def append(self, commit: Commit) -> None:
        """Make one commit durable before returning, or raise and leave nothing of it."""
        check_commit(commit, self._partitions)
        self._transact(self._write_commit, commit)
        if commit.erased:
            self._empty_wal()

    def append_refusals(self, refusals: Sequence[RefusalRow]) -> None:
        """Add to the bounded decision log outside a commit."""
        check_refusals(refusals, self._partitions)
        self._transact(self._write_refusals, refusals)

    def append_beside(
        self, work: Sequence[WorkRow], answers: Sequence[AnswerRow], answers_kept_ms: int = ANSWERS_KEPT_MS
    ) -> None:
        """Add to the work index and to the kept answers outside a commit."""
        check_beside(work, answers)
        self._transact(self._write_beside, (work, answers, answers_kept_ms))

    def append_tree_head(self, head: TreeHeadRow) -> None:
        """Keep a signed tree head over batches that are already durable."""
        check_tree_head(head, head.partition, self.head(head.partition).size)
        self._transact(self._write_tree_head, head)

    def remove_content(self, digests: Sequence[bytes]) -> int:
        """Delete unreferenced inline content; returns the number of bytes freed."""
        freed = self._transact(self._delete_content, digests)
        if freed:
            self._empty_wal()
        return freed

    def load(self, rows: Load) -> None:
        """Keep rows of another ledger as they are, in one transaction; rows that are there already stay."""
        self._transact(self._write_load, rows)

    def close(self) -> None:
        """Copy the WAL into the database and let go of the file."""
        if self._outcome_unknown:
            with suppress(apsw.Error):
                self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        super().close()

    # Transactions

    def _transact(self, work: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
        if self._outcome_unknown:
            raise StoreUnavailable(
                f"{self._path}: an earlier commit failed with an unknown outcome; nothing is written on top of it",
                hint="open the ledger again, which finds out what is there",
                details={"path": str(self._path)},
            )
        try:
            self._cursor.execute(_BEGIN)
            result = work(argument)
        except (apsw.Error, OverflowError) as exc:
            self._roll_back()
            raise translated(exc, self._path) from exc
        except BaseException:
            self._roll_back()
            raise
        try:
            self._cursor.execute(_COMMIT)
        except apsw.Error as exc:
            error = translated_commit(exc, self._path)
            self._outcome_unknown = not isinstance(error, StoreUnavailable)
            self._roll_back()
            raise error from exc
        if self._wal.count >= self._options.wal_pages_max:
            self._copy_wal()
        return result

    def _roll_back(self) -> None:
        self._begin_packing()  # What this transaction learnt is not in the file.
        try:
            if self._writer.in_transaction:
                self._writer.execute(_ROLLBACK)
        except apsw.Error:
            # The error that led here is the one to report; a connection in this state must not be written to again.
            self._outcome_unknown = True

    def _copy_wal(self) -> None:
        """Copy what can be copied of the WAL into the database, so that it starts over from its beginning.

        SQLite would do this within the COMMIT. Out here a failure cannot be mistaken for one of the commit, which is
        durable by now: the WAL merely grows on, and the next commit tries again.
        """
        with suppress(apsw.Error):
            self._writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _empty_wal(self) -> None:
        """Take erased bytes out of the WAL too, unless a reader still needs it; then the next checkpoint does."""
        with suppress(apsw.Error):  # the commit is durable by now, so nothing here is a failure of it
            settle_wal(self._writer, self._options, wait_ms=0)

    # What a transaction does

    def _raise_epoch(self, partition: int) -> int:
        row = self._writer.execute(_SQL["take_ownership"], (partition,)).fetchone()
        if row is None:
            raise InvariantBroken(f"{self._path} has no row for partition {partition}")
        epoch: int = row[0]
        return epoch

    def _write_commit(self, commit: Commit) -> None:
        (
            batch,
            records,
            jobs,
            runs,
            content,
            erased,
            refusals,
            checkpoint,
            tree_head,
            work,
            answers,
            kept_ms,
            decisions,
        ) = commit
        write, write_all = self._cursor.execute, self._cursor.executemany
        try:
            write(_INSERT_BATCH, batch._replace(commands=zip_commands(batch.commands)))
        except apsw.ConstraintError:
            self._insist_on_next(batch)
            raise
        names = {record[4]: None for record in records if record[3] != "transition" and record[4] is not None}
        new = [job for job in jobs if job[10] < 0]
        if new:
            names.update([(job[1], None) for job in new])
        if names:
            write_all(_INSERT_JOB_NAME, [(name,) for name in names])
        if records:
            write_all(_INSERT_RECORD, [self._packed(record) for record in records])
        if jobs:
            self._write_jobs(jobs, new)
        if runs:
            write_all(_SQL["upsert_run"], runs)
        if content:
            write_all(_SQL["insert_content"], [self._packed_content(piece) for piece in content])
        if decisions is not None:
            write(_SQL["insert_decisions"], (batch.partition, batch.batch_no, decisions))
        if shapes := self._shapes.fresh():
            write_all(_SQL["insert_shape"], shapes)
        if signatures := self._signatures.fresh():
            write_all(_SQL["insert_signature"], signatures)
        if work or answers:
            self._write_beside((work, answers, kept_ms))
        if erased:
            write_all(_SQL["erase_content"], [(digest,) for digest in erased])
            write_all(_SQL["erase_work"], [(digest,) for digest in erased])
            write_all(_SQL["erase_work_elements"], [(digest,) for digest in erased])
            self._erase_labels(erased)
            self._erase_answers(frozenset(erased))
        if refusals:
            self._write_refusals(refusals)
        if checkpoint is not None:
            write(_SQL["insert_checkpoint"], checkpoint)
            write(_SQL["delete_old_checkpoints"], (batch.partition, CHECKPOINTS_KEPT))
        if tree_head is not None:
            write(_SQL["insert_tree_head"], tree_head)

    def _write_load(self, rows: Load) -> None:
        write_all = self._cursor.executemany
        names = {row[4]: None for row in rows.records if row[3] != "transition" and row[4] is not None}
        names.update({job[1]: None for job in rows.jobs})
        write_all(_INSERT_JOB_NAME, [(name,) for name in names])
        batches = [batch._replace(commands=zip_commands(batch.commands)) for batch in rows.batches]
        write_all(_SQL["load_batch"], batches)
        write_all(_SQL["insert_decisions"], rows.decisions)
        write_all(_INSERT_RECORD, [self._packed(record) for record in rows.records])
        write_all(_SQL["load_job"], [job[:10] for job in rows.jobs])
        write_all(_SQL["upsert_run"], rows.runs)
        write_all(_SQL["insert_content"], [self._packed_content(piece) for piece in rows.content])
        write_all(_SQL["erase_content"], [(digest,) for digest in rows.erased])
        write_all(_SQL["insert_checkpoint"], rows.checkpoints)
        write_all(_SQL["insert_tree_head"], rows.tree_heads)
        write_all(_SQL["insert_refusal"], rows.refusals)
        write_all(_SQL["insert_work"], [row[:_WORK_COLUMNS] for row in rows.work])
        write_all(_SQL["insert_work_element"], rows.elements)
        self._write_labels(rows.labels)
        write_all(_SQL["upsert_answer"], [(*answer, 0) for answer in rows.answers])
        write_all(_SQL["load_epoch"], rows.epochs)
        write_all(_SQL["insert_shape"], self._shapes.fresh())
        write_all(_SQL["insert_signature"], self._signatures.fresh())

    def _packed(self, record: RecordRow) -> tuple[object, ...]:
        partition, position, batch_no, kind, job_id, run_id, seq, body, evidence = record
        if kind in JOB_RECORD_KINDS:
            body = self._shapes.pack(body, job_id)
            if evidence is not None:
                evidence = self._packed_message(evidence, job_id)
        elif body[:1] in PACKED or (evidence is not None and evidence[:1] in PACKED):
            body, evidence = VERBATIM + body, None if evidence is None else VERBATIM + evidence
        return partition, position, batch_no, kind, job_id, run_id, seq, body, evidence

    def _packed_message(self, evidence: bytes, job_id: str | None) -> bytes:
        taken = self._signatures.take_out(evidence)
        if taken is None:
            return self._shapes.pack(evidence, job_id)
        signature, rest = taken
        return signature + self._shapes.pack(rest, job_id)

    def _packed_content(self, piece: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        digest, data = piece
        taken = self._signatures.take_out(data)
        return piece if taken is None else (digest, b"".join(taken))

    def _insist_on_next(self, batch: BatchRow) -> None:
        """Say why a batch could not be appended, if it is because of where its partition stands."""
        row = self._writer.execute(_SQL["head"], (batch.partition,)).fetchone()
        if row is None:
            raise InvariantBroken(f"{self._path} has no row for partition {batch.partition}")
        epoch, size, _, next_position, last_tick = row
        if batch.epoch != epoch or batch.batch_no != size:
            raise EpochLost(
                f"{self._path}: batch {batch.batch_no} of epoch {batch.epoch}, where partition {batch.partition} stands "
                f"at batch {size} of epoch {epoch}",
                hint="another process has taken over; open the ledger again as its client",
                details={"path": str(self._path), "partition": batch.partition, "epoch": epoch, "size": size},
            )
        if batch.first_position != next_position or batch.first_tick < last_tick:
            raise InvariantBroken(
                f"batch {batch.batch_no} starts at position {batch.first_position} and tick {batch.first_tick}, "
                f"not at {next_position} and from {last_tick} on"
            )

    def _write_jobs(self, jobs: Sequence[JobRow], new: Sequence[JobRow]) -> None:
        before = self._writer.total_changes()
        if new:
            self._cursor.executemany(_INSERT_JOB, new)
        if len(new) < len(jobs):
            moved = [job for job in jobs if job[10] >= 0] if new else jobs
            self._cursor.executemany(_UPDATE_JOB, moved)
        changed = self._writer.total_changes() - before
        if changed != len(jobs):
            raise EpochLost(
                f"{self._path}: {len(jobs) - changed} of {len(jobs)} jobs are no longer where the writer saw them",
                hint="another process has taken over; open the ledger again as its client",
                details={"path": str(self._path), "jobs": len(jobs), "moved": changed},
            )

    def _write_refusals(self, refusals: Sequence[RefusalRow]) -> None:
        self._writer.executemany(_SQL["insert_refusal"], refusals)
        self._writer.execute(_SQL["delete_old_refusals"], (REFUSALS_KEPT_MAX,))

    def _erase_answers(self, erased: frozenset[bytes]) -> None:
        from detent.jobs.kept_answer import jobs_named  # noqa: PLC0415 - erasing is rare
        from detent.ledger.loose import named_digests  # noqa: PLC0415

        rows: list[Any] = self._cursor.execute(_SQL["answered_jobs"]).fetchall()
        gone = [(scope,) for scope, body in rows if not erased.isdisjoint(named_digests(body))]
        whole: list[Any] = self._cursor.execute(_SQL["whole_answers"]).fetchall()
        for scope, response in whole:
            jobs = (self.job(job_id) for job_id in jobs_named(response))
            if any(job is not None and not erased.isdisjoint(named_digests(job.body)) for job in jobs):
                gone.append((scope,))
        if gone:
            self._cursor.executemany(_SQL["delete_answer"], gone)

    def _write_beside(self, rows: tuple[Sequence[WorkRow], Sequence[AnswerRow], int]) -> None:
        work, answers, kept_ms = rows
        if work:
            self._write_labels([label_of(row) for row in work])
            if any(row.element_keys for row in work):
                self._write_work_of_arrays([row for row in work if row.execution_key != NEVER_REUSED])
            elif found := [row[:_WORK_COLUMNS] for row in work if row.execution_key != NEVER_REUSED]:
                self._cursor.executemany(_SQL["insert_work"], found)
        if answers:
            self._cursor.executemany(_SQL["upsert_answer"], [(*answer, kept_ms) for answer in answers])
            now_ms = min(answer.stored_at_ms for answer in answers)
            self._cursor.execute(_SQL["delete_expired_answers"], (now_ms - kept_ms,))

    def _write_work_of_arrays(self, work: Sequence[WorkRow]) -> None:
        """One by one: the elements of a job that is indexed already stay as they are, like its row."""
        for row in work:
            self._cursor.execute(_SQL["insert_work"], row[:_WORK_COLUMNS])
            if row.element_keys and self._writer.changes():
                keys = [(row.job_id, place, key) for place, key in enumerate(row.element_keys) if key is not None]
                self._cursor.executemany(_SQL["insert_work_element"], keys)

    def _write_labels(self, labels: Sequence[LabelRow]) -> None:
        named = dict.fromkeys(
            (row.workspace, name) for row in labels for name in (row.label, row.pool) if name is not None
        )
        self._cursor.executemany(_SQL["insert_name"], [*named])
        self._cursor.executemany(_SQL["insert_label"], labels)

    def _erase_labels(self, erased: Sequence[bytes]) -> None:
        rows = self._cursor.executemany(_SQL["erase_labels"], [(digest,) for digest in erased]).fetchall()
        names = dict.fromkeys(number for row in rows for number in row if number is not None)
        self._cursor.executemany(_SQL["erase_name"], [(number,) for number in names])

    def _write_tree_head(self, head: TreeHeadRow) -> None:
        self._writer.execute(_SQL["insert_tree_head"], head)

    def _delete_content(self, digests: Sequence[bytes]) -> int:
        freed = self._writer.executemany(_SQL["delete_content"], [(digest,) for digest in digests])
        return sum(row[0] for row in freed)
