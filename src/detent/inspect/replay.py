"""Replay: decide the recorded commands again, of a bundle or of a home, and compare every byte with what was recorded.

Of a home, everything else that its commands lead to is compared as well: the stored row of every job and run to the last
byte, and every checkpoint. The past that the kernel asks for is answered from the store, up to the batch being replayed, so
memory does not grow with jobs that have ended. An answer of the store that is not true is found where that job or record
was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from detent.errors import InvalidInput, StoreCorrupt
from detent.inspect.audit import commits
from detent.kernel import Job, Kernel, checkpoint
from detent.kernel.partition_state import MakeQueue
from detent.ledger.bundle import read_bundle
from detent.ledger.findings import Finding
from detent.ledger.items import HeaderItem, Readable, batch_item
from detent.ledger.replay import DIFFERENCES_MAX, AfterCommand, Difference, ReplayReport, replay_items
from detent.owner.home import Home
from detent.owner.store_history import StoreHistory
from detent.owner.wiring import Parts
from detent.scheduling.scheduler import Scheduler
from detent.store.api import JobRow, StoreReader


def replay_file(path: Path, *, make_queue: MakeQueue = Scheduler) -> ReplayReport:
    """Replay a bundle. Raises `InvalidInput` when there is no such file; what is wrong inside it is in the report."""
    try:
        file = path.open("rb")
    except OSError as exc:
        raise InvalidInput(
            f"{path} cannot be read: {exc.strerror or exc}", hint="give the path of a bundle that `detent export` wrote"
        ) from exc
    with closing(file):
        return replay_items(read_bundle(file), make_queue=make_queue)


def replay_home(home: Home, *, parts: Parts | None = None) -> ReplayReport:
    """Replay the ledger of a home as it is at this moment, and compare what is stored beside it.

    A database that cannot be read is said in the report, as with a bundle.
    """
    chosen = parts or Parts()
    try:
        with chosen.open_snapshot(home.ledger) as reader:
            return replay_reader(reader, chosen.make_queue)
    except StoreCorrupt as exc:
        return replay_items([Finding("STORE_DAMAGED", str(exc))])


def replay_reader(
    reader: StoreReader, make_queue: MakeQueue, after_command: AfterCommand | None = None
) -> ReplayReport:
    """Replay the ledger that a reader stands still on; ``after_command`` is handed the outcome of every command."""
    watch = _Watch(reader)
    report = replay_items(
        watch.items(),
        make_history=watch.history,
        ended_heads=watch.heads_of,
        make_queue=make_queue,
        after_command=after_command,
        after_batch=watch.after_batch,
    )
    if report.ok:
        watch.compare_live()
    total = report.differences_total + watch.total
    kept = (*report.differences, *watch.differences)[:DIFFERENCES_MAX]
    return replace(report, ok=report.ok and not watch.total, differences=kept, differences_total=total)


class _History(StoreHistory):
    """The store's past, and a look at every job and run at the moment it ends."""

    def __init__(self, reader: StoreReader, partition: int, watch: _Watch) -> None:
        super().__init__(reader, partition)
        self._watch = watch

    def end_job(self, job: Job) -> None:
        """A job has ended for good: its row must be exactly this."""
        super().end_job(job)
        self._watch.ended(job)

    def end_run(self, run_id: str, body: bytes) -> None:
        """A run has ended for good: its row must be exactly this."""
        super().end_run(run_id, body)
        self._watch.compare_run(run_id, body)


