"""Knows which workers belong to a supervisor that is gone, and ends them.

A pool holds a lock on ``live/TAG.lock`` as long as its process lives; the kernel releases it however that ends. Everything a
pool starts carries the tag in its environment, and everything it writes into ``live/`` begins with it. So everything with
the tag of a free lock is left over, even if another process has its supervisor's number by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Final, Self

from detent.executor.plain import processes
from detent.executor.plain.wire import MARKER

LOCK_SUFFIX: Final = ".lock"
_NEW_PREFIX: Final = "new-"
_UNBORN_SECONDS: Final = 60.0
GONE_SECONDS_MAX: Final = 5.0


def home_id(live: Path) -> str:
    """Names a home in the environment of its workers without telling its path."""
    return hashlib.sha256(os.fsencode(live.resolve())).hexdigest()[:16]


class Presence:
    """A pool's claim to be alive: a tag of its own, and a lock that ends with the process."""

    def __init__(self, live: Path, tag: str | None = None) -> None:
        live.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.live = live
        self.tag = f"{os.getpid()}-{os.urandom(4).hex()}" if tag is None else tag
        self.marker = f"{home_id(live)}:{self.tag}"
        self._path = live / (self.tag + LOCK_SUFFIX)
        # Locked before it has its name: a sweep never finds it free.
        new = live / (_NEW_PREFIX + self.tag)
        self._handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self._path)

    def kill_all(self) -> None:
        """End every process that bears the tag, and wait until none is left."""
        kill_marked({self.marker})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove all that this pool has in ``live/``, the lock last."""
        _remove(self.live, self.tag)
        os.close(self._handle)


def sweep_orphans(live: Path) -> int:
    """End the processes, and remove the directories, of pools of this home that are gone; says how many processes."""
    if not live.is_dir():
        return 0
    # First who and what is there, then who is alive: a pool that begins meanwhile is in neither list.
    marked = set(_marked(f"{home_id(live)}:").values())
    tags = {_tag_of(path.name) for path in live.iterdir()} | {marker.rpartition(":")[2] for marker in marked}
    with contextlib.ExitStack() as locks:
        gone = {tag for tag in tags if tag and _is_free(live / (tag + LOCK_SUFFIX), locks)}
        ended = kill_marked({marker for marker in marked if marker.rpartition(":")[2] in gone})
        for tag in gone:
            _remove(live, tag)
    _remove_unborn(live)
    return ended


def kill_marked(markers: set[str]) -> int:
    """Kill every process with one of these markers until there is none; says how many there were."""
    ended: set[int] = set()
    deadline = time.monotonic() + GONE_SECONDS_MAX
    while markers and (found := [pid for pid, marker in _marked().items() if marker in markers]):
        for pid in found:
            ended.add(pid)
            processes.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
    return len(ended)


def _marked(prefix: str = "") -> dict[int, str]:
    """The processes that bear a marker, dead ones aside: those have no environment any more."""
    wanted = f"{MARKER}={prefix}".encode()
    found: dict[int, str] = {}
    for pid in processes.all_pids():
        try:
            # Without pathlib, which takes half of the time of a look at all processes.
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:  # noqa: PTH123
                data = file.read()
        except OSError:
            continue
        for entry in data.split(b"\0") if wanted in data else ():
            if entry.startswith(wanted) and pid != os.getpid():
                found[pid] = entry.decode("utf-8", "replace").partition("=")[2]
    return found


def _is_free(path: Path, locks: contextlib.ExitStack) -> bool:
    """Whether a pool's lock is free. A free one is ours until the end of ``locks``."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    locks.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_unborn(live: Path) -> None:
    """What a pool left that ended between making its lock and naming it, which takes no time: old ones are left over."""
    for path in live.glob(f"{_NEW_PREFIX}*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _UNBORN_SECONDS:
                path.unlink()


def _tag_of(name: str) -> str:
    """The tag in the name of something under ``live/``; empty for what is not ours, or not yet whole."""
    return "" if name.startswith(_NEW_PREFIX) else name.partition(".")[0]


def _remove(live: Path, tag: str) -> None:
    for path in live.glob(f"{tag}.*"):
        if path.name == tag + LOCK_SUFFIX:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    (live / (tag + LOCK_SUFFIX)).unlink(missing_ok=True)
