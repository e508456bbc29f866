"""A contract as the rest of Detent sees it: what the planner plans, and beside it what the steps run.

The planner never sees a binding (X-023). Both are keyed by ``step_id``; people name steps by a *key*, a short text that
is unique in the file, and everything a person reads or writes (``needs``, ``$from``, errors, plans) uses keys.

How one step is limited and retried, from what its model and its binding say together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

from detent.canon.grammar import PRIORITY_DEFAULT, PRIORITY_NAMES, unknown_policies
from detent.canon.late import NamedTuple, dataclass
from detent.contract.findings import ContractInvalid, Report, Spot, invalid
from detent.workflow.identity import priority_of as action_priority_of
from detent.workflow.plain import Outline, PlainStep

if TYPE_CHECKING:
    from detent.contract.findings import Locate, Path, Place
    from detent.contract.schedule import Schedule
    from detent.workflow.models import ModelWorkflowDefinition, ModelWorkflowStep

_Made = TypeVar("_Made")


class Kind(StrEnum):
    """What a binding runs. A ``run:`` mapping has exactly one of these keys."""

    PYTHON = "python"
    """A function of the user's own project: ``module:function`` or ``file.py:function``. Trusted, runs in a process."""
    CODE = "code"
    """Python source in the contract itself. Untrusted, runs in the sandbox."""
    SHELL = "shell"
    """One command line for a shell. Trusted, runs in a process."""
    JOB = "job"
    """A whole job payload, as the job contract writes it."""
    MAP = "map"
    """An ordered run: a function over items, committed strictly in order. Trusted, runs in processes."""


REFERRING: Final = frozenset({Kind.JOB, Kind.MAP})
"""Kinds whose target is a mapping that may refer to steps and parameters."""


RETRY_ON_DEFAULT: Final = ("INTERNAL_ERROR",)
RETRY_ON_OWN_FAILURES: Final = ("INTERNAL_ERROR", "USER_CODE_ERROR")
"""What ``retry: 3`` means: a request for retries covers failures of the user's own code too (X-164)."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a step is tried again, and after which categories of failure."""

    max: int
    on: tuple[str, ...] = RETRY_ON_OWN_FAILURES


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a contract. ``type`` is a JSON type name or "any"; a parameter without a default is required."""

    name: str
    type: str = "any"
    default: Any = None
    required: bool = False
    description: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """What one step runs, with which arguments, and what decides whether it may be reused.

    ``arguments``, ``keywords``, ``env`` and ``map`` hold plain JSON values in which ``{"$from": key}`` stands for the
    result of another step and ``{"$param": name}`` for a parameter; see `detent.contract.references`.
    """

    kind: Kind
    target: Any
    """``python``: "module:function"; ``code``: the source; ``shell``: the command line; ``job``: the payload;
    ``map``: the settings, see `detent.contract.map_run`."""
    arguments: tuple[Any, ...] = ()
    """Positional arguments (``args:``); python only."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments (``with:``); python and code."""
    entrypoint: str = "main"
    """The function that ``code`` defines and that is called with ``keywords``."""
    version: str | None = None
    """The user's own word for "the code is the same"; needed where it cannot be read off the source (X-176)."""
    inputs: tuple[str, ...] | None = None
    """Paths or globs whose content decides about reuse; ``{name}`` stands for an argument, see
    `detent.contract.references` (X-175). None: nothing was said; empty: no file counts."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """Files or globs a step leaves behind, by name."""
    env: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    timeout_ms: int | None = None
    """Wall limit of one attempt; replaces the step's ``timeout_ms`` and has no upper bound (X-162)."""
    retry: Retry | None = None
    cache: bool = True
    map: tuple[str, Any] | None = None
    """(name, list): run once for each element of the list, handed over as the keyword ``name`` (X-185)."""
    chunk: int | None = None
    """How many elements of the list share one job; None: as many as their durations suggest."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """What one attempt takes of the things that a home counts, such as ``cpu``: it begins when so much of each is free."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """The quota, lease and backoff that hold for its jobs, by kind; the home's settings define them."""
    pool: str | None = None
    """The pool of workers that may take its jobs; None: any worker."""
    labels: tuple[str, ...] = ()
    """What the workers of its jobs must be, in order."""
    shell: tuple[str, ...] = ()
    """The words before the command line; ``shell`` only. Empty: the default of where it runs (X-189)."""


