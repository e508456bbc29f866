"""Parameters of the one call that appends, in PostgreSQL's binary form.

An array is a header (dimensions, whether a value is missing, the type of its elements, how many, where counting begins), then for
each element its length and its bytes; -1 in place of the length for a missing one. Made here by hand, because a general
driver looks at every value to find out what it is, which costs the owner seven times as much.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

INT4, INT8, BYTEA, TEXT = 23, 20, 17, 25
INT4_ARRAY, INT8_ARRAY, BYTEA_ARRAY, TEXT_ARRAY = 1007, 1016, 1001, 1009

_HEADER: Final = struct.Struct("!iiIii").pack
_LENGTH: Final = struct.Struct("!i").pack
_NOTHING: Final = _LENGTH(-1)
_int4: Final = struct.Struct("!i").pack
_int8: Final = struct.Struct("!q").pack


def int4(value: int) -> bytes:
    """An integer; `struct.error` for one that does not fit."""
    return _int4(value)


def int8(value: int) -> bytes:
    """A large integer; `struct.error` for one that does not fit."""
    return _int8(value)


def byte_array(values: Sequence[bytes | None], element: int = BYTEA) -> bytes:
    """Byte strings, some of which may be missing."""
    pieces = [_HEADER(1, 1 if None in values else 0, element, len(values), 1)]
    add = pieces.append
    for value in values:
        if value is None:
            add(_NOTHING)
        else:
            add(_LENGTH(len(value)))
            add(value)
    return b"".join(pieces)


def text_array(values: Sequence[str | None]) -> bytes:
    """The same for texts that are kept as text: words of our own."""
    return byte_array([None if value is None else value.encode() for value in values], TEXT)


def id_array(values: Sequence[str | None]) -> bytes:
    """The same for texts that are kept as bytes: what users name."""
    return byte_array([None if value is None else value.encode() for value in values])


def int8_array(values: Sequence[int | None]) -> bytes:
    """Large integers, some of which may be missing."""
    count = len(values)
    if None not in values:
        pairs: list[int | None] = [8] * (2 * count)
        pairs[1::2] = values
        return _HEADER(1, 0, INT8, count, 1) + struct.pack("!" + "iq" * count, *pairs)
    pieces = [_NOTHING if value is None else b"\0\0\0\x08" + _int8(value) for value in values]
    return _HEADER(1, 1, INT8, count, 1) + b"".join(pieces)


def int4_array(values: Sequence[int]) -> bytes:
    """Integers."""
    return _HEADER(1, 0, INT4, len(values), 1) + b"".join(b"\0\0\0\x04" + _int4(value) for value in values)
