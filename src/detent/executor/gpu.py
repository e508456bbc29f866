"""GPU time of processes, where ``nvidia-smi`` answers: an optional reader, which is absent on a machine without such a GPU.

``nvidia-smi pmon`` tells once a second how much of that second each process kept a GPU busy. This adds it up. Where the program is
missing, or cannot tell, there is no reader and no measurement: callers record that nothing was measured, never that nothing was
used. A process that came and went between two samples is not in any of them.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

PROGRAM: Final = "nvidia-smi"
PERIOD_MS: Final = 1000
"""Of one sample, the least that the program takes."""
PIDS_MAX: Final = 10_000
"""Processes remembered; the oldest are forgotten."""
_END_SECONDS: Final = 2.0


class Reading(NamedTuple):
    """The state of a reader at one moment."""

    samples: int
    """Taken so far; between two readings with the same number nothing was measured."""
    ms: float
    """GPU time of the processes that were asked about."""


class GpuReader:
    """Adds up the GPU time of every process that the samples name."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - found on the user's own path
            [program, "pmon", "-s", "u", "-d", str(PERIOD_MS // 1000)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lock = threading.Lock()
        self._ms: dict[int, float] = {}
        self._samples = 0
        self._thread = threading.Thread(target=self._read, name="detent-gpu", daemon=True)
        self._thread.start()

    def reading(self, pids: Iterable[int]) -> Reading:
        """The GPU time of some processes until now."""
        with self._lock:
            return Reading(self._samples, sum(self._ms.get(pid, 0.0) for pid in pids))

    def close(self) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        stream = self._process.stdout
        if stream is None:
            return
        with stream:
            for sample in samples_of(stream):
                with self._lock:
                    self._samples += 1
                    for pid, percent in sample.items():
                        self._ms[pid] = self._ms.get(pid, 0.0) + percent * PERIOD_MS / 100
                    while len(self._ms) > PIDS_MAX:
                        del self._ms[next(iter(self._ms))]


def find_gpu_reader() -> GpuReader | None:
    """A reader, where the program is installed and can be started."""
    program = shutil.which(PROGRAM)
    if program is None:
        return None
    try:
        return GpuReader(program)
    except OSError:
        return None


def samples_of(lines: Iterable[str]) -> Iterator[dict[int, float]]:
    """The samples of ``nvidia-smi pmon``: how busy each process kept GPUs, in percent of the period, over all of them.

    A sample has a line for each process on each GPU, or one with dashes for a GPU without any. It ends where a GPU and process
    come again, or a header does.
    """
    columns: dict[str, int] = {}
    sample: dict[int, float] = {}
    seen: set[tuple[str, str]] = set()
    for line in lines:
        words = line.replace("#", " ").split()
        if line.lstrip().startswith("#"):
            if "pid" in words:
                columns = {word: place for place, word in enumerate(words)}
            continue
        if not {"gpu", "pid", "sm"} <= columns.keys() or len(words) <= max(columns["pid"], columns["sm"]):
            continue
        key = words[columns["gpu"]], words[columns["pid"]]
        if key in seen:
            yield sample
            sample, seen = {}, set()
        seen.add(key)
        pid, busy = words[columns["pid"]], words[columns["sm"]]
        if pid.isdigit():
            sample[int(pid)] = sample.get(int(pid), 0.0) + (float(busy) if busy.isdigit() else 0.0)
    if seen:
        yield sample
