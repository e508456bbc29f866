"""What a runner makes of a payload, and what it makes of an execution."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from detent.artifacts.api import Stored
from detent.artifacts.file_type import Sniffed
from detent.executor.sandbox import Execution, OutputFile
from detent.jobs.category import ErrorCategory
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
