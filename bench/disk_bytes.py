"""Bytes that a no-op job leaves in its home, by the way that it was submitted.

The home is measured closed, before and after the jobs: the ledger and everything beside it. SQLite's write-ahead log is moved into the
database first: its size is bounded, and what it holds at the moment would count twice.

    python bench/disk_bytes.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

if __name__ == "__main__":
    sys.path.insert(0, ".")

from bench.interpreter import interpreter_text

JOBS = 2_000
WARM = 200


def one_by_one(where: Path) -> float:
    """Bytes a job: `Client.submit` for each."""
    return _bytes_each(where, lambda client, task: [client.submit(task, number) for number in range(JOBS)])


def submitted_many(where: Path) -> float:
    """Bytes a job: one `Client.submit_many`."""
    return _bytes_each(where, lambda client, task: client.submit_many(task, [(number,) for number in range(JOBS)]))


def mapped(where: Path) -> float:
    """Bytes an element of `Client.map`."""
    return _bytes_each(where, lambda client, task: list(client.map(task, range(JOBS))))


def _bytes_each(where: Path, submit: Callable[[Any, Any], Any]) -> float:
    import detent  # noqa: PLC0415
    from bench.run_work import nothing  # noqa: PLC0415

    home = where / "home"
    with detent.Client(home, workers=2) as client:
        client.submit_many(nothing, [(number,) for number in range(WARM)])
    before = _size_bytes(home)
    with detent.Client(home, workers=2) as client:
        submit(client, nothing)
    return (_size_bytes(home) - before) / JOBS


def _size_bytes(home: Path) -> int:
    connection = apsw.Connection(str(home / "ledger.db"))
    connection.execute(
        "select count(*) from sqlite_schema"
    ).fetchall()  # Until it has read, it does not know of any log.
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
    return sum(path.stat().st_size for path in home.rglob("*") if path.is_file())


def main() -> None:
    print(f"   {interpreter_text()}")
    for measure in (one_by_one, submitted_many, mapped):
        with tempfile.TemporaryDirectory(prefix="detent-bench-") as where:
            print(f"   {measure.__name__.replace('_', ' '):16} {measure(Path(where)):>8,.0f} bytes a job")


if __name__ == "__main__":
    main()
