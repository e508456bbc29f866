"""A run on its way: what is offered, submitted and waited for, and what the end of each job means for the rest.

`graph` knows which steps may begin. `candidates` reads what is known about an element whose turn it is, and `next_work` decides what
is done about it, which is carried out here. `orders` makes jobs of elements, `submit.waiters` knows what waits for which job.

It belongs to the thread that drives the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Final

from detent.errors import error_of
from detent.jobs.elements import element_id
from detent.jobs.work import WorkReport
from detent.kernel import Command, Job
from detent.kernel import run as run_status
from detent.kernel.run import CANCELLED_WITH_RUN
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend, Submission
from detent.reuse.work_keys import Found, Options, WorkKeys
from detent.runs.record.inputs import RunIdentity, RunInputs, digests_of
from detent.runs.record.requests import RUN_TIMEOUT, Requests, out_of_time
from detent.runs.record.resumed import GONE, Past
from detent.runs.record.step_run import Element
from detent.runs.steps.candidates import Candidates
from detent.runs.steps.chunks import WAITING_MAX, Chunk, Chunks, may_share
from detent.runs.steps.graph import RunGraph
from detent.runs.steps.next_work import (
    Adopt,
    Candidate,
    Decision,
    Drop,
    Fail,
    Join,
    Offer,
    Reuse,
    Submit,
    Supersede,
    after_join,
    may_begin,
    next_work,
    resumed,
    room,
)
from detent.runs.steps.orders import Orders
from detent.runs.steps.plan import steps_of
from detent.runs.steps.reuse_notes import ReuseNotes
from detent.runs.submit.submitter import BATCH, ENDED_ELSEWHERE, RunEnded, Submitter
from detent.words.states import CANCELLED, FAILED, REUSED, RUNNING, SUCCEEDED, WAITING
from detent.workers.next_attempt import next_attempt, unreported, why_failed

RUN_CANCELLED: Final = "the run was cancelled"


class RunProgress:
    """Where one run stands, and what is done about it."""

    def __init__(
        self,
        backend: Backend,
        inputs: RunInputs,
        identity: RunIdentity,
        work_keys: WorkKeys,
        options: Options,
        submitter: Submitter[Candidate],
    ) -> None:
        self._backend = backend
        self._inputs = inputs
        self._identity = identity
        self._work_keys = work_keys
        self._options = options
        self._submitter = submitter
        self.waiters = submitter.waiters
        """The elements that wait for jobs."""
        self._requests = Requests(backend, identity, submitter)
        self.steps = steps_of(inputs, identity, backend.partitions)
        self.orders = Orders(backend, inputs, identity.run_id, work_keys, self.steps, options.salt)
        self._graph = RunGraph(inputs, identity, self.steps, self.orders.items, backend.now_ms)
        self._past = Past(backend, work_keys)
        self._notes = ReuseNotes(backend, identity, digests_of(inputs.contract)[0], self.orders.about_reuse)
        self._chunks = Chunks(options.workers)
        self._candidates = Candidates(self.orders, work_keys, self._past, options)
        self.started_ms = backend.now_ms()
        """When the run began, which for one that is taken up was in another process."""
        self.message = ""
        """Why nothing begins any more, when that is so."""
        self.reasons: dict[str, str] = {}
        """Why an element ran although its label had run before, by job id."""
        self.superseded: str | None = None
        """Why a run that was to be taken up cannot be: its code or its inputs have changed since."""
        self._timeout_ms = inputs.contract.outline.timeout_ms
        self._cancelled = self._is_late = self._begun = False

    def begin(self, behind: Sequence[Command] = ()) -> None:
        """Open the run, or take it up where it was left; it is durable then. Once more does nothing.

        ``behind`` are decided in the commit that opens it.
        """
        if self._begun:
            return
        if self._identity.resumed:
            self._past.recall(self._identity.run_id)
            self.started_ms = self._past.started_ms or self.started_ms
            self._graph.begun = self._past.begun(self.steps)
        else:
            self._requests.begin(self._inputs, behind)
        self._graph.open_all()
        self._begun = True

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way and nothing could begin."""
        return not self.waiters and not self._graph.has_more

    # -- what comes next -----------------------------------------------------------------------------------------------

    def offer(self) -> None:
        """Submit what is ready, as far as there is room, and take earlier results where there are some."""
        graph = self._graph
        while not graph.ending:
            graph.close_empty()
            chunks = self._next_chunks()
            if graph.ending:
                for decision in chain(*chunks):
                    self.waiters.withdraw(decision.candidate, decision.candidate.element.job_id)
                    graph.drop(decision.candidate.element)
                self._leave_foreign()
            elif chunks:
                if not self._submit(chunks) or not self._room():
                    break
            elif not graph.has_empty:
                break
        self._candidates.forget()
        self._record_reuses()

    def take_past(self) -> None:
        """Put all that an earlier process began of this run where the ledger says it is; begin nothing else."""
        graph, unbegun = self._graph, []
        while graph.has_more:
            graph.close_empty()
            if graph.offers:
                candidate = self._candidates.begun(graph.offers.popleft())
                if candidate.recorded is None:
                    unbegun.append(candidate.element)
                else:
                    self._carry_out(resumed(candidate, candidate.recorded))
        graph.offers.extend(unbegun)

    def _next_chunks(self) -> list[Chunk]:
        """The elements of the next jobs, which they wait for from now on. All else that is decided is done."""
        alone = self._decide()
        shared = self._chunks.next(min(BATCH - len(alone), self._room()))
        return [*([one] for one in alone), *shared]

    def _decide(self) -> list[Submit]:
        """Decide about the elements whose turn it is. Those that need a job of their own are returned; others may share one."""
        alone: list[Submit] = []
        offers, left = self._graph.offers, WAITING_MAX - len(self._chunks)
        while offers and left > 0 and (room := min(BATCH - len(alone), self._room())):
            element = offers.popleft()
            if not may_begin(element, left_open=self._past.is_open(element)):
                self._carry_out(Drop(element))
                continue
            candidate = self._candidates.of(element, islice(offers, room - 1), since_ms=self.started_ms)
            decision = next_work(candidate, self.waiters.under_way)
            if not isinstance(decision, Submit):
                self._carry_out(decision)
                continue
            self._submitter.start()  # Workers come up while the rest is looked at.
            # Before it is submitted: equal work in the same batch joins it.
            shares = may_share(element, candidate.work_key, one_by_one=self._graph.one_by_one)
            self.waiters.add(candidate, element.job_id, own=not shares, flight=candidate.flight)
            if shares:
                left -= 1
                self._chunks.add(decision)
            else:
                alone.append(decision)
        return alone

    def _room(self) -> int:
        waiters, one_by_one = self.waiters, self._graph.one_by_one
        return room(
            most=self._options.max_parallel, one_by_one=one_by_one, own=len(waiters.own), open_jobs=len(waiters)
        )

    def _carry_out(self, decision: Decision | Offer | Drop) -> None:
        """Do what was decided about an element; what needs a job is submitted with others."""
        match decision:
            case Join(candidate, job_id, place):
                self._join(candidate, job_id, place)
            case Reuse(candidate, found, is_recorded):
                self._reuse(candidate, found, is_recorded=is_recorded)
            case Fail(candidate, found):
                element = candidate.element
                element.state, element.source, element.result = FAILED, found.name, found.result
                element.message = why_failed(found.report)
                self._graph.begin(element)
                self._graph.end(element)
            case Adopt(candidate, state, array):
                element = candidate.element
                element.state = RUNNING
                self._graph.begin(element)
                self.waiters.add(candidate, element.job_id, own=array is None, flight=candidate.flight)
                if array is not None:
                    self._carry(element, *array)
                if state in TERMINAL:
                    self.ended(self.waiters.job_of(element.job_id), state)
            case Supersede(candidate, change):
                self.superseded = f"{candidate.element.step.key}: {change}"
                self._graph.drop(candidate.element)
                self.cancel(f"changed since it began: {self.superseded}")
            case Offer(element):
                element.state, element.source = WAITING, None
                self._graph.offer([element])
            case Drop(element):
                self._graph.drop(element)
                for joined in self.waiters.pop(element.job_id):  # Its job is never submitted.
                    self._carry_out(Offer(joined.element))

    def _join(self, candidate: Candidate, job_id: str, place: int | None) -> None:
        element, work_id = candidate.element, job_id
        if place is not None:
            work_id = self.waiters.cargo(job_id).get(place) or element_id(job_id, place)
            self.waiters.carry(job_id, place, work_id)
        element.state, element.source = RUNNING, work_id
        self.waiters.add(candidate, work_id)
        self._graph.begin(element)
        job_id = self.waiters.job_of(work_id)
        element.array = job_id if job_id != work_id else None
        row = self._backend.reader.job(job_id)
        if row is not None and row.state in TERMINAL:  # It ended before it was waited for.
            self.ended(job_id, row.state)

    def _carry(self, element: Element, job_id: str, place: int) -> None:
        """An array has an element of ours."""
        element.array, element.source = job_id, element_id(job_id, place)
        self.waiters.carry(job_id, place, element.job_id, own=True)

    def _reuse(self, candidate: Candidate, found: Found, *, is_recorded: bool) -> None:
        element = candidate.element
        if not is_recorded:
            self._notes.add(element, candidate.work_key, found)
        element.state, element.source, element.result, element.array = REUSED, found.name, found.result, None
        self._graph.begin(element)
        self.orders.learn(element, found.report)
        self._graph.end(element)
        if self._notes.is_full:
            self._record_reuses()

    def _record_reuses(self) -> None:
        for commands, content in self._notes.requests(self.steps):
            for refusal in self._requests.record_reuses(commands, content):
                if refusal.code != "UNKNOWN_RUN":
                    raise error_of(refusal)
                self.cancel(ENDED_ELSEWHERE)

    def _prepared(self, chunk: Chunk) -> Submission:
        """The job of elements that need one: of one alone, or of several."""
        for decision in chunk:
            self._explain(decision)
        candidates = [decision.candidate for decision in chunk]
        if len(candidates) > 1:
            return self.orders.array([(candidate.element, candidate.work_key) for candidate in candidates])
        (only,) = candidates
        return only.prepared or self.orders.submission(only.element, only.work_key)

    def _explain(self, decision: Submit) -> None:
        """Note why an element is done although its label had been done before."""
        candidate = decision.candidate
        element, work_key = candidate.element, candidate.work_key
        if candidate.prepared is not None:
            return
        element.again = why = decision.again or None
        if why is None and work_key.key is not None and element.index is None:
            why = self._work_keys.because(self.orders.label(element.step), work_key, self.started_ms)
        if why:
            self.reasons[element.job_id] = why

    def _submit(self, chunks: Sequence[Chunk]) -> bool:
        """Submit jobs; False when the queue is full: what was not taken is offered again when something has ended."""
        batch = [(chunk, self._prepared(chunk)) for chunk in chunks]
        for chunk, submission in batch:
            self._begin(chunk, submission.manifest.job_id)
        try:
            taken = self._submitter.submit([submission for _, submission in batch])
        except RunEnded as exc:
            for chunk, submission in batch:
                self.waiters.unload(submission.manifest.job_id)
                for decision in chunk:
                    self.waiters.withdraw(decision.candidate, decision.candidate.element.job_id)
                    self._graph.drop(decision.candidate.element)
            self.cancel(str(exc))
            return True
        returned: list[Element] = []
        for (chunk, submission), is_taken in zip(batch, taken, strict=True):
            if not is_taken:
                returned += self._return(chunk, submission)
                continue
            for decision in chunk:
                decision.candidate.element.state = RUNNING
                self._graph.begin(decision.candidate.element)
        self._graph.offers.extendleft(reversed(returned))
        return all(taken)

    def _begin(self, chunk: Chunk, job_id: str) -> None:
        """Elements are about to get a job: from now on they wait for it."""
        self._chunks.begin(chunk, job_id)
        if len(chunk) == 1:
            self.waiters.submit(job_id)
            return
        for place, decision in enumerate(chunk):
            self._carry(decision.candidate.element, job_id, place)

    def _return(self, chunk: Chunk, submission: Submission) -> list[Element]:
        """The queue had no room for a job. Its elements are returned, or wait where they may share another one."""
        job_id = submission.manifest.job_id
        if self._chunks.put_back(chunk, job_id):
            self.waiters.unload(job_id)
            for decision in chunk:
                decision.candidate.element.array = decision.candidate.element.source = None
            return []
        (only,) = chunk
        self.waiters.withdraw(only.candidate, only.candidate.element.job_id)
        self._candidates.keep(only.candidate, submission)
        return [only.candidate.element]

    # -- what happened -------------------------------------------------------------------------------------------------

    def ended(self, job_id: str, state: str, digest: bytes | None = None, report: WorkReport | None = None) -> None:
        """A job that elements wait for has ended, or has not and is tried again."""
        cargo = self.waiters.cargo(job_id)
        if state not in TERMINAL:
            if state == State.RETRYING:
                self._repeated(job_id, cargo, report)
            return
        if report is None and job_id in self.waiters:
            found = self._backend.report_of(job_id)
            digest, report = found if found is not None else (digest, None)
        self._chunks.ended(job_id, report)
        if not cargo:
            self._done(job_id, Found(job_id, False, state, digest, report))
        for place, work_id in cargo.items():
            self._done(work_id, _of_element(Found(job_id, False, state, digest, report), place))

    def _done(self, work_id: str, done: Found) -> None:
        """Work that elements wait for has ended."""
        for candidate in self.waiters.pop(work_id):
            element = candidate.element
            if done.report is not None:
                element.step.attempted(done.report, joined=element.job_id != work_id)
            if element.job_id == work_id:
                self._settle(element, done)
            else:
                self._carry_out(after_join(candidate, done, ending=self._graph.ending))

    def _repeated(self, job_id: str, cargo: Mapping[int, str], report: WorkReport | None) -> None:
        """An attempt ended and another one follows; of an array, for those elements that did not succeed."""
        row = self._backend.reader.job(job_id)
        for place, work_id in cargo.items() if cargo else ((None, job_id),):
            own = report if place is None or report is None else report.of_element(place)
            if place is not None and own is not None and own.ok:
                continue
            for candidate in self.waiters.of(work_id):
                element = candidate.element
                if own is not None:
                    element.step.attempted(own, joined=element.job_id != work_id)
                element.attempts += 1
                element.next_attempt = None if row is None else next_attempt(row, own, self._backend.now_ms())

    def _settle(self, element: Element, done: Found) -> None:
        """One element whose own job has ended."""
        state, report = done.state, done.report
        element.result, element.array = done.result, None
        if state == State.SUCCEEDED and report is not None:
            element.state = SUCCEEDED
            self.orders.learn(element, report)
        elif state == State.SUCCEEDED:
            element.state, element.message = FAILED, GONE
        elif state == State.CANCELED and self._is_late:
            element.state, element.message = FAILED, self.message
        elif state == State.CANCELED:
            element.state, element.message = CANCELLED, CANCELLED
            if not self._graph.ending:
                self._cancelled_from_elsewhere(element, done.job_id)
        else:
            element.state, element.message = FAILED, why_failed(report)
            if report is None and (row := self._backend.reader.job(done.job_id)) is not None:
                element.message = unreported(Job.decode(row.body).reason_code, element.message)
        self._graph.end(element)

    def _cancelled_from_elsewhere(self, element: Element, job_id: str) -> None:
        """A job of ours was cancelled: with the whole run, or alone, which is the end of its step."""
        row = self._backend.reader.job(job_id)
        reason = None if row is None else Job.decode(row.body).reason_code
        if reason == CANCELLED_WITH_RUN:
            self.cancel(RUN_CANCELLED)
        else:
            element.message = f"cancelled ({reason})"

    # -- ends ----------------------------------------------------------------------------------------------------------

    def cancel(self, reason: str) -> None:
        """Have the run end as cancelled; nothing is done about one that is ending already."""
        if not self._graph.ending:
            self._cancelled = True
            self._wind_up(reason)

    @property
    def time_is_over(self) -> bool:
        """Whether the run has had its time: from its recorded start on, also when it is taken up again (X-116)."""
        return self._timeout_ms is not None and self._backend.now_ms() - self.started_ms >= self._timeout_ms

    def check_time(self) -> None:
        """Have the run end when it has had its time."""
        if self._timeout_ms is not None and self.time_is_over and not self._graph.ending:
            self._is_late = True
            self._wind_up(out_of_time(self._timeout_ms), RUN_TIMEOUT)

    def end(self) -> str:
        """Close the run and return its status."""
        self._graph.conclude()
        stopped = self._graph.failed or self._graph.ending
        status = run_status.CANCELLED if self._cancelled else run_status.FAILED if stopped else run_status.COMPLETED
        status, elsewhere = self._requests.end(status, RUN_TIMEOUT if self._is_late else None)
        if elsewhere:
            self.message = self.message or ENDED_ELSEWHERE
        return status

    def _wind_up(self, why: str, reason_code: str = CANCELLED_WITH_RUN) -> None:
        """Nothing begins any more; cancel the run's own open jobs. Those it only joined belong to others."""
        self._graph.ending = True
        self.message = why
        # Of a run that is taken up, some jobs may not have had their turn yet.
        later = [job_id for job_id in self._past.open_jobs() if job_id not in self.waiters]
        self._graph.drop_offers()
        self._chunks.clear()
        self._submitter.cancel([*self.waiters.own, *later], reason_code)
        self._leave_foreign()

    def _leave_foreign(self) -> None:
        """Wait no longer for jobs that others submitted, or that will never be submitted."""
        for job_id in self.waiters.foreign:
            for candidate in self.waiters.pop(job_id):
                self._graph.drop(candidate.element)


def _of_element(done: Found, place: int) -> Found:
    """What came of one element of an array that has ended. One without an outcome ended as its array did."""
    own = None if done.report is None else done.report.of_element(place)
    state = done.state if own is None else State.SUCCEEDED if own.ok else State.FAILED
    return Found(done.job_id, False, state, done.digest, own, place)
