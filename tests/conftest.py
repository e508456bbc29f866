"""How hypothesis runs here, the time limit that every test has, what collection keeps, and the marker of the doors.

`quick` is for a person at work: few examples, new ones each time. `ci` draws the same ones each time, so that a red build
is red for everybody. `soak` looks long. `HYPOTHESIS_PROFILE` chooses; otherwise `CI` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.postgres_server import Server, shared_server, stop_shared

pytest_plugins = ["tests.time_limit", "tests.web.chromium"]

# Timings belong to bench/: on a busy machine a slow example says nothing about the code.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("quick", _UNHURRIED, max_examples=40)
settings.register_profile("ci", _UNHURRIED, max_examples=40, derandomize=True, print_blob=True)
settings.register_profile("soak", _UNHURRIED, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "quick"))


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that tools/doors.py reads."""
    config.addinivalue_line(
        "markers", "door(name): the setting, contract key or route at which the test shows a requirement"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the bytecode of tests, also where PYTHONDONTWRITEBYTECODE is set: to rewrite and compile them takes 3/4 of a collection.

    Tests themselves, and the processes that they start, write bytecode only where the environment lets them.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before


def _session_directory(factory: pytest.TempPathFactory) -> Path:
    """One directory for all processes of a session; the workers of xdist have theirs below it."""
    base = factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """The session's PostgreSQL."""
    return shared_server(_session_directory(tmp_path_factory))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the session's PostgreSQL, also when tests failed. The workers of xdist have ended by then."""
    factory = getattr(session.config, "_tmp_path_factory", None)
    if factory is not None and not os.environ.get("PYTEST_XDIST_WORKER"):
        stop_shared(_session_directory(factory))


@pytest.fixture(params=[1, 4], ids=["one partition", "four partitions"])
def partitions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every home that the test makes has one partition, then four; ask for it with `usefixtures`, so that it comes first."""
    count: int = request.param
    monkeypatch.setenv("DETENT_PARTITIONS", str(count))
    return count
