"""Why each step of a run stands where it stands: run or reused and why, waiting for what, failed with what, blocked by whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from difflib import get_close_matches
from typing import Any, Final
from uuid import UUID

from detent.canon.late import dataclass
from detent.errors import InvalidInput
from detent.inspect.explain_job import takes_text
from detent.inspect.explain_reuse import AGAIN, CHANGED, FIRST, NEVER, WhyRun, reused_from, taken_ingredients, why_run
from detent.jobs.order import JobLimits
from detent.jobs.placing import wanted_words
from detent.kernel import Job
from detent.kernel.table import State
from detent.owner.content import Content, order_of
from detent.owner.views import ABSENT, ERASED, JobView, RunView, Times, run_view, whereabouts
from detent.reuse.earlier_jobs import EarlierJobs
from detent.runs.record.outcome import failures_of
from detent.runs.record.recorded_run import RecordedElement, RecordedRun, RecordedStep, recorded_run, report_of
from detent.runs.record.view import step_elapsed_ms
from detent.store.api import StoreReader
from detent.words.quantities import duration_text
from detent.words.states import BLOCKED, CANCELLED, FAILED, READY, REUSED, RUNNING, SKIPPED, SUCCEEDED, WAITING, word_of

ASKED: Final[Mapping[str, str]] = {
    "force": "It was started with --force: no result that was there before it began was taken.",
    "reuse_failed": "It was started with --reuse-failed: earlier failures of the same work were taken for answers.",
    "salt": "It was started with --salt: only results of work with the same salt were taken.",
    "new": "It was started with --new: no unfinished run was taken up.",
}
"""What options mean, for those who read a run later."""
ELEMENTS_TOLD_MAX: Final = 5
"""Elements of a mapped step that are listed one by one."""


@dataclass(frozen=True, slots=True)
class ToldElement:
    """One job's worth of a step, with why it ran or was reused."""

    index: int | None
    job_id: str
    state: str
    reused: bool
    lines: tuple[str, ...]
    why: WhyRun | None = None
    run_id: str | None = None
    """The run that the job belongs to."""
    ingredients: int = 0

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {
            "index": self.index,
            "job_id": self.job_id,
            "run_id": self.run_id,
            "state": word_of(self.state),
            "reused": self.reused,
            "ingredients": self.ingredients,
            "why": None if self.why is None else self.why.to_map(),
        }


@dataclass(frozen=True, slots=True)
class ToldStep:
    """One step, with what there is to say about it."""

    key: str
    state: str
    lines: tuple[str, ...]
    elements: tuple[ToldElement, ...]
    total: int | None
    reused: int
    waits_for: tuple[str, ...]

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {
            "step": self.key,
            "state": word_of(self.state),
            "lines": list(self.lines),
            "total": self.total,
            "reused": self.reused,
            "waits_for": list(self.waits_for),
            "jobs": [element.to_map() for element in self.elements],
        }


@dataclass(frozen=True, slots=True)
class RunExplanation:
    """A run, step by step."""

    view: RunView
    steps: tuple[ToldStep, ...]
    driven: bool | None
    """Whether a process drives it at this moment; None for a run that has ended."""
    options: Mapping[str, object] = field(default_factory=dict)
    """What it was started with that changes what is decided."""
    told: tuple[str, ...] = ()
    """What there is to say of how it ended, or of a run that has items and no steps."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What there is to say of the run as a whole."""
        return (*(text for name, text in ASKED.items() if self.options.get(name)), *self.told)

    def to_map(self) -> dict[str, object]:
        """As data: one document."""
        return {
            "run_id": self.view.row.run_id,
            "name": self.view.row.name,
            "status": word_of(self.view.row.status),
            "driven": self.driven,
            "options": dict(self.options),
            "lines": list(self.lines),
            "steps": [step.to_map() for step in self.steps],
        }


def explain_run(
    reader: StoreReader, content: Content, run_id: str, step: str | None = None, *, driven: bool | None = None
) -> RunExplanation:
    """Explain a run, or one step of it. Raises `InvalidInput` for a run or step that is not there."""
    view = run_view(reader, run_id)
    if view is None:
        raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint="`detent list` shows the runs")
    driven = driven if view.row.status == RUNNING else None
    recorded = recorded_run(reader, content, view.run)
    if recorded is None:
        return RunExplanation(view, (), driven, told=_without_steps(reader, content, view, step))
    chosen = recorded.steps if step is None else (_the_step(recorded, step),)
    teller = _Teller(reader, content, recorded, view.times)
    told = tuple(teller.tell(one, whole=step is not None) for one in chosen)
    ended = f"It did not end in time: {recorded.message}."
    return RunExplanation(view, told, driven, dict(recorded.inputs.options), (ended,) if recorded.message else ())


