"""`detent.File`: made of a path or of bytes, kept by digest, read back checked."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import detent
from detent.errors import InvalidInput
from detent.executor.file import FileChanged, FileMissing
from detent.jobs.values import files_named, is_file
from detent.store.content import ContentFiles

DATA = b"\x89PNG bytes"
DIGEST = "sha256:" + hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def content(tmp_path: Path) -> ContentFiles:
    return ContentFiles(tmp_path / "content")


@pytest.fixture
def kept(tmp_path: Path, content: ContentFiles) -> detent.File:
    return detent.File.kept(detent.File.from_bytes(DATA, name="a.png").keep(content), tmp_path / "content")


def test_a_file_of_a_path_is_what_the_path_holds(tmp_path: Path) -> None:
    (tmp_path / "plot.png").write_bytes(DATA)
    file = detent.File(tmp_path / "plot.png")
    assert (file.name, file.type, file.size, file.digest) == ("plot.png", "image/png", len(DATA), DIGEST)
    assert (file.path, file.read_bytes()) == (tmp_path / "plot.png", DATA)
    with file.open() as stream:
        assert stream.read() == DATA
    assert repr(file) == "File('plot.png')"


def test_a_file_of_bytes_needs_no_disk() -> None:
    file = detent.File.from_bytes(bytearray(DATA), name="x.csv")
    assert (file.size, file.digest, file.read_bytes(), file.type) == (len(DATA), DIGEST, DATA, "text/csv")
    assert file.open().read() == DATA
    with pytest.raises(InvalidInput, match="made from bytes"):
        _ = file.path


def test_name_and_type_can_be_given() -> None:
    file = detent.File("/somewhere/x", name="table", type="application/x-own")
    assert (file.name, file.type) == ("table", "application/x-own")
    assert detent.File("noidea.qqq").type == "application/octet-stream"
    for name in ("a/b", "x" * 300, "nul\0"):
        with pytest.raises(InvalidInput, match="cannot be a file's name"):
            detent.File("x", name=name)


def test_keeping_makes_it_a_stored_value_and_durable_content(tmp_path: Path, content: ContentFiles) -> None:
    """X-170"""
    stored = detent.File.from_bytes(DATA, name="a.png").keep(content)
    assert stored == {"$file": DIGEST, "size": len(DATA), "name": "a.png", "type": "image/png"}
    assert is_file(stored)
    assert list(files_named([stored])) == [DIGEST]
    assert content.get(hashlib.sha256(DATA).digest()) == DATA
    again = detent.File.kept(stored, tmp_path / "content")
    assert (again.name, again.size, again.digest, again.read_bytes()) == ("a.png", len(DATA), DIGEST, DATA)
    assert again.keep(content) == stored


def test_keeping_a_file_that_is_not_there_says_which(tmp_path: Path, content: ContentFiles) -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.bin: No such file"):
        detent.File(tmp_path / "nowhere.bin").keep(content)
    assert list(content.digests()) == []


def test_damaged_content_is_never_handed_out(kept: detent.File, content: ContentFiles) -> None:
    content.path(hashlib.sha256(DATA).digest()).write_bytes(DATA[:-1] + b"X")
    for look in (kept.read_bytes, kept.open, lambda: kept.path):
        with pytest.raises(FileChanged, match="does not hold the bytes"):
            look()


def test_content_that_is_gone_is_a_missing_dependency(kept: detent.File, content: ContentFiles) -> None:
    content.erase(hashlib.sha256(DATA).digest())
    with pytest.raises(FileMissing) as caught:
        kept.read_bytes()
    assert caught.value.code == "DEPENDENCY_MISSING"


@pytest.mark.parametrize("digest", [None, "", "md5:1", "sha256:abc"])
def test_a_value_that_names_no_digest_is_no_file(tmp_path: Path, digest: object) -> None:
    with pytest.raises(InvalidInput, match="needs a digest"):
        detent.File.kept({"$file": digest}, tmp_path)


def test_a_file_is_named_by_what_it_holds_now(tmp_path: Path, content: ContentFiles) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,2\n")
    file = detent.File(path)
    assert file.named() == {**file.keep(content), "size": 4, "type": "text/csv"}
    path.write_bytes(DATA)
    assert file.named() == {**detent.File.from_bytes(DATA, name="a.csv").named(), "size": len(DATA)}
    assert file.named() == file.keep(content), "kept and named are one value"


def test_a_file_of_another_store_is_copied(kept: detent.File, tmp_path: Path) -> None:
    other = ContentFiles(tmp_path / "other")
    assert kept.keep(other) == kept.named()
    assert detent.File.kept(kept.named(), tmp_path / "other").read_bytes() == DATA
