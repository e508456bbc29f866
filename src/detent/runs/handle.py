"""One run from its first commit to its last: which run is meant, who drives it, and how it looks meanwhile.

The same contract, bindings and inputs with a run that has not ended: that run is taken up again, where it stands. Otherwise a
new one begins, which takes earlier results by content (X-174). A run that another process drives is left to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from uuid import UUID

from detent.canon import parse_digest
from detent.canon.late import NamedTuple, dataclass
from detent.canon.strict_json import JsonValue
from detent.contract.model import refuse_unknown_policies
from detent.errors import DetentError, InvariantBroken
from detent.executor.annotations import refuse_returns
from detent.kernel import Command
from detent.kernel.run import COMPLETED
from detent.kernel.run import RUNNING as RUN_OPEN
from detent.kernel.table import OPEN
from detent.reuse.work_keys import Options, WorkKeys
from detent.runs.record.identity import new_run_id
from detent.runs.record.inputs import RunIdentity, RunInputs, RunLock, is_driven, unfinished
from detent.runs.record.step_run import Element, StepRun
from detent.runs.record.view import RunView, StepView
from detent.runs.runtime import Runtime
from detent.runs.steps.driver import Driver
from detent.runs.steps.orders import asked_of
from detent.words.quantities import count_text
from detent.words.states import CANCELLED, FAILED, READY, REUSED, RUNNING, SUCCEEDED


class FailedJob(NamedTuple):
    """A job that did not succeed."""

    step: str
    job_id: str
    message: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended."""

    run_id: str
    name: str
    status: str
    """``completed``, ``failed``, ``cancelled``, or ``stopped`` when it was left as it stands."""
    message: str
    value: JsonValue
    """What the contract's ``result`` gives; None unless it completed."""
    view: RunView
    failed: tuple[FailedJob, ...] = ()
    made: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By step: the jobs, of this run or an earlier one, that left files."""
    gives_result: bool = False
    """Whether the contract says what the run gives back."""

    @property
    def ok(self) -> bool:
        """Whether everything succeeded."""
        return self.status == COMPLETED


class RunHandle:
    """A run of this process. `run` drives it; everything else may be called from other threads."""

    def __init__(
        self,
        work: Runtime,
        inputs: RunInputs,
        *,
        options: Options | None = None,
        new: bool = False,
        taken: tuple[RunIdentity, RunLock] | None = None,
        file: Callable[[dict[str, Any]], Any] = lambda mapping: mapping,
    ) -> None:
        """``taken`` settles which run it is beforehand; otherwise it is the unfinished one of these inputs, or a new one."""
        self._work = work
        self._options = options or Options()
        self._inputs = replace(inputs, options=recorded_options(self._options, new=new))
        self._new = new
        self._taken = taken
        self._file = file
        self._work_keys = WorkKeys(work.backend)
        """Of its own: what a client submits meanwhile is read on other threads."""
        self._driver: Driver | None = None
        self._lock: RunLock | None = None
        self._leave: Callable[[], None] = lambda: None
        self._note = ""
        self._cancel: str | None = None
        self._told_ahead = self._stopped = False

    def open(self) -> str:
        """Settle which run it is, without beginning anything; its id."""
        if self._lock is None:
            self._refuse_unfeasible()
            refuse_returns(self._inputs.contract)
            self._keep_files()
            identity, lock = self._identity()
            try:
                self._driver = self._make_driver(identity)
            except BaseException:
                lock.release()
                raise
            self._lock = lock
            if self._work.has_started:
                self._tell_ahead()
        return self._driver.identity.run_id if self._driver is not None else ""

    @property
    def run_id(self) -> str:
        """The run that it is now; another one begins when the code or the inputs of the first have changed."""
        return "" if self._driver is None else self._driver.identity.run_id

    @property
    def resumed(self) -> bool:
        """Whether it takes up a run that had been left."""
        return self._driver is not None and self._driver.identity.resumed

    def begin(self, behind: Sequence[Command] = ()) -> None:
        """Have the run recorded, so that it can be taken up wherever this process ends; `run` drives it then.

        ``behind`` are decided in the same commit.
        """
        self.open()
        try:
            if self._driver is not None:
                self._driver.progress.begin(behind)
        except BaseException:
            self._let_go()
            raise

    def run(self) -> RunResult:
        """Drive the run to its end."""
        while True:
            self.open()
            driver = self._driver
            if driver is None:
                raise InvariantBroken("a run that was opened has a driver")
            try:
                status = driver.run()
            finally:
                self._let_go()
            if driver.progress.superseded is None or status == "stopped" or self._cancel is not None:
                return self._result(driver, status)
            # What was done so far was done with other code or inputs. What still holds is found by content.
            self._note = f"started anew: {driver.progress.superseded}"
            self._new = True

    def leave(self) -> None:
        """Give the run up to another process, or to another handle; nothing of it changes."""
        self._let_go()

    def _let_go(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
        self._leave()

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Cancel the run's open jobs and end it."""
        self._cancel = reason
        if self._driver is not None:
            self._driver.cancel(reason)

    def stop(self) -> None:
        """Leave the run as it stands, to be taken up again."""
        self._stopped = True
        if self._driver is not None:
            self._driver.stop()

    def tell(self, note: str) -> None:
        """Have something said beside the progress and in the summary."""
        self._note = note

    def view(self) -> RunView:
        """The run at this moment."""
        driver, work = self._driver, self._work
        now = work.backend.now_ms()
        if driver is None:
            return RunView("", self._inputs.name, RUN_OPEN, (), now, now, work.workers, str(work.home.path))
        begun = self._begun() if driver.ended_ms is None else {}
        return RunView(
            driver.identity.run_id,
            self._inputs.name,
            driver.status,
            tuple(step_view(step, begun, now, work.progress, work.told) for step in driver.progress.steps),
            driver.progress.started_ms,
            now,
            work.workers,
            str(work.home.path),
            ended_ms=driver.ended_ms,
            resumed=driver.identity.resumed,
            note="; ".join(said for said in (self._note, driver.progress.message) if said),
            warnings=self._work_keys.path_arguments.warnings,
        )

    def _begun(self) -> Mapping[str, int]:
        """Jobs that workers of this home have in hand, in any process, and since when."""
        from detent.workers.live_output import live_since  # noqa: PLC0415 - a run without an observer needs none of it

        return live_since(self._work.home.path)

    def _refuse_unfeasible(self) -> None:
        contract = self._inputs.contract
        refuse_unknown_policies(contract, self._work.backend.policies.known)
        for step in contract.plain_steps:
            binding = contract.bindings.get(step.step_id)
            if binding is not None and step.enabled:
                what = f"step {contract.keys[step.step_id]!r}"
                self._work.insist_on_place(what, asked_of(binding), step.step_type)

    def _keep_files(self) -> None:
        """Put the files of the contract into the content store before anything names them."""
        kept = self._work.backend.files
        for named, source in self._inputs.contract.files.items():
            if not kept.has(parse_digest(named)) and (mapping := source.keep(kept))["$file"] != named:
                raise DetentError(
                    f"the file {mapping['name']} was written to after the flow had been recorded with it",
                    code="DEPENDENCY_MISMATCH",
                    hint="run the flow again, and leave the file alone until the run has begun",
                )

    def _identity(self) -> tuple[RunIdentity, RunLock]:
        home, backend = self._work.home.path, self._work.backend
        if self._taken is not None:
            taken, self._taken = self._taken, None
            return taken
        if not self._new:
            for run in unfinished(backend, self._inputs):
                lock = RunLock.take(home, run.run_id)
                if lock is not None:
                    return RunIdentity(run.run_id, UUID(run.operation_id), resumed=True), lock
        RunLock.sweep(home, {row.run_id for row in backend.reader.runs(status=RUN_OPEN)})
        while True:
            run_id = new_run_id(self._inputs.name, backend.random)
            lock = RunLock.take(home, run_id)
            if lock is not None:  # Else a cleanup took the new file for one that was left.
                return RunIdentity(run_id, UUID(bytes=backend.random(16), version=4)), lock

    def _make_driver(self, identity: RunIdentity) -> Driver:
        work = self._work
        driver = Driver(
            work.backend,
            self._inputs,
            identity,
            self._work_keys,
            supervisor=work.supervisor,
            options=replace(self._options, workers=work.workers),
            start=self._start,
        )
        unlisten, unobserve = work.listen(driver.attempted), work.session.observe(driver.observe)

        def leave() -> None:
            unlisten()
            unobserve()

        self._leave = leave
        if self._cancel is not None:
            driver.cancel(self._cancel)
        if self._stopped:
            driver.stop()
        return driver

    def _start(self) -> None:
        """Start the workers, now that something has to run, and say what they find in the queue."""
        self._tell_ahead()
        self._work.start()

    def _tell_ahead(self) -> None:
        if not self._told_ahead:
            self._told_ahead = True
            self._note = self._note or ahead_of(self._work, self.run_id)

    def _result(self, driver: Driver, status: str) -> RunResult:
        failed = tuple(
            FailedJob(step.key, element.source or element.job_id, element.message)
            for step in driver.progress.steps
            for element in step.elements
            if element.state == FAILED
        )
        # A step may fail without any job: its `map:` gave something other than a list, or one too long.
        failed += tuple(
            FailedJob(step.key, str(step.action_id), step.message)
            for step in driver.progress.steps
            if step.state == FAILED and all(element.state not in {FAILED, CANCELLED} for element in step.elements)
        )
        made = {
            step.key: tuple(element.source or element.job_id for element in step.elements if element.left_files)
            for step in driver.progress.steps
        }
        return RunResult(
            driver.identity.run_id,
            self._inputs.name,
            status,
            driver.progress.message,
            driver.result(self._file) if status == COMPLETED else None,
            self.view(),
            failed,
            {step: jobs for step, jobs in made.items() if jobs},
            self._inputs.contract.result is not None,
        )