def _without_steps(reader: StoreReader, content: Content, view: RunView, step: str | None) -> tuple[str, ...]:
    """Explain an ordered run; an unknown run is refused, and so is an unknown step."""
    from detent.runs.ordered.recorded import recorded_ordered  # noqa: PLC0415 - most runs have steps

    run_id = view.row.run_id
    hint = f"`detent show {run_id}` lists its jobs, and `detent explain JOB` explains each"
    ordered = recorded_ordered(reader, content, view.run)
    if ordered is None:
        place, _ = whereabouts(reader, content, view.run.inputs_digest)
        lost = {ERASED: "was erased", ABSENT: "was never stored here"}.get(place, "cannot be read")
        raise InvalidInput(f"what run {run_id!r} was started with {lost}, so its steps cannot be told", hint=hint)
    if step is not None:
        raise InvalidInput(f"run {run_id!r} is an ordered run: it has items and no steps", hint=hint)
    spec, total = ordered.inputs.spec, ordered.inputs.config.total
    where = "" if spec.commit is None else f" to {spec.commit}"
    lines = [f"It calls {spec.compute} on {total:,} items and commits the results in their order{where}."]
    words = {"success": SUCCEEDED, "skip": SKIPPED, "fail": FAILED}
    counts = ordered.summary or {}
    said = ", ".join(f"{counts[name]:,} {word}" for name, word in words.items() if counts.get(name))
    lines.append(f"{ordered.committed:,} of {total:,} are committed" + (f": {said}." if said else "."))
    if ordered.boundary is not None:
        lines.append(f"It was cancelled from item {ordered.boundary:,} on.")
    elif view.row.status == RUNNING:
        lines.append(f"Item {ordered.committed:,} is next; what is computed after it waits for it.")
    return (*lines, hint + ".")


def _the_step(recorded: RecordedRun, key: str) -> RecordedStep:
    found = recorded.step(key)
    if found is None:
        near = get_close_matches(key, [step.key for step in recorded.steps], 1)
        keys = ", ".join(step.key for step in recorded.steps[:8])
        hint = f"did you mean {near[0]!r}?" if near else f"its steps are {keys}"
        raise InvalidInput(f"run {recorded.run.run_id!r} has no step {key!r}", hint=hint)
    return found


