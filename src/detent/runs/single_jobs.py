"""Single jobs of a process: submitted in batches, awaited one by one. What `detent.Client` stands on.

A submission is answered when it is durable. A full queue makes it wait, for a bounded time (X-187). Every call is work of
its own, unless reuse is asked for (X-190): then equal work that is done already, or under way with the same limits, is not
submitted again, and the ticket is that job's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Final

from detent.canon.late import dataclass
from detent.errors import (
    NO_ROOM,
    InvalidInput,
    StoreUnavailable,
    error_of,
)
from detent.jobs.dedupe import IdempotencyScope
from detent.jobs.elements import SUCCEEDED, element_id, split_element_id
from detent.jobs.order import ElementOrder, Order, Origin
from detent.jobs.work import WorkReport
from detent.kernel import Cancel
from detent.kernel.history import Record
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Submission
from detent.owner.kept_answers import request_digest
from detent.reuse.ingredients import ArrayKeys, is_same_request
from detent.reuse.work_keys import Miss, Options, WorkKey, no_results
from detent.runs.runtime import Runtime
from detent.runs.submit.calls import EACH_TIME, Calls, JobRequest
from detent.runs.submit.requests import KeptRequests, insist_on_kept
from detent.runs.submit.submitter import BATCH, Submitter
from detent.runs.submit.waiters import Flight
from detent.workers.bench import Attempted

LOOK_SECONDS: Final = 1.0
"""How often the ledger is asked for the end of a job when no news comes."""


@dataclass(frozen=True, slots=True)
class ArrayRequest:
    """Some calls of one function to submit as one job."""

    request: JobRequest
    """What they have in common: its call has no arguments."""
    elements: tuple[ElementOrder, ...]


class Ticket:
    """A job that a caller waits for. That of an array may have a report before its end: of the elements that have ended."""

    __slots__ = ("_event", "deduplicated", "digest", "element", "job_id", "report", "state")

    def __init__(self, job_id: str, *, deduplicated: bool = False, element: int | None = None) -> None:
        self.job_id = job_id
        self.element = element
        """Which element of the job is waited for; None: the job itself. State and report are the element's, once it has some."""
        self.deduplicated = deduplicated
        """Whether it is a job that was submitted before."""
        self.state = State.QUEUED.value
        self.digest: bytes | None = None
        self.report: WorkReport | None = None
        self._event: threading.Event | None = None

    @property
    def done(self) -> bool:
        """Whether the job has ended."""
        return self.state in TERMINAL

    @property
    def name(self) -> str:
        """The id of the job, or of the element of it."""
        return element_id(self.job_id, self.element)

    def end(self, state: str, digest: bytes | None, report: WorkReport | None) -> None:
        """The job has ended; how the element did may be otherwise."""
        self.digest, self.report, self.state = digest, report, state
        if self.element is not None and report is not None and report.result.elements is not None:
            self.report = own = report.of_element(self.element)
            if own is not None:
                self.state = (State.SUCCEEDED if own.ok else State.FAILED).value

    def has_settled(self, place: int | None) -> bool:
        """Whether an element of this array has ended for good, though others may be tried again."""
        elements = None if self.report is None or place is None else self.report.result.elements
        return elements is not None and place is not None and elements.codes[place] == SUCCEEDED


