"""What an executor is sent: one envelope with the same head for every job, and four kinds of inputs (JOB-034 to JOB-048).

A payload exists in two forms. A *draft* may leave out what the platform knows better: time, requester, limits,
environment, key, nonce. `detent.jobs.complete` fills these in before anything is signed, and an executor takes complete
payloads only (X-152). Both forms are read by the same models.

What a job is about, what goes into it and what is wanted of it: the parts of a payload that differ by job type.

How much a platform job may use, and what runs it (JOB-036 to JOB-041). What it may ask for is its plan's: `plans`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from detent.canon.strict_json import JSON_BYTES_MAX
from detent.jobs.dedupe import TARGETS_MAX
from detent.jobs.fields import (
    PAYLOAD_UPGRADES,
    Digest,
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
    read,
    unique,
)

DEPENDENCIES_MAX: Final = 10_000
PIXELS_MAX: Final = 16_384
"""Longest side of a thumbnail."""

ExportFormat: TypeAlias = Literal["pdf", "html", "bundle"]


class Target(Part):
    """The object or objects a job is about: exactly one of both fields (X-156)."""

    object_id: Id | None = None
    object_ids: Annotated[tuple[Id, ...], Field(strict=False, min_length=1, max_length=TARGETS_MAX)] | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.object_id is None) == (self.object_ids is None):
            raise Misplaced("object_id", "give exactly one of object_id and object_ids")
        unique(self.object_ids or (), "object_ids")
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """The objects, however many were written how."""
        return (self.object_id,) if self.object_id is not None else self.object_ids or ()


class ObjectDependency(Part):
    """Another object that the code uses; a snapshot pins its content."""

    kind: Literal["object"]
    id: Id


class DatasetDependency(Part):
    """Data by its digest. A name may stand beside it for people; neither a path nor an address finds it (JOB-071)."""

    kind: Literal["dataset"]
    digest: Digest


Dependency: TypeAlias = Annotated[ObjectDependency | DatasetDependency, Field(discriminator="kind")]


class DependencySnapshot(Part):
    """The content of an object that the job depends on, pinned."""

    kind: Literal["object"]
    id: Id
    content_digest: Digest
    resolved_runtime: Json = None


class ObjectContent(Part):
    """An object's content and how it is written: ``blockdoc``, ``latex``, …"""

    format: Name
    value: Json


class Runtime(Part):
    """How an object's code is called."""

    language: Name = "python"
    entrypoint: Id = "main"
    parameters: JsonObject = Field(default_factory=dict)


class CodeObject(Part):
    """An object that can be executed."""

    type: Name
    content: ObjectContent
    dependencies: Annotated[tuple[Dependency, ...], Field(strict=False, max_length=DEPENDENCIES_MAX)] = ()
    runtime: Runtime = Runtime()


class StaticObject(Part):
    """An object that can be rendered without being executed."""

    type: Name
    content: ObjectContent


class ExecuteInputs(Part):
    """The object with everything it depends on: an executor makes no calls to fetch more (JOB-043)."""

    object: CodeObject
    dependency_snapshots: Annotated[
        tuple[DependencySnapshot, ...], Field(strict=False, max_length=DEPENDENCIES_MAX)
    ] = ()

    @model_validator(mode="after")
    def _dependencies_are_pinned(self) -> Self:
        pinned = tuple(snapshot.id for snapshot in self.dependency_snapshots)
        unique(pinned, "dependency_snapshots")
        known = set(pinned)
        for index, dependency in enumerate(self.object.dependencies):
            if isinstance(dependency, ObjectDependency) and dependency.id not in known:
                raise Misplaced(
                    f"object.dependencies[{index}]", f"object {dependency.id!r} has no entry in dependency_snapshots"
                )
        return self


class RenderInputs(Part):
    """The object to render."""

    object: StaticObject


class ExportInputs(Part):
    """What the document becomes."""

    export_format: ExportFormat
    view_mode: Name = "slide"
    include_speaker_notes: bool = False


class ThumbnailInputs(Part):
    """The box the picture has to fit into, in pixels."""

    width: Annotated[int, Field(ge=1, le=PIXELS_MAX)]
    height: Annotated[int, Field(ge=1, le=PIXELS_MAX)]


class OutputSpec(Part):
    """Which outputs are wanted, as formats without repeats."""

    @model_validator(mode="after")
    def _formats_are_unique(self) -> Self:
        unique(getattr(self, "formats", ()), "formats")
        return self


class ExecuteOutput(OutputSpec):
    """Outputs of an execution."""

    return_stdout: bool = True
    return_stderr: bool = True
    formats: Annotated[tuple[Literal["json", "png", "svg"], ...], Field(strict=False)] = ("json",)


class RenderOutput(OutputSpec):
    """Outputs of a rendering."""

    formats: Annotated[tuple[Literal["svg", "png"], ...], Field(strict=False, min_length=1)]


class ExportOutput(OutputSpec):
    """Outputs of an export."""

    formats: Annotated[tuple[ExportFormat, ...], Field(strict=False, min_length=1)]


class ThumbnailOutput(OutputSpec):
    """Outputs of a thumbnail job."""

    formats: Annotated[tuple[Literal["png", "jpeg", "webp"], ...], Field(strict=False, min_length=1)]


KB: Final = 1024
MB: Final = 1024 * 1024

TIME_MS_MAX: Final = 366 * 86_400_000
MEMORY_MB_MAX: Final = 16 * 1024 * 1024
OUTPUT_KB_MAX: Final = 2048
"""Larger output travels as an artifact. An envelope holds up to three such texts, see `ENVELOPE_BYTES_MAX`."""
ARTIFACTS_MAX: Final = 1000

ENVELOPE_BYTES_MAX: Final = 64 * MB
"""Size of a result as JSON: room for every bound at its maximum, however much of the text has to be escaped."""

NetworkAccess: TypeAlias = Literal["disabled", "enabled"]


class Limits(Part):
    """Hard limits of one attempt; the executor enforces each (A.6)."""

    timeout_ms: Annotated[int, Field(ge=1, le=TIME_MS_MAX)] = 30_000
    cpu_ms: Annotated[int, Field(ge=1, le=TIME_MS_MAX)] = 30_000
    memory_mb: Annotated[int, Field(ge=1, le=MEMORY_MB_MAX)] = 512
    max_output_kb: Annotated[int, Field(ge=1, le=OUTPUT_KB_MAX)] = 256
    max_artifacts: Annotated[int, Field(ge=1, le=ARTIFACTS_MAX)] = 50

    @property
    def memory_bytes(self) -> int:
        """The memory limit in bytes."""
        return self.memory_mb * MB

    @property
    def output_bytes(self) -> int:
        """The limit of stdout, of stderr and of ``result_json``, each, in bytes."""
        return self.max_output_kb * KB


class Environment(Part):
    """What runs the job. Without a word about the network there is none."""

    language: Name = "python"
    env_version: Id | None = None
    """Image or runtime, such as ``py-executor@2026.01.10``; the platform fills it in."""
    network_access: NetworkAccess = "disabled"


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

    schema_version: VersionText
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
