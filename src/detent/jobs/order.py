"""What work is asked for: a call, and the order that makes one job of it.

A *call* says what is to be done: a function, code, a command, a payload or an ordered map, with its arguments. It is made once,
from a step or a task, and the same call goes into the key of equal work, into the order, to the worker and into its pool. An
*order* is a call with what makes it one job of its own: its label, its limits, and where it comes from. It is the payload of an
``action``, ``task`` or ``seq`` job: everything a worker needs, so that it never has to ask back. Orders are content; records
name them by digest only, under a nonce, because what they hold can often be guessed (X-171).

An order is stored as one flat mapping, whatever its parts are called here. An order with *elements* is an array: many calls
of the same function that are one job (`detent.jobs.elements`). What they have in common is said once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from operator import attrgetter
from typing import Any, Final

from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput
from detent.jobs.arguments import plain_ingredients
from detent.jobs.elements import ELEMENTS_MAX
from detent.jobs.source_tree import BASE, read_base, stored_base
from detent.jobs.values import files_named, results_named
from detent.kernel.manifest import MAX_RETRIES_DEFAULT, RETRY_CATEGORIES_DEFAULT

ORDER_VERSION: Final = 1
WORK_KINDS: Final = ("python", "code", "shell", "job", "map")
POOL: Final = "pool:"
RESOURCE: Final = "resource:"
"""How what a worker offers beside its labels begins; labels themselves have no colon."""
INPUT: Final = "input:"
"""How the ingredient of a declared input begins."""
GLOB: Final = frozenset("*?[")
"""Characters that make a glob of a path."""
_CONTAINERS: Final = frozenset({dict, list})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is to be done. Values are stored ones, see `detent.jobs.values`."""

    kind: str
    """``python``, ``code``, ``shell``, ``job`` or ``map``: what `target` is."""
    target: Any
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)
    entrypoint: str = "main"
    base: str | None = None
    """Directory that modules and paths start from; of code in a source tree that is not laid out, what `source_tree.base_in` gives."""
    cwd: str | None = None
    """Working directory, relative to `base`."""
    env: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Paths or globs that the work leaves behind, by name, relative to the working directory."""
    shell: tuple[str, ...] = ()
    """The words before the command line of a ``shell``; orders of before X-189 have none and mean ``/bin/sh -c``."""
    version: str | None = None
    """The user's own word for "the code is the same". It and the next two decide about reuse; an order does not hold them."""
    cache: bool = True
    inputs: tuple[str, ...] | None = None
    """Paths and globs whose content counts; None when nothing was said about them."""

    def __post_init__(self) -> None:
        if self.kind not in WORK_KINDS:
            raise InvalidInput(f"work of kind {show(self.kind)} is unknown", details={"path": "kind"})

    def results(self) -> Iterator[str]:
        """The digests of the results of other jobs that it is given."""
        for value in (*self.arguments, *self.keywords.values(), *self.env.values(), self.target):
            if type(value) in _CONTAINERS:
                yield from results_named(value)

    def files(self) -> Iterator[str]:
        """The digests of the files among the arguments themselves."""
        for value in (list(self.arguments), dict(self.keywords), self.target):
            yield from files_named(value)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a job is tried again, and after which categories of failure (X-164)."""

    max: int = MAX_RETRIES_DEFAULT
    on: tuple[str, ...] = RETRY_CATEGORIES_DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLimits:
    """What a job may take and how often it is tried. Equal work under other limits may end otherwise (X-190).

    Two are equal when they allow the same, no matter where that was set.
    """

    wall_ms: int | None = None
    """Limit of one attempt's time: the smallest that was given (A.6)."""
    wall_by: str | None = field(default=None, compare=False)
    """Which of several limits that is, in words."""
    memory_mb: int | None = None
    """Limit of the memory of one attempt with everything it starts, in units of 2^20 bytes."""
    memory_by: str | None = field(default=None, compare=False)
    retries: Retries = Retries()
    """Stated by the job's manifest, not by its order: an order that was read back has the default here."""
    resources: Mapping[str, int] = field(default_factory=dict, hash=False)
    """What one attempt takes of what its home counts. No ingredient: what comes of it is the same."""
    policies: Mapping[str, str] = field(default_factory=dict, hash=False)
    """The quota, lease and backoff that the work itself names, by kind; for other kinds its tenant's hold, or the home's."""
    pool: str | None = field(default=None, compare=False)
    """The pool of workers that may take it; None: any worker."""
    labels: tuple[str, ...] = field(default=(), compare=False)
    """What its worker must be. Like the pool, this changes nothing about the result."""

    @property
    def asks(self) -> bool:
        """Whether it says anything about where its job runs; most do not."""
        return bool(self.resources or self.labels or self.pool is not None)

    @property
    def wanted(self) -> tuple[str, ...]:
        """What a worker must offer: the pool and the labels, in order."""
        return (*([] if self.pool is None else [f"{POOL}{self.pool}"]), *sorted(set(self.labels)))

    def __post_init__(self) -> None:
        if len(self.retries.on) < 2:
            return
        if (categories := tuple(sorted(set(self.retries.on)))) != self.retries.on:  # As a manifest writes them.
            object.__setattr__(self, "retries", Retries(self.retries.max, categories))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an order comes from: the place in its run, the job it repeats, and what its key was made of."""

    run_id: str | None = None
    step: str | None = None
    index: int | None = None
    """Place in the list that a mapped step goes through."""
    retry_of: str | None = None
    """The job that ended otherwise and that this one does again (X-154)."""
    again: str | None = None
    """Why the result of earlier work of the same key was not taken, as it was found when this was submitted."""
    ingredients: Mapping[str, Any] = field(default_factory=dict)
    """What the execution key was made of, by name: digests and versions; empty when the work is never reused."""
    action: Mapping[str, Any] = field(default_factory=dict)
    """Of a step of a workflow: ``step_id``, ``action_id``, ``lease_id`` and ``epoch`` of the action lease (X-013), ``step_type``
    and ``correlation_id``. Empty for other work."""
    requested_by: str | None = None
    """The principal on whose behalf a server submitted it; None for work of the home's own user."""
    traceparent: str | None = None
    """The trace that it belongs to (W3C Trace Context), as the request said that asked for it."""
    request_id: str | None = None
    """The request to a server that asked for it, as its answer and the access log name it."""


