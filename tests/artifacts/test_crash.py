"""A process that dies while it stores, a disk that is full, a directory that is not ours: nothing half-written, ever."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from detent.artifacts.api import DirectoryStore
from detent.canon import sha256
from detent.errors import StoreUnavailable
from detent.store.content import ContentFiles
from detent.store.files import DiskFiles, NewFile

DATA = Random(7).randbytes(7 * 1024 * 1024 + 5)
"""Four pieces of a copy."""
EARLIER = b"stored before"


def child(*words: object) -> subprocess.CompletedProcess[str]:
    program = Path(__file__).with_name("put_child.py")
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, program, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
    )


def left_over(directory: Path) -> list[Path]:
    return sorted(directory.glob("new-*"))


@pytest.mark.parametrize(
    ("point", "count", "there"),
    [
        ("created", 1, False),
        ("half a piece written", 1, False),
        ("piece written", 1, False),
        ("half a piece written", 4, False),
        ("to sync", 1, False),
        ("synced", 1, False),
        ("to rename", 1, False),
        ("renamed", 1, True),
        ("directory synced", 1, True),
        ("directory synced", 2, True),
    ],
)
def test_a_process_killed_while_it_stores_leaves_whole_content_or_none(
    tmp_path: Path, point: str, count: int, there: bool
) -> None:
    """JOB-004, JOB-074"""
    directory, file = tmp_path / "content", tmp_path / "file"
    store = DirectoryStore(directory)
    earlier = store.put(EARLIER).digest
    file.write_bytes(DATA)
    assert child("kill", point, count, directory, file).returncode == -signal.SIGKILL
    found = DirectoryStore(directory)
    assert set(found.digests()) == {earlier} | ({sha256(DATA)} if there else set())
    assert all(sha256(found.read_bytes(digest) or b"") == digest for digest in found.digests())
    assert len(left_over(directory)) == (not there)
    assert found.put(file).digest == sha256(DATA)
    assert found.read_bytes(sha256(DATA)) == DATA
    assert ContentFiles(directory).sweep_temporary() == (not there)
    assert left_over(directory) == []
    assert found.read_bytes(earlier) == EARLIER


def test_a_process_that_is_not_killed_comes_to_its_end(tmp_path: Path) -> None:
    """Otherwise a misspelt point would pass for a crash."""
    (tmp_path / "file").write_bytes(DATA)
    assert child("kill", "renamed", 2, tmp_path / "content", tmp_path / "file").returncode == 0
    assert child("kill", "half a piece written", 5, tmp_path / "other", tmp_path / "file").returncode == 0


def test_a_file_that_the_system_does_not_let_grow_is_a_typed_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    done = child("full", 3_000_000, tmp_path / "content", tmp_path / "file")
    assert json.loads(done.stdout) == {"put": "STORE_UNAVAILABLE"}
    assert list((tmp_path / "content").iterdir()) == []
    assert json.loads(child("full", len(DATA), tmp_path / "content", tmp_path / "file").stdout) == {
        "put": str(len(DATA))
    }


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A directory that other users can enter, which a test's own is not."""
    with tempfile.TemporaryDirectory(prefix="detent-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_directory_that_may_only_be_read_is_read_and_nothing_else(open_to_all: Path) -> None:
    """The store that datasets come from may be read-only."""
    directory, file = open_to_all / "content", open_to_all / "file"
    store = DirectoryStore(directory)
    digest = store.put(EARLIER).digest
    file.write_bytes(b"new content")
    for path in (*directory.rglob("*"), directory, file):
        path.chmod(0o555 if path.is_dir() else 0o444)
    done = child("user", directory, file, digest.hex())
    for path in (directory, *(path for path in directory.rglob("*") if path.is_dir())):
        path.chmod(0o755)
    assert json.loads(done.stdout) == {"put": "STORE_UNAVAILABLE", "delete": "STORE_UNAVAILABLE", "read": repr(EARLIER)}
    assert list(store.digests()) == [digest]
    assert left_over(directory) == []


class Failing(DiskFiles):
    """Fails one kind of step with one error of the system."""

    step, error = "", 0

    def check(self, step: str) -> None:
        if step == self.step:
            raise OSError(self.error, os.strerror(self.error))

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        self.check("create")
        inner = super().create(path, streamed=streamed)
        outer = self

        class File:
            written = 0

            def write(self, data: bytes | memoryview) -> None:
                self.written += len(data)
                if self.written > 3_000_000:
                    outer.check("write")
                inner.write(data)

            def sync(self) -> None:
                outer.check("sync")
                inner.sync()

            def close(self) -> None:
                inner.close()

        return File()

    def make_directory(self, path: Path) -> bool:
        self.check("make_directory")
        return super().make_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename")
        super().rename(source, target)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO], ids=os.strerror)
@pytest.mark.parametrize("step", ["create", "write", "sync", "make_directory", "rename"])
def test_a_disk_that_fails_at_any_step_is_a_typed_error_and_leaves_nothing(
    tmp_path: Path, step: str, error: int
) -> None:
    files = Failing()
    store = DirectoryStore(ContentFiles(tmp_path / "content", files=files))
    (tmp_path / "file").write_bytes(DATA)
    files.step, files.error = step, error
    with pytest.raises(StoreUnavailable, match=os.strerror(error)) as caught:
        store.put(tmp_path / "file")
    assert caught.value.details["errno"] == error
    assert list(store.digests()) == []
    assert left_over(tmp_path / "content") == []
    files.step = ""
    assert store.put(tmp_path / "file").digest == sha256(DATA)


def test_storing_and_reading_hold_a_few_megabytes(tmp_path: Path) -> None:
    """However large the artifact is."""
    with (tmp_path / "file").open("wb") as file:
        file.truncate(96 * 1024 * 1024)
    done = json.loads(child("memory", tmp_path / "content", tmp_path / "file").stdout)
    assert done["size"] == 96 * 1024 * 1024
    assert done["added_kib"] < 32 * 1024
