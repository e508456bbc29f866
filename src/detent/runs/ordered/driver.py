"""Drives one ordered run: chunks to the kernel, outcomes to `detent.ordered`, commits to the commit lane.

One thread calls `run`. It holds nothing that is not on the ledger: killed at any moment and started again, it reads what was
committed, finds the jobs of the two open windows by their names, and goes on at the first seq that is not committed.

Which chunk, how many, when to stop and what to commit is all decided by `OrderedRun`; here its actions are done and its
events are published. A full queue holds chunks back (X-031), a slow destination holds the windows back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from math import inf
from queue import Empty
from typing import Final

from detent.canon.late import dataclass
from detent.errors import DetentError, error_of
from detent.kernel import EndRun, Record
from detent.kernel import run as run_status
from detent.kernel.history import RUN_ENDED
from detent.kernel.table import TERMINAL
from detent.ordered import (
    Action,
    Boundary,
    Chunk,
    Commit,
    Complete,
    Discard,
    Dispatch,
    Fatal,
    OrderedRun,
    Summary,
    Withdraw,
    WriteAgain,
    resume_after,
)
from detent.ordered.states import OUTCOME_WORDS
from detent.owner.backend import Backend
from detent.runs.ordered.chunk_jobs import ChunkJobs, Open
from detent.runs.ordered.commit_thread import LEAVE_SECONDS, CommitBroken, Committed, CommitThread, Drained, WriteFailed
from detent.runs.ordered.notes import SUMMARY, Notes, Request, Requests, cancel_name
from detent.runs.ordered.pending_results import FAILURES_KEPT_MAX, Waiting
from detent.runs.ordered.recorded import SnapshotFile
from detent.runs.ordered.recovery import FailedItem, Standing, committed, past_failures
from detent.runs.ordered.spec import Items, OrderedInputs
from detent.runs.submit.submitter import ENDED_ELSEWHERE, Events, RunEnded, Submitter
from detent.targets.api import CommitTarget
from detent.workers.bench import Attempted
from detent.workers.home_bench import ends_attempt
from detent.workers.supervisor import Supervisor

WAIT_SECONDS: Final = 0.2
FULL_SECONDS: Final = 0.02
"""How soon a full queue is asked again."""
COMMIT_SECONDS: Final = 0.2
"""Between two commits, as long as there is enough to compute meanwhile."""
LOOK_SECONDS: Final = 1.0
"""How often the ledger is asked about the open chunks and for requests, and the snapshot is written: nothing depends on
being told."""
STOPPED: Final = "stopped"


class DestinationFailed(DetentError):
    """The destination did not take what was computed. The cursor stands where it does, and the run can be resumed."""

    code = "DOWNSTREAM_WRITE_FAILED"


class CommitTimeout(DestinationFailed):
    """The destination took longer over one commit than the limit. The run can be resumed where it is recorded to stand."""

    code = "COMMIT_TIMEOUT"


@dataclass(frozen=True, slots=True)
class _Asked:
    """Another process has written a request."""


@dataclass(slots=True)
class _Cancellation:
    """A requested cancellation, while it is carried out."""

    at: int
    """The seq that was asked for; 0: as early as possible."""
    since: float
    cuts: bool = False
    """Whether the destination is cut off, at this seq or where it stands."""
    draining: bool = False


class OrderedDriver:
    """Drives one ordered run. `cancel` and `stop` may be called from other threads."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        backend: Backend,
        inputs: OrderedInputs,
        items: Items,
        run_id: str,
        target: CommitTarget,
        notes: Notes,
        *,
        supervisor: Supervisor,
        workers: int,
        commit_ms: int | None = None,
    ) -> None:
        """``commit_ms`` is how long the destination may take over one commit."""
        self.backend = backend
        self.inputs = inputs
        self.run_id = run_id
        self.status = run_status.RUNNING
        self.message = ""
        self.summary: Summary | None = None
        self._notes = notes
        self._events: Events[_Event | None] = Events(supervisor)
        self._noted: deque[Record] = deque()
        """Attempts that have begun: nothing is to be done about them, so they wait until there is something else."""
        self._stop = notes.stop
        self._began = time.monotonic()
        self._waiting = Waiting(backend, inputs.config)
        # What it asks for is asked for again also after a stop: it is what leaves the run in order.
        self._submitter: Submitter[Open] = Submitter(backend, supervisor, threading.Event(), run_id=run_id)
        self._jobs = ChunkJobs(
            backend, inputs, items, run_id, submitter=self._submitter, waiting=self._waiting, stop=self._stop
        )
        self._next_look = self._began + LOOK_SECONDS
        self._requests = Requests(backend, run_id)
        self._cancellation: _Cancellation | None = None
        self._cancelled = False
        self._fatal: Fatal | None = None
        self._commit_pending: int | None = None
        self._confirmed = 0.0
        self._busy = 2 * workers
        """Chunks that must be under way before a commit may wait for another."""
        self.ordered = OrderedRun(inputs.config)
        self._commit_thread = CommitThread(backend, inputs.config, run_id, target, notes, self._events.put)
        self._commit_seconds = inf if commit_ms is None else commit_ms / 1000
        self._is_loop = not target.is_recorded
        """Whether the results go to a loop: its pace is its own, and no limit holds for it."""
        self._snapshots = SnapshotFile(backend.home.path, run_id)

    @property
    def failures(self) -> list[FailedItem]:
        """Of the items committed so far, in order; the first thousand."""
        return self._waiting.failures

    # -- for others ----------------------------------------------------------------------------------------------------

    def attempted(self, attempted: Sequence[Attempted]) -> None:
        """Attempts have been closed by a supervisor of this process."""
        for one in attempted:
            self._events.put(one)

    def observe(self, records: Sequence[Record]) -> None:
        """Commits of this home: attempts that begin, and what others do to the run."""
        for record in records:
            if record.kind == RUN_ENDED:
                if record.run_id == self.run_id:
                    self._events.put(record)
            elif self._requests.is_one(record):
                self._events.put(_Asked())
            elif self._jobs.is_news(record):
                (self._events.put if ends_attempt(record) else self._noted.append)(record)

    def cancel(self, reason: str = run_status.CANCELLED, at: int = 0) -> None:
        """Cancel from a boundary on: what is below runs to its end and is committed (X-069)."""
        self._events.put(Request(at, reason))

    def stop(self) -> None:
        """Leave the run as it stands: nothing is cancelled, and it can be resumed."""
        self._stop.set()
        self._events.put(None)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, standing: Standing) -> str:
        """Drive the run to its end and return its status; ``stopped`` when it was left as it stands."""
        patience = LEAVE_SECONDS
        try:
            self._take_up(standing)
            # A boundary that is known beforehand: nothing above it is ever dispatched.
            self._take_requests()
            self._take_waiting()
            self._do(self.ordered.begin())
            while self.summary is None and not self._stop.is_set():
                self._do(self._jobs.submit(self._busy))
                self._take_events()
                self._submitter.check_supervisor()
                if self._fatal is not None:
                    raise self._destination_failed(self._fatal)
                looked = self._look()
                self._mind_destination()
                if looked:  # Now that what it says of a cancellation is in effect.
                    self._snapshots.write(self.ordered.snapshot(), self.backend.now_ms(), self.message)
            patience -= self._commit_thread.write_seconds()
            self.status = STOPPED if self.summary is None else self._end(self.summary)
        except BaseException as exc:
            patience -= self._commit_thread.write_seconds()
            if isinstance(exc, DetentError):
                exc.details.setdefault("snapshot", self.ordered.snapshot().to_map())
            raise
        finally:
            self._commit_thread.close(max(0.0, patience))
            self._leave_snapshot()
        return self.status

    def _take_up(self, standing: Standing) -> None:
        config = self.inputs.config
        if standing.cursor or standing.boundary is not None:
            ended = committed(self.backend, self.run_id, config, standing)
            self.ordered = resume_after(config, ended, boundary=standing.boundary)
            outcomes = self.ordered.ledger.terminal_outcome[: standing.cursor]
            self.failures.extend(islice(past_failures(self.backend, self.run_id, config, outcomes), FAILURES_KEPT_MAX))
        self._jobs.begin(self.ordered, standing.cursor + 2 * config.window_size)
        self._cancelled = standing.boundary is not None
        done = self.ordered.summary()
        counts = {word: getattr(done, word) for word in OUTCOME_WORDS.values()}
        self._commit_thread.open(standing, self.ordered.commits.tree, counts)

    def _take_events(self) -> None:
        run = self.ordered
        try:
            event = self._events.next(self._patience())
        except Empty:
            event = None
        self._do(run.tick(max(run.now_ms, self._now_ms())))
        while self._noted:
            self._do(self._jobs.observed(self._noted.popleft()))
        if event is not None:
            self._take(event)
        self._take_waiting()
        self._confirm_commit()

    def _look(self) -> bool:
        """Now and then, poll what is not announced; returns whether it was time to."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + LOOK_SECONDS
        self._do(self._jobs.look())
        self._take_requests()
        return True

    def _patience(self) -> float:
        """How long to wait for an event: until something is to be done without one."""
        wait = FULL_SECONDS if self._jobs.offers else WAIT_SECONDS
        if self._commit_pending is not None:
            wait = min(wait, self._confirmed + COMMIT_SECONDS - time.monotonic())
        if self.ordered.commits.again_ms is not None:
            wait = min(wait, (self.ordered.commits.again_ms - self._now_ms()) / 1000)
        return max(0.0, wait)

    def _take_waiting(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            if event is not None:
                self._take(event)

    def _take(self, event: _Event) -> None:
        match event:
            case Attempted():
                self._do(self._jobs.attempted(event))
            case Record():
                if event.kind == RUN_ENDED:
                    raise RunEnded(ENDED_ELSEWHERE, details={"run_id": self.run_id})
                self._do(self._jobs.observed(event))
            case Committed():
                self._commit_pending = event.last
            case WriteFailed():
                self._confirm_commit(now=True)
                if not event.error.retryable:
                    raise event.error
                self._do(self.ordered.write_failed(str(event.error)))
            case Drained():
                self._confirm_commit(now=True)
                if self.summary is None:
                    self._lower_boundary()
            case CommitBroken():
                raise event.error
            case Request():
                self._cancel_at(event)
            case _Asked():
                self._take_requests()

    def _take_requests(self) -> None:
        for request in self._requests.take():
            self._cancel_at(request)

    def _now_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)

    # -- a destination that is slow, stuck or failed -------------------------------------------------------------------

    def _cancel_at(self, request: Request) -> None:
        self.message = self.message or request.reason
        known = self._cancellation
        if known is None:
            self._cancellation = _Cancellation(request.at, time.monotonic())
        elif request.at < known.at:
            known.at = request.at
            if known.cuts and not known.draining:
                self._commit_thread.limit(known.at)
        self._do(self.ordered.cancel(request.at))

    def _mind_destination(self) -> None:
        """Hold a destination to its time limit, and a cancelled run to an end in bounded time.

        When every item has ended, or the destination takes too long over what is below the boundary, the run is cut where the
        destination stands (X-193). One that does not even return from a write is left, and the run as it stands.
        """
        asked, waited = self._cancellation, self._commit_thread.write_seconds()
        if self._is_loop and asked is None:
            return
        if asked is None:
            if waited > self._commit_seconds:
                raise self._timed_out()
            return
        spent = time.monotonic() - asked.since
        if not self._is_loop and min(waited, spent) > min(LEAVE_SECONDS, self._commit_seconds):
            self.message = "the destination does not answer; the run is left interrupted"
            self._stop.set()
            return
        if not asked.cuts:
            is_late = min(self._commit_thread.commit_seconds(), spent) > LEAVE_SECONDS and not self._is_loop
            if self.ordered.boundary < self.inputs.config.total and not is_late:
                return
            asked.cuts = True
            self._commit_thread.limit(asked.at)
        if not asked.draining and self.ordered.ledger.next_commit_seq >= asked.at:
            asked.draining = True
            self._commit_thread.drain()

    def _lower_boundary(self) -> None:
        """Cancel everything that is not committed, computed or not, and go on from there as a resumed run would."""
        config, cursor = self.inputs.config, self.ordered.ledger.next_commit_seq
        self._jobs.drop()
        self._waiting.drop()
        self._record_boundary(self._cancellation.at if self._cancellation is not None else 0, cursor, self.message)
        ended = committed(self.backend, self.run_id, config, Standing(cursor, None, cursor))
        self.ordered = resume_after(config, ended, boundary=cursor)
        self._jobs.begin(self.ordered, config.total)
        self._commit_thread.lift()
        self._do(self.ordered.begin())

    def _destination_failed(self, fatal: Fatal) -> DestinationFailed:
        return DestinationFailed(
            f"the destination did not take item {self.ordered.ledger.next_commit_seq}: {fatal.message}",
            hint=f"fix the destination and run the same command again: it resumes at that item; {self._where()}",
            details={"run_id": self.run_id, "snapshot": fatal.snapshot.to_map()},
        )

    def _timed_out(self) -> CommitTimeout:
        self._confirm_commit(now=True)
        seq = self.ordered.ledger.next_commit_seq
        limit_ms = int(self._commit_seconds * 1000)
        return CommitTimeout(
            f"the destination did not return from a commit of item {seq} and those after it within {limit_ms:,} ms",
            hint="fix the destination, or allow more with --commit-timeout, and run the same command again: it resumes at"
            f" that item; {self._where()}",
            details={"run_id": self.run_id, "seq": seq, "limit_ms": limit_ms},
        )

    def _where(self) -> str:
        return f"the snapshot of the run is in {self._snapshots.path}"

    def _leave_snapshot(self) -> None:
        if self.summary is not None and self.status not in {STOPPED, run_status.RUNNING}:
            self._snapshots.remove()
            return
        fault = self.ordered.fault
        told = None if fault is None else fault.details.get("snapshot")
        known = told if isinstance(told, dict) else self.ordered.snapshot()
        self._snapshots.write(known, self.backend.now_ms(), self.message)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _do(self, actions: Iterable[Action]) -> None:
        """Carry out what was decided, each action before the next is asked for."""
        for action in actions:
            match action:
                case Dispatch(first, last):
                    self._jobs.offers.append(Chunk(first, last))
                case Commit():
                    self._commit_thread.hand(self._waiting.handed(action, self.ordered))
                case Withdraw(first, last):
                    self._jobs.withdraw(first, last)
                case Boundary(requested, resolved, reason):
                    self._cut(requested, resolved, reason)
                case Complete(summary):
                    self.summary = summary
                case Fatal():
                    self._fatal = action
                case WriteAgain() | Discard():
                    pass  # The one comes back by itself with the time, the other has changed nothing.

    def _confirm_commit(self, *, now: bool = False) -> None:
        """Tell the run that a commit is recorded, which hands out the next one.

        Each has its note on the ledger, so they wait a moment for one another, unless workers would soon have nothing to do.
        """
        last = self._commit_pending
        if last is None:
            return
        waiting = time.monotonic() - self._confirmed < COMMIT_SECONDS and len(self._jobs.opened) > self._busy
        if now or not waiting or last == self.inputs.config.total - 1:
            self._commit_pending, self._confirmed = None, time.monotonic()
            first = self.ordered.ledger.next_commit_seq
            actions = self.ordered.committed(last)
            self._waiting.release(first, last)
            self._do(actions)

    def _cut(self, requested: int, resolved: int, reason: str) -> None:
        """A requested boundary is recorded before anything follows from it; a failure's follows by itself."""
        if reason == "FAILURE_POLICY":
            return
        self._cancelled = True
        if resolved < self.inputs.config.total:
            self._record_boundary(requested, resolved, self.message or reason)

    def _record_boundary(self, requested: int, resolved: int, reason: str) -> None:
        self._notes.write(cancel_name(resolved), {"boundary": resolved, "requested": requested, "reason": reason})

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _end_note(self, summary: Summary) -> None:
        said = {
            **{word: getattr(summary, word) for word in ("total", *OUTCOME_WORDS.values())},
            "root": summary.root.hex(),
            "digest": summary.digest().hex(),
            "failures": summary.failures,
        }
        self._notes.write(SUMMARY, said)

    def _end(self, summary: Summary) -> str:
        """Record the outcome of the run, then close it."""
        self._end_note(summary)
        if self._cancelled and summary.cancel:
            status = run_status.CANCELLED
        else:
            status = run_status.FAILED if summary.fail or summary.cancel else run_status.COMPLETED
        while True:
            (answer,) = self._submitter.ask([EndRun(0, self.run_id, status)])
            if answer.refusal is None:
                break
            if answer.refusal.code != "RUN_NOT_DONE":
                raise error_of(answer.refusal)
            rows = self.backend.reader.jobs(run_id=self.run_id)
            self._submitter.cancel([row.job_id for row in rows if row.state not in TERMINAL])
        return status


_Event = Attempted | Record | Committed | WriteFailed | Drained | CommitBroken | Request | _Asked