@dataclass(frozen=True, slots=True)
class ElementOrder:
    """What one element of an array has for itself: an array's order has the rest."""

    arguments: tuple[Any, ...] = ()
    """All positional arguments: the call of an array has none."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Beside those of the call, or instead of those of the same names."""
    index: int | None = None
    """Place in the list that a mapped step goes through."""
    ingredients: Mapping[str, Any] = field(default_factory=dict)
    """Beside those of the order. Empty where they follow from the arguments, which is so unless these name results."""
    again: str | None = None
    """Why the result of earlier work of the same key was not taken, if the order does not say it for all."""

    def stored(self) -> list[Any]:
        """As plain JSON: what has its default is left out at the end."""
        said = [list(self.arguments), self.keywords, self.index, self.ingredients, self.again]
        while len(said) > 1 and not said[-1] and said[-1] != 0:
            said.pop()
        return said


@dataclass(frozen=True, slots=True)
class Order:
    """What one job has to do."""

    call: Call
    label: str
    """Names the work for people and across runs: ``workflow/step``, or a task's name."""
    limits: JobLimits = JobLimits()
    origin: Origin = Origin()
    elements: tuple[ElementOrder, ...] = ()
    """Of an array: its elements, in order. Empty for all other work."""

    def at(self, base: str | None) -> Order:
        """The same order with its code in another place."""
        return self if base == self.call.base else replace(self, call=replace(self.call, base=base))

    def of_element(self, place: int) -> Order:
        """The order that an element of this array would have as a job of its own."""
        own, call, origin = self.elements[place], self.call, self.origin
        made_from = own.ingredients or (plain_ingredients(own.arguments, own.keywords) if origin.ingredients else {})
        return Order(
            replace(call, arguments=own.arguments, keywords={**call.keywords, **own.keywords}),
            self.label,
            self.limits,
            replace(
                origin,
                index=own.index,
                ingredients=dict(sorted({**made_from, **origin.ingredients, **own.ingredients}.items())),
                again=own.again or origin.again,
            ),
        )

    def results(self) -> Iterator[str]:
        """The digests of the results of other jobs that this one is given."""
        yield from self.call.results()
        for own in self.elements:
            for value in (*own.arguments, *own.keywords.values()):
                if type(value) in _CONTAINERS:
                    yield from results_named(value)

    def files(self) -> Iterator[str]:
        """The digests of the files among the arguments themselves."""
        yield from self.call.files()
        for own in self.elements:
            for value in (*own.arguments, *own.keywords.values()):
                if type(value) in _CONTAINERS:
                    yield from files_named(value)

    def document(self) -> dict[str, Any]:
        """As plain JSON; what has its default is left out."""
        said: dict[str, Any] = {"version": ORDER_VERSION}
        for (name, default), value in zip(_STORED, _values(self), strict=True):
            if value is not default and value != default:
                said[name] = list(value) if type(value) is tuple else value
        if self.elements:
            said["elements"] = [element.stored() for element in self.elements]
        if self.call.base is not None and self.call.base.startswith(BASE):
            said["base"] = stored_base(self.call.base)
        return said


