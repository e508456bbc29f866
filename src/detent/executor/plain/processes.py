"""Processes and their descendants: who they are, and how to be sure that they are gone.

Loaded by the host and by every worker, so it imports nothing heavy.
"""

# pathlib would be the largest thing that a worker loads.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WAIT_SECONDS = 0.002
KILL_SECONDS_MAX = 5.0
"""How long killed processes may take to go; one that waits for a dead disk cannot be waited for any longer."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")
_libc = ctypes.CDLL(None, use_errno=True)
_libc.getenv.restype = ctypes.c_void_p
_KEEPS_LISTS = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110
"""Whether the kernel was built to list a process's children; otherwise every process is asked for its parent."""


def die_with_parent(parent: int) -> None:
    """Be killed as soon as the parent has gone, however it goes; at once if it has gone already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent goes, so that none can leave the tree."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def mark(name: str, value: str) -> None:
    """Change an environment variable of this process, for those too who read it from outside, to a text as long as the old one.

    The kernel shows the bytes that a process was started with; what it sets later lies elsewhere, so those bytes are overwritten.
    """
    place, text = _libc.getenv(name.encode()), value.encode()
    if place is None or len(ctypes.string_at(place)) != len(text):
        raise RuntimeError(f"{name} cannot be changed to {value}")
    ctypes.memmove(place, text, len(text))
    os.environ[name] = value


def children() -> list[int]:
    """The pids of this process's children, zombies included."""
    return _children_of(os.getpid())


def _children_of(own: int) -> list[int]:
    if not _KEEPS_LISTS:
        return [pid for pid in all_pids() if (fields := stat_fields(pid)) is not None and int(fields[1]) == own]
    found: list[int] = []
    # Of another process, all of this may be gone from one line to the next.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{own}/task"):
            with (
                contextlib.suppress(FileNotFoundError, ProcessLookupError),
                open(f"/proc/{own}/task/{thread}/children") as file,
            ):
                found += [int(word) for word in file.read().split()]
    return found


def uses_more(pid: int, most_bytes: int) -> bool:
    """Whether a process and everything below it hold more memory than so much. Pages that they share count once.

    What each of them maps is quickly read, and more than what they hold together; only if that is too much are shared pages
    shared out, which takes the kernel a look at every page.
    """
    every = tree(pid)
    if sum(_resident_bytes(one) for one in every) <= most_bytes:
        return False
    return sum(_own_share_bytes(one) for one in every) > most_bytes


def held_bytes(every: list[int], *, above: int) -> int:
    """How much memory some processes hold together, with shared pages counted once; 0 when it is not above so much."""
    if sum(_resident_bytes(one) for one in every) <= above:
        return 0
    return _resident_bytes(every[0]) if len(every) == 1 else sum(_own_share_bytes(one) for one in every)


def cpu_ms_of(pid: int) -> float:
    """Processor time of one process with its threads, by its own clock."""
    try:
        return time.clock_gettime((~pid << 3) | 2) * 1000
    except OSError:
        return 0.0


def reaped_cpu_ms(pid: int) -> int:
    """Processor time of the children that a process has waited for, and of theirs."""
    fields = stat_fields(pid)
    return 0 if fields is None else (int(fields[13]) + int(fields[14])) * TICK_MS


def moved_bytes(every: list[int]) -> tuple[int, int] | None:
    """Bytes that processes, and the children that they waited for, read and wrote by system calls; None: not told here."""
    read = written = 0
    for one in every:
        try:
            with open(f"/proc/{one}/io", "rb", buffering=0) as file:
                words = file.read(512).split()
        except FileNotFoundError:
            if one == every[0]:
                return None
            continue  # It has gone, and its parent counts it.
        except OSError:
            return None
        read, written = read + int(words[1]), written + int(words[3])
    return read, written


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found, place = [pid], 0
    while place < len(found):
        found += _children_of(found[place])
        place += 1
    return found


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0  # It has gone.


def _own_share_bytes(pid: int) -> int:
    """What a process holds, of shared pages its share; all that it maps where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident_bytes(pid)


def all_pids() -> list[int]:
    """Every process that can be seen."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_fields(pid: int) -> list[str] | None:
    """State, parent, group, session and so on of a process; None when there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def kill(pid: int, number: int) -> None:
    """Signal a process that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def end_children(known: frozenset[int] | set[int] = frozenset()) -> bool:
    """Kill and reap every child that is not known, and what they leave, until there is none; False when some stay.

    Their own children become ours as they go. Only for a process that adopts orphans.
    """
    deadline = time.monotonic() + KILL_SECONDS_MAX
    while strays := [pid for pid in children() if pid not in known]:
        for pid in strays:
            kill(pid, signal.SIGKILL)
        if not sum(_reap(pid) for pid in strays):
            if time.monotonic() > deadline:
                return False
            time.sleep(_WAIT_SECONDS)
    return True


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
