"""How much a platform job may use, and what runs it (JOB-036 to JOB-041). What it may ask for is its plan's: `plans`."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from detent.jobs.fields import Id, Name, Part

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
