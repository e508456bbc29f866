"""The client's ``Idempotency-Key``: the same request again gets the same answer, for a while (JOB-029 to JOB-033).

The key protects one HTTP request against being sent twice. It says nothing about equal work (that is the execution key)
and never reaches the kernel (X-015).
"""

from __future__ import annotations

import re
from typing import Final, NewType

from detent.canon import check_uint64, digest, encode_trusted
from detent.canon.late import dataclass
from detent.canon.show import show
from detent.errors import InvalidInput, Refused
from detent.kernel.manifest import digest_fault

IDEMPOTENCY_WINDOW_MS: Final = 86_400_000
IDEMPOTENCY_KEYS_MAX: Final = 1_000_000
"""Keys that are remembered at once unless the settings say otherwise: more than eleven new ones a second, for a day."""
KEY_CHARS_MAX: Final = 255
BODY_LABEL: Final = b"detent/request_body/v1\0"
SCOPE_LABEL: Final = b"detent/idempotency_scope/v1\0"

ClientIdempotencyKey = NewType("ClientIdempotencyKey", str)

_KEY = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


@dataclass(frozen=True, slots=True)
class IdempotencyScope:
    """Where a key counts. The same key from another workspace, user or endpoint is another key."""

    workspace_id: str
    user_id: str
    endpoint: str
    """Method and route, such as ``POST /v1/jobs``."""
    key: ClientIdempotencyKey

    def digest(self) -> bytes:
        """By which the answer to a request under this key is found."""
        return digest(SCOPE_LABEL, encode_trusted([self.workspace_id, self.user_id, self.endpoint, self.key]))


@dataclass(frozen=True, slots=True)
class IdempotencyLimits:
    """How long a key counts, and how many keys may count at once."""

    window_ms: int = IDEMPOTENCY_WINDOW_MS
    keys_max: int = IDEMPOTENCY_KEYS_MAX


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """What the first request under a key was, and the bytes it was answered with."""

    body_digest: bytes
    response: bytes
    """Returned verbatim, also when the job has moved on since: live status is read by a query (X-027)."""
    stored_at_ms: int


@dataclass(frozen=True, slots=True)
class Fresh:
    """The key was not used within the window: do the work and store the answer."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The same request came before: send these bytes and do nothing."""

    response: bytes


def parse_idempotency_key(text: object) -> ClientIdempotencyKey:
    """Check the header's value: an opaque text of visible ASCII characters, spaces only inside."""
    if not isinstance(text, str) or len(text) > KEY_CHARS_MAX or not _KEY.fullmatch(text):
        raise InvalidInput(
            f"Idempotency-Key must have 1 to {KEY_CHARS_MAX} printable ASCII characters, not {show(text)}",
            code="VALIDATION_ERROR",
            details={"path": "Idempotency-Key"},
        )
    return ClientIdempotencyKey(text)


def body_digest(body: bytes) -> bytes:
    """What "the same body" means: the same bytes."""
    return digest(BODY_LABEL, body)


def decide_idempotency(
    stored: StoredAnswer | None, *, body_digest: bytes, now_ms: int, window_ms: int = IDEMPOTENCY_WINDOW_MS
) -> Fresh | Repeated | Refused:
    """Decide what a request under a key gets, given what is stored for the key's scope.

    The window ends ``window_ms`` after the answer was stored; from that moment the key is unused. A clock that went back
    does not end it.
    """
    if fault := digest_fault("body_digest", body_digest):
        raise InvalidInput(fault)
    if stored is None or check_uint64("now_ms", now_ms) >= stored.stored_at_ms + window_ms:
        return Fresh()
    if stored.body_digest != body_digest:
        return Refused(
            "IDEMPOTENCY_KEY_REUSED",
            "the Idempotency-Key was used before with another body",
            {"valid_until_ms": stored.stored_at_ms + window_ms},
        )
    return Repeated(stored.response)