_CALL: Final[dict[str, Any]] = {
    "kind": None,
    "target": None,
    "arguments": (),
    "keywords": {},
    "entrypoint": "main",
    "base": None,
    "cwd": None,
    "env": {},
    "outputs": {},
    "shell": (),
}
_LIMITS: Final[dict[str, Any]] = {
    "wall_ms": None,
    "wall_by": None,
    "memory_mb": None,
    "memory_by": None,
    "resources": {},
    "policies": {},
    "pool": None,
    "labels": (),
}
_ORIGIN: Final[dict[str, Any]] = {
    "run_id": None,
    "step": None,
    "index": None,
    "retry_of": None,
    "again": None,
    "ingredients": {},
    "action": {},
    "requested_by": None,
    "traceparent": None,
    "request_id": None,
}
_STORED: Final[list[tuple[str, Any]]] = [("label", None), *_CALL.items(), *_LIMITS.items(), *_ORIGIN.items()]
"""The fields of a stored order, each with the default that is not written."""
_values: Final = attrgetter(
    "label",
    *(f"call.{name}" for name in _CALL),
    *(f"limits.{name}" for name in _LIMITS),
    *(f"origin.{name}" for name in _ORIGIN),
)
_TUPLES: Final = frozenset({"arguments", "shell", "labels"})
_NAMES: Final = frozenset({"version", "elements", *(name for name, _ in _STORED)})


def read_order(document: object) -> Order:
    """An order from its plain JSON. Raises `InvalidInput` for what `Order.document` did not make."""
    if not isinstance(document, dict) or document.get("version") != ORDER_VERSION:
        raise InvalidInput(f"a work order is a mapping of version {ORDER_VERSION}, not {show(document)}")
    if unknown := document.keys() - _NAMES:
        raise InvalidInput(f"a work order has no {min(unknown)!r:.80}")
    if missing := {"kind", "target", "label"} - document.keys():
        raise InvalidInput(f"a work order lacks {min(missing)}")
    said: dict[str, Any] = {name: tuple(value) if name in _TUPLES else value for name, value in document.items()}
    if "base" in said and type(said["base"]) is not str:
        said["base"] = read_base(said["base"])
    call, limits, origin = ({name: said[name] for name in part if name in said} for part in (_CALL, _LIMITS, _ORIGIN))
    return Order(Call(**call), said["label"], JobLimits(**limits), Origin(**origin), _elements(said.get("elements")))


def _elements(stored: object) -> tuple[ElementOrder, ...]:
    if stored is None:
        return ()
    if not isinstance(stored, list) or not 1 <= len(stored) <= ELEMENTS_MAX:
        raise InvalidInput(f"the elements of a work order are a list of 1 to {ELEMENTS_MAX}, not {show(stored)}")
    return tuple(_element(one) for one in stored)


def _element(stored: object) -> ElementOrder:
    if not isinstance(stored, list) or not stored or not isinstance(stored[0], list):
        raise InvalidInput(f"an element of a work order is a list that begins with its arguments, not {show(stored)}")
    try:
        return ElementOrder(tuple(stored[0]), *stored[1:])
    except TypeError:
        raise InvalidInput(f"an element of a work order has at most 5 parts, not {len(stored)}") from None


def unchunked(call: Call, limits: JobLimits) -> str:
    """Why a call cannot be an element of an array, in words; empty when it can.

    What is measured, limited or handed out for one job at a time needs a job of its own.
    """
    if call.kind != "python":
        return "only functions run in chunks"
    if limits.wall_ms is not None or limits.memory_mb is not None:
        return "it has a limit of its own time or memory"
    if limits.resources or limits.policies:
        return "it takes resources, or names a policy"
    return "it declares inputs or outputs" if call.outputs or call.inputs else ""


def absent_inputs(ingredients: Mapping[str, Any]) -> tuple[str, ...]:
    """Declared inputs for which the work found no content, read from its ingredients. A glob that matches nothing does not count."""
    if None not in ingredients.values():
        return ()
    names = (
        key.removeprefix(INPUT) for key, content in ingredients.items() if content is None and key.startswith(INPUT)
    )
    return tuple(name for name in names if not GLOB & set(name))
