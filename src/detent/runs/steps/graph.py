"""The steps of a run while it is under way: which may begin, which have ended, and what a failure does to the rest.

What becomes of the rest after a failure is the planner's decision (A.9): the failure is reported, and the plan is made anew. A
step that is already under way is left to finish; its result can be reused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from detent.canon.strict_json import JsonValue
from detent.runs.record.inputs import RunIdentity, RunInputs
from detent.runs.record.step_run import Element, StepRun, list_fault
from detent.runs.steps.plan import plan
from detent.words.states import BLOCKED, CANCELLED, FAILED, OVER, READY, REUSED, RUNNING, SKIPPED, SUCCEEDED, WAITING

_ONE: Final[list[JsonValue]] = [None]
"""What a step goes through that is not mapped."""


class RunGraph:
    """Steps and elements of one run; ``offers`` are the elements whose turn it is."""

    def __init__(
        self,
        inputs: RunInputs,
        identity: RunIdentity,
        steps: list[StepRun],
        items: Callable[[StepRun], list[JsonValue] | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._inputs = inputs
        self._identity = identity
        self._items = items
        self._now_ms = now_ms
        self.steps = steps
        self.one_by_one = inputs.contract.outline.one_by_one
        """Only one job is under way at a time, in the planner's order (X-194)."""
        self.offers: deque[Element] = deque()
        self.failed: dict[UUID, str] = {}
        self.ending = False
        """Nothing begins any more: the run is cancelled, or its time is over."""
        self.begun: frozenset[str] = frozenset()
        """Ids of steps that were under way when a run that is taken up was left."""
        self._empty: deque[StepRun] = deque()

    @property
    def has_more(self) -> bool:
        """Whether something could begin now."""
        return bool(self.offers or self._empty) and not self.ending

    @property
    def has_empty(self) -> bool:
        """Whether there are mapped steps over an empty list to be ended."""
        return bool(self._empty)

    def open_all(self) -> None:
        """Open every step that waits for nothing."""
        for step in self.steps:
            if step.state == WAITING and step.unmet == 0:
                self._open(step)

    def close_empty(self) -> None:
        """End the mapped steps over an empty list: there is nothing to wait for."""
        while self._empty:
            self._close(self._empty.popleft())

    def begin(self, element: Element) -> None:
        """Something of a step is under way."""
        if element.step.state == READY:
            element.step.state = RUNNING
            element.step.started_ms = self._now_ms()

    def end(self, element: Element) -> None:
        """An element has ended; its state says how."""
        step = element.step
        step.left -= 1
        self._release(step)
        if element.state == FAILED or (element.state == CANCELLED and not self.ending):
            self._fail(step, element.message)
        if step.left == 0:
            self._close(step)

    def drop(self, element: Element) -> None:
        """An element will not run any more."""
        element.state = CANCELLED if self.ending else SKIPPED
        element.step.left -= 1
        self._release(element.step)

    def offer(self, elements: Sequence[Element]) -> None:
        """It is the turn of these: after all others, or where the planner's order has them if they run one by one."""
        later: list[Element] = []
        if self.one_by_one and elements:
            while self.offers and _order(self.offers[-1]) > _order(elements[0]):
                later.append(self.offers.pop())
        self.offers.extend(elements)
        self.offers.extend(reversed(later))

    def drop_offers(self) -> None:
        """None of those whose turn it was, or that were held back, will run."""
        for step in self.steps:
            held, step.held = step.held, deque()
            for element in held:
                self.drop(element)
        while self.offers:
            self.drop(self.offers.popleft())

    def conclude(self) -> None:
        """The run is over: what has no end yet gets one."""
        for step in self.steps:
            if step.state not in OVER:
                step.state = CANCELLED if self.ending else BLOCKED

    def _open(self, step: StepRun) -> None:
        """A step whose needs are met: make its elements and offer them."""
        if step.state in OVER or step.opened or self.ending:
            return None
        items = self._items(step) if step.mapped else _ONE
        fault = list_fault(step.key, None if items is None else len(items))
        if items is None or fault is not None:
            return self._fail(step, fault or "")
        step.opened, step.state, step.left = True, READY, len(items)
        if step.mapped:
            step.elements = [Element(step, index, step.job_id(index), item) for index, item in enumerate(items)]
        else:
            step.elements = [Element(step, None, step.job_id(None))]
        at_once = step.at_once
        if at_once is not None:
            step.held.extend(step.elements[at_once:])
        self.offer(step.elements[:at_once])
        if not step.elements:
            self._empty.append(step)
        return None

    def _release(self, step: StepRun) -> None:
        """One of a step's elements has left: the next that was held back has its turn."""
        if step.held:
            self.offer([step.held.popleft()])

    def _close(self, step: StepRun) -> None:
        """All elements of a step have ended."""
        step.ended_ms = self._now_ms()
        if step.state in OVER:
            return
        states = {element.state for element in step.elements}
        if not states <= {SUCCEEDED, REUSED}:
            step.state = CANCELLED
            return
        step.state = REUSED if states == {REUSED} else SUCCEEDED
        for dependent in step.dependents:
            dependent.unmet -= 1
            if dependent.unmet == 0:
                self._open(dependent)

    def _fail(self, step: StepRun, message: str) -> None:
        """A step has failed: what becomes of the others is planned anew."""
        if step.step.step_id in self.failed:
            return
        step.state, step.message, step.ended_ms = FAILED, message, self._now_ms()
        self.failed[step.step.step_id] = message
        result = plan(self._inputs, self._identity, self.failed)
        failed, skipped = set(result.failed), set(result.skipped)
        for other in self.steps:
            if other.state == RUNNING or other.state in OVER or other.step_id in self.begun:
                continue
            if other.step_id in failed:
                other.state, other.message = BLOCKED, "a step it needs did not succeed"
            elif other.step_id in skipped:
                other.state, other.message = SKIPPED, f"after the failure of {step.key}"


def _order(element: Element) -> tuple[int, int]:
    return element.step.place, element.index or 0
