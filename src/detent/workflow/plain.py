"""What the planner reads of a workflow, without the models.

Pydantic and the models take longer to load than a small run takes. A contract that says only usual things is checked here,
field by field, and planned from these; its models are built on request. Anything that is not plainly right goes
to the models, which know the whole truth and say what is wrong: nothing is accepted here that they would refuse, and nothing
means anything else.

Execution modes: which are accepted, and which one applies (X-100).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from detent.canon.show import show
from detent.workflow.vocabulary import (
    ERROR_ACTIONS,
    STEP_TYPES,
    TIMEOUT_MS_MIN,
    WORKFLOW_TIMEOUT_MS_MIN,
    EnumExecutionMode,
    ModelOnexError,
)

if TYPE_CHECKING:
    from detent.workflow.models import ModelWorkflowDefinition

STEP_NAME_MAX: Final = 200
_VERSION_FIELDS: Final = ("major", "minor", "patch")
_METADATA_FIELDS: Final = ("version", "workflow_name", "workflow_version", "description", "execution_mode")
_DEFINITION_FIELDS: Final = ("version", "workflow_metadata", "execution_graph")


class PlainStep:
    """A step with the fields of `ModelWorkflowStep`, under their names and with their defaults; frozen.

    Holds the fields that were set and no others: which ones were matters (X-101, X-162).
    """

    correlation_id: UUID
    step_id: UUID
    step_name: str
    step_type: str
    timeout_ms: int = 30_000
    retry_count: int = 3
    enabled: bool = True
    skip_on_failure: bool = False
    continue_on_error: bool = False
    error_action: str = "stop"
    max_memory_mb: int | None = None
    max_cpu_percent: int | None = None
    priority: int = 100
    order_index: int = 0
    depends_on: Sequence[UUID] = ()
    parallel_group: str | None = None
    max_parallel_instances: int = 1
    compensation_action: str | None = None
    checkpoint_required: bool = False
    idempotency_key: str | None = None

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Take fields that are known to be right."""
        vars(self).update(fields)

    @property
    def model_fields_set(self) -> Mapping[str, Any]:
        """The fields that were set; ask it for names with ``in``, as the models are asked."""
        return vars(self)

    def document(self) -> dict[str, Any]:
        """The set fields as plain JSON: what the model's own dump gives with ``exclude_unset``."""
        fields = vars(self)
        document = {name: fields[name] for name in STEP_FIELDS if name in fields}
        for name in _ID_FIELDS:
            if name in document:
                document[name] = str(document[name])
        if "depends_on" in document:
            document["depends_on"] = list(map(str, document["depends_on"]))
        return document

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"a step is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a step is frozen: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, PlainStep) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.step_id)

    def __repr__(self) -> str:
        return f"PlainStep({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


STEP_FIELDS: Final = tuple(PlainStep.__annotations__)
"""The fields of a step, in the order of the model."""
_ID_FIELDS: Final = ("correlation_id", "step_id")
"""Those that are ids. Beside them only the dependencies are not written as they stand."""


