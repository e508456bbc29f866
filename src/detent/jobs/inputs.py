"""What a job is about, what goes into it and what is wanted of it: the parts of a payload that differ by job type."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from detent.jobs.fields import Digest, Id, Json, JsonObject, Misplaced, Name, Part, unique
from detent.jobs.keys import TARGETS_MAX

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
