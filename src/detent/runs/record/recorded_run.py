"""A run as the ledger tells it: its steps, which jobs they became, and which earlier results they took.

Steps are not on the ledger. What is: the contract by digest, with the run's inputs as content; the operation id, from which
every job id follows; the jobs; and a record for each step that took an earlier result. Put together they say of every step
its outcome, whether its driver still lives or not. Once the inputs were erased only the jobs are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from typing import Any, Final
from uuid import UUID

from detent.canon.late import dataclass
from detent.contract.references import FROM, PARAM
from detent.errors import DetentError
from detent.jobs.elements import element_id
from detent.jobs.work import WorkReport
from detent.kernel import Evidence, Job, Run, same_partition
from detent.kernel import run as run_status
from detent.kernel.run import CANCELLED_WITH_RUN
from detent.kernel.table import State
from detent.ledger.signing import report_named
from detent.owner.content import Content, open_value, order_of
from detent.owner.views import Times
from detent.runs.record.inputs import RunInputs, digests_of, parse_inputs
from detent.runs.record.outcome import failure_of, read_report
from detent.runs.record.requests import RUN_TIMEOUT, out_of_time
from detent.runs.record.reuses import Reuses
from detent.runs.record.step_run import StepRun, list_fault
from detent.runs.record.view import Spans, StepView
from detent.store.api import JobRow, StoreReader
from detent.words.states import BLOCKED, CANCELLED, DONE, FAILED, READY, REUSED, RUNNING, SKIPPED, SUCCEEDED, WAITING
from detent.workers.next_attempt import unreported
from detent.workflow.context import ExecutionContext
from detent.workflow.identity import uuid8
from detent.workflow.walk import PlainPlan, plan_plain

INPUTS_KEPT: Final = 8
"""Runs whose inputs stay parsed; the largest has some ten megabytes."""
GAP_MAX: Final = 1_000
"""Elements of a mapped step that may be missing, because they were never submitted, before those that are there."""
REPORTS_READ_MAX: Final = 1_000
"""Jobs of a step whose reports are read to learn for how long it ran."""
_NO_LIST: Final = -1
"""The length of a value that is known and not a list."""


@dataclass(frozen=True, slots=True)
class RecordedElement:
    """One job's worth of a step: a job of the run, or the job of an earlier one whose result was taken.

    An element that shares its job with others is called by the job and its place there, and has what is its own of the rest.
    """

    index: int | None
    job_id: str
    state: str
    """Of the job, or of the element."""
    reused: bool = False
    ingredients_digest: bytes | None = None
    """Names what the key of a reused element was made of."""
    row: JobRow | None = None
    """Of the job, which may be an array."""
    place: int | None = None
    """Which element of the array it is."""

    @property
    def carrier(self) -> str:
        """The job itself: where it is an array, that."""
        return self.job_id if self.place is None or self.row is None else self.row.job_id


@dataclass(frozen=True, slots=True)
class Live:
    """What workers have now."""

    since_ms: Mapping[str, int]
    """By job, since when."""
    now_ms: int


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of a recorded run."""

    view: StepView
    step_id: str
    needs: tuple[str, ...]
    mapped: bool
    elements: tuple[RecordedElement, ...]
    waits_for: tuple[str, ...] = ()
    """Steps that it needs and that are not done."""

    @property
    def key(self) -> str:
        """What people call it."""
        return self.view.key


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run with its inputs and steps."""

    run: Run
    inputs: RunInputs
    steps: tuple[RecordedStep, ...]

    def step(self, key: str) -> RecordedStep | None:
        """The step of a key."""
        return next((step for step in self.steps if step.key == key), None)

    @property
    def message(self) -> str:
        """Why the run as a whole ended as it did, where its steps do not say it: its own time was over (X-116)."""
        return _out_of_time(self.inputs) if self.run.reason_code == RUN_TIMEOUT else ""


def inputs_of(content: Content, run: Run) -> RunInputs | None:
    """What a run was started with; None when that was erased, or when it was started by something else."""
    try:
        data = content.get(run.inputs_digest)
        return None if data is None else _parsed(data, run.run_id)
    except DetentError:
        return None


@lru_cache(maxsize=INPUTS_KEPT)
def _parsed(data: bytes, run_id: str) -> RunInputs:
    """The inputs of a run. A page that is looked at asks for the same run again and again, and large contracts take seconds."""
    return parse_inputs(open_value(data), run_id)


def recorded_run(reader: StoreReader, content: Content, run: Run, live: Live | None = None) -> RecordedRun | None:
    """Put a run together; None when its inputs are gone.

    ``live`` tells which jobs workers have now: what was claimed and waits, for a free worker or for resources, does not run.
    Without it, all that is claimed counts as running.
    """
    inputs = inputs_of(content, run)
    if inputs is None:
        return None
    return RecordedRun(run, inputs, tuple(_Reading(reader, content, run, inputs, live).steps()))


def element_report(reader: StoreReader, content: Content, element: RecordedElement) -> WorkReport | None:
    """The report of an element: its job's, or its own part of that; None when there is none, or it is gone."""
    report = None if element.row is None else report_of(reader, content, element.row)
    return report if report is None or element.place is None else report.of_element(element.place)


