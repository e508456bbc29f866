"""Content in files: by digest, written once, whole or not there, never handed out wrong."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from detent.errors import InvalidInput, StoreCorrupt, StoreUnavailable
from detent.store.content import ContentFiles, marked_name
from detent.store.files import DISK, DiskFiles, NewFile
from detent.store.streams import BUFFER_BYTES
from tests.store.fake_files import FakeFiles, PowerCut
from tests.store.rows import digest

LARGE = bytes(range(256)) * 20_000


@pytest.fixture
def content(tmp_path: Path) -> ContentFiles:
    return ContentFiles(tmp_path / "content")


def test_content_is_kept_in_a_file_named_by_its_digest(content: ContentFiles, tmp_path: Path) -> None:
    found = content.put(LARGE)
    name = hashlib.sha256(LARGE).hexdigest()
    assert found.hex() == name
    file = tmp_path / "content" / name[:2] / name[2:]
    assert file.read_bytes() == LARGE
    assert content.path(found) == file
    assert content.get(found) == LARGE
    assert content.has(found)
    assert content.size(found) == len(LARGE)


def test_content_may_come_in_pieces_and_without_its_digest(content: ContentFiles) -> None:
    pieces = [LARGE[:7], b"", LARGE[7:3_000_000], LARGE[3_000_000:]]
    assert content.put(iter(pieces)) == digest(LARGE)
    assert content.put(iter(pieces), digest=digest(LARGE)) == digest(LARGE)
    assert content.get(digest(LARGE)) == LARGE


def test_content_that_is_opened_was_checked_before(content: ContentFiles) -> None:
    content.put(LARGE)
    file = content.open(digest(LARGE))
    assert file is not None
    with file:
        assert file.read(10) == LARGE[:10]
        assert file.read() == LARGE[10:]


def test_what_is_not_there_is_none(content: ContentFiles) -> None:
    nothing = digest("nothing")
    assert content.get(nothing) is None
    assert content.open(nothing) is None
    assert content.size(nothing) is None
    assert not content.has(nothing)
    assert not content.erase(nothing)
    assert list(content.digests()) == []


def test_content_with_another_digest_than_announced_is_refused_and_not_kept(
    content: ContentFiles, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match="announced as"):
        content.put(b"cut sho", digest=digest("cut short"))
    assert list(content.digests()) == []
    assert list((tmp_path / "content").iterdir()) == []


@pytest.mark.parametrize("damaged", [LARGE[:-1], LARGE + b"x", b"x" + LARGE[1:], b""])
def test_damaged_content_is_never_handed_out_and_the_file_is_named(content: ContentFiles, damaged: bytes) -> None:
    path = content.path(content.put(LARGE))
    path.write_bytes(damaged)
    for ask in (content.get, content.open):
        with pytest.raises(StoreCorrupt) as error:
            ask(digest(LARGE))
        assert str(path) in str(error.value)
        assert "remove the file" in (error.value.hint or "")


def test_content_cut_short_is_replaced_when_it_comes_again(content: ContentFiles) -> None:
    path = content.path(content.put(LARGE))
    path.write_bytes(LARGE[:100])
    content.put(LARGE, digest=digest(LARGE))
    assert content.get(digest(LARGE)) == LARGE


def test_content_is_written_once(tmp_path: Path) -> None:
    created: list[Path] = []

    class Counting(DiskFiles):
        def create(self, path: Path, *, streamed: bool = False) -> NewFile:
            created.append(path)
            return super().create(path, streamed=streamed)

    content = ContentFiles(tmp_path / "content", files=Counting())
    for _ in range(3):
        content.put(LARGE, digest=digest(LARGE))
    assert len(created) == 1


def test_content_that_comes_again_is_young_again(content: ContentFiles) -> None:
    """Otherwise garbage collection could take it before the record that names it is written."""
    found = content.put(LARGE)
    os.utime(content.path(found), (1_000, 1_000))
    content.put(LARGE, digest=found)
    assert content.path(found).stat().st_mtime > 1_000


def test_files_and_directories_are_for_their_owner_alone(content: ContentFiles, tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        path = content.path(content.put(LARGE))
        directory = ContentFiles(tmp_path / "other").path(b"\0" * 32).parent.parent
    finally:
        os.umask(previous)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert directory.stat().st_mode & 0o777 == 0o700


def test_erased_content_is_gone(content: ContentFiles) -> None:
    content.put(LARGE)
    assert content.erase(digest(LARGE))
    assert not content.has(digest(LARGE))
    assert not content.erase(digest(LARGE))


def test_digests_come_in_order_and_strangers_are_passed_over(content: ContentFiles, tmp_path: Path) -> None:
    kept = sorted(content.put(b"%d" % number) for number in range(20))
    for stray in ("README", "new-0123", "zz", kept[0].hex()[:2] + "/note"):
        (tmp_path / "content" / stray).write_text("stray")
    assert list(content.digests()) == kept


def test_what_interrupted_writes_left_is_swept_and_nothing_else(content: ContentFiles, tmp_path: Path) -> None:
    content.put(LARGE)
    (tmp_path / "content" / "new-0123").write_bytes(b"half")
    (tmp_path / "content" / "new-4567").write_bytes(b"half")
    assert content.sweep_temporary() == 2
    assert content.sweep_temporary() == 0
    assert list(content.digests()) == [digest(LARGE)]


def test_pieces_that_fail_leave_nothing(content: ContentFiles, tmp_path: Path) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise ConnectionResetError

    with pytest.raises(StoreUnavailable):
        content.put(pieces())
    assert list((tmp_path / "content").iterdir()) == []


@pytest.mark.parametrize("failing", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path, failing: str) -> None:
    files = FullDisk()
    content = ContentFiles(tmp_path / "content", files=files)
    files.failing = failing
    with pytest.raises(StoreUnavailable, match="No space left") as error:
        content.put(LARGE)
    assert str(tmp_path / "content") in str(error.value)
    assert "DETENT_HOME" in (error.value.hint or "")
    files.failing = ""
    assert [name for name in DISK.names(tmp_path / "content") if name.startswith("new-")] == []
    assert content.put(LARGE) == digest(LARGE)


class FullDisk(DiskFiles):
    """Fails one kind of step for want of space."""

    failing = ""

    def check(self, step: str) -> None:
        if step == self.failing:
            raise OSError(28, "No space left on device")

    def create(self, path: Path, *, streamed: bool = False) -> NewFile:
        self.check("create")
        inner = super().create(path, streamed=streamed)
        outer = self

        class File:
            def write(self, data: bytes | memoryview) -> None:
                outer.check("write")
                inner.write(data)

            def sync(self) -> None:
                outer.check("sync")
                inner.sync()

            def close(self) -> None:
                inner.close()

        return File()

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self.check("sync_directory")
        super().sync_directory(path)


class Plain(DiskFiles):
    """A file system that writes through the page cache only, or wants larger blocks than ours; counts what it refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, refuses: str) -> None:
        self.refused = 0
        name, real = ("fcntl", fcntl.fcntl) if refuses == "flag" else ("write", os.write)

        def refuse(handle: int, *rest: Any) -> Any:
            direct = name == "write" and fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DIRECT
            if direct or (name == "fcntl" and len(rest) == 2 and rest[1] & os.O_DIRECT):
                self.refused += 1
                raise OSError(errno.EINVAL, "Invalid argument")
            return real(handle, *rest)

        monkeypatch.setattr(f"detent.store.files.{'fcntl' if name == 'fcntl' else 'os'}.{name}", refuse)


@pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="there is no way past the page cache here")
@pytest.mark.parametrize("refuses", ["flag", "write"])
def test_where_the_page_cache_cannot_be_passed_by_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    data = LARGE + b"odd"
    files = Plain(monkeypatch, refuses=refuses)
    content = ContentFiles(tmp_path / "content", files=files)
    assert content.put_from(io.BytesIO(data)) == (digest(data), len(data))
    monkeypatch.undo()
    assert files.refused or scratch_refuses_direct(tmp_path)
    assert content.get(digest(data)) == data


def scratch_refuses_direct(directory: Path) -> bool:
    with (directory / "probe").open("wb") as file, suppress(OSError):
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_DIRECT)
        return False
    return True


@pytest.mark.parametrize("size", [0, 1, BUFFER_BYTES - 1, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES, len(LARGE)])
def test_a_stream_is_kept_whatever_its_size(content: ContentFiles, size: int) -> None:
    data = LARGE[:size]
    assert content.put_from(io.BytesIO(data)) == (digest(data), size)
    assert content.get(digest(data)) == data
    stream = content.stream(digest(data))
    assert stream is not None
    with stream:
        assert stream.read() == data


def test_a_stream_of_content_that_is_not_there_is_none(content: ContentFiles) -> None:
    assert content.stream(digest("nothing")) is None


@pytest.mark.parametrize("again", ["bytes", "pieces", "stream"])
def test_content_that_comes_again_without_its_digest_keeps_its_file_and_is_young_again(
    content: ContentFiles, again: str
) -> None:
    path = content.path(content.put(LARGE))
    os.utime(path, (1_000, 1_000))
    node = path.stat().st_ino
    if again == "bytes":
        content.put(LARGE)
    elif again == "pieces":
        content.put(iter([LARGE]))
    else:
        content.put_from(io.BytesIO(LARGE))
    assert path.stat().st_ino == node
    assert path.stat().st_mtime > 1_000


def test_damage_of_the_same_size_is_mended_by_content_that_comes_again(content: ContentFiles) -> None:
    path = content.path(content.put(LARGE))
    path.write_bytes(b"x" + LARGE[1:])
    content.put_from(io.BytesIO(LARGE))
    assert content.get(digest(LARGE)) == LARGE


# Power cuts

HOME = Path("/content")
PIECES = [bytes([number]) * 600 for number in range(6)]


