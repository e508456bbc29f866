"""Storing an artifact beside the least that has to be done: reading it once and hashing it.

Both sides read the same file, which lies in the page cache, in turns in one run. Storing reads, hashes, writes, syncs, names
and syncs the directories. What the same copy costs without the last syncs is told beside it, and so is reading back.

    python bench/artifact_rate.py [--bytes N] [--directory DIR] [--rounds N]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from detent.artifacts.api import DirectoryStore
from detent.store.content import ContentFiles
from detent.store.files import DiskFiles, NewFile

GIB = 1 << 30
CHUNK = 1 << 20
GOAL, GOAL_MIB = 0.70, 64


class Unsynced(DiskFiles):
    """The same disk with every sync left out."""

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        file = super().create(path, streamed=streamed)
        file.sync = lambda: None  # type: ignore[method-assign]
        return file

    def sync_directory(self, path: Path) -> None:
        pass


def write_random(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for start in range(0, size, CHUNK):
            file.write(os.urandom(min(CHUNK, size - start)))
        file.flush()
        os.fsync(file.fileno())


def bare(path: Path) -> bytes:
    digest, buffer = hashlib.sha256(), bytearray(CHUNK // 4)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(view[:count])
    return digest.digest()


def timed(work: Callable[[], object]) -> float:
    os.sync()  # What others left to be written would be paid for by the next measurement.
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def read_back(store: DirectoryStore, digest: bytes) -> None:
    stream = store.open(digest)
    if stream is None:
        raise SystemExit("what was stored is not there")
    with stream:
        while stream.read1():
            pass


def peak_mib(path: Path, directory: Path) -> tuple[float, float]:
    """Peak memory of a process that stores the file, and of one that only loads the same modules.

    From `/proc`: what `getrusage` says of a child begins with what its parent had.
    """
    program = (
        "import sys, pathlib; from detent.artifacts.api import DirectoryStore\n"
        "store = DirectoryStore(pathlib.Path(sys.argv[2]))\n"
        "sys.argv[3] == 'idle' or store.put(pathlib.Path(sys.argv[1]))\n"
        "text = pathlib.Path('/proc/self/status').read_text()\n"
        "print(int(text.partition('VmHWM:')[2].split()[0]) / 1024)"
    )
    said = [
        subprocess.run(  # noqa: S603
            [sys.executable, "-c", program, str(path), str(directory), mode], check=True, capture_output=True, text=True
        ).stdout
        for mode in ("store", "idle")
    ]
    return float(said[0]), float(said[1])


def measure(directory: Path, size: int, rounds: int) -> None:
    path = directory / "artifact"
    write_random(path, size)
    digest = bare(path)
    synced = DirectoryStore(directory / "synced")
    unsynced = DirectoryStore(ContentFiles(directory / "unsynced", files=Unsynced()))
    taken: dict[str, list[float]] = {
        "bare read and SHA-256": [],
        "stored": [],
        "stored, never synced": [],
        "read back": [],
    }
    for _ in range(rounds):
        taken["bare read and SHA-256"].append(timed(lambda: bare(path)))
        taken["stored"].append(timed(lambda: synced.put(path)))
        taken["stored, never synced"].append(timed(lambda: unsynced.put(path)))
        taken["read back"].append(timed(lambda: read_back(synced, digest)))
        synced.delete(digest)
        unsynced.delete(digest)
    plain = statistics.median(taken["bare read and SHA-256"])
    for name, times in taken.items():
        middle = statistics.median(times)
        print(
            f"  {name:<24} {size / middle / 1e6:7.0f} MB/s, {plain / middle:5.0%}"
            f"   ({min(times):.2f} to {max(times):.2f} s)"
        )
    peak, idle = peak_mib(path, directory / "synced")
    print(f"  goal: stored at at least {GOAL:.0%} of the bare speed; reading back verifies and comes from the disk")
    print(f"  peak memory {peak:.0f} MiB, of which {idle:.0f} before the first byte (goal: below {GOAL_MIB} MiB)")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bytes", type=int, default=GIB)
    parser.add_argument(
        "--directory", type=Path, default=None, help="where to write; the temporary directory otherwise"
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments or [])
    with tempfile.TemporaryDirectory(prefix="detent-bench-", dir=options.directory) as name:
        print(f"an artifact of {options.bytes / (1 << 20):.0f} MiB, {options.rounds} rounds, medians")
        measure(Path(name), options.bytes, options.rounds)


if __name__ == "__main__":
    sys.path.insert(0, ".")
    main(sys.argv[1:])
