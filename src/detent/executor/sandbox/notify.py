"""What init does with a reported system call: keep it as evidence and end the job, let it go on, or refuse it.

Paths and structures are read from the guest's memory, which the guest may change behind our back. That is why nothing
here *permits* anything: a call that goes on still meets the mount tree, Landlock and the limits. What is read decides
only what the evidence says, and whether there is any.
"""

from __future__ import annotations

import fcntl
import os
import posixpath
import struct
import time
from collections.abc import Callable
from typing import Any

from detent.executor.plain.processes import cpu_ms_of
from detent.executor.sandbox import filter_rules, linux
from detent.executor.sandbox.linux import Machine
from detent.executor.sandbox.seccomp import EAGAIN, ENOLCK, ENOSYS, EPERM, SHARED_ANONYMOUS
from detent.executor.sandbox.tree import HiddenTime, SharedMemory, Tree

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTICE_BYTES, _ANSWER_BYTES = 80, 24
_CONTINUE = 1
PATH_BYTES_MAX = 4096
SHOWN_BYTES_MAX = 256
"""How much of a path evidence quotes."""

_ECONNREFUSED = 111
_NSCD = b"/var/run/nscd/socket"
"""The C library asks the name service's cache before it reads /etc/passwd. It is harmless."""
_SET_IDENTITY = frozenset(
    ("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid")
)
_RESIZE = frozenset(("truncate", "ftruncate", "fallocate", "pwrite64"))
_NEW_PROCESS = frozenset(("clone", "fork", "vfork"))
_PROT_WRITE, _MAP_ANONYMOUS = 2, 0x20
_CLONE_THREAD = 0x10000
_ONE, _GROUP = 0, 1
"""Whom a call about priorities means; after them come all processes of a user."""

VIOLATION, LIMIT = "violation", "limit"


