"""The chunks of a run as jobs of the kernel: submitted in order, found again by their names, reported when they end.

Which chunk comes when is decided by `OrderedRun`. A queue that is full holds chunks back (X-031), and those that a killed run
had submitted are not submitted again but looked at.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from detent.canon import decode
from detent.canon.late import dataclass
from detent.jobs.work import WorkReport
from detent.kernel import Evidence, Job, Record
from detent.kernel.table import TERMINAL, State
from detent.ordered import Action, Chunk, OrderedRun, chunk_job_id
from detent.owner.backend import Backend, Submission
from detent.runs.ordered.chunk_order import chunk_submission
from detent.runs.ordered.commit_thread import chunks_between
from detent.runs.ordered.pending_results import Waiting
from detent.runs.ordered.spec import Items, OrderedInputs
from detent.runs.submit.submitter import Submitter
from detent.workers.bench import Attempted
from detent.workers.identity import is_gone

SUBMIT_MAX: Final = 64
"""Chunks submitted in one commit."""
LOOK_MAX: Final = 64
UNKNOWN_OWNER: Final = "unknown"
"""Whose attempt it was that is known by its end alone."""


@dataclass(slots=True)
class Open:
    """A chunk whose job the kernel has."""

    chunk: Chunk
    job_id: str
    attempt: int = 0
    owner: str = ""
    """The worker that holds its lease; empty while none has it."""

    @property
    def started(self) -> bool:
        """Whether a worker has it."""
        return bool(self.owner)


class ChunkJobs:
    """The jobs of one run's open windows. What happens to them goes to `OrderedRun`, whose answers are yielded to be carried out.

    All but `is_news` is for the driver's own thread.
    """

    def __init__(
        self,
        backend: Backend,
        inputs: OrderedInputs,
        items: Items,
        run_id: str,
        *,
        submitter: Submitter[Open],
        waiting: Waiting,
        stop: threading.Event,
    ) -> None:
        self.opened: dict[str, Open] = {}
        self.offers: deque[Chunk] = deque()
        """What was offered by `OrderedRun` and is not submitted yet, in order."""
        self._backend = backend
        self._inputs = inputs
        self._items = items
        self._run_id = run_id
        self._submitter = submitter
        self._waiting = waiting
        self._stop = stop
        self._run = OrderedRun(inputs.config)
        self._known_below = 0

    def begin(self, run: OrderedRun, known_below: int) -> None:
        """Work for this run. Chunks below ``known_below`` may have a job already: it was taken up again."""
        self._run = run
        self._known_below = known_below

    def is_news(self, record: Record) -> bool:
        """Whether a record is about a chunk of this run, and our own supervisor will not tell: it tells how its attempts end.

        A job may begin before its submission is answered, so it need not be among the open ones yet.
        """
        return record.kind == "transition" and record.run_id == self._run_id and self._submitter.is_untold(record)

    # -- chunks to the kernel ------------------------------------------------------------------------------------------

    def submit(self, at_once: int = SUBMIT_MAX) -> Iterator[Action]:
        """Submit what was offered, in order, as far as the queue has room; first only so many that all have work."""
        while self.offers and not self._stop.is_set():
            some = list(self.offers)[: SUBMIT_MAX if self.opened else at_once]
            batch = [(chunk, self._submission(chunk)) for chunk in some]
            new = [submission for _, submission in batch if submission is not None]
            taken = iter(self._submitter.submit(new, repeated=True) if new else ())
            for chunk, submission in batch:
                if submission is not None and not next(taken):
                    return  # Offers are confirmed in order: what comes behind is repeated, which is the same answer.
                self.offers.popleft()
                yield from self._confirm(chunk, is_new=submission is not None)

    def _submission(self, chunk: Chunk) -> Submission | None:
        """The job of a chunk; None when it has one already, or nothing of it is to be computed."""
        job_id = chunk_job_id(self._run_id, *chunk, self._backend.partitions)
        if not self._run.open_seqs(*chunk) or (
            chunk.first < self._known_below and self._backend.reader.job(job_id) is not None
        ):
            return None
        # Nothing at or above a boundary is computed.
        part = (chunk, min(chunk.last, self._run.boundary - 1))
        return chunk_submission(self._backend, self._inputs, self._items, self._run_id, part)

    def _confirm(self, chunk: Chunk, *, is_new: bool) -> Iterator[Action]:
        opened = (
            Open(chunk, chunk_job_id(self._run_id, *chunk, self._backend.partitions))
            if self._run.open_seqs(*chunk)
            else None
        )
        if opened is not None:
            self.opened[opened.job_id] = opened
        yield from self._run.dispatched(*chunk)
        if opened is not None and not is_new:
            yield from self._look(opened)

    def drop(self) -> None:
        """Cancel the jobs of all open chunks, and forget what was offered."""
        self.offers.clear()
        opened, self.opened = self.opened, {}
        self._submitter.cancel(list(opened))

    def withdraw(self, first: int, last: int) -> None:
        """Cancel the jobs of chunks that lie behind a boundary."""
        ids = [
            chunk_job_id(self._run_id, *chunk, self._backend.partitions)
            for chunk in chunks_between(self._inputs.config, first, last)
            if chunk.first >= first
        ]
        self._submitter.cancel([job_id for job_id in ids if self.opened.pop(job_id, None) is not None])

    # -- how they ended ------------------------------------------------------------------------------------------------

    def attempted(self, event: Attempted) -> Iterator[Action]:
        """An attempt was closed by our supervisor."""
        opened = self.opened.get(event.job_id)
        if opened is None:
            return
        attempt = opened.attempt if event.report is None else event.report.attempt_id
        if event.state in TERMINAL:
            yield from self._ended(opened, event.state, attempt, event.digest, event.report)
        elif event.state == State.RETRYING:
            yield from self._reach(opened, attempt + 1, interrupted=event.report is None)

    def observed(self, record: Record) -> Iterator[Action]:
        """A record of an open chunk's job was committed."""
        body, opened = decode(record.body), self.opened.get(record.job_id or "")
        if opened is None or not isinstance(body, dict):
            return
        if body["to_state"] == State.RUNNING:
            yield from self._reach(opened, body["attempt_id"], interrupted=True)
            if body["attempt_id"] == opened.attempt:
                evidence = None if record.evidence is None else Evidence.decode(record.evidence)
                yield from self._start(opened, None if evidence is None else evidence.replica_id)
        elif body["to_state"] in TERMINAL:
            yield from self._look(opened)

    def look(self) -> Iterator[Action]:
        """Ask the ledger where the oldest open chunks stand: nothing depends on being told."""
        for opened in list(self.opened.values())[:LOOK_MAX]:
            yield from self._look(opened)
        alive = {owner: not is_gone(owner) for owner in {opened.owner for opened in self.opened.values()} if owner}
        for opened in list(self.opened.values()):
            if alive.get(opened.owner):
                yield from self._run.heartbeat(*opened.chunk, opened.owner)

    def _look(self, opened: Open) -> Iterator[Action]:
        row = self._backend.reader.job(opened.job_id)
        if row is None:
            return
        job = Job.decode(row.body)
        if row.state in TERMINAL:
            found = self._backend.report_of(opened.job_id, job) or (None, None)
            attempt = job.attempt_id if found[1] is None else found[1].attempt_id
            yield from self._ended(opened, row.state, attempt, *found)
        elif row.state != State.RETRYING:
            yield from self._reach(opened, job.attempt_id, interrupted=True)
            if row.state == State.RUNNING:
                yield from self._start(opened, job.lease_holder)

    def _start(self, opened: Open, owner: str | None = None) -> Iterator[Action]:
        """A worker has the chunk. A chunk whose start was not seen was held by a worker known only by its end."""
        if not opened.started:
            opened.owner = owner or UNKNOWN_OWNER
            yield from self._run.started(*opened.chunk, opened.attempt, opened.owner)

    def _reach(self, opened: Open, attempt: int, *, interrupted: bool) -> Iterator[Action]:
        """Bring a chunk to the attempt that the kernel has it at; what lies between was lost on the way."""
        while opened.attempt < attempt:
            yield from self._start(opened)
            code = "INTERRUPTED" if interrupted else "ATTEMPT_FAILED"
            yield from self._run.lapsed(*opened.chunk, opened.attempt, code, interrupted=interrupted)
            opened.attempt, opened.owner = opened.attempt + 1, ""

    def _ended(
        self, opened: Open, state: str, attempt: int, digest: bytes | None, report: WorkReport | None
    ) -> Iterator[Action]:
        if self.opened.pop(opened.job_id, None) is None:
            return
        run, chunk = self._run, opened.chunk
        if state == State.CANCELED:
            yield from run.canceled(*chunk)
            return
        yield from self._reach(opened, attempt, interrupted=True)
        yield from self._start(opened, None if report is None else report.worker)
        ended = self._waiting.keep(chunk, opened.job_id, state, digest, report)
        seqs = run.open_seqs(*chunk)
        if seqs:
            some = ended[seqs[0] - chunk.first : seqs[-1] - chunk.first + 1]
            yield from run.finished_many(seqs[0], opened.attempt, some)
