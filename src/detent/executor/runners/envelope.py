"""Puts an outcome into the envelope that a platform reads. Nothing in it but the outputs is a guest's word.

Who the job is, when it ran, what it used and in which sandbox come from the payload, the caller and the supervisor. Times
and the nonce are the caller's, who reads them off the kernel's ticks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from detent.artifacts.api import Stored
from detent.canon import digest_text
from detent.executor.runners.model import Made, Note, Outcome, RunnerFailure
from detent.executor.sandbox import Execution
from detent.jobs.bounds import DEFAULT_BOUNDS, Bounds, bound_result, limit_code
from detent.jobs.category import ErrorCategory, code_fault
from detent.jobs.fields import EnvelopeInvalid, moment, validate
from detent.jobs.limits import MB
from detent.jobs.payload import JobPayload
from detent.jobs.result import JobResult
from detent.jobs.status import TIMEOUT_CODES, JobStatus
from detent.jobs.versions import SCHEMA_VERSION


class Times(NamedTuple):
    """Of one attempt, as text."""

    started_at: str
    finished_at: str


def envelope(
    payload: JobPayload,
    outcome: Outcome,
    execution: Execution | None,
    stored: tuple[Stored, ...],
    *,
    times: Times,
    nonce: str,
    bounds: Bounds = DEFAULT_BOUNDS,
) -> JobResult:
    """The result of an attempt that was not cancelled: bounded, and valid even for a hostile guest."""
    try:
        result = _build(payload, outcome, execution, stored, times, nonce)
        code = limit_code(result, payload.limits) if outcome.failure is None else None
        if code is not None:
            failure = RunnerFailure(ErrorCategory.RESOURCE_LIMIT, code, "returned more than it may")
            result = _build(payload, Outcome(failure), execution, (), times, nonce)
    except EnvelopeInvalid as exc:
        failure = RunnerFailure(
            ErrorCategory.VALIDATION_ERROR, "OUTPUT_INVALID", f"the outputs do not fit a result: {exc}"
        )
        result = _build(payload, Outcome(failure), execution, (), times, nonce)
    return bound_result(result, payload.limits, bounds)


def cancelled(payload: JobPayload, execution: Execution | None, *, times: Times, nonce: str) -> JobResult:
    """The answer to a cancel: what was used, and nothing of what was made."""
    document = _head(payload, JobStatus.CANCELLED, execution, times, nonce)
    return validate(JobResult, {**document, **_used(execution)}, name="result")


def _build(
    payload: JobPayload,
    outcome: Outcome,
    execution: Execution | None,
    stored: tuple[Stored, ...],
    times: Times,
    nonce: str,
) -> JobResult:
    failure = outcome.failure
    status = JobStatus.SUCCEEDED
    if failure is not None:
        status = JobStatus.TIMED_OUT if failure.code in TIMEOUT_CODES else JobStatus.FAILED
    notes = (*_evidence(execution), *outcome.notes)
    document = {
        **_head(payload, status, execution, times, nonce),
        **_used(execution),
        "outputs": {
            "result_json": outcome.result_json,
            "stdout": outcome.stdout,
            "stderr": outcome.stderr,
            "truncated": list(outcome.truncated),
        },
        "artifacts": [
            _artifact(payload, number, made, kept)
            for number, (made, kept) in enumerate(zip(outcome.made, stored, strict=True), 1)
        ]
        if stored
        else [],
        "logs": [{"level": note.level, "message": note.message, "timestamp": times.finished_at} for note in notes],
    }
    if failure is not None:
        document["error"] = {
            "category": failure.category.value,
            # A code that the registry gives another meaning would make the whole result unreadable.
            "code": failure.category.value if code_fault(failure.code, failure.category) else failure.code,
            "message": failure.message,
            "details": dict(failure.details),
        }
    return validate(JobResult, document, name="result")


def _head(
    payload: JobPayload, status: JobStatus, execution: Execution | None, times: Times, nonce: str
) -> dict[str, Any]:
    # A payload without an environment is refused, and the refusal has to stand somewhere.
    environment: dict[str, Any] = {"env_version": payload.environment.env_version or "none"}
    if execution is not None:
        environment["sandbox"] = execution.profile.value
    # A clock that went back must not make a result that cannot be read.
    backwards = moment(times.finished_at) < moment(times.started_at)
    return {
        "schema_version": str(SCHEMA_VERSION),
        "job_id": payload.job_id,
        "job_type": payload.job_type,
        "status": status.value,
        "started_at": times.started_at,
        "finished_at": times.started_at if backwards else times.finished_at,
        "environment": environment,
        "nonce": nonce,
    }


def _used(execution: Execution | None) -> dict[str, Any]:
    if execution is None:
        return {}
    usage = execution.usage
    return {
        "duration_ms": usage.wall_ms,
        "resource_usage": {
            "cpu_ms": usage.cpu_ms,
            "memory_mb_peak": -(-usage.memory_bytes_peak // MB),
            "io_bytes_read": usage.io_bytes_read,
            "io_bytes_written": usage.io_bytes_written,
        },
    }


def _artifact(payload: JobPayload, number: int, made: Made, stored: Stored) -> dict[str, Any]:
    return {
        "artifact_id": f"{payload.job_id}.{number}",
        "kind": made.kind,
        "format": made.sniffed.format,
        "digest": digest_text(stored.digest),
        "size_bytes": stored.size_bytes,
        "uri": stored.uri,
        "content_type": made.sniffed.content_type,
        "metadata": {"name": made.file.name, **made.sniffed.metadata, **made.metadata},
    }


def _evidence(execution: Execution | None) -> tuple[Note, ...]:
    if execution is None:
        return ()
    notes = [
        Note("error", f"{one.kind}: {one.what}: {one.syscall}{f' {one.path!r}' if one.path else ''}")
        for one in execution.evidence
    ]
    if execution.lowered:
        required = execution.profile_required.value
        notes.append(Note("warning", f"an operator lowered the sandbox that untrusted code needs to {required}"))
    return tuple(notes)
