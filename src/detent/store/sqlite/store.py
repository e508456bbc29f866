"""The writing half of the SQLite store: every change is one transaction that begins with the write lock.

Rows go to prepared statements as they come; the only Python that runs once for each row is in `check_commit`. What the
kernel decided in memory is checked again here by predicates: the partition moves on from the owner's epoch and batch
number or not at all, and so does each job from the sequence number the writer saw.

After a failed sync nobody knows what is on the disk, not even SQLite: its next transaction would be written over frames
that the disk may or may not have. From then on the store refuses to write, and closing leaves the WAL as it is for the
next opening to recover (X-173).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, TypeVar

import apsw

from detent.errors import EpochLost, InvariantBroken, StoreUnavailable
from detent.store.api import (
    CHECKPOINTS_KEPT,
    REFUSALS_KEPT_MAX,
    BatchRow,
    Commit,
    JobRow,
    RefusalRow,
    TreeHeadRow,
)
from detent.store.checks import check_commit, check_ledger, check_partition, check_refusals, check_tree_head
from detent.store.sqlite.database import (
    DEFAULT_OPTIONS,
    Options,
    close_quietly,
    create_file,
    open_for_reading,
    open_writer,
    queries,
    settle_wal,
)
from detent.store.sqlite.errors import translated, translated_commit
from detent.store.sqlite.reader import SqliteReader

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")

_SQL: Final = queries()
_BEGIN: Final = _SQL["begin_write"]
_COMMIT: Final = _SQL["commit"]
_ROLLBACK: Final = _SQL["rollback"]


class _WalPages:
    """How long SQLite said the WAL was after the last commit. Apart from the store, so that no cycle keeps that alive."""

    count = 0

    def noted(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self.count = pages
        return apsw.SQLITE_OK


class SqliteStore(SqliteReader):
    """A ledger opened for writing, from one thread.

    It reads through connections of their own, so that an iterator shows whole commits even while its owner goes on writing.
    """

    def __init__(self, path: Path, connection: apsw.Connection, writer: apsw.Connection, options: Options) -> None:
        super().__init__(path, connection, options)
        self._writer = writer
        self._wal = _WalPages()
        writer.set_wal_hook(self._wal.noted)
        self._outcome_unknown = False

    @classmethod
    def create(cls, path: Path, origin: str, partitions: int, *, _options: Options = DEFAULT_OPTIONS) -> Self:
        """Make an empty ledger at a path where nothing is, and open it."""
        check_ledger(origin, partitions)
        create_file(path, origin, partitions, _options)
        return cls.open(path, _options=_options)

    @classmethod
    def open(cls, path: Path, *, _options: Options = DEFAULT_OPTIONS) -> Self:
        """Open an existing ledger for writing; an older schema is brought up to date first."""
        writer = open_writer(path, _options)
        try:
            connection = open_for_reading(path, _options)
            try:
                return cls(path, connection, writer, _options)
            except BaseException:
                close_quietly(connection)
                raise
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

    def close(self) -> None:
        """Copy the WAL into the database and let go of the file."""
        super().close()
        if self._outcome_unknown:
            with suppress(apsw.Error):
                self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        close_quietly(self._writer)

    # Transactions

    def _transact(self, work: Callable[[_Argument], _Result], argument: _Argument) -> _Result:
        if self._outcome_unknown:
            raise StoreUnavailable(
                f"{self._path}: an earlier commit failed with an unknown outcome; nothing is written on top of it",
                hint="open the ledger again, which finds out what is there",
                details={"path": str(self._path)},
            )
        try:
            self._writer.execute(_BEGIN)
            result = work(argument)
        except (apsw.Error, OverflowError) as exc:
            self._roll_back()
            raise translated(exc, self._path) from exc
        except BaseException:
            self._roll_back()
            raise
        try:
            self._writer.execute(_COMMIT)
        except apsw.Error as exc:
            error = translated_commit(exc, self._path)
            self._outcome_unknown = not isinstance(error, StoreUnavailable)
            self._roll_back()
            raise error from exc
        if self._wal.count >= self._options.wal_pages_max:
            self._copy_wal()
        return result

    def _roll_back(self) -> None:
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
        write, write_all = self._writer.execute, self._writer.executemany
        batch = commit.batch
        self._insist_on_next(batch)
        write(_SQL["insert_batch"], batch)
        new = [job for job in commit.jobs if job[10] < 0]
        names = [(job[1],) for job in new]
        names += [(record[4],) for record in commit.records if record[4] is not None and record[3] != "transition"]
        if names:
            write_all(_SQL["insert_job_name"], names)
        if commit.records:
            write_all(_SQL["insert_record"], commit.records)
        if commit.jobs:
            self._write_jobs(commit.jobs, new)
        if commit.runs:
            write_all(_SQL["upsert_run"], commit.runs)
        if commit.content:
            write_all(_SQL["insert_content"], commit.content)
        if commit.erased:
            write_all(_SQL["erase_content"], [(digest,) for digest in commit.erased])
        if commit.refusals:
            self._write_refusals(commit.refusals)
        if commit.checkpoint is not None:
            write(_SQL["insert_checkpoint"], commit.checkpoint)
            write(_SQL["delete_old_checkpoints"], (batch.partition, CHECKPOINTS_KEPT))
        if commit.tree_head is not None:
            write(_SQL["insert_tree_head"], commit.tree_head)

    def _insist_on_next(self, batch: BatchRow) -> None:
        """The compare of compare-and-swap; the write lock is held, so nothing moves between it and the swap."""
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
            self._writer.executemany(_SQL["insert_job"], new)
        if len(new) < len(jobs):
            moved = [job for job in jobs if job[10] >= 0] if new else jobs
            self._writer.executemany(_SQL["update_job"], moved)
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

    def _write_tree_head(self, head: TreeHeadRow) -> None:
        self._writer.execute(_SQL["insert_tree_head"], head)

    def _delete_content(self, digests: Sequence[bytes]) -> int:
        freed = self._writer.executemany(_SQL["delete_content"], [(digest,) for digest in digests])
        return sum(row[0] for row in freed)
