"""Looks at running tasks from outside, now and then: what their processes hold and have used together.

A worker counts exactly what a task used, once it has ended: its processor time and bytes with those of the children that it
waited for, and the peak of its own memory. Two things only a look from outside can tell: how much memory the whole tree holds at
one moment, and what a task has used that has not ended. Looks are samples: a peak between two of them goes unnoticed, and what
was used before the first one is not in it. So a sample never says more than there was.

A task that ends before the second look at it costs nothing but the first, which reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from detent.canon.late import dataclass
from detent.executor.gpu import GpuReader, Reading, find_gpu_reader
from detent.executor.plain import processes
from detent.executor.plain.heard import IO
from detent.executor.plain.slot import Slot
from detent.jobs.work import NO_USAGE, Usage

LOOK_SECONDS: Final = 0.1


@dataclass(slots=True)
class _Seen:
    """A running task, from its first look on."""

    number: int
    cpu_ms: float | None = None
    """Of the tree at the first look that read it; None before."""
    reaped_ms: int = 0
    moved: tuple[int, int] | None = None
    pids: frozenset[int] = frozenset()
    """Every process that a look has seen."""
    gpu: Reading | None = None
    """As the first look found it; None where there is no reader."""
    usage: Usage = NO_USAGE


class Watch:
    """The running tasks of a pool, as far as looks have seen them."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        """By worker."""
        self.next_look = 0.0
        self._gpu: GpuReader | None = None
        self._is_sought = False

    def close(self) -> None:
        """Let go of the GPU reader."""
        if self._gpu is not None:
            self._gpu.close()

    def look(self, slots: Iterable[Slot], now: float) -> None:
        """Look at every worker that has a task."""
        self.next_look = now + LOOK_SECONDS
        if not self._is_sought:
            self._is_sought, self._gpu = True, find_gpu_reader()
        for slot in slots:
            number = next(iter(slot.entries), None)
            seen = self._seen.get(slot.worker)
            if number is None or not slot.pid:
                self._seen.pop(slot.worker, None)
            elif seen is None or seen.number != number:
                self._seen[slot.worker] = _Seen(number)
            else:
                _look_at(seen, slot.pid, self._gpu)

    def forget(self, slot: Slot) -> None:
        """The worker is gone."""
        self._seen.pop(slot.worker, None)

    def of(self, slot: Slot, number: int) -> Usage | None:
        """What looks have seen of a task; None when none was long enough under way."""
        seen = self._seen.get(slot.worker)
        return seen.usage if seen is not None and seen.number == number and seen.cpu_ms is not None else None


def _look_at(seen: _Seen, pid: int, gpu: GpuReader | None) -> None:
    tree = processes.tree(pid)
    seen.pids |= frozenset(tree)
    reading = None if gpu is None else gpu.reading(seen.pids)
    reaped_ms = processes.reaped_cpu_ms(pid)
    cpu_ms = sum(map(processes.cpu_ms_of, tree)) + reaped_ms
    moved = processes.moved_bytes(tree)
    if seen.cpu_ms is None:
        seen.cpu_ms, seen.reaped_ms, seen.moved, seen.gpu = cpu_ms, reaped_ms, moved, reading
    # The kernel tells what children used in ticks, user and system each: that may be so much too much.
    doubt_ms = 2 * processes.TICK_MS if reaped_ms > seen.reaped_ms else 0
    held = processes.held_bytes(tree, above=seen.usage.memory_bytes_peak)
    read, written = (
        (0, 0)
        if moved is None or seen.moved is None
        else (max(0, moved[0] - seen.moved[0]), max(0, moved[1] - seen.moved[1]))
    )
    usage = seen.usage
    seen.usage = Usage(
        max(usage.cpu_ms, int(cpu_ms - seen.cpu_ms) - doubt_ms),
        0,
        max(usage.memory_bytes_peak, held),
        max(usage.io_bytes_read, read),
        max(usage.io_bytes_written, written),
        gpu_ms=_gpu_ms(seen.gpu, reading),
        unmeasured=(IO,) if moved is None else (),
    )


def _gpu_ms(before: Reading | None, now: Reading | None) -> int | None:
    """GPU time between two readings; None when nothing was measured between them."""
    if before is None or now is None or before.samples == now.samples:
        return None
    return max(0, round(now.ms - before.ms))
