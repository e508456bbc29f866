"""Nothing a job says is unbounded: how text, logs and error details are cut, and which excess is a failure (X-147, X-155).

A stream that is too long is cut and marked; the job has not failed by it. A ``result_json`` that is too long cannot be
cut without becoming another value, so that is a failure, and so is one artifact too many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from detent.canon import UINT64_MAX, json_encode
from detent.canon.late import NamedTuple, dataclass
from detent.errors import InvalidInput
from detent.jobs.payload import Limits
from detent.jobs.result import ErrorDetails, JobError, JobResult, LogEntry

LIMIT_OUTPUT: Final = "LIMIT_OUTPUT"
LIMIT_ARTIFACTS: Final = "LIMIT_ARTIFACTS"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Sizes of what a result says beside its streams."""

    max_log_entries: int = 200
    max_log_message_bytes: int = 4096
    """Of one log message, and of an error's message."""
    max_error_details_bytes: int = 65_536
    """Of an error's details as JSON, and so of the traceback in them."""

    def __post_init__(self) -> None:
        for name, least in (("max_log_entries", 0), ("max_log_message_bytes", 0), ("max_error_details_bytes", 256)):
            if getattr(self, name) < least:
                raise InvalidInput(f"{name} must be at least {least}", details={"argument": name})


DEFAULT_BOUNDS: Final = Bounds()


class BoundedText(NamedTuple):
    """A text that fits, and whether something was cut off it."""

    text: str
    truncated: bool


def bound_text(data: bytes | str, bytes_max: int, *, keep_end: bool = False) -> BoundedText:
    """Cut a text to at most ``bytes_max`` bytes of UTF-8, never inside a character.

    Bytes that are not UTF-8 become replacement characters first; these are longer, and it is the text that is bounded.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= bytes_max:
        return BoundedText(encoded.decode(), truncated=False)
    kept = encoded[len(encoded) - bytes_max :] if keep_end else encoded[:bytes_max]
    return BoundedText(kept.decode("utf-8", "ignore"), truncated=True)


class BoundedLogs(NamedTuple):
    """Log entries that fit, and whether something was left out."""

    entries: tuple[LogEntry, ...]
    truncated: bool


def bound_logs(entries: Sequence[LogEntry], bounds: Bounds = DEFAULT_BOUNDS) -> BoundedLogs:
    """The first entries, each with the beginning of its message; unknown fields are dropped when they are long."""
    truncated = len(entries) > bounds.max_log_entries
    kept = []
    for entry in entries[: bounds.max_log_entries]:
        message = bound_text(entry.message, bounds.max_log_message_bytes)
        if _size(entry.model_extra or {}) > bounds.max_log_message_bytes:
            kept.append(LogEntry(level=entry.level, message=message.text, timestamp=entry.timestamp))
            truncated = True
        else:
            kept.append(entry.model_copy(update={"message": message.text}) if message.truncated else entry)
            truncated |= message.truncated
    return BoundedLogs(tuple(kept), truncated)


def bound_error(error: JobError, bounds: Bounds = DEFAULT_BOUNDS) -> JobError:
    """An error with bounded message and details.

    Of a traceback the end is kept, where the exception stands. Details that are too long even without one are replaced
    by the line and column alone.
    """
    message = bound_text(error.message, bounds.max_log_message_bytes)
    details = _bound_details(error.details, bounds.max_error_details_bytes)
    return error.model_copy(update={"message": message.text, "details": details})


def _bound_details(details: ErrorDetails, bytes_max: int) -> ErrorDetails:
    if _size(details.document()) <= bytes_max:
        return details
    rest = {name: value for name, value in details.document().items() if name != "traceback"}
    if _size({**rest, "traceback": "", "truncated": True}) > bytes_max:
        rest = {name: value for name, value in rest.items() if name in ErrorDetails.model_fields}
    room = bytes_max - _size({**rest, "traceback": "", "truncated": True})
    traceback = bound_text(details.traceback or "", room, keep_end=True).text
    # Escapes make JSON up to six times as long as its text, so cut until it fits; a pass never takes too much.
    while (excess := _size(traceback) - len('""') - room) > 0:
        traceback = bound_text(traceback, len(traceback.encode()) - -(-excess // 6), keep_end=True).text
    return ErrorDetails.model_validate({**rest, "traceback": traceback, "truncated": True})


def _size(value: Any) -> int:
    return len(json_encode(value, bytes_max=UINT64_MAX))


def limit_code(result: JobResult, limits: Limits) -> str | None:
    """The code of the limit that a result breaks and that cannot be met by cutting; None when there is none."""
    if _size(result.outputs.result_json) > limits.output_bytes:
        return LIMIT_OUTPUT
    if len(result.artifacts) > limits.max_artifacts:
        return LIMIT_ARTIFACTS
    return None


def bound_result(result: JobResult, limits: Limits, bounds: Bounds = DEFAULT_BOUNDS) -> JobResult:
    """The result with streams, logs and error cut to their bounds and marked; whole already, it stays as it is."""
    changes: dict[str, Any] = {}
    streams: dict[str, Any] = {}
    cut = set(result.outputs.truncated)
    for name in ("stdout", "stderr"):
        text = bound_text(getattr(result.outputs, name), limits.output_bytes)
        if text.truncated:
            streams[name] = text.text
            cut.add(name)
    if streams:
        changes["outputs"] = result.outputs.model_copy(
            update={**streams, "truncated": tuple(sorted(cut, reverse=True))}
        )
    logs = bound_logs(result.logs, bounds)
    if logs.truncated:
        changes.update(logs=logs.entries, logs_truncated=True)
    if result.error is not None and (error := bound_error(result.error, bounds)) != result.error:
        changes["error"] = error
    return result.model_copy(update=changes) if changes else result
