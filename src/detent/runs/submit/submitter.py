"""One way to submit jobs and to learn how they end: for runs of contracts, chunks of ordered maps and single jobs.

Submissions are decided in batches, and what the supervisor of this process has workers for is leased in the same commit
(`workers.claim_ahead`). A full queue takes as many as it has room for: a run offers the others again when something has ended,
a client waits for room.

An end is heard of in three ways: the supervisor of this process tells of its own attempts, commits tell of all others, and when neither
comes, the ledger is asked. Nothing depends on being told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from detent.errors import NO_ROOM, QueueFull, RequestRefused, error_of
from detent.kernel import Cancel, Command
from detent.kernel.history import Record
from detent.kernel.run import CANCELLED_WITH_RUN
from detent.kernel.table import TERMINAL
from detent.owner.backend import Backend, Submission
from detent.owner.session import ask_again
from detent.owner.socket_messages import Answer
from detent.runs.submit.waiters import W, Waiters
from detent.store.api import AnswerRow
from detent.workers.bench import Attempted
from detent.workers.home_bench import ends_attempt
from detent.workers.supervisor import Supervisor

BATCH: Final = 200
"""Jobs submitted, cancelled or looked up at once; below what one class of the queue holds by default."""
ROOM_SECONDS: Final = 0.05
"""How often a submission that waits for room tries again when it is not told of any."""
ENDED_ELSEWHERE: Final = "the run was ended from elsewhere"


E = TypeVar("E")


class Events(Generic[E]):
    """What a driver has to take note of, from any thread. While it waits for the next, it takes the supervisor's steps."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._queue: SimpleQueue[E] = SimpleQueue()

    def put(self, event: E) -> None:
        """Add an event; from any thread."""
        self._queue.put(event)
        self._supervisor.nudge()

    def next(self, seconds: float) -> E:
        """The next event, waited for at most so long. Raises `Empty`."""
        slept: list[E] = []

        def sleep(seconds: float) -> None:
            with suppress(Empty):
                slept.append(self._queue.get(timeout=seconds))

        self._supervisor.wait(lambda: not self._queue.empty(), sleep, seconds)
        return slept[0] if slept else self.get_nowait()

    def get_nowait(self) -> E:
        """The next event that is there. Raises `Empty`."""
        return self._queue.get_nowait()


class RunEnded(RequestRefused):
    """The run that a job was submitted for has ended: another process ended it."""


class Submitter(Generic[W]):
    """Submits the jobs of one run, or of one client, and knows what waits for them."""

    def __init__(
        self,
        backend: Backend,
        supervisor: Supervisor,
        stop: threading.Event,
        *,
        run_id: str | None = None,
        start: Callable[[], None] = lambda: None,
    ) -> None:
        self.waiters: Waiters[W] = Waiters()
        self.lock = threading.Lock()
        """Held by those who share the waiters with other threads."""
        self._room = threading.Condition(self.lock)
        self._ends = 0
        """How often jobs have ended."""
        self._backend = backend
        self._supervisor = supervisor
        self._stop = stop
        self._run_id = run_id
        self.start = start
        """Starts the workers of this process, unless they are at work: before the first job is submitted or waited for."""

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, commands: Sequence[Command], content: Sequence[tuple[bytes, bytes]] = ()) -> list[Answer]:
        """Have commands decided. What may or may not have been done is asked for again, which is safe (X-173)."""
        ask = partial(self._backend.session.ask, commands, content=content)
        return ask_again(self._backend.session, ask, self._stop)

    def cancel(self, job_ids: Sequence[str], reason_code: str = CANCELLED_WITH_RUN) -> None:
        """Cancel jobs; those that have ended meanwhile stay as they ended."""
        for start in range(0, len(job_ids), BATCH):
            some = job_ids[start : start + BATCH]
            self.ask([Cancel(0, self._backend.tenant, job_id, reason_code) for job_id in some])

    def answers(self, submissions: Sequence[Submission], kept: Sequence[AnswerRow] = ()) -> Sequence[Answer]:
        """Have submissions decided; ``kept`` are remembered in the same commit, by their idempotency keys."""
        return self._supervisor.submit(submissions, self._stop, answers=kept)

    def submit(self, submissions: Sequence[Submission], *, repeated: bool = False) -> list[bool]:
        """Submit jobs; which of them are durable now: the queue had no room for the others (X-031).

        When some may have been submitted before, they are ``repeated`` and count as taken. Raises `RunEnded`.
        """
        self.start()
        taken = []
        for answer in self.answers(submissions):
            refusal = answer.refusal
            if refusal is not None and refusal.code == "UNKNOWN_RUN":
                raise RunEnded(ENDED_ELSEWHERE, details={"run_id": self._run_id})
            if refusal is not None and refusal.code not in NO_ROOM and not (repeated and refusal.code == "CONFLICT"):
                raise error_of(refusal)
            taken.append(refusal is None or refusal.code not in NO_ROOM)
        return taken

    def wait_for_room(self, deadline: float | None) -> None:
        """Wait until the queue may have room again. Raises `QueueFull` after the deadline."""
        self.check_supervisor()  # Without workers no more room will be made.
        left = ROOM_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise QueueFull("the queue had no room in time", hint="wait for results, then submit again")
        ends = self._ends
        self._wait(lambda: self._ends != ends, min(ROOM_SECONDS, left))

    def wait_for_own(self, seconds: float) -> bool:
        """Wait until all jobs that were submitted here have ended; False when the time is over first."""
        self._wait(lambda: not self.waiters.own, seconds)
        return not self.waiters.own

    def made_room(self) -> None:
        """Wake those who wait for room, or for the end of jobs; the caller holds the lock."""
        self._ends += 1
        self._room.notify_all()
        self._supervisor.nudge()

    def wait(self, is_done: Callable[[], bool], sleep: Callable[[float], object], seconds: float) -> None:
        """Wait until something is so, or for so many seconds; see `Supervisor.wait`. The thread that makes it so calls `made_room`."""
        self._supervisor.wait(is_done, sleep, seconds)

    def _wait(self, is_done: Callable[[], bool], seconds: float) -> None:
        """The same for what is said by `made_room`."""

        def sleep(seconds: float) -> None:
            with self._room:
                self._room.wait_for(is_done, seconds)

        self.wait(is_done, sleep, seconds)

    # -- hearing -------------------------------------------------------------------------------------------------------

    def check_supervisor(self) -> None:
        """Raise what the supervisor of this process ended by, if it has."""
        if (failure := self._supervisor.failure) is not None:
            raise failure

    def is_untold(self, record: Record) -> bool:
        """Whether a record is about an attempt whose end the supervisor of this process will not tell."""
        return not ends_attempt(record) or not self._supervisor.holds(record.job_id or "")

    def is_news(self, record: Record) -> bool:
        """Whether a record may be the end of an attempt at a job that is waited for, and is not told otherwise."""
        return record.job_id in self.waiters and ends_attempt(record) and self.is_untold(record)

    def look(self, job_id: str) -> Attempted | None:
        """Ask the ledger whether a job has ended, and how."""
        row = self._backend.reader.job(job_id)
        if row is None or row.state not in TERMINAL:
            return None
        digest, report = self._backend.report_of(job_id) or (None, None)
        return Attempted(job_id, row.state, digest, report)

    def poll(self) -> Iterator[Attempted]:
        """Ask the ledger about some of the jobs that are waited for, others each time; those that have ended."""
        for job_id in self.waiters.some(BATCH):
            if (ended := self.look(job_id)) is not None:
                yield ended
