"""What a run would do with each step: run it, or take an earlier result. Told before anything runs, and only by reading.

A step's key follows from its code, its arguments and its inputs. As long as everything before it is taken from earlier runs,
its arguments are known and so is the answer. After a step that will run, it depends on what that one gives: if that turns
out the same as before, the later steps are reused all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, cast

from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract import Contract
from detent.contract.map_run import may_read
from detent.contract.model import REFERRING, Binding, Kind
from detent.contract.references import param_names, step_keys
from detent.errors import DetentError
from detent.inspect.explain_reuse import change_map, change_text
from detent.jobs.order import Call, Order
from detent.owner.backend import Backend
from detent.owner.content import Content
from detent.owner.home import Home
from detent.owner.session import Session
from detent.owner.wiring import Parts
from detent.reuse.earlier_jobs import EarlierJobs
from detent.reuse.ingredients import Change, describe
from detent.reuse.work_keys import Found, Miss, Options, WorkKey, WorkKeys
from detent.runs.record.inputs import RunInputs, unfinished
from detent.runs.record.step_run import Binder, Element, StepRun
from detent.runs.steps.orders import limits_of
from detent.words.states import REUSED, SUCCEEDED, word_of
from detent.workflow.ordering import get_execution_order

RUN, REUSE, JOIN, DEPENDS, UNKNOWN = "run", "reuse", "join", "depends", "unknown"
"""It will run; it takes an earlier result; it waits for equal work under way; it depends on steps that will run; it cannot
be told."""
ELEMENTS_LOOKED_MAX: Final = 2_000
CHANGES_TOLD_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class StepPreview:
    """What would become of one step."""

    verdict: str
    why: str
    total: int | None = 1
    """Elements; None when the list of a mapped step is not known."""
    reused: int = 0
    jobs: tuple[str, ...] = ()
    """Jobs whose results would be taken or waited for."""
    depends_on: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def to_map(self) -> dict[str, object]:
        """As data."""
        return {
            "verdict": self.verdict,
            "why": self.why,
            "total": self.total,
            "reused": self.reused,
            "jobs": list(self.jobs),
            "depends_on": list(self.depends_on),
            "changes": [change_map(change) for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """What a run of a contract would do on a home."""

    home: str
    steps: Mapping[str, StepPreview] = field(default_factory=dict)
    """By key; disabled steps have none."""
    resumes: str | None = None
    """The unfinished run that would be taken up."""
    warnings: tuple[str, ...] = ()
    """What its user should know beforehand."""

    def count(self, verdict: str) -> int:
        """How many steps have this verdict."""
        return sum(step.verdict == verdict for step in self.steps.values())


def preview_plan(
    home: Home,
    contract: Contract,
    params: Mapping[str, JsonValue],
    missing: tuple[str, ...] = (),
    *,
    tenant: str | None = None,
) -> PlanPreview:
    """Look at a home and say what a run of the contract would do there. Nothing is changed, and no owner is needed.

    ``tenant`` is the workspace whose earlier results count; the home's own, if None.
    """
    with reading_backend(home) as whole:
        backend = whole if tenant is None else whole.for_tenant(tenant)
        seer = _Seer(backend, contract, params, frozenset(missing))
        for step_id in get_execution_order(contract.plain_steps):
            if (step := seer.steps.get(contract.keys[step_id])) is not None:
                seer.told[step.key] = seer.look(step)
        open_runs = () if missing else unfinished(backend, RunInputs(contract, params))
        resumes = next((run.run_id for run in open_runs), None)
        return PlanPreview(str(home.path), seer.told, resumes, seer.warnings)


def reading_backend(home: Home, parts: Parts | None = None) -> Backend:
    """A read-only backend: without a session nothing can be changed."""
    return Backend(home, cast("Session", None), parts=parts)


class _Seer:
    """Goes through the steps in order and keeps the results that they would take."""

    def __init__(
        self, backend: Backend, contract: Contract, params: Mapping[str, JsonValue], missing: frozenset[str]
    ) -> None:
        self._backend, self._contract, self._params, self._missing = backend, contract, params, missing
        self._content = Content(backend.reader, backend.files)
        self._work_keys = WorkKeys(backend)
        self._name = contract.outline.name
        self._values: dict[str, bytes] = {}
        self.told: dict[str, StepPreview] = {}
        self.steps = {
            contract.keys[step.step_id]: StepRun(
                contract.keys[step.step_id], step, contract.bindings[step.step_id], step.step_id, 1
            )
            for step in contract.plain_steps
            if step.enabled and step.step_id in contract.bindings
        }
        self._binder = Binder(params, self.steps, base=contract.base, load=self._load)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Tasks that are given files by their names alone."""
        return self._work_keys.path_arguments.warnings

    def look(self, step: StepRun) -> StepPreview:
        """What would become of a step, given what becomes of those before it."""
        binding = step.binding
        if lacking := [name for name in param_names(_written(binding)) if name in self._missing]:
            return StepPreview(UNKNOWN, f"needs a value for {', '.join(lacking)}", None if step.mapped else 1)
        needs = [self._contract.keys[need] for need in step.step.depends_on]
        unsure = tuple(need for need in needs if need in self.told and self.told[need].verdict != REUSE)
        given = step_keys(_written(binding))
        # A step that only comes after another is shown on its own, unless that one may write the files it reads.
        if unsure and (self._reads(binding) or any(need in given for need in unsure)):
            return StepPreview(
                DEPENDS, f"depends on {', '.join(unsure)}", None if step.mapped else 1, depends_on=unsure
            )
        try:
            return self._elements(step)
        except DetentError as exc:
            return StepPreview(UNKNOWN, str(exc), None if step.mapped else 1)

    def _reads(self, binding: Binding) -> bool:
        return bool(binding.inputs) or (binding.kind is Kind.MAP and may_read(binding.target, self._params))

    def _elements(self, step: StepRun) -> StepPreview:
        items = self._binder.items(step) if step.mapped else [None]
        if items is None:
            return StepPreview(UNKNOWN, "what it goes through is not a list", None)
        if len(items) > ELEMENTS_LOOKED_MAX:
            return StepPreview(UNKNOWN, f"its {len(items):,} elements are too many to look at beforehand", len(items))
        indices = range(len(items)) if step.mapped else (None,)
        step.elements = [Element(step, index, "", item) for index, item in zip(indices, items, strict=True)]
        step.opened = True
        jobs: list[str] = []
        misses: list[tuple[Element, WorkKey, Miss]] = []
        running = 0
        for element in step.elements:
            work_key = self._work_key(element)
            found = self._work_keys.find(work_key, Options(), since_ms=0)
            if isinstance(found, Miss):
                misses.append((element, work_key, found))
                continue
            jobs.append(found.name)
            running += found.running
            if not found.running:
                self._keep(element, found)
        return self._verdict(step, jobs, misses, running)

    def _verdict(
        self, step: StepRun, jobs: list[str], misses: list[tuple[Element, WorkKey, Miss]], running: int
    ) -> StepPreview:
        total, reused = len(step.elements), len(step.elements) - len(misses) - running
        if not misses:
            verdict = JOIN if running else REUSE
            why = f"waits for job {jobs[0]}, which does the same" if running else _taken(self._backend, jobs, total)
            return StepPreview(verdict, why, total, reused, tuple(jobs))
        element, work_key, miss = misses[0]
        why, changes = self._because(element, work_key, miss)
        if element.index is not None:
            some = f"{len(misses)} of {total}" if len(misses) < total else f"all {total}"
            why = f"{some}: {why}"
        return StepPreview(RUN, why, total, reused, tuple(jobs), changes=changes)

    def _because(self, element: Element, work_key: WorkKey, miss: Miss) -> tuple[str, tuple[Change, ...]]:
        if work_key.key is None:
            return f"done every time: {miss.why}", ()
        if miss.why:
            return miss.why, ()
        backend = self._backend
        label = f"{self._name}/{element.step.key}"
        earlier_jobs = EarlierJobs(backend.reader, self._content, backend.tenant, label)
        compared = earlier_jobs.nearest(work_key.ingredients, element.index)
        if (lost := earlier_jobs.erased_since(compared)) is not None:
            return f"job {lost.job_id}, which did it before, was erased", ()
        if compared is None:
            return "never done before", ()
        changes = tuple(compared.changes)
        if not changes and word_of(compared.row.state) == SUCCEEDED:
            return f"done as job {compared.name}, with other packages or another Python", ()
        if not changes:
            return f"job {compared.name} of the same work ended as {word_of(compared.row.state)}", ()
        more = f" and {len(changes) - CHANGES_TOLD_MAX} more" if len(changes) > CHANGES_TOLD_MAX else ""
        told = (self._told(change, compared.order, work_key.call) for change in changes[:CHANGES_TOLD_MAX])
        return "; ".join(told) + more, changes

    def _told(self, change: Change, old: Order, call: Call) -> str:
        """A change in a few words: arguments with their values, the rest without digests."""
        if not change.name.startswith("argument:"):
            return describe(change)
        return change_text(change, self._content, old.call, call)

    def _work_key(self, element: Element) -> WorkKey:
        call = self._binder.call(element)
        limits = limits_of(element.step, call)
        return self._work_keys.of(call, self._values.__getitem__, limits=limits, load=self._binder.value)

    def _keep(self, element: Element, found: Found) -> None:
        element.state, element.result = REUSED, found.result
        if found.result is not None and found.report is not None and found.report.value_digest is not None:
            self._values[found.result] = found.report.value_digest

    def _load(self, named: str) -> JsonValue:
        report = self._backend.result(named)
        return None if report is None else self._backend.value(report)


def _written(binding: Binding) -> Any:
    """Everything in a binding that may refer to steps and parameters."""
    listed = None if binding.map is None else binding.map[1]
    target = binding.target if binding.kind in REFERRING else None
    return [list(binding.arguments), dict(binding.keywords), dict(binding.env), listed, target]


def _taken(backend: Backend, jobs: list[str], total: int) -> str:
    if not jobs:
        return "nothing to do: its list is empty"
    row = backend.reader.job(jobs[0])
    whose = "" if row is None or row.run_id is None else f" of run {row.run_id}"
    return f"as job {jobs[0]}{whose}" if total == 1 else f"as {total} earlier jobs"