class _Teller:
    def __init__(self, reader: StoreReader, content: Content, recorded: RecordedRun, times: Times) -> None:
        self._reader, self._content, self._recorded, self._times = reader, content, recorded, times
        self._earlier_jobs: dict[str, EarlierJobs] = {}

    def tell(self, step: RecordedStep, *, whole: bool) -> ToldStep:
        most = len(step.elements) if whole or not step.mapped else ELEMENTS_TOLD_MAX
        # Users ask about elements that ran; reused ones are alike.
        chosen = sorted(step.elements, key=lambda element: (element.reused, element.index or 0))[:most]
        elements = tuple(self._element(element) for element in chosen)
        lines = [*self._lines(step, elements), *self._takes(step)]
        view = step.view
        return ToldStep(step.key, view.state, tuple(lines), elements, view.total, view.cached, step.waits_for)

    def _takes(self, step: RecordedStep) -> list[str]:
        binding = self._recorded.inputs.contract.bindings.get(UUID(step.step_id))
        if binding is None:
            return []
        wanted = JobLimits(pool=binding.pool, labels=binding.labels).wanted
        said = [takes_text(binding.resources)] if binding.resources else []
        return [*said, f"Only a worker with {wanted_words(wanted)} takes it."] if wanted else said

    def _element(self, element: RecordedElement) -> ToldElement:
        run_id = None if element.row is None else element.row.run_id
        if element.reused:
            taken = self._ingredients(element)
            lines = reused_from(element.job_id, element.row, taken, self._times)
            return ToldElement(
                element.index, element.job_id, element.state, True, tuple(lines), None, run_id, len(taken)
            )
        row = element.row
        view = None if row is None else JobView(row, Job.decode(row.body), self._times)
        why = None if view is None else why_run(self._reader, self._content, view, self._earlier_jobs, element.place)
        lines = [] if why is None else list(why.lines)
        count = 0 if why is None else why.ingredients
        return ToldElement(element.index, element.job_id, element.state, False, tuple(lines), why, run_id, count)

    def _ingredients(self, element: RecordedElement) -> Mapping[str, Any]:
        """What the key of a reused element was made of. With a whole run it was that of its job, which `verify` compares."""
        if element.ingredients_digest is not None or element.row is None:
            return taken_ingredients(self._content, element.ingredients_digest)
        order = order_of(self._content, element.row)
        return {} if order is None else order.origin.ingredients

    def _lines(self, step: RecordedStep, elements: tuple[ToldElement, ...]) -> list[str]:
        view = step.view
        if view.state == WAITING:
            return [f"It waits for {_listed(step.waits_for)}." if step.waits_for else "It waits for its turn."]
        if view.state == READY and not elements:
            return ["Everything it needs is done; its job has not been submitted yet, or it waits for equal work."]
        if view.state in {BLOCKED, SKIPPED} or not elements:
            return [_never_ran(step)]
        if step.mapped:
            return self._mapped(step, elements)
        (element,) = elements
        lines = [] if view.state == REUSED else [self._outcome(step, element.job_id)]
        return [*lines, *element.lines]

    def _mapped(self, step: RecordedStep, elements: tuple[ToldElement, ...]) -> list[str]:
        view = step.view
        known = len(step.elements)
        states = Counter(element.state for element in step.elements if not element.reused)
        counted = [(view.cached, REUSED), (view.done - view.cached, "run"), (view.failed, FAILED)]
        counted += [(states[State.CANCELED], CANCELLED), (states[State.RUNNING], "under way")]
        counted += [(states[State.QUEUED] + states[State.RETRYING], WAITING)]
        said = ", ".join(f"{number} {word}" for number, word in counted if number)
        lines = [f"{known} of {view.total if view.total is not None else known} elements: {said}."]
        ran = [element for element in elements if not element.reused]
        reasons: dict[tuple[str, ...], list[ToldElement]] = {}
        for element in ran:
            reasons.setdefault(_reason(element), []).append(element)
        for reason, alike in reasons.items():
            indices = _listed([str(element.index) for element in alike])
            who = f"Element{'s' if len(alike) > 1 else ''} {indices}"
            lines += [f"{who}: {reason[0]}" if reason else f"{who} ran.", *reason[1:]]
        left = known - view.cached - len(ran)
        if left > 0:
            lines.append(f"{left} more: `detent explain {self._recorded.run.run_id} {step.key}` explains each.")
        if not ran and elements:
            lines.append(f"All were reused; the first: {elements[0].lines[0]}")
        if view.state == FAILED:
            lines.append(_failed_element(step))
        return lines

    def _outcome(self, step: RecordedStep, job_id: str) -> str:
        view = step.view
        if view.state in {RUNNING, READY}:
            row = self._reader.job(job_id)
            if row is not None and row.state in {State.QUEUED, State.RETRYING}:
                return f"It waits for its turn: `detent explain {job_id}` shows which jobs go first."
            return f"It is under way: `detent explain {job_id}` says where."
        if view.state == CANCELLED:
            return "It was cancelled with the run."
        if view.state == FAILED:
            told = next(iter(failures_of(self._reader, self._content, [(step.key, job_id, view.message)])), None)
            where = "" if told is None or told.where is None else f", at {told.where}"
            code = "" if told is None else f" ({told.category} {told.code})"
            return f"It failed: {view.message}{code}{where}."
        row = self._reader.job(job_id)
        report = None if row is None else report_of(self._reader, self._content, row)
        took = None if report is None else report.result.finished_ms - report.result.started_ms
        if took is None:
            took = step_elapsed_ms(view, view.ended_ms or 0)
        return "It ran." if took is None else f"It ran, in {duration_text(took)}."


def _reason(element: ToldElement) -> tuple[str, ...]:
    """What elements that ran for one reason have in common: everything but which job each was compared with."""
    why = element.why
    if why is None or why.kind not in {FIRST, NEVER, CHANGED, AGAIN}:
        return element.lines
    if why.kind == CHANGED and element.lines[1:]:
        number = "one thing" if len(why.changes) == 1 else f"{len(why.changes)} things"
        return (f"done before, and {number} changed since:", *element.lines[1:])
    return element.lines


def _failed_element(step: RecordedStep) -> str:
    """Which elements failed, and why the first of them did."""
    failed = [str(element.index) for element in step.elements if element.state == State.FAILED and not element.reused]
    if not failed:
        return f"It failed: {step.view.message}"
    if len(failed) == 1:
        return f"Element {failed[0]} failed: {step.view.message}"
    return f"Elements {_listed(failed)} failed; the first: {step.view.message}"


def _never_ran(step: RecordedStep) -> str:
    view = step.view
    if view.state == FAILED:
        return f"It failed before it began: {view.message}."
    if view.state == BLOCKED:
        return (
            f"It never ran: {view.message}, which did not succeed."
            if view.message.startswith("needs ")
            else ("It never ran: a step it needs did not succeed.")
        )
    if view.state == SKIPPED:
        return f"It was skipped: {view.message}." if view.message else "It was skipped."
    if view.state == CANCELLED:
        return "It never ran: the run ended before it began."
    return "There was nothing to do: its list was empty."


def _listed(names: tuple[str, ...] | list[str]) -> str:
    shown = list(names[:ELEMENTS_TOLD_MAX])
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1] if shown else "nothing"