class JobFault(NamedTuple):
    """Something wrong inside a ``job:`` payload: where in it, what, and what to do."""

    path: Path
    message: str
    hint: str


CheckJob: TypeAlias = "Callable[[Mapping[str, Any], Mapping[str, Any]], Sequence[JobFault]]"
"""Looks at a ``job:`` payload with the values of parameters. What a payload is, is not this room's to know: it is handed in."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where the steps of a contract are in its document, for faults that show only when a run is given values."""

    paths: Mapping[UUID, Path]
    locate: Locate | None
    """None: the document has no lines."""
    check_job: CheckJob | None = None


class FileSource(Protocol):
    """The bytes of a file that is named in a contract, somewhere outside of any content store."""

    def keep(self, content: Any) -> dict[str, Any]:
        """Put them into a content store, and give the mapping that names them there."""


@dataclass(frozen=True, slots=True)
class Contract:
    """A loaded contract: checked, in declaration order, with nothing of the user's imported or run.

    Runs go by the outline and the plain steps; the models of the same are built when they are first asked for.
    """

    outline: Outline
    plain_steps: tuple[PlainStep, ...]
    bindings: Mapping[UUID, Binding]
    keys: Mapping[UUID, str]
    """The key of every step; unique."""
    params: Mapping[str, Param] = field(default_factory=lambda: MappingProxyType({}))
    result: Any = None
    """What the whole run gives back: a plain JSON value in which references stand for results of steps; None: nothing."""
    schedule: Schedule | None = None
    """When it is run again, for those who run it on a schedule; part of no digest, because it changes nothing in a run."""
    name: str = field(default="contract", compare=False)
    """What errors call the file."""
    base: str | None = field(default=None, compare=False)
    """Directory against which paths and modules are resolved; None: the working directory. Never part of a digest."""
    files: Mapping[str, FileSource] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    """Where the bytes of its files come from, by digest; what is not here is in the content store already."""
    places: Mapping[UUID, Place] = field(default_factory=lambda: MappingProxyType({}), compare=False)
    schedule_place: Place | None = field(default=None, compare=False)
    written: Written | None = field(default=None, compare=False, repr=False)
    """None when no value that a run is given can be wrong for where it stands."""
    _made: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def definition(self) -> ModelWorkflowDefinition:
        """The workflow's definition as the planner's model."""
        from detent.workflow.models import ModelWorkflowDefinition  # noqa: PLC0415 - a run needs no models

        return self.made("definition", lambda: ModelWorkflowDefinition.model_validate(self.outline.document))

    @property
    def steps(self) -> tuple[ModelWorkflowStep, ...]:
        """The steps as the planner's models."""
        from detent.workflow.models import ModelWorkflowStep  # noqa: PLC0415

        return self.made(
            "steps", lambda: tuple(ModelWorkflowStep.model_validate(vars(one)) for one in self.plain_steps)
        )

    def made(self, what: str, make: Callable[[], _Made]) -> _Made:
        """Something that follows from the contract alone, made when it is first asked for and kept."""
        if what not in self._made:
            self._made[what] = make()
        made: _Made = self._made[what]
        return made


PAYLOAD_LIMITS: Final = MappingProxyType({"timeout_ms": 30_000, "memory_mb": 512})
"""Of a payload that says nothing, as the job contract has them (`detent.jobs.payload`, which is not loaded for every contract)."""
TIMEOUT: Final = "timeout of the step"
TIMEOUT_MS: Final = "timeout_ms of the step"
MEMORY_MB: Final = "max_memory_mb of the step"


