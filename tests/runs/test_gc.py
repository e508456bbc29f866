"""Garbage collection: only what no record names, and nothing that may be on its way."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from detent.canon import sha256
from detent.errors import HomeUntrusted, StoreUnavailable
from detent.inspect.audit import verify_home
from detent.kernel import Claim
from detent.owner.content import GC_GRACE_MS
from detent.owner.home import Home
from detent.owner.wiring import Parts
from detent.runs.erase import Collected, collect
from detent.store.sqlite import SqliteStore
from detent.store.sqlite.database import Options
from tests.homes import Hand, Played, fresh
from tests.store.vfs import FaultyVfs

SMALL, LARGE = b"small garbage", b"large garbage" * 2_000


def later(path: Path) -> int:
    """A moment at which the file has passed its grace."""
    return path.stat().st_mtime_ns // 1_000_000 + GC_GRACE_MS


def littered(tmp_path: Path) -> tuple[Played, Path]:
    """A home with inline content and a file that no record names."""
    played = fresh(tmp_path)
    with played.session() as session:
        # The claim is granted and commits; nothing names the content that came along with it.
        session.ask([Claim(0, "worker-a")], content=[(sha256(SMALL), SMALL)])
    files = played.home.content_files()
    files.put(LARGE)
    return played, files.path(sha256(LARGE))


def collected(played: Played, now_ms: int, **options: object) -> Collected:
    return collect(played.home, now_ms=lambda: now_ms, **options)  # type: ignore[arg-type]


def test_what_no_record_names_is_taken_away_and_the_rest_stays(tmp_path: Path) -> None:
    played, path = littered(tmp_path)
    before = verify_home(played.home, environment=played.environment).counts["contents"]
    done = collected(played, later(path))
    assert sorted(done.garbage) == sorted([(sha256(SMALL), "database"), (sha256(LARGE), "file")])
    assert done.size_bytes == len(SMALL) + len(LARGE)
    assert not path.exists()
    report = verify_home(played.home, environment=played.environment)
    assert report.ok
    assert report.counts["contents"] == before - 2
    assert collected(played, later(played.home.ledger_file)).garbage == ()


def test_a_file_within_its_grace_is_left_alone(tmp_path: Path) -> None:
    """Its record may be on its way: files are synced before the record that names them is written."""
    played, path = littered(tmp_path)
    done = collected(played, later(path) - 1)
    assert [place for _, place in done.garbage] == ["database"]
    assert path.exists()


def test_a_dry_run_takes_nothing_away(tmp_path: Path) -> None:
    played, path = littered(tmp_path)
    done = collected(played, later(path), dry_run=True)
    assert len(done.garbage) == 2
    assert path.exists()
    assert collected(played, later(path)).garbage == done.garbage


def test_what_interrupted_writes_left_behind_goes_after_the_grace(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    unfinished = played.home.path / "content" / "new-0123456789abcdef"
    unfinished.write_bytes(b"half")
    assert collected(played, later(unfinished) - 1).unfinished == 0
    assert unfinished.exists()
    assert collected(played, later(unfinished)).unfinished == 1
    assert not unfinished.exists()


def test_content_of_a_job_is_kept_from_the_moment_it_is_submitted(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    with played.session() as session:
        hand = Hand(played.home, session)
        digest = hand.submit("more", "y" * 40_000)
    files = played.home.content_files()
    assert collected(played, later(files.path(digest))).garbage == ()
    assert files.has(digest)


class FullDisk(FaultyVfs):
    """A disk on which the database finds no room until as much has been taken away as the test says."""

    def __init__(self, has_room: Callable[[], bool]) -> None:
        super().__init__()
        self.arm(apsw.SQLITE_FULL, lambda _, event: 0 if event.act == "write" and not has_room() else None)
        self.parts = Parts(open_store=lambda path: SqliteStore.open(path, _options=Options(vfs=self.name)))


def test_on_a_full_disk_files_make_room_for_the_database(tmp_path: Path) -> None:
    played, path = littered(tmp_path)
    disk = FullDisk(lambda: not path.exists())
    done = collected(played, later(path), parts=disk.parts)
    assert sorted(place for _, place in done.garbage) == ["database", "file"]
    assert any(event.act == "write" for event in disk.seen)
    assert collected(played, later(played.home.ledger_file)).garbage == ()


def test_when_that_is_not_enough_the_files_are_gone_and_it_is_said(tmp_path: Path) -> None:
    played, path = littered(tmp_path)
    disk = FullDisk(lambda: False)
    with pytest.raises(StoreUnavailable, match=r"^files taken away: 1; .* the disk is full"):
        collected(played, later(path), parts=disk.parts)
    assert not path.exists()
    with pytest.raises(StoreUnavailable, match=r"^/.* cannot grow: the disk is full"):
        collected(played, later(played.home.ledger_file), parts=disk.parts)
    assert verify_home(played.home, environment=played.environment).ok
    assert [place for _, place in collected(played, later(played.home.ledger_file)).garbage] == ["database"]


def test_files_alone_go_without_a_change_of_the_database(tmp_path: Path) -> None:
    played, path = littered(tmp_path)
    collected(played, later(path) - 1)  # What is in the database goes now, the file is too young.
    disk = FullDisk(lambda: False)
    assert [place for _, place in collected(played, later(path), parts=disk.parts).garbage] == ["file"]
    assert (path.exists(), disk.seen) == (False, [])


def test_nothing_is_written_beside_the_database_to_find_garbage(tmp_path: Path) -> None:
    """A disk without any room has none for the shared memory of a WAL either."""
    played, path = littered(tmp_path)
    home = played.home.path
    before = {entry.name for entry in home.iterdir()}
    assert not [name for name in before if name.startswith("ledger.db-")]
    for name in ("ledger.db-shm", "ledger.db-wal"):
        (home / name).symlink_to(tmp_path / "no" / "where")  # Neither can be made.
    assert len(collected(played, later(path), dry_run=True).garbage) == 2
    with pytest.raises(HomeUntrusted), Parts().open_reader(played.home.ledger):
        pass


def test_what_the_wal_alone_has_is_seen(tmp_path: Path) -> None:
    """An owner that was killed leaves commits there, and they name content."""
    played = fresh(tmp_path)
    with played.session() as session:
        digest = Hand(played.home, session).submit("more", "y" * 40_000)
        copy = tmp_path / "killed"
        shutil.copytree(played.home.path, copy, ignore=shutil.ignore_patterns("owner.sock"))
    assert (copy / "ledger.db-wal").stat().st_size > 0
    left = Home(copy)
    assert collect(left, now_ms=lambda: later(left.content_files().path(digest))).garbage == ()


def test_a_home_with_an_owner_is_refused(tmp_path: Path) -> None:
    """X-172"""
    played, path = littered(tmp_path)
    with played.session(), pytest.raises(StoreUnavailable, match="owns the home"):
        collected(played, later(path))
    assert path.exists()


def test_collecting_writes_nothing_to_the_ledger(tmp_path: Path) -> None:
    played, path = littered(tmp_path)
    with Parts().open_reader(played.home.ledger) as reader:
        before = reader.head(0)
    collected(played, later(path))
    with Parts().open_reader(played.home.ledger) as reader:
        assert reader.head(0) == before
