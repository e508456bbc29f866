"""Durations as people write them: ``500ms``, ``90s``, ``5m``, ``1h30m``, or a plain number of seconds.

Arithmetic is exact; a part of a millisecond counts as a whole one.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, isfinite
from typing import Any, Final

from detent.contract.limits import DURATION_MS_MAX
from detent.contract.words import shown
from detent.workflow.limits import TIMEOUT_MS_MIN

UNITS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_AMOUNT: Final = r"(?:([0-9]{1,17}(?:\.[0-9]{1,9})?)%s)?"
_DURATION: Final = re.compile("".join(_AMOUNT % unit for unit in UNITS_MS))
HOW_TO_WRITE: Final = "write it as 500ms, 90s, 5m, 2h, 1d or 1h30m, or as a number of seconds"


class BadDuration(Exception):
    """Not a duration, or one that is too short or too long. Carries what is wrong and what to do."""

    def __init__(self, message: str, hint: str = HOW_TO_WRITE) -> None:
        super().__init__(message)
        self.hint = hint


def parse_duration(value: Any, *, least_ms: int = TIMEOUT_MS_MIN) -> int:
    """Milliseconds of a written duration. Raises ``BadDuration``; the message completes "a timeout ..."."""
    exact: int | Fraction
    if type(value) is str:
        match = _DURATION.fullmatch(value)
        if match is None or not value:
            raise BadDuration(f"cannot be {shown(value)}")
        exact = sum(
            (Fraction(amount) if "." in amount else int(amount)) * unit
            for amount, unit in zip(match.groups(), UNITS_MS.values(), strict=True)
            if amount
        )
    elif type(value) is int or (type(value) is float and isfinite(value)):
        exact = (value if type(value) is int else Fraction(repr(value))) * 1_000
    else:
        raise BadDuration(f"cannot be {shown(value)}")
    if exact < least_ms:
        raise BadDuration(f"must be at least {least_ms} ms, got {shown(value)}", "leave it out for no limit")
    if exact > DURATION_MS_MAX:
        raise BadDuration(f"of {shown(value)} is longer than {DURATION_MS_MAX} ms", "leave it out for no limit")
    return ceil(exact)


def format_duration(duration_ms: int) -> str:
    """The shortest text that reads back as the same duration."""
    parts = []
    for unit, size_ms in UNITS_MS.items():
        amount, duration_ms = divmod(duration_ms, size_ms)
        if amount:
            parts.append(f"{amount}{unit}")
    return "".join(parts) or "0ms"
