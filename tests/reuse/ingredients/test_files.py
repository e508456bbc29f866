"""Digests of files: by content, remembered by how a file looks, and refused where neither can be trusted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from detent.reuse.ingredients import FileDigests, FileUnreadable, FileUnsettled
from detent.reuse.ingredients import files as files_read


def much_later() -> int:
    """A clock by which every file of a test is old."""
    return 2**62


def test_a_file_counts_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 3_000_000)
    (tmp_path / "link").symlink_to(path)
    files = FileDigests()
    assert files.digest(path) == hashlib.sha256(b"x" * 3_000_000).digest()
    assert files.digest(tmp_path / "link") == files.digest(path)


def test_what_is_not_there_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_bytes(b"")
    for name in ("nowhere", "dangling", "file/below"):
        assert FileDigests().digest(tmp_path / name) is None


def test_an_old_file_is_read_once_and_again_when_it_looks_different(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    files = FileDigests(now_ns=much_later)
    first = files.digest(path)
    assert files.digest(path) == first
    assert files.hashed == 1
    path.write_bytes(b"two")
    assert files.digest(path) == hashlib.sha256(b"two").digest()
    path.unlink()
    assert files.digest(path) is None


def test_a_young_file_is_read_every_time(tmp_path: Path) -> None:
    """Changed twice within one tick of its clock, a file looks the same."""
    path = tmp_path / "a"
    files = FileDigests(now_ns=lambda: path.stat().st_mtime_ns + 1_900_000_000)
    path.write_bytes(b"one")
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    assert files.digest(path) == hashlib.sha256(b"one").digest()
    path.write_bytes(b"two")
    os.utime(path, ns=times)
    assert files.digest(path) == hashlib.sha256(b"two").digest()
    assert files.digest(path) is not None
    assert files.hashed == 3


def test_a_file_whose_times_were_set_back_is_not_mistaken(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    files = FileDigests(now_ns=much_later)
    files.digest(path)
    replacement = tmp_path / "b"
    replacement.write_bytes(b"two")
    os.utime(replacement, ns=times)
    replacement.replace(path)
    assert files.digest(path) == hashlib.sha256(b"two").digest()


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "a pipe"), (tmp_path, "a directory"), (Path("/dev/zero"), "a device")):
        with pytest.raises(FileUnreadable, match=what) as caught:
            FileDigests().digest(path)
        assert caught.value.code == "DEPENDENCY_MISSING"
        assert not caught.value.retryable
    with pytest.raises(FileUnreadable, match="not a path"):
        FileDigests().digest("a\0b")


def test_an_unreadable_file_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(FileUnreadable, match="loop cannot be read"):
        FileDigests().digest(tmp_path / "loop")


def test_a_file_that_keeps_changing_is_refused_and_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one")
    plain = files_read._read
    reads = []

    def while_it_is_written(read_into: object) -> tuple[bytes, int]:
        found = plain(read_into)  # type: ignore[arg-type]
        reads.append(found)
        if len(reads) <= writes:
            with path.open("ab") as file:
                file.write(b"more")
        return found

    monkeypatch.setattr(files_read, "_read", while_it_is_written)
    writes = 99
    with pytest.raises(FileUnsettled, match="changes while it is read") as caught:
        FileDigests().digest(path)
    assert caught.value.retryable
    assert len(reads) == files_read.TRIES
    writes = len(reads) + 1
    assert FileDigests().digest(path) == hashlib.sha256(path.read_bytes()).digest()
