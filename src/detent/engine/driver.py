"""The driver: from a contract to finished work, one job for each action (X-023).

It submits what has become ready, takes earlier results where the work is the same, and ends the run when nothing is left. It
holds nothing that is not on the ledger: killed at any moment and started again, it finds the jobs of its run by their ids,
which follow from the recorded operation, and goes on (X-174). A full queue holds it back (X-031).

Which steps there are and which may begin is `run_graph`'s; how an element becomes a job, `run_orders`'; who waits for which
job, `awaited`'s; what a run that is taken up again has done already, `run_past`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Final

from detent.canon import decode
from detent.canon.late import dataclass
from detent.engine.awaited import Awaited
from detent.engine.crew import Attempted, ends_attempt
from detent.engine.desk import Desk, Inline, Submission, joined
from detent.engine.patience import ask_again
from detent.engine.recipes import Found, Miss, Recipe, Recipes
from detent.engine.run_graph import RunGraph
from detent.engine.run_inputs import RunIdentity, RunInputs, digests_of
from detent.engine.run_orders import Orders
from detent.engine.run_past import GONE, TERMINAL, Past
from detent.engine.run_plan import steps_of
from detent.engine.step_run import CACHED, CANCELLED, ENDED, FAILED, RUNNING, SUCCEEDED, WAITING, Element
from detent.engine.vacancies import Vacancies
from detent.engine.wire import Answer
from detent.errors import DetentError, InvalidInput, Refused
from detent.jobs.work import WorkReport
from detent.kernel import Cancel, Command, EndRun, Evidence, Job, ReuseStep, StartRun
from detent.kernel.history import Record
from detent.kernel.records import RUN_ENDED
from detent.store.api import WorkRow

OFFER_MAX: Final = 200
"""Jobs submitted in one commit; below what one class of the queue holds by default."""
REUSES_MAX: Final = 1_000
REUSE_BYTES_MAX: Final = 1024 * 1024
"""Reuses recorded in one commit, and how much their ingredients may take."""
WAITING_MAX: Final = 4_000
"""Jobs of one run that may wait in the queue at once: room is for others, too."""
POLL_SECONDS: Final = 0.2
FULL: Final = frozenset({"QUEUE_FULL"})
ENDED_ELSEWHERE: Final = "the run was ended from elsewhere"
END_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Options:
    """How a run goes about its work."""

    force: bool = False
    """Reuse nothing that ended before this run began."""
    reuse_failed: bool = False
    salt: str | None = None
    max_parallel: int | None = None
    """Jobs of the run under way at once (X-138)."""


@dataclass(frozen=True, slots=True)
class _Cancel:
    reason: str


class Driver:
    """Drives one run. `run` returns when it has ended; `cancel` and `stop` may be called from other threads."""

    def __init__(
        self,
        desk: Desk,
        inputs: RunInputs,
        identity: RunIdentity,
        recipes: Recipes,
        *,
        options: Options | None = None,
        vacancies: Vacancies | None = None,
    ) -> None:
        self.desk = desk
        self.inputs = inputs
        self.identity = identity
        self.options = options or Options()
        self.status = "running"
        self.message = ""
        self.started_ms = desk.now_ms()
        self.ended_ms: int | None = None
        self.reasons: dict[str, str] = {}
        """Why an element ran although its label had run before, by job id."""
        self.superseded: str | None = None
        """Why a run that was to be taken up cannot be: its code or its inputs have changed since."""
        self.steps = steps_of(inputs, identity)
        self._orders = Orders(desk, inputs, identity.run_id, recipes, self.steps, self.options.salt)
        self._graph = RunGraph(inputs, identity, self.steps, self._orders.items, desk.now_ms)
        self._past = Past(desk, recipes)
        self._graph.begun = partial(self._past.begun, self.steps)
        self._awaited = Awaited()
        self._recipes = recipes
        self._vacancies = vacancies or Vacancies(desk.session, "", rouse=lambda: None, look=lambda: None)
        self._partition = desk.session.partition(identity.run_id)
        self._events: SimpleQueue[Attempted | Record | _Cancel | None] = SimpleQueue()
        self._stop = threading.Event()
        self._crew_failure: Callable[[], BaseException | None] = lambda: None
        self._crew_holds: Callable[[str], bool] = lambda _job_id: False
        self._reuses: list[tuple[ReuseStep, Inline]] = []
        self._reuse_bytes = 0
        self._refused: dict[str, tuple[Recipe, Submission]] = {}
        """What the queue had no room for, made ready once."""
        self._made: dict[str, Recipe] = {}
        """Recipes of elements whose turn is about to come."""
        self._cancelled = False
        self._driven_since_ms = self.started_ms
        self._timeout_ms = inputs.contract.outline.timeout_ms

    # -- for others ----------------------------------------------------------------------------------------------------

    def attempted(self, attempted: Sequence[Attempted]) -> None:
        """Attempts have been closed by a crew of this process."""
        for one in attempted:
            self._events.put(one)

    def observe(self, records: Sequence[Record]) -> None:
        """Commits of this home: what happens to the run's jobs beside what its own crew tells."""
        for record in records:
            if record.job_id in self._awaited and ends_attempt(record) and not self._crew_holds(record.job_id or ""):
                self._events.put(record)
            elif record.kind == RUN_ENDED and record.run_id == self.identity.run_id:
                # A run that waits for the jobs of others alone learns of its cancellation by nothing else.
                self._events.put(_Cancel(ENDED_ELSEWHERE))

    def watch_crew(self, failure: Callable[[], BaseException | None], holds: Callable[[str], bool]) -> None:
        """Where to ask whether the crew of this process still works, and which jobs it will tell of by itself."""
        self._crew_failure, self._crew_holds = failure, holds

    def cancel(self, reason: str = "cancelled") -> None:
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
        self._begin()
        while True:
            with self.desk.floor:
                self._offer()
            if not self._awaited.live and not self._reuses and not self._graph.has_more:
                return self._end()
            if self._stop.is_set():
                self.status = "stopped"
                return self.status
            self._take_events()
            if (failure := self._crew_failure()) is not None:
                raise failure
            self._check_time()

    def _begin(self) -> None:
        """Open the run, or take it up where it was left."""
        if self.identity.resumed:
            self._past.recall(self.identity.run_id)
            self.started_ms = self._past.started_ms or self.started_ms
        else:
            # The contract was checked when it was loaded, the parameters when they were bound to it.
            digest, inline = self.desk.sealed_trusted(self.inputs.document())
            contract, bindings = digests_of(self.inputs.contract)
            command = StartRun(
                0,
                self.desk.tenant,
                self.identity.run_id,
                self.inputs.name,
                contract,
                bindings,
                digest,
                str(self.identity.operation_id),
            )
            (answer,) = self._ask([command], inline)
            if answer.refusal is not None:
                raise _refusal(answer.refusal)
        self._graph.open_all()

    def _offer(self) -> None:
        """Submit what is ready, as far as there is room, and take earlier results where there are some."""
        graph = self._graph
        while graph.has_more:
            graph.close_empty()
            batch: list[tuple[Element, Submission]] = []
            most = min(OFFER_MAX, self._room())
            while graph.offers and len(batch) < most:
                element = graph.offers.popleft()
                if element.step.state in ENDED and not self._past.is_open(element.job_id):
                    graph.drop(element)
                    self._give_back(element.job_id)
                    continue
                if element.job_id not in self._refused and element.job_id not in self._made:
                    self._look_ahead(element, most - len(batch))
                if (submission := self._prepare(element)) is not None:
                    batch.append((element, submission))
            if graph.ending:
                for element, _ in batch:
                    self._awaited.withdraw(element)
                    graph.drop(element)
                self._leave_strangers()
                break
            if (batch and not self._submit(batch)) or not self._room():
                break
        self._made.clear()
        self._recipes.look_away()
        self._flush_reuses()

    def _look_ahead(self, element: Element, count: int) -> None:
        """Make the recipes of an element and of those that come next, and read at once what was done of them before.

        Of no more than may be submitted now: what waits longer is looked at when its turn comes.
        """
        following = (one for one in islice(self._graph.offers, count - 1) if one.job_id not in self._refused)
        self._made = {one.job_id: self._orders.recipe(one) for one in (element, *following)}
        self._recipes.look(self._made.values())

    def _room(self) -> int:
        most = WAITING_MAX if self.options.max_parallel is None else self.options.max_parallel
        return max(0, most - (self._awaited.live - self._awaited.joined))

    def _prepare(self, element: Element) -> Submission | None:
        """The submission of an element; None when it takes an earlier result or waits for a job under way."""
        kept = self._refused.pop(element.job_id, None)
        if kept is not None:
            recipe, submission = kept  # The queue had no room for it; nothing else has changed.
            if (same := self._awaited.same_work(element, recipe)) is not None:
                self._join(element, same, recipe)
                return None
        else:
            recipe = self._made.pop(element.job_id)
            if self._take_up(element, recipe) or (recipe.key is not None and self._answered(element, recipe)):
                return None
            submission = self._orders.submission(element, recipe)
        # Before it is submitted: equal work in the same batch joins it.
        self._awaited.add(element, element.job_id, recipe, live=False)
        return submission

    def _submit(self, batch: list[tuple[Element, Submission]]) -> bool:
        """Submit a batch; False when the queue is full: what was not taken is offered again when something has ended."""
        answers = self._vacancies.submit(
            [submission.command for _, submission in batch],
            self._stop,
            partition=self._partition,
            content=joined(submission.inline for _, submission in batch),
            work=[submission.work for _, submission in batch if submission.work is not None],
        )
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
                if (recipe := self._awaited.recipe(element)) is not None:
                    self._refused[element.job_id] = (recipe, submission)
            elif answer.refusal.code == "UNKNOWN_RUN":
                ended = True
                self._graph.drop(element)
            else:
                raise _refusal(answer.refusal)
        self._graph.offers.extendleft(reversed(returned))
        if ended:
            self._cancel(ENDED_ELSEWHERE)
        return not full

    # -- work that is done, or under way -------------------------------------------------------------------------------

    def _take_up(self, element: Element, recipe: Recipe) -> bool:
        """Put an element of a run that is taken up where the ledger says it is; False when the ledger does not know it."""
        source = self._past.source(element)
        row = self._past.jobs.get(element.job_id) if source is None else self.desk.reader.job(source)
        if source is None and row is None:
            return False
        found = None if source is None else self.desk.report_of(source)
        change = GONE if row is None else self._past.changed_since(row, recipe)
        if change or row is None or (source is not None and found is None):
            self._supersede(element, change or GONE)
        elif found is not None:
            element.state, element.source, element.digest = CACHED, source, found[0]
            self._graph.begin(element)
            self._orders.learn(element, found[1])
            self._graph.end(element)
        else:
            element.state = RUNNING
            self._graph.begin(element)
            self._awaited.add(element, element.job_id, recipe)
            if row.state in TERMINAL:
                self._ended(element.job_id, row.state, None, None)
        return True

    def _supersede(self, element: Element, change: str) -> None:
        """What this run did so far was done with something else: it ends, and a new one begins from what still holds."""
        self.superseded = f"{element.step.key}: {change}"
        self._graph.drop(element)
        self._cancel(f"changed since it began: {self.superseded}")

    def _answered(self, element: Element, recipe: Recipe) -> bool:
        """Whether an earlier or a running job does the same work; then the element takes, or waits for, its result."""
        same = self._awaited.same_work(element, recipe)
        if same is not None:
            self._join(element, same, recipe)
            return True
        found = self._recipes.find(recipe, self.options, since_ms=self.started_ms)
        if isinstance(found, Miss):
            why = found.why
            element.again = why or None
            if not why and element.index is None:
                why = self._recipes.because(self._orders.label(element.step), recipe, self.started_ms)
            if why:
                self.reasons[element.job_id] = why
            return False
        if found.running:
            self._join(element, found.job_id, recipe)
        elif found.state == "SUCCEEDED":
            self._reuse(element, found.job_id, found.digest, found.report, recipe)
        else:
            self._fail_like(element, found)
        return True

    def _fail_like(self, element: Element, found: Found) -> None:
        """Take an earlier failure of the same work for the answer, as the user asked for (JOB-027)."""
        element.state, element.source, element.digest = FAILED, found.job_id, found.digest
        element.message = _why(found.report)
        self._graph.begin(element)
        self._graph.end(element)

    def _join(self, element: Element, job_id: str, recipe: Recipe) -> None:
        element.state, element.source = RUNNING, job_id
        self._awaited.add(element, job_id, recipe)
        self._graph.begin(element)
        row = self.desk.reader.job(job_id)
        if row is not None and row.state in TERMINAL:  # It ended before anybody listened.
            self._events.put(Attempted(job_id, row.state, None, None))

    def _reuse(
        self, element: Element, job_id: str, digest: bytes | None, report: WorkReport | None, recipe: Recipe
    ) -> None:
        """Take an earlier result. It is recorded with the next commit, before anything that builds on it."""
        named, inline = self._orders.about_reuse(element, recipe)
        element_id = element.step.element_id(element.index)
        self._reuses.append((ReuseStep(0, self.identity.run_id, element_id, job_id, named), inline))
        element.state, element.source, element.digest = CACHED, job_id, digest
        self._graph.begin(element)
        self._orders.learn(element, report)
        self._graph.end(element)
        self._reuse_bytes += sum(len(data) for _, data in inline)
        if len(self._reuses) >= REUSES_MAX or self._reuse_bytes >= REUSE_BYTES_MAX:
            self._flush_reuses()

    def _flush_reuses(self) -> None:
        taken, self._reuses, self._reuse_bytes = self._reuses, [], 0
        if not taken:
            return None
        answers = self._ask([command for command, _ in taken], joined(inline for _, inline in taken))
        for answer in answers:
            if answer.refusal is not None and answer.refusal.code == "UNKNOWN_RUN":
                return self._cancel(ENDED_ELSEWHERE)
            if answer.refusal is not None:
                raise _refusal(answer.refusal)
        return None

    # -- what happened -------------------------------------------------------------------------------------------------

    def _take_events(self) -> None:
        """Wait for news, and take all there is. Nothing depends on being told: when none comes, the ledger is asked."""
        try:
            event = self._events.get(timeout=POLL_SECONDS)
        except Empty:
            for job_id in self._awaited.some(OFFER_MAX):
                row = self.desk.reader.job(job_id)
                if row is not None and row.state in TERMINAL:
                    self._ended(job_id, row.state, None, None)
            return
        with self.desk.floor:
            while True:
                if isinstance(event, Attempted):
                    self._ended(event.job_id, event.state, event.digest, event.report)
                elif isinstance(event, Record):
                    self._observed(event)
                elif isinstance(event, _Cancel):
                    self._cancel(event.reason)
                try:
                    event = self._events.get_nowait()
                except Empty:
                    return

    def _observed(self, record: Record) -> None:
        body = decode(record.body) if record.job_id in self._awaited and record.kind == "transition" else None
        if isinstance(body, dict):
            digest = None if record.evidence is None else Evidence.decode(record.evidence).detail_digest
            self._ended(record.job_id or "", str(body["to_state"]), digest, None)

    def _ended(self, job_id: str, state: str, digest: bytes | None, report: WorkReport | None) -> None:
        """A job that elements wait for has ended, or has not and is tried again."""
        if state not in TERMINAL:
            if state == "RETRYING":
                for element in self._awaited.of(job_id):
                    element.attempts += 1
            return
        elements = self._awaited.pop(job_id)
        if elements and report is None:
            found = self.desk.report_of(job_id)
            digest, report = found if found is not None else (digest, None)
        for element in elements:
            if element.job_id == job_id:
                self._settle(element, state, digest, report)
            else:
                self._settle_joined(element, job_id, state, digest, report)

    def _settle_joined(
        self, element: Element, job_id: str, state: str, digest: bytes | None, report: WorkReport | None
    ) -> None:
        """One element whose work another one's job did, or did not get done."""
        recipe = self._awaited.recipe(element)
        if state == "SUCCEEDED" and recipe is not None and report is not None:
            self._reuse(element, job_id, digest, report, recipe)
        elif not self._graph.ending and element.step.state not in ENDED:
            element.state, element.source = WAITING, None  # The other did not get there: do it ourselves.
            self._graph.offers.append(element)
        else:
            self._graph.drop(element)

    def _settle(self, element: Element, state: str, digest: bytes | None, report: WorkReport | None) -> None:
        """One element whose own job has ended."""
        element.digest = digest
        if state == "SUCCEEDED" and report is not None:
            element.state = SUCCEEDED
            self._orders.learn(element, report)
        elif state == "SUCCEEDED":
            element.state, element.message = FAILED, GONE
        elif state == "CANCELED":
            element.state, element.message = CANCELLED, "cancelled"
            if not self._graph.ending:
                self._cancelled_from_elsewhere(element)
        else:
            element.state, element.message = FAILED, _why(report)
        self._graph.end(element)

    def _cancelled_from_elsewhere(self, element: Element) -> None:
        """A job of ours was cancelled: with the whole run, or alone, which is the end of its step."""
        row = self.desk.reader.job(element.job_id)
        reason = None if row is None else Job.decode(row.body).reason_code
        if reason == "WORKFLOW_CANCELLED":
            self._cancel("the run was cancelled")
        else:
            element.message = f"cancelled ({reason})"

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _cancel(self, reason: str) -> None:
        if not self._graph.ending:
            self._cancelled = True
            self._wind_up(reason)

    def _check_time(self) -> None:
        # The time in which nobody drove the run does not count: whoever takes it up again gets all of it.
        elapsed = self.desk.now_ms() - self._driven_since_ms
        if self._timeout_ms is not None and elapsed >= self._timeout_ms and not self._graph.ending:
            self._wind_up(f"the run's {self._timeout_ms} ms had elapsed")

    def _wind_up(self, why: str) -> None:
        """Nothing begins any more; cancel the run's own open jobs. Those it only joined belong to others."""
        self._graph.ending = True
        self.message = why
        # Of a run that is taken up, some jobs may not have had their turn yet.
        later = [job_id for job_id in self._past.open_jobs() if job_id not in self._awaited]
        self._graph.drop_offers()
        self._cancel_jobs([*self._awaited.own_jobs(), *later])
        self._leave_strangers()

    def _cancel_jobs(self, job_ids: Sequence[str]) -> None:
        for start in range(0, len(job_ids), OFFER_MAX):
            some = job_ids[start : start + OFFER_MAX]
            self._ask([Cancel(0, self.desk.tenant, job_id, "WORKFLOW_CANCELLED") for job_id in some], ())

    def _leave_strangers(self) -> None:
        """Wait no longer for jobs that others submitted, or that nobody will."""
        for job_id in self._awaited.strangers():
            for element in self._awaited.pop(job_id):
                self._graph.drop(element)

    def _give_back(self, job_id: str) -> None:
        """Offer those again that joined a job which will not be submitted after all."""
        for element in self._awaited.pop(job_id):
            element.state, element.source = WAITING, None
            self._graph.offers.append(element)

    def _end(self) -> str:
        self._graph.conclude()
        status = (
            "cancelled" if self._cancelled else "failed" if self._graph.failed or self._graph.ending else "completed"
        )
        self.status, self.ended_ms = self._close_run(status), self.desk.now_ms()
        return self.status

    def _close_run(self, status: str) -> str:
        """Record the end of the run; how it ended, which others may have decided first."""
        tries = 0
        while True:
            (answer,) = self._ask([EndRun(0, self.identity.run_id, status)], ())
            if answer.refusal is None:
                return status
            tries += 1
            if answer.refusal.code == "CONFLICT" and (run := self.desk.reader.run(self.identity.run_id)) is not None:
                self.message = self.message or ENDED_ELSEWHERE
                return run.status
            if answer.refusal.code != "RUN_NOT_DONE" or tries == END_TRIES:
                raise _refusal(answer.refusal)
            # A job of the run that this driver does not know: somebody else submitted it, or the contract lost its step.
            rows = self.desk.reader.jobs(run_id=self.identity.run_id)
            self._cancel_jobs([row.job_id for row in rows if row.state not in TERMINAL])

    def _ask(
        self, commands: Sequence[Command], content: Sequence[tuple[bytes, bytes]], *, work: Sequence[WorkRow] = ()
    ) -> list[Answer]:
        """Have commands decided. What may or may not have been done is asked for again, which is safe (X-173)."""
        ask = partial(self.desk.session.ask, commands, partition=self._partition, content=content, work=work)
        return ask_again(ask, self._stop)


def _why(report: WorkReport | None) -> str:
    if report is None or report.error is None:
        return "it failed"
    error = report.error
    name = error.type or error.code
    first = error.message.strip().splitlines()[0] if error.message.strip() else ""
    return f"{name}: {first}" if first else name


def _refusal(refusal: Refused) -> DetentError:
    return InvalidInput(refusal.message, code=refusal.code, details=dict(refusal.details))
