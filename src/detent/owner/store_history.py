"""The history in the store, as the kernel, observers and workers ask for it.

The kernel's history, answered from the store.

What the running turn has decided but not yet committed is kept in an overlay, so that the kernel sees one past. During
recovery the store already holds what is being re-applied: the horizon hides every record from there on, or a job would
look finished before it was submitted.

Only the partition's own past is its past: what another partition decided is recorded over there, at a moment that a
replay of this one could not tell.

Following the end of a ledger: observers get every committed record, once and in order.

The owner of a home tells its observers itself, after each commit (`Owner.observers`). Everybody else looks at the ledger's
end from time to time. A session may be the one now and the other later, so what was told is remembered by position: a gap
is read from the ledger, and what comes twice is left out. That makes take-overs nothing special.

What must not happen is that a turn of the owner waits for an observer of another thread, since that one might wait for
the turn. So a turn that finds another thread telling leaves its records to it: they are on the ledger.

Leases in force, page by page: how a worker whose answer was lost learns what it holds (X-067, X-173).

A claim cannot be repeated like other requests: asked again, it would take further jobs. So a worker that lost the answer to a
claim asks for its open grants first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import nsmallest
from itertools import chain, islice
from typing import TypeAlias

from detent.canon import sha256
from detent.errors import DetentError, InvalidInput
from detent.kernel import Grant, Job, Kernel, Record
from detent.kernel.history import (
    ERASED,
    RUN_ENDED,
    RUN_REUSED,
    STEP_REUSED,
    WORKER_ENROLLED,
    WORKER_KINDS,
    WORKER_RETIRED,
    Workers,
    find_reused,
)
from detent.kernel.manifest import id_fault
from detent.kernel.run import RUNNING
from detent.kernel.table import TERMINAL, State
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
        self._workers: Workers | None = None
        self.horizon: int | None = None
        """During recovery: the first batch whose records are not the past yet."""

    def committed(self) -> None:
        """The turn is durable: the store answers for it from now on."""
        self._records.clear()
        self._jobs.clear()
        self._runs.clear()
        self._plain.clear()
        if (
            self.horizon is None
        ):  # During recovery the store does not change, and what was read ahead is for many batches.
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

    def job_elsewhere(self, job_id: str) -> Job | None:
        """A job that another partition has ended, as it stands now: for the owner, and never for its kernel."""
        row = self._looked_at[job_id] if job_id in self._looked_at else self._store.job(job_id)
        return None if row is None or row.state not in TERMINAL else Job.read(row.body)

    def ended_run(self, run_id: str) -> bytes | None:
        """The encoded form of a run that has ended."""
        if (pending := self._runs.get(run_id)) is not None:
            return pending
        row = self._store.run(run_id)
        if row is None or row.status == RUNNING or row.partition != self._partition:
            return None
        return None if self.horizon is not None and self.run_end(run_id) is None else row.body

    def run_end(self, run_id: str) -> Record | None:
        """The record by which a run ended."""
        return self._record_of_run(run_id, RUN_ENDED)

    def reused_step(self, run_id: str, step_id: str) -> Record | None:
        """The record by which a step of a run was reused; reads the run's own records through."""
        rows = (record_of(row) for row in self._store.records_of_run(run_id) if self._is_past(row))
        pending = (record for record in self._plain if record.run_id == run_id)
        return find_reused(chain(rows, pending), step_id)

    def reused_run(self, run_id: str) -> Record | None:
        """The record by which a run took the results of an earlier one."""
        return self._record_of_run(run_id, RUN_REUSED)

    def _record_of_run(self, run_id: str, kind: str) -> Record | None:
        row = self._store.record_of_run(run_id, kind)
        if row is not None and self._is_past(row):
            return record_of(row)
        return next((one for one in self._plain if (one.run_id, one.kind) == (run_id, kind)), None)

    def erasure(self, number: int) -> Record | None:
        """The ``erased`` record before which there were ``number`` others."""
        pending = (record for record in self._plain if record.kind == ERASED)
        return next(islice(chain(self._of_kind(ERASED), pending), number, None), None)

    def worker(self, worker_id: str, key_id: bytes | None = None) -> list[Record]:
        """The records of a worker's enrolment and retirement; all of those are read when the first one is asked for."""
        if self._workers is None:
            self._workers = Workers()
            rows = (row for kind in (WORKER_ENROLLED, WORKER_RETIRED) for row in self._of_kind(kind))
            for record in chain(rows, (one for one in self._plain if one.kind in WORKER_KINDS)):
                self._workers.add(record)
        return self._workers.find(worker_id, key_id)

    def _of_kind(self, kind: str) -> Iterator[Record]:
        rows = self._store.records_of_kind(self._partition, kind)
        return (record_of(row) for row in rows if self._is_past(row))

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
        elif record.kind in {STEP_REUSED, RUN_REUSED, RUN_ENDED, ERASED}:
            self._plain.append(record)
        elif record.kind in WORKER_KINDS:
            self._plain.append(record)
            if self._workers is not None:
                self._workers.add(record)

    def end_job(self, job: Job) -> None:
        """Remember a job that ended in the turn under way."""
        self._jobs[job.job_id] = job

    def end_run(self, run_id: str, body: bytes) -> None:
        """Remember a run that ended in the turn under way."""
        self._runs[run_id] = body

    def _is_past(self, row: RecordRow) -> bool:
        return row.partition == self._partition and (self.horizon is None or row.batch_no < self.horizon)


