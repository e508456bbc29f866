"""The headers of every answer, and the names of requests."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from detent.version import __version__

SECURITY_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "detent-version": __version__,
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "permissions-policy": "",
        "x-frame-options": "DENY",
    }
)
"""For answers that are data. No page of another origin may read, frame or run any of them; there is no CORS."""


PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'"
)
"""For pages: what they load and whom they talk to is this server, and no text of theirs becomes a script."""


_NAME_BYTES: Final = 12
_NAMES_AT_ONCE: Final = 256
"""Drawing random bytes lets the other threads go first, so it is not done for every request."""
_DRAWN: Final[list[str]] = []


def new_request_id() -> str:
    """The name of a request, in its answer, its problem and its line of the log. For the HTTP loop alone."""
    if not _DRAWN:
        digits = secrets.token_hex(_NAMES_AT_ONCE * _NAME_BYTES)
        _DRAWN.extend(digits[at : at + 2 * _NAME_BYTES] for at in range(0, len(digits), 2 * _NAME_BYTES))
    return f"req_{_DRAWN.pop()}"
