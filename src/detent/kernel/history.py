"""What the kernel may ask about the past without holding it.

A job that has ended leaves the kernel's memory. When a command names it again, or repeats a transition committed long
ago, the kernel asks its history. The owner answers from the store, replay from what it has read so far; either way the
answer is part of the recorded past, so decisions stay a function of recorded inputs (X-168).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from detent.canon import decode
from detent.canon.late import NamedTuple
from detent.kernel.job import Job

STEP_REUSED: Final = "step_reused"
RUN_REUSED: Final = "run_reused"
RUN_ENDED: Final = "run_ended"
ERASED: Final = "erased"
WORKER_ENROLLED: Final = "worker_enrolled"
WORKER_RETIRED: Final = "worker_retired"
WORKER_KINDS: Final = frozenset({WORKER_ENROLLED, WORKER_RETIRED})


class Record(NamedTuple):
    """A ledger record as the kernel builds it: its bytes, its evidence, and how to find it again."""

    kind: str
    job_id: str | None
    run_id: str | None
    transition_seq: int | None
    body: bytes
    evidence: bytes | None
    hash: bytes
    """SHA-256 of the body: for a transition the next link of the job's chain."""


def find_reused(records: Iterable[Record], step_id: str) -> Record | None:
    """The record among a run's that says a step was reused."""
    for record in records:
        body = decode(record.body) if record.kind == STEP_REUSED else None
        if isinstance(body, dict) and body["step_id"] == step_id:
            return record
    return None


class History(Protocol):
    """The past, looked up on demand."""

    def record(self, job_id: str, transition_seq: int) -> Record | None:
        """The job's transition record with this sequence number."""

    def ended_job(self, job_id: str) -> Job | None:
        """A job that is in a terminal state."""

    def ended_run(self, run_id: str) -> bytes | None:
        """The encoded form of a run that has ended."""

    def run_end(self, run_id: str) -> Record | None:
        """The record by which a run ended."""

    def reused_step(self, run_id: str, step_id: str) -> Record | None:
        """The record by which a step of a run was reused. Asked for repeats only, so it may take its time."""

    def reused_run(self, run_id: str) -> Record | None:
        """The record by which a run took the results of an earlier one. Asked for repeats only."""

    def erasure(self, number: int) -> Record | None:
        """The ``erased`` record before which there were ``number`` others. Asked for repeats only."""

    def worker(self, worker_id: str, key_id: bytes | None = None) -> list[Record]:
        """The records of a worker's enrolment and retirement, in order; of an unknown worker, those of the one that had the key."""

    def run_heads(self, run_id: str) -> Iterator[tuple[str, int, bytes]]:
        """(job id, transitions, head) of every ended job of a run, by the UTF-8 order of the ids."""

    def add_record(self, record: Record) -> None:
        """A transition, the end of a run, a reuse, an erasure or a record of a worker has just been recorded."""

    def end_job(self, job: Job) -> None:
        """A job has just ended and leaves the kernel's memory."""

    def end_run(self, run_id: str, body: bytes) -> None:
        """A run has just ended and leaves the kernel's memory."""


class Workers:
    """The enrolments and retirements so far, by worker and by key: as many as there ever were workers, which are few."""

    def __init__(self) -> None:
        self._by_worker: defaultdict[str, list[Record]] = defaultdict(list)
        self._by_key: dict[bytes, str] = {}

    def add(self, record: Record) -> None:
        """Take in a ``worker_enrolled`` or ``worker_retired`` record."""
        body = decode(record.body)
        if isinstance(body, dict):
            worker_id, key_id = str(body["worker_id"]), bytes(body["key_id"])
            self._by_worker[worker_id].append(record)
            self._by_key[key_id] = worker_id

    def find(self, worker_id: str, key_id: bytes | None = None) -> list[Record]:
        """Everything about a worker; where it is unknown, about the one that had the key."""
        found = self._by_worker.get(worker_id)
        if found is None and key_id is not None:
            found = self._by_worker.get(self._by_key.get(key_id, ""))
        return list(found or ())


class MemoryHistory:
    """The past in plain dictionaries: for tests, for replays of moderate size, and for a kernel used on its own."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], Record] = {}
        self.jobs: dict[str, Job] = {}
        self.runs: dict[str, bytes] = {}
        self._jobs_of_run: defaultdict[str, list[str]] = defaultdict(list)
        self._reused: defaultdict[str, list[Record]] = defaultdict(list)
        self._run_ends: dict[str, Record] = {}
        self._erased: list[Record] = []
        self._workers = Workers()

    def record(self, job_id: str, transition_seq: int) -> Record | None:
        """The job's transition record with this sequence number."""
        return self.records.get((job_id, transition_seq))

    def ended_job(self, job_id: str) -> Job | None:
        """A job that is in a terminal state."""
        return self.jobs.get(job_id)

    def ended_run(self, run_id: str) -> bytes | None:
        """The encoded form of a run that has ended."""
        return self.runs.get(run_id)

    def reused_step(self, run_id: str, step_id: str) -> Record | None:
        """The record by which a step of a run was reused."""
        return find_reused(self._reused[run_id], step_id)

    def reused_run(self, run_id: str) -> Record | None:
        """The record by which a run took the results of an earlier one."""
        return next((record for record in self._reused[run_id] if record.kind == RUN_REUSED), None)

    def run_end(self, run_id: str) -> Record | None:
        """The record by which a run ended."""
        return self._run_ends.get(run_id)

    def erasure(self, number: int) -> Record | None:
        """The ``erased`` record before which there were ``number`` others."""
        return self._erased[number] if number < len(self._erased) else None

    def worker(self, worker_id: str, key_id: bytes | None = None) -> list[Record]:
        """The records of a worker's enrolment and retirement, in order."""
        return self._workers.find(worker_id, key_id)

    def run_heads(self, run_id: str) -> Iterator[tuple[str, int, bytes]]:
        """Heads of the run's ended jobs in canonical order."""
        for job_id in sorted(self._jobs_of_run[run_id]):
            job = self.jobs[job_id]
            yield job_id, job.transition_seq, job.head

    def add_record(self, record: Record) -> None:
        """Remember a record that may be asked for again."""
        if record.job_id is not None and record.transition_seq is not None:
            self.records[record.job_id, record.transition_seq] = record
        elif record.kind in {STEP_REUSED, RUN_REUSED} and record.run_id is not None:
            self._reused[record.run_id].append(record)
        elif record.kind == RUN_ENDED and record.run_id is not None:
            self._run_ends[record.run_id] = record
        elif record.kind == ERASED:
            self._erased.append(record)
        elif record.kind in WORKER_KINDS:
            self._workers.add(record)

    def end_job(self, job: Job) -> None:
        """Remember a job that has ended."""
        self.jobs[job.job_id] = job
        if job.run_id is not None:
            self._jobs_of_run[job.run_id].append(job.job_id)

    def end_run(self, run_id: str, body: bytes) -> None:
        """Remember a run that has ended."""
        self.runs[run_id] = body
