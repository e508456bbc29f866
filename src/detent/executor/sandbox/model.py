"""What goes into the sandbox and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from detent.canon import json_encode
from detent.canon.grammar import SANDBOX_MEMORY_MB_MIN
from detent.errors import InvalidInput
from detent.executor.sandbox import filter_rules
from detent.jobs.status import ErrorCategory
from detent.jobs.work import NO_USAGE, Usage

if TYPE_CHECKING:
    from detent.jobs.payload import Limits as ContractLimits

MB: Final = 1024 * 1024
PROCESSES_MAX: Final = 4096
DISK_BYTES_MAX: Final = 1 << 40
INPUTS_MAX: Final = 256
SOURCE_BYTES_MAX: Final = 8 * MB
PARAMETERS_BYTES_MAX: Final = 8 * MB


class Profile(StrEnum):
    """How well a job is contained, strongest first. docs/sandbox.md says what each holds and what it does not."""

    FULL = "full"
    """Namespaces, Landlock, seccomp, and control groups that count the whole tree."""
    FULL_ROOTLESS = "full-rootless"
    """The same without control groups: memory and processes of the tree are looked at, not counted by the kernel."""
    KERNEL_FILTER = "kernel-filter"
    """Landlock, seccomp and limits, in the host's own namespaces."""
    NONE = "none"
    """A plain child process with limits."""

    @property
    def strength(self) -> int:
        """Higher is stronger."""
        return len(Profile) - list(Profile).index(self)


CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
"""Where a job with a network finds the authorities that TLS trusts, where the machine has them there."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Hard limits of one execution. None means that there is none of that kind."""

    wall_ms: int | None = 30_000
    cpu_ms: int | None = 30_000
    memory_bytes: int = 512 * MB
    output_bytes: int = 256 * 1024
    """Of stdout, of stderr and of the result, each."""
    artifacts_max: int = 50
    disk_bytes: int = 128 * MB
    """All that a job may hold in files at once. It lies in memory, so it counts as memory too."""
    disk_files: int = 4096
    processes: int = 64
    """Processes and threads together."""

    def __post_init__(self) -> None:
        bounds = {
            "wall_ms": (1, 2**53),
            "cpu_ms": (1, 2**53),
            "memory_bytes": (SANDBOX_MEMORY_MB_MIN * MB, 2**53),
            "output_bytes": (1, 64 * MB),
            "artifacts_max": (0, 1000),
            "disk_bytes": (4096, DISK_BYTES_MAX),
            "disk_files": (1, 100_000_000),
            "processes": (1, PROCESSES_MAX),
        }
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if value is None and name in {"wall_ms", "cpu_ms"}:
                continue
            if type(value) is not int or not least <= value <= most:
                raise InvalidInput(f"{name} must be from {least} to {most}, not {value!r}", details={"argument": name})


def limits_of(contract: ContractLimits, **further: int) -> Limits:
    """The limits of a job's contract, with the executor's own for what the contract does not name."""
    return Limits(
        wall_ms=contract.timeout_ms,
        cpu_ms=contract.cpu_ms,
        memory_bytes=contract.memory_bytes,
        output_bytes=contract.output_bytes,
        artifacts_max=contract.max_artifacts,
        **further,
    )


@dataclass(frozen=True, slots=True)
class Input:
    """A file or directory that the job may read, under ``/job/inputs/NAME``."""

    path: Path
    digest: bytes | None = None
    """SHA-256 of a file's bytes; what does not have it is refused before the start."""


@dataclass(frozen=True, slots=True)
class Job:
    """One piece of untrusted work: Python source, or a program that the sandbox can see."""

    source: str | None = None
    entry: str | None = None
    """A function of the source, called with the parameters by name; its value is the result."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    argv: tuple[str, ...] | None = None
    """Instead of source: a program; what it writes to descriptor 3 is the result."""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    filename: str = "main.py"
    runner: str = filter_rules.CODE
    """Whose list of system calls holds: that of untrusted code, or the shorter one of a tool of ours."""
    network: bool = False
    """Whether it gets the machine's network: it may connect to everything that the machine reaches, its loopback included."""

    def __post_init__(self) -> None:
        if self.runner not in filter_rules.RUNNERS:
            raise InvalidInput(f"runner must be one of {', '.join(filter_rules.RUNNERS)}, not {self.runner!r}")
        if self.network and self.runner != filter_rules.CODE:
            raise InvalidInput(f"the runner {self.runner!r} uses no network")
        if (self.source is None) == (self.argv is None):
            raise InvalidInput("a job has either source or argv")
        if self.argv is not None and (not self.argv or self.entry is not None):
            raise InvalidInput("argv names a program, which has no entry")
        if self.source is not None and len(self.source.encode("utf-8", "surrogatepass")) > SOURCE_BYTES_MAX:
            raise InvalidInput(f"the source has more than {SOURCE_BYTES_MAX} bytes")
        json_encode(dict(self.parameters), name="parameters", bytes_max=PARAMETERS_BYTES_MAX)
        if len(self.inputs) > INPUTS_MAX:
            raise InvalidInput(f"a job has at most {INPUTS_MAX} inputs, not {len(self.inputs)}")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Something the kernel reported of the guest: what it tried, by which call, with which arguments."""

    kind: str
    """``violation`` or ``limit``."""
    what: str
    syscall: str
    arguments: tuple[int, ...]
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """What was written to stdout or stderr: raw bytes, cut between two characters if there was too much."""

    data: bytes = b""
    truncated: bool = False

    @property
    def text(self) -> str:
        """For people and JSON; bytes that are not UTF-8 become replacement characters."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file the job left in ``/job/out``: its name there, and a copy of its bytes that only we ever wrote."""

    name: str
    size_bytes: int
    digest: bytes
    path: Path


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of the user's code, as the guest told it and as we checked and cut it."""

    type: str
    message: str
    traceback: str
    line: int | None
    """In the job's own source; the first line is 1."""
    column: int | None
    """The first character of a line is 1."""


@dataclass(frozen=True, slots=True)
class Execution:
    """The outcome of one execution. ``category`` is None when it went well."""

    profile: Profile
    profile_required: Profile
    """What untrusted code needs here. When it is weaker than the default, an operator lowered it."""
    category: ErrorCategory | None
    code: str | None
    message: str
    status: int | None = None
    """The raw wait status of the guest; None when it never ran or its end was not seen."""
    timed_out: bool = False
    cancelled: bool = False
    stdout: Stream = Stream()
    stderr: Stream = Stream()
    result: bytes | None = None
    """Strict JSON; None when there is none."""
    raised: Raised | None = None
    files: tuple[OutputFile, ...] = ()
    usage: Usage = NO_USAGE
    evidence: tuple[Evidence, ...] = ()
    oom_kills: int = 0

    @property
    def ok(self) -> bool:
        """Whether the job did what it was asked to."""
        return self.category is None and not self.cancelled

    @property
    def lowered(self) -> bool:
        """Whether an operator allowed less than untrusted code should have."""
        return self.profile_required.strength < DEFAULT_REQUIRED.strength


DEFAULT_REQUIRED: Final = Profile.FULL_ROOTLESS
"""What untrusted code needs unless an operator says otherwise."""
