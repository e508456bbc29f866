"""What goes into a pool of plain processes and what it says meanwhile; what comes out is a `detent.jobs.work.Result`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from detent.canon.late import dataclass
from detent.errors import InvalidInput

KINDS: Final = ("python", "shell")
MB: Final = 1024 * 1024
OUTPUT_BYTES_MAX: Final = MB
"""Of stdout and of stderr, each, that are kept of one task: both ends, with a mark where the middle is left out."""
VALUE_BYTES_MAX: Final = 16 * MB
"""Of one result as strict JSON; larger data travels as a `detent.File`."""
NOTHING: Final[Mapping[str, str]] = {}
NO_ARGUMENTS: Final = b"[[],{}]"


@dataclass(frozen=True, slots=True)
class Context:
    """Whose work a task is: what `detent.context()` tells the user's code."""

    job_id: str = ""
    run_id: str | None = None
    attempt: int = 1
    idempotency_token: str = ""
    step: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of trusted work.

    ``arguments`` is a stored value (see `detent.jobs.values`) as strict JSON: a list of the positional arguments and a mapping
    of the named ones. ``values`` holds, for each ``$result`` in it, that result's stored value, as bytes or in a file.
    """

    number: int
    """Names the task in this pool; no two that are under way may have the same."""
    target: str
    """``module:name`` or ``path/file.py:name`` of a function, or the command line of a shell task."""
    kind: str = "python"
    base: str | None = None
    """Directory that modules and paths start from, and the working directory unless `cwd` says another."""
    cwd: str | None = None
    """Working directory, relative to `base`."""
    env: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    arguments: bytes = NO_ARGUMENTS
    values: Mapping[str, bytes | Path] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    """Paths that have to be there before it begins, relative to the working directory."""
    outputs: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Paths or globs that the task leaves behind, by name, relative to the working directory."""
    code: str | None = None
    """Names the code that is meant, equal for equal code; None when it is not known. A worker that was not asked for it
    before looks whether what it has loaded is still what its files say."""
    shell: tuple[str, ...] = ()
    """The words before the command line of a shell task; without any it is ``/bin/sh -c``."""
    wall_ms: int | None = None
    """Limit of this task, from its first moment; None is none (X-162)."""
    memory_bytes: int | None = None
    """Limit of the resident memory of its process and of everything below it. A task with one gets a worker of its own."""
    context: Context = Context()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput(f"a plain process runs {' and '.join(KINDS)}, not {self.kind!r:.80}")
        if not 0 <= self.number < 1 << 63:
            raise InvalidInput(f"a task's number must be from 0 to 2^63-1, not {self.number}")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running task says about how far it is."""

    number: int
    fraction: float
    message: str
