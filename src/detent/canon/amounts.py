"""Amounts of countable things by name, ``{"cpu": 2}``: one grammar for contracts, settings and tasks."""

from __future__ import annotations

import re
from typing import Any, Final

RESOURCE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
RESOURCE_HINT: Final = "a small letter, then up to 39 small letters, digits or _"
RESOURCES_MAX: Final = 16
"""Kinds that one piece of work takes."""
AMOUNT_MAX: Final = 2**31 - 1
SANDBOX_MEMORY_MB_MIN: Final = 16
"""The least memory that a job in the sandbox may be limited to: with less, its jail itself may not come to stand."""
CPU: Final = "cpu"
"""The one resource that there always is: the workers of a process. Work that says nothing takes one of them."""


def name_fault(name: object) -> str | None:
    """Say that this cannot name a resource, or nothing."""
    if type(name) is str and RESOURCE.fullmatch(name) is not None:
        return None
    return f"{name!r:.80} cannot name a resource"


def amount_fault(name: str, amount: Any) -> str | None:
    """Say why this is not an amount of a resource, or nothing."""
    if type(amount) is int and 1 <= amount <= AMOUNT_MAX:
        return None
    return f"{name} must be a whole number from 1 to {AMOUNT_MAX:,}, not {amount!r:.40}"