class Notice:
    """One reported call."""

    __slots__ = ("arch", "arguments", "id", "name", "number", "pid")

    def __init__(self, data: bytes, machine: Machine) -> None:
        self.id, self.pid, _, self.number, self.arch, _, *arguments = struct.unpack("=QIIiIQ6Q", data)
        self.arguments: list[int] = arguments
        known = machine.names.get(self.number) if self.arch == machine.audit_arch else None
        self.name = known or f"syscall_{self.number & 0xFFFFFFFF:#x}"

    def evidence(self, kind: str, what: str, path: bytes | None = None) -> dict[str, Any]:
        """The call as the record shows it."""
        return {
            "kind": kind,
            "what": what,
            "syscall": self.name,
            "arguments": self.arguments,
            "path": None if path is None else path[:SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace"),
        }


class Watch:
    """Answers reports for one jail. ``proc`` is a descriptor of its /proc; the rest are the limits in force."""

    def __init__(
        self,
        listener: int,
        machine: Machine,
        proc: int,
        *,
        writable: tuple[bytes, ...],
        harmless: bytes,
        shared_files: bytes,
    ) -> None:
        self.listener = listener
        self.machine = machine
        self.proc = proc
        self.writable = writable
        self.harmless = harmless
        self.shared_files = shared_files
        self.identity = frozenset((os.getuid(), os.getgid(), 0xFFFFFFFF))
        self.exit_status: int | None = None
        """Set when the guest has called exit and stands still there."""
        self.processes_max: int | None = None
        self.memory_max: int | None = None
        self.shared = SharedMemory()
        self.hidden: HiddenTime | None = None
        self.hides_children = False
        """Whether the job has set what happens at the end of a child."""

    def answer_one(self, below: Tree, leaving: Callable[[int], bool]) -> dict[str, Any] | None:
        """Take one report, answer it, and return evidence if there is any; the caller then ends the job.

        ``leaving`` is asked about a process that wants to exit: True leaves it standing there, unanswered.
        """
        buffer = bytearray(_NOTICE_BYTES)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, buffer, True)
        except OSError:
            return None  # The caller was killed before we could look.
        notice = Notice(bytes(buffer), self.machine)
        if notice.name == "exit_group" and leaving(notice.pid):
            self.exit_status = (notice.arguments[0] & 0xFF) << 8
            return None
        try:
            found, error = self._judge(notice, below)
        except (ValueError, OverflowError, struct.error):
            # The arguments are the guest's. Those that cannot even be looked at must not end init, and the call is not made.
            found, error = notice.evidence(VIOLATION, "make a call that cannot be judged"), 0
        flags = _CONTINUE if found is None and error == 0 else 0
        answer = bytearray(struct.pack("=QqiI", notice.id, 0, 0 if flags else -(error or EAGAIN), flags))
        if found is None:
            try:
                fcntl.ioctl(self.listener, _SEND, answer, True)
            except OSError:
                return None
        # With evidence there is no answer: the call never happens, and the guest never learns that it was seen.
        return found

    def _judge(self, notice: Notice, below: Tree) -> tuple[dict[str, Any] | None, int]:
        """Evidence, or None with the error to answer; 0 lets the call go on."""
        name, arguments = notice.name, notice.arguments
        if name in ("exit", "exit_group"):
            process = None if self.hidden is None else below.process_of(notice.pid)
            if self.hidden is not None and process is not None:
                self.hidden.exits(process, cpu_ms_of(process), whole=name == "exit_group")
            return None, 0
        if name == "rt_sigaction":
            # What it sets lies in memory that can change until the kernel reads it, so it is not even looked at.
            self.hides_children = True
            return None, 0
        if name in ("open", "openat", "creat"):
            directory = arguments[0] if name == "openat" else linux.AT_FDCWD
            path = self._path(notice.pid, directory, arguments[1 if name == "openat" else 0])
            return (
                (None, 0)
                if path is None or self._may_write(path)
                else (
                    notice.evidence(VIOLATION, "write outside the job's directory", path),
                    0,
                )
            )
        if name in ("flock", "fcntl"):
            return None, 0 if self._may_lock(notice.pid, arguments[0]) else ENOLCK
        if name == "connect":
            address = self._read(notice.pid, arguments[1], min(arguments[2] & 0xFFFFFFFF, 128)) or b""
            path = address[2:].split(b"\0")[0] if address[2:3] != b"\0" else b"@" + address[3:]
            if path == _NSCD:
                return None, _ECONNREFUSED
            return notice.evidence(VIOLATION, "connect to a socket", path), 0
        if name in filter_rules.NAMES_A_PROCESS or name in filter_rules.NAMES_PROCESSES:
            found, error = self._reaches_out(notice, below)
            if found is not None or error or name != "prlimit64" or not arguments[2]:
                return found, error
        if name in ("prlimit64", "setrlimit"):
            return self._limit_raised(notice), 0
        if name in _SET_IDENTITY:
            width = {"setreuid": 2, "setregid": 2, "setresuid": 3, "setresgid": 3}.get(name, 1)
            wanted = {argument & 0xFFFFFFFF for argument in arguments[:width]}
            return (None, 0) if wanted <= self.identity else (notice.evidence(VIOLATION, "change identity"), 0)
        if name == "lseek" or name in _RESIZE:
            return self._too_large(notice), 0
        if name in ("mmap", "mremap"):
            return self._too_much_memory(notice, below), 0
        if name in _NEW_PROCESS and not (name == "clone" and arguments[0] & 0x7E020000):
            if self.processes_max is not None and below.sample().tasks >= self.processes_max:
                return notice.evidence(LIMIT, "processes"), EAGAIN
            if self.hidden is not None and not (name == "clone" and arguments[0] & _CLONE_THREAD):
                self.hidden.born(time.monotonic() * 1000)
            return None, 0
        if name in ("socket", "socketpair", "sendto", "bind", "listen"):
            return notice.evidence(VIOLATION, "use the network"), 0
        return notice.evidence(VIOLATION, "forbidden system call"), ENOSYS

    def _reaches_out(self, notice: Notice, below: Tree) -> tuple[dict[str, Any] | None, int]:
        """Evidence when a call would change another process than the job's own.

        In a pid namespace of its own that can only be init. Elsewhere a number may be given to another process between
        our look and the call, so nothing goes on there but what a process does to itself.
        """
        one = filter_rules.NAMES_PROCESSES.get(notice.name)
        kind = 0 if one is None else (notice.arguments[0] & 0xFFFFFFFF) - one
        target = notice.arguments[0 if one is None else 1] & 0xFFFFFFFF
        outside = notice.evidence(VIOLATION, "change another process")
        if kind not in (_ONE, _GROUP):
            return outside, 0
        if target == 0:
            return None, 0
        if below.own:
            return (outside if target == below.init else None), 0
        process = below.process_of(target)
        if kind == _ONE and process is not None and process == below.process_of(notice.pid):
            return None, 0
        return (None, EPERM) if process in below.pids() else (outside, 0)

    def _limit_raised(self, notice: Notice) -> dict[str, Any] | None:
        import resource  # noqa: PLC0415  # loaded by the spawner already

        offset = 2 if notice.name == "prlimit64" else 1
        which = notice.arguments[offset - 1] & 0xFFFFFFFF
        data = self._read(notice.pid, notice.arguments[offset], 16)
        if data is None or len(data) < 16:
            return None
        wanted = struct.unpack("=QQ", data)[1]
        try:
            hard = resource.prlimit(notice.pid, which)[1]
        except (OSError, ValueError, OverflowError):
            return None  # There is no such limit, and the kernel says so.
        if hard != resource.RLIM_INFINITY and wanted > hard:
            return notice.evidence(VIOLATION, "raise a limit")
        return None

    def _too_large(self, notice: Notice) -> dict[str, Any] | None:
        """A file that would reach beyond the quota. Seeking far in a read-only file is harmless."""
        if notice.name == "truncate":
            path = self._path(notice.pid, linux.AT_FDCWD, notice.arguments[0])
        else:
            path = self._link(f"{notice.pid}/fd/{notice.arguments[0] & 0xFFFFFFFF}")
        if path is None or not self._inside(path):
            return None
        return notice.evidence(LIMIT, "disk", path)

    def _too_much_memory(self, notice: Notice, below: Tree) -> dict[str, Any] | None:
        if self.memory_max is None:
            return None
        if notice.name == "mremap":
            return notice.evidence(LIMIT, "memory") if notice.arguments[2] > self.memory_max else None
        _, length, protection, flags = notice.arguments[:4]
        if protection & _PROT_WRITE and flags & _MAP_ANONYMOUS and length > self.memory_max:
            return notice.evidence(LIMIT, "memory")
        if flags & SHARED_ANONYMOUS == SHARED_ANONYMOUS:
            if self.shared.charged_bytes + length > self.memory_max:
                self.shared.settle(below.shared_objects())
            self.shared.map(length)
            return notice.evidence(LIMIT, "memory") if self.shared.charged_bytes > self.memory_max else None
        return None

    def _may_lock(self, pid: int, descriptor: int) -> bool:
        """Whether a file is the job's own: a lock on any other is seen by every job that reads the same file."""
        path = self._link(f"{pid}/fd/{descriptor & 0xFFFFFFFF}")
        return path is not None and self._inside(path) and not path.startswith(self.shared_files)

    def _may_write(self, path: bytes) -> bool:
        """Inside the job's places; or a device, which is there or is not, but never the host's disk."""
        return self._inside(path) or path.startswith(self.harmless)

    def _inside(self, path: bytes) -> bool:
        return any(path == root or path.startswith(root + b"/") for root in self.writable)

    def _path(self, pid: int, directory: int, address: int) -> bytes | None:
        """The path a call names, made absolute by its words alone; None when it cannot be read."""
        text = (self._read(pid, address, PATH_BYTES_MAX, text=True) or b"").split(b"\0")[0]
        if not text:
            return None
        if not text.startswith(b"/"):
            number = (directory + (1 << 31)) % (1 << 32) - (1 << 31)  # A descriptor is a signed 32-bit number.
            base = self._link(f"{pid}/cwd" if number == linux.AT_FDCWD else f"{pid}/fd/{number}")
            if base is None or base.endswith(b" (deleted)"):
                return None
            text = base + b"/" + text
        return posixpath.normpath(text).replace(b"//", b"/")

    def _link(self, name: str) -> bytes | None:
        try:
            return os.fsencode(os.readlink(name, dir_fd=self.proc))
        except OSError:
            return None

    def _read(self, pid: int, address: int, size: int, *, text: bool = False) -> bytes | None:
        try:
            memory = os.open(f"{pid}/mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.proc)
        except OSError:
            return None
        data = b""
        try:
            # One page at a time: the text may end at the last mapped byte.
            while len(data) < size:
                step = min(size - len(data), 4096 - (address + len(data)) % 4096)
                piece = os.pread(memory, step, address + len(data))
                data += piece
                if len(piece) < step or (text and b"\0" in piece):
                    break
            return data
        except (OSError, OverflowError):
            return data or None
        finally:
            os.close(memory)
