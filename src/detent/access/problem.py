"""Every "no" of the server as one document: RFC 9457, with title, status and retryable from the table of codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from detent.errors import DetentError, registered

MEDIA_TYPE: Final = "application/problem+json"
ERRORS_MAX: Final = 50
"""Faults of one request that are told; more add nothing."""
RETRY_MS: Final = 1_000
"""How soon a retryable request may come back, where nothing better is known."""
RETRY_MS_MAX: Final = 60_000
CONFLICT: Final = ("expected_transition_seq", "stored_transition_seq", "committed_state")
"""What the kernel says of a conflict: what was expected, and where the job stands."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was not answered as asked."""

    code: str
    detail: str
    hint: str | None = None
    retryable: bool | None = None
    """None: as the table says."""
    retry_after_ms: int | None = None
    errors: tuple[tuple[str, str], ...] = ()
    """Faults of the request's parts, as (path, message)."""
    conflict: Mapping[str, Any] = field(default_factory=dict)
    """Where a job stands that a request expected elsewhere (PIPE-067)."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return registered(self.code).http_status

    @property
    def retry_after_seconds(self) -> int | None:
        """For ``Retry-After``: every 429 and 503 says when to come back, rounded up, 1 to 60."""
        if self.status not in {429, 503}:
            return None
        wait_ms = self.retry_after_ms if self.retry_after_ms is not None else RETRY_MS
        return max(1, -(-min(wait_ms, RETRY_MS_MAX) // 1_000))

    def document(self, request_id: str) -> dict[str, Any]:
        """The answer's body."""
        entry = registered(self.code)
        shown: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": entry.meaning,
            "status": entry.http_status,
            "detail": self.detail,
            "instance": request_id,
            "code": self.code,
            "retryable": entry.retryable if self.retryable is None else self.retryable,
        }
        if self.retry_after_ms is not None or self.retry_after_seconds is not None:
            shown["retry_after_ms"] = self.retry_after_ms if self.retry_after_ms is not None else RETRY_MS
        shown |= self.conflict
        if self.hint is not None:
            shown["hint"] = self.hint
        if self.errors:
            shown["errors"] = [{"path": path, "message": message} for path, message in self.errors[:ERRORS_MAX]]
        return shown


def problem_of(error: DetentError) -> Problem:
    """A typed error as its caller gets it. A code that only ever ends a job is a failure of this request: 500."""
    listed = error.details.get("errors")
    errors = tuple(
        (str(one["path"]), str(one["message"]))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, Mapping) and "path" in one and "message" in one
    )
    wait_ms = error.details.get("retry_after_ms")
    retry_after_ms = wait_ms if isinstance(wait_ms, int) else None
    conflict: dict[str, Any] = {name: error.details[name] for name in CONFLICT if name in error.details}
    return Problem(error.code, str(error), error.hint, error.retryable, retry_after_ms, errors, conflict)


def bug(request_id: str) -> dict[str, Any]:
    """What a caller learns of our own bug: the number to report, and nothing else."""
    return Problem("INVARIANT_VIOLATION", "the server stopped on an internal fault").document(request_id)
