"""Builds the jail around this process: its root, its identity, and nothing else of the host.

Called in a fresh child that the spawner cloned into new user, pid, mount, network, ipc and uts namespaces. The order
matters. Sources are opened first, while the identity can still reach them (an interpreter may lie under a home
closed to other users) and before anything is mounted over them. Only then does the process become the jail's user, who owns
what is made in the new root. The root is one tmpfs of limited size; what may be written are two directories of it,
mounted once more without `noexec` being a question: nothing written can be run.

Landlock: the second wall around files, and the first where there are no namespaces.

The rules say what a guest may open for reading, run, and write, by directory. Binding and connecting TCP sockets, abstract
sockets and signals to processes outside are refused where the kernel knows how.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from detent.executor.sandbox import cgroup, linux

# pathlib would be the largest thing that the spawner loads.
# ruff: noqa: PTH103, PTH120, PTH211


NAMESPACES = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
)


def namespaces(*, network: bool) -> int:
    """The namespaces of a jail's own; with a network it keeps that of the machine."""
    return NAMESPACES & ~linux.CLONE_NEWNET if network else NAMESPACES


UID = 1000
"""The guest's user inside. Outside it is a user with no other process, or the user who runs the supervisor."""

JOB = "/job"
INPUTS = "/job/inputs"
OUTPUTS = "/job/out"
TEMPORARY = "/tmp"  # noqa: S108  # the jail's own
WRITABLE = (JOB, TEMPORARY)
HOST_NAME = "job"

_READ_ONLY = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
_WRITE = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
_DEVICES = ("null", "zero", "full", "random", "urandom")
_USERS = "job:x:1000:1000:job:/job:/nonexistent\n"
_GROUP = "job:x:1000:\n"
_FIRST_FILES = 64
"""Inodes that the jail's own furniture may take beside the job's."""
_FIRST_BYTES = 1 << 20


class InputChanged(Exception):
    """An input is not the file the supervisor looked at."""


def map_own_identity(uid: int, gid: int, *, inside: tuple[int, int] = (UID, UID)) -> None:
    """Become the jail's user, or another, in its namespace without privilege: only the own user can be mapped."""
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inside[0]} {uid} 1")
    _write("/proc/self/gid_map", f"{inside[1]} {gid} 1")


def map_other_identity(pid: int, outside: int) -> None:
    """The same for a child, by root: inside it is the jail's user, outside it is a user that does not exist."""
    _write(f"/proc/{pid}/uid_map", f"{UID} {outside} 1")
    _write(f"/proc/{pid}/gid_map", f"{UID} {outside} 1")


def enter_groups(settings: dict[str, Any], group: str) -> list[int]:
    """Enter the jail's control groups; returns the counters to watch, none where there are no groups."""
    place = settings["cgroup"]
    if place is None:
        return []
    gauges = cgroup.open_gauges(place, group)
    cgroup.enter(place, group)
    return gauges