def ahead_of(work: Runtime, run_id: str) -> str:
    """What runs that were left as they stood have in the queue, where it comes first; nothing when there is none.

    Such jobs are like any others: any process with workers does them, and their results are there when the run resumes.
    """
    reader, home = work.backend.reader, work.home.path
    open_runs = {row.run_id for row in reader.runs(status=RUN_OPEN)} - {run_id}
    left = {other for other in open_runs if not is_driven(home, other)}
    if not left:
        return ""
    # As of one moment: a worker may take such a job between a look at what is queued and one at what runs.
    with work.parts.open_snapshot(work.home.ledger) as still:
        jobs = Counter(row.run_id for state in OPEN for row in still.jobs(state=state) if row.run_id in left)
    return "; ".join(
        f"finishing {count_text(count, 'leftover job')} of interrupted run {other} first:"
        f" `detent cancel {other}` ends it"
        for other, count in sorted(jobs.items(), key=str)
    )


def recorded_options(options: Options, *, new: bool = False) -> dict[str, JsonValue]:
    """What a run's record says of how it was started: what changes decisions. A salt's value is never shown."""
    asked = {"force": options.force, "reuse_failed": options.reuse_failed, "salt": options.salt is not None, "new": new}
    return {name: True for name, said in asked.items() if said}


