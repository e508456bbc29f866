"""Which process made something, so that a later reader can tell whether that process is provably gone.

A process id alone may be reused. With the boot, the namespace of process ids and the moment of the start it names one process
of this machine and no other. When anything leaves room for doubt (another container, a system without /proc), the process counts as alive.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_PROC: Final = Path("/proc")


class ProcessMark(NamedTuple):
    """One process of one boot of one machine."""

    boot: str
    namespace: str
    pid: int
    started: str
    """In ticks since the boot."""

    @classmethod
    def own(cls) -> ProcessMark:
        """The mark of this process."""
        return _own(os.getpid())

    @classmethod
    def parse(cls, parts: list[str]) -> ProcessMark | None:
        """A mark from its four parts as text; None for what is none."""
        if len(parts) != 4 or not parts[2].isdecimal():
            return None
        return cls(parts[0], parts[1], int(parts[2]), parts[3])

    def parts(self) -> list[str]:
        """The four parts as text; none holds a dot, a dash or a slash."""
        return [self.boot, self.namespace, str(self.pid), self.started]

    @property
    def is_gone(self) -> bool:
        """Whether that process has provably ended."""
        here = _surroundings()
        if not self.boot or not here[0]:
            return False
        if self.boot != here[0]:
            return True  # What is found lies on a disk of this machine: that was an earlier boot.
        if not self.namespace or self.namespace != here[1]:
            return False
        return _started(self.pid) != self.started


@cache
def _own(pid: int) -> ProcessMark:
    return ProcessMark(*_surroundings(), pid, _started(pid) or "0")


@cache
def _surroundings() -> tuple[str, str]:
    """The boot and the namespace of process ids; empty where they cannot be told."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = str((_PROC / "self/ns/pid").readlink()).removeprefix("pid:[").removesuffix("]")
    except OSError:
        return "", ""
    return boot, namespace


def _started(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None when there is none, or only its corpse."""
    try:
        # The name in parentheses may hold anything; the fields after it count from the last parenthesis.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]