class Outline:
    """What is read of a workflow's definition: its name, and the little that binds."""

    __slots__ = ("document", "mode", "name", "parallel_allowed", "timeout_ms")

    def __init__(
        self,
        document: Mapping[str, Any],
        *,
        parallel_allowed: bool = True,
        mode: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """``document`` is the definition as its model's dump gives it with ``exclude_unset``."""
        metadata = document["workflow_metadata"]
        self.document = document
        self.name: str = metadata["workflow_name"]
        self.mode: str = mode or metadata["execution_mode"]
        self.timeout_ms: int | None = timeout_ms or metadata.get("timeout_ms")
        """Bound on the whole run; None unless it was written down (X-162)."""
        self.parallel_allowed = parallel_allowed

    @property
    def one_by_one(self) -> bool:
        """Whether only one step may run at a time: the mode is sequential, or the rules forbid anything else (X-194)."""
        return self.mode == EnumExecutionMode.SEQUENTIAL.value or not self.parallel_allowed

    def __eq__(self, other: object) -> bool:
        return self.document == other.document if isinstance(other, Outline) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"Outline({self.document!r})"


def plain_step(fields: Mapping[str, Any]) -> PlainStep | None:
    """The step of these fields; None when only the model can tell whether they are right."""
    taken: dict[str, Any] = {}
    for name, value in fields.items():
        check = _CHECKS.get(name)
        if check is None or (meant := check(value)) is None:
            return None
        taken[name] = meant
    return PlainStep(taken) if taken.keys() >= _REQUIRED else None


def plain_outline(definition: object) -> Outline | None:
    """The outline of a definition; None when only the model can tell whether it is right."""
    if type(definition) is not dict or tuple(definition) != _DEFINITION_FIELDS:
        return None
    metadata, graph = definition["workflow_metadata"], definition["execution_graph"]
    if type(metadata) is not dict or type(graph) is not dict or tuple(graph) != ("version",):
        return None
    timeout_ms = metadata.get("timeout_ms")
    names = _METADATA_FIELDS if timeout_ms is None else (*_METADATA_FIELDS, "timeout_ms")
    if tuple(metadata) != names:
        return None
    name, description = metadata["workflow_name"], metadata["description"]
    right = (
        all(
            map(
                _is_version,
                (definition["version"], graph["version"], metadata["version"], metadata["workflow_version"]),
            )
        )
        and _is_text(name)
        and not name.isspace()
        and (description == "" or _is_text(description))
        and mode_fault(metadata["execution_mode"]) is None
        and (timeout_ms is None or (type(timeout_ms) is int and timeout_ms >= WORKFLOW_TIMEOUT_MS_MIN))
    )
    return Outline(definition) if right else None


def _is_text(value: object) -> bool:
    """Text that is not empty and can be written down: a lone surrogate cannot."""
    if type(value) is not str or not value:
        return False
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _is_version(value: object) -> bool:
    return (
        type(value) is dict
        and tuple(value) == _VERSION_FIELDS
        and all(type(number) is int and 0 <= number < 1 << 31 for number in value.values())
    )


def _flag(value: Any) -> Any:
    return value if type(value) is bool else None


def _whole(least: int, most: int) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is int and least <= value <= most else None


def _one_of(known: frozenset[str]) -> Callable[[Any], Any]:
    return lambda value: value if type(value) is str and value in known else None


def _name(value: Any) -> Any:
    return value if _is_text(value) and len(value) <= STEP_NAME_MAX else None


def _id(value: Any) -> Any:
    """A UUID, or one as it is written everywhere; other ways to write one are left to the model."""
    if type(value) is UUID:
        return value
    if type(value) is not str:
        return None
    try:
        made = UUID(value)
    except ValueError:
        return None
    return made if str(made) == value else None


def _ids(value: Any) -> Any:
    if type(value) is not list:
        return None
    made = [_id(item) for item in value]
    return None if None in made else made


_REQUIRED: Final = frozenset({"step_id", "correlation_id", "step_name", "step_type"})
# Each gives back what is meant, or None.
_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "correlation_id": _id,
    "step_id": _id,
    "step_name": _name,
    "step_type": _one_of(STEP_TYPES),
    "timeout_ms": _whole(TIMEOUT_MS_MIN, 300_000),
    "retry_count": _whole(0, 10),
    "enabled": _flag,
    "skip_on_failure": _flag,
    "continue_on_error": _flag,
    "error_action": _one_of(ERROR_ACTIONS),
    "priority": _whole(1, 1000),
    "depends_on": _ids,
}


RESERVED_MODES: Final = (EnumExecutionMode.CONDITIONAL, EnumExecutionMode.STREAMING)

_MODE_OF: Final = {mode.value: mode for mode in EnumExecutionMode}


def effective_mode(definition: ModelWorkflowDefinition, execution_mode: EnumExecutionMode | None) -> EnumExecutionMode:
    """The mode a workflow is processed in: the one given, else the definition's.

    A reserved or unknown mode in the definition is an error even when another one overrides it. Where the coordination
    rules forbid parallel execution, PARALLEL is processed as SEQUENTIAL, silently (X-136).
    """
    declared = definition.workflow_metadata.execution_mode
    fault = mode_fault(declared)
    if fault is not None:
        raise ModelOnexError(fault, context={"execution_mode": declared})
    mode = _MODE_OF[declared] if execution_mode is None else execution_mode
    _validate_execution_mode(mode)
    if mode is EnumExecutionMode.PARALLEL and not definition.coordination_rules.parallel_execution_allowed:
        return EnumExecutionMode.SEQUENTIAL
    return mode


def mode_fault(value: object) -> str | None:
    """What is wrong with a mode that a definition names; None if nothing is."""
    mode = _MODE_OF.get(value) if type(value) is str else None
    if mode is None:
        return f"Unknown execution mode {show(value)}"
    return _reserved(mode) if mode in RESERVED_MODES else None


def _validate_execution_mode(execution_mode: EnumExecutionMode) -> None:
    """Refuse a reserved mode, and a value that is not a mode."""
    if not isinstance(execution_mode, EnumExecutionMode):
        raise ModelOnexError(
            f"Unknown execution mode {show(execution_mode)}", context={"execution_mode": show(execution_mode)}
        )
    if execution_mode in RESERVED_MODES:
        raise ModelOnexError(_reserved(execution_mode), context={"execution_mode": execution_mode.value})


def _reserved(mode: EnumExecutionMode) -> str:
    return f"Execution mode '{mode.value}' is reserved for future versions and cannot be used in v1.0"
