"""Artifacts in a directory: where they lie, that nothing is replaced, and which addresses mean one."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from detent.artifacts.api import DirectoryStore
from detent.artifacts.choose import open_store
from detent.canon import sha256
from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from detent.store.content import ContentFiles

DATA = Random(11).randbytes(3 * 1024 * 1024)


def place(directory: Path, digest: bytes) -> Path:
    return directory / digest.hex()[:2] / digest.hex()[2:]


def test_the_store_and_the_homes_content_files_are_one(tmp_path: Path) -> None:
    """JOB-074: the path is made of the digest."""
    files = ContentFiles(tmp_path / "content")
    store = DirectoryStore(files)
    stored = store.put(DATA)
    assert place(tmp_path / "content", stored.digest).read_bytes() == DATA
    assert files.get(stored.digest) == DATA
    assert store.read_bytes(files.put(b"other")) == b"other"
    assert stored.uri == f"content:sha256:{stored.digest.hex()}"


def test_content_that_is_there_keeps_its_file(tmp_path: Path) -> None:
    """JOB-004"""
    store = DirectoryStore(tmp_path / "content")
    path = place(tmp_path / "content", store.put(DATA).digest)
    before = path.stat()
    source = tmp_path / "file"
    source.write_bytes(DATA)
    store.put(source)
    after = path.stat()
    assert (after.st_ino, after.st_ctime_ns >= before.st_ctime_ns) == (before.st_ino, True)
    assert [entry.name for entry in (tmp_path / "content").iterdir()] == [path.parent.name]


@pytest.mark.parametrize("damaged", [DATA[:-1] + b"x", DATA[:-1], b""], ids=["same size", "shorter", "empty"])
def test_damaged_content_is_not_taken_for_the_content_and_is_mended(tmp_path: Path, damaged: bytes) -> None:
    store = DirectoryStore(tmp_path / "content")
    digest = store.put(DATA).digest
    place(tmp_path / "content", digest).write_bytes(damaged)
    with pytest.raises(StoreCorrupt):
        store.read_bytes(digest)
    store.put(DATA)
    assert store.read_bytes(digest) == DATA


def test_many_writers_of_the_same_content_leave_one_file(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "content")
    source = tmp_path / "file"
    source.write_bytes(DATA)
    stored = []
    threads = [threading.Thread(target=lambda: stored.append(store.put(source))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(stored)) == 1
    assert len(stored) == 8
    assert store.read_bytes(sha256(DATA)) == DATA
    assert [path.name for path in (tmp_path / "content").rglob("*") if path.is_file()] == [sha256(DATA).hex()[2:]]


def test_a_source_that_changes_while_it_is_stored_is_stored_as_what_was_read(tmp_path: Path) -> None:
    """Hashed and written from one reading: the digest can not be that of other bytes."""
    source = tmp_path / "file"
    source.write_bytes(DATA)

    class Changing:
        def __init__(self) -> None:
            self.file = source.open("rb", buffering=0)

        def readinto(self, buffer: Any) -> int:
            count = self.file.readinto(buffer)
            with source.open("r+b") as other:
                other.seek(1_000_000)
                other.write(Random(count).randbytes(2_000_000))
            return count

    changing = Changing()
    store = DirectoryStore(tmp_path / "content")
    stored = store.put(changing)
    changing.file.close()
    assert sha256(store.read_bytes(stored.digest) or b"") == stored.digest


def test_a_path_and_a_file_address_mean_a_directory(tmp_path: Path) -> None:
    digest = open_store(tmp_path / "my content").put(DATA).digest
    assert open_store((tmp_path / "my content").as_uri()).read_bytes(digest) == DATA


@pytest.mark.parametrize(
    "address",
    [
        "",
        "content",
        "/content",
        "file://host/content",
        "file:content",
        "s3://",
        "s3://BUCKET",
        "s3://b",
        "s3://user:secret@bucket/prefix",
        "s3://bucket/prefix?region=x",
        "s3://bucket/prefix#part",
        "s3://bucket/../other",
        "s3://bucket/a//b",
        "s3://bucket/a%2fb",
        "http://bucket/prefix",
    ],
)
def test_other_addresses_are_refused_and_no_secret_is_repeated(address: str) -> None:
    with pytest.raises(InvalidInput) as error:
        open_store(address)
    assert "secret" not in str(error.value)


def test_a_directory_whose_parent_is_missing_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        open_store(tmp_path / "missing" / "content")
