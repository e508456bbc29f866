"""How values, their types and places inside them appear in error messages: short, and never a second error.

A place reads ``value.lr[0]`` or ``value['two words']``.
"""

from __future__ import annotations

from typing import Final

SHOWN_MAX: Final = 80
"""Characters of a foreign value that a message repeats."""
PLACE_ENDS: Final = 48
"""Characters of a long place that are shown at either end of it."""


def show(value: object) -> str:
    """A value as Python writes it, cut short. Python refuses to write very long integers, so those only get a size."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return f"{value!r:.{SHOWN_MAX}}"


def a_or_an(what: str | type) -> str:
    """A noun, or the name of a type, with its article as it is spoken: ``an int``, ``a list``, ``a UUID``."""
    noun = what if isinstance(what, str) else what.__name__
    spoken = noun.lower()
    vowel = spoken.startswith(("a", "e", "i", "o", "u")) and not spoken.startswith(("uni", "us", "uu"))
    return f"an {noun}" if vowel else f"a {noun}"


def step(key: object) -> str:
    """One step of a path: into a list by position, into a map by key."""
    if type(key) is str and key.isidentifier():
        return f".{key:.{SHOWN_MAX}}"
    return f"[{show(key)}]"


def place(path: str) -> str:
    """A path that is short enough for a message: one of many steps has its first and its last ones."""
    if len(path) <= 2 * PLACE_ENDS:
        return path
    first, last = path[:PLACE_ENDS], path[-PLACE_ENDS:]
    # Whole steps, each beginning with one of these, unless there is none within reach.
    end = max(first.rfind("["), first.rfind("."))
    begin = min((at for at in (last.find("["), last.find(".")) if at >= 0), default=0)
    return f"{first[:end] if end > 0 else first}...{last[begin:]}"
