"""The diagnostics snapshot of an ordered run, where other processes can read it: ``runs/RUN.snapshot.json`` in the home.

The driver rewrites it every second, and once more when the run is left or breaks off, so it is there for a person at another
terminal and after a ``kill -9``. It is removed when the run has ended. Nothing is decided by it: it may be missing, old or
altered without harm, and a disk that is full costs the snapshot and not the run.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from detent.errors import HomeUntrusted
from detent.ordered.snapshot import Snapshot
from detent.runs.record.identity import LOCKS, SNAPSHOT
from detent.store.no_follow import open_no_follow

BYTES_MAX: Final = 1 << 20


class SnapshotFile:
    """Writes the snapshots of one run."""

    def __init__(self, home: Path, run_id: str) -> None:
        self.path = snapshot_path(home, run_id)
        self._run_id = run_id

    def write(self, snapshot: Snapshot | dict[str, Any], now_ms: int, message: str = "") -> None:
        """Replace the snapshot by a newer one; ``message`` says what the driver is about, such as why it cancels."""
        told = snapshot.to_map() if isinstance(snapshot, Snapshot) else snapshot
        document = {
            "run_id": self._run_id,
            "pid": os.getpid(),
            "written_ms": now_ms,
            "message": message,
            "snapshot": told,
        }
        aside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        with suppress(OSError):
            aside.unlink(missing_ok=True)
            handle = open_no_follow(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(document, file, indent=2)
                file.write("\n")
            aside.replace(self.path)

    def remove(self) -> None:
        """The run has ended."""
        remove_snapshot(self.path.parent.parent, self._run_id)


def snapshot_path(home: Path, run_id: str) -> Path:
    """Where the snapshot of a run lies."""
    return home / LOCKS / f"{run_id}{SNAPSHOT}"


def remove_snapshot(home: Path, run_id: str) -> None:
    """Remove the snapshot of a run that has ended."""
    with suppress(OSError):
        snapshot_path(home, run_id).unlink(missing_ok=True)


def read_snapshot(home: Path, run_id: str) -> dict[str, Any] | None:
    """The last snapshot of a run with its time, as `SnapshotFile.write` left it; None when there is none to be read."""
    try:
        handle = open_no_follow(snapshot_path(home, run_id))
        with os.fdopen(handle, "rb") as file:
            said = json.loads(file.read(BYTES_MAX))
    except (OSError, ValueError, HomeUntrusted):
        return None
    fits = isinstance(said, dict) and type(said.get("written_ms")) is int and isinstance(said.get("snapshot"), dict)
    return said if fits else None
