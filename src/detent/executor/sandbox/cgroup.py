"""Control groups, version 1 or 2, where this process may make them: they count memory, processes and processor time of a tree.

A jail's groups lie below the group this process is in, so that what was given to us stays the most a job can use. The
spawner makes them, and removes them once the jail is empty; the jail's own process enters them, since entering waits
for the kernel and must not hold up the spawner.
"""

# pathlib would be the largest thing that the spawner loads.
# ruff: noqa: PTH102, PTH106, PTH110, PTH118, PTH123, PTH208

from __future__ import annotations

import os
from typing import Any

PREFIX = "detent-"
CONTROLLERS = ("memory", "pids")
KEYS = {"memory": "memory", "pids": "pids", "time": "cpuacct"}
"""What is counted, and the controller that does it in version 1; version 2 counts time in every group."""


def find(mounts: str, membership: str) -> dict[str, Any] | None:
    """Where groups can be made, from the texts of /proc/self/mountinfo and /proc/self/cgroup; None when nowhere."""
    kinds: dict[str, tuple[str, str]] = {}
    for line in mounts.splitlines():
        fields, _, tail = line.partition(" - ")
        words, kind = fields.split(), tail.split()
        if len(words) < 5 or len(kind) < 3 or not kind[0].startswith("cgroup"):
            continue
        names = ["2"] if kind[0] == "cgroup2" else [name for name in kind[2].split(",") if name in KEYS.values()]
        for name in names:
            kinds[name] = (words[3], words[4])
    own = {}
    for line in membership.splitlines():
        number, names_text, path = line.split(":", 2)
        for name in ["2"] if number == "0" else names_text.split(","):
            own[name] = path
    if all(name in kinds and name in own for name in KEYS.values()):
        found = {key: _below(*kinds[name], own[name]) for key, name in KEYS.items()}
        return {"version": 1, **found}
    if "2" in kinds and "2" in own:
        place = _below(*kinds["2"], own["2"])
        return {"version": 2, **dict.fromkeys(KEYS, place)}
    return None


def usable(place: dict[str, Any], name: str) -> bool:
    """Whether a group can really be made there, limited, and removed again."""
    group = PREFIX + name
    try:
        make(place, group, memory_bytes=64 << 20, processes=16)
        return all(os.path.exists(os.path.join(place[key], group, file)) for key, file in _gauges(place))
    except OSError:
        return False
    finally:
        remove(place, group)


def make(place: dict[str, Any], group: str, *, memory_bytes: int, processes: int) -> None:
    """Make a jail's groups with their limits."""
    if place["version"] == 2:
        _turn_on_controllers(place["memory"])
    for directory in _directories(place):
        os.mkdir(os.path.join(directory, group))
    limit(place, group, memory_bytes=memory_bytes, processes=processes)


def limit(place: dict[str, Any], group: str, *, memory_bytes: int, processes: int) -> None:
    """Set the limits of a group that exists."""
    memory = os.path.join(place["memory"], group)
    if place["version"] == 2:
        _write(os.path.join(memory, "memory.max"), memory_bytes)
        for name, value in (("memory.swap.max", 0), ("memory.oom.group", 1)):
            if os.path.exists(os.path.join(memory, name)):
                _write(os.path.join(memory, name), value)
    else:
        names = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes")
        paths = [path for name in names if os.path.exists(path := os.path.join(memory, name))]
        try:
            for path in paths:
                _write(path, memory_bytes)
        except OSError:
            # Memory may never exceed memory and swap together, so the one is raised after the other.
            for path in reversed(paths):
                _write(path, memory_bytes)
    _write(os.path.join(place["pids"], group, "pids.max"), processes)


def enter(place: dict[str, Any], group: str) -> None:
    """Move this process into a group."""
    for directory in _directories(place):
        _write(os.path.join(directory, group, "cgroup.procs"), 0)


def open_gauges(place: dict[str, Any], group: str) -> list[int]:
    """Descriptors of the counters: two that say a limit was met, memory first, then processes; then processor time."""
    return [os.open(os.path.join(place[key], group, file), os.O_RDONLY | os.O_CLOEXEC) for key, file in _gauges(place)]


def read_gauges(gauges: list[int]) -> tuple[int, int]:
    """How often the memory limit killed, and how often the process limit refused."""
    return _field(gauges[0], b"oom_kill "), _field(gauges[1], b"max ")


def read_cpu_ms(gauges: list[int]) -> float:
    """Processor time of all that ever ran in the group."""
    microseconds = _field(gauges[2], b"usage_usec ")
    return microseconds / 1000 if microseconds else _first_number(gauges[2]) / 1_000_000


def read_counters(place: dict[str, Any], group: str) -> tuple[int, int]:
    """The same for a process that is outside and has nothing open."""
    gauges: list[int] = []
    try:
        gauges = open_gauges(place, group)
        return read_gauges(gauges)
    except OSError:
        return 0, 0
    finally:
        for gauge in gauges:
            os.close(gauge)


def peak_bytes(place: dict[str, Any], group: str) -> int:
    """The most memory the group held at once, page cache and tmpfs included; 0 when the kernel does not say."""
    name = "memory.peak" if place["version"] == 2 else "memory.max_usage_in_bytes"
    try:
        with open(os.path.join(place["memory"], group, name), "rb") as file:
            return int(file.read())
    except OSError:
        return 0


def remove(place: dict[str, Any], group: str) -> bool:
    """Remove a jail's groups; False while something is still in them."""
    gone = True
    for directory in _directories(place):
        try:
            os.rmdir(os.path.join(directory, group))
        except FileNotFoundError:
            continue
        except OSError:
            gone = False
    return gone


def sweep(place: dict[str, Any], *, own: str | None = None) -> None:
    """Remove abandoned empty groups: those of supervisors whose process is gone, and those named after ``own``."""
    for directory in _directories(place):
        for name in os.listdir(directory):
            owner = name.removeprefix(PREFIX).partition("-")[0]
            orphaned = name.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}")
            if orphaned or (own is not None and name.startswith(own + "-")):
                remove(place, name)


def _directories(place: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(place[key] for key in KEYS))


def _below(root: str, mount: str, own: str) -> str:
    """The directory of our own group, as this mount shows it."""
    inside = own[len(root.rstrip("/")) :] if root != "/" and own.startswith(root) else own
    return os.path.normpath(mount + "/" + inside)


def _gauges(place: dict[str, Any]) -> list[tuple[str, str]]:
    if place["version"] == 2:
        return [("memory", "memory.events"), ("pids", "pids.events"), ("time", "cpu.stat")]
    return [("memory", "memory.oom_control"), ("pids", "pids.events"), ("time", "cpuacct.usage")]


def _turn_on_controllers(directory: str) -> None:
    path = os.path.join(directory, "cgroup.subtree_control")
    with open(path, encoding="ascii") as file:
        turned_on = file.read().split()
    lacking = [name for name in CONTROLLERS if name not in turned_on]
    if lacking:
        with open(path, "w", encoding="ascii") as file:
            file.write(" ".join("+" + name for name in lacking))


def _field(gauge: int, name: bytes) -> int:
    for line in os.pread(gauge, 4096, 0).splitlines():
        if line.startswith(name):
            return int(line[len(name) :])
    return 0


def _first_number(gauge: int) -> int:
    word = os.pread(gauge, 64, 0).split()[0]
    return int(word) if word.isdigit() else 0


def _write(path: str, value: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, b"%d" % value)
    finally:
        os.close(file)
