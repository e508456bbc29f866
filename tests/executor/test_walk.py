"""The artifact walk and the copying, without a jail: against files that move."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from detent.executor.sandbox import collect, walk


@contextmanager
def opened(path: Path) -> Iterator[int]:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


def found(path: Path, files_max: int = 100) -> list[tuple[bytes, str | None]]:
    with opened(path) as directory:
        entries = []
        for name, descriptor, fault in walk.walk(directory, b"out", files_max=files_max):
            if descriptor is not None:
                os.close(descriptor)
            entries.append((name, fault))
        return sorted(entries)


def test_files_are_found_at_every_depth(tmp_path: Path) -> None:
    for name in ("a", "d/b", "d/e/c"):
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    assert found(tmp_path) == [(b"a", None), (b"d/b", None), (b"d/e/c", None)]


def test_no_directory_means_no_files(tmp_path: Path) -> None:
    assert found(tmp_path) == []


def test_what_is_no_plain_file_ends_the_walk(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        for make in (
            lambda path: path.symlink_to("/etc/passwd"),
            lambda path: path.symlink_to(out),
            os.mkfifo,
            lambda path: listener.bind(str(path)),
        ):
            make(out / "x")
            assert found(tmp_path) == [(b"x", walk.NOT_A_FILE)]
            (out / "x").unlink()


def test_a_link_in_the_place_of_the_output_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "secret").write_text("x")
    (tmp_path / "out").symlink_to("real")
    assert found(tmp_path) == [(b".", walk.NOT_A_FILE)]


def test_the_walk_stops_at_the_first_file_too_many(tmp_path: Path) -> None:
    """JOB-037, X-147"""
    out = tmp_path / "out"
    out.mkdir()
    for number in range(20):
        (out / str(number)).touch()
    assert [fault for _, fault in found(tmp_path, files_max=20)] == [None] * 20
    entries = found(tmp_path, files_max=19)
    assert [fault for _, fault in entries if fault] == [walk.TOO_MANY]
    assert len(entries) == 20


def test_depth_and_number_of_directories_are_bounded(tmp_path: Path) -> None:
    deep = tmp_path / "out"
    for _ in range(walk.DEPTH_MAX + 2):
        deep /= "d"
    deep.mkdir(parents=True)
    assert found(tmp_path)[-1][1] == walk.TOO_MANY


def test_a_name_that_is_swapped_all_the_time_never_yields_another_file(tmp_path: Path) -> None:
    """One descriptor, opened once: it is the plain file, or nothing."""
    out = tmp_path / "out"
    out.mkdir()
    secret = tmp_path / "secret"
    secret.write_text("secret")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (out / "y").write_text("plain")
            (out / "y").rename(out / "x")
            (out / "z").symlink_to(secret)
            (out / "z").rename(out / "x")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[bytes | str | None] = set()
    try:
        with opened(out) as directory:
            for _ in range(20_000):
                _, descriptor, fault = walk.open_entry(directory, b"x", b"x")
                if descriptor is None:
                    seen.add(fault)
                else:
                    seen.add(os.read(descriptor, 100))
                    os.close(descriptor)
    finally:
        done.set()
        thread.join()
    assert seen <= {b"plain", b"", walk.NOT_A_FILE}
    assert b"plain" in seen


def test_a_copy_is_hashed_from_the_bytes_that_were_stored(tmp_path: Path) -> None:
    """JOB-074"""
    source, target = tmp_path / "source", tmp_path / "target"
    data = os.urandom(3_000_000)
    source.write_bytes(data)
    with source.open("rb") as file:
        copied = collect.copy_regular(file.fileno(), target, bytes_max=3_000_000)
    assert copied == (3_000_000, hashlib.sha256(data).digest(), True)
    assert target.read_bytes() == data


def test_a_file_that_grows_while_it_is_copied_is_cut_off(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(2_000_000))
    with source.open("rb") as file:
        copied = collect.copy_regular(file.fileno(), target, bytes_max=1_500_000)
    assert copied is not None
    assert not copied.whole
    assert target.stat().st_size <= 1_500_000


def test_a_copy_overwrites_nothing_and_takes_plain_files_only(tmp_path: Path) -> None:
    (tmp_path / "target").symlink_to("elsewhere")
    (tmp_path / "source").write_bytes(b"x")
    with (tmp_path / "source").open("rb") as file, pytest.raises(FileExistsError):
        collect.copy_regular(file.fileno(), tmp_path / "target", bytes_max=10)
    read, write = os.pipe()
    assert collect.copy_regular(read, tmp_path / "other", bytes_max=10) is None
    os.close(read)
    os.close(write)


def test_a_tree_is_removed_however_deep_and_no_link_is_followed(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "file").write_text("x")
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(keep)
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.symlink(str(keep), "link", dir_fd=inner)
        os.close(here)
        here = inner
    os.close(here)
    collect.remove_tree(top)
    assert not top.exists()
    assert (keep / "file").read_text() == "x"
    collect.remove_tree(top)
