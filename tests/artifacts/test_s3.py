"""Artifacts in a bucket: what the server is asked, what it may not make us believe, and how it fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from detent.artifacts.choose import open_store
from detent.artifacts.s3 import PART_BYTES, S3Store
from detent.canon import sha256
from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from tests.artifacts.buckets import Bucket, Server
from tests.artifacts.test_crash import child

SMALL = b"a small artifact"
LARGE = Random(13).randbytes(2 * PART_BYTES + 1)


def key(data: bytes) -> str:
    name = sha256(data).hex()
    return f"{name[:2]}/{name[2:]}"


def test_an_object_is_named_by_its_digest_below_the_prefix(bucket: Bucket) -> None:
    """JOB-074"""
    stored = bucket.store("team/artifacts").put(SMALL)
    assert bucket.keys() == [f"team/artifacts/{key(SMALL)}"]
    assert stored.uri == f"s3://{bucket.name}/team/artifacts/{key(SMALL)}"
    assert bucket.store().put(SMALL).uri == f"s3://{bucket.name}/{key(SMALL)}"
    assert not bucket.store("other").has(sha256(SMALL))


def test_small_content_is_put_on_condition_that_it_is_new(bucket: Bucket) -> None:
    """JOB-004: the server honours the condition, and we ask for it."""
    store = bucket.store()
    store.put(SMALL)
    with pytest.raises(AlreadyExistsError):
        obstore.put(bucket.client, key(SMALL), b"other", mode="create")
    before = obstore.head(bucket.client, key(SMALL))["last_modified"]
    store.put(SMALL)
    assert obstore.head(bucket.client, key(SMALL))["last_modified"] == before


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_an_object_that_is_there_is_not_written_again(bucket: Bucket, data: bytes) -> None:
    """JOB-004: had it been written, the tampered bytes would be gone."""
    tampered = b"x" + data[1:]
    bucket.write(key(data), tampered)
    bucket.store().put(data)
    assert bytes(obstore.get(bucket.client, key(data)).bytes()) == tampered


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
def test_an_object_of_another_size_is_found_when_its_content_comes(bucket: Bucket, data: bytes) -> None:
    bucket.write(key(data), data[:-1])
    with pytest.raises(StoreCorrupt, match="does not hold the bytes"):
        bucket.store().put(data)
    store = bucket.store()
    assert store.delete(sha256(data))
    store.put(data)
    assert store.read_bytes(sha256(data)) == data


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "tamper",
    [lambda data: b"x" + data[1:], lambda data: data[:-1] + b"x", lambda data: data[:-1], lambda data: data + b"x"],
    ids=["first byte", "last byte", "cut", "longer"],
)
def test_tampered_objects_are_never_read_to_their_end(
    bucket: Bucket, data: bytes, tamper: Callable[[bytes], bytes]
) -> None:
    """JOB-074: servers accept wrong checksums, so the bytes are hashed here."""
    store = bucket.store()
    digest = store.put(data).digest
    bucket.write(key(data), tamper(data))
    with pytest.raises(StoreCorrupt) as error:
        store.read_bytes(digest)
    assert f"s3://{bucket.name}/{key(data)}" in str(error.value)
    stream = store.open(digest)
    assert stream is not None
    with stream, pytest.raises(StoreCorrupt):
        stream.read()


def test_an_object_that_goes_away_while_it_is_read_is_a_typed_error(bucket: Bucket) -> None:
    store = bucket.store()
    stream = store.open(store.put(LARGE).digest)
    assert stream is not None
    store.delete(sha256(LARGE))
    with stream, pytest.raises(StoreCorrupt, match="went away"):
        stream.read()


def test_large_content_goes_up_in_parts_and_leaves_one_object(bucket: Bucket) -> None:
    store = bucket.store("p")
    assert store.put(LARGE).size_bytes == len(LARGE)
    assert bucket.keys() == [f"p/{key(LARGE)}"]
    # The server names an object that came in parts by how many there were.
    assert str(obstore.head(bucket.client, f"p/{key(LARGE)}")["e_tag"]).endswith('-3"')
    assert store.read_bytes(sha256(LARGE)) == LARGE


def test_strangers_in_the_bucket_are_passed_over(bucket: Bucket) -> None:
    store = bucket.store("p")
    kept = sorted(store.put(b"%d" % number).digest for number in range(5))
    name = sha256(SMALL).hex()
    for stray in ("README", f"{name[:2]}/{name[2:].upper()}", f"{name[:2]}/{name[2:]}/x", f"zz/{name[2:]}", "ab/cd"):
        bucket.write(f"p/{stray}", b"stray")
    bucket.write(key(SMALL), b"outside of the prefix")
    assert list(store.digests()) == kept


@pytest.mark.slow
def test_more_objects_than_one_page_are_all_listed(bucket: Bucket) -> None:
    store = bucket.store()
    for number in range(1_005):
        bucket.write(key(b"%d" % number), b"")
    assert list(store.digests()) == sorted(sha256(b"%d" % number) for number in range(1_005))


def test_a_missing_bucket_is_a_typed_error_that_says_so(s3_server: Server) -> None:
    with pytest.raises(StoreUnavailable, match="no bucket 'not-there'") as error:
        s3_server.store("not-there")
    assert not error.value.retryable


def test_a_bucket_that_goes_away_is_not_taken_for_missing_content(s3_server: Server, bucket: Bucket) -> None:
    """A missing artifact is for ever, a missing bucket is an operator's mistake."""
    store = bucket.store()
    digest = store.put(SMALL).digest
    store.delete(digest)
    delete_bucket(s3_server, bucket.name)
    for ask in (store.has, store.size, store.open, store.read_bytes, store.delete):
        with pytest.raises(StoreUnavailable, match="no bucket"):
            ask(digest)
    for data in (SMALL, LARGE):
        with pytest.raises(StoreUnavailable, match="bucket"):
            store.put(data)
    with pytest.raises(StoreUnavailable):
        list(store.digests())


