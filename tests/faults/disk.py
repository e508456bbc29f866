"""A disk that is full: a small file system of its own where that can be mounted, and a limit on the size of files everywhere."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detent.testing import TemporaryHome, temporary_home
from tests.faults.audit import audit, check_run
from tests.faults.commands import Commands
from tests.faults.faults import Cycle, Fault, again, completed
from tests.faults.pipelines import hundred
from tests.faults.site import Site, new_site, until

DISK_BYTES = 16 << 20
ROOM_BYTES = 900_000
"""What is left of it at most: a run of a hundred jobs needs more."""
FULL_BYTES = 16 << 10
"""When so little is left, the next commit finds no room."""
FULL_SECONDS = 0.3
BALLAST = "ballast"
PATIENCE_SECONDS = 0.2
"""In place of the twenty seconds for which a command waits for room."""
EPOCHS_WITHOUT_FAULT = 2
UNAVAILABLE = 4
UNWRITABLE = "STORE_UNAVAILABLE"


def full_disk(commands: Commands, fault: str, seed: int) -> Cycle:
    """The home's disk gets full and stays so. When there is room again, the same line completes the run."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    pipeline = hundred()
    with full_site(commands, draw.randint(0, ROOM_BYTES)) as (site, ballast):
        site.write(pipeline)
        code = site.run(patience_seconds=PATIENCE_SECONDS).wait()
        cycle.injected += code == UNAVAILABLE and UNWRITABLE in site.errors()
        if not cycle.injected:
            cycle.wrong.append(f"the disk was not full: it ended with {code}: {site.errors()[-700:]}")
        ballast.unlink()
        run_id = completed(cycle, site, again(site, cycle, pipeline), pipeline)
        cycle.found = audit(site)
        check_run(cycle.found, str(run_id), pipeline.jobs)
        cycle.hit = cycle.found.interrupted
    return cycle


def full_for_a_moment(commands: Commands, fault: str, seed: int) -> Cycle:
    """The home's disk gets full in the middle of a run; there is room again before the command gives up."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    pipeline = hundred()
    with full_site(commands, draw.randint(ROOM_BYTES // 4, ROOM_BYTES)) as (site, ballast):
        site.write(pipeline)
        command = site.run()
        until(lambda: room_left(site.home.path) < FULL_BYTES, command)
        threading.Event().wait(FULL_SECONDS)
        ballast.unlink()
        run_id = completed(cycle, site, command, pipeline)
        with site.reader() as reader:
            # The owner ended when it could not write, and another began in the same command.
            cycle.injected += reader.head(0).epoch > EPOCHS_WITHOUT_FAULT
        if not cycle.injected:
            cycle.wrong.append("the disk was not full")
        cycle.found = audit(site)
        check_run(cycle.found, str(run_id), pipeline.jobs)
        cycle.hit = cycle.found.interrupted
    return cycle


def file_too_large(commands: Commands, fault: str, seed: int) -> Cycle:
    """A write that the kernel refuses because the file would get too large, as with a quota."""
    cycle, draw = Cycle(fault, seed), random.Random(f"{fault}/{seed}")
    pipeline = hundred()
    with new_site(commands) as site:
        site.write(pipeline)
        code = site.run(file_bytes_max=draw.randint(40_000, 400_000), patience_seconds=PATIENCE_SECONDS).wait()
        cycle.injected += code != 0
        if code != UNAVAILABLE:
            cycle.wrong.append(f"it ended with {code}: {site.errors()[-500:]}")
        run_id = completed(cycle, site, again(site, cycle, pipeline), pipeline)
        cycle.found = audit(site)
        check_run(cycle.found, str(run_id), pipeline.jobs)
        cycle.hit = cycle.found.interrupted
    return cycle


@contextmanager
def full_site(commands: Commands, room: int) -> Iterator[tuple[Site, Path]]:
    """A home on a disk with so little room, everything else elsewhere; and the file that takes up the rest."""
    with temporary_home() as base, small_disk(base.directory / "disk") as disk:
        shutil.copytree(base.path, disk / ".detent")
        fill(disk, room)
        yield Site(TemporaryHome(disk), commands, place=base.directory), disk / BALLAST


def room_left(path: Path) -> int:
    """Free bytes of the file system that a path lies on."""
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize


def can_mount() -> bool:
    """Whether this process may mount a file system."""
    try:
        with temporary_home() as base, small_disk(base.directory / "disk"):
            return True
    except OSError:
        return False


@contextmanager
def small_disk(path: Path, size_bytes: int = DISK_BYTES) -> Iterator[Path]:
    """A file system in memory with little room. Raises `OSError` where this user may not mount one."""
    path.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"disk", os.fsencode(path), b"tmpfs", 0, f"size={size_bytes},mode=700".encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    try:
        yield path
    finally:
        libc.umount2(os.fsencode(path), 2)  # Also if a command that failed still has it open.


def fill(disk: Path, room: int) -> None:
    """Leave so many bytes."""
    with (disk / BALLAST).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room_left(disk) - room)


MOUNTED: dict[str, Fault] = {"disk full": full_disk, "disk full for a moment": full_for_a_moment}
LIMITED: dict[str, Fault] = {"a file too large": file_too_large}
DISK = {**MOUNTED, **LIMITED}
