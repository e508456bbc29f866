"""Drives one ordered run: chunks to the kernel, outcomes to `detent.ordered`, commits to the commit lane.

One thread calls `run`. It holds nothing that is not on the ledger: killed at any moment and started again, it reads what was
committed, finds the jobs of the two open windows by their names, and goes on at the first seq that is not committed.

Which chunk, how many, when to stop and what to commit is all decided by `OrderedRun`; here its actions are done and its
events are told. A full queue holds chunks back (X-031), a slow destination holds the windows back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Final

from detent.canon import decode
from detent.engine.commit_targets.api import CommitTarget
from detent.engine.crew import Attempted, Crew, ends_attempt
from detent.engine.desk import Desk, Submission, joined
from detent.engine.ordered_runtime.chunk_order import chunk_submission
from detent.engine.ordered_runtime.chunk_result import read_head
from detent.engine.ordered_runtime.commit_thread import (
    Committed,
    CommitThread,
    Handed,
    Held,
    LaneBroken,
    WriteFailed,
    chunks_between,
)
from detent.engine.ordered_runtime.notes import SUMMARY, Notes, cancel_name
from detent.engine.ordered_runtime.recall import (
    Failure,
    Standing,
    committed,
    envelopes,
    failure_code,
    failures_of,
    past_failures,
)
from detent.engine.ordered_runtime.spec import FULL, TERMINAL, OrderedInputs
from detent.engine.ordered_runtime.spool import Items
from detent.engine.patience import ask_again
from detent.engine.wire import Answer
from detent.errors import DetentError, InvalidInput, Refused
from detent.jobs.work import WorkReport
from detent.kernel import Cancel, Command, EndRun, Job, Record
from detent.kernel.records import RUN_ENDED
from detent.ordered import (
    Action,
    Boundary,
    Chunk,
    Commit,
    Complete,
    Discard,
    Dispatch,
    Envelope,
    Fatal,
    OrderedRun,
    SeqState,
    Summary,
    Withdraw,
    WriteAgain,
    chunk_job_id,
    resume_after,
)
from detent.ordered.states import OUTCOME_WORDS

SUBMIT_MAX: Final = 64
"""Chunks submitted in one commit."""
WAIT_SECONDS: Final = 0.2
COMMIT_SECONDS: Final = 0.1
"""Between two commits, as long as there is enough to compute meanwhile."""
LOOK_SECONDS: Final = 1.0
"""How often the ledger is asked about the open chunks: nothing depends on being told."""
LOOK_MAX: Final = 64
ENDED_ELSEWHERE: Final = "the run was ended from elsewhere"
FAILURES_KEPT_MAX: Final = 1000


class DestinationFailed(DetentError):
    """The destination did not take what was computed. The cursor stands where it does, and the run can be resumed."""

    code = "DOWNSTREAM_WRITE_FAILED"


@dataclass(slots=True)
class Open:
    """A chunk whose job the kernel has."""

    chunk: Chunk
    job_id: str
    attempt: int = 0
    started: bool = False


@dataclass(frozen=True, slots=True)
class _CancelAt:
    requested: int
    reason: str


class OrderedDriver:
    """Drives one ordered run. `cancel` and `stop` may be called from other threads."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        desk: Desk,
        inputs: OrderedInputs,
        items: Items,
        run_id: str,
        target: CommitTarget,
        notes: Notes,
        *,
        crew: Crew,
        workers: int,
    ) -> None:
        self.desk = desk
        self.inputs = inputs
        self.run_id = run_id
        self.status = "running"
        self.message = ""
        self.summary: Summary | None = None
        self.failures: list[Failure] = []
        """Of the items committed so far, in order; the first thousand."""
        self._items = items
        self._notes = notes
        self._crew = crew
        self._partition = desk.session.partition(run_id)
        self._events: SimpleQueue[Attempted | Record | Committed | WriteFailed | LaneBroken | _CancelAt | None] = (
            SimpleQueue()
        )
        self._stop = notes.stop
        self._began = time.monotonic()
        self._offers: deque[Chunk] = deque()
        self._opened: dict[str, Open] = {}
        self._held: dict[int, Held] = {}
        """Values of ended chunks that are not committed, by the chunk's first seq."""
        self._told: dict[int, Failure] = {}
        self._known_below = 0
        """Chunks below this may have a job already: the run was taken up again."""
        self._next_look = self._began + LOOK_SECONDS
        self._cancelled = False
        self._fatal: Fatal | None = None
        self._commit_pending: int | None = None
        self._confirmed = 0.0
        self._busy = 2 * workers
        """Chunks that must be under way before a commit may wait for another."""
        self.ordered = OrderedRun(inputs.config)
        self._lane = CommitThread(desk, inputs.config, run_id, target, notes, self._events.put)

    # -- for others ----------------------------------------------------------------------------------------------------

    def attempted(self, attempted: Attempted) -> None:
        """An attempt has been closed by a crew of this process."""
        self._events.put(attempted)

    def observe(self, records: Sequence[Record]) -> None:
        """Commits of this home: attempts that begin, and what others do to the run."""
        for record in records:
            if (record.kind == RUN_ENDED and record.run_id == self.run_id) or (
                record.kind == "transition" and record.job_id in self._opened and self._is_news(record)
            ):
                self._events.put(record)

    def _is_news(self, record: Record) -> bool:
        """Whether our own crew will not tell of it: it tells of the ends of the attempts that it holds."""
        return not ends_attempt(record) or not self._crew.holds(record.job_id or "")

    def cancel(self, reason: str = "cancelled", at: int = 0) -> None:
        """Cancel from a boundary on: what is below runs to its end and is committed (X-069)."""
        self._events.put(_CancelAt(at, reason))

    def stop(self) -> None:
        """Leave the run as it stands: nothing is cancelled, and it can be resumed."""
        self._stop.set()
        self._events.put(None)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self, standing: Standing) -> str:
        """Drive the run to its end and return its status; ``stopped`` when it was left as it stands."""
        try:
            self._take_up(standing)
            self._take_waiting()  # A boundary that is known beforehand: nothing above it is ever dispatched.
            self._do(self.ordered.begin())
            while self.summary is None:
                self._submit()
                if self._stop.is_set():
                    self.status = "stopped"
                    return self.status
                self._take_events()
                if (failure := self._crew.failure) is not None:
                    raise failure
                if self._fatal is not None:
                    raise DestinationFailed(
                        f"the destination did not take item {self.ordered.ledger.next_commit_seq}: {self._fatal.message}",
                        hint="mend the destination and give the same command again: it goes on at that item",
                        details={"run_id": self.run_id, "snapshot": self._fatal.snapshot.to_map()},
                    )
            return self._end(self.summary)
        finally:
            self._lane.close()

    def _take_up(self, standing: Standing) -> None:
        config = self.inputs.config
        if standing.cursor or standing.boundary is not None:
            ended = committed(self.desk, self.run_id, config, standing)
            self.ordered = resume_after(config, ended, boundary=standing.boundary)
            outcomes = self.ordered.ledger.terminal_outcome[: standing.cursor]
            self.failures += islice(past_failures(self.desk, self.run_id, config, outcomes), FAILURES_KEPT_MAX)
        self._known_below = standing.cursor + 2 * config.window_size
        self._cancelled = standing.boundary is not None
        done = self.ordered.summary()
        counts = {word: getattr(done, word) for word in OUTCOME_WORDS.values()}
        self._lane.open(standing, self.ordered.commits.tree, counts)

    def _take_events(self) -> None:
        run = self.ordered
        wait = WAIT_SECONDS if not self._offers and self._commit_pending is None else 0.02
        if run.commits.again_ms is not None:
            wait = max(0.0, min(wait, (run.commits.again_ms - self._now_ms()) / 1000))
        try:
            event = self._events.get(timeout=wait)
        except Empty:
            event = None
        self._do(run.tick(max(run.now_ms, self._now_ms())))
        if event is not None:
            self._take(event)
        self._take_waiting()
        self._confirm_commit()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            for opened in list(self._opened.values())[:LOOK_MAX]:
                self._look(opened)

    def _take_waiting(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            if event is not None:
                self._take(event)

    def _take(self, event: Attempted | Record | Committed | WriteFailed | LaneBroken | _CancelAt) -> None:
        run = self.ordered
        if isinstance(event, Attempted):
            if (opened := self._opened.get(event.job_id)) is not None:
                self._attempted(opened, event)
        elif isinstance(event, Record):
            self._observed(event)
        elif isinstance(event, Committed):
            self._commit_pending = event.last
        elif isinstance(event, WriteFailed):
            self._confirm_commit(now=True)
            if not event.error.retryable:
                raise event.error
            self._do(run.write_failed(str(event.error)))
        elif isinstance(event, LaneBroken):
            raise event.error
        else:
            self.message = self.message or event.reason
            self._do(run.cancel(event.requested))

    def _now_ms(self) -> int:
        return int((time.monotonic() - self._began) * 1000)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Dispatch(first, last):
                    self._offers.append(Chunk(first, last))
                case Commit():
                    self._hand(action)
                case Withdraw(first, last):
                    self._withdraw(first, last)
                case Boundary(requested, resolved, reason):
                    self._cut(requested, resolved, reason)
                case Complete(summary):
                    self.summary = summary
                case Fatal():
                    self._fatal = action
                case WriteAgain() | Discard():
                    pass  # The one comes back by itself with the time, the other has changed nothing.

    def _hand(self, commit: Commit) -> None:
        """Give a run of seqs to the commit lane, with the values that are held for it."""
        outcomes: list[SeqState] = []
        digests: list[bytes | None] = []
        held: list[Held] = []
        for chunk in chunks_between(self.inputs.config, commit.first, commit.last):
            start, end = max(chunk.first, commit.first), min(chunk.last, commit.last) + 1
            known = self._held.get(chunk.first)
            if known is not None and not self._is_cut(start, end):
                held.append(known)
                outcomes += known.result.outcomes[start - chunk.first : end - chunk.first]
                digests += known.result.digests[start - chunk.first : end - chunk.first]
                continue
            for seq in range(start, end):
                envelope = self.ordered.envelope(seq)
                assert envelope is not None
                outcomes.append(envelope.outcome)
                digests.append(envelope.payload_digest)
            held += () if known is None else (known,)
        self._lane.hand(Handed(commit.first, commit.batches, outcomes, digests, held))

    def _is_cut(self, start: int, end: int) -> bool:
        """Whether a cancellation has taken some of these seqs from their chunk."""
        return self.ordered.boundary < end and self.ordered.boundary >= start

    def _confirm_commit(self, *, now: bool = False) -> None:
        """Tell the run that a commit is recorded, which hands out the next one.

        Each has its note on the ledger, so they wait a moment for one another, unless workers would soon have nothing to do.
        """
        last = self._commit_pending
        if last is None:
            return
        waiting = time.monotonic() - self._confirmed < COMMIT_SECONDS and len(self._opened) > self._busy
        if now or not waiting or last == self.inputs.config.total - 1:
            self._commit_pending, self._confirmed = None, time.monotonic()
            self._committed(last)

    def _committed(self, last: int) -> None:
        run = self.ordered
        first = run.ledger.next_commit_seq
        actions = run.committed(last)
        for chunk in chunks_between(self.inputs.config, first, last):
            if chunk.last <= last and (held := self._held.pop(chunk.first, None)) is not None:
                self.desk.forget(held.digest)
                if held.content is not None:
                    self.desk.forget(held.content)
        for seq in range(first, last + 1) if self._told else ():
            if (failure := self._told.pop(seq, None)) is not None and len(self.failures) < FAILURES_KEPT_MAX:
                self.failures.append(failure)
        self._do(actions)

    def _cut(self, requested: int, resolved: int, reason: str) -> None:
        """A boundary that somebody asked for is recorded before anything follows from it; a failure's follows by itself."""
        if reason == "FAILURE_POLICY":
            return
        self._cancelled = True
        if resolved < self.inputs.config.total:
            said = {"boundary": resolved, "requested": requested, "reason": self.message or reason}
            self._notes.write(cancel_name(resolved), said)

    def _withdraw(self, first: int, last: int) -> None:
        jobs = [
            chunk_job_id(self.run_id, *chunk)
            for chunk in chunks_between(self.inputs.config, first, last)
            if chunk.first >= first and chunk_job_id(self.run_id, *chunk) in self._opened
        ]
        for job_id in jobs:
            del self._opened[job_id]
        if jobs:
            self._ask([Cancel(0, self.desk.tenant, job_id, "WORKFLOW_CANCELLED") for job_id in jobs], ())

    # -- chunks to the kernel ------------------------------------------------------------------------------------------

    def _submit(self) -> None:
        """Submit what was offered, in order, as far as the queue has room."""
        run = self.ordered
        while self._offers and not self._stop.is_set():
            batch: list[tuple[Chunk, Submission | None]] = []
            for chunk in list(self._offers)[:SUBMIT_MAX]:
                new = bool(run.open_seqs(*chunk)) and not self._exists(chunk)
                batch.append(
                    (
                        chunk,
                        chunk_submission(self.desk, self.inputs, self._items, self.run_id, self._within(chunk))
                        if new
                        else None,
                    )
                )
            submitted = [(chunk, submission) for chunk, submission in batch if submission is not None]
            refused = self._offer([(chunk, submission) for chunk, submission in submitted]) if submitted else set()
            for chunk, submission in batch:
                if chunk.first in refused:
                    return  # Offers are confirmed in order: what comes behind is repeated, which is the same answer.
                self._offers.popleft()
                self._confirm(chunk, is_new=submission is not None)

    def _exists(self, chunk: Chunk) -> bool:
        return chunk.first < self._known_below and self.desk.reader.job(chunk_job_id(self.run_id, *chunk)) is not None

    def _offer(self, submitted: Sequence[tuple[Chunk, Submission]]) -> set[int]:
        answers = self._ask(
            [submission.command for _, submission in submitted],
            joined(submission.inline for _, submission in submitted),
        )
        refused = set()
        for (chunk, _), answer in zip(submitted, answers, strict=True):
            if answer.refusal is None or answer.refusal.code == "CONFLICT":
                continue  # The second: it was submitted a moment ago, and refused was one before it.
            if answer.refusal.code in FULL:
                refused.add(chunk.first)
            elif answer.refusal.code == "UNKNOWN_RUN":
                raise InvalidInput(ENDED_ELSEWHERE, code="CONFLICT", details={"run_id": self.run_id})
            else:
                raise _refused(answer.refusal)
        self._crew.wake()
        return refused

    def _confirm(self, chunk: Chunk, *, is_new: bool) -> None:
        run = self.ordered
        opened = Open(chunk, chunk_job_id(self.run_id, *chunk)) if run.open_seqs(*chunk) else None
        if opened is not None:
            self._opened[opened.job_id] = opened
        self._do(run.dispatched(*chunk))
        if opened is not None and not is_new:
            self._look(opened)

    def _within(self, chunk: Chunk) -> tuple[Chunk, int]:
        """A chunk, and the last seq of it that is to be computed: nothing at or above a boundary is (X-069)."""
        return chunk, min(chunk.last, self.ordered.boundary - 1)

    # -- what became of them -------------------------------------------------------------------------------------------

    def _attempted(self, opened: Open, event: Attempted) -> None:
        attempt = opened.attempt if event.report is None else event.report.attempt_id
        if event.state in TERMINAL:
            self._ended(opened, event.state, attempt, event.digest, event.report)
        elif event.state == "RETRYING":
            self._reach(opened, attempt + 1, interrupted=event.report is None)

    def _observed(self, record: Record) -> None:
        if record.kind == RUN_ENDED:
            raise InvalidInput(ENDED_ELSEWHERE, code="CONFLICT", details={"run_id": self.run_id})
        body, opened = decode(record.body), self._opened.get(record.job_id or "")
        if opened is None or not isinstance(body, dict):
            return
        if body["to_state"] == "RUNNING":
            self._reach(opened, body["attempt_id"], interrupted=True)
            if body["attempt_id"] == opened.attempt:
                self._start(opened)
        elif body["to_state"] in TERMINAL:
            self._look(opened)

    def _look(self, opened: Open) -> None:
        """Ask the ledger where a chunk's job stands."""
        row = self.desk.reader.job(opened.job_id)
        if row is None:
            return
        job = Job.decode(row.body)
        if row.state in TERMINAL:
            found = self.desk.report_of(opened.job_id, job) or (None, None)
            attempt = job.attempt_id if found[1] is None else found[1].attempt_id
            self._ended(opened, row.state, attempt, *found)
        elif row.state != "RETRYING":
            self._reach(opened, job.attempt_id, interrupted=True)
            if row.state == "RUNNING":
                self._start(opened)

    def _start(self, opened: Open) -> None:
        if not opened.started:
            opened.started = True
            self._do(self.ordered.started(*opened.chunk, opened.attempt, opened.job_id))

    def _reach(self, opened: Open, attempt: int, *, interrupted: bool) -> None:
        """Bring a chunk to the attempt that the kernel has it at; what lies between was lost on the way."""
        while opened.attempt < attempt:
            self._start(opened)
            code = "INTERRUPTED" if interrupted else "ATTEMPT_FAILED"
            self._do(self.ordered.lapsed(*opened.chunk, opened.attempt, code, interrupted=interrupted))
            opened.attempt, opened.started = opened.attempt + 1, False

    def _ended(self, opened: Open, state: str, attempt: int, digest: bytes | None, report: WorkReport | None) -> None:
        if self._opened.pop(opened.job_id, None) is None:
            return
        run, chunk = self.ordered, opened.chunk
        if state == "CANCELED":
            self._do(run.canceled(*chunk))
            return
        self._reach(opened, attempt, interrupted=True)
        self._start(opened)
        ended = self._envelopes(opened, state, digest, report)
        seqs = run.open_seqs(*chunk)
        if seqs:
            some = ended[seqs[0] - chunk.first : seqs[-1] - chunk.first + 1]
            self._do(run.finished_many(seqs[0], opened.attempt, some))

    def _envelopes(self, opened: Open, state: str, digest: bytes | None, report: WorkReport | None) -> list[Envelope]:
        """How each item of an ended chunk ended. Of a chunk that failed as a whole, all items failed."""
        chunk = opened.chunk
        count = chunk.last - chunk.first + 1
        data = None
        if state == "SUCCEEDED" and report is not None and digest is not None:
            data = self.desk.value_bytes(report)
        result = None if data is None else read_head(data)
        if result is not None and (len(result.outcomes) > count or result.first != chunk.first):
            raise InvalidInput(f"job {opened.job_id!r} answers for other items than it was given")
        for failure in failures_of(chunk, opened.job_id, result, report):
            self._told[failure.seq] = failure
        if data is None or digest is None or result is None:
            return [Envelope(SeqState.TERMINAL_FAIL, code=failure_code(report))] * count
        size = len(data) // count
        keep = size <= self.inputs.config.payload_bytes_max
        self._held[chunk.first] = Held(
            result, data if keep else None, digest, None if report is None else report.value_content
        )
        return envelopes(result, size if keep else 0)

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
        """Record what the run came to, then close it."""
        self._end_note(summary)
        if self._cancelled and summary.cancel:
            status = "cancelled"
        else:
            status = "failed" if summary.fail or summary.cancel else "completed"
        while True:
            (answer,) = self._ask([EndRun(0, self.run_id, status)], ())
            if answer.refusal is None:
                break
            if answer.refusal.code != "RUN_NOT_DONE":
                raise _refused(answer.refusal)
            rows = self.desk.reader.jobs(run_id=self.run_id)
            left = [row.job_id for row in rows if row.state not in TERMINAL]
            self._ask([Cancel(0, self.desk.tenant, job_id, "WORKFLOW_CANCELLED") for job_id in left], ())
        self.status = status
        return status

    def _ask(self, commands: Sequence[Command], content: Sequence[tuple[bytes, bytes]]) -> list[Answer]:
        ask = partial(self.desk.session.ask, commands, partition=self._partition, content=content)
        return ask_again(ask, threading.Event())


def _refused(refusal: Refused) -> DetentError:
    return InvalidInput(refusal.message, code=refusal.code, details=dict(refusal.details))
