"""Any sequence of writes, failures, crashes and resumes gives each entry once and in order."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
from hypothesis import given
from hypothesis import strategies as st

from detent.targets import NOTHING, CommitFailed, CommitTarget
from detent.targets.disk import Disk
from tests.store.vfs import FaultyVfs
from tests.targets.destinations import FILE_KINDS, RUN, Destination, Value


class Crash(BaseException):
    """The process is gone: nothing that follows in it happens."""


class FaultyDisk(Disk):
    """Fails the n-th call after so many bytes, with an error or for good."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.partly = 0
        self.error: int | None = None
        self.is_dead = False

    def arm(self, calls: int, partly: int, error: int | None) -> None:
        self.left, self.partly, self.error = calls, partly, error

    def write(self, handle: int, data: memoryview) -> int:
        if self._is_due() and self.partly:
            os.write(handle, data[: self.partly])
        self._fail_if_due()
        return super().write(handle, data)

    def sync(self, handle: int) -> None:
        self._fail_if_due()

    def truncate(self, handle: int, size: int) -> None:
        self._fail_if_due()
        super().truncate(handle, size)

    def sync_directory(self, path: Path) -> None:
        self._fail_if_due()

    def _is_due(self) -> bool:
        return self.left == 0

    def _fail_if_due(self) -> None:
        if self.is_dead:
            raise Crash
        if self.left is None:
            return
        self.left -= 1
        if self.left >= 0:
            return
        self.left = None
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        self.is_dead = True
        raise Crash


VALUES = st.lists(st.one_of(st.text(max_size=30), st.just(NOTHING)), max_size=24)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "unrecorded", "crash", "fail", "resume"]),
        st.integers(0, 6),
        st.integers(0, 9),
    ),
    max_size=20,
)


class Walk:
    """One life of a destination: what is written, what fails, what is known to the ledger."""

    def __init__(self, destination: Destination, values: list[Value]) -> None:
        self.destination = destination
        self.values = values
        self.disk = FaultyDisk()
        self.vfs = FaultyVfs()
        self.target: CommitTarget | None = None
        self.next_seq = 0

    def resume(self) -> CommitTarget:
        """Open what is recorded, as a new process does."""
        if self.target is not None:
            self.target.close()
        self.disk = FaultyDisk()
        self.vfs.disarm()
        self.target = self.destination.target(self.disk, self.vfs.name)
        recorded = self.destination.recorded()
        self.next_seq = self.target.open(RUN, recorded)
        if recorded is None:
            self.destination.record(self.target.begin())
        return self.target

    def write(self, count: int, *, is_recorded: bool = True) -> None:
        target = self.target or self.resume()
        first, self.next_seq = self.next_seq, min(self.next_seq + count, len(self.values))
        try:
            mark = target.write(first, self.values[first : self.next_seq])
        except BaseException:
            self.next_seq = first
            raise
        if is_recorded:
            self.destination.record(mark)

    def crash(self, calls: int, partly: int) -> None:
        if self.target is None:
            self.resume()
        self.disk.arm(calls, partly, None)
        self.vfs.arm(apsw.SQLITE_IOERR, lambda number, _: partly if number >= calls else None)
        with suppress(Crash, CommitFailed):
            self.write(3)
        self.resume()

    def fail(self, calls: int, partly: int) -> None:
        if self.target is None:
            self.resume()
        self.disk.arm(calls, partly, errno.ENOSPC)
        self.vfs.arm(apsw.SQLITE_FULL, lambda number, _: partly if number == calls else None)
        with suppress(CommitFailed):
            self.write(3)
        self.vfs.disarm()
        self.disk.left = None

    def step(self, word: str, first: int, second: int) -> None:
        match word:
            case "write":
                self.write(first)
            case "unrecorded":
                self.write(first, is_recorded=False)
            case "crash":
                self.crash(first, second)
            case "fail":
                self.fail(first, second)
            case "resume":
                self.resume()


@given(st.sampled_from([*FILE_KINDS, "sqlite"]), VALUES, STEPS)
def test_each_entry_is_there_once_and_in_order_after_any_walk(
    kind: str, values: list[Value], steps: list[tuple[str, int, int]]
) -> None:
    """ORD-034, ORD-036, ORD-055"""
    if kind == "append":
        values = [value if value is NOTHING else value.rstrip("\n") for value in values]
    with TemporaryDirectory() as directory:
        destination = Destination(kind, Path(directory))
        walk = Walk(destination, values)
        for step in steps:
            walk.step(*step)
        walk.resume()
        walk.write(len(values))
        assert walk.target is not None
        walk.target.close()
        assert destination.held() == destination.expected(values)
        assert destination.left_over() == []
