"""Follow what jobs print until they have ended: live output first, then the rest from the report.

Every `poll` gives what is new. The ledger says which attempt a job is in; a worker's file says what it has printed so far;
the report has the rest, also of attempts that came and went between two polls. Nothing is given twice, and the order within
a stream is kept. How long to wait between two polls is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path
from typing import Final

from detent.canon.late import dataclass
from detent.inspect.logs import AttemptLog, attempts_of
from detent.kernel.run import COMPLETED, RUNNING
from detent.kernel.table import TERMINAL, State
from detent.owner.content import Content
from detent.owner.views import job_view
from detent.store.api import StoreReader
from detent.workers.live_output import STREAMS, LiveJob, live_jobs

QUIET_POLLS: Final = 10
"""Polls without an open job after which a step of a run that goes on is taken to be over."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New output of one stream of one attempt, or the news that the attempt has ended."""

    job_id: str
    attempt: int
    stream: str | None
    data: bytes = b""
    ended: AttemptLog | None = None


@dataclass(slots=True)
class _Followed:
    """How far one job has been shown."""

    state: str = ""
    transition_seq: int = -1
    shown: int = 0
    """Attempts that were shown whole."""
    running: bool = False
    offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STREAMS, 0))


class Follower:
    """Follows jobs by name or, with ``run_id``, also those that join the run while it goes on.

    A whole run is followed until it has ended. With ``wanted``, which picks from those that join, it is enough that all
    jobs have ended and no more of them come.
    """

    def __init__(
        self,
        reader: StoreReader,
        content: Content,
        home: Path,
        job_ids: Iterable[str],
        *,
        run_id: str | None = None,
        wanted: Callable[[str], bool] | None = None,
    ) -> None:
        self._reader = reader
        self._content = content
        self._home = home
        self._run_id = run_id
        self._wanted = wanted
        self._jobs = {job_id: _Followed() for job_id in job_ids}
        self._open = dict.fromkeys(self._jobs)
        """Jobs that have not been shown whole, in order."""
        self._quiet = 0
        run = None if run_id is None else reader.run(run_id)
        self._partition = None if run is None else run.partition
        self._position = 0
        if run is not None:
            # The position first, then the jobs: what joins between the two is seen twice and not missed.
            self._position = reader.head(run.partition).next_position
            for row in reader.jobs(run_id=run_id):
                self._add(row.job_id)

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        if self._open:
            return False
        run = None if self._run_id is None else self._reader.run(self._run_id)
        if run is None or run.status != RUNNING:
            return True
        return self._wanted is not None and self._quiet >= QUIET_POLLS

    @property
    def ok(self) -> bool:
        """Whether what was followed succeeded: the run where it is a whole run, else every job."""
        if self._run_id is not None and self._wanted is None:
            run = self._reader.run(self._run_id)
            return run is not None and run.status == COMPLETED
        return all(job.state == State.SUCCEEDED for job in self._jobs.values())

    @property
    def waiting(self) -> bool:
        """Whether nothing runs just now."""
        return not any(self._jobs[job_id].running for job_id in self._open)

    def poll(self) -> list[Piece]:
        """What is new since the last time."""
        self._join()
        self._quiet = 0 if self._open else self._quiet + 1
        live = live_jobs(self._home)
        pieces: list[Piece] = []
        for job_id in list(self._open):
            pieces += self._poll_job(job_id, self._jobs[job_id], live.get(job_id))
        return pieces

    def _poll_job(self, job_id: str, job: _Followed, live: LiveJob | None) -> list[Piece]:
        pieces: list[Piece] = []
        row = self._reader.job(job_id)
        if row is not None and row.transition_seq != job.transition_seq:
            pieces += self._catch_up(job_id, job)
        if job.running and live is not None:
            pieces += self._live(job_id, job, live)
        if row is None or job.state in TERMINAL:
            del self._open[job_id]
        return pieces

    def _catch_up(self, job_id: str, job: _Followed) -> list[Piece]:
        """Show what the reports of newly ended attempts have beyond what was seen live."""
        view = job_view(self._reader, job_id)
        assert view is not None
        attempts = list(attempts_of(self._reader, self._content, view))
        pieces: list[Piece] = []
        for attempt in attempts[job.shown :]:
            if attempt.running:
                break
            rests = {stream: attempt.stream(stream).data[job.offsets[stream] :] for stream in STREAMS}
            pieces += [Piece(job_id, attempt.number, stream, rest) for stream, rest in rests.items() if rest]
            pieces.append(Piece(job_id, attempt.number, None, ended=attempt))
            job.shown += 1
            job.offsets = dict.fromkeys(STREAMS, 0)
        job.running = bool(attempts) and attempts[-1].running
        job.state, job.transition_seq = view.row.state, view.row.transition_seq
        return pieces

    def _live(self, job_id: str, job: _Followed, live: LiveJob) -> list[Piece]:
        read = {stream: live.read(stream, job.offsets[stream]) for stream in STREAMS}
        row = self._reader.job(job_id)
        if row is None or row.transition_seq != job.transition_seq:
            return []  # The attempt ended meanwhile: this may be the beginning of the next one.
        pieces = []
        for stream, data in read.items():
            if data:
                job.offsets[stream] += len(data)
                pieces.append(Piece(job_id, job.shown + 1, stream, data))
        return pieces

    def _join(self) -> None:
        """Take in jobs that joined the run."""
        if self._partition is None:
            return
        for record in self._reader.records(self._partition, self._position):
            self._position = record.position + 1
            if record.kind == "submitted" and record.job_id is not None and record.run_id == self._run_id:
                self._add(record.job_id)

    def _add(self, job_id: str) -> None:
        if job_id not in self._jobs and (self._wanted is None or self._wanted(job_id)):
            self._jobs[job_id] = _Followed()
            self._open[job_id] = None
