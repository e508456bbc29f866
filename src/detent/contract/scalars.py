"""What one YAML scalar means: a JSON value, and nothing that JSON has no word for.

A plain ``null``, ``~`` or nothing at all is null; ``true`` and ``false`` are booleans; what is written as JSON writes
numbers is a number. Everything else is text: ``NO``, ``on``, ``010``, ``0x1f``, ``1_000``, ``.inf``, ``2024-01-01``,
``True``. Text in quotes or in a block is text.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

from detent.canon.strict_json import INTEGER_BITS_MAX, INTEGER_DIGITS_MAX

CONSTANTS: Final[dict[str, Any]] = {"": None, "~": None, "null": None, "true": True, "false": False}
NUMBER_STARTS: Final = frozenset("-0123456789")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class OutOfRange(Exception):
    """A number that strict JSON cannot hold; the message completes "this number ..."."""


def number_or_text(text: str) -> int | float | str:
    """The number that a plain scalar writes, or else the scalar itself. Raises ``OutOfRange``."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    if match[1] is None and match[2] is None:
        if len(text) > INTEGER_DIGITS_MAX + 1:
            raise OutOfRange(f"has more than {INTEGER_DIGITS_MAX} digits")
        integer = int(text)
        if integer.bit_length() > INTEGER_BITS_MAX:
            raise OutOfRange(f"has more than {INTEGER_BITS_MAX} bits")
        return integer
    number = float(text)
    if not isfinite(number):
        raise OutOfRange("is larger than a binary64 can hold")
    return number
