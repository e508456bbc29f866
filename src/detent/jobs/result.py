"""What an executor answers: one envelope for success and failure alike (JOB-049 to JOB-060).

The status decides which fields must stand there: a success has its outputs, usage and logs; a failure has its error, and
the rest if it is known (X-153). A deadline ends in TIMED_OUT with the category RESOURCE_LIMIT, every other limit in FAILED
with the same category (X-146).

The envelopes as JSON Schema, for those who integrate in another language.

A schema says what has the right shape. What it cannot say (a dependency without a snapshot, a code of another category, a
date that does not exist) the models still refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, TypeAdapter, field_validator, model_validator

from detent.canon import UINT64_MAX, json_encode
from detent.jobs.fields import (
    RESULT_UPGRADES,
    Count,
    Digest,
    Document,
    EnvelopeInvalid,
    Id,
    JobId,
    Json,
    JsonObject,
    Misplaced,
    Moment,
    Name,
    Nonce,
    Part,
    VersionText,
    moment,
    read,
    unique,
)
from detent.jobs.payload import (
    ARTIFACTS_MAX,
    ENVELOPE_BYTES_MAX,
    MB,
    DocumentExport,
    JobPayload,
    ObjectExecute,
    ObjectRender,
    ThumbnailGenerate,
)
from detent.jobs.status import TERMINAL_STATUSES, TIMEOUT_CODES, ErrorCategory, JobStatus, code_fault
from detent.kernel.job import Usage

METADATA_BYTES_MAX: Final = 4096
"""Size of one artifact's metadata."""
URI_CHARS_MAX: Final = 2048

REQUIRED_FOR: Final[Mapping[JobStatus, tuple[str, ...]]] = {
    JobStatus.SUCCEEDED: ("duration_ms", "resource_usage", "outputs", "artifacts", "logs"),
    JobStatus.FAILED: ("error", "outputs", "artifacts"),
    JobStatus.TIMED_OUT: ("error", "outputs", "artifacts"),
    JobStatus.CANCELLED: (),
}
"""What a result of each status has beside the fields that every result has."""


class ResourceUsage(Part):
    """What one attempt used, measured by the supervisor. Absent means none (X-025)."""

    cpu_ms: Count = 0
    memory_mb_peak: Annotated[int, Field(ge=0, le=2**44 - 1)] = 0
    gpu_ms: Count = 0
    io_bytes_read: Count = 0
    io_bytes_written: Count = 0


class ResultEnvironment(Part):
    """What the job ran in; without it a result cannot be attributed (X-151)."""

    env_version: Id
    sandbox: Name | None = None
    """Profile of the sandbox that was in force."""


class Outputs(Part):
    """What the code returned and wrote."""

    result_json: Json = None
    stdout: str = ""
    stderr: str = ""
    truncated: Annotated[tuple[Literal["stdout", "stderr"], ...], Field(strict=False)] = ()
    """The streams that were cut at ``max_output_kb`` (X-147)."""


class Artifact(Part):
    """One file the job made, named by its content."""

    artifact_id: Id
    kind: Name
    format: Name
    digest: Digest
    size_bytes: Count
    uri: Annotated[str, Field(min_length=1, max_length=URI_CHARS_MAX)]
    """Where the bytes lie, for the platform only; clients get signed URLs."""
    content_type: Annotated[
        str,
        StringConstraints(
            pattern=r"^[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}(?:; ?[a-z]+=[A-Za-z0-9_-]+)?$"
        ),
    ]
    metadata: JsonObject = Field(default_factory=dict)

    @field_validator("metadata", mode="after")
    @classmethod
    def _is_small(cls, value: dict[str, Any]) -> dict[str, Any]:
        if (size := len(json_encode(value))) > METADATA_BYTES_MAX:
            raise ValueError(f"has {size} bytes as JSON, {METADATA_BYTES_MAX} are allowed")
        return value


class LogEntry(Part):
    """One line of the executor's log about the job."""

    level: Literal["debug", "info", "warning", "error"]
    message: str
    timestamp: Moment


class ErrorDetails(Part):
    """Where the user's code failed, as far as that is known."""

    traceback: str | None = None
    line: Annotated[int, Field(ge=1, le=UINT64_MAX)] | None = None
    column: Count | None = None


class JobError(Part):
    """Why a job failed."""

    category: Annotated[ErrorCategory, Field(strict=False)]
    code: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
    message: str
    details: ErrorDetails = ErrorDetails()

    @model_validator(mode="after")
    def _code_fits_category(self) -> Self:
        if fault := code_fault(self.code, self.category):
            raise Misplaced("code", fault)
        return self