def build(settings: dict[str, Any], spec: dict[str, Any]) -> int:
    """Make the new root and move into it; returns a descriptor of the namespace's /proc, which no path leads to."""
    sources = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in settings["binds"]]
    devices = [os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC) for name in _DEVICES]
    inputs = [(entry[0], _open_input(settings["outside"], entry)) for entry in spec["inputs"]]
    # What a resolver and TLS read, for a job that has a network.
    network = [(entry[0], _open_input(settings["outside"], entry)) for entry in spec["network"] or ()]
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    if settings["uid_base"] is not None:
        os.setgroups([])
        os.setresgid(UID, UID, UID)
        os.setresuid(UID, UID, UID)
    size, files = spec["disk_bytes"] + _FIRST_BYTES, spec["disk_files"] + _FIRST_FILES
    # The new root is mounted over a directory that surely exists; all that lay below it is open already.
    linux.mount("jail", settings["scratch"], "tmpfs", linux.MS_NOSUID, f"size={size},nr_inodes={files},mode=755")
    os.chdir(settings["scratch"])
    for path in (*WRITABLE, INPUTS, OUTPUTS, "/dev", "/etc", "/proc"):
        os.makedirs("." + path, exist_ok=True)
    for path, source in sources:
        # What is mounted in the runtime belongs to it, and is read-only already; in the system's directories it does not.
        bind("." + path, source, linux.MS_REC if path == settings["runtime"] else 0)
    for name, source in inputs:
        bind(f".{INPUTS}/{name}", source)
    for path, source in network:
        bind("." + path, source)
    shown = [*(path for path, _ in (*sources, *network)), *(f"{INPUTS}/{name}" for name, _ in inputs)]
    make_read_only(shown)
    for name, source in zip(_DEVICES, devices, strict=True):
        bind(f"./dev/{name}", source)
    os.symlink(TEMPORARY, "./dev/shm")
    _write("./etc/passwd", _USERS)
    _write("./etc/group", _GROUP)
    linux.mount("proc", "./proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    proc = os.open("./proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    linux.umount("./proc")
    for path in WRITABLE:
        # Recursively, or what is mounted below would be hidden by the directory mounted over itself.
        linux.mount("." + path, "." + path, "", linux.MS_BIND | linux.MS_REC)
        linux.mount("none", "." + path, "", linux.MS_REMOUNT | linux.MS_BIND | _WRITE)
    linux.mount("none", settings["scratch"], "", linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID)
    os.chdir(settings["scratch"])
    linux.pivot_here()
    for descriptor in (*devices, *(source for _, source in (*sources, *inputs, *network))):
        os.close(descriptor)
    socket.sethostname(HOST_NAME)
    return proc


def _open_input(outside: str, entry: list[Any]) -> int:
    _, path, device, inode = entry
    source = os.open(outside + path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(source)
    if (found.st_dev, found.st_ino) != (device, inode):
        raise InputChanged(path)
    return source


def bind(target: str, source: int, flags: int = 0) -> None:
    """Show an open file or directory under a name, which is made."""
    if (os.fstat(source).st_mode & 0o170000) == 0o040000:
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    linux.mount(f"/proc/self/fd/{source}", target, "", linux.MS_BIND | flags)


def make_read_only(paths: list[str]) -> None:
    """Let nothing be written to these mounts below the working directory, nor a device or a changed identity be used."""
    flags = linux.MS_REMOUNT | linux.MS_BIND | _READ_ONLY
    for path in paths:
        try:
            linux.mount("none", "." + path, "", flags)
        except PermissionError:
            # What the host mounted without the right to run anything must stay so.
            linux.mount("none", "." + path, "", flags | linux.MS_NOEXEC)


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
MAKE_CHAR, MAKE_BLOCK = 64, 2048
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
_NET_BIND, _NET_ANY, _SCOPE_ANY = 1, 3, 3

ABI_SIGNALS = 6
"""From this version on a guest cannot signal a process outside."""


def abi() -> int:
    """The version the kernel speaks; 0 when there is none."""
    try:
        return linux.call("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def restrict(
    version: int, *, read: list[str], run: list[str], write: list[str], devices: list[str], network: bool = False
) -> None:
    """Confine this process and all it starts to these places, for good. Needs no_new_privs.

    With a network it may connect; nothing may listen.
    """
    handled = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    attributes = struct.pack("=QQQ", handled, _NET_BIND if network else _NET_ANY, _SCOPE_ANY)
    size = 8 if version < 4 else 16 if version < ABI_SIGNALS else 24
    ruleset = linux.call("landlock_create_ruleset", attributes, size, 0)
    try:
        reading = READ_FILE | READ_DIR
        for paths, rights in (
            (read, reading),
            (run, reading | EXECUTE),
            (write, ~(EXECUTE | MAKE_CHAR | MAKE_BLOCK)),
            (devices, READ_FILE | WRITE_FILE | READ_DIR),
        ):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        linux.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # What is not there need not be allowed.
    try:
        if not _is_directory(place):
            rights &= _OF_FILES
        linux.call("landlock_add_rule", ruleset, 1, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _is_directory(place: int) -> bool:
    return (os.fstat(place).st_mode & 0o170000) == 0o040000
