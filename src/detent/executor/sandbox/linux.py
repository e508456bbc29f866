"""The system calls that Python does not offer, by number, through ctypes.

Loaded in the spawner and everything it forks, so it imports nothing heavy. The library is a ``PyDLL``: the processes that
use it have one thread, and a raw ``clone`` must not return into a child that waits for a lock that is never released.
"""

from __future__ import annotations

import ctypes
import os

from detent.executor.sandbox.syscalls import machine_named

MACHINE = machine_named(os.uname().machine)

CLONE_NEWTIME = 0x80
CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_NEW_ANY = (
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET
)
SIGCHLD = 17

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

CAP_DAC_READ_SEARCH = 2
CAP_KILL = 5
CAP_SYS_PTRACE = 19
CAP_LAST = 40

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
AT_FDCWD = -100

_libc = ctypes.PyDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """One system call; raises OSError with its name. Bytes and buffers are passed by address."""
    if MACHINE is None:
        raise OSError(38, f"{name}: no table of system calls for this machine")
    values = [
        ctypes.c_char_p(value)
        if isinstance(value, bytes)
        else ctypes.c_long(value)
        if isinstance(value, int)
        else value
        for value in arguments
    ]
    result = int(_syscall(ctypes.c_long(MACHINE.numbers[name]), *values))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def clone(flags: int) -> int:
    """Fork into new namespaces; answers 0 in the child, its pid in the parent. Only for a process with one thread."""
    # The interpreter has locks of its own to hold over a fork, and state to renew in the child.
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = -1
    try:
        pid = call("clone", flags | SIGCHLD, 0, 0, 0, 0)
    finally:
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
        else:
            ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """Mount or remount, in the words of the system call."""
    call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, data.encode())


def umount(target: str) -> None:
    """Take a mount out of the tree at once; processes that hold it open may go on using it."""
    call("umount2", os.fsencode(target), MNT_DETACH)


def pivot_here() -> None:
    """Make the working directory the root and drop everything else from the tree."""
    call("pivot_root", b".", b".")
    umount(".")
    os.chdir("/")


def prctl(option: int, *arguments: int) -> int:
    """Set or ask something about this process; unused arguments are zero, as newer options insist."""
    return call("prctl", option, *(*arguments, 0, 0, 0, 0)[:4])


def set_capabilities(capabilities: tuple[int, ...]) -> None:
    """Keep these capabilities, effective and permitted; empty the bounding set of all others and the ambient set."""
    for capability in range(CAP_LAST + 1):
        if capability not in capabilities:
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                break  # An older kernel counts fewer; without CAP_SETPCAP there is nothing to drop either.
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    mask = sum(1 << capability for capability in capabilities)
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    low, high = (mask & 0xFFFFFFFF).to_bytes(4, "little"), (mask >> 32).to_bytes(4, "little")
    call("capset", ctypes.create_string_buffer(header, 8), (low + low + bytes(4)) + (high + high + bytes(4)))


def open_beneath(directory: int, name: bytes, flags: int) -> int:
    """Open a name below a directory without following any link out of it or anywhere else (openat2)."""
    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
    how = (flags | os.O_CLOEXEC).to_bytes(8, "little") + bytes(8) + resolve.to_bytes(8, "little")
    return call("openat2", directory, name, how, len(how))
