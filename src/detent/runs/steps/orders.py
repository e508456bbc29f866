"""An element of a step on its way to becoming a job: its work key, its order, its submission."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from detent.canon.strict_json import JsonValue
from detent.contract.model import Binding, memory_limit_of, retries_of, wall_limit_of
from detent.jobs.order import Call, ElementOrder, JobLimits, Order, Origin, Retries
from detent.jobs.values import restored, results_named
from detent.jobs.work import WorkReport
from detent.owner.backend import Backend, Inline, Submission
from detent.reuse.work_keys import WorkKey, WorkKeys
from detent.runs.record.inputs import REQUEST_ID, TRACEPARENT, RunInputs
from detent.runs.record.step_run import Binder, Element, StepRun


def asked_of(binding: Binding) -> JobLimits:
    """What a step says about where its jobs run, and what they take there."""
    return JobLimits(resources=binding.resources, pool=binding.pool, labels=binding.labels)


def limits_of(step: StepRun, call: Call) -> JobLimits:
    """What a job of a step may take and how often it is tried, with where each limit was set."""
    payload = call.target if call.kind == "job" else None
    wall_ms, wall_by = wall_limit_of(step.step, step.binding, payload)
    memory_mb, memory_by = memory_limit_of(step.step, payload)
    retries = retries_of(step.step, step.binding)
    return replace(
        asked_of(step.binding),
        wall_ms=wall_ms,
        wall_by=wall_by,
        memory_mb=memory_mb,
        memory_by=memory_by,
        retries=Retries() if retries is None else Retries(*retries),
        policies=step.binding.policies,
    )


def _element_order(element: Element, work_key: WorkKey, mapped: str) -> ElementOrder:
    name = f"argument:{mapped}"
    keywords = {mapped: work_key.call.keywords[mapped]}
    # Where the item names no result, its digest follows from it, and is not written down.
    own = {name: work_key.ingredients[name]} if next(results_named(keywords[mapped]), None) is not None else {}
    return ElementOrder(work_key.call.arguments, keywords, element.index, own, element.again)


def _without(said: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key != name}


class Orders:
    """Makes orders for one run. It knows the values of the run's results, and puts them where steps refer to them."""

    def __init__(
        self,
        backend: Backend,
        inputs: RunInputs,
        run_id: str,
        work_keys: WorkKeys,
        steps: list[StepRun],
        salt: str | None,
    ) -> None:
        self._backend = backend
        self._inputs = inputs
        self._run_id = run_id
        self._work_keys = work_keys
        self._salt = salt
        traceparent, request_id = inputs.about.get(TRACEPARENT), inputs.about.get(REQUEST_ID)
        self._traceparent = traceparent if isinstance(traceparent, str) else None
        self._request_id = request_id if isinstance(request_id, str) else None
        self._binder = Binder(
            inputs.params, {step.key: step for step in steps}, base=inputs.contract.base, load=self._load
        )
        self._step_limits: dict[str, JobLimits] = {}
        self._value_digests: dict[str, bytes] = {}
        """What the values of this run's results are, by the names of these."""

    def learn(self, element: Element, report: WorkReport | None) -> None:
        """Note what the value of an element is, for those that are given it."""
        if element.result is not None and report is not None and report.value_digest is not None:
            self._value_digests[element.result] = report.value_digest
            element.left_files = bool(report.result.files)

    def items(self, step: StepRun) -> list[JsonValue] | None:
        """What a mapped step goes through; None when that is not a list."""
        return self._binder.items(step)

    def result(self, file: Callable[[dict[str, Any]], Any]) -> Any:
        """What the whole run gives back, as the contract says; ``file`` makes of a file's mapping what files are."""
        value = self._binder.stored(self._inputs.contract.result)
        return restored(value, self._binder.value, file)

    def work_key(self, element: Element) -> WorkKey:
        """What an element's work is made of."""
        call = self._binder.call(element)
        return self._work_keys.of(
            call,
            self._value_digests.__getitem__,
            limits=self._limits(element.step, call),
            salt=self._salt,
            load=self._binder.value,
        )

    def _limits(self, step: StepRun, call: Call) -> JobLimits:
        """The limits of a step's jobs: one for all of its elements, unless each has a payload that may say others."""
        if call.kind == "job":
            return limits_of(step, call)
        known = self._step_limits.get(step.key)
        if known is None:
            known = self._step_limits[step.key] = limits_of(step, call)
        return known

    def submission(self, element: Element, work_key: WorkKey) -> Submission:
        """The element as a job."""
        step = element.step
        origin = Origin(
            run_id=self._run_id,
            step=step.key,
            index=element.index,
            again=element.again,
            ingredients=work_key.ingredients,
            action=step.action(),
            traceparent=self._traceparent,
            request_id=self._request_id,
        )
        limits = work_key.limits or self._limits(step, work_key.call)
        return self._backend.submission(
            Order(work_key.call, self.label(step), limits, origin),
            job_id=element.job_id,
            job_kind="action",
            priority=step.priority,
            key=work_key.key,
            run_id=self._run_id,
        )

    def array(self, elements: Sequence[tuple[Element, WorkKey]]) -> Submission:
        """Some elements of a step as one job. All but their items is the same."""
        first, key = elements[0]
        step, mapped = first.step, first.step.mapped_name
        ingredients = {name: said for name, said in key.ingredients.items() if name != f"argument:{mapped}"}
        order = Order(
            replace(key.call, arguments=(), keywords=_without(key.call.keywords, mapped)),
            self.label(step),
            key.limits or self._limits(step, key.call),
            Origin(
                run_id=self._run_id,
                step=step.key,
                ingredients=ingredients,
                action=step.action(),
                traceparent=self._traceparent,
                request_id=self._request_id,
            ),
            tuple([_element_order(element, one, mapped) for element, one in elements]),
        )
        return self._backend.submission(
            order,
            job_id=step.array_id(first.index or 0),
            job_kind="action",
            priority=step.priority,
            key=[one.key for _, one in elements],
            run_id=self._run_id,
        )

    def about_reuse(self, element: Element, work_key: WorkKey) -> tuple[bytes, Inline]:
        """What a record of a reuse names: the ingredients that were equal."""
        return self._backend.sealed_trusted(
            {"label": self.label(element.step), "ingredients": dict(work_key.ingredients), "index": element.index}
        )

    def label(self, step: StepRun) -> str:
        """What the step's work is called across runs."""
        return f"{self._inputs.name}/{step.key}"

    def _load(self, named: str) -> JsonValue:
        report = self._backend.result(named)
        return None if report is None else self._backend.value(report)
