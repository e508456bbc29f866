"""One scale of priorities for all that people write: tasks, steps of contracts, clients and platform jobs (X-010).

The kernel's classes are the scale: the integers 1 to 10, ten first, five where nothing is said. Three of them have names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PRIORITY_MIN, PRIORITY_MAX = 1, 10
PRIORITY_NAMES: Final[Mapping[str, int]] = MappingProxyType({"low": 1, "normal": 5, "high": 10})
PRIORITY_DEFAULT: Final = PRIORITY_NAMES["normal"]
PRIORITY_HINT: Final = (
    f"a whole number from {PRIORITY_MIN} to {PRIORITY_MAX}, more is sooner; "
    f"or {', '.join(f'{name} ({number})' for name, number in PRIORITY_NAMES.items())}"
)


def priority_class(given: object) -> int | None:
    """The class that a number or a name stands for; None for anything else (`True` and ``"5"`` are none)."""
    if type(given) is str:
        return PRIORITY_NAMES.get(given)
    return given if type(given) is int and PRIORITY_MIN <= given <= PRIORITY_MAX else None