POLL_SECONDS = 0.05
"""How often a session that is not the owner looks at the ledger's end."""
IDLE_SECONDS = 1.0
"""How often one looks that its own owner tells: for what a take-over of ownership may have left over."""
RECORDS_AT_ONCE = 1_000
"""Records read from the ledger and told at once, at most."""

Observer: TypeAlias = Callable[[Sequence[Record]], None]

logger = logging.getLogger("detent.owner")


class Tail:
    """The end of a ledger, as far as observers know it. ``fed`` says whether an owner in this process announces its commits."""

    def __init__(self, reader: StoreReader, fed: Callable[[], bool]) -> None:
        self._reader = reader
        self._fed = fed
        self._observers: list[Observer] = []
        self._next = [reader.head(partition).next_position for partition in range(reader.partitions)]
        self._telling = threading.RLock()
        self._look = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._follow, name="detent-observe", daemon=True)
        self._thread.start()

    def add(self, observer: Observer) -> Callable[[], None]:
        """Tell one more, of what is committed from now on; gives back what ends it."""
        with self._telling:
            self._catch_up()
            self._observers.append(observer)

        def remove() -> None:
            with self._telling, suppress(ValueError):
                self._observers.remove(observer)

        return remove

    def hear(self, partition: int, first: int, records: Sequence[Record]) -> None:
        """Take over the records of a commit, from the owner of this process, within its turn."""
        if not self._telling.acquire(blocking=False):
            self.look()
            return
        try:
            known = self._next[partition]
            if first > known:
                self._read(partition, first)
                known = self._next[partition]
            if first <= known < first + len(records):
                self._next[partition] = first + len(records)
                self._tell(records[known - first :])
        finally:
            self._telling.release()

    def look(self) -> None:
        """Look at the ledger's end soon, on the thread for that: the owner of the home has changed, or another thread was telling."""
        self._look.set()

    def close(self) -> None:
        """Tell the rest, and stop."""
        self._closed = True
        self._look.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self._telling:
            with suppress(DetentError):
                self._catch_up()
            self._observers.clear()
            self._reader.close()

    def _follow(self) -> None:
        while not self._closed:
            self._look.wait(IDLE_SECONDS if self._fed() else POLL_SECONDS)
            self._look.clear()
            if self._closed:
                return
            # A ledger that cannot be read now, because its disk is full or it is being moved, may be readable next time.
            with self._telling, suppress(DetentError):
                self._catch_up()

    def _catch_up(self) -> None:
        for partition in range(len(self._next)):
            self._read(partition, self._reader.head(partition).next_position)

    def _read(self, partition: int, stop: int) -> None:
        """Tell what the ledger holds from what was told last up to a position."""
        while (first := self._next[partition]) < stop:
            rows = list(self._reader.records(partition, first, min(stop, first + RECORDS_AT_ONCE)))
            if not rows:
                return
            self._next[partition] = first + len(rows)
            self._tell([record_of(row) for row in rows])

    def _tell(self, records: Sequence[Record]) -> None:
        for observer in tuple(self._observers):
            try:
                observer(records)
            except Exception:
                logger.exception("an observer of the ledger failed")


GRANTS_PAGE = 10_000
"""Grants in one answer, at most: as many as one claim can give, and well below what a message may hold."""


def open_grants(kernel: Kernel, replica_id: str, after: str | None = None, limit: int = GRANTS_PAGE) -> list[Grant]:
    """A worker's leases by job id, those after ``after`` only; as many as ``limit`` means that there may be more."""
    held = (
        job
        for job in kernel.jobs.values()
        if job.state == State.RUNNING and job.lease_holder == replica_id and (after is None or job.job_id > after)
    )
    return [Grant.of(job) for job in nsmallest(limit, held, key=lambda job: job.job_id)]


def check_asker(replica_id: object, after: object) -> tuple[str, str | None]:
    """Who asks and from where on; raises `InvalidInput` for what can name neither."""
    fault = id_fault("replica_id", replica_id)
    if after is not None:
        fault = fault or id_fault("after", after)
    if fault or not isinstance(replica_id, str) or not (after is None or isinstance(after, str)):
        raise InvalidInput(fault or "a replica_id is a text")
    return replica_id, after
