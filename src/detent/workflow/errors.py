"""What the workflow room raises.

``ModelOnexError`` is deliberately no ``ValueError``: Pydantic turns those into its own ``ValidationError``, while this
one passes through the creation of a model as it is (X-113).
"""

from __future__ import annotations

from collections.abc import Mapping

from detent.errors import DetentError
from detent.workflow.enums import EnumCoreErrorCode


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
