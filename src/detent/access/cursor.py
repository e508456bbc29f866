"""Where a listing goes on: an opaque text that names the last row and the filters it was made for.

It carries no authority. The tenant and the filters are applied again on every page; a cursor that was made for other filters, or
made up, is refused or leads to a page of the same listing and to nothing else.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Final

from detent.canon import NotCanonical, decode, digest, encode
from detent.errors import InvalidInput

_LABEL: Final = b"detent/cursor/v1\0"
_DIGEST_BYTES: Final = 8
CURSOR_CHARS_MAX: Final = 512
Place = tuple[int | str, ...]
"""The last row of a page: the values that the listing is ordered by."""


def write_cursor(route: str, filters: Mapping[str, str | None], place: Place) -> str:
    """The cursor behind a row of a listing."""
    data = encode([_filters(route, filters), list(place)])
    return urlsafe_b64encode(data).decode().rstrip("=")


def read_cursor(text: str, route: str, filters: Mapping[str, str | None], kinds: tuple[type, ...]) -> Place:
    """The place that a cursor names; `InvalidInput` for one that was not made for this listing with these filters."""
    try:
        if len(text) > CURSOR_CHARS_MAX:
            raise ValueError(text)
        value = decode(urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)))
    except (NotCanonical, Base64Error, ValueError):
        value = None
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], list):
        raise _not_ours("it is damaged")
    made_for, place = value
    if write_cursor(route, filters, tuple(place)) != text or made_for != _filters(route, filters):
        raise _not_ours("it was made for another listing or other filters")
    if tuple(map(type, place)) != kinds:
        raise _not_ours("it names no place of this listing")
    return tuple(place)


def _filters(route: str, filters: Mapping[str, str | None]) -> bytes:
    given = {name: value for name, value in filters.items() if value is not None}
    return digest(_LABEL, encode([route, given]))[:_DIGEST_BYTES]


def _not_ours(why: str) -> InvalidInput:
    return InvalidInput(
        f"the cursor cannot be used: {why}",
        code="VALIDATION_ERROR",
        hint="begin the listing again without a cursor; use `next` of a page unchanged, with the same filters",
        details={"errors": [{"path": "query.cursor", "message": why}]},
    )
