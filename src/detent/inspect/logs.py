"""What jobs printed: from the signed reports of those that ended, from the files of the workers for those that run.

A worker keeps what its job prints in ``live/WORKER/`` of the home: ``stdout``, ``stderr``, and ``job``, whose first line
names the job and is empty while there is none. These files are another process's, change while they are read and may be left over from one that was killed;
they are good for looking and for nothing else. What counts is in the report, once there is one.

Follow what jobs print until they have ended: live output first, then the rest from the report.

Every `poll` gives what is new. The ledger says which attempt a job is in; a worker's file says what it has printed so far;
the report has the rest, also of attempts that came and went between two polls. Nothing is given twice, and the order within
a stream is kept. How long to wait between two polls is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Final

from detent.canon.late import dataclass
from detent.errors import InvalidInput, StoreCorrupt
from detent.jobs.elements import element_id
from detent.jobs.work import PROCESS, SUCCEEDED, Usage, WorkReport, WorkStream
from detent.kernel.identity import lease_key
from detent.kernel.run import COMPLETED, RUNNING
from detent.kernel.table import TERMINAL, State
from detent.ledger import SignedResult
from detent.owner.content import Content, order_of
from detent.owner.views import ABSENT, DAMAGED, ERASED, HERE, JobView, RecordView, job_view, moves_of_job
from detent.store.api import StoreReader
from detent.words.states import word_of
from detent.workers.live_output import LIVE_BYTES_MAX, STDERR, STDOUT, STREAMS, LiveJob, live_jobs


@dataclass(frozen=True, slots=True)
class StreamLog:
    """What was written to one stream."""

    data: bytes = b""
    truncated: bool = False
    """Whether more was written than was kept."""
    fate: str = HERE
    """``here``; or why the bytes are not: ``erased``, ``absent``, ``damaged``."""


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """What one attempt printed. Without a report there is nothing, and ``reason_code`` says how the attempt ended."""

    number: int
    """Counted from one."""
    running: bool = False
    status: str | None = None
    """As the report says; None without one."""
    reason_code: str | None = None
    fate: str | None = None
    """Where the report is: ``here``, ``erased``, ``absent``, ``damaged``; None when none was made."""
    worker: str = ""
    sandbox: str | None = None
    """The profile of the sandbox that it ran in; None outside of one."""
    started_ms: int | None = None
    finished_ms: int | None = None
    waited_ms: int | None = None
    """From the moment it could begin to the moment a worker began it."""
    unmeasured: frozenset[str] = frozenset({"gpu_ms", "io_bytes"})
    """What its report does not tell of what it used; without a report, anything but its time."""
    ran_ms: int | None = None
    """From there to its end; of an attempt without a report, from its claim."""
    stdout: StreamLog = StreamLog()
    stderr: StreamLog = StreamLog()
    lease_id: bytes | None = None
    """The lease under which it ran."""
    usage: Usage | None = None
    """What it used, as its report says."""
    report_digest: bytes | None = None
    """The signed report that its end names; None for an end without one."""
    signer: bytes | None = None
    """The key that signed the report; None when the report is not here."""

    def stream(self, name: str) -> StreamLog:
        """One of the two."""
        return self.stdout if name == STDOUT else self.stderr

    def to_map(self) -> dict[str, Any]:
        """One object of `detent logs -o json`."""
        return {
            "attempt": self.number,
            "running": self.running,
            "status": None if self.status is None else word_of(self.status),
            "reason_code": self.reason_code,
            "report": self.fate,
            "worker": self.worker or None,
            "started_ms": self.started_ms,
            "finished_ms": self.finished_ms,
            "waited_ms": self.waited_ms,
            "ran_ms": self.ran_ms,
            **{name: _stream_map(self.stream(name)) for name in STREAMS},
        }


@dataclass(frozen=True, slots=True)
class JobLog:
    """What one job printed, attempt by attempt."""

    job_id: str
    run_id: str | None
    state: str
    attempts: tuple[AttemptLog, ...]

    @property
    def ended(self) -> bool:
        """Whether nothing more can come."""
        return self.state in TERMINAL


def job_times(view: JobView, attempts: Iterable[AttemptLog], since_ms: int | None, now_ms: int) -> tuple[int, int]:
    """For how long a job waited, and for how long it ran, all attempts together, until its end or until now.

    ``since_ms`` is when a worker began it, if one has it now. What was claimed and waits for a worker or resources waits.
    """
    ran_ms = sum(attempt.ran_ms or 0 for attempt in attempts)
    end_ms = view.times.ms(view.row.tick) if view.row.state in TERMINAL else now_ms
    if view.row.state == State.RUNNING and since_ms is not None:
        ran_ms += max(0, now_ms - since_ms)
    return max(0, end_ms - view.times.ms(view.job.submitted_tick) - ran_ms), ran_ms


def job_log(
    reader: StoreReader, content: Content, job_id: str, live: LiveJob | None = None, element: int | None = None
) -> JobLog | None:
    """What a job, or one element of it, printed so far; None when there is no such job. ``live`` is the process that has it now."""
    view = job_view(reader, job_id)
    if view is None:
        return None
    attempts = tuple(attempts_of(reader, content, view, element))
    if element is not None:
        return JobLog(element_id(job_id, element), view.row.run_id, _state(view, attempts), attempts)
    if live is not None and attempts and attempts[-1].running:
        streams = {name: live.read(name) for name in STREAMS}
        now = AttemptLog(
            attempts[-1].number,
            running=True,
            worker=live.directory.name,
            stdout=StreamLog(streams[STDOUT], len(streams[STDOUT]) == LIVE_BYTES_MAX),
            stderr=StreamLog(streams[STDERR], len(streams[STDERR]) == LIVE_BYTES_MAX),
        )
        attempts = (*attempts[:-1], now)
    return JobLog(view.row.job_id, view.row.run_id, view.row.state, attempts)


def _state(view: JobView, attempts: tuple[AttemptLog, ...]) -> str:
    """Where an element stands, by the last attempt that it was in."""
    status = attempts[-1].status if attempts else None
    if status == SUCCEEDED or (status is not None and view.row.state in TERMINAL):
        return State.SUCCEEDED.value if status == SUCCEEDED else State.FAILED.value
    return view.row.state


def attempts_of(
    reader: StoreReader, content: Content, view: JobView, element: int | None = None
) -> Iterator[AttemptLog]:
    """A job's attempts in order, each from its report; of an element, those that it was in."""
    return attempts_in(reader, content, view, moves_of_job(reader, view), element)


