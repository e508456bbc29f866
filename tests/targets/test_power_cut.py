"""After a power cut the destination has what was acknowledged, and the resumed run completes it.

One recording serves many cuts: a run is written down call by call, and `tests.store.power_cut` builds what a disk may hold
afterwards. The mark on the ledger may be the last one that a write returned, or any older one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from detent.targets import CommitTarget, Mark
from detent.targets.disk import Disk
from tests.store.power_cut import images
from tests.store.vfs import Event, RecordingVfs
from tests.targets.destinations import FILE_KINDS, RUN, Destination, batches

VALUES = [f"entry {number} " + "y" * (number * 211 % 1500) for number in range(12)]
IMAGES = 60


class RecordingDisk(Disk):
    """Writes down what happens to the one file there is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.events: list[Event] = [Event("create", name)]

    def write(self, handle: int, data: memoryview) -> int:
        self.events.append(Event("write", self._name, os.fstat(handle).st_size, bytes(data)))
        return super().write(handle, data)

    def sync(self, handle: int) -> None:
        self.events.append(Event("sync", self._name))

    def truncate(self, handle: int, size: int) -> None:
        self.events.append(Event("truncate", self._name, size))
        super().truncate(handle, size)

    def sync_directory(self, path: Path) -> None:
        self.events.append(Event("sync", self._name))


def record(target: CommitTarget, events: list[Event]) -> list[tuple[int, Mark]]:
    """Write everything; for each mark, how many events had happened when it was known."""
    target.open(RUN, None)
    marks = [(len(events), target.begin())]
    for first, batch in batches(VALUES, 2):
        mark = target.write(first, batch)
        marks.append((len(events), mark))
    target.close()
    return marks


def check_images(
    destination: Destination,
    directory: Path,
    events: list[Event],
    marks: list[tuple[int, Mark]],
    resumed: Callable[[Destination], CommitTarget],
) -> None:
    random = Random(5)
    for number, image in enumerate(images({}, events, IMAGES, random)):
        found = Destination(destination.kind, directory / str(number))
        for name, data in image.files.items():
            (found.directory / name).write_bytes(data)
        known = [mark for at, mark in marks if at <= image.cut]
        recorded = random.choice(known[-2:]) if known else None
        target = resumed(found)
        next_seq = target.open(RUN, recorded)
        if recorded is None:
            target.begin()
        assert next_seq >= (recorded.next_seq if recorded else 0)
        if destination.kind != "sqlite" and recorded is not None:
            assert found.held() == found.expected(VALUES[:next_seq])
        for first, batch in batches(VALUES, 2):
            if first + len(batch) > next_seq:
                target.write(first, batch)
        target.close()
        if recorded is not None or destination.kind == "sqlite":
            assert found.held() == found.expected(VALUES)


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_a_file_has_every_acknowledged_entry_after_a_power_cut(kind: str, tmp_path: Path) -> None:
    """ORD-034"""
    destination = Destination(kind, tmp_path / "first")
    disk = RecordingDisk(destination.path.name)
    marks = record(destination.target(disk), disk.events)
    check_images(destination, tmp_path, disk.events, marks, lambda found: found.target(RecordingDisk("")))


def test_a_table_has_every_acknowledged_entry_after_a_power_cut(tmp_path: Path) -> None:
    """ORD-034"""
    destination = Destination("sqlite", tmp_path / "first")
    vfs, opening = RecordingVfs(), RecordingVfs()
    marks = record(destination.target(vfs=vfs.name), vfs.events)
    check_images(destination, tmp_path, vfs.events, marks, lambda found: found.target(vfs=opening.name))


def test_a_new_file_and_its_name_are_synced_before_the_run_begins(tmp_path: Path) -> None:
    calls: list[str] = []

    class Noting(Disk):
        def sync(self, handle: int) -> None:
            calls.append("file")

        def sync_directory(self, path: Path) -> None:
            calls.append(f"directory {path.name}")

    destination = Destination("jsonl", tmp_path / "somewhere")
    target = destination.target(Noting())
    target.open(RUN, None)
    assert calls == ["file", "directory somewhere"]
    target.close()
