"""How values and places inside them appear in error messages: short, and never a second error.

A place reads ``value.lr[0]`` or ``value['two words']``.
"""

from __future__ import annotations

from typing import Final

SHOWN_MAX: Final = 80
"""Characters of a foreign value that a message repeats."""


def show(value: object) -> str:
    """A value as Python writes it, cut short. Python refuses to write very long integers, so those only get a size."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.{SHOWN_MAX}}"


def step(key: object) -> str:
    """One step of a path: into a list by position, into a map by key."""
    if type(key) is str and key.isidentifier():
        return f".{key:.{SHOWN_MAX}}"
    return f"[{show(key)}]"
