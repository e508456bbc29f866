"""The reading half of the reference store: plain lists and dictionaries, searched from end to end.

Each method copies what it hands out, so that an iterator shows the commits of the moment it was asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import field
from itertools import chain
from typing import TypeVar

from detent.canon.late import dataclass
from detent.store.api import (
    AnswerRow,
    BatchRow,
    CheckpointRow,
    DecisionsRow,
    JobHead,
    JobRow,
    JobsWanted,
    LabelRow,
    LedgerHead,
    RecordRow,
    RefusalRow,
    RunRow,
    StoreReader,
    TreeHeadRow,
    WorkRow,
)
from detent.store.checks import check_ledger, check_partition

_Row = TypeVar("_Row")


@dataclass(slots=True)
class Log:
    """One partition."""

    epoch: int = 0
    batches: list[BatchRow] = field(default_factory=list)
    records: list[RecordRow] = field(default_factory=list)
    decisions: list[DecisionsRow] = field(default_factory=list)
    checkpoints: dict[int, CheckpointRow] = field(default_factory=dict)
    tree_heads: dict[int, TreeHeadRow] = field(default_factory=dict)


class MemoryReader:
    """What a ledger in memory holds, and how it is read."""

    def __init__(self, origin: str, partitions: int) -> None:
        check_ledger(origin, partitions)
        self._origin = origin
        self._logs = [Log() for _ in range(partitions)]
        self._named: dict[str, int] = {}
        self._jobs: dict[str, JobRow] = {}
        self._runs: dict[str, RunRow] = {}
        self._transitions: dict[tuple[str, int], RecordRow] = {}
        self._content: dict[bytes, bytes] = {}
        self._erased: set[bytes] = set()
        self._refusals: list[RefusalRow] = []
        self._work: dict[str, WorkRow] = {}
        self._labels: dict[str, LabelRow] = {}
        self._answers: dict[bytes, AnswerRow] = {}

    @property
    def origin(self) -> str:
        """The ledger's own name."""
        return self._origin

    @property
    def partitions(self) -> int:
        """P, fixed when the ledger was made."""
        return len(self._logs)

    @contextmanager
    def snapshot(self) -> Iterator[StoreReader]:
        """A reader that sees the commits of this moment and none that follow."""
        yield deepcopy(self)

    def head(self, partition: int) -> LedgerHead:
        """Where the partition's log stands."""
        log = self._log(partition)
        if not log.batches:
            return LedgerHead(log.epoch, 0, bytes(32), 0, 0)
        last = log.batches[-1]
        return LedgerHead(log.epoch, len(log.batches), last.leaf_hash, len(log.records), last.last_tick)

    def batch(self, partition: int, batch_no: int) -> BatchRow | None:
        """One batch, or None when the log is not that long."""
        return next(self.batches(partition, batch_no, batch_no + 1), None)

    def batches(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[BatchRow]:
        """Batches from ``first`` up to but not including ``stop``."""
        return iter(_between(self._log(partition).batches, first, stop))

    def records(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[RecordRow]:
        """Records from position ``first`` up to but not including ``stop``."""
        return iter(_between(self._log(partition).records, first, stop))

    def records_of_job(self, job_id: str) -> Iterator[RecordRow]:
        """A job's records in the order of their positions."""
        return iter([record for record in self._all_records() if record.job_id == job_id])

    def records_of_kind(self, partition: int, kind: str, first: int = 0) -> Iterator[RecordRow]:
        """A partition's records of one kind from position ``first`` on, in the order of their positions."""
        return iter([record for record in _between(self._log(partition).records, first, None) if record.kind == kind])

    def records_of_run(self, run_id: str) -> Iterator[RecordRow]:
        """A run's own records and its jobs' submissions, by partition and position."""
        return iter([row for row in self._all_records() if row.run_id == run_id and row.kind != "transition"])

    def record_of_run(self, run_id: str, kind: str) -> RecordRow | None:
        """The newest record of a kind that a run has of its own."""
        return next((record for record in reversed([*self.records_of_run(run_id)]) if record.kind == kind), None)

    def transition(self, job_id: str, transition_seq: int) -> RecordRow | None:
        """The transition record of a job that carries this sequence number."""
        return self._transitions.get((job_id, transition_seq))

    def submissions(self, job_ids: Sequence[str]) -> Iterator[RecordRow]:
        """The ``submitted`` records of these jobs, in no order."""
        wanted = frozenset(job_ids)
        return iter([one for one in self._all_records() if one.kind == "submitted" and one.job_id in wanted])

    def transitions(self, wanted: Sequence[tuple[str, int]]) -> Iterator[RecordRow]:
        """The transition records that carry these sequence numbers, in no order."""
        return iter([self._transitions[pair] for pair in dict.fromkeys(wanted) if pair in self._transitions])

    def job(self, job_id: str) -> JobRow | None:
        """The job's row."""
        return self._jobs.get(job_id)

    def jobs_of(self, job_ids: Sequence[str]) -> list[JobRow]:
        """The rows of these jobs, in no order."""
        return [self._jobs[job_id] for job_id in dict.fromkeys(job_ids) if job_id in self._jobs]

    def jobs(
        self,
        *,
        run_id: str | None = None,
        state: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobRow]:
        """Jobs by the UTF-8 bytes of their ids."""
        chosen = [
            job
            for job in sorted(self._jobs.values(), key=lambda job: job.job_id.encode())
            if (run_id is None or job.run_id == run_id)
            and (state is None or job.state == state)
            and (after is None or job.job_id.encode() > after.encode())
        ]
        return iter(chosen[:limit])

    def recent_jobs(
        self, *, run_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[JobRow]:
        """Jobs in the order in which they were submitted, newest first."""
        chosen = self.jobs(run_id=run_id, state=state)
        return iter(sorted(chosen, key=lambda job: self._named[job.job_id], reverse=True)[:limit])

    def jobs_page(self, wanted: JobsWanted, *, limit: int) -> list[tuple[int, JobRow]]:
        """A tenant's jobs as they were submitted, newest first, each with its number."""
        tenant_id, run_id, state, label, before, pool = wanted
        named = None
        if label is not None:
            named = {row.job_id for row in self._labels.values() if (row.workspace, row.label) == (tenant_id, label)}
        elif pool is not None:
            named = {row.job_id for row in self._labels.values() if (row.workspace, row.pool) == (tenant_id, pool)}
        chosen = [
            (self._named[job.job_id], job)
            for job in self.recent_jobs(run_id=run_id, state=state)
            if job.tenant_id == tenant_id
            and (before is None or self._named[job.job_id] < before)
            and (named is None or job.job_id in named)
        ]
        return chosen[:limit]

    def jobs_prefixed(self, tenant_id: str, prefix: str, *, after: str = "", limit: int) -> list[JobRow]:
        """A tenant's jobs whose ids begin so, by id."""
        chosen = (job for job in self.jobs(after=after or None) if job.job_id.startswith(prefix))
        return [job for job in chosen if job.tenant_id == tenant_id][:limit]

    def runs_prefixed(self, tenant_id: str, prefix: str, *, after: str = "", limit: int) -> list[RunRow]:
        """A tenant's runs whose ids begin so, by id."""
        chosen = [run for run in self._runs.values() if run.tenant_id == tenant_id and run.run_id.startswith(prefix)]
        return sorted((run for run in chosen if run.run_id > after), key=lambda run: run.run_id.encode())[:limit]

    def last_run_prefixed(self, tenant_id: str, prefix: str) -> RunRow | None:
        """The last, by id, of a tenant's runs whose ids begin so."""
        return next(reversed(self.runs_prefixed(tenant_id, prefix, limit=len(self._runs))), None)

    def runs_page(
        self, tenant_id: str, *, status: str | None = None, before: tuple[int, str] | None = None, limit: int
    ) -> list[RunRow]:
        """A tenant's runs, newest first."""
        chosen = [
            run
            for run in self.runs(status=status)
            if run.tenant_id == tenant_id
            and (before is None or (run.started_tick, run.run_id.encode()) < (before[0], before[1].encode()))
        ]
        return chosen[:limit]

    def tenant_counts(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """How many jobs each tenant has in each state, and how many runs of each status."""
        jobs = Counter((job.tenant_id, job.state) for job in self._jobs.values())
        return dict(jobs), dict(Counter((run.tenant_id, run.status) for run in self._runs.values()))

    def job_heads(self, *, run_id: str | None = None) -> Iterator[JobHead]:
        """Every job's head in canonical order."""
        return iter([JobHead(job.job_id, job.transition_seq, job.head) for job in self.jobs(run_id=run_id)])

    def job_counts(self) -> dict[str, int]:
        """How many jobs are in each state; states without a job are left out."""
        return dict(sorted(Counter(job.state for job in self._jobs.values()).items()))

    def run(self, run_id: str) -> RunRow | None:
        """The run's row."""
        return self._runs.get(run_id)

    def runs(self, *, status: str | None = None, limit: int | None = None) -> Iterator[RunRow]:
        """Runs, or those of one status, newest first."""
        newest_first = sorted(
            (run for run in self._runs.values() if status is None or run.status == status),
            key=lambda run: (run.started_tick, run.run_id.encode()),
            reverse=True,
        )
        return iter(newest_first[:limit])

    def content(self, digest: bytes) -> bytes | None:
        """Bytes stored inline under a digest; None when absent or erased."""
        return self._content.get(digest)

    def contents(self, digests: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """What is stored inline under these digests, each with its digest."""
        return iter([(digest, self._content[digest]) for digest in dict.fromkeys(digests) if digest in self._content])

    def content_digests(self) -> Iterator[tuple[bytes, int]]:
        """Digest and size of all inline content that is still there, by digest."""
        return iter(sorted((digest, len(data)) for digest, data in self._content.items()))

    def is_erased(self, digest: bytes) -> bool:
        """Whether the digest is known as erased."""
        return digest in self._erased

    def erased_digests(self) -> Iterator[bytes]:
        """Every digest known as erased, in order."""
        return iter(sorted(self._erased))

    def decisions(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[DecisionsRow]:
        """What was kept of the decisions of batches, by batch number."""
        kept = self._log(partition).decisions
        return iter([row for row in kept if first <= row.batch_no and (stop is None or row.batch_no < stop)])

    def checkpoints(self, partition: int) -> Iterator[CheckpointRow]:
        """Kept checkpoints, newest first."""
        kept = self._log(partition).checkpoints
        return iter([kept[batch_no] for batch_no in sorted(kept, reverse=True)])

    def tree_heads(self, partition: int) -> Iterator[TreeHeadRow]:
        """Stored tree heads, newest first."""
        kept = self._log(partition).tree_heads
        return iter([kept[size] for size in sorted(kept, reverse=True)])

    def refusals(self, *, job_id: str | None = None, limit: int = 100) -> Iterator[RefusalRow]:
        """The newest refusals first."""
        newest_first = [row for row in reversed(self._refusals) if job_id is None or row.job_id == job_id]
        return iter(newest_first[:limit])

    def work(self, workspace: str, execution_key: bytes) -> Iterator[WorkRow]:
        """Jobs that do this work, in the order in which they were submitted."""
        return iter([*self._found_work(workspace, {execution_key})])

    def work_of_keys(self, workspace: str, execution_keys: Sequence[bytes]) -> Iterator[tuple[WorkRow, JobRow]]:
        """Jobs that do any of these pieces of work, each with its row, in the order in which they were submitted."""
        rows = self._found_work(workspace, set(execution_keys))
        return iter([(row, job) for row in rows if (job := self.job(row.job_id)) is not None])

    def work_labelled(self, workspace: str, label: str, limit: int = 100) -> Iterator[WorkRow]:
        """Jobs under a label, newest first."""
        found = [row for row in self.work_rows() if (row.workspace, row.label) == (workspace, label)]
        return iter(found[::-1][:limit])

    def work_rows(self) -> Iterator[WorkRow]:
        """The whole index, in the order in which the jobs were submitted; without the elements of arrays."""
        return iter([row._replace(element_keys=()) for row in self._all_work()])

    def work_element_rows(self) -> Iterator[tuple[str, int, bytes]]:
        """The keys of all elements of arrays."""
        return iter(
            [
                (row.job_id, element, key)
                for row in self._all_work()
                for element, key in enumerate(row.element_keys)
                if key is not None
            ]
        )

    def jobs_outside_work(self) -> Iterator[JobRow]:
        """Jobs that have no row in the index."""
        return iter([row for row in self.recent_jobs() if row.job_id not in self._work][::-1])

    def labels_of_run(self, run_id: str) -> set[str]:
        """The labels of what a run's jobs do."""
        return {self._work[job.job_id].label for job in self.jobs(run_id=run_id) if job.job_id in self._work}

    def label(self, job_id: str) -> LabelRow | None:
        """What a job is called and which pool it asked for."""
        return self._labels.get(job_id)

    def label_rows(self) -> Iterator[LabelRow]:
        """The labels of all jobs, in the order of submission."""
        return iter(sorted(self._labels.values(), key=lambda row: self._named[row.job_id]))

    def answer(self, scope: bytes) -> AnswerRow | None:
        """What was answered under a client's idempotency key."""
        return self._answers.get(scope)

    def answer_rows(self) -> Iterator[AnswerRow]:
        """Every answer that is kept, oldest first."""
        return iter([*self._answers.values()])

    def answers_kept(self, after_ms: int) -> tuple[int, int | None]:
        """How many answers were stored after a moment, and when the oldest of them was."""
        times = [answer.stored_at_ms for answer in self._answers.values() if answer.stored_at_ms > after_ms]
        return len(times), min(times, default=None)

    def close(self) -> None:
        """Nothing to close: the ledger goes with the object."""

    def _found_work(self, workspace: str, keys: set[bytes]) -> Iterator[WorkRow]:
        for row in self._all_work():
            if row.workspace == workspace and row.execution_key in keys:
                yield row._replace(element_keys=())
            for element, key in enumerate(row.element_keys if row.workspace == workspace else ()):
                if key is not None and key in keys:
                    yield row._replace(execution_key=key, element=element, element_keys=())

    def _all_work(self) -> list[WorkRow]:
        return sorted(self._work.values(), key=lambda row: self._named[row.job_id])

    def _log(self, partition: int) -> Log:
        check_partition(partition, self.partitions)
        return self._logs[partition]

    def _all_records(self) -> Iterator[RecordRow]:
        return chain.from_iterable(log.records for log in self._logs)


def _between(rows: list[_Row], first: int, stop: int | None) -> list[_Row]:
    return rows[max(first, 0) : len(rows) if stop is None else max(stop, 0)]
