"""Garbage collection: only what no record names, and nothing that may be on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.canon import sha256
from detent.engine.audit import verify_home
from detent.engine.content import GC_GRACE_MS
from detent.engine.erase import Collected, collect
from detent.engine.wiring import Parts
from detent.errors import StoreUnavailable
from detent.kernel import Claim
from tests.homes import Hand, Played, fresh

SMALL, LARGE = b"small garbage", b"large garbage" * 2_000


def later(path: Path) -> int:
    """A moment at which the file has passed its grace."""
    return path.stat().st_mtime_ns // 1_000_000 + GC_GRACE_MS


def littered(tmp_path: Path) -> tuple[Played, Path]:
    """A home with inline content and a file that no record names."""
    played = fresh(tmp_path)
    with played.session() as session:
        # The claim is granted and commits; the content that came along with it is named by nobody.
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
    assert collected(played, later(played.home.ledger)).garbage == ()


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


def test_a_home_that_somebody_owns_is_refused(tmp_path: Path) -> None:
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
