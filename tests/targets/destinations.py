"""Destinations to write to, a run that writes to them, and what they must hold in the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from detent.targets import NOTHING, CommitTarget, Mark, Nothing, append_target, json_lines_target
from detent.targets.disk import DISK, Disk
from detent.targets.sqlite_target import SqliteTarget

RUN = "run-1"
Value = Any
KINDS = ("append", "jsonl", "jsonl+seq", "sqlite")
FILE_KINDS = KINDS[:3]


@dataclass
class Destination:
    """One destination in a directory of its own, with the ledger that a run keeps of it."""

    kind: str
    directory: Path

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.path = self.directory / ("out.db" if self.kind == "sqlite" else "out.txt")
        self.ledger = self.directory / "marks"

    def target(self, disk: Disk = DISK, vfs: str | None = None) -> CommitTarget:
        spec = f"{self.kind}:{self.path.name}"
        match self.kind:
            case "append":
                return append_target(spec, self.path, disk=disk)
            case "sqlite":
                return SqliteTarget(f"{spec}#items", self.path, "items", busy_ms=0, vfs=vfs)
            case _:
                return json_lines_target(spec, self.path, numbered=self.kind == "jsonl+seq", disk=disk)

    def held(self) -> bytes:
        """Everything that the destination holds, as bytes that can be compared."""
        if self.kind != "sqlite":
            return self.path.read_bytes() if self.path.exists() else b""
        if not self.path.exists():
            return b""
        connection = apsw.Connection(str(self.path))
        try:
            if connection.table_exists("main", "items"):
                rows = connection.execute("SELECT seq, value FROM items ORDER BY rowid").fetchall()
                return "".join(f"{seq} {value}\n" for seq, value in rows).encode()
            return b""
        finally:
            connection.close()

    def expected(self, values: Sequence[Value | Nothing]) -> bytes:
        """What it must hold when these were committed, from seq 0 on."""
        lines = []
        for seq, value in enumerate(values):
            if value is not NOTHING:
                text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
                forms = {
                    "append": f"{value}\n",
                    "jsonl": f"{text}\n",
                    "jsonl+seq": f'{{"seq":{seq},"value":{text}}}\n',
                    "sqlite": f"{seq} {text}\n",
                }
                lines.append(forms[self.kind])
        return "".join(lines).encode()

    def record(self, mark: Mark) -> None:
        with self.ledger.open("a") as file:
            file.write(json.dumps(mark.to_json()) + "\n")

    def recorded(self) -> Mark | None:
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        return Mark.from_json(json.loads(lines[-1])) if lines else None

    def left_over(self) -> list[str]:
        """Files beside the destination and the ledger."""
        mine = {self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm", self.ledger.name}
        return sorted(entry.name for entry in self.directory.iterdir() if entry.name not in mine)


def batches(values: Sequence[Value | Nothing], size: int) -> Iterator[tuple[int, list[Value | Nothing]]]:
    for first in range(0, len(values), size):
        yield first, list(values[first : first + size])


def drive(
    destination: Destination,
    target: CommitTarget,
    values: Sequence[Value | Nothing],
    size: int = 3,
    point: Callable[[], None] = lambda: None,
) -> None:
    """A run as the runtime has it: resume at what is recorded, write what is left, record after every batch."""
    recorded = destination.recorded()
    next_seq = target.open(RUN, recorded)
    point()
    if recorded is None:
        destination.record(target.begin())
        point()
    for first, batch in batches(values, size):
        if first + len(batch) > next_seq:
            mark = target.write(first, batch)
            point()
            destination.record(mark)
            point()
    target.close()
