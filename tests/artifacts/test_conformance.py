"""Every store of artifacts: by digest, written once, streamed, checked when it is read."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from detent.artifacts.api import ArtifactStore
from detent.canon import digest_text, sha256
from detent.errors import DetentError, InvalidInput

SMALL = b"a small artifact"
LARGE = Random(5).randbytes(9 * 1024 * 1024 + 17)
"""Larger than a part of an upload, and no multiple of a block."""
SIZES = [0, 1, 4096, 2 * 1024 * 1024, 2 * 1024 * 1024 + 1, 8 * 1024 * 1024, len(LARGE)]


def read(store: ArtifactStore, digest: bytes, piece: int) -> bytes:
    stream = store.open(digest)
    assert stream is not None
    with stream:
        return b"".join(iter(lambda: stream.read(piece), b""))


@pytest.mark.parametrize("size", SIZES)
def test_what_is_put_is_read_back_whatever_its_size(store: ArtifactStore, size: int) -> None:
    """JOB-074"""
    data = LARGE[:size]
    stored = store.put(data)
    assert (stored.digest, stored.size_bytes) == (hashlib.sha256(data).digest(), size)
    assert store.read_bytes(stored.digest) == data
    assert read(store, stored.digest, 700_001) == data
    assert (store.has(stored.digest), store.size(stored.digest)) == (True, size)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_bytes_a_path_and_a_stream_give_the_same_artifact(store: ArtifactStore, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    stored = store.put(path)
    assert store.put(io.BytesIO(data)) == stored
    assert store.put(data) == stored
    assert list(store.digests()) == [sha256(data)]


def test_a_stream_that_gives_little_at_a_time_is_read_to_its_end(store: ArtifactStore) -> None:
    class Dripping(io.RawIOBase):
        def __init__(self) -> None:
            self.left = memoryview(LARGE)

        def readinto(self, buffer: Any) -> int:
            view = memoryview(buffer)
            count = min(len(view), 65_521, len(self.left))
            view[:count] = self.left[:count]
            self.left = self.left[count:]
            return count

    assert store.put(Dripping()).digest == sha256(LARGE)
    assert store.read_bytes(sha256(LARGE)) == LARGE


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_a_second_put_of_the_same_content_changes_nothing(store: ArtifactStore, data: bytes) -> None:
    """JOB-004: there is no operation that changes what a digest names."""
    first = store.put(data)
    assert store.put(data, digest=first.digest) == first
    assert store.read_bytes(first.digest) == data
    assert not {"update", "replace", "overwrite", "write"} & set(dir(store))


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_content_with_another_digest_than_announced_is_refused_and_not_kept(store: ArtifactStore, data: bytes) -> None:
    """JOB-074: the digest is checked on the way in."""
    with pytest.raises(InvalidInput, match="announced as"):
        store.put(data, digest=sha256(b"another"))
    assert list(store.digests()) == []


@pytest.mark.parametrize("size", [3, len(LARGE)])
def test_content_longer_than_allowed_is_refused_and_not_kept(store: ArtifactStore, size: int) -> None:
    data = LARGE[:size]
    with pytest.raises(InvalidInput, match="more than") as error:
        store.put(io.BytesIO(data), bytes_max=size - 1)
    assert error.value.code == "LIMIT_DISK"
    assert list(store.digests()) == []
    assert store.put(data, bytes_max=size).size_bytes == size


def test_a_source_without_an_end_is_cut_off_at_the_limit(store: ArtifactStore) -> None:
    """A file may grow while it is collected."""

    class Endless(io.RawIOBase):
        given = 0

        def readinto(self, buffer: Any) -> int:
            self.given += len(memoryview(buffer))
            return len(memoryview(buffer))

    source = Endless()
    with pytest.raises(InvalidInput):
        store.put(source, bytes_max=10_000_000)
    assert source.given < 20_000_000
    assert list(store.digests()) == []


def test_what_is_not_there_is_none(store: ArtifactStore) -> None:
    nothing = sha256(b"nothing")
    assert store.open(nothing) is None
    assert store.read_bytes(nothing) is None
    assert store.size(nothing) is None
    assert not store.has(nothing)
    assert not store.delete(nothing)
    assert list(store.digests()) == []


def test_deleted_content_is_gone_and_may_come_again(store: ArtifactStore) -> None:
    digest = store.put(SMALL).digest
    assert store.delete(digest)
    assert not store.has(digest)
    assert store.put(SMALL).digest == digest
    assert store.read_bytes(digest) == SMALL


def test_digests_come_in_order(store: ArtifactStore) -> None:
    kept = sorted(store.put(b"%d" % number).digest for number in range(30))
    assert list(store.digests()) == kept


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../secret",
        "https://example.org/data.csv",
        "s3://bucket/key",
        "file:///etc/passwd",
        digest_text(sha256(SMALL)),
        sha256(SMALL).hex(),
        b"",
        b"../../../../../../../../etc/pass",
        sha256(SMALL)[:31],
        sha256(SMALL) + b"/",
        Path("/etc/passwd"),
        None,
    ],
    ids=str,
)
def test_only_a_digest_names_content(store: ArtifactStore, name: Any) -> None:
    """JOB-071, X-159: by digest it is read, by path or URL it is refused."""
    store.put(SMALL)
    assert store.read_bytes(sha256(SMALL)) == SMALL
    if name == b"../../../../../../../../etc/pass":
        assert store.read_bytes(name) is None  # 32 bytes are a digest, whatever they spell
        return
    for ask in (store.open, store.read_bytes, store.has, store.size, store.delete):
        with pytest.raises(InvalidInput, match="named by"):
            ask(name)
    with pytest.raises(InvalidInput):
        store.put(SMALL, digest="" if name is None else name)  # type: ignore[arg-type]


def test_what_does_not_fit_into_memory_is_refused_and_still_streamed(store: ArtifactStore) -> None:
    digest = store.put(LARGE).digest
    with pytest.raises(InvalidInput, match="held in memory"):
        store.read_bytes(digest, bytes_max=len(LARGE) - 1)
    assert store.read_bytes(digest, bytes_max=len(LARGE)) == LARGE


def test_a_link_a_pipe_a_device_and_a_directory_are_no_artifacts(store: ArtifactStore, tmp_path: Path) -> None:
    """Opened once, without following and without waiting: a pipe without a writer would hold us for ever."""
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    refused = [
        *(tmp_path / name for name in ("link", "dangling", "directory", "pipe", "absent", "a\0b")),
        Path("/dev/zero"),
    ]
    for path in refused:
        with pytest.raises(InvalidInput):
            store.put(path, bytes_max=1000)
    assert list(store.digests()) == []


def test_a_source_that_fails_leaves_nothing(store: ArtifactStore) -> None:
    class Failing(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            if self.tell() > 5_000_000:
                raise OSError(5, "Input/output error")
            return super().readinto(buffer)

    with pytest.raises(InvalidInput, match="source cannot be read: Input/output error"):
        store.put(Failing(LARGE))
    assert list(store.digests()) == []


@pytest.mark.parametrize("source", ["a path as text", 3, None, ["pieces"]])
def test_what_is_no_source_is_refused(store: ArtifactStore, source: Any) -> None:
    with pytest.raises(DetentError):
        store.put(source)


def test_a_stream_that_has_nothing_yet_is_refused_rather_than_cut(store: ArtifactStore) -> None:
    here, there = os.pipe()
    try:
        os.set_blocking(here, False)
        os.write(there, b"the beginning")
        with io.FileIO(here, closefd=False) as file, pytest.raises(InvalidInput, match="nothing to read yet"):
            store.put(file)
    finally:
        os.close(here)
        os.close(there)
    assert list(store.digests()) == []


def test_where_the_bytes_lie_is_made_of_the_digest_alone(store: ArtifactStore) -> None:
    """JOB-074: no path of this machine stands in it."""
    name = sha256(SMALL).hex()
    uri = store.put(SMALL).uri
    assert uri.startswith(("content:", "s3://"))
    assert uri.replace("/", "").endswith(name)
    assert str(Path.cwd()) not in uri