class SingleJobs:
    """The tickets of one process. Safe for several threads."""

    def __init__(self, work: Runtime, *, options: Options | None = None) -> None:
        self._work = work
        self._backend = work.backend
        self._calls = Calls(work.backend, work.work_keys, options)
        self._closing = threading.Event()
        self._submitter: Submitter[Ticket] = Submitter(work.backend, work.supervisor, self._closing)
        self._kept = KeptRequests(work.backend, work.idempotency.window_ms)
        self._lock, self._waiters = self._submitter.lock, self._submitter.waiters
        self._news: SimpleQueue[str | None] = SimpleQueue()
        """Jobs that something was done to elsewhere."""
        self._follower: threading.Thread | None = None
        work.listen(self._attempted)
        work.session.observe(self._observe)

    def close(self) -> None:
        """Follow nothing any more; nothing that was submitted is ended by it."""
        with self._lock:  # A commit may be about to start the follower on another thread.
            self._closing.set()
            follower = self._follower
        self._news.put(None)
        if follower is not None:
            follower.join()

    def drain(self, deadline: float | None) -> bool:
        """Wait for the end of all that was submitted here; False when the time is over or the workers are gone first."""
        while own := self.open_jobs():
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._work.supervisor.failure is not None:
                return False
            if not self._submitter.wait_for_own(min(LOOK_SECONDS, left)):  # Nothing depends on being told.
                self._look(own[:BATCH])
        return True

    def open_jobs(self) -> list[str]:
        """Jobs submitted here that have not ended, as far as it is known."""
        with self._lock:
            return sorted(self._waiters.own)

    def submit(
        self,
        requests: Sequence[JobRequest],
        *,
        timeout: float | None = None,
        scope: IdempotencyScope | None = None,
    ) -> list[Ticket]:
        """Submit work and give its tickets, in order; all of it is durable then.

        ``scope`` makes a single submission idempotent: the same again within the window is the same ticket, another body
        under the same key is refused (JOB-029 to JOB-033). Raises `QueueFull` when there was no room
        within ``timeout`` seconds; what was submitted before that stays.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for request in requests:
            self._work.insist_on_place(request.label, request.limits)
            if request.limits.policies:
                self._work.refuse_unknown_policies(request.label, request.limits.policies)
        if scope is not None:
            return [self._submit_once(requests, scope, deadline)]
        tickets: list[Ticket] = []
        for start in range(0, len(requests), BATCH):
            tickets += self._submit_batch(requests[start : start + BATCH], deadline)
        return tickets

    def submit_arrays(self, requests: Sequence[ArrayRequest], *, timeout: float | None = None) -> list[Ticket]:
        """Submit arrays and give their tickets, in order; all of it is durable then. Raises `QueueFull` as `submit` does."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._work.insist_on_place(requests[0].request.label, requests[0].request.limits)
        with self._backend.turn:
            (shared,) = self._calls.work_keys_of([requests[0].request])
            self._calls.look_away()
            keys = None if shared.key is None else ArrayKeys(shared.call, shared.ingredients)
            first = self._backend.new_job_id()
            waiting = [self._array(one, shared, keys, first) for one in requests]
        tickets = [ticket for ticket, _, _ in waiting]
        self._submit_waiting(waiting, deadline)
        return tickets

    def _array(
        self, array: ArrayRequest, shared: WorkKey, keys: ArrayKeys | None, beside: str
    ) -> tuple[Ticket, Submission, WorkKey]:
        """The ticket of an array, and what is submitted for it. Without ``keys`` no earlier or later work is equal to its elements."""
        request, ticket = array.request, Ticket(self._backend.new_job_id(beside))
        origin = Origin(ingredients=shared.ingredients, again=None if shared.key is None else EACH_TIME.why)
        submission = self._backend.submission(
            Order(request.call, request.label, request.limits, origin, array.elements),
            job_id=ticket.job_id,
            job_kind="task",
            priority=request.priority,
            key=None if keys is None else [keys.of(one, no_results) for one in array.elements],
        )
        self._await(ticket, own=True)
        return ticket, submission, WorkKey(None, {}, request.call)

    def wait(self, ticket: Ticket, timeout: float | None = None, place: int | None = None) -> bool:
        """Wait for a job's end, or for that of one element; False when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout

        def has_ended() -> bool:
            return ticket.done or ticket.has_settled(place)

        while not has_ended():
            with self._lock:
                if has_ended():
                    break
                event = ticket._event = ticket._event or threading.Event()  # noqa: SLF001 - its own class's
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            seconds = LOOK_SECONDS if left is None else min(LOOK_SECONDS, left)
            self._submitter.wait(has_ended, event.wait, seconds)
            if not has_ended():  # Nothing depends on being told: now and then the ledger is asked.
                self._look([ticket.job_id])
                self._submitter.check_supervisor()
        return True

    def cancel(self, ticket: Ticket) -> bool:
        """Cancel a job; False when it had ended already. An element is cancelled with its job, and not by itself."""
        if ticket.element is not None and not ticket.done:
            raise InvalidInput(
                f"{ticket.name!r} is an element of job {ticket.job_id}, and a job is cancelled as a whole",
                hint=f"`detent cancel {ticket.job_id}`",
            )
        row = self._backend.reader.job(ticket.job_id)
        if row is not None and row.state in TERMINAL:
            return False
        tenant = self._backend.tenant if row is None else row.tenant_id
        (answer,) = self._submitter.ask([Cancel(0, tenant, ticket.job_id)])
        if answer.refusal is not None:
            return False
        self._look([ticket.job_id])
        return True

    def ticket(self, job_id: str, *, own: bool = False) -> Ticket:
        """A ticket for a job, or an element, that was submitted earlier, by any process; ``own``: by this one, which waits for its end."""
        element = None
        if self._backend.reader.job(job_id) is None:
            job_id, element = self._element(job_id)
        ticket = Ticket(job_id, deduplicated=not own, element=element)
        self._await(ticket, own=own)
        self._look([job_id])
        return ticket

    def _element(self, name: str) -> tuple[str, int]:
        """The job and the place of an element."""
        job_id, place = split_element_id(name) or ("", 0)
        submitted = self._backend.submitted([job_id]).get(job_id) if job_id else None
        if submitted is None or place >= len(submitted.order.elements):
            raise InvalidInput(f"there is no job {name!r}", code="UNKNOWN_JOB")
        return job_id, place

    # -- submitting ----------------------------------------------------------------------------------------------------

    def _submit_batch(self, requests: Sequence[JobRequest], deadline: float | None) -> list[Ticket]:
        tickets: list[Ticket] = []
        waiting: list[tuple[Ticket, Submission, WorkKey]] = []
        try:
            with self._backend.turn:
                self._prepare(requests, tickets, waiting)
        except BaseException:
            for ticket, _, _ in waiting:
                self._forget(ticket)
            raise
        self._submit_waiting(waiting, deadline)
        return tickets

    def _submit_waiting(self, waiting: list[tuple[Ticket, Submission, WorkKey]], deadline: float | None) -> None:
        """Submit what was prepared, as the queue has room for it."""
        try:
            while waiting:
                with self._backend.turn:
                    taken = self._submitter.submit([submission for _, submission, _ in waiting])
                offered, waiting = waiting, []
                for one, is_taken in zip(offered, taken, strict=True):
                    if not is_taken:
                        waiting.append(one)
                    elif one[2].key is not None:
                        with self._lock:
                            self._waiters.announce(one[0].job_id, one[2].flight)
                if waiting:
                    self._submitter.wait_for_room(deadline)
        except BaseException:
            for ticket, _, _ in waiting:
                self._forget(ticket)  # Whether it was submitted or not: its caller never saw it.
            raise

    def _prepare(
        self,
        requests: Sequence[JobRequest],
        tickets: list[Ticket],
        waiting: list[tuple[Ticket, Submission, WorkKey]],
    ) -> None:
        """Find or make the ticket of every request; what has to be submitted is added to ``waiting``."""
        own: dict[Flight, Ticket] = {}
        beside: str | None = None
        try:
            for request, work_key in zip(requests, self._calls.work_keys_of(requests), strict=True):
                known = (own.get(work_key.flight) if request.reuse else None) or self._answered(request, work_key)
                if isinstance(known, Ticket):
                    tickets.append(self._twin(known))
                    continue
                ticket = Ticket(self._backend.new_job_id(beside))
                beside = beside or ticket.job_id
                submission = self._calls.submission(request, work_key, ticket.job_id, known)
                if work_key.key is not None:
                    own[work_key.flight] = ticket
                self._await(ticket, own=True)
                tickets.append(ticket)
                waiting.append((ticket, submission, work_key))
        finally:
            self._calls.look_away()

    def _submit_once(self, requests: Sequence[JobRequest], scope: IdempotencyScope, deadline: float | None) -> Ticket:
        if len(requests) != 1:
            raise InvalidInput("an idempotency key stands for one submission")
        (request,) = requests
        work_key = self._calls.work_key_of(request)
        body = request_digest(self._calls.order(request, work_key))
        named = scope.digest()
        job_of = partial(self._kept.job_of, named, body, lambda order: is_same_request(order, request.call, no_results))
        while True:
            job_id = self._kept.next_job_id(named)
            if (job := job_of()) is not None:
                return self.ticket(job)
            known = self._answered(request, work_key)
            if isinstance(known, Ticket) and known.element is not None:
                known = Miss("an idempotency key stands for a whole job")
            if isinstance(known, Ticket):
                insist_on_kept(self._submitter.answers([], [self._kept.row(named, body, known.job_id)]))
                first = job_of() or known.job_id
                return self._twin(known) if first == known.job_id else self.ticket(first)
            submission = self._calls.submission(request, work_key, job_id, known)
            ticket = Ticket(job_id)
            self._await(ticket, own=True)
            (answer,) = self._submitter.answers([submission], [self._kept.row(named, body, job_id)])
            if answer.refusal is None:
                return ticket
            self._forget(ticket)
            insist_on_kept([answer])
            if answer.refusal.code in NO_ROOM:
                self._submitter.wait_for_room(deadline)
            elif answer.refusal.code != "CONFLICT":  # Else an equal request came first, and left an answer.
                raise error_of(answer.refusal)

    def _answered(self, request: JobRequest, work_key: WorkKey) -> Ticket | Miss:
        """A ticket for a job that does, or did, the same work; else why there is none."""
        if work_key.key is not None and request.reuse:
            with self._lock:
                job_id = self._waiters.under_way.get(work_key.flight)
            if job_id is not None:
                return Ticket(job_id, deduplicated=True)
        found = self._calls.find(request, work_key)
        if isinstance(found, Miss):
            return found
        ticket = Ticket(found.job_id, deduplicated=True, element=found.element)
        if not found.running:
            ticket.end(found.state, found.digest, found.report)
        return ticket

    def _twin(self, known: Ticket) -> Ticket:
        twin = Ticket(known.job_id, deduplicated=True, element=known.element)
        if known.done:
            twin.end(known.state, known.digest, known.report)
        else:
            self._await(twin)
            self._look([twin.job_id])
        return twin

    # -- what happened -------------------------------------------------------------------------------------------------

    def _await(self, ticket: Ticket, *, own: bool = False) -> None:
        with self._lock:
            self._waiters.add(ticket, ticket.job_id, own=own)

    def _forget(self, ticket: Ticket) -> None:
        with self._lock:
            self._waiters.withdraw(ticket, ticket.job_id)

    def _observe(self, records: Sequence[Record]) -> None:
        """Called within commits: what others did to our jobs is looked up on a thread of its own."""
        for record in records:
            if self._submitter.is_news(record):
                self._news.put(record.job_id)
                if self._follower is None:
                    self._start_following()

    def _start_following(self) -> None:
        with self._lock:
            if self._follower is None and not self._closing.is_set():
                follower = threading.Thread(target=self._follow, name="detent-tasks", daemon=True)
                follower.start()
                self._follower = follower

    def _follow(self) -> None:
        with suppress(StoreUnavailable):  # Closed meanwhile: no caller waits any more.
            while (job_id := self._news.get()) is not None:
                self._look([job_id])

    def _look(self, job_ids: Sequence[str]) -> None:
        """Ask the ledger whether jobs have ended."""
        for job_id in job_ids:
            if (ended := self._submitter.look(job_id)) is not None:
                self._attempted([ended])

    def _attempted(self, attempted: Sequence[Attempted]) -> None:
        """Tell those who wait. All tickets are settled before a caller is woken, who would look at the next one otherwise."""
        events: list[threading.Event] = []
        with self._lock:
            for one in attempted:
                is_over = one.state in TERMINAL
                if not is_over and (one.report is None or one.report.result.elements is None):
                    continue
                for ticket in self._waiters.pop(one.job_id) if is_over else self._waiters.of(one.job_id):
                    if is_over:
                        ticket.end(one.state, one.digest, one.report)
                    elif ticket.element is None:
                        ticket.digest, ticket.report = one.digest, one.report
                    if ticket._event is not None:  # noqa: SLF001 - its own class's
                        events.append(ticket._event)  # noqa: SLF001
                        ticket._event = None  # noqa: SLF001 - an array may be told of again
            self._submitter.made_room()
        for event in events:
            event.set()
