"""The driver: from a contract to finished work, one job for each action (X-023).

It submits what has become ready, waits for the outcomes, and ends the run when nothing is left. It holds nothing that is not
on the ledger: killed at any moment and started again, it finds the jobs of its run by their ids, which follow from the
recorded operation, and goes on (X-174). A full queue holds it back (X-031).

Which steps there are and which may begin is `run_graph`'s; which of those come next, `choosing`'s; whether one needs a job at
all, `reusing`'s; how it becomes one, `run_orders`'; who waits for which job, `awaited`'s; what a run that is taken up again has
done already, `run_past`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from detent.canon import decode
from detent.canon.late import dataclass
from detent.errors import error_of
from detent.jobs.work import WorkReport
from detent.kernel import Evidence, Job
from detent.kernel import run as run_status
from detent.kernel.history import Record
from detent.kernel.records import RUN_ENDED
from detent.kernel.table import TERMINAL, State
from detent.owner.backend import Backend, Submission
from detent.reuse.work_keys import Options, WorkKeys
from detent.runs.record.identity import is_asked_to_cancel
from detent.runs.record.inputs import RunIdentity, RunInputs
from detent.runs.record.requests import CANCELLED_WITH_RUN, ENDED_ELSEWHERE, RUN_TIMEOUT, Requests, out_of_time
from detent.runs.record.resumed import GONE
from detent.runs.record.step_run import Element, StepRun
from detent.runs.steps.choosing import Choosing
from detent.runs.steps.reusing import Reusing
from detent.runs.steps.state import RunState
from detent.words.states import CANCELLED, FAILED, RUNNING, STOPPED, SUCCEEDED
from detent.workers.claim_ahead import FULL, ClaimAhead
from detent.workers.next_attempt import next_attempt, unreported, why_failed
from detent.workers.supervisor import Attempted, ends_attempt

RUN_CANCELLED: Final = "the run was cancelled"
POLL_MAX: Final = 200
"""Jobs that the ledger is asked for at once when no news comes."""
POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Cancel:
    reason: str


class Driver:
    """Drives one run. `run` returns when it has ended; `cancel` and `stop` may be called from other threads."""

    def __init__(
        self,
        backend: Backend,
        inputs: RunInputs,
        identity: RunIdentity,
        work_keys: WorkKeys,
        *,
        options: Options | None = None,
        claim_ahead: ClaimAhead | None = None,
    ) -> None:
        self.backend = backend
        self.inputs = inputs
        self.identity = identity
        self.options = options or Options()
        self.status = RUNNING
        self.message = ""
        self.ended_ms: int | None = None
        self._events: SimpleQueue[Sequence[Attempted] | Record | _Cancel | None] = SimpleQueue()
        self._stop = threading.Event()
        self._state = RunState(backend, inputs, identity, work_keys, self.options)
        self._requests = Requests(backend, identity, self._stop)
        self._reusing = Reusing(
            self._state, self._requests, cancel=self._cancel, ended=self._ended, tell=self.attempted
        )
        self._choosing = Choosing(self._state, self._reusing)
        self._graph, self._awaited, self._past = self._state.graph, self._state.awaited, self._state.past
        self._orders = self._state.orders
        self._claim_ahead = claim_ahead or ClaimAhead(backend.session, "", rouse=lambda: None, look=lambda: None)
        self._crew_failure: Callable[[], BaseException | None] = lambda: None
        self._crew_holds: Callable[[str], bool] = lambda _job_id: False
        self._cancelled = self._is_late = self._begun = False
        self._timeout_ms = inputs.contract.outline.timeout_ms

    # -- for others ----------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> list[StepRun]:
        """The steps of the run, as they stand."""
        return self._state.steps

    @property
    def started_ms(self) -> int:
        """When the run began, which for one that is taken up was in another process."""
        return self._state.started_ms

    @property
    def reasons(self) -> dict[str, str]:
        """Why an element ran although its label had run before, by job id."""
        return self._reusing.reasons

    @property
    def superseded(self) -> str | None:
        """Why a run that was to be taken up cannot be: its code or its inputs have changed since."""
        return self._reusing.superseded

    def attempted(self, attempted: Sequence[Attempted]) -> None:
        """Attempts have been closed by a supervisor of this process."""
        self._events.put(attempted)

    def observe(self, records: Sequence[Record]) -> None:
        """Commits of this home: what happens to the run's jobs beside what its own supervisor tells."""
        for record in records:
            if record.job_id in self._awaited and ends_attempt(record) and not self._crew_holds(record.job_id or ""):
                self._events.put(record)
            elif record.kind == RUN_ENDED and record.run_id == self.identity.run_id:
                # A run that waits for the jobs of others alone learns of its cancellation by nothing else.
                self._events.put(_Cancel(ENDED_ELSEWHERE))

    def watch_crew(self, failure: Callable[[], BaseException | None], holds: Callable[[str], bool]) -> None:
        """Where to ask whether the supervisor of this process still works, and which jobs it will tell of by itself."""
        self._crew_failure, self._crew_holds = failure, holds

    def cancel(self, reason: str = CANCELLED) -> None:
        """End the run as cancelled: its open jobs are cancelled, then the run is closed."""
        self._events.put(_Cancel(reason))

    def stop(self) -> None:
        """Leave the run as it stands: nothing is cancelled, and it can be resumed."""
        self._stop.set()
        self._events.put(None)

    def result(self, file: Callable[[dict[str, Any]], Any]) -> Any:
        """What the whole run gives back, as the contract says; ``file`` makes of a file's mapping what files are."""
        return self._orders.result(file)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> str:
        """Drive the run to its end and return its status; ``stopped`` when it was left as it stands."""
        self.begin()
        if self._time_is_over():
            with self.backend.floor:
                self._choosing.take_past()  # What it did counts, and what it left open has failed.
        self._check_time()
        while True:
            with self.backend.floor:
                self._offer()
            if not self._awaited.live and not self._graph.has_more:
                return self._end()
            if self._stop.is_set():
                self.status = STOPPED
                return self.status
            self._take_events()
            if (failure := self._crew_failure()) is not None:
                raise failure
            self._check_time()

    def begin(self) -> None:
        """Open the run, or take it up where it was left; it is durable then. Once more does nothing."""
        if self._begun:
            return
        if self.identity.resumed:
            self._past.recall(self.identity.run_id)
            self._state.started_ms = self._past.started_ms or self._state.started_ms
        else:
            self._requests.begin(self.inputs)
        self._graph.open_all()
        self._begun = True

    def _offer(self) -> None:
        """Submit what is ready, as far as there is room, and take earlier results where there are some."""
        graph = self._graph
        while graph.has_more:
            graph.close_empty()
            chosen = self._choosing.next()
            if graph.ending:
                for element, _ in chosen:
                    self._awaited.withdraw(element)
                    graph.drop(element)
                self._leave_strangers()
                break
            if (chosen and not self._submit(self._choosing.prepared(chosen))) or not self._choosing.room():
                break
        self._choosing.look_away()
        self._reusing.record()

    def _submit(self, batch: list[tuple[Element, Submission]]) -> bool:
        """Submit a batch; False when the queue is full: what was not taken is offered again when something has ended."""
        submissions = [submission for _, submission in batch]
        answers = self._claim_ahead.submit(submissions, self._stop, partition=self._requests.partition)
        full = ended = False
        returned: list[Element] = []
        for (element, submission), answer in zip(batch, answers, strict=True):
            if answer.refusal is None:
                element.state = RUNNING
                self._awaited.submitted()
                self._graph.begin(element)
                continue
            self._awaited.withdraw(element)
            if answer.refusal.code in FULL:
                full = True
                returned.append(element)
                self._choosing.keep(element, submission)
            elif answer.refusal.code == "UNKNOWN_RUN":
                ended = True
                self._graph.drop(element)
            else:
                raise error_of(answer.refusal)
        self._graph.offers.extendleft(reversed(returned))
        if ended:
            self._cancel(ENDED_ELSEWHERE)
        return not full

    # -- what happened -------------------------------------------------------------------------------------------------

    def _take_events(self) -> None:
        """Wait for news, and take all there is. Nothing depends on being told: when none comes, the ledger is asked."""
        try:
            event = self._events.get(timeout=POLL_SECONDS)
        except Empty:
            if is_asked_to_cancel(self.backend.home.path, self.identity.run_id):
                self._cancel(RUN_CANCELLED)
            for job_id in self._awaited.some(POLL_MAX):
                row = self.backend.reader.job(job_id)
                if row is not None and row.state in TERMINAL:
                    self._ended(job_id, row.state)
            return
        with self.backend.floor:
            while True:
                if isinstance(event, Record):
                    self._observed(event)
                elif isinstance(event, _Cancel):
                    self._cancel(event.reason)
                else:
                    for one in event or ():
                        self._ended(one.job_id, one.state, one.digest, one.report)
                try:
                    event = self._events.get_nowait()
                except Empty:
                    return

    def _observed(self, record: Record) -> None:
        body = decode(record.body) if record.job_id in self._awaited and record.kind == "transition" else None
        if isinstance(body, dict):
            digest = None if record.evidence is None else Evidence.decode(record.evidence).detail_digest
            self._ended(record.job_id or "", str(body["to_state"]), digest)

    def _ended(self, job_id: str, state: str, digest: bytes | None = None, report: WorkReport | None = None) -> None:
        """A job that elements wait for has ended, or has not and is tried again."""
        if state not in TERMINAL:
            if state == State.RETRYING:
                self._repeated(job_id, report)
            return
        elements = self._awaited.pop(job_id)
        if elements and report is None:
            found = self.backend.report_of(job_id)
            digest, report = found if found is not None else (digest, None)
        for element in elements:
            if report is not None:
                element.step.attempted(report, joined=element.job_id != job_id)
            if element.job_id == job_id:
                self._settle(element, state, digest, report)
            else:
                self._reusing.settle_joined(element, job_id, state, digest, report)

    def _repeated(self, job_id: str, report: WorkReport | None) -> None:
        """An attempt ended and another one follows."""
        row = self.backend.reader.job(job_id)
        for element in self._awaited.of(job_id):
            if report is not None:
                element.step.attempted(report, joined=element.job_id != job_id)
            element.attempts += 1
            element.next_attempt = None if row is None else next_attempt(row, report, self.backend.now_ms())

    def _settle(self, element: Element, state: str, digest: bytes | None, report: WorkReport | None) -> None:
        """One element whose own job has ended."""
        element.digest = digest
        if state == State.SUCCEEDED and report is not None:
            element.state = SUCCEEDED
            self._orders.learn(element, report)
        elif state == State.SUCCEEDED:
            element.state, element.message = FAILED, GONE
        elif state == State.CANCELED and self._is_late:
            element.state, element.message = FAILED, self.message
        elif state == State.CANCELED:
            element.state, element.message = CANCELLED, CANCELLED
            if not self._graph.ending:
                self._cancelled_from_elsewhere(element)
        else:
            element.state, element.message = FAILED, why_failed(report)
            if report is None and (row := self.backend.reader.job(element.job_id)) is not None:
                element.message = unreported(Job.decode(row.body).reason_code, element.message)
        self._graph.end(element)

    def _cancelled_from_elsewhere(self, element: Element) -> None:
        """A job of ours was cancelled: with the whole run, or alone, which is the end of its step."""
        row = self.backend.reader.job(element.job_id)
        reason = None if row is None else Job.decode(row.body).reason_code
        if reason == CANCELLED_WITH_RUN:
            self._cancel(RUN_CANCELLED)
        else:
            element.message = f"cancelled ({reason})"

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _cancel(self, reason: str) -> None:
        if not self._graph.ending:
            self._cancelled = True
            self._wind_up(reason)

    def _time_is_over(self) -> bool:
        # From the recorded start on: a run that is taken up again has no more time than it had.
        return self._timeout_ms is not None and self.backend.now_ms() - self._state.started_ms >= self._timeout_ms

    def _check_time(self) -> None:
        if self._timeout_ms is not None and self._time_is_over() and not self._graph.ending:
            self._is_late = True
            self._wind_up(out_of_time(self._timeout_ms), RUN_TIMEOUT)

    def _wind_up(self, why: str, reason_code: str = CANCELLED_WITH_RUN) -> None:
        """Nothing begins any more; cancel the run's own open jobs. Those it only joined belong to others."""
        self._graph.ending = True
        self.message = why
        # Of a run that is taken up, some jobs may not have had their turn yet.
        later = [job_id for job_id in self._past.open_jobs() if job_id not in self._awaited]
        self._graph.drop_offers()
        self._requests.cancel([*self._awaited.own_jobs(), *later], reason_code)
        self._leave_strangers()

    def _leave_strangers(self) -> None:
        """Wait no longer for jobs that others submitted, or that will never be submitted."""
        for job_id in self._awaited.strangers():
            for element in self._awaited.pop(job_id):
                self._graph.drop(element)

    def _end(self) -> str:
        self._graph.conclude()
        stopped = self._graph.failed or self._graph.ending
        status = run_status.CANCELLED if self._cancelled else run_status.FAILED if stopped else run_status.COMPLETED
        self.status, elsewhere = self._requests.end(status, RUN_TIMEOUT if self._is_late else None)
        if elsewhere:
            self.message = self.message or ENDED_ELSEWHERE
        self.ended_ms = self.backend.now_ms()
        return self.status
