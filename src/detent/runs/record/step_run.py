"""A step while its run is under way: its elements, and how its arguments are put together from what came before.

A plain step has one element, a mapped one as many as its list has (X-185). An element becomes one job, or takes the result
of an earlier one. What a step gives is named, never copied: the results of its elements by the digests of their reports.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import count
from typing import Any, Final, TypeAlias
from uuid import UUID

from detent.canon import encode_trusted, sha256
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.contract import map_run
from detent.contract.model import REFERRING, Binding, Kind
from detent.contract.references import FROM, PARAM
from detent.jobs.order import Call
from detent.jobs.values import escaped, result_reference
from detent.jobs.work import WorkReport
from detent.kernel.identity import chosen
from detent.reuse.ingredients import default_shell
from detent.reuse.path_arguments import expanded, input_paths
from detent.runs.record.view import Spans
from detent.words.states import WAITING
from detent.workers.next_attempt import NextAttempt
from detent.workflow.identity import uuid8
from detent.workflow.plain import PlainStep

ELEMENT_LABEL: Final = "element/v1"
ARRAY_LABEL: Final = "array/v1"
ELEMENTS_MAX: Final = 100_000
"""Elements of a mapped step."""

Suits: TypeAlias = Callable[[str], bool] | None
"""Which ids of jobs lie in the partition of a run; None where all do."""


@dataclass(slots=True, eq=False)
class Element:
    """One job's worth of a step."""

    step: StepRun
    index: int | None
    job_id: str
    item: JsonValue = None
    """The element of the list, as a stored value."""
    state: str = WAITING
    result: str | None = None
    """The name of the result: by the report that holds it."""
    attempts: int = 0
    """Attempts that ended and are repeated."""
    next_attempt: NextAttempt | None = None
    """What follows the last of them."""
    message: str = ""
    left_files: bool = False
    source: str | None = None
    """The job, or the element of an array, whose result this is, when it is not a job of this element's own."""
    array: str | None = None
    """The array that has it, or an equal element, while that is under way."""
    again: str | None = None
    """Why the result of equal work was not taken, where there was some."""

    @property
    def live_job(self) -> str:
        """The job that does it, while it is under way."""
        return self.array or self.source or self.job_id


@dataclass(slots=True, eq=False)
class StepRun:
    """One step of a run."""

    key: str
    step: PlainStep
    binding: Binding
    action_id: UUID
    priority: int
    place: int = 0
    """In the planner's order."""
    lease_id: UUID | None = None
    """Of the action lease: the run owns the action (X-013)."""
    dependents: list[StepRun] = field(default_factory=list)
    unmet: int = 0
    """Steps it needs that have not succeeded yet."""
    elements: Sequence[Element] = ()
    held: deque[Element] = field(default_factory=deque)
    """Elements that wait for others of the step to end (`max_parallel_instances`)."""
    opened: bool = False
    """Its elements are known."""
    left: int = 0
    """Elements that have not ended."""
    state: str = WAITING
    message: str = ""
    started_ms: int | None = None
    """When something of it was first submitted; it may wait from then on."""
    ended_ms: int | None = None
    ran: Spans = field(default_factory=Spans)
    """When workers were at it, as far as attempts have ended."""
    tried: bool = False
    """An attempt at something of it has ended."""
    suits: Suits = None
    """Which ids of jobs lie in the partition of the run; None where all do."""

    def attempted(self, report: WorkReport, *, joined: bool = False) -> None:
        """An attempt at something of it has ended; of one that it joined, what came before it was submitted does not count."""
        self.tried = True
        since = self.started_ms if joined and self.started_ms is not None else report.result.started_ms
        self.ran.add(max(report.result.started_ms, since), report.result.finished_ms)

    @property
    def step_id(self) -> str:
        """The step's id as records write it."""
        return str(self.step.step_id)

    def action(self) -> dict[str, Any]:
        """What the order of a job of this step says of its action."""
        step = self.step
        said = {"step_id": self.step_id, "action_id": str(self.action_id), "lease_id": str(self.lease_id), "epoch": 0}
        return {**said, "step_type": step.step_type, "correlation_id": str(step.correlation_id)}

    @property
    def mapped(self) -> bool:
        """Whether it runs once for each element of a list."""
        return self.binding.map is not None

    @property
    def mapped_name(self) -> str:
        """The keyword under which a mapped step is given the elements of its list."""
        return "" if self.binding.map is None else self.binding.map[0]

    @property
    def at_once(self) -> int | None:
        """How many elements of it may be under way at once; None unless the contract says so (X-162, X-194)."""
        return self.step.max_parallel_instances if "max_parallel_instances" in self.step.model_fields_set else None

    def job_id(self, index: int | None) -> str:
        """The job of the step, or of one of its elements: the same whenever the run is resumed (X-023, X-185)."""
        return element_job_id(self.action_id, index, self.suits)

    def array_id(self, first: int) -> str:
        """The job of an array of elements, by the first of them: each element is in one array at most."""
        return array_job_id(self.action_id, first, self.suits)

    def element_id(self, index: int | None) -> str:
        """What a record calls an element that took an earlier result."""
        return self.step_id if index is None else f"{self.step_id}[{index}]"

    def reference(self) -> JsonValue:
        """What stands for the step's result in an argument of another one."""
        if self.mapped:
            return [result_reference(element.result) for element in self.elements if element.result is not None]
        result = self.elements[0].result if self.elements else None
        return None if result is None else result_reference(result)