def attempts_in(
    reader: StoreReader,
    content: Content,
    view: JobView,
    records: Iterable[RecordView],
    element: int | None = None,
    *,
    printed: bool = True,
) -> Iterator[AttemptLog]:
    """The same from a job's records, which were read already. Without ``printed``, what it wrote is left where it is."""
    number, running = 0, False
    queued = claimed = view.job.submitted_tick
    lease_id: bytes | None = None
    for record in records:
        tick = record.tick or queued
        if record.fields.get("to_state") == State.QUEUED:
            queued = tick
        if record.fields.get("dispatch") is True:
            number, running, claimed = number + 1, True, tick
            granted = record.fields["attempt_id"], record.fields["transition_seq"]
            lease_id = lease_key(view.row.tenant_id, view.row.job_id, *granted)
        elif running and record.fields.get("from_state") == State.RUNNING:
            running = False
            ended = _ended(reader, content, number, record, element, printed=printed)
            if ended is None:
                continue
            began_ms = view.times.ms(claimed) if ended.started_ms is None else ended.started_ms
            ended_ms = view.times.ms(tick) if ended.finished_ms is None else ended.finished_ms
            waited_ms = max(0, began_ms - view.times.ms(queued))
            yield replace(ended, waited_ms=waited_ms, ran_ms=max(0, ended_ms - began_ms), lease_id=lease_id)
    if running:
        yield AttemptLog(number, running=True, worker=view.job.lease_holder or "", lease_id=lease_id)


def _ended(
    reader: StoreReader, content: Content, number: int, record: RecordView, element: int | None, *, printed: bool
) -> AttemptLog | None:
    """How an attempt ended; None for one that an element was not in, because it was settled before."""
    evidence = record.evidence
    reason = str(record.fields.get("reason_code") or (evidence.reason_code if evidence is not None else "")) or None
    if evidence is None or evidence.detail_digest is None or evidence.kind not in {"result", "worker_lost"}:
        return AttemptLog(number, reason_code=reason)
    named = AttemptLog(number, reason_code=reason, report_digest=evidence.detail_digest)
    try:
        envelope = content.get(evidence.detail_digest)
        signed = None if envelope is None else SignedResult.parse(envelope)
        named = replace(named, signer=None if signed is None else signed.key_id)
        report = None if signed is None else WorkReport.parse(signed.body)
    except (StoreCorrupt, InvalidInput):
        # Also the result of work that is none of ours to read: what it printed is not kept in this form.
        return replace(named, fate=DAMAGED)
    if report is None:
        return replace(named, fate=ERASED if reader.is_erased(evidence.detail_digest) else ABSENT)
    if element is not None:
        own = report.of_element(element)
        if own is None:
            return named
        if own.attempt_id != report.attempt_id:
            return None
        report = own
    result, used = report.result, report.result.usage
    stdout, stderr = (
        _printed(reader, content, report, stream) if printed else StreamLog() for stream in (STDOUT, STDERR)
    )
    return replace(
        named,
        status=result.status,
        reason_code=report.reason_code,
        fate=HERE,
        worker=report.worker,
        sandbox=None if result.sandbox in {PROCESS, "none"} else result.sandbox,
        started_ms=result.started_ms,
        finished_ms=result.finished_ms,
        unmeasured=frozenset(used.unmeasured) | ({"gpu_ms"} if used.gpu_ms is None else set()),
        stdout=stdout,
        stderr=stderr,
        usage=used,
    )


