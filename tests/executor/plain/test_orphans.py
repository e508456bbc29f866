"""Nothing outlives its supervisor, however that ends; what does all the same is found by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detent.executor.plain.sweep import Presence, sweep_orphans
from detent.jobs.work import CANCELLED
from tests.executor.plain.rig import Rig, is_gone, marked, value


def start(home: Path) -> tuple[subprocess.Popen[str], int, list[int]]:
    """A supervisor with its host and its workers, all of them at work."""
    os.mkfifo(home / "ready")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.executor.plain.supervisor", str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    host, *workers = (int(word) for word in process.stdout.readline().split())
    return process, host, workers


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_everything_ends_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """X-179"""
    process, _, _ = start(tmp_path)
    pids = marked(tmp_path / "live")
    assert len(pids) >= 1 + 4 + 3
    end(process)
    assert all(is_gone(pid) for pid in pids)
    assert marked(tmp_path / "live") == []
    assert sweep_orphans(tmp_path / "live") == 0
    assert list((tmp_path / "live").iterdir()) == []


def test_what_outlives_supervisor_and_host_is_swept(tmp_path: Path) -> None:
    """X-179"""
    process, host, workers = start(tmp_path)
    pids = marked(tmp_path / "live")
    os.kill(host, signal.SIGSTOP)
    end(process)
    os.kill(host, signal.SIGKILL)
    assert len(workers) == 4
    assert all(is_gone(pid) for pid in workers), "workers end with their host, even those that hold the interpreter"
    with Presence(tmp_path / "live") as other:
        assert sweep_orphans(tmp_path / "live") >= 3
        assert all(is_gone(pid) for pid in pids)
        assert [path.name for path in (tmp_path / "live").iterdir()] == [f"{other.tag}.lock"]
    assert list((tmp_path / "live").iterdir()) == []


def test_sweeping_leaves_the_living_alone(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workers=1)
    task = rig.submit("begin_and_wait")
    rig.begun()
    assert sweep_orphans(tmp_path / "live") == 0
    assert sweep_orphans(tmp_path / "nowhere") == 0
    assert len(marked(tmp_path / "live")) == 2
    rig.pool.cancel(task)
    assert rig.result(task).status == CANCELLED
    assert value(rig.run("same", 1)) == [[1], {}]
    rig.pool.close()


def test_a_host_that_is_killed_takes_what_is_below_its_workers_along(tmp_path: Path) -> None:
    rig = Rig(tmp_path, workers=1)
    os.mkfifo(tmp_path / "ready")
    task = rig.submit("setsid sleep 1000 & echo > ready; sleep 1000", kind="shell", cwd=str(tmp_path))
    (tmp_path / "ready").read_text()
    pids = marked(tmp_path / "live")
    assert len(pids) >= 4
    os.kill(rig.pool.host_pid, signal.SIGKILL)
    assert rig.result(task).lost
    assert all(is_gone(pid) for pid in pids)
    assert not set(marked(tmp_path / "live")) & set(pids)
    rig.pool.close()


def test_a_fork_of_the_supervisor_does_not_keep_its_workers_alive(tmp_path: Path) -> None:
    """X-179"""
    source = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom tests.executor.plain.rig import Rig\n"
        "rig = Rig(Path(sys.argv[1]), workers=1)\nrig.run('nothing')\n"
        "if os.fork() == 0:\n    os.close(1)\n    signal.pause()\n"
        "print('ready', flush=True)\nsignal.pause()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    pids = marked(tmp_path / "live")
    assert len(pids) == 2
    process.kill()
    assert all(is_gone(pid) for pid in pids)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("given", ["x.1", "new-x"])
def test_what_bears_no_living_pools_name_is_removed(tmp_path: Path, given: str) -> None:
    (tmp_path / given).mkdir() if "." in given else (tmp_path / given).touch()
    if given == "new-x":
        os.utime(tmp_path / given, (0, 0))
    sweep_orphans(tmp_path)
    assert list(tmp_path.iterdir()) == []
