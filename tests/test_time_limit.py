"""A test that hangs is a failure that shows where, and the tests after it still run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WAITING = """
import threading

def wait_elsewhere(event):
    event.wait()

def test_hangs():
    event = threading.Event()
    threading.Thread(target=wait_elsewhere, args=(event,), daemon=True).start()
    event.wait()

def test_goes_on():
    pass
"""
LOOP_IN_C = """
import collections, itertools

def test_hangs():
    collections.deque(itertools.repeat(0), maxlen=0)

def test_goes_on():
    pass
"""
SWALLOWING = """
import threading

def test_hangs():
    while True:
        try:
            threading.Event().wait()
        except BaseException:
            pass
"""
SLOW = """
import time

import pytest

@pytest.mark.slow
def test_takes_its_time():
    time.sleep(0.5)
"""


UNSTOPPABLE = ("-o", "time_limit_seconds=0.5", "-o", "time_limit_grace_seconds=0.2")
"""For tests that never hear of their first limit; the others get the whole grace, however busy the machine is."""


def run(tmp_path: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A pytest of its own, with the limits given."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.time_limit"]\n')
    (tmp_path / "test_it.py").write_text(source)
    settings = "[pytest]\nmarkers = slow\n"
    (tmp_path / "pytest.ini").write_text(settings)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "no:cacheprovider", *arguments, "test_it.py"]
    # Of the plugins that are installed it needs one; the others take seconds to load.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        environment.pop(name, None)
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_test_that_hangs_fails_with_the_stack_of_every_thread_and_the_next_one_runs(
    tmp_path: Path, workers: str
) -> None:
    ended = run(tmp_path, WAITING, "-n", workers, "-o", "time_limit_seconds=0.5")
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "test_it.py::test_hangs did not end within 0.5 s" in ended.stdout
    assert "in wait_elsewhere" in ended.stdout
    assert "in test_hangs" in ended.stdout


def test_a_loop_in_c_code_costs_a_worker_and_fails_its_own_test_alone(tmp_path: Path) -> None:
    ended = run(tmp_path, LOOP_IN_C, "-n", "1", *UNSTOPPABLE)
    assert ended.returncode == 1
    assert "1 failed, 1 passed" in ended.stdout
    assert "crashed while running 'test_it.py::test_hangs'" in ended.stdout
    assert "in test_hangs" in ended.stderr


@pytest.mark.parametrize("source", [LOOP_IN_C, SWALLOWING])
def test_without_workers_a_test_that_nothing_stops_ends_the_run_with_its_stack(tmp_path: Path, source: str) -> None:
    ended = run(tmp_path, source, "-n", "0", *UNSTOPPABLE)
    assert ended.returncode == 1
    assert "Timeout" in ended.stderr
    assert "in test_hangs" in ended.stderr


def test_a_slow_test_has_a_limit_of_its_own(tmp_path: Path) -> None:
    limits = ("-o", "time_limit_seconds=0.1", "-o", "time_limit_slow_seconds=60")
    assert run(tmp_path, SLOW, "-n", "0", *limits).returncode == 0
    assert run(tmp_path, SLOW.replace("@pytest.mark.slow\n", ""), "-n", "0", *limits).returncode == 1


def test_every_test_of_this_suite_has_a_limit(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("time_limit_seconds")) > 0
    assert float(request.config.getini("time_limit_slow_seconds")) > 0
    assert request.config.pluginmanager.has_plugin("tests.time_limit")
