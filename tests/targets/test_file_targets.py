"""Files as destinations: what is written, whose bytes are left alone, what goes wrong and how it is said."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detent.canon import sha256
from detent.errors import InvariantBroken
from detent.store.content import ContentFiles
from detent.targets import (
    CommitFailed,
    CommitTarget,
    DestinationBusy,
    DestinationChanged,
    Mark,
    ValueRefused,
    append_target,
    json_lines_target,
)
from detent.targets.disk import DISK, Disk
from tests.targets.destinations import FILE_KINDS, RUN, Destination, Value, drive

VALUES = ["one", "two", "three"]


@pytest.fixture
def destination(tmp_path: Path) -> Destination:
    return Destination("append", tmp_path)


def started(target: CommitTarget) -> CommitTarget:
    target.open(RUN, None)
    target.begin()
    return target


def written(target: CommitTarget, values: list[Value]) -> None:
    started(target).write(0, values)
    target.close()


# -- what is written ---------------------------------------------------------------------------------------------------


def test_text_gets_a_newline_unless_it_has_one(tmp_path: Path) -> None:
    written(append_target("append:a", tmp_path / "a"), ["x", "y\n", "two\nlines", "", "\n"])
    assert (tmp_path / "a").read_bytes() == b"x\ny\ntwo\nlines\n\n\n"


def test_the_bytes_of_files_are_written_as_they_are(tmp_path: Path) -> None:
    content = ContentFiles(tmp_path / "content")
    large = bytes(range(256)) * 10_000
    named = [{"$file": "sha256:" + content.put(data).hex(), "size": len(data)} for data in (b"\xff\0", b"", large)]
    written(append_target("append:a", tmp_path / "a", content), ["x", named[0], named[1], "y", named[2]])
    assert (tmp_path / "a").read_bytes() == b"x\n\xff\0y\n" + large


@pytest.mark.parametrize("value", [None, 1, 1.5, True, ["x"], {"a": 1}, {"$$file": "x"}])
def test_what_is_neither_text_nor_file_is_refused_by_its_seq_and_nothing_is_written(
    value: Value, destination: Destination
) -> None:
    target = started(destination.target())
    with pytest.raises(ValueRefused, match="seq 1 returned") as caught:
        target.write(0, ["x", value, "y"])
    assert (caught.value.seq, caught.value.retryable) == (1, False)
    assert target.begin() == Mark(0, 0, sha256(b"").hex())
    target.close()
    assert destination.held() == b""


@pytest.mark.parametrize("kind", FILE_KINDS)
def test_text_that_utf_8_cannot_hold_is_refused_by_its_seq(kind: str, tmp_path: Path) -> None:
    destination = Destination(kind, tmp_path)
    target = started(destination.target())
    with pytest.raises(ValueRefused, match="seq 2 ") as caught:
        target.write(0, ["x", "y", "\udc80"])
    assert caught.value.seq == 2
    target.close()
    assert destination.held() == b""


def test_a_file_that_is_damaged_or_gone_is_taken_back_and_said(tmp_path: Path) -> None:
    content = ContentFiles(tmp_path / "content")
    good, bad = content.put(b"good" * 1_000_000), content.put(b"bad" * 1_000_000)
    content.path(bad).write_bytes(b"bed" * 1_000_000)
    gone = {"$file": "sha256:" + "00" * 32}
    target = started(append_target("append:a", tmp_path / "a", content))
    files: list[Value] = [{"$file": f"sha256:{digest.hex()}"} for digest in (good, bad)]
    with pytest.raises(CommitFailed, match="the file of seq 1 cannot be read") as caught:
        target.write(0, files)
    assert (caught.value.seq, caught.value.retryable) == (1, False)
    for strange in (gone, {"$file": "md5:00"}, {"$file": 5}):
        with pytest.raises(ValueRefused):
            target.write(0, [strange])
    target.close()
    assert (tmp_path / "a").read_bytes() == b""


def test_a_line_of_json_is_the_value_itself_as_its_user_wrote_it(tmp_path: Path) -> None:
    values: list[Value] = [{"b": 1, "a": "ü\n"}, [1.5, None, True], "x", {"$$price": {"$$": 1}}, {"$file": "sha256:00"}]
    written(json_lines_target("jsonl:a", tmp_path / "a"), values)
    lines = (tmp_path / "a").read_text().split("\n")
    assert lines == ['{"a":"ü\\n","b":1}', "[1.5,null,true]", '"x"', '{"$price":{"$":1}}', '{"$file":"sha256:00"}', ""]


def test_a_numbered_line_has_the_seq_beside_the_value(tmp_path: Path) -> None:
    written(json_lines_target("jsonl+seq:a", tmp_path / "a", numbered=True), ["x", {"a": 1}])
    lines = (tmp_path / "a").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"seq": 0, "value": "x"}, {"seq": 1, "value": {"a": 1}}]


@pytest.mark.parametrize("value", [float("nan"), object(), {"a": {1, 2}}, {"$result": "sha256:00"}])
def test_what_is_no_json_is_refused_by_its_seq(value: Value, tmp_path: Path) -> None:
    target = started(json_lines_target("jsonl:a", tmp_path / "a"))
    with pytest.raises(ValueRefused, match="seq 1 returned"):
        target.write(0, ["x", value])
    target.close()


def test_names_that_are_not_utf_8_are_written_to_and_shown(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt"))
    written(append_target("append:x", path), ["x"])
    assert path.read_bytes() == b"x\n"
    with pytest.raises(DestinationChanged) as caught:
        append_target("append:x", path).open(RUN, Mark(9, 9, "00"))
    assert "\\xff.txt" in str(caught.value)


# -- the order of things -----------------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_beginning_can_be_recorded(destination: Destination) -> None:
    target = destination.target()
    target.open(RUN, None)
    with pytest.raises(InvariantBroken, match="begin"):
        target.write(0, ["x"])
    target.close()


def test_a_write_is_synced_before_it_returns(destination: Destination) -> None:
    calls: list[str] = []

    class Noting(Disk):
        def write(self, handle: int, data: memoryview) -> int:
            calls.append("write")
            return super().write(handle, data)

        def sync(self, handle: int) -> None:
            calls.append("sync")
            super().sync(handle)

    target = started(destination.target(Noting()))
    calls.clear()
    target.write(0, VALUES)
    assert calls == ["write", "sync"]
    target.close()


# -- bytes of others ---------------------------------------------------------------------------------------------------


def test_a_file_whose_committed_end_was_changed_is_refused_and_left_alone(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    changed = destination.held().replace(b"three", b"THREE")
    destination.path.write_bytes(changed)
    with pytest.raises(DestinationChanged, match="other bytes"):
        destination.target().open(RUN, destination.recorded())
    assert destination.held() == changed


def test_the_bytes_before_the_run_belong_to_what_is_compared(destination: Destination) -> None:
    destination.path.write_bytes(b"of before\n")
    target = destination.target()
    target.open(RUN, None)
    mark = target.begin()
    target.close()
    destination.path.write_bytes(b"different\n")
    with pytest.raises(DestinationChanged):
        destination.target().open(RUN, mark)


def test_bytes_added_after_the_crash_are_set_aside(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    with destination.path.open("ab") as file:
        file.write(b"by hand\n")
    target = destination.target()
    target.open(RUN, destination.recorded())
    assert destination.held() == destination.expected(VALUES)
    target.write(3, ["a longer entry of the run"])
    target.close()
    (kept,) = destination.left_over()
    assert kept == "out.txt.cut-14"
    assert (destination.directory / kept).read_bytes() == b"by hand\n"


def test_two_things_that_were_set_aside_at_one_place_are_both_kept(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    for text in (b"first\n", b"second\n"):
        with destination.path.open("ab") as file:
            file.write(text)
        target = destination.target()
        target.open(RUN, destination.recorded())
        target.close()
    kept = [(destination.directory / name).read_bytes() for name in destination.left_over()]
    assert kept == [b"first\n", b"second\n"]


def add(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"by another program\n")


def shorten(path: Path) -> None:
    os.truncate(path, 2)


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("old"))
    path.write_bytes(path.with_name("old").read_bytes())


@pytest.mark.parametrize("change", [add, shorten, remove, replace])
def test_a_change_while_the_run_has_the_file_is_found_before_the_next_batch(
    change: object, destination: Destination
) -> None:
    assert callable(change)
    target = started(destination.target())
    target.write(0, VALUES)
    change(destination.path)
    held = destination.held()
    for _ in range(2):
        with pytest.raises(DestinationChanged):
            target.write(3, ["four"])
    target.close()
    assert destination.held() == held


def test_bytes_added_by_another_program_in_the_middle_of_a_batch_are_found_and_kept(destination: Destination) -> None:
    class Interrupted(Disk):
        def write(self, handle: int, data: memoryview) -> int:
            add(destination.path)
            return super().write(handle, data)

    target = started(destination.target(Interrupted()))
    with pytest.raises(DestinationChanged, match="while a batch"):
        target.write(0, VALUES)
    target.close()
    assert destination.held() == b"by another program\n" + destination.expected(VALUES)


def test_the_mark_of_another_kind_of_destination_is_refused(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    with pytest.raises(CommitFailed, match="not a file length"):
        destination.target().open(RUN, Mark(3))


# -- one run at a time -------------------------------------------------------------------------------------------------


def test_a_second_run_is_told_that_the_file_is_in_use_and_can_have_it_later(destination: Destination) -> None:
    first = started(destination.target())
    second = destination.target()
    with pytest.raises(DestinationBusy) as caught:
        second.open("run-2", None)
    assert caught.value.retryable is True
    first.write(0, VALUES)
    first.close()
    assert second.open("run-2", None) == 0
    second.begin()
    second.write(0, ["of the second run"])
    second.close()
    assert destination.held() == destination.expected([*VALUES, "of the second run"])


def test_the_lock_ends_with_the_run_and_not_with_the_children_it_forked(destination: Destination) -> None:
    first = started(destination.target())
    hold, let_go = os.pipe()
    is_there, say = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(let_go)
        os.write(say, b".")
        os.read(hold, 1)  # Until the parent closes its end.
        os._exit(0)
    os.read(is_there, 1)
    first.close()
    second = destination.target()
    try:
        assert second.open(RUN, None) == 0
    finally:
        second.close()
        for end in (hold, let_go, is_there, say):
            os.close(end)
        os.waitpid(child, 0)


# -- failures ----------------------------------------------------------------------------------------------------------


def refusal(path: Path) -> CommitFailed:
    with pytest.raises(CommitFailed) as caught:
        append_target(f"append:{path.name}", path).open(RUN, None)
    assert caught.value.details["target"] == f"append:{path.name}"
    assert str(path) in str(caught.value)
    return caught.value


def test_what_cannot_be_a_destination_is_said_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    for name, word in (
        ("directory", "directory"),
        ("link", "symbolic link"),
        ("dangling", "symbolic link"),
        ("missing/file", "make its directory"),
        ("file/inside", "is a file"),
        ("x" * 300, "shorter"),
    ):
        error = refusal(tmp_path / name)
        assert word in (error.hint or ""), name
        assert error.retryable is False
    assert "not a regular file" in str(refusal(tmp_path / "pipe"))
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    (tmp_path / "file").chmod(0o444)
    assert refusal(tmp_path / "file").details["errno"] == errno.EACCES


@pytest.mark.parametrize(
    ("number", "retryable"),
    [
        *((errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, True), (errno.ESTALE, True)),
        *((errno.EROFS, False), (errno.EACCES, False), (errno.EPERM, False), (errno.EFBIG, False)),
    ],
)
def test_a_failed_write_leaves_nothing_and_says_whether_time_may_help(
    number: int, retryable: bool, destination: Destination
) -> None:
    """X-076"""

    class Failing(Disk):
        is_failing = False

        def write(self, handle: int, data: memoryview) -> int:
            return super().write(handle, data[:4])  # Short writes, as a disk that fills up makes them.

        def sync(self, handle: int) -> None:
            if self.is_failing:
                raise OSError(number, os.strerror(number))

    disk = Failing()
    target = started(destination.target(disk))
    target.write(0, VALUES[:1])
    disk.is_failing = True
    for _ in range(2):
        with pytest.raises(CommitFailed) as caught:
            target.write(1, VALUES[1:])
        assert (caught.value.retryable, caught.value.details["errno"]) == (retryable, number)
        assert destination.held() == destination.expected(VALUES[:1])
    disk.is_failing = False
    assert target.write(1, VALUES[1:]).next_seq == 3
    target.close()
    assert destination.held() == destination.expected(VALUES)


def test_a_batch_that_could_not_be_taken_back_is_taken_back_before_the_next_one(destination: Destination) -> None:
    class Stuck(Disk):
        is_stuck = False

        def sync(self, handle: int) -> None:
            if self.is_stuck:
                raise OSError(errno.EIO, "stuck")

        def truncate(self, handle: int, size: int) -> None:
            if self.is_stuck:
                raise OSError(errno.EIO, "stuck")
            super().truncate(handle, size)

    disk = Stuck()
    target = started(destination.target(disk))
    disk.is_stuck = True
    with pytest.raises(CommitFailed):
        target.write(0, VALUES)
    assert destination.held() != b""
    disk.is_stuck = False
    target.write(0, VALUES)
    target.close()
    assert destination.held() == destination.expected(VALUES)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_file_that_may_not_grow_keeps_what_is_committed_and_goes_on_when_it_may(destination: Destination) -> None:
    """X-076"""
    target = started(destination.target())
    target.write(0, ["x" * 99])
    with file_size_limit(150), pytest.raises(CommitFailed, match="File too large"):
        target.write(1, ["y" * 99])
    assert destination.held() == destination.expected(["x" * 99])
    target.write(1, ["y" * 99])
    target.close()
    assert destination.held() == destination.expected(["x" * 99, "y" * 99])


def test_a_full_disk_keeps_what_is_committed(destination: Destination) -> None:
    """X-076"""

    class Full(Disk):
        left = 50

        def write(self, handle: int, data: memoryview) -> int:
            if not self.left:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            count = super().write(handle, data[: self.left])
            self.left -= count
            return count

    disk = Full()
    target = started(destination.target(disk))
    target.write(0, ["x" * 30])
    with pytest.raises(CommitFailed) as caught:
        target.write(1, ["y" * 30])
    assert (caught.value.retryable, caught.value.hint) == (True, "free some space on its disk")
    assert destination.held() == destination.expected(["x" * 30])
    target.close()


def test_no_destination_is_left_half_open_by_a_failed_opening(destination: Destination) -> None:
    drive(destination, destination.target(), VALUES)
    target = destination.target()
    with pytest.raises(DestinationChanged):
        target.open(RUN, Mark(9, 99, "00"))
    assert destination.target().open(RUN, destination.recorded()) == 3


def test_importing_files_as_destinations_loads_no_database() -> None:
    script = "import sys, detent.targets; sys.exit('apsw' in sys.modules)"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=False
        ).returncode
        == 0
    )


def test_the_real_disk_is_the_one_that_is_used() -> None:
    assert type(DISK) is Disk
