"""Makes the place where the spawner lives, then becomes the spawner: a root in which the interpreter has a neutral path.

A guest is a fork of the spawner, so everything the spawner's interpreter knows of its own place (``sys.prefix``, the files of the
modules it has loaded, where it looks for libraries) a guest knows too. So the spawner is started where the interpreter lies
below ``/runtime``, as it does in every jail. The rest of the host is below ``/host``, for the inputs of jobs that come later,
and each of its directories is a link beside it, so that ``/proc``, ``/dev`` and ``/lib`` are in their usual places.

Run by path like the spawner, with the number of the control socket, on which the plan comes. Nothing of it is seen outside: the
mounts are in a namespace of this process, which the kernel takes apart with it.
"""

# pathlib would be the largest thing that the spawner loads.
# ruff: noqa: PTH100, PTH103, PTH118, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import os
import sys
import types

if __name__ == "__main__":
    _here = os.path.dirname(os.path.abspath(__file__))
    for _name, _path in (("detent", "../.."), ("detent.executor", ".."), ("detent.executor.sandbox", ".")):
        _module = types.ModuleType(_name)
        _module.__path__ = [os.path.normpath(os.path.join(_here, _path))]
        sys.modules[_name] = _module

import json
import socket
from typing import Any

from detent.executor.sandbox import channel, jail, linux

PLAN_BYTES_MAX = 4 << 20
HOST = "/host"
"""The host's own root, for the spawner and for jails while they are built; no guest sees it."""
HOUSE = "/detent"
"""This package; no guest sees it either."""
JAIL = "/jail"
"""An empty directory, over which the root of each jail is mounted."""
_TEXTS = "/texts"
_ROOT_OPTIONS = "size=4m,nr_inodes=4096,mode=755"


def build(plan: dict[str, Any]) -> None:
    """Move into a root of our own that shows what the plan names."""
    os.umask(0o022)
    _leave_host()
    # What the host mounts later shows up below /host, and nothing of ours shows up there.
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_SLAVE)
    sources = [(target, os.open(source, os.O_PATH | os.O_CLOEXEC)) for source, target in plan["mounts"]]
    linux.mount("runtime", plan["scratch"], "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, _ROOT_OPTIONS)
    os.chdir(plan["scratch"])
    for path in (HOST, JAIL, _TEXTS, *plan["directories"]):
        os.makedirs("." + path, exist_ok=True)
    for target, source in sources:
        jail.bind("." + target, source)
        os.close(source)
    for target in plan["masks"]:
        linux.mount("." + JAIL, "." + target, "", linux.MS_BIND)
    for number, (target, text) in enumerate(plan["texts"].items()):
        with open(f".{_TEXTS}/{number}", "w", encoding="utf-8") as file:
            file.write(text)
        linux.mount(f".{_TEXTS}/{number}", "." + target, "", linux.MS_BIND)
    jail.make_read_only([target for target, _ in sources] + plan["masks"] + list(plan["texts"]))
    for link, target in plan["links"].items():
        os.symlink(target, "." + link)
    for name in os.listdir("/"):
        if not os.path.lexists(name):
            os.symlink(f"{HOST}/{name}", name)
    linux.call("pivot_root", b".", os.fsencode("." + HOST))
    os.chdir("/")
    linux.mount("none", "/", "", linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV)


def _leave_host() -> None:
    """Enter a mount namespace of our own; where that needs a user namespace, too, users keep their numbers in it."""
    identity = os.getuid(), os.getgid()
    if os.geteuid() != 0:
        linux.call("unshare", linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        jail.map_own_identity(*identity, inside=identity)
        return
    try:
        linux.call("unshare", linux.CLONE_NEWNS)
    except PermissionError:
        _leave_as_limited_root()


def _leave_as_limited_root() -> None:
    """The same for a container's root, who may not mount: all identities are mapped, which a process outside has to do."""
    ready, go = os.pipe()
    outside, pid = os.getpid(), os.fork()
    if pid == 0:
        os.close(go)
        try:
            os.read(ready, 1)
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/self/{name}", encoding="ascii") as file:
                    ranges = [line.split() for line in file]
                with open(f"/proc/{outside}/{name}", "w", encoding="ascii") as file:
                    file.write("".join(f"{first} {first} {count}\n" for first, _, count in ranges))
            os._exit(0)
        finally:
            os._exit(1)
    linux.call("unshare", linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
    os.write(go, b"1")
    if os.waitpid(pid, 0)[1] != 0:
        raise PermissionError(1, "identities could not be mapped")
    os.close(ready)
    os.close(go)


def main(control: int) -> None:
    """Build the root, become the spawner; says why on the socket if that fails."""
    end = socket.socket(fileno=control)
    _, data, _ = channel.receive(end, bytes_max=PLAN_BYTES_MAX)
    plan = json.loads(data)
    try:
        build(plan)
        end.set_inheritable(True)
        os.execve(plan["argv"][0], [*plan["argv"], str(control)], plan["environment"])  # noqa: S606
    except OSError as exc:
        channel.send(end, channel.FAILED, f"its place could not be made: {exc}".encode("utf-8", "backslashreplace"))
        os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
