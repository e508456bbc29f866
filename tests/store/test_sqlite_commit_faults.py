"""Faults in the middle of a commit: each write and each sync of it fails in turn, and the store must say what is true."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest

from detent.errors import (
    OutcomeUnknown,
    StoreUnavailable,
)
from detent.store.api import CheckpointRow, Commit
from detent.store.sqlite import SqliteStore
from detent.store.sqlite.database import Options
from tests.store.ledgers import assert_teaches, opened
from tests.store.rows import Writer, content, digest, everything, job, submitted, transition
from tests.store.vfs import Event, FaultyVfs


@dataclass(frozen=True)
class Trial:
    """A closed ledger, a commit that fits it, and what it holds without and with that commit."""

    path: Path
    commit: Commit
    before: dict[str, object]
    after: dict[str, object]

    def append(self, vfs: FaultyVfs, code: int, fails: Callable[[int, Event], int | None]) -> str:
        """Append to a fresh copy under a fault, check that the world is as the store says, and return what it said."""
        copy = self.path.with_name("copy.db")
        for old in copy.parent.glob("copy.db*"):
            old.unlink()
        shutil.copy(self.path, copy)
        # A checkpoint after each commit: its faults must not be taken for faults of the commit, which is durable by then.
        store = SqliteStore.open(copy, _options=Options(vfs=vfs.name, wal_pages_max=1))
        vfs.arm(code, fails)
        try:
            store.append(self.commit)
            said, named = "done", True
        except (StoreUnavailable, OutcomeUnknown) as error:
            said = type(error).__name__
            named = str(copy) in str(error) and bool(error.hint)
        finally:
            vfs.disarm()
        assert named
        self._check(said, store, copy)
        return said

    def _check(self, said: str, store: SqliteStore, copy: Path) -> None:
        # As if the process had ended here: another one opens what lies on the disk.
        crashed = copy.with_name("copy.db.crashed")
        for suffix in ("", "-wal"):
            shutil.copy(f"{copy}{suffix}", f"{crashed}{suffix}")
        found = opened(crashed)
        match said:
            case "done":
                assert found == self.after
            case "StoreUnavailable":
                assert found == self.before
                store.append(self.commit)  # what did not happen can be done again
            case _:
                assert found in (self.before, self.after)
                with pytest.raises(StoreUnavailable, match="unknown outcome"):
                    store.append(self.commit)
        store.close()
        assert opened(copy) in ([self.before, self.after] if said == "OutcomeUnknown" else [self.after])


@pytest.fixture
def trial(path: Path) -> Trial:
    store = SqliteStore.open(path)
    writer = Writer(store)
    commit = writer.commit(
        [submitted(f"new-{index}") for index in range(8)] + [transition("a", 1)],
        [job(f"new-{index}") for index in range(8)] + [job("a", seq=2, state="SUCCEEDED")],
        content=[content(b"c" * 3000)],
        checkpoint=CheckpointRow(0, 1, digest("state"), bytes(9_000)),
    )
    before = everything(store)
    store.close()
    changed = path.with_name("changed.db")
    shutil.copy(path, changed)
    store = SqliteStore.open(changed)
    store.append(commit)
    after = everything(store)
    store.close()
    return Trial(path, commit, before, after)


def events_of(trial: Trial, vfs: FaultyVfs) -> list[Event]:
    """What one append does to the files when nothing fails."""
    assert trial.append(vfs, apsw.SQLITE_IOERR, lambda _number, _event: None) == "done"
    return list(vfs.seen)


def said_by_each(
    trial: Trial, vfs: FaultyVfs, code: int, act: str, *, bytes_done: int = 0, lasting: bool = False
) -> Counter[str]:
    """Let each write (or sync) of an append fail in turn, alone or with all that follow, and count what the store said."""
    said: Counter[str] = Counter()
    for number, event in enumerate(events_of(trial, vfs)):
        if event.act == act:

            def fails(at: int, _event: Event, number: int = number) -> int | None:
                return bytes_done if at == number or (lasting and at > number) else None

            said[f"{trial.append(vfs, code, fails)} {event.file.partition('-')[2] or 'database'}"] += 1
    return said


@pytest.mark.parametrize(("bytes_done", "lasting"), [(0, False), (700, False), (0, True)])
def test_a_full_disk_leaves_nothing_of_a_commit_which_can_be_repeated(
    trial: Trial, vfs: FaultyVfs, bytes_done: int, lasting: bool
) -> None:
    said = said_by_each(trial, vfs, apsw.SQLITE_FULL, "write", bytes_done=bytes_done, lasting=lasting)
    # Once the commit is in the WAL, a disk too full to copy it into the database does no harm.
    assert set(said) == {"StoreUnavailable wal", "done database"}
    assert said["StoreUnavailable wal"] > 20


@pytest.mark.parametrize(("bytes_done", "lasting"), [(0, False), (700, False), (0, True)])
def test_a_failed_write_leaves_the_outcome_unknown_and_never_half(
    trial: Trial, vfs: FaultyVfs, bytes_done: int, lasting: bool
) -> None:
    """X-173"""
    said = said_by_each(trial, vfs, apsw.SQLITE_IOERR_WRITE, "write", bytes_done=bytes_done, lasting=lasting)
    assert set(said) == {"OutcomeUnknown wal", "done database"}
    assert said["OutcomeUnknown wal"] > 20


@pytest.mark.parametrize("lasting", [False, True])
def test_a_failed_sync_leaves_the_outcome_unknown_and_never_half(trial: Trial, vfs: FaultyVfs, lasting: bool) -> None:
    """X-173"""
    said = said_by_each(trial, vfs, apsw.SQLITE_IOERR_FSYNC, "sync", lasting=lasting)
    # The WAL is synced for its header, for the commit, and once more before it is copied.
    assert said == {"OutcomeUnknown wal": 2, "done wal": 1, "done database": 1}


def test_a_commit_whose_sync_failed_may_be_there_after_all(trial: Trial, vfs: FaultyVfs) -> None:
    """X-173"""
    vfs_name = Options(vfs=vfs.name)
    store = SqliteStore.open(trial.path, _options=vfs_name)
    syncs = itertools.count()
    vfs.arm(apsw.SQLITE_IOERR_FSYNC, lambda _number, event: 0 if event.act == "sync" and next(syncs) == 1 else None)
    with pytest.raises(OutcomeUnknown, match="may or may not be there") as error:
        store.append(trial.commit)
    assert_teaches(error, trial.path, "repeating the same request is safe")
    assert error.value.retryable
    assert everything(store) == trial.before
    vfs.disarm()
    store.close()
    # Closing did not touch the WAL, so the next opening finds what the failed one had written.
    assert opened(trial.path) == trial.after
