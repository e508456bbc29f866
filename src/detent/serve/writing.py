"""How handlers have commands decided: requests that come at once share a signature and a commit, and none holds up the HTTP loop.

A handler says how its commands are made. One thread takes everything that waits, makes it, signs all new jobs together, sends each
request to the owner as one of its own, and takes the owner's turn for all of them: one change of threads there and one back, however many
requests there are. What a request keeps and whether it is granted is its own; a commit is shared, never a decision.

What takes long, or waits, does not belong on that thread: `run` has threads for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeVar

from detent.errors import InboxFull, InvalidInput, Refused, StoreUnavailable
from detent.kernel import Command, Kernel, partition_of
from detent.owner.backend import Submission, commands_of
from detent.owner.routing import FIRST
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.scheduling.scheduler import Scheduler
from detent.store.api import AnswerRow

T = TypeVar("T")

GROUP_MAX: Final = 256
"""Requests that share a commit."""
WAITING_MAX: Final = 10_000
"""Requests that may wait for one; one more is refused."""
RUNNERS: Final = 4


@dataclass(slots=True)
class Writing:
    """What one request has decided, all of it in one commit."""

    submissions: Sequence[Submission] = ()
    commands: Sequence[Command] = ()
    """Behind the submissions."""
    content: Sequence[tuple[bytes, bytes]] = ()
    answers: Sequence[AnswerRow] = ()
    """Kept only if everything is granted."""
    atomic: bool = False
    """Whether all submissions are granted, or none."""


class _Waiting(NamedTuple):
    make: Callable[[], Writing]
    answered: asyncio.Future[list[Answer]]


class Writer:
    """The threads that write for the HTTP loop. Its methods are for that loop alone."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._closed = False
        self._runners = ThreadPoolExecutor(RUNNERS, "detent-write")
        self._thread = threading.Thread(target=self._work, name="detent-writer", daemon=True)
        self._thread.start()

    async def write(self, make: Callable[[], Writing]) -> list[Answer]:
        """Have commands decided and wait until that is durable; the answers in the order of submissions, then commands.

        ``make`` is called on the writing thread, together with those of other requests; it may read the ledger and must not wait.
        What it raises is raised here, and nothing of the request was asked then.
        """
        if self._closed:
            raise StoreUnavailable("the server is stopping", hint="repeat the request when it is back")
        if self._inbox.qsize() >= WAITING_MAX:
            raise InboxFull(f"{WAITING_MAX:,} requests are waiting to be written", hint="wait, then repeat the request")
        answered: asyncio.Future[list[Answer]] = self._loop.create_future()
        self._inbox.put(_Waiting(make, answered))
        return await answered

    async def run(self, work: Callable[[], T]) -> T:
        """Do something that writes by itself, or takes long, on a thread for that."""
        return await self._loop.run_in_executor(self._runners, work)

    def close(self) -> None:
        """Finish what waits, and end the threads."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join()
        self._runners.shutdown()

    def _work(self) -> None:
        while (first := self._inbox.get()) is not None:
            group = [first]
            while len(group) < GROUP_MAX and not self._inbox.empty():
                following = self._inbox.get()
                if following is None:
                    self._inbox.put(None)
                    break
                group.append(following)
            told = self._write(group)
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_tell, told)

    def _write(self, group: Sequence[_Waiting]) -> list[tuple[_Waiting, list[Answer] | BaseException]]:
        told: list[tuple[_Waiting, list[Answer] | BaseException]] = []
        made: list[tuple[_Waiting, Writing]] = []
        try:
            self._session.insist_on_writable()  # What a request brings is stored as it is made.
        except BaseException as exc:  # noqa: BLE001 - the handlers that asked get it
            return [(one, exc) for one in group]
        for one in group:
            try:
                made.append((one, one.make()))
            except BaseException as exc:  # noqa: BLE001 - the handler that asked gets it
                told.append((one, exc))
        sent: list[tuple[_Waiting, Callable[[], list[Answer]]]] = []
        try:
            commands_of([submission for _, writing in made for submission in writing.submissions])
        except BaseException as exc:  # noqa: BLE001 - as above
            return [*told, *((one, exc) for one, _ in made)]
        for one, writing in made:
            try:
                sent.append((one, self._send(writing)))
            except BaseException as exc:  # noqa: BLE001 - as above
                told.append((one, exc))
        for one, taken in sent:
            try:
                told.append((one, taken()))
            except BaseException as exc:  # noqa: BLE001 - as above
                told.append((one, exc))
        return told

    def _send(self, writing: Writing) -> Callable[[], list[Answer]]:
        submissions = writing.submissions
        commands: list[Command] = [*commands_of(submissions), *writing.commands]
        if not (commands or writing.answers):
            return list
        partition = None
        if writing.atomic:
            partition = one_partition(submissions, self._session.partitions)
        inline = [piece for submission in submissions for piece in submission.inline]
        return self._session.send(
            writing.commands if writing.atomic else commands,
            partition=partition,
            content=[*inline, *writing.content],
            work=[submission.work for submission in submissions],
            answers=writing.answers,
            judge=partial(all_or_none, submissions) if writing.atomic else None,
        )


def one_partition(submissions: Sequence[Submission], partitions: int) -> int:
    """The partition of all submissions; refuses those of several, which no single commit can decide."""
    found = {partition_of(submission.manifest.job_id, partitions) for submission in submissions}
    if len(found) > 1:
        raise InvalidInput(
            "jobs that sessions of several partitions pay for cannot be submitted all or none",
            hint="send one batch for each session, or leave `atomic` out",
        )
    return next(iter(found), FIRST)


def all_or_none(submissions: Sequence[Submission], kernel: Kernel) -> Sequence[Command] | Refused:
    """Submissions that will all be granted, or why they would not be, found before anything is decided."""
    queue = kernel.queue
    priorities = [submission.manifest.priority for submission in submissions]
    waiting = sum(
        kernel.queued.get(tenant, 0) for tenant in {submission.manifest.tenant_id for submission in submissions}
    )
    refused = queue.refuse_together(priorities, waiting) if isinstance(queue, Scheduler) else None
    return commands_of(submissions) if refused is None else refused


def _tell(told: Sequence[tuple[_Waiting, list[Answer] | BaseException]]) -> None:
    """Answer a group, in the loop. A handler whose caller has gone waits no more."""
    for one, answers in told:
        if one.answered.done():
            continue
        if isinstance(answers, BaseException):
            one.answered.set_exception(answers)
        else:
            one.answered.set_result(answers)