def step_view(
    step: StepRun,
    begun: Mapping[str, int],
    now_ms: int,
    progress: Mapping[str, Callable[[], tuple[int, int, int]]] | None = None,
    told: Mapping[str, tuple[float, str]] | None = None,
) -> StepView:
    """A step at this moment. Called from another thread than the driver's: what it reads only ever grows or changes.

    ``begun`` are the jobs that workers of this home have now, in any process, and since when. ``progress`` describes jobs that work through
    items: while such a step runs, its elements are the items. ``told`` has what tasks say of themselves; it is shown for a
    step that is one task.
    """
    elements = step.elements
    if progress and step.state == RUNNING and elements and not step.mapped:
        asked = progress.get(elements[0].source or elements[0].job_id)
        if asked is not None:
            done, failed, total = asked()
            name = step.step.step_name
            since = begun.get(elements[0].source or elements[0].job_id, step.started_ms or now_ms)
            ran_ms = step.ran.total_ms([(since, now_ms)])
            return StepView(
                *(step.key, name, RUNNING, total, done),
                running=1,
                failed=failed,
                started_ms=step.started_ms,
                ran_ms=ran_ms,
            )
    if len(elements) == 1 and elements[0].state == step.state and step.state in {SUCCEEDED, REUSED}:
        # What nearly all steps of a large run are; a view of it is made several times a second.
        return StepView(
            step.key,
            step.step.step_name,
            step.state,
            1,
            1,
            int(step.state == REUSED),
            started_ms=step.started_ms,
            ended_ms=step.ended_ms,
            ran_ms=step.ran.total_ms() if step.tried else None,
            message=step.message,
        )
    states = [element.state for element in elements]
    cached = states.count(REUSED)
    under_way = [element for element in elements if element.state == RUNNING]
    waiting = [element for element in under_way if element.live_job not in begun]
    # Elements that share a job run one after the other.
    running = {element.live_job for element in under_way} & begun.keys()
    ran_ms = step.ran.total_ms((begun[job_id], now_ms) for job_id in running)
    said = None
    if told and step.state == RUNNING and len(elements) == 1:
        said = told.get(elements[0].source or elements[0].job_id)
    return StepView(
        step.key,
        step.step.step_name,
        READY if step.state == RUNNING and len(waiting) == len(under_way) else step.state,
        len(elements) if step.opened or not step.mapped else None,
        states.count(SUCCEEDED) + cached,
        cached,
        len(running),
        states.count(FAILED),
        retrying=sum(element.attempts > 0 for element in waiting),
        retries=sum(element.attempts for element in elements),
        again=_again(waiting, now_ms),
        started_ms=step.started_ms,
        ended_ms=step.ended_ms,
        ran_ms=ran_ms if step.tried or len(waiting) < len(under_way) else None,
        message=step.message if said is None else said[1],
        fraction=None if said is None else said[0],
    )


def _again(waiting: Iterable[Element], now_ms: int) -> str:
    """Of elements that wait for another attempt, what follows for the one whose last attempt ended last."""
    repeated = [element for element in waiting if element.next_attempt is not None]
    if not repeated:
        return ""
    last = max(repeated, key=lambda element: element.next_attempt.at_ms if element.next_attempt else 0)
    said = last.next_attempt.text(now_ms) if last.next_attempt else ""
    return said if last.index is None else f"[{last.index}] {said}"