def report_of(reader: StoreReader, content: Content, row: JobRow) -> WorkReport | None:
    """The report by which a job's last attempt ended; None when there is none, or it is gone."""
    exit_seq = Job.decode(row.body).exit_seq
    record = None if exit_seq is None else reader.transition(row.job_id, exit_seq)
    if record is None or record.evidence is None:
        return None
    try:
        digest = Evidence.decode(record.evidence).detail_digest
    except DetentError:
        return None
    return None if digest is None else read_report(content, digest)


def value_of(content: Content, report: WorkReport) -> bytes | None:
    """The strict JSON of a report's value; None when it has none, or it is gone."""
    try:
        return report.result.value if report.value_content is None else content.get(report.value_content)
    except DetentError:
        return None


class _Reading:
    """Everything about one run, looked up once."""

    def __init__(self, reader: StoreReader, content: Content, run: Run, inputs: RunInputs, live: Live | None) -> None:
        self._live = live
        self._reader, self._content, self._run, self._inputs = reader, content, run, inputs
        self._suits = same_partition(run.run_id, reader.partitions)
        self._times = Times.of(reader)
        self._rows = {row.job_id: row for row in reader.jobs(run_id=run.run_id)}
        self._reuses = Reuses(reader, run.run_id, partial(order_of, content))
        self._failed: dict[str, WorkReport | None] = {}
        """The reports of arrays that failed."""
        self._places: dict[tuple[str, int], tuple[JobRow, int]] = {}
        """Where elements are that share a job, by their step and index; of arrays that have been come upon."""
        self._names = {step.step_id: step.step_name for step in inputs.contract.plain_steps}
        self._totals: dict[str, int | None] = {}

    def steps(self) -> Iterator[RecordedStep]:
        """The steps in canonical order, the disabled ones last."""
        contract = self._inputs.contract
        ids = {step.step_id: step for step in contract.plain_steps}
        planned = self._planned({}).planned
        elements: dict[UUID, tuple[RecordedElement, ...]] = {}
        order = [step.step_id for step, *_ in planned]
        for step, action_id, priority, _ in planned:
            step_id = step.step_id
            binding = contract.bindings.get(step_id)
            if binding is None:
                continue
            one = StepRun(contract.keys[step_id], step, binding, action_id, priority, suits=self._suits)
            elements[step_id] = tuple(self._elements(one))
        views = {step_id: self._view(step_id, elements) for step_id in elements}
        self._fail_unopened(views, elements)
        self._settle(views, elements)
        order += [step.step_id for step in contract.plain_steps if not step.enabled]
        for step_id in order:
            step, binding = ids[step_id], contract.bindings.get(step_id)
            needs = tuple(contract.keys[need] for need in step.depends_on)
            view = views.get(step_id) or StepView(
                contract.keys[step_id], step.step_name, SKIPPED, message="disabled" if not step.enabled else ""
            )
            open_needs = (need for need in step.depends_on if need in views and views[need].state not in DONE)
            waits_for = tuple(contract.keys[need] for need in open_needs) if view.state == WAITING else ()
            mapped = binding is not None and binding.map is not None
            yield RecordedStep(view, str(step_id), needs, mapped, elements.get(step_id, ()), waits_for)

    def _planned(self, failed: Mapping[UUID, str]) -> PlainPlan:
        contract = self._inputs.contract
        context = ExecutionContext(
            operation_id=UUID(self._run.operation_id), reported_failures=failed, suits=self._suits
        )
        workflow_id = uuid8(digests_of(contract)[0])
        return plan_plain(contract.plain_steps, workflow_id, context, timeout_ms=contract.outline.timeout_ms)

    def _elements(self, step: StepRun) -> Iterator[RecordedElement]:
        if not step.mapped:
            if (element := self._element(step, None)) is not None:
                yield element
            return
        misses = 0
        for index in count():
            element = self._element(step, index)
            misses = 0 if element is not None else misses + 1
            if element is not None:
                yield element
            elif misses > GAP_MAX:
                return

    def _element(self, step: StepRun, index: int | None) -> RecordedElement | None:
        if (taken := self._reuses.of(step.step_id, index)) is not None:
            row, name = self._reuses.row(taken.job_id), element_id(taken.job_id, taken.element)
            state = State.SUCCEEDED.value if row is None or taken.element is not None else row.state
            return RecordedElement(index, name, state, True, taken.ingredients_digest, row, taken.element)
        row = self._rows.get(step.job_id(index))
        if row is not None:
            return RecordedElement(index, row.job_id, row.state, row=row)
        return None if index is None else self._in_array(step, index)

    def _in_array(self, step: StepRun, index: int) -> RecordedElement | None:
        """An element that shares its job: arrays are found by the first of their elements."""
        if (row := self._rows.get(step.array_id(index))) is not None:
            order = order_of(self._content, row)
            for place, one in enumerate(() if order is None else order.elements):
                self._places[step.key, index if one.index is None else one.index] = row, place
        found = self._places.get((step.key, index))
        if found is None:
            return None
        row, place = found
        return RecordedElement(index, element_id(row.job_id, place), self._state_in(row, place), row=row, place=place)

    def _state_in(self, row: JobRow, place: int) -> str:
        """How an element of an array ended. Of an array that failed, its report tells which of them did."""
        if row.state != State.FAILED:
            return row.state
        if row.job_id not in self._failed:
            self._failed[row.job_id] = report_of(self._reader, self._content, row)
        report = self._failed[row.job_id]
        own = None if report is None else report.of_element(place)
        return State.SUCCEEDED.value if own is not None and own.ok else row.state

    def _view(self, step_id: UUID, elements: Mapping[UUID, tuple[RecordedElement, ...]]) -> StepView:
        """A step by the outcomes of its elements; one without any is waiting until the others are known."""
        contract = self._inputs.contract
        key, name = contract.keys[step_id], self._names[step_id]
        found = elements[step_id]
        mapped = contract.bindings[step_id].map
        total = 1 if mapped is None else self._total(mapped[1], elements)
        if not found:
            return StepView(key, name, WAITING, total)
        own = [element for element in found if not element.reused and element.row is not None]
        states = [element.state for element in own]
        cached = len(found) - len(own)
        done, failed = states.count(State.SUCCEEDED) + cached, states.count(State.FAILED)
        live = len(states) - states.count(State.SUCCEEDED) - failed - states.count(State.CANCELED)
        # Elements that share a job run one after the other.
        running = len({element.carrier for element in own if self._runs(element)})
        state, message = self._state(found, own, done, (live, running), total)
        ticks = [Job.decode(element.row.body).submitted_tick for element in own if element.row is not None]
        over = [element.row.tick for element in own if element.row is not None]
        return StepView(
            key,
            name,
            state,
            len(found) if total is None else max(total, len(found)),
            done,
            cached,
            running,
            failed,
            retrying=states.count(State.RETRYING),
            started_ms=self._ms(min(ticks)) if ticks else None,
            ended_ms=self._ms(max(over)) if over and not live else None,
            ran_ms=self._ran_ms(own),
            message=message,
        )

    def _runs(self, element: RecordedElement) -> bool:
        return element.state == State.RUNNING and (self._live is None or element.carrier in self._live.since_ms)

    def _ran_ms(self, own: Sequence[RecordedElement]) -> int | None:
        """For how long workers were at a step, by the reports of its attempts; None when they are too many to be read."""
        jobs = {element.carrier: element for element in own}
        if len(jobs) > REPORTS_READ_MAX:
            return None
        begun, spans = False, Spans()
        for element in jobs.values():
            if self._live is not None and self._runs(element):
                begun = True
                spans.add(self._live.since_ms[element.carrier], self._live.now_ms)
            for report in self._reports(element):
                begun = True
                spans.add(report.result.started_ms, report.result.finished_ms)
        return spans.total_ms() if begun else None

    def _reports(self, element: RecordedElement) -> Iterator[WorkReport]:
        """The reports of all attempts at the job of an element."""
        row = element.row
        if row is not None and row.attempt_id == 0:
            if (report := report_of(self._reader, self._content, row)) is not None:
                yield report
            return
        for record in self._reader.records_of_job(element.carrier):
            transition = record.kind == "transition" and record.evidence is not None
            named = report_named(record.evidence or b"") if transition else None
            if named is not None and (report := read_report(self._content, named)) is not None:
                yield report

    def _state(
        self,
        found: tuple[RecordedElement, ...],
        own: list[RecordedElement],
        done: int,
        live: tuple[int, int],
        total: int | None,
    ) -> tuple[str, str]:
        for element in own:
            if element.row is None:
                continue
            if element.state == State.FAILED:
                return FAILED, self._why(element, element.row)
            if element.state == State.CANCELED and not _is_cut(element):
                reason = Job.decode(element.row.body).reason_code
                return FAILED, _out_of_time(self._inputs) if reason == RUN_TIMEOUT else f"cancelled ({reason})"
        if live[0]:
            return (RUNNING if live[1] else READY), ""
        if done == len(found) and (total is None or done >= total):
            return (REUSED if not own else SUCCEEDED), ""
        return (READY if self._run.status == run_status.RUNNING else CANCELLED), ""

    def _why(self, element: RecordedElement, row: JobRow) -> str:
        report = element_report(self._reader, self._content, element)
        if report is None or report.result.failure is None:
            reason = Job.decode(row.body).reason_code
            return unreported(reason, f"it ended without a report ({reason})")
        told = failure_of("", report.result.failure).message.strip()
        return told.splitlines()[0] if told else report.result.failure.code

    def _settle(self, views: dict[UUID, StepView], elements: Mapping[UUID, tuple[RecordedElement, ...]]) -> None:
        """Give the steps without a job their state: the planner decides about the rest after a failure."""
        if all(elements[step_id] or view.state == FAILED for step_id, view in views.items()):
            return
        contract = self._inputs.contract
        failed = {step_id: view.message for step_id, view in views.items() if view.state == FAILED}
        planned = self._planned(failed)
        blocked, skipped = set(planned.failed), set(planned.skipped)
        first = next((contract.keys[step_id] for step_id in failed), "")
        passed = {need for step in contract.plain_steps if elements.get(step.step_id) for need in step.depends_on}
        for step in contract.plain_steps:
            view = views.get(step.step_id)
            if view is None or elements[step.step_id] or view.state == FAILED:
                continue
            needs = [contract.keys[need] for need in step.depends_on if need in failed]
            if str(step.step_id) in blocked:
                state, message = BLOCKED, f"needs {', '.join(needs)}" if needs else "a step it needs did not succeed"
            elif str(step.step_id) in skipped:
                state, message = SKIPPED, f"after the failure of {first}"
            elif step.step_id in passed or self._run.status == run_status.COMPLETED:
                state, message = SUCCEEDED, ""  # Mapped over an empty list: there was nothing to do.
            elif self._run.status != run_status.RUNNING:
                state, message = CANCELLED, "the run ended before it began"
            else:
                met = all(views[need].state in DONE for need in step.depends_on if need in views)
                state, message = READY if met else WAITING, ""
            total = 0 if state == SUCCEEDED else view.total
            views[step.step_id] = replace(view, state=state, message=message, total=total)

    def _fail_unopened(self, views: dict[UUID, StepView], elements: Mapping[UUID, tuple[RecordedElement, ...]]) -> None:
        """Say which mapped steps failed before they had a job: nothing on the ledger does, but what they were given."""
        contract = self._inputs.contract
        for step in contract.plain_steps if self._run.status == run_status.FAILED else ():
            view, binding = views.get(step.step_id), contract.bindings.get(step.step_id)
            if view is None or view.state != WAITING or binding is None or binding.map is None:
                continue
            length = self._length_of(binding.map[1], elements)
            fault = None if length is None else list_fault(view.key, None if length == _NO_LIST else length)
            met = all(views[need].state in DONE for need in step.depends_on if need in views)
            if fault is not None and met:
                views[step.step_id] = replace(view, state=FAILED, message=fault)

    def _total(self, listed: Any, elements: Mapping[UUID, tuple[RecordedElement, ...]]) -> int | None:
        """How long the list of a mapped step is, as far as that can be told."""
        length = self._length_of(listed, elements)
        return None if length == _NO_LIST else length

    def _length_of(self, listed: Any, elements: Mapping[UUID, tuple[RecordedElement, ...]]) -> int | None:
        """The same, with `_NO_LIST` for what is known to be none."""
        if type(listed) is list:
            return len(listed)
        if type(listed) is not dict:
            return None
        if PARAM in listed:
            if listed[PARAM] not in self._inputs.params:
                return None
            value = self._inputs.params[listed[PARAM]]
            return len(value) if type(value) is list else _NO_LIST
        contract = self._inputs.contract
        source = next((step_id for step_id, key in contract.keys.items() if key == listed.get(FROM)), None)
        binding = None if source is None else contract.bindings.get(source)
        if source is None or binding is None:
            return None
        if binding.map is not None:
            return self._length_of(binding.map[1], elements)
        key = contract.keys[source]
        if key not in self._totals:
            self._totals[key] = self._length(elements.get(source, ()))
        return self._totals[key]

    def _length(self, made: tuple[RecordedElement, ...]) -> int | None:
        from detent.canon import json_decode  # noqa: PLC0415 - most runs have no need of it

        report = element_report(self._reader, self._content, made[0]) if made else None
        data = None if report is None else value_of(self._content, report)
        if data is None:
            return None
        value = json_decode(data)
        return len(value) if type(value) is list else _NO_LIST

    def _ms(self, tick: int) -> int:
        return tick * self._times.tick_ms + self._times.epoch_base_ms


def _is_cut(element: RecordedElement) -> bool:
    """Whether its job was cancelled with the run, and not by itself."""
    if element.reused or element.row is None or element.state != State.CANCELED:
        return False
    return Job.decode(element.row.body).reason_code == CANCELLED_WITH_RUN


def _out_of_time(inputs: RunInputs) -> str:
    return out_of_time(inputs.contract.outline.timeout_ms or 0)
