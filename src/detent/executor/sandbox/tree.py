"""What the processes of one job use: tasks, processor time, memory.

Looks at the processes of one job: how many, how much processor time, how much memory.

Inside a pid namespace its /proc shows only the job. Without one, the job is what descends from its init, as far as /proc
of the host tells; a process that forks fast enough can escape that, which is one reason why it is the weaker way.

Counts the processor time of children whose end their parent ignores, where no control group counts it.

The kernel adds what a child used to its parent when the parent waits for it, and a parent that ignores ``SIGCHLD`` never does. So
from the moment a job sets what happens at a child's end, init keeps a sum of its own: what each process used at the last look, and
what it had used when it asked to exit, which the filter reports. A process that a signal ends is not heard of; it is charged as if
it had run all the time since it was last seen, or since it was made.

Charges a job for shared anonymous mappings where no control group counts memory.

The pages of such a mapping belong to an object of the kernel. A process can drop them from its own count (``MADV_DONTNEED``),
or unmap all but one page, and the object keeps every page it ever had. So what processes hold says nothing about it. The size of
an object is fixed when it is mapped, which the filter reports; an object is gone when no process maps any of it, which shows in
``/proc``. Between the two, each object is charged in full: with ``k`` objects left, the ``k`` largest sizes that were mapped.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from detent.executor.plain.processes import cpu_ms_of

# pathlib would be the largest thing that the spawner loads.
# ruff: noqa: PTH208


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
        """Add up all processes; one that ends meanwhile is left out, and init counts it when it reaps it."""
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


class Life(NamedTuple):
    """A process as it was last seen."""

    used_ms: float
    threads: int
    over: bool
    """Whether it runs no more: it asked to exit, or waits to be reaped."""


class HiddenTime:
    """The sum over all processes of one job, since ``at_ms``. ``before_ms`` is what was used by those who ended before."""

    def __init__(self, before_ms: float, at_ms: float) -> None:
        self.ended_ms = before_ms
        self.looked_at_ms = at_ms
        self.lives: dict[int, Life] = {}
        self.births: list[float] = []
        """When the processes were made that were not seen yet."""

    @property
    def total_ms(self) -> float:
        """All that is known to be used, and what cannot be ruled out."""
        return self.ended_ms + sum(life.used_ms for life in self.lives.values())

    def born(self, at_ms: float) -> None:
        """A process asked for a child."""
        self.births.append(at_ms)

    def exits(self, pid: int, used_ms: float, *, whole: bool) -> None:
        """A process asked to exit, or one of its threads did."""
        last = self.lives.get(pid)
        if last is None and self.births:
            self.births.pop()
        over = whole or last is None or last.over or last.threads <= 1
        self.lives[pid] = Life(used_ms, 1 if last is None else last.threads, over)

    def look(self, at_ms: float, found: dict[int, Life]) -> None:
        """Take in all processes that are there now."""
        for pid in self.lives.keys() - found.keys():
            life = self.lives.pop(pid)
            unseen_ms = 0.0 if life.over else (at_ms - self.looked_at_ms) * life.threads
            self.ended_ms += life.used_ms + unseen_ms
        for pid, life in found.items():
            last = self.lives.get(pid)
            if last is None and self.births:
                self.births.pop()
            self.lives[pid] = life if last is None else life._replace(over=life.over or last.over)
        # Those were made, and ended by a signal, between two looks.
        self.ended_ms += sum(at_ms - born_ms for born_ms in self.births)
        self.births.clear()
        self.looked_at_ms = at_ms


class SharedMemory:
    """The shared anonymous mappings of one job."""

    __slots__ = ("largest_bytes", "peak_bytes", "sizes")

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.largest_bytes = 0
        self.peak_bytes = 0

    @property
    def charged_bytes(self) -> int:
        """What the job is charged for now; never less than what the kernel holds for it."""
        return sum(self.sizes)

    def map(self, size_bytes: int) -> None:
        """A mapping was asked for."""
        self.sizes.append(-(-size_bytes // _PAGE) * _PAGE)
        self.largest_bytes = max(self.largest_bytes, self.sizes[-1])

    def settle(self, objects: int | None) -> None:
        """Let go of what is gone: so many objects are left. None: that could not be seen, and nothing is let go.

        A mapping that was asked for a moment ago may not be there yet. When it shows up later, there are more objects
        than sizes, and each of those is charged as the largest there ever was.
        """
        if objects is not None:
            self.sizes = sorted(self.sizes, reverse=True)[:objects]
            self.sizes += [self.largest_bytes] * (objects - len(self.sizes))
        self.peak_bytes = max(self.peak_bytes, self.charged_bytes)
