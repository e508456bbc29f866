"""What exactly-once costs: a million small entries into each kind of destination, beside a bare loop that writes the same bytes.

Both sides write the same batches and make each durable, by the same sync. The bare file loop is `write` and `fsync`; the bare
table loop is one transaction for each batch with the same settings. Neither knows where it was when it is killed. Marks are
made and not recorded: what the ledger costs is another benchmark's question.

    python bench/commit_target_rate.py
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw

from detent.targets import CommitTarget, FunctionTarget, parse_target

TOTAL = 1_000_000
BATCH = 1_000
ROUNDS = 3

ENCODE = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), sort_keys=True
).encode
"""As Detent writes JSON, so that both sides do the same work."""


def batches(value_of: Callable[[int], Any]) -> Iterator[tuple[int, list[Any]]]:
    for first in range(0, TOTAL, BATCH):
        yield first, [value_of(seq) for seq in range(first, first + BATCH)]


def text(seq: int) -> str:
    return f"entry {seq}"


def mapping(seq: int) -> dict[str, Any]:
    return {"id": seq, "name": "entry", "score": 0.5}


def bare_text(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for _, values in batches(text):
            file.write("".join([value + "\n" for value in values]).encode())
            os.fsync(file.fileno())


def bare_lines(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for _, values in batches(mapping):
            file.write("".join([ENCODE(value) + "\n" for value in values]).encode())
            os.fsync(file.fileno())


def bare_table(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "EXTRA")
    connection.execute("CREATE TABLE items (seq INTEGER PRIMARY KEY, value TEXT NOT NULL)")
    for first, values in batches(mapping):
        connection.execute("BEGIN IMMEDIATE")
        rows = ((seq, ENCODE(value)) for seq, value in enumerate(values, first))
        connection.executemany("INSERT INTO items (seq, value) VALUES (?, ?)", rows)
        connection.execute("COMMIT")
    connection.close()


def bare_calls(_: Path) -> None:
    for _first, values in batches(text):
        for value in values:
            taken(value, None)


def taken(value: object, token: object) -> None:
    """The cheapest function there is."""


def committed(target: CommitTarget, value_of: Callable[[int], Any]) -> None:
    target.open("run", None)
    target.begin()
    for first, values in batches(value_of):
        target.write(first, values)
    target.close()


SIDES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "append:": (bare_text, lambda path: committed(parse_target(f"append:{path}"), text)),
    "jsonl:": (bare_lines, lambda path: committed(parse_target(f"jsonl:{path}"), mapping)),
    "sqlite:": (bare_table, lambda path: committed(parse_target(f"sqlite:{path}#items"), mapping)),
    "module:function": (bare_calls, lambda _: committed(FunctionTarget("f", lambda: taken), text)),
}


def spent(side: Callable[[Path], None], directory: Path) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    path = directory / "out"
    for left in directory.iterdir():
        left.unlink()
    begun, begun_cpu = time.perf_counter(), time.process_time()
    side(path)
    return time.perf_counter() - begun, time.process_time() - begun_cpu


def main() -> None:
    rounds = ROUNDS if "--full" in sys.argv else 1
    print(f"entries a second, {TOTAL:,} entries, batches of {BATCH}, each synced; least of {rounds} rounds")
    with TemporaryDirectory(dir=".") as name:
        directory = Path(name)
        for kind, sides in SIDES.items():
            times: list[list[tuple[float, float]]] = [[], []]
            for _ in range(rounds):
                for number, side in enumerate(sides):
                    times[number].append(spent(side, directory))
            (bare, bare_cpu), (ours, ours_cpu) = ([min(column) for column in zip(*side, strict=True)] for side in times)
            print(
                f"  {kind:<16}{TOTAL / ours:>12,.0f}   bare loop {TOTAL / bare:>12,.0f}"
                f"   {ours / bare:>5.2f} times its time, {ours_cpu / bare_cpu:>5.2f} times its CPU",
                flush=True,
            )


if __name__ == "__main__":
    main()
