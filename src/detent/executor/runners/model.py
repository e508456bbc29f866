"""What a runner makes of a payload and of an execution, and the envelope that a platform reads.

What a runner makes of a payload, and what it makes of an execution.

Puts an outcome into the envelope that a platform reads. Nothing in it but the outputs is a guest's word.

Who the job is, when it ran, what it used and in which sandbox come from the payload, the caller and the supervisor. Times
and the nonce are the caller's, who reads them off the kernel's ticks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from detent.artifacts.api import Stored
from detent.artifacts.content_type import Sniffed
from detent.canon import digest_text
from detent.executor.sandbox import Execution, OutputFile
from detent.jobs.bounds import DEFAULT_BOUNDS, Bounds, bound_result, limit_code
from detent.jobs.fields import SCHEMA_VERSION, EnvelopeInvalid, moment, validate
from detent.jobs.payload import MB, JobPayload
from detent.jobs.result import JobResult
from detent.jobs.status import TIMEOUT_CODES, ErrorCategory, JobStatus, code_fault
from detent.store.streams import Readable

UNSUPPORTED: Final = "VALIDATION_ERROR"
"""The registered code of a payload that does not fit, also of one that this executor cannot serve."""


class Artifacts(Protocol):
    """The little that runners need of a store of artifacts; see `detent.artifacts.api.ArtifactStore`."""

    def put(self, source: Path, *, digest: bytes | None = None) -> Stored:
        """Keep a copy of a file's bytes, which must have the digest; they are durable when this returns."""
        ...

    def open(self, digest: bytes) -> Readable | None:
        """The bytes as a stream that raises `StoreCorrupt` before its end if they have another digest; None for none."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerFailure:
    """Why there is no success: a job's error before it is put into an envelope."""

    category: ErrorCategory
    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a job reads: the name they get under ``/job/inputs`` and their digest."""

    name: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A payload turned into work for the sandbox; nothing of it has been looked up or run yet."""

    source: str
    entry: str
    parameters: Mapping[str, Any]
    filename: str = "main.py"
    needs: tuple[Need, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    """Small files of ours to be mounted beside the needs, by name."""
    libraries: Mapping[str, Path] = field(default_factory=dict)
    """Packages of the tools, mounted read-only beside the needs."""
    runner: str = "code"
    """Whose system calls it may make."""


@dataclass(frozen=True, slots=True)
class Made:
    """An output file with what it was found to be."""

    file: OutputFile
    kind: str
    sniffed: Sniffed
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """An entry for the job's log; its time is added with the envelope."""

    level: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an execution. ``failure`` is None for a success."""

    failure: RunnerFailure | None = None
    result_json: Any = None
    stdout: str = ""
    stderr: str = ""
    truncated: tuple[str, ...] = ()
    made: tuple[Made, ...] = ()
    notes: tuple[Note, ...] = ()


class Runner(Protocol):
    """One job type. Both steps are pure: files are found and run by the shell between them."""

    def prepare(self, payload: Any) -> Prepared | RunnerFailure: ...
    def judge(self, payload: Any, execution: Execution) -> Outcome: ...


def unsupported(path: str, message: str) -> RunnerFailure:
    """A payload that this executor does not take, with the path of the field that says so."""
    return RunnerFailure(ErrorCategory.VALIDATION_ERROR, UNSUPPORTED, f"payload.{path}: {message}", {"path": path})


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
