"""A host that was started ahead serves the pool it is handed to, and no other; one that is not needed ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detent.executor.plain.host_process import HostProcess
from tests.executor.plain.rig import Rig, is_gone, marked, value

KILLED = """
import os, signal
from detent.executor.plain.host_process import HostProcess
host = HostProcess(preload=["inspect"])
fork = os.fork()
if fork == 0:
    signal.pause()  # It holds the control socket as well.
print(host.process.pid, fork, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_host_started_ahead_makes_the_workers_of_its_pool(tmp_path: Path) -> None:
    host = HostProcess(preload=["inspect"])
    rig = Rig(tmp_path, host=host)
    assert value(rig.run("operator:add", 1, 2)) == 3
    assert rig.pool.host_pid == host.process.pid
    assert set(marked(tmp_path / "live")) >= {host.process.pid, *rig.pool.worker_pids}, "all bear the mark of the home"
    rig.pool.close()
    assert is_gone(host.process.pid)
    assert list((tmp_path / "live").iterdir()) == []


def test_what_the_host_loads_while_it_waits_its_workers_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "loaded")
    (tmp_path / "loaded_ahead.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w').close()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    host = HostProcess(preload=["loaded_ahead"])
    (tmp_path / "loaded").read_bytes()
    rig = Rig(tmp_path, workers=1, host=host)
    assert value(rig.run("is_loaded", "loaded_ahead")) is True
    assert value(rig.run("gc:get_freeze_count")) > 1_000, "the collector leaves it alone"
    rig.pool.close()


def test_a_host_started_in_other_surroundings_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostProcess()
    monkeypatch.setenv("DETENT_TEST_CHANGED", "yes")
    rig = Rig(tmp_path, host=host)
    assert value(rig.run("os:getenv", "DETENT_TEST_CHANGED")) == "yes"
    assert rig.pool.host_pid != host.process.pid
    assert is_gone(host.process.pid)
    rig.pool.close()


def test_a_host_that_is_not_handed_on_ends_with_its_object() -> None:
    host = HostProcess()
    pid = host.process.pid
    del host
    assert is_gone(pid)


def test_a_host_ends_with_a_process_that_is_killed_before_it_is_told_anything() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", KILLED], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    host, fork = (int(word) for word in process.stdout.readline().split())
    process.wait()
    assert is_gone(host)
    os.kill(fork, signal.SIGKILL)
    process.stdout.close()
