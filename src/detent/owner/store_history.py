"""The kernel's history, answered from the store.

What the running turn has decided but not yet committed is kept in an overlay, so that the kernel sees one past. During
recovery the store already holds what is being re-applied: the horizon hides every record from there on, or a job would
look finished before it was submitted.

Only the partition's own past is its past: what another partition decided is recorded over there, at a moment that a
replay of this one could not tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from detent.canon import sha256
from detent.kernel import Job, Record
from detent.kernel.history import ERASED, STEP_REUSED, find_reused
from detent.kernel.run import RUNNING
from detent.kernel.table import TERMINAL
from detent.store.api import JobRow, RecordRow, StoreReader


def record_of(row: RecordRow) -> Record:
    """A stored record as the kernel knows it."""
    return Record(row.kind, row.job_id, row.run_id, row.transition_seq, row.body, row.evidence, sha256(row.body))


class StoreHistory:
    """`detent.kernel.History` over a store, plus the turn under way."""

    def __init__(self, store: StoreReader, partition: int) -> None:
        self._store = store
        self._partition = partition
        self._records: dict[tuple[str, int], Record] = {}
        self._jobs: dict[str, Job] = {}
        self._runs: dict[str, bytes] = {}
        self._plain: list[Record] = []
        self._looked_at: dict[str, JobRow | None] = {}
        self.horizon: int | None = None
        """During recovery: the first batch whose records are not the past yet."""

    def committed(self) -> None:
        """The turn is durable: the store answers for it from now on."""
        self._records.clear()
        self._jobs.clear()
        self._runs.clear()
        self._plain.clear()
        self._looked_at = {}

    def look_ahead(self, job_ids: Sequence[str]) -> None:
        """Read at once the jobs that the next commands are about; one by one takes as long as deciding them."""
        self._looked_at = dict.fromkeys(job_ids)
        self._looked_at |= {row.job_id: row for row in self._store.jobs_of(job_ids)}

    def record(self, job_id: str, transition_seq: int) -> Record | None:
        """The job's transition record with this sequence number."""
        if (pending := self._records.get((job_id, transition_seq))) is not None:
            return pending
        row = self._store.transition(job_id, transition_seq)
        return record_of(row) if row is not None and self._is_past(row) else None

    def ended_job(self, job_id: str) -> Job | None:
        """A job that is in a terminal state."""
        if (pending := self._jobs.get(job_id)) is not None:
            return pending
        row = self._looked_at[job_id] if job_id in self._looked_at else self._store.job(job_id)
        if row is None or row.state not in TERMINAL or row.partition != self._partition:
            return None
        if self.horizon is not None:
            last = self._store.transition(job_id, row.transition_seq - 1)
            if last is None or not self._is_past(last):
                return None
        return Job.read(row.body)

    def ended_run(self, run_id: str) -> bytes | None:
        """The encoded form of a run that has ended."""
        if (pending := self._runs.get(run_id)) is not None:
            return pending
        row = self._store.run(run_id)
        if row is None or row.status == RUNNING or row.partition != self._partition:
            return None
        if self.horizon is not None and not any(
            record.kind == "run_ended" and self._is_past(record) for record in self._store.records_of_run(run_id)
        ):
            return None
        return row.body

    def reused_step(self, run_id: str, step_id: str) -> Record | None:
        """The record by which a step of a run was reused; reads the run's own records through."""
        rows = (record_of(row) for row in self._store.records_of_run(run_id) if self._is_past(row))
        pending = (record for record in self._plain if record.run_id == run_id)
        return find_reused(chain(rows, pending), step_id)

    def erasure(self, number: int) -> Record | None:
        """The ``erased`` record before which there were ``number`` others."""
        rows = self._store.records_of_kind(self._partition, ERASED)
        past = (record_of(row) for row in rows if self._is_past(row))
        pending = (record for record in self._plain if record.kind == ERASED)
        return next(islice(chain(past, pending), number, None), None)

    def run_heads(self, run_id: str) -> Iterator[tuple[str, int, bytes]]:
        """Heads of the run's jobs in canonical order; all have ended when the kernel asks."""
        pending = {job.job_id: job for job in self._jobs.values() if job.run_id == run_id}
        heads = {head.job_id: (head.transition_seq, head.head) for head in self._store.job_heads(run_id=run_id)}
        heads.update({job_id: (job.transition_seq, job.head) for job_id, job in pending.items()})
        for job_id in sorted(heads):
            yield job_id, *heads[job_id]

    def add_record(self, record: Record) -> None:
        """Remember a record of the turn under way."""
        if record.job_id is not None and record.transition_seq is not None:
            self._records[record.job_id, record.transition_seq] = record
        elif record.kind in {STEP_REUSED, ERASED}:
            self._plain.append(record)

    def end_job(self, job: Job) -> None:
        """Remember a job that ended in the turn under way."""
        self._jobs[job.job_id] = job

    def end_run(self, run_id: str, body: bytes) -> None:
        """Remember a run that ended in the turn under way."""
        self._runs[run_id] = body

    def _is_past(self, row: RecordRow) -> bool:
        return row.partition == self._partition and (self.horizon is None or row.batch_no < self.horizon)