_BY_STATUS: Final[list[Any]] = [
    {
        "if": {"properties": {"status": {"const": status.value}}},
        "then": {
            "required": list(names),
            "properties": {"error": {"type": "null"}} if status is JobStatus.SUCCEEDED else {},
        },
    }
    for status, names in REQUIRED_FOR.items()
    if names
]


class JobResult(Part):
    """The outcome of one attempt as its executor reports it."""

    model_config = ConfigDict(json_schema_extra={"allOf": _BY_STATUS})

    schema_version: VersionText
    job_id: JobId
    job_type: Literal["object_execute", "object_render", "document_export", "thumbnail_generate"]
    status: Annotated[JobStatus, Field(strict=False)]
    started_at: Moment
    """When the attempt that this is the outcome of began (X-033)."""
    finished_at: Moment
    duration_ms: Count | None = None
    environment: ResultEnvironment
    resource_usage: ResourceUsage | None = None
    outputs: Outputs = Outputs()
    artifacts: Annotated[tuple[Artifact, ...], Field(strict=False, max_length=ARTIFACTS_MAX)] = ()
    logs: Annotated[tuple[LogEntry, ...], Field(strict=False)] = ()
    logs_truncated: bool = False
    """Entries or parts of entries were left out to keep the log bounded (X-155)."""
    error: JobError | None = None
    nonce: Nonce | None = None

    @field_validator("status", mode="after")
    @classmethod
    def _has_ended(cls, value: JobStatus) -> JobStatus:
        if value not in TERMINAL_STATUSES:
            raise ValueError(f"a result is about a job that has ended, not one that is {value.value}")
        return value

    @model_validator(mode="after")
    def _fields_fit_status(self) -> Self:
        for name in REQUIRED_FOR[self.status]:
            if name not in self.model_fields_set or getattr(self, name) is None:
                raise Misplaced(name, f"is required when the status is {self.status.value}")
        if self.status is JobStatus.SUCCEEDED and self.error is not None:
            raise Misplaced("error", "is given in a result that says SUCCEEDED")
        if self.error is not None and (self.error.code in TIMEOUT_CODES) != (self.status is JobStatus.TIMED_OUT):
            raise Misplaced("status", f"{self.status.value} does not fit the code {self.error.code}")
        if moment(self.finished_at) < moment(self.started_at):
            raise Misplaced("finished_at", "comes before started_at")
        unique(tuple(artifact.artifact_id for artifact in self.artifacts), "artifacts")
        return self


def read_result(data: bytes | Mapping[str, Any]) -> JobResult:
    """Read a result. Raises `EnvelopeInvalid` with the path of the first field that does not fit."""
    return read(JobResult, data, name="result", bytes_max=ENVELOPE_BYTES_MAX, upgrades=RESULT_UPGRADES)


def encode_result(result: JobResult) -> bytes:
    """The bytes of a result as they are stored and named by digest; they carry a nonce (X-171)."""
    if result.nonce is None:
        raise EnvelopeInvalid("result.nonce: is missing", details={"path": "nonce"})
    return json_encode(result.document(), name="result", bytes_max=ENVELOPE_BYTES_MAX)


def answer_fault(payload: JobPayload, result: JobResult) -> str | None:
    """Say why a result is not the answer to this payload, or nothing."""
    for name in ("job_id", "job_type"):
        if getattr(result, name) != getattr(payload, name):
            return f"{name} is {getattr(result, name)!r}, the payload's is {getattr(payload, name)!r}"
    ran_in, asked = result.environment.env_version, payload.environment.env_version
    return None if ran_in == asked else f"it ran in {ran_in!r}, the payload asks for {asked!r}"


def public_result(result: JobResult) -> Document:
    """The result as a client may see it: without the addresses of the store and without the nonce (JOB-053)."""
    document = result.document()
    document.pop("nonce", None)
    for artifact in document.get("artifacts", []):
        artifact.pop("uri")
    return document


def usage_of(usage: ResourceUsage) -> Usage:
    """One attempt's usage in the units of the kernel's ledger."""
    return Usage(
        bytes_allocated=0,
        peak_bytes=usage.memory_mb_peak * MB,
        io_bytes_read=usage.io_bytes_read,
        io_bytes_written=usage.io_bytes_written,
        gpu_time_ms=usage.gpu_ms,
        cpu_time_ms=usage.cpu_ms,
    )


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def payload_schema() -> dict[str, Any]:
    """The schema of payloads: one alternative for each job type."""
    kinds = ObjectExecute | ObjectRender | DocumentExport | ThumbnailGenerate
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[kinds, Field(discriminator="job_type")])
    return {"$schema": DIALECT, "title": "JobPayload", **adapter.json_schema()}


def result_schema() -> dict[str, Any]:
    """The schema of results, successes and failures alike."""
    return {"$schema": DIALECT, **JobResult.model_json_schema()}
