"""What init reads off /proc, from files written here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.executor.sandbox.tree import Tree

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_MS = 1000 // os.sysconf("SC_CLK_TCK")


def write_process(
    proc: Path, pid: int, *, parent: int = 1, threads: int = 1, cpu: tuple[int, ...] = (0, 0, 0, 0), pages: int = 0
) -> None:  # fmt: skip
    fields = ["S", str(parent), *["0"] * 9, *map(str, cpu), "20", "0", str(threads)]
    fields += ["0", "0", "0", str(pages), *["0"] * 10]
    (proc / str(pid)).mkdir()
    # A process may call itself what it likes.
    (proc / str(pid) / "stat").write_text(f"{pid} (a) S 1 (b)) {' '.join(fields)}\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "meminfo").write_text("not a process")
    return tmp_path


@pytest.fixture
def tree(proc: Path) -> Iterator[Tree]:
    directory = os.open(proc, os.O_RDONLY | os.O_DIRECTORY)
    yield Tree(directory, own=True)
    os.close(directory)


def test_everybody_is_added_up(proc: Path, tree: Tree) -> None:
    write_process(proc, 2, threads=3, cpu=(1, 2, 3, 4), pages=10)
    write_process(proc, 3, cpu=(5, 0, 0, 0), pages=1)
    sample = tree.sample()
    assert (sample.tasks, sample.cpu_ms, sample.resident_bytes) == (4, 15 * TICK_MS, 11 * PAGE)


def test_who_was_started_last_is_alone(proc: Path, tree: Tree) -> None:
    (proc / "loadavg").write_text("0.42 0.40 0.38 1/123 2\n")
    assert tree.is_alone(2)


@pytest.mark.parametrize("text", ["0.42 0.40 0.38 1/123 3\n", "0.42 0.40 0.38 1/123 22\n", ""])
def test_a_process_that_started_others_or_cannot_tell_is_not_alone(proc: Path, tree: Tree, text: str) -> None:
    (proc / "loadavg").write_text(text)
    assert not tree.is_alone(2)


def test_without_a_namespace_of_its_own_no_process_is_alone(proc: Path) -> None:
    (proc / "loadavg").write_text("0.42 0.40 0.38 1/123 2\n")
    directory = os.open(proc, os.O_RDONLY | os.O_DIRECTORY)
    assert not Tree(directory, own=False).is_alone(2)
    os.close(directory)


def test_on_the_hosts_proc_only_descendants_belong_to_the_job(proc: Path) -> None:
    for pid, parent in ((os.getpid(), 1), (10, os.getpid()), (11, 10), (12, 1), (13, 12)):
        write_process(proc, pid, parent=parent)
    directory = os.open(proc, os.O_RDONLY | os.O_DIRECTORY)
    assert sorted(Tree(directory, own=False).pids()) == [10, 11]
    os.close(directory)


ROLLUP = "5500-7ffd ---p 00000000 00:00 0 [rollup]\nRss: 90 kB\nPss: 60 kB\nPss_Anon: 30 kB\nPss_File: 10 kB\nPss_Shmem: 20 kB\nSwapPss: 4 kB\n"


def test_files_in_memory_are_left_to_the_control_group(proc: Path, tree: Tree) -> None:
    for pid in (2, 3):
        write_process(proc, pid)
        (proc / str(pid) / "smaps_rollup").write_text(ROLLUP)
    assert tree.proportional_bytes(files_in_memory=True) == 2 * 64 * 1024
    assert tree.proportional_bytes(files_in_memory=False) == 2 * 44 * 1024


def test_a_process_that_cannot_be_looked_into_counts_for_all_it_holds(proc: Path, tree: Tree) -> None:
    """JOB-037"""
    write_process(proc, 2, pages=10)
    assert tree.proportional_bytes(files_in_memory=False) == 10 * PAGE


def test_an_object_of_shared_memory_counts_once_however_it_is_mapped(proc: Path, tree: Tree) -> None:
    line = "7f0000000000-7f0000001000 rw-s 00000000 00:01 {} {}\n"
    for pid, inodes in ((2, (7, 7, 8)), (3, (8,))):
        write_process(proc, pid)
        (proc / str(pid) / "maps").write_text("".join(line.format(inode, "  /dev/zero (deleted)") for inode in inodes))
    assert tree.shared_objects() == 2
    write_process(proc, 4)
    (proc / "4" / "maps").write_text(line.format(9, "[anon_shmem:mine]") + line.format(10, "/tmp/file"))
    assert tree.shared_objects() == 3
    write_process(proc, 5)  # It ended before its maps could be read.
    assert tree.shared_objects() == 3
    (proc / "5" / "maps").mkdir()
    assert tree.shared_objects() is None


def test_a_thread_belongs_to_its_process(proc: Path, tree: Tree) -> None:
    (proc / "7").mkdir()
    (proc / "7" / "status").write_text("Name:\tx\nTgid:\t5\nPid:\t7\n")
    assert (tree.process_of(7), tree.process_of(8)) == (5, None)