def element_job_id(action_id: UUID, index: int | None, suits: Suits = None) -> str:
    """The job of an action, or of one element of it; ``suits`` says which ids lie in the partition of the run, where not all do."""
    return str(action_id) if index is None else _chosen_id([ELEMENT_LABEL, str(action_id), index], suits)


def array_job_id(action_id: UUID, first: int, suits: Suits = None) -> str:
    """The job of an array of elements of an action, by the first of them."""
    return _chosen_id([ARRAY_LABEL, str(action_id), first], suits)


def _chosen_id(named: list[JsonValue], suits: Suits) -> str:
    first = str(uuid8(sha256(encode_trusted(named))))
    if suits is None or suits(first):
        return first
    return chosen((str(uuid8(sha256(encode_trusted([*named, number])))) for number in count(1)), suits)


def list_fault(key: str, length: int | None) -> str | None:
    """Why a mapped step cannot go through what it was given, by its length; None for the length: it is not a list."""
    if length is None:
        return f"what step {key!r} goes through is not a list"
    if length > ELEMENTS_MAX:
        return f"the list that step {key!r} goes through has {length:,} elements; {ELEMENTS_MAX:,} are allowed"
    return None


class Binder:
    """Makes the calls of one run: parameters and the results of steps in the place of references.

    ``load`` gives the stored value of a result by its name.
    """

    def __init__(
        self,
        params: Mapping[str, JsonValue],
        steps: Mapping[str, StepRun],
        *,
        base: str | None,
        load: Callable[[str], JsonValue],
    ) -> None:
        self._params = {name: escaped(value) for name, value in params.items()}
        self._steps = steps
        self._base = base
        self.value = load

    def call(self, element: Element) -> Call:
        """What one element has to do: what its step says, with the arguments put together."""
        binding = element.step.binding
        stored = self.stored
        keywords = {name: stored(value) for name, value in binding.keywords.items()}
        env = {name: stored(value) for name, value in binding.env.items()} if binding.env else {}
        if binding.map is not None:
            (env if binding.kind is Kind.SHELL else keywords)[binding.map[0]] = element.item
        target = self.stored(binding.target) if binding.kind in REFERRING else binding.target
        if binding.kind is Kind.MAP:
            target = map_run.settled(target)
            if "items" in target:
                # What it goes through is an argument like any other: it counts, is looked up and is shown as one.
                keywords["items"] = target.pop("items")
        arguments = tuple([stored(value) for value in binding.arguments]) if binding.arguments else ()
        return Call(
            kind=binding.kind.value,
            target=target,
            base=self._base,
            arguments=arguments,
            keywords=keywords,
            env=env,
            entrypoint=binding.entrypoint,
            cwd=binding.cwd,
            version=binding.version,
            cache=binding.cache,
            inputs=self._reads(binding, target, arguments, env if binding.kind is Kind.SHELL else keywords),
            outputs=_leaves(binding, target),
            shell=(binding.shell or default_shell()) if binding.kind is Kind.SHELL else (),
        )

    def _reads(
        self, binding: Binding, target: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> tuple[str, ...] | None:
        """Paths or globs whose content decides about reuse: the declared ones, and those that a map goes through."""
        if binding.kind is Kind.MAP:
            return (*(binding.inputs or ()), *map_run.reads(target, named.get("items")))
        if not binding.inputs:
            return binding.inputs
        return input_paths(binding.inputs, arguments, named, self.value)

    def items(self, step: StepRun) -> list[JsonValue] | None:
        """The list that a mapped step goes through, as stored values; None when it is not a list."""
        listed = step.binding.map[1] if step.binding.map is not None else None
        if type(listed) is dict and FROM in listed:
            source = self._steps.get(listed[FROM])
            if source is not None and not source.mapped:
                result = source.elements[0].result if source.elements else None
                listed = None if result is None else self.value(result)
                return listed if type(listed) is list else None
        value = self.stored(listed)
        return value if type(value) is list else None

    def stored(self, value: JsonValue) -> JsonValue:
        """A value of the contract as an order has it: references named by digest, parameters put in."""
        return bound(value, self._params.__getitem__, self._reference)

    def _reference(self, key: str) -> JsonValue:
        # A disabled step need not say what it would run; it gives nothing.
        return self._steps[key].reference() if key in self._steps else None


def bound(value: JsonValue, param: Callable[[str], JsonValue], step: Callable[[str], JsonValue]) -> JsonValue:
    """A value of the contract, with what ``param`` and ``step`` give in the place of its references."""
    if type(value) is dict:
        if len(value) == 1:
            if FROM in value:
                return step(value[FROM])
            if PARAM in value:
                return param(value[PARAM])
        return {key: bound(item, param, step) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [bound(item, param, step) for item in value]
    return value


def _leaves(binding: Binding, target: Any) -> Mapping[str, str]:
    """Files or globs that are left behind: the declared ones, or the file that a map fills.

    The home directory in a destination is the user's of this process, as where it is opened.
    """
    if binding.kind is not Kind.MAP:
        return dict(binding.outputs)
    return {name: expanded(path) for name, path in map_run.leaves(target).items()}
