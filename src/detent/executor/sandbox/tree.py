"""Looks at the processes of one job: how many, how much processor time, how much memory.

Inside a pid namespace its /proc shows only the job. Without one, the job is what descends from its init, as far as /proc
of the host tells; a process that forks fast enough can escape that, which is one reason why it is the weaker way.
"""

# pathlib would be the largest thing that the spawner loads.
# ruff: noqa: PTH208

from __future__ import annotations

import os

from detent.executor.plain.processes import cpu_ms_of
from detent.executor.sandbox.hidden_time import Life

_TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SHARED, _NAMED = b" /dev/zero (deleted)\n", b" [anon_shmem:"
"""How the kernel lists shared anonymous memory; a process may give its own a name (``PR_SET_VMA``)."""
PROCESSES_MAX = 4096
"""How many processes one look reads at most."""


class Sample:
    """What one look found."""

    __slots__ = ("cpu_ms", "resident_bytes", "tasks")

    def __init__(self, tasks: int, cpu_ms: int, resident_bytes: int) -> None:
        self.tasks = tasks
        self.cpu_ms = cpu_ms
        self.resident_bytes = resident_bytes


class Tree:
    """The processes below init; ``own`` says that /proc belongs to their own pid namespace."""

    def __init__(self, proc: int, *, own: bool) -> None:
        self.proc = proc
        self.own = own
        self.init = os.getpid()

    def pids(self) -> list[int]:
        """Everybody but init."""
        numbers = [int(name) for name in os.listdir(self.proc) if name.isdigit()]
        if self.own:
            return [number for number in numbers if number != self.init][:PROCESSES_MAX]
        parents = {}
        for number in numbers:
            fields = self._stat(number)
            if fields is not None:
                parents[number] = int(fields[1])
        found, edge = [], [self.init]
        while edge:
            edge = [number for number, parent in parents.items() if parent in edge]
            found += edge
        return found[:PROCESSES_MAX]

    def sample(self) -> Sample:
        """Add up everybody; who ends meanwhile is left out, and counted by init when it is reaped."""
        tasks = cpu = resident = 0
        for number in self.pids():
            fields = self._stat(number)
            if fields is not None:
                tasks += max(1, int(fields[17]))
                cpu += sum(int(field) for field in fields[11:15])
                resident += int(fields[21])
        return Sample(tasks, cpu * _TICK_MS, resident * _PAGE)

    def lives(self) -> dict[int, Life]:
        """Every process with the time it used itself, to the nanosecond."""
        found = {}
        for number in self.pids():
            fields = self._stat(number)
            if fields is not None:
                found[number] = Life(cpu_ms_of(number), max(1, int(fields[17])), fields[0] in (b"Z", b"X"))
        return found

    def process_of(self, number: int) -> int | None:
        """The process that a thread or process belongs to; None when it is gone."""
        for line in self.read(f"{number}/status").splitlines():
            if line.startswith(b"Tgid:"):
                return int(line.split()[1])
        return None

    def is_alone(self, pid: int) -> bool:
        """Whether nothing was ever started in this namespace after this process: no child, no thread.

        The last word here is the highest number given so far; numbers are only reused from 300 on.
        """
        return self.own and self.read("loadavg").split()[-1:] == [b"%d" % pid]

    def peak_bytes(self, pid: int) -> int:
        """The most memory a process that still exists ever held."""
        for line in self.read(f"{pid}/status").splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def proportional_bytes(self, *, files_in_memory: bool) -> int:
        """Memory held, with shared pages counted once; slow, so only asked when the plain sum looks too large.

        Without ``files_in_memory`` it leaves out the pages of tmpfs and of shared mappings, for a caller that counts those.
        """
        wanted = (b"Pss:", b"SwapPss:") if files_in_memory else (b"Pss_Anon:", b"Pss_File:", b"SwapPss:")
        total = 0
        for number in self.pids():
            lines = self.read(f"{number}/smaps_rollup").splitlines()
            if not lines and (fields := self._stat(number)) is not None:
                total += int(fields[21]) * _PAGE  # It is there and cannot be looked into.
            for line in lines:
                if line.startswith(wanted):
                    total += int(line.split()[1]) * 1024
        return total

    def shared_objects(self) -> int | None:
        """How many objects of shared anonymous memory are still mapped somewhere; None when one process cannot be read."""
        found = set()
        for number in self.pids():
            try:
                with open(
                    f"{number}/maps", "rb", opener=lambda name, flags: os.open(name, flags, dir_fd=self.proc)
                ) as file:
                    # Address, rights, offset, device, inode, name.
                    found |= {tuple(line.split()[3:5]) for line in file if line.endswith(_SHARED) or _NAMED in line}
            except (FileNotFoundError, ProcessLookupError):
                continue
            except OSError:
                return None
        return len(found)

    def read(self, name: str) -> bytes:
        """A small file of /proc; empty when its process is gone."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        except OSError:
            return b""
        try:
            return os.read(file, 8192)
        except OSError:
            return b""
        finally:
            os.close(file)

    def _stat(self, pid: int) -> list[bytes] | None:
        fields = self.read(f"{pid}/stat").rpartition(b")")[2].split()
        return fields if len(fields) > 21 else None