def delete_bucket(server: Server, name: str) -> None:
    from urllib.request import Request, urlopen

    with urlopen(Request(f"{server.url}/{name}", method="DELETE"), timeout=30):
        pass


def test_a_server_that_does_not_run_is_unavailable_and_worth_another_try() -> None:
    with pytest.raises(StoreUnavailable, match="s3://bucket-x failed") as error:
        Server("http://127.0.0.1:1").store("bucket-x")
    assert error.value.retryable
    assert "\n" not in str(error.value)


def test_an_address_finds_the_bucket_by_the_surroundings(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in bucket.server.variables.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{bucket.name}/a/b")
    assert isinstance(store, S3Store)
    assert store.put(SMALL).uri == f"s3://{bucket.name}/a/b/{key(SMALL)}"
    assert bucket.keys() == [f"a/b/{key(SMALL)}"]


def test_uploading_and_reading_hold_a_few_parts(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in bucket.server.variables.items():
        monkeypatch.setenv(name, value)
    size = 96 * 1024 * 1024
    with (tmp_path / "file").open("wb") as file:
        file.truncate(size)
    done = json.loads(child("memory", f"s3://{bucket.name}", tmp_path / "file").stdout)
    assert done["size"] == size
    assert done["added_kib"] < 64 * 1024, done


def test_a_full_temporary_directory_is_a_typed_error_and_uploads_nothing(bucket: Bucket, tmp_path: Path) -> None:
    store = bucket.store()
    store._spool = str(tmp_path / "missing")
    with pytest.raises(StoreUnavailable, match="on its way to S3"):
        store.put(LARGE)
    assert bucket.keys() == []


def test_without_the_extra_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidInput, match="obstore") as error:
        open_store("s3://bucket/prefix")
    assert "detent[s3]" in (error.value.hint or "")
