"""What every module of this room shares and that loads no model: enums, limits, errors, moments.

The enums of the workflow contract, with exactly its members and values.

Values marked with a later version are reserved: they can be written down, and are refused or left alone here.

Numbers and words that models, validation and the loader of contracts share; loading them loads no model.

What the workflow room raises.

``ModelOnexError`` is deliberately no ``ValueError``: Pydantic turns those into its own ``ValidationError``, while this
one passes through the creation of a model as it is (X-113).

Moments: always aware of their zone, always kept in UTC (X-140).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Final, Literal, TypeAlias

from detent.errors import DetentError


class EnumExecutionMode(Enum):
    """How a workflow is processed. All accepted modes share one order; only what is reported about it differs."""

    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"
    CONDITIONAL = "conditional"
    """Reserved for v1.1."""
    BATCH = "batch"
    STREAMING = "streaming"
    """Reserved for v1.2."""


class EnumActionType(Enum):
    """What kind of node an action is for."""

    COMPUTE = "compute"
    EFFECT = "effect"
    REDUCE = "reduce"
    ORCHESTRATE = "orchestrate"
    CUSTOM = "custom"


class EnumWorkflowState(Enum):
    """State of a whole workflow. Never a job's state: those belong to the kernel."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    """Reserved for v1.1."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EnumFailureRecoveryStrategy(StrEnum):
    """A coordination rule that is kept and not consulted: retries are the kernel's."""

    RETRY = "RETRY"
    ROLLBACK = "ROLLBACK"
    """Reserved for v1.2."""
    COMPENSATE = "COMPENSATE"
    """Reserved for v1.2."""
    ABORT = "ABORT"


class EnumBranchCondition(Enum):
    """Reserved for v1.1; nothing here evaluates a condition."""

    IF_TRUE = "if_true"
    IF_FALSE = "if_false"
    IF_ERROR = "if_error"
    IF_SUCCESS = "if_success"
    IF_TIMEOUT = "if_timeout"
    CUSTOM = "custom"


class EnumCoreErrorCode(Enum):
    """Codes a ``ModelOnexError`` may carry; each is registered in ``detent.errors.CODES``."""

    VALIDATION_ERROR = "VALIDATION_ERROR"


StepType: TypeAlias = Literal["compute", "effect", "reducer", "orchestrator", "conditional", "parallel", "custom"]
ErrorAction: TypeAlias = Literal["stop", "continue", "retry", "compensate"]

STEP_TYPES: Final = frozenset({"compute", "effect", "reducer", "orchestrator", "custom", "parallel"})
"""Types that can be planned. ``conditional`` is reserved: a step may say it, validation refuses it."""
ERROR_ACTIONS: Final = frozenset({"stop", "continue", "retry", "compensate"})

TIMEOUT_MS_MIN: Final = 100
"""Below this, a timeout of a step or a workflow is an error of the contract itself (WF-075)."""
WORKFLOW_TIMEOUT_MS_MIN: Final = 1000
"""The least bound on a whole run that a definition may name (X-114)."""


class ModelOnexError(DetentError):
    """A workflow, step or argument breaks the contract. ``context`` holds the values that the message speaks of."""

    def __init__(
        self,
        message: str,
        error_code: EnumCoreErrorCode = EnumCoreErrorCode.VALIDATION_ERROR,
        context: Mapping[str, object] | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=error_code.value, hint=hint, details=context)
        self.message = message
        self.error_code = error_code

    @property
    def context(self) -> dict[str, object]:
        """The values behind the message: what every error of ours calls ``details``."""
        return self.details


class LeaseExpiredError(DetentError):
    """A target node was handed an action whose lease it does not hold for valid."""

    code = "LEASE_INVALID"


class EpochConflictError(DetentError):
    """A target node was handed an action that is older than what it has already executed."""

    code = "CONFLICT"


Moment: TypeAlias = datetime

EPOCH: Final[Moment] = datetime(1970, 1, 1, tzinfo=UTC)


def later(moment: Moment, elapsed_ms: int) -> Moment:
    """The moment so many milliseconds later; the last that can be written when there is none."""
    try:
        return moment + timedelta(milliseconds=elapsed_ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def as_utc(value: object, name: str) -> Moment:
    """The same moment in UTC; refuses a value that is not a datetime or has no time zone."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ModelOnexError(f"{name} must be a datetime with a time zone", context={name: str(value)})
    return value.astimezone(UTC)
