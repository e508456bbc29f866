"""Makes a run for each line of JSON it reads, in a process of its own that may be killed at its n-th point."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from detent.targets.disk import Disk
from tests.store.vfs import Event, Vfs
from tests.targets.destinations import Destination, drive


class Points:
    """Counts, and ends the process at the number it was given."""

    def __init__(self, kill_at: int | None) -> None:
        self._left = -1 if kill_at is None else kill_at

    def passed(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class DeadlyDisk(Disk):
    """Points before and after everything that happens, and in the middle of writes. Nothing has to survive the machine."""

    def __init__(self, points: Points) -> None:
        self._points = points

    def write(self, handle: int, data: memoryview) -> int:
        self._points.passed()
        half = len(data) // 2
        if half:
            os.write(handle, data[:half])
            self._points.passed()
        os.write(handle, data[half:])
        self._points.passed()
        return len(data)

    def sync(self, handle: int) -> None:
        self._points.passed()

    def truncate(self, handle: int, size: int) -> None:
        self._points.passed()
        super().truncate(handle, size)
        self._points.passed()

    def sync_directory(self, path: Path) -> None:
        self._points.passed()


class DeadlyVfs(Vfs):
    """A point before everything that SQLite does to a file."""

    def __init__(self, points: Points) -> None:
        super().__init__()
        self._points = points

    def before(self, event: Event) -> int | None:
        self._points.passed()
        return None


def run(task: dict[str, Any]) -> None:
    points = Points(task["kill_at"])
    destination = Destination(task["kind"], Path(task["directory"]))
    vfs = DeadlyVfs(points)
    drive(destination, destination.target(DeadlyDisk(points), vfs.name), task["values"], size=2, point=points.passed)


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(json.dumps({"ended": os.waitstatus_to_exitcode(status)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
