"""What a pure function may not fetch: ids, time, what happened downstream, and whether to stop.

The default is wholly deterministic: no operation, the first second of 1970, nothing elapsed, nothing reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from uuid import UUID

from detent.canon.late import dataclass
from detent.canon.show import a_or_an, show
from detent.workflow.vocabulary import EPOCH, TIMEOUT_MS_MIN, ModelOnexError, Moment, as_utc

if TYPE_CHECKING:
    from detent.workflow.models import ModelOrchestratorInput, ModelWorkflowDefinition

STRATEGY_ACTIONS: Final[Mapping[str, Literal["stop", "continue"]]] = {
    "fail_fast": "stop",
    "continue_on_error": "continue",
}
"""What a failure does when its step has not set ``error_action`` (X-102)."""

Elapsed: TypeAlias = int | Callable[[], int]
Reported: TypeAlias = Collection[UUID] | Mapping[UUID, str]


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """Everything that may vary between two plans of the same workflow. Refuses with ``ModelOnexError``."""

    operation_id: UUID | None = None
    """One ``process()`` call. Fresh and random in the facade and the driver, so that action ids are never reused."""
    id_root: UUID | None = None
    """A further secret or namespace mixed into every id."""
    now: Moment = EPOCH
    """The moment at which this plan begins; stamped on every action, and with the time elapsed on the result, in UTC."""
    elapsed_ms: Elapsed = 0
    """Time spent so far: a number, or a function asked before each step."""
    failure_strategy: str = "fail_fast"
    global_timeout_ms: int | None = None
    """Bound on the whole run; None: the definition's, if it names one."""
    reported_failures: Reported = frozenset()
    """Steps that failed downstream in an earlier operation; a mapping also says why."""
    cancel_requested: bool = False
    suits: Callable[[str], bool] | None = None
    """Which ids of actions can be used, where not every one can: its jobs may have to lie where those of the run do."""

    def __post_init__(self) -> None:
        for name in ("operation_id", "id_root"):
            _require(getattr(self, name), UUID | None, name)
        object.__setattr__(self, "now", as_utc(self.now, "context.now"))
        if not callable(self.elapsed_ms):
            _require(self.elapsed_ms, int, "elapsed_ms")
        if self.failure_strategy not in STRATEGY_ACTIONS:
            raise ModelOnexError(
                f"Unknown failure strategy {show(self.failure_strategy)}",
                context={"failure_strategy": self.failure_strategy},
                hint=f"use one of {', '.join(STRATEGY_ACTIONS)}",
            )
        _require(self.global_timeout_ms, int | None, "global_timeout_ms")
        if self.global_timeout_ms is not None and self.global_timeout_ms < TIMEOUT_MS_MIN:
            raise ModelOnexError(
                f"global_timeout_ms must be at least {TIMEOUT_MS_MIN}, got {self.global_timeout_ms}",
                context={"global_timeout_ms": self.global_timeout_ms},
            )
        for step_id in self.reported_failures:
            _require(step_id, UUID, "reported_failures")
        _require(self.cancel_requested, bool, "cancel_requested")


def timeout_ms_of(definition: ModelWorkflowDefinition, context: ExecutionContext) -> int | None:
    """The bound on a whole run: the operation's own, else the definition's if it was written down, else none."""
    if context.global_timeout_ms is not None:
        return context.global_timeout_ms
    metadata = definition.workflow_metadata
    return metadata.timeout_ms if "timeout_ms" in metadata.model_fields_set else None


def _build_workflow_context(input_data: ModelOrchestratorInput) -> dict[str, Any]:
    """The user's metadata, copied, under the three keys that the system sets and that therefore win."""
    return {
        **input_data.metadata,
        "workflow_id": str(input_data.workflow_id),
        "operation_id": str(input_data.operation_id),
        "execution_mode": input_data.execution_mode.value,
    }


def _require(value: object, kind: Any, name: str) -> None:
    """Refuse a value of another type; a bool is not a number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ModelOnexError(f"context.{name} is {a_or_an(type(value))}", context={"field": name})
