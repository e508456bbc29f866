"""Deterministic CBOR: one value, one sequence of bytes.

The profile is RFC 8949 section 4.2.1 cut down to what records need: text keys, integers from -2**63 to 2**64-1, text,
bytes, lists, maps, true, false and null. No floats, tags, bignums, undefined or indefinite lengths; at most
``MAX_DEPTH`` containers inside one another.

``libipld`` does the work because it is an order of magnitude faster than the alternatives, but it speaks DAG-CBOR, and
three of its habits would be holes here:

* Byte strings that parse as a content id are written as tag 42. That is not rare: a 32-byte digest has that shape
  about once in 2,600 times (it starts with 01 and a plausible length follows). A value that shows the two bytes of that tag
  is therefore encoded again by the plain encoder at the end of this file, which knows no tags.
* Integers down to -2**64 and floats pass. The walk over the value refuses them.
* Its decoder accepts longer heads than needed and reads tag 42 as bytes. Decoding therefore ends by encoding again and
  comparing; only identical bytes are canonical.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from libipld import decode_dag_cbor as _ipld_decode
from libipld import encode_dag_cbor as _ipld_encode

from detent.canon.show import a_or_an, place, step
from detent.errors import InvalidInput

Value: TypeAlias = Any
"""None, bool, int, str, bytes, and lists and text-keyed dicts of these. Callers check what they expect to find."""

MAX_DEPTH: Final = 16
"""Containers inside one another; a flat map has depth 1."""
RECORD_BYTES_MAX: Final = 60 * 1024
"""Size of one ledger record. Larger things are named by digest."""
ITEM_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size of anything read or written here, unless the caller says less (a record) or more (a checkpoint)."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1

_TAG_BYTE: Final = 0xD8
_search_tag_42: Final = re.compile(re.escape(b"\xd8\x2a")).search  # 2A is an asterisk
_SCALARS: Final = frozenset({str, bytes, bool, type(None)})
_TEXT_ONLY: Final = frozenset({str})


class NotCanonical(InvalidInput):
    """Bytes that are not the canonical encoding of a value, or a value that has none."""

    code = "NOT_CANONICAL"


def encode(value: Value, *, bytes_max: int = ITEM_BYTES_MAX) -> bytes:
    """The one canonical encoding of ``value``.

    Refuses with ``NotCanonical``, naming the place, everything outside the profile. Subclasses of the allowed
    types are refused too (an enum is not its value), and so are tuples: decoding would not give them back.
    """
    _require_profile(value)
    try:
        data = encode_trusted(value)
    except ValueError as exc:  # all that is left is text with lone surrogates
        raise NotCanonical(f"the value holds text that is not valid Unicode: {exc}") from exc
    if len(data) > bytes_max:
        raise NotCanonical(f"the encoding has {len(data)} bytes, {bytes_max} are allowed")
    return data


def encode_trusted(value: Value) -> bytes:
    """The same bytes for a value this program built itself out of the profile's types: no walk, no limits."""
    data = _ipld_encode(value)
    # `int in bytes` is one memchr and settles most records; for two bytes a pattern is faster than `bytes in bytes`.
    if _TAG_BYTE in data and _search_tag_42(data):
        return b"".join(_plain_parts(value))
    return data


def decode(data: bytes, *, bytes_max: int = ITEM_BYTES_MAX) -> Value:
    """The value whose canonical encoding is exactly ``data``; ``NotCanonical`` for every other input."""
    if type(data) is not bytes:
        raise NotCanonical(f"expected bytes, got {type(data).__name__}")
    if len(data) > bytes_max:
        raise NotCanonical(f"{len(data)} bytes, {bytes_max} are allowed")
    try:
        value = _ipld_decode(data)
    except (ValueError, RecursionError) as exc:
        raise NotCanonical(f"not CBOR of our profile: {exc}") from exc
    _require_profile(value)
    if encode_trusted(value) != data:
        raise NotCanonical("the bytes are not the canonical encoding of what they say")
    return value


def decode_trusted(data: bytes) -> Value:
    """The value in bytes that this program encoded itself and whose digest was checked: no walk, no second encoding."""
    return _ipld_decode(data)


def _require_profile(value: Value) -> None:
    fault = _fault(value, 0)
    if fault is not None:
        raise NotCanonical(f"value{place(fault[0])} {fault[1]}")


def _fault(value: Value, depth: int) -> tuple[str, str] | None:
    """The first thing in ``value`` that the profile lacks, as (path, reason); None if there is none."""
    kind = type(value)
    items: Iterable[tuple[object, Value]]
    if kind is dict:
        if value and {*map(type, value)} != _TEXT_ONLY:
            return "", "has a key that is not text"
        items = value.items()
    elif kind is list:
        items = enumerate(value)
    elif kind in _SCALARS:
        return None
    elif kind is int:
        return None if INT_MIN <= value <= INT_MAX else ("", "is an integer outside -2**63 .. 2**64-1")
    else:
        return "", f"is {a_or_an(kind)}, which records cannot hold"
    if depth == MAX_DEPTH:
        return "", f"is nested deeper than {MAX_DEPTH}"
    for key, item in items:
        kind = type(item)
        # The usual leaves are settled here: a call for each of them would double the cost of the walk.
        if kind in _SCALARS or (kind is int and INT_MIN <= item <= INT_MAX):
            continue
        found = _fault(item, depth + 1)
        if found is not None:
            return step(key) + found[0], found[1]
    return None


def _plain_parts(value: Value) -> Iterable[bytes]:
    """The encoding in pieces, written out by hand: for values in which the fast encoder would see a tag."""
    kind = type(value)
    if value is None:
        yield b"\xf6"
    elif kind is bool:
        yield b"\xf5" if value else b"\xf4"
    elif kind is bytes:
        yield _head(2, len(value)) + value
    elif isinstance(value, str):
        text = value.encode()
        yield _head(3, len(text)) + text
    elif isinstance(value, int):
        yield _head(0, value) if value >= 0 else _head(1, -1 - value)
    elif isinstance(value, list):
        yield _head(4, len(value))
        for item in value:
            yield encode_trusted(item)  # Most of what is inside shows no tag of its own.
    else:
        yield _head(5, len(value))
        # Shorter keys first, then bytewise: for text keys that is the bytewise order of the encoded keys.
        for text, key in sorted(((key.encode(), key) for key in value), key=lambda pair: (len(pair[0]), pair[0])):
            yield _head(3, len(text)) + text
            yield encode_trusted(value[key])


def _head(major: int, argument: int) -> bytes:
    """A CBOR head in its shortest form."""
    if argument < 24:
        return bytes((major << 5 | argument,))
    size = 1 if argument < 2**8 else 2 if argument < 2**16 else 4 if argument < 2**32 else 8
    return bytes((major << 5 | 23 + size.bit_length(),)) + argument.to_bytes(size, "big")
