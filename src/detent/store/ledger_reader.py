"""What every database answers about records, jobs, runs and content; written once, over the names of the queries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

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
    TreeHeadRow,
)
from detent.store.beside_reader import BesideReader
from detent.store.checks import INTEGER_MAX, JOB_RECORD_KINDS, PARTITIONS_MAX, POSITION_BITS, check_partition, maker
from detent.store.named_queries import first_column
from detent.store.tenant_pages import TenantPages

_DECISIONS_ROW: Final = maker(DecisionsRow)
_CHECKPOINT_ROW: Final = maker(CheckpointRow)
_JOB_HEAD: Final = maker(JobHead)
_JOB_ROW: Final = maker(JobRow)
_LEDGER_HEAD: Final = maker(LedgerHead)
_REFUSAL_ROW: Final = maker(RefusalRow)
_RUN_ROW: Final = maker(RunRow)
_TREE_HEAD_ROW: Final = maker(TreeHeadRow)

_NUMBERS: Final = 1 << POSITION_BITS
_UNLIMITED: Final = -1
_SCHEMA_WITH_DECISIONS: Final = 4
"""The schema that keeps the decision records of a commit together; an older one has a piece of content for each."""


class NamedReader(BesideReader, TenantPages):
    """A ledger opened for reading; the database's own reader says how its rows are stored."""

    _named: str
    """What messages call the ledger: its file, or its address without a password."""
    _origin: str
    _partitions: int

    @abstractmethod
    def _record(self, values: tuple[Any, ...]) -> RecordRow:
        """A record as it was appended."""

    @abstractmethod
    def _batch(self, values: tuple[Any, ...]) -> BatchRow:
        """A batch as it was appended."""

    @abstractmethod
    def _checked(self, digest: bytes, stored: bytes) -> bytes:
        """Content as it was appended; `StoreCorrupt` where it is other bytes."""

    def _introduce(self) -> None:
        """Read the ledger's name and its number of partitions, and insist on both."""
        row = self._one(tuple, "ledger")
        # Nearly everything goes through all partitions, so their number is believed only as far as their rows are there.
        if (
            row is None
            or type(row[0]) is not str
            or type(row[1]) is not int
            or not 1 <= row[1] <= PARTITIONS_MAX
            or row[1] != row[2]
        ):
            raise StoreCorrupt(
                f"{self._named} has lost its name or its number of partitions",
                hint="restore a backup of the ledger",
                details={"path": self._named},
            )
        self._origin, self._partitions = row[0], row[1]

    @property
    def origin(self) -> str:
        """The ledger's own name."""
        return self._origin

    @property
    def partitions(self) -> int:
        """P, fixed when the ledger was made."""
        return self._partitions

    def head(self, partition: int) -> LedgerHead:
        """Where the partition's log stands."""
        check_partition(partition, self._partitions)
        head = self._one(_LEDGER_HEAD, "head", partition)
        if head is None:
            raise StoreCorrupt(
                f"{self._named} has lost partition {partition}",
                hint="restore a backup of the ledger",
                details={"path": self._named, "partition": partition},
            )
        return head

    def batch(self, partition: int, batch_no: int) -> BatchRow | None:
        """One batch, or None when the log is not that long."""
        return next(self.batches(partition, batch_no, batch_no + 1), None)

    def batches(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[BatchRow]:
        """Batches from ``first`` up to but not including ``stop``."""
        check_partition(partition, self._partitions)
        return self._rows(self._batch, "batches", partition, *_between(first, stop))

    def records(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[RecordRow]:
        """Records from position ``first`` up to but not including ``stop``."""
        check_partition(partition, self._partitions)
        return self._rows(self._record, "records", partition, *_between(first, stop))

    def records_of_job(self, job_id: str) -> Iterator[RecordRow]:
        """A job's records in the order of their positions."""
        return self._rows(self._record, "records_of_job", job_id)

    def records_of_kind(self, partition: int, kind: str, first: int = 0) -> Iterator[RecordRow]:
        """A partition's records of one kind from position ``first`` on, in the order of their positions."""
        check_partition(partition, self._partitions)
        name = "records_of_common_kind" if kind in JOB_RECORD_KINDS else "records_of_rare_kind"
        return self._rows(self._record, name, partition, kind, _between(first, None)[0])

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
        return self._rows(self._record, "submissions", [*dict.fromkeys(job_ids)])

    def transitions(self, wanted: Sequence[tuple[str, int]]) -> Iterator[RecordRow]:
        """The transition records that carry these sequence numbers, in no order."""
        return self._rows(self._record, "transitions", [pair for pair in wanted if pair[1] <= INTEGER_MAX])

    def job(self, job_id: str) -> JobRow | None:
        """The job's row."""
        return self._one(_JOB_ROW, "job", job_id)

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
        for digest, data in self._rows(_pair, "contents", [*digests]):
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


def _pair(row: tuple[Any, ...]) -> tuple[Any, Any]:
    return row[0], row[1]


def _between(first: int, stop: int | None) -> tuple[int, int]:
    return min(max(first, 0), _NUMBERS - 1), _NUMBERS if stop is None else min(max(stop, 0), _NUMBERS)
