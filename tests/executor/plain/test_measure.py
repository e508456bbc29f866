"""What a task used: counted by its worker when it has ended, and seen from outside while it runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from detent.executor.plain import heard, wire
from tests.executor.plain.rig import Rig, value

MB = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def test_the_memory_of_all_processes_of_a_task_counts_together(home: Path) -> None:
    """PIPE-097, PIPE-098: two children hold 48 MB each at the same time, and neither alone as much."""
    rig = Rig(home, workers=1)
    try:
        os.mkfifo(gate := home / "gate")
        number = rig.submit("hold_in_children", 2, 48 * MB, str(gate))
        rig.begun("holding")
        slot = rig.holder(number)
        rig.until(lambda: (seen := rig.pool._watch.of(slot, number)) is not None and seen.memory_bytes_peak > 96 * MB)
        with gate.open("wb"):
            done = rig.result(number)
        assert done.usage.memory_bytes_peak > 96 * MB
        assert rig.run("nothing").usage.memory_bytes_peak < 96 * MB
    finally:
        rig.pool.close()


def test_a_child_that_has_ended_counts_with_its_peak(home: Path) -> None:
    """PIPE-098: however short it was."""
    rig = Rig(home, workers=1)
    try:
        before = rig.run("nothing").usage.memory_bytes_peak
        command = "python3 -c 'bytearray(150000000)'"
        assert rig.run(command, kind="shell").usage.memory_bytes_peak > 150_000_000 > before
        assert rig.run("nothing").usage.memory_bytes_peak < 150_000_000
    finally:
        rig.pool.close()


def test_bytes_are_counted_by_system_calls_and_for_each_task(home: Path) -> None:
    """PIPE-097: on any file system, with those of children; a task that moves none has none."""
    rig = Rig(home, workers=1)
    try:
        rig.run("nothing")
        none = rig.run("nothing").usage
        assert (none.io_bytes_read, none.io_bytes_written, none.unmeasured) == (0, 0, ())
        done = rig.run("write_and_read", str(home / "file"), 300_000)
        assert value(done) == 300_000
        assert 300_000 <= done.usage.io_bytes_read < 500_000
        assert 300_000 <= done.usage.io_bytes_written < 310_000
        below = rig.run(f"head -c 200000 /dev/zero > {home / 'other'}", kind="shell").usage
        assert 200_000 <= below.io_bytes_written < 210_000
    finally:
        rig.pool.close()


def test_what_a_worker_cannot_count_is_not_taken_for_nothing() -> None:
    """PIPE-097: a kernel that keeps no counters of bytes is told apart from a task that moves none."""
    numbers = (1, wire.OK | wire.IO_UNKNOWN, 0, 0, 5000, 7, 0, 0)
    read = heard.done(wire.write_done(numbers, (b"null", b"", b"", b"", b"")), {1})
    assert heard.usage(read).unmeasured == ("io_bytes",)