class _Watch:
    """What a replay of a home looks at beside the records."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._histories: dict[int, _History] = {}
        self._kernels: dict[int, Kernel] = {}
        self._checkpoints = {
            (partition, row.batch_no): row.body
            for partition in range(reader.partitions)
            for row in reader.checkpoints(partition)
        }
        self._ended: list[Job] = []
        self._partition = 0
        self._batch_no = 0
        self.differences: list[Difference] = []
        self.total = 0

    def items(self) -> Iterator[Readable]:
        """Every batch; the histories' horizon moves along with it."""
        yield HeaderItem(self._reader.origin, self._reader.partitions)
        for partition in range(self._reader.partitions):
            for batch, records in commits(self._reader, partition):
                self._partition, self._batch_no = partition, batch.batch_no
                history = self.history(partition)
                history.horizon = batch.batch_no
                yield batch_item(batch, records)
                history.committed()

    def history(self, partition: int) -> _History:
        """The past of one partition."""
        if partition not in self._histories:
            self._histories[partition] = _History(self._reader, partition, self)
        return self._histories[partition]

    def heads_of(self, partition: int, history: object) -> Iterator[tuple[str, int, bytes]]:  # noqa: ARG002 - asked by partition
        """Heads of the jobs that have ended in a partition, as their rows have them: those were compared one by one."""
        live = self._kernels[partition].jobs
        for row in self._reader.jobs():
            if row.partition == partition and row.job_id not in live:
                yield row.job_id, row.transition_seq, row.head

    def after_batch(self, partition: int, batch_no: int, kernel: Kernel) -> None:
        """Compare the jobs that ended in this batch, and the checkpoint that was made after it, if there is one."""
        self._kernels[partition] = kernel
        for job in self._ended:
            self._compare_job(job, kernel.tick)
        self._ended.clear()
        stored = self._checkpoints.get((partition, batch_no))
        if stored is not None and stored != checkpoint(kernel):
            self._differ("the checkpoint is not the state that the commands lead to")

    def ended(self, job: Job) -> None:
        """A job has ended in the batch under way."""
        self._ended.append(job)

    def _compare_job(self, job: Job, tick: int) -> None:
        """The row of a job that has ended must be, byte for byte, the job as it was written after its last batch."""
        row = self._reader.job(job.job_id)
        if row is None:
            self._differ(f"job {job.job_id!r} has no row")
        elif row.body != job.encode() or row.tick != tick or not _fits(row, job):
            self._differ(f"the row of job {job.job_id!r} is not what its commands lead to")

    def compare_run(self, run_id: str, body: bytes) -> None:
        """A run's row must be, byte for byte, the run."""
        row = self._reader.run(run_id)
        if row is None or row.body != body:
            self._differ(f"the row of run {run_id!r} is not what its commands lead to")

    def compare_live(self) -> None:
        """At the end: what has not ended has the same state in its row as in the kernel."""
        for partition, kernel in sorted(self._kernels.items()):
            self._partition = partition
            for job in kernel.jobs.values():
                self._compare_live_job(job)
            for run in kernel.runs.values():
                self.compare_run(run.run_id, run.encode())

    def _compare_live_job(self, job: Job) -> None:
        """Heartbeats move a lease without touching the row, which is written when the job moves or uses something."""
        row = self._reader.job(job.job_id)
        if row is None:
            self._differ(f"job {job.job_id!r} has no row")
            return
        try:
            stored = Job.decode(row.body)
        except Exception:  # noqa: BLE001 - bytes that break the decoder are not the job
            stored = None
        if stored is not None:
            stored.lease_expiry, stored.heartbeat_tick = job.lease_expiry, job.heartbeat_tick
            stored.conflicts = job.conflicts
        if stored is None or stored.encode() != job.encode() or not _fits(row, job):
            self._differ(f"the row of job {job.job_id!r} is not what its commands lead to")

    def _differ(self, problem: str) -> None:
        self.total += 1
        if len(self.differences) < DIFFERENCES_MAX:
            self.differences.append(Difference(self._partition, self._batch_no, None, problem))


def _fits(row: JobRow, job: Job) -> bool:
    """Whether the columns of a job's row repeat what the job says."""
    return (row.tenant_id, row.run_id, row.state, row.transition_seq, row.attempt_id, row.head) == (
        job.tenant_id,
        job.run_id,
        job.state,
        job.transition_seq,
        job.attempt_id,
        job.head,
    )
