"""Why a job failed, in the contract's six words, and which of them may be tried again (A.7, A.8).

The codes themselves stand once, in `detent.errors.CODES`, with their category. An executor may use further codes for what
went wrong inside the user's code (``PYTHON_EXCEPTION``); these are not in the registry and always come with a category.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from detent.errors import CODES
from detent.kernel.manifest import JOB_KINDS, RETRY_CATEGORIES_DEFAULT


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


RETRYABLE_CATEGORIES: Final = frozenset(ErrorCategory(name) for name in RETRY_CATEGORIES_DEFAULT)
"""What is retried automatically, within the manifest's bound."""

INTERNAL_KINDS: Final = JOB_KINDS - {"platform"}
"""Jobs without a document, whose own manifests say which categories are tried again (X-016, X-164)."""


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


def is_retryable(
    category: ErrorCategory | str, *, job_kind: str = "platform", retry_categories: Collection[str] = ()
) -> bool:
    """Whether the kernel may try a job again after a failure of this category, its bound aside.

    ``retry_categories`` are the manifest's. They count for jobs of users' own functions; a platform job retries what the
    contract says and nothing else (JOB-061 to JOB-066 as X-164 limits them).
    """
    if job_kind in INTERNAL_KINDS:
        return category in retry_categories
    return category in RETRYABLE_CATEGORIES
