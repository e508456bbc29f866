"""Tries each primitive that the jail is made of, in a child of its own, and prints the result as one JSON object.

Run by path like the spawner. An empty text means that the primitive works; any other is the reason why not.
"""

# pathlib would be the largest thing that the spawner loads.
# ruff: noqa: PTH100, PTH118, PTH120, PTH123

from __future__ import annotations

import os
import sys
import types

if __name__ == "__main__":
    for _name, _path in (
        ("detent", "../.."),
        ("detent.executor", ".."),
        ("detent.executor.sandbox", "."),
    ):
        _module = types.ModuleType(_name)
        _module.__path__ = [os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), _path))]
        sys.modules[_name] = _module

import json
import struct
from collections.abc import Callable

from detent.executor.sandbox import cgroup, jail, linux, seccomp


def _namespace(flag: int) -> Callable[[], None]:
    def attempt() -> None:
        linux.call("unshare", linux.CLONE_NEWUSER | flag)

    return attempt


def _mounts() -> None:
    identity = os.getuid(), os.getgid()
    linux.call("unshare", linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    jail.map_own_identity(*identity)
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("trial", "/tmp", "tmpfs", linux.MS_NOSUID, "size=65536")  # noqa: S108  # seen by this child alone
    # Jails are made by a process that has namespaces of its own.
    linux.call("unshare", linux.CLONE_NEWUSER | linux.CLONE_NEWNS)


def _landlock() -> None:
    if jail.abi() == 0:
        raise OSError(38, "the kernel has no Landlock, or it is turned off")
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    jail.restrict(jail.abi(), read=["/"], run=[], write=[], devices=[])


def _seccomp() -> None:
    if linux.MACHINE is None:
        raise OSError(38, f"no table of system calls for {os.uname().machine}")
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    # One that allows everything: a report of this process to itself would never be answered.
    seccomp.install(struct.pack("=HBBI", 0x06, 0, 0, seccomp.ALLOW))


def _pidfd() -> None:
    os.close(os.pidfd_open(os.getpid()))


def _openat2() -> None:
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.close(linux.open_beneath(root, b".", os.O_RDONLY | os.O_DIRECTORY))


def _cgroup() -> None:
    with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as membership:
        place = cgroup.find(mounts.read(), membership.read())
    if place is None:
        raise OSError(38, "no memory and pids controllers are mounted")
    if not cgroup.usable(place, f"trial-{os.getpid()}"):
        raise OSError(1, f"groups cannot be made below {place['memory']}")


TRIALS: dict[str, Callable[[], None]] = {
    "user_namespace": _namespace(0),
    "pid_namespace": _namespace(linux.CLONE_NEWPID),
    "network_namespace": _namespace(linux.CLONE_NEWNET),
    "ipc_namespace": _namespace(linux.CLONE_NEWIPC),
    "uts_namespace": _namespace(linux.CLONE_NEWUTS),
    "mounts": _mounts,
    "landlock": _landlock,
    "seccomp": _seccomp,
    "pidfd": _pidfd,
    "openat2": _openat2,
    "cgroup": _cgroup,
}


def attempt(trial: Callable[[], None]) -> str:
    """Run one trial in a child; returns why it failed, or nothing."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            trial()
            os._exit(0)
        except OSError as exc:
            os.write(write, (exc.strerror or str(exc)).encode()[:400])
        except BaseException as exc:  # noqa: BLE001  # reported to the caller
            os.write(write, repr(exc).encode()[:400])
        os._exit(1)
    os.close(write)
    _, status = os.waitpid(pid, 0)
    why = os.read(read, 400).decode("utf-8", "replace")
    os.close(read)
    return (why or f"its trial ended with status {status}") if status else ""


if __name__ == "__main__":
    answer: dict[str, object] = {name: attempt(trial) for name, trial in TRIALS.items()}
    answer["landlock_abi"] = jail.abi()
    sys.stdout.write(json.dumps(answer))