def _printed(reader: StoreReader, content: Content, report: WorkReport, name: str) -> StreamLog:
    """What one attempt printed to a stream; of an array, what its elements did, one after the other."""
    elements = report.result.elements
    if elements is None:
        return _stored(reader, content, report.result.stdout if name == STDOUT else report.result.stderr)
    logs = []
    for place in sorted(elements.streams):
        own = report.of_element(place)
        if own is not None and own.attempt_id == report.attempt_id:
            logs.append(_printed(reader, content, own, name))
    fate = next((log.fate for log in logs if log.fate != HERE), HERE)
    return StreamLog(b"".join(log.data for log in logs), any(log.truncated for log in logs), fate)


def _stored(reader: StoreReader, content: Content, stream: WorkStream) -> StreamLog:
    if stream.content is None:
        return StreamLog(stream.data, stream.truncated)
    try:
        data = content.get(stream.content)
    except StoreCorrupt:
        return StreamLog(truncated=stream.truncated, fate=DAMAGED)
    if data is None:
        return StreamLog(truncated=stream.truncated, fate=ERASED if reader.is_erased(stream.content) else ABSENT)
    return StreamLog(data, stream.truncated)


def _stream_map(stream: StreamLog) -> dict[str, Any]:
    return {
        "text": stream.data.decode(errors="backslashreplace"),
        "size_bytes": len(stream.data),
        "truncated": stream.truncated,
        "content": stream.fate,
    }


RECORDS_MAX: Final = 100_000
"""Records that one poll looks through for jobs that joined; the next one goes on behind them."""
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


@dataclass(frozen=True, slots=True)
class Seen:
    """How far a follower has come."""

    position: int
    """Of the ledger: jobs that joined before it are known."""
    quiet: int
    failed: bool
    jobs: Mapping[str, tuple[str, int, int, bool, dict[str, int]]]
    """Those that have not been shown whole: state, sequence, attempts shown, whether it runs, offsets by stream."""


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
        seen: Seen | None = None,
    ) -> None:
        """``seen``: how far an earlier follower of the same came; this one goes on behind it."""
        self._reader = reader
        self._content = content
        self._home = home
        self._run_id = run_id
        self._wanted = wanted
        self._jobs = {job_id: _Followed() for job_id in job_ids}
        self._open = dict.fromkeys(self._jobs)
        """Jobs that have not been shown whole, in order."""
        self._arrays: dict[str, bool] = {}
        self._quiet = 0
        self._failed = False
        """Whether a job that is not followed any more did not succeed."""
        if seen is not None:
            self._jobs = {job_id: _Followed(*known) for job_id, known in seen.jobs.items()}
            self._open = dict.fromkeys(self._jobs)
            self._quiet, self._failed, self._position = seen.quiet, seen.failed, seen.position
            known_run = None if run_id is None else reader.run(run_id)
            self._partition = None if known_run is None else known_run.partition
            return
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
        return not self._failed and all(job.state == State.SUCCEEDED for job in self._jobs.values())

    @property
    def seen(self) -> Seen:
        """How far it has come: enough for another follower, in another process, to go on exactly here."""
        left = {
            job_id: (job.state, job.transition_seq, job.shown, job.running, dict(job.offsets))
            for job_id, job in self._jobs.items()
            if job_id in self._open
        }
        ended = (job.state for job_id, job in self._jobs.items() if job_id not in self._open)
        failed = self._failed or any(state != State.SUCCEEDED for state in ended)
        return Seen(self._position, self._quiet, failed, left)

    @property
    def waiting(self) -> bool:
        """Whether nothing runs just now."""
        return not any(self._jobs[job_id].running for job_id in self._open)

    def poll(self, bytes_max: int | None = None) -> list[Piece]:
        """What is new since the last time; with ``bytes_max``, further jobs wait for the next time once there is so much."""
        self._join()
        self._quiet = 0 if self._open else self._quiet + 1
        live = live_jobs(self._home)
        pieces: list[Piece] = []
        for job_id in list(self._open):
            pieces += self._poll_job(job_id, self._jobs[job_id], live.get(job_id))
            if bytes_max is not None and sum(len(piece.data) for piece in pieces) > bytes_max:
                break
        return pieces

    def _poll_job(self, job_id: str, job: _Followed, live: LiveJob | None) -> list[Piece]:
        pieces: list[Piece] = []
        row = self._reader.job(job_id)
        if row is not None and row.transition_seq != job.transition_seq:
            pieces += self._catch_up(job_id, job)
        if job.running and live is not None and not self._is_array(job_id):
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

    def _is_array(self, job_id: str) -> bool:
        """Whether a job is many calls: its worker's files hold what the call at hand has printed, and its report has all."""
        if job_id not in self._arrays:
            row = self._reader.job(job_id)
            order = None if row is None else order_of(self._content, row)
            self._arrays[job_id] = order is not None and bool(order.elements)
        return self._arrays[job_id]

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
        stop = min(self._reader.head(self._partition).next_position, self._position + RECORDS_MAX)
        for record in self._reader.records(self._partition, self._position, stop):
            self._position = record.position + 1
            if record.kind == "submitted" and record.job_id is not None and record.run_id == self._run_id:
                self._add(record.job_id)

    def _add(self, job_id: str) -> None:
        if job_id not in self._jobs and (self._wanted is None or self._wanted(job_id)):
            self._jobs[job_id] = _Followed()
            self._open[job_id] = None
