"""The lock that makes a process the owner of a home."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detent.errors import HomeError
from detent.owner.lock import is_held, owner_pid, try_lock
from tests.owner.processes import surroundings


def test_one_holds_it_and_the_next_is_told_so(tmp_path: Path) -> None:
    """PIPE-060, X-172"""
    path = tmp_path / "owner.lock"
    held = try_lock(path)
    assert held is not None
    assert try_lock(path) is None
    assert is_held(path)
    assert owner_pid(path) == os.getpid()
    held.release()
    held.release()
    assert not is_held(path)
    again = try_lock(path)
    assert again is not None
    again.release()


def test_the_lock_file_is_private(tmp_path: Path) -> None:
    held = try_lock(tmp_path / "owner.lock")
    assert held is not None
    assert (tmp_path / "owner.lock").stat().st_mode & 0o077 == 0
    held.release()


def test_a_place_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(HomeError, match=r"owner\.lock"):
        try_lock(tmp_path / "nowhere" / "owner.lock")


def test_a_file_that_never_existed_is_not_locked(tmp_path: Path) -> None:
    assert owner_pid(tmp_path / "owner.lock") is None
    assert not is_held(tmp_path / "owner.lock")
    (tmp_path / "owner.lock").write_text("no number")
    assert owner_pid(tmp_path / "owner.lock") is None


FORKS = r"""
import os, sys
from pathlib import Path
from detent.owner.lock import try_lock
held = try_lock(Path(sys.argv[1]))
assert held is not None
pid = os.fork()
if pid == 0:
    os.write(1, b"child\n")   # it lives on with what it inherited
    sys.stdin.read()
    os._exit(0)
os.write(1, b"parent\n")
os.kill(os.getpid(), 9)
"""


def test_a_forked_child_does_not_inherit_the_lock(tmp_path: Path) -> None:
    """X-172: a worker that outlives its owner must not keep the home locked."""
    path = tmp_path / "owner.lock"
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=surroundings(),
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        lines = {process.stdout.readline().split()[0] for _ in range(2)}
        assert lines == {"child", "parent"}
        process.wait(timeout=60)
        held = try_lock(path)
        assert held is not None, "the child still holds it"
        held.release()
        process.stdin.close()
