"""A server's "no" as the error that the same call raises on a local home: same class, code, hint and exit code.

A server may be newer than this client and use a code that is not in this table. Its status then says which kind of error it is, and
the message names the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from detent.errors import CODES, EXIT_INVALID, DetentError, InvalidInput, RequestRefused

CHARS_MAX: Final = 4_000
"""Of a message that a server sends; more would only fill a terminal."""
ERRORS_MAX: Final = 50
_BY_STATUS: Final = {
    400: "VALIDATION_ERROR",
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    421: "HOST_REFUSED",
    422: "VALIDATION_ERROR",
    429: "RATE_LIMITED",
}


class ServerUnreachable(DetentError):
    """No answer came: the server is down, restarting, or cannot be reached from here."""

    code = "SERVER_UNREACHABLE"


class AnswerInvalid(DetentError):
    """Something answered that does not speak the API of a Detent server, or the answer is too large."""

    code = "ANSWER_INVALID"


def error_from(status: int, document: object, url: str, hints: Mapping[str, str] | None = None) -> DetentError:
    """The error that a problem document stands for; ``hints`` go before the server's, by code."""
    told = document if isinstance(document, Mapping) else {}
    code, message = str(told.get("code", "")), str(told.get("detail") or told.get("title") or "")[:CHARS_MAX]
    if not code or not message:
        return AnswerInvalid(
            f"{url} answered with status {status} and no reason",
            hint="is this the address of a Detent server, and does every proxy before it pass its answers on?",
        )
    hint = (hints or {}).get(code) or (str(told["hint"])[:CHARS_MAX] if told.get("hint") is not None else None)
    details = _details(told)
    if code not in CODES:
        message, code = f"{message} ({code[:100]})", _BY_STATUS.get(status, "ANSWER_INVALID")
    retryable = told["retryable"] if isinstance(told.get("retryable"), bool) else None
    own = _own_classes().get(code)
    if own is not None:
        return own(message, hint=hint, details=details, retryable=retryable)
    kind = InvalidInput if CODES[code].exit_code == EXIT_INVALID else RequestRefused
    return kind(message, code=code, hint=hint, details=details, retryable=retryable)


def _details(told: Mapping[str, Any]) -> dict[str, object]:
    listed = told.get("errors")
    errors = [
        {"path": str(one["path"])[:CHARS_MAX], "message": str(one["message"])[:CHARS_MAX]}
        for one in (listed[:ERRORS_MAX] if isinstance(listed, list) else ())
        if isinstance(one, Mapping) and "path" in one and "message" in one
    ]
    request_id = told.get("instance")
    named = {"request_id": str(request_id)[:100]} if request_id is not None else {}
    return {**({"errors": errors} if errors else {}), **named}


def _own_classes() -> dict[str, type[DetentError]]:
    """Errors that have a code of their own, by that code; those that take one from their place are chosen by exit code."""
    found: dict[str, type[DetentError]] = {}
    for kind in _below(DetentError):
        if kind.code and kind not in {InvalidInput, RequestRefused} and kind.__module__ in _SAME_ARGUMENTS:
            found.setdefault(kind.code, kind)
    return found


_SAME_ARGUMENTS: Final = frozenset({"detent.errors", __name__})
"""Where error classes are made by a message and the common options alone."""


def _below(kind: type[DetentError]) -> Iterator[type[DetentError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
