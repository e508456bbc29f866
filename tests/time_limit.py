"""A time limit for each test: one that hangs fails, with the stack of every thread, and the others go on.

Two clocks watch a test with its fixtures. The first raises in the main thread, wherever it waits, and the test fails like
any other. A loop in C code, or a test that swallows the failure, hears nothing of that: some time later the second clock
prints the stacks from a thread that needs no interpreter and ends the process. Under pytest-xdist that is one lost worker,
which is reported as a failure of this very test and replaced; without it, the run ends there.

The limits are settings in pyproject.toml. They say "hangs", not "is slow": a busy machine must stay far below them. A
debugger (``--pdb``) turns them off.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
from collections.abc import Generator
from typing import NoReturn

import pytest

_SETTINGS = {
    "time_limit_seconds": ("600", "how long a test may take with its fixtures; 0 is no limit"),
    "time_limit_slow_seconds": ("7200", "the same for tests that are marked as slow"),
    "time_limit_grace_seconds": ("120", "how long a test that is past its limit may take to end before the process is"),
}
_STDERR = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings, with defaults for a run that does not read ours."""
    for name, (default, words) in _SETTINGS.items():
        parser.addini(name, words, default=default)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real standard error: while a test runs, its own goes to a file that ends with the process."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        config.stash[_STDERR] = os.dup(2)
    else:
        with capture.global_and_fixture_disabled():
            config.stash[_STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let go of it."""
    os.close(config.stash[_STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Run one test, watched."""
    config = item.config
    seconds = limit_of(item)
    if not seconds or config.option.usepdb:
        return (yield)

    def strike(*_: object) -> NoReturn:
        pytest.fail(f"{item.nodeid} did not end within {seconds:g} s.\n{stacks()}")

    before = signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    grace = float(config.getini("time_limit_grace_seconds"))
    faulthandler.dump_traceback_later(seconds + grace, exit=True, file=config.stash[_STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def limit_of(item: pytest.Item) -> float:
    """The limit of one test in seconds."""
    slow = item.get_closest_marker("slow") is not None
    return float(item.config.getini("time_limit_slow_seconds" if slow else "time_limit_seconds"))


def stacks() -> str:
    """What every thread of this process is doing."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode("utf-8", "replace")
