"""Why a job failed, in the contract's six words, and which of them may be tried again (A.7, A.8).

The codes themselves stand once, in `detent.errors.CODES`, with their category. An executor may use further codes for what
went wrong inside the user's code (``PYTHON_EXCEPTION``); these are not in the registry and always come with a category.
"""

from __future__ import annotations

from enum import StrEnum

from detent.errors import CODES


class ErrorCategory(StrEnum):
    """The kinds of failure a result may report."""

    USER_CODE_ERROR = "USER_CODE_ERROR"
    """The user's code raised, was given invalid inputs, or failed an assertion."""
    VALIDATION_ERROR = "VALIDATION_ERROR"
    """The payload does not fit its schema, or the type of object is not supported."""
    RESOURCE_LIMIT = "RESOURCE_LIMIT"
    """Too much memory, time, output, or too many artifacts."""
    SANDBOX_VIOLATION = "SANDBOX_VIOLATION"
    """A forbidden system call, file or network access was attempted."""
    DEPENDENCY_ERROR = "DEPENDENCY_ERROR"
    """A dataset is missing or its bytes do not have the digest."""
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """A worker crashed, or the platform itself failed."""


def category_of(code: str) -> ErrorCategory | None:
    """The category of a registered code; None for a code that never ends a job or is not registered."""
    entry = CODES.get(code)
    return None if entry is None or entry.category is None else ErrorCategory(entry.category)


def code_fault(code: str, category: ErrorCategory) -> str | None:
    """Say why a failure cannot carry this code with this category, or nothing.

    A guest must not choose how its failure is read: a registered code comes with its registered category.
    """
    if code not in CODES:
        return None
    expected = category_of(code)
    if expected is None:
        return f"{code} is not a code a job can fail with"
    return None if expected is category else f"{code} belongs to {expected.value}, not to {category.value}"
