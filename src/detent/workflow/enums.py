"""The enums of the workflow contract, with exactly its members and values.

Values marked with a later version are reserved: they can be written down, and are refused or left alone here.
"""

from __future__ import annotations

from enum import Enum, StrEnum


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
