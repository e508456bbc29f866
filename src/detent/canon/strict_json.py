"""Users' values as strict JSON bytes: the same value gives the same bytes, and nothing is lost on the way (X-170).

UTF-8, keys sorted by code point, no spaces, integers exact, floats as the shortest text that reads back as the same
binary64. What JSON cannot say faithfully is refused by the name of the place: NaN and infinities, keys that are not
text, other types (a tuple would come back as a list), lone surrogates.

``1`` and ``1.0`` are different values here and have different digests; so have ``0.0`` and ``-0.0``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, Final, TypeAlias

from detent.canon.crypto import digest
from detent.canon.show import a_or_an, place, show, step
from detent.errors import InvalidInput

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, and lists and text-keyed dicts of these."""

JSON_DEPTH_MAX: Final = 64
"""Containers inside one another; a flat object has depth 1."""
JSON_BYTES_MAX: Final = 16 * 1024 * 1024
"""Size of one value in bytes. Larger data travels as a file, by digest."""
INTEGER_BITS_MAX: Final = 2048
"""Size of one integer: 617 digits, fewer than the lowest limit Python can be given for turning text into integers."""
INTEGER_DIGITS_MAX: Final = 617
JSON_LABEL: Final = b"detent/json/v1\0"
_USUAL: Final = 1 << 63


class NotStrictJson(InvalidInput):
    """A value that has no strict JSON form, or bytes that are not strict JSON."""

    code = "NOT_STRICT_JSON"


def json_encode(value: JsonValue, *, name: str = "value", bytes_max: int = JSON_BYTES_MAX) -> bytes:
    """The one strict JSON encoding of ``value``; ``name`` is what an error calls the value."""
    fault = _fault(value, JSON_DEPTH_MAX)
    if fault is not None:
        raise NotStrictJson(f"{name}{place(fault[0])} {fault[1]}", details={"path": f"{name}{fault[0]}"})
    data = json_encode_trusted(value)
    if len(data) > bytes_max:
        raise NotStrictJson(f"{name} has {len(data)} bytes as JSON, {bytes_max} are allowed", hint="pass it as a file")
    return data


def json_encode_trusted(value: JsonValue) -> bytes:
    """The same bytes for a value this program put together out of checked parts: no walk, no limits."""
    return "".join(_ENCODE(value, 0)).encode()


def json_decode(
    data: bytes, *, name: str = "value", bytes_max: int = JSON_BYTES_MAX, depth_max: int = JSON_DEPTH_MAX
) -> JsonValue:
    """Read strict JSON bytes. Spacing and order of keys are free; everything ambiguous is refused."""
    if type(data) is not bytes:
        raise NotStrictJson(f"{name}: expected bytes, got {type(data).__name__}")
    if len(data) > bytes_max:
        raise NotStrictJson(f"{name} has {len(data)} bytes, {bytes_max} are allowed")
    try:
        value = _DECODER.decode(data.decode())
    except UnicodeDecodeError as exc:
        raise NotStrictJson(f"{name} is not UTF-8: {exc}") from exc
    except json.JSONDecodeError as exc:
        raise NotStrictJson(f"{name} is not JSON: {exc}") from exc
    except RecursionError as exc:
        raise NotStrictJson(f"{name} is nested deeper than {depth_max}") from exc
    except _Ambiguous as exc:
        raise NotStrictJson(f"{name} {exc}") from exc
    fault = _fault(value, depth_max)
    if fault is not None:
        raise NotStrictJson(f"{name}{place(fault[0])} {fault[1]}", details={"path": f"{name}{fault[0]}"})
    return value


def json_decode_trusted(data: bytes) -> JsonValue:
    """The value in bytes that this program encoded itself and whose digest was checked: no walk, no limits."""
    return _READ(data.decode(), 0)[0]


def json_digest(data: bytes) -> bytes:
    """The digest of strict JSON bytes, under a label of its own."""
    return digest(JSON_LABEL, data)


def _fault(value: JsonValue, most: int, depth: int = 0) -> tuple[str, str] | None:
    """The first thing in ``value`` that strict JSON cannot say, as (path, reason); None if there is none."""
    kind = type(value)
    items: Iterable[tuple[object, JsonValue]]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return "", f"has the key {show(key)}; keys must be text"
            if not key.isascii() and not _is_unicode(key):
                return "", f"has the key {show(key)}, which is not valid Unicode"
        items = value.items()
    elif kind is list:
        items = enumerate(value)
    else:
        reason = _scalar_fault(value)
        return None if reason is None else ("", reason)
    if depth == most:
        return "", f"is nested deeper than {most}"
    for key, item in items:
        kind = type(item)
        # The usual leaves are settled here: a call for each of them would double the cost of the walk.
        if (
            (kind is str and item.isascii())
            or item is None
            or kind is bool
            or (kind is int and -_USUAL < item < _USUAL)
        ):
            continue
        found = _fault(item, most, depth + 1)
        if found is not None:
            return step(key) + found[0], found[1]
    return None


def _scalar_fault(value: JsonValue) -> str | None:
    kind = type(value)
    if kind is str:
        return None if _is_unicode(value) else "is text with a lone surrogate, which UTF-8 cannot hold"
    if kind is int:
        return None if value.bit_length() <= INTEGER_BITS_MAX else f"is an integer of more than {INTEGER_BITS_MAX} bits"
    if kind is float:
        return None if isfinite(value) else f"is {value}, which JSON cannot hold"
    if value is None or kind is bool:
        return None
    return f"is {a_or_an(kind)}, which is not a JSON value"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Ambiguous(Exception):
    """Raised by the hooks below, where the place is not known; the message completes "<name> ..."."""


def _pairs(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Ambiguous(f"has the key {show(twice)} twice")
    return result


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > INTEGER_DIGITS_MAX:
        raise _Ambiguous(f"has an integer of more than {INTEGER_BITS_MAX} bits")
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise _Ambiguous(f"has the number {text:.40}, which is larger than a binary64 can hold")
    return number


def _constant(text: str) -> float:
    raise _Ambiguous(f"has {text}, which is not a JSON number")


def _encoder() -> Callable[[JsonValue, int], Iterable[str]]:
    """What writes a value in pieces. `JSONEncoder.encode` makes one anew for every value, which takes longer than writing."""
    plain = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
    )
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, _indent: plain.encode(value)
    names = (plain.item_separator, plain.sort_keys, plain.skipkeys, plain.allow_nan)
    made: Callable[[JsonValue, int], Iterable[str]] = make(
        None, plain.default, json.encoder.encode_basestring, plain.indent, plain.key_separator, *names
    )
    return made


_ENCODE: Final = _encoder()
_READ: Final = json.JSONDecoder().raw_decode
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
