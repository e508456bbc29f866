"""Moments: always aware of their zone, always kept in UTC (X-140)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from detent.workflow.errors import ModelOnexError

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
