"""An ordered run as the ledger tells it, for readers: what it is, its progress, and its outcome.

The diagnostics snapshot of an ordered run, where other processes can read it: ``runs/RUN.snapshot.json`` in the home.

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

from detent.canon import json_decode
from detent.canon.late import dataclass
from detent.errors import DetentError, HomeUntrusted
from detent.kernel import Run
from detent.kernel.identity import id_in_run
from detent.ordered.actions import Snapshot
from detent.owner.content import Content, open_value
from detent.owner.place import LOCKS
from detent.runs.ordered.notes import SUMMARY, commit_name, notes_of, taken_name
from detent.runs.ordered.spec import OrderedInputs, read_ordered
from detent.runs.record.identity import SNAPSHOT
from detent.runs.record.recorded_run import report_of, value_of
from detent.store.api import StoreReader
from detent.store.files import open_no_follow


@dataclass(frozen=True, slots=True)
class RecordedOrdered:
    """One ordered run on the ledger."""

    inputs: OrderedInputs
    committed: int
    """Items below the cursor; cancelled ones, which it passes at the end, are not among them."""
    boundary: int | None
    commits: int
    """How many commits there were."""
    last_commit: dict[str, Any] | None
    summary: dict[str, Any] | None
    """None while the run has not ended."""

    def to_map(self) -> dict[str, Any]:
        """What the document of a run has beside its records."""
        spec = self.inputs.spec.document()
        return {
            "ordered": {
                **spec,
                "total": self.inputs.config.total,
                "window_size": self.inputs.config.window_size,
                "chunk_size": self.inputs.config.chunk_size,
                "committed": self.committed,
                "cancel_boundary": self.boundary,
                "commits": self.commits,
                "last_commit": self.last_commit,
                "summary": self.summary,
            }
        }


def ordered_inputs(content: Content, run: Run) -> OrderedInputs | None:
    """What an ordered run was started with; None for another kind of run, or when that is gone."""
    try:
        data = content.get(run.inputs_digest)
        return None if data is None else read_ordered(open_value(data))
    except DetentError:
        return None


def is_step_of(reader: StoreReader, run: Run, began: OrderedInputs, run_id: str) -> bool:
    """Whether an ordered run is that of a step of this run, which began it or has taken it up."""
    return (
        began.step_of == run_id or reader.job(id_in_run(run.run_id, taken_name(run_id), reader.partitions)) is not None
    )


def recorded_ordered(reader: StoreReader, content: Content, run: Run) -> RecordedOrdered | None:
    """An ordered run; None for another kind of run, or when its inputs are gone."""
    inputs = ordered_inputs(content, run)
    if inputs is None:
        return None
    ends: dict[int, int] = {}
    boundary: int | None = None
    for name in notes_of(reader, run.run_id):
        if name.kind == "commit":
            ends[name.first] = name.last
        elif name.kind == "cancel":
            boundary = name.first if boundary is None else min(boundary, name.first)
    committed = max(ends.values(), default=-1) + 1
    committed = committed if boundary is None else min(committed, boundary)
    last = max(ends, default=None)
    said = None if last is None else _note(reader, content, run.run_id, commit_name(last, ends[last]))
    summary = _note(reader, content, run.run_id, SUMMARY)
    return RecordedOrdered(inputs, committed, boundary, len(ends), said, summary)


def _note(reader: StoreReader, content: Content, run_id: str, name: str) -> dict[str, Any] | None:
    row = reader.job(id_in_run(run_id, name, reader.partitions))
    report = None if row is None else report_of(reader, content, row)
    data = None if report is None else value_of(content, report)
    value = None if data is None else json_decode(data)
    return value if isinstance(value, dict) else None


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
