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
def test_who_started_anybody_or_cannot_tell_is_not_alone(proc: Path, tree: Tree, text: str) -> None:
    (proc / "loadavg").write_text(text)
    assert not tree.is_alone(2)


def test_without_a_namespace_of_their_own_nobody_is_alone(proc: Path) -> None:
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
