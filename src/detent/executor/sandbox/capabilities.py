"""What this machine can do for a sandbox, and which profile that makes. Plain data, for `detent doctor` and the record."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from detent.executor.sandbox import cgroup, interpreter
from detent.executor.sandbox.jail import ABI_SIGNALS
from detent.executor.sandbox.model import Profile

TRIAL_SECONDS_MAX: Final = 30
TRIALS_MAX: Final = 3
SAID_CHARS_MAX: Final = 300
WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "user_namespace": "namespaces without privilege",
        "pid_namespace": "an own tree of processes",
        "network_namespace": "an own, empty network",
        "ipc_namespace": "own queues and shared memory",
        "uts_namespace": "an own host name",
        "mounts": "an own root of limited size",
        "landlock": "Landlock rules for files",
        "seccomp": "a system call filter that reports",
        "pidfd": "handles on processes",
        "openat2": "opening files without following links",
        "cgroup": "counting memory, processes and time of a whole tree",
    }
)
_NAMESPACES: Final = (
    "user_namespace",
    "pid_namespace",
    "network_namespace",
    "ipc_namespace",
    "uts_namespace",
    "mounts",
)
_ALWAYS: Final = ("landlock", "seccomp", "pidfd", "openat2")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Each primitive with the reason why it is missing; an empty text where it works."""

    missing: Mapping[str, str] = field(default_factory=dict)
    landlock_abi: int = 0
    is_root: bool = False

    def has(self, name: str) -> bool:
        """Whether a primitive was tried and works."""
        return self.missing.get(name, "was not tried") == ""

    def lines(self) -> tuple[tuple[str, bool, str], ...]:
        """For people: each primitive's name, whether it works, and what it is for or why it does not."""
        return tuple(
            (name, self.has(name), words if self.has(name) else f"{words}: {self.missing.get(name, 'was not tried')}")
            for name, words in WORDS.items()
        )


def profile_of(capabilities: Capabilities) -> Profile:
    """The strongest profile these primitives make."""
    if not all(capabilities.has(name) for name in _ALWAYS):
        return Profile.NONE
    if all(capabilities.has(name) for name in _NAMESPACES):
        return Profile.FULL if capabilities.has("cgroup") else Profile.FULL_ROOTLESS
    # Without a pid namespace only Landlock keeps a guest from signalling its user's other processes.
    return Profile.KERNEL_FILTER if capabilities.landlock_abi >= ABI_SIGNALS else Profile.NONE


@functools.cache
def probe() -> Capabilities:
    """Try every primitive in a child of its own, once per process. A child that was killed tells nothing."""
    why = "the trial was killed"
    for _ in range(TRIALS_MAX):
        child = interpreter.start("trial.py", output=True)
        try:
            data, said = child.communicate(timeout=TRIAL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # It leads a session of its own, with its trials in it.
            child.communicate()
            return _untried("the trial did not end")
        try:
            answer = json.loads(data)
        except ValueError:
            if child.returncode == -signal.SIGKILL:
                continue
            last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = f"the trial failed: {last[:SAID_CHARS_MAX] or f'it ended with status {child.returncode}'}"
            break
        abi = answer.pop("landlock_abi")
        return Capabilities(MappingProxyType(answer), abi, os.geteuid() == 0)
    return _untried(why)


def _untried(why: str) -> Capabilities:
    return Capabilities(dict.fromkeys(WORDS, why), 0, os.geteuid() == 0)


def group_place() -> dict[str, object] | None:
    """Where this process may make control groups, as `cgroup.find` tells it."""
    return cgroup.find(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