def put_one_way(content: ContentFiles, number: int, data: bytes) -> bytes:
    """Bytes, pieces and a stream come in by different doors."""
    if number % 3 == 0:
        return content.put(data)
    if number % 3 == 1:
        return content.put(iter([data[:256], data[256:]]))
    return content.put_from(io.BytesIO(data)).digest


def cut_after(steps: int, random: Random, files: FakeFiles) -> tuple[set[bytes], set[bytes], ContentFiles]:
    """Put and erase until the power goes: what was acknowledged as kept, what may be there, and what is found."""
    kept: set[bytes] = set()
    possible: set[bytes] = set()
    names = iter(range(100))
    files.steps_left = steps
    try:
        content = ContentFiles(HOME, files=files, new_name=lambda: str(next(names)))
        for number, data in enumerate(PIECES):
            possible.add(digest(data))
            kept.add(put_one_way(content, number, data))
            if number == 3:
                kept.discard(digest(PIECES[1]))  # from here on it may be gone
                content.erase(digest(PIECES[1]))
                possible.discard(digest(PIECES[1]))
    except PowerCut:
        pass
    return kept, possible, ContentFiles(HOME, files=files.after_power_cut(random))


def survey(cuts: int, **promises: bool) -> tuple[int, int]:
    """How often something acknowledged was lost, and how often something was found that is not whole."""
    lost = damaged = 0
    for seed in range(cuts):
        random = Random(seed)
        files = FakeFiles()
        for promise, kept_word in promises.items():
            setattr(files, promise, kept_word)
        kept, possible, found = cut_after(random.randint(0, 80), random, files)
        there = set(found.digests())
        assert there <= possible or promises
        lost += not kept <= there
        for name in there:
            try:
                found.get(name)
            except StoreCorrupt:
                damaged += 1
        found.sweep_temporary()
        assert set(found.digests()) == there
    return lost, damaged


def test_after_a_power_cut_content_is_whole_or_absent_and_nothing_acknowledged_is_lost() -> None:
    """X-181"""
    assert survey(1000) == (0, 0)


def test_content_left_unsynced_by_another_writer_is_synced_before_it_is_acknowledged() -> None:
    unsynced = 0
    for seed in range(200):
        random = Random(seed)
        files = FakeFiles()
        ContentFiles(HOME, files=files)
        files.steps_left = random.randint(0, 8)
        with suppress(PowerCut):  # only the first writer ends here, the machine goes on
            ContentFiles(HOME, files=files, new_name=lambda: "first").put(PIECES[0])
        files.steps_left = None
        survivor = ContentFiles(HOME, files=files, new_name=lambda: "second")
        unsynced += survivor.has(digest(PIECES[0]))
        survivor.put(PIECES[0], digest=digest(PIECES[0]))
        found = ContentFiles(HOME, files=files.after_power_cut(random))
        assert found.get(digest(PIECES[0])) == PIECES[0]
    assert unsynced > 20


def test_on_a_disk_that_does_not_sync_files_the_same_cuts_damage_content() -> None:
    assert survey(200, syncs_files=False)[1] > 0


def test_on_a_disk_that_does_not_sync_directories_the_same_cuts_lose_content() -> None:
    assert survey(200, syncs_directories=False)[0] > 0


def test_what_a_dead_process_was_writing_is_swept_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    """An unknown file beside it stays for garbage collection, which goes by age."""
    files = ContentFiles(tmp_path / "content")
    script = "import sys; from detent.store.content import marked_name; print(marked_name())"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    of_the_dead, of_the_living = f"new-{done.stdout.strip()}", f"new-{marked_name()}"
    for name in (of_the_dead, of_the_living, "new-0123456789abcdef"):
        (tmp_path / "content" / name).write_bytes(b"half")
    assert files.sweep_abandoned() == 1
    assert sorted(path.name for path in (tmp_path / "content").iterdir()) == sorted(
        [of_the_living, "new-0123456789abcdef"]
    )


class TwoDisks(DiskFiles):
    """A directory of content on another disk than what is uploaded."""

    def __init__(self, content: Path) -> None:
        self._content = content

    def rename(self, source: Path, target: Path) -> None:
        if source.is_relative_to(self._content) != target.is_relative_to(self._content):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        super().rename(source, target)


def test_a_file_of_another_disk_is_copied_and_one_that_changed_meanwhile_is_not(tmp_path: Path) -> None:
    content = ContentFiles(tmp_path / "content", files=TwoDisks(tmp_path / "content"))
    data = os.urandom(3 * BUFFER_BYTES)
    uploaded = tmp_path / "uploaded"
    uploaded.write_bytes(data)
    content.adopt(uploaded, digest(data))
    assert content.get(digest(data)) == data
    assert not uploaded.exists()
    uploaded.write_bytes(b"other")
    with pytest.raises(InvalidInput):
        content.adopt(uploaded, digest(b"another"))
    assert content.get(digest(b"another")) is None
    assert [path for path in (tmp_path / "content").rglob("*") if path.is_file()] == [content.path(digest(data))]
