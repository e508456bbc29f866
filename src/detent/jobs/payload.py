"""What an executor is sent: one envelope with the same head for every job, and four kinds of inputs (JOB-034 to JOB-048).

A payload exists in two forms. A *draft* may leave out what the platform knows better: time, requester, limits,
environment, key, nonce. `detent.jobs.complete` fills these in before anything is signed, and an executor takes complete
payloads only (X-152). Both forms are read by the same models.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, Literal, Self, TypeAlias

from pydantic import ModelWrapValidatorHandler, model_validator

from detent.canon.strict_json import JSON_BYTES_MAX
from detent.jobs.fields import Digest, Id, JobId, Misplaced, Moment, Nonce, Part, Version, read
from detent.jobs.inputs import (
    ExecuteInputs,
    ExecuteOutput,
    ExportInputs,
    ExportOutput,
    RenderInputs,
    RenderOutput,
    Target,
    ThumbnailInputs,
    ThumbnailOutput,
)
from detent.jobs.limits import Environment, Limits
from detent.jobs.versions import PAYLOAD_UPGRADES


class JobType(StrEnum):
    """What a platform job does."""

    OBJECT_EXECUTE = "object_execute"
    OBJECT_RENDER = "object_render"
    DOCUMENT_EXPORT = "document_export"
    THUMBNAIL_GENERATE = "thumbnail_generate"


LOCAL_USER: Final = "local"
"""Who asks for the platform jobs of a contract that is run at home."""
Priority: TypeAlias = Literal["low", "normal", "high"]


class RequestedBy(Part):
    """Who asked for the job."""

    user_id: Id


class JobPayload(Part):
    """The head that every platform job has. Reading a document through this class gives the class of its job type."""

    schema_version: Version
    job_id: JobId
    job_type: Literal["object_execute", "object_render", "document_export", "thumbnail_generate"]
    created_at: Moment | None = None
    workspace_id: Id
    project_id: Id
    document_id: Id
    document_revision_id: Id
    execution_key: Digest | None = None
    priority: Priority = "normal"
    requested_by: RequestedBy | None = None
    limits: Limits = Limits()
    environment: Environment = Environment()
    target: Target | None = None
    inputs: Any
    output_spec: Any
    retry_of: JobId | None = None
    """The ended job that this one repeats: after a terminal failure there is no other way to try again (X-154)."""
    nonce: Nonce | None = None

    @model_validator(mode="wrap")
    @classmethod
    def _by_job_type(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if cls is JobPayload and isinstance(data, dict):
            job_type = data.get("job_type")
            chosen = _PAYLOADS.get(job_type) if isinstance(job_type, str) else None
            if chosen is not None:
                return chosen.model_validate(data)  # type: ignore[return-value]  # a subclass is what Self promises
        return handler(data)

    @model_validator(mode="after")
    def _repeats_another(self) -> Self:
        if self.retry_of == self.job_id:
            raise Misplaced("retry_of", "a job cannot be the retry of itself")
        return self

    @property
    def object_ids(self) -> tuple[str, ...]:
        """The objects the job is about; none for a job about the whole document."""
        return () if self.target is None else self.target.ids

    @property
    def tenant_id(self) -> str:
        """The kernel's word for the workspace (X-017)."""
        return self.workspace_id


class ObjectExecute(JobPayload):
    """Run a compute-capable object, such as a Python cell."""

    job_type: Literal["object_execute"]
    target: Target
    inputs: ExecuteInputs
    output_spec: ExecuteOutput


class ObjectRender(JobPayload):
    """Make a derived picture of an object without executing it."""

    job_type: Literal["object_render"]
    target: Target
    inputs: RenderInputs
    output_spec: RenderOutput


class DocumentExport(JobPayload):
    """Turn a whole document into a file."""

    job_type: Literal["document_export"]
    target: None = None
    inputs: ExportInputs
    output_spec: ExportOutput

    @model_validator(mode="after")
    def _format_is_wanted(self) -> Self:
        if self.inputs.export_format not in self.output_spec.formats:
            raise Misplaced("output_spec.formats", f"does not name the export_format {self.inputs.export_format!r}")
        return self


class ThumbnailGenerate(JobPayload):
    """Make a small picture of an object or, without a target, of the document."""

    job_type: Literal["thumbnail_generate"]
    inputs: ThumbnailInputs
    output_spec: ThumbnailOutput


_PAYLOADS: Final[Mapping[str, type[JobPayload]]] = {
    JobType.OBJECT_EXECUTE: ObjectExecute,
    JobType.OBJECT_RENDER: ObjectRender,
    JobType.DOCUMENT_EXPORT: DocumentExport,
    JobType.THUMBNAIL_GENERATE: ThumbnailGenerate,
}


def read_payload(data: bytes | Mapping[str, Any]) -> JobPayload:
    """Read a payload, draft or complete, as the class of its job type.

    Raises `EnvelopeInvalid` with the path of the first field that does not fit.
    """
    return read(JobPayload, data, name="payload", bytes_max=JSON_BYTES_MAX, upgrades=PAYLOAD_UPGRADES)