def wall_limit_of(
    step: PlainStep | ModelWorkflowStep, binding: Binding | None, payload: Mapping[str, Any] | None = None
) -> tuple[int | None, str | None]:
    """The wall limit of one attempt, the smallest that was written down, and which one that is (A.6, X-019, X-162).

    ``payload`` is a platform job's with values in the place of references; its limit counts as it will be when it is completed.
    """
    given: list[tuple[int, str]] = []
    if binding is not None and binding.timeout_ms is not None:
        given.append((binding.timeout_ms, TIMEOUT))
    if "timeout_ms" in step.model_fields_set:
        given.append((step.timeout_ms, TIMEOUT_MS))
    return _smallest(given, payload, "timeout_ms")


def memory_limit_of(
    step: PlainStep | ModelWorkflowStep, payload: Mapping[str, Any] | None = None
) -> tuple[int | None, str | None]:
    """The memory in MB that one attempt may use, and where that was set; the smallest as for its time (X-194)."""
    return _smallest([] if step.max_memory_mb is None else [(step.max_memory_mb, MEMORY_MB)], payload, "memory_mb")


def timeout_ms_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> int | None:
    """The wall limit of one attempt that the contract sets, without the payload's; None: it sets none."""
    return wall_limit_of(step, binding)[0]


def _smallest(
    given: list[tuple[int, str]], payload: Mapping[str, Any] | None, name: str
) -> tuple[int | None, str | None]:
    """The smallest of some limits and of a payload's own, unless only the payload's completion can tell that one."""
    limits = {} if payload is None else payload.get("limits", {})
    own = limits.get(name, PAYLOAD_LIMITS[name]) if payload is not None and type(limits) is dict else None
    if type(own) is int and own > 0:
        given = [*given, (own, f"limits.{name} of the payload")]
    return min(given, key=itemgetter(0), default=(None, None))


def priority_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> int:
    """The class of a step's jobs: its own, else its payload's, else that of all work which says nothing (X-010).

    The workflow contract has 100 where a step says nothing, which would put it before all that says nothing elsewhere.
    """
    if "priority" in step.model_fields_set:
        return action_priority_of(step)
    if binding is not None and binding.kind is Kind.JOB and type(binding.target) is dict:
        named = binding.target.get("priority")
        return PRIORITY_NAMES.get(named, PRIORITY_DEFAULT) if type(named) is str else PRIORITY_DEFAULT
    return PRIORITY_DEFAULT


def retries_of(step: PlainStep | ModelWorkflowStep, binding: Binding | None) -> tuple[int, tuple[str, ...]] | None:
    """How often a step is tried again and after what, where the contract says so (X-164)."""
    if binding is not None and binding.retry is not None:
        return binding.retry.max, binding.retry.on
    return (step.retry_count, RETRY_ON_DEFAULT) if "retry_count" in step.model_fields_set else None


def names_policies(contract: Contract) -> bool:
    """Whether a step names a quota, lease or backoff, which the home's settings must define."""
    return any(binding.policies for binding in contract.bindings.values())


def refuse_unknown_policies(contract: Contract, known: Mapping[str, Sequence[str]]) -> None:
    """Refuse steps that name a quota, lease or backoff which is not ``known``, each with its line."""
    report = Report()
    for step_id, binding in contract.bindings.items():
        path = () if contract.written is None else contract.written.paths[step_id]
        for kind, message, hint in unknown_policies(binding.policies, known):
            what = f"step {contract.keys[step_id]!r}: {message}"
            Spot(report, path).at(kind).fault(what, hint)
    if report.count:
        found = invalid(report, contract.name, None if contract.written is None else contract.written.locate)
        raise ContractInvalid([replace(one, code="POLICY_UNKNOWN") for one in found.findings], found.more)
