"""Fixtures for pytest. A project asks for them in its top ``conftest.py``::

    pytest_plugins = ["detent.testing.plugin"]

They are not registered as an entry point: that would load Detent into every run of pytest in an environment where it
happens to be installed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.owner.wiring import Parts
from detent.testing.faults import CrashPoints
from detent.testing.home import START_MS, FakeClock, TemporaryHome, temporary_home


@pytest.fixture
def detent_clock() -> FakeClock:
    """A clock that stays at 2024-01-01 00:00 UTC until the test moves it; `detent_home` then runs on it."""
    return FakeClock(START_MS)


@pytest.fixture
def detent_crash() -> CrashPoints:
    """The crash points of `detent_home`: ``detent_crash.at("sealed")`` ends its owner at the next sealed batch."""
    return CrashPoints()


@pytest.fixture
def detent_home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TemporaryHome]:
    """A home of the test's own, which everything that looks for one finds; gone afterwards.

    It runs on the machine's clock and without crash points, unless the test asks for `detent_clock` or `detent_crash`.
    """
    wanted = request.fixturenames
    parts = Parts(
        **({"clock": request.getfixturevalue("detent_clock")} if "detent_clock" in wanted else {}),
        crash_point=request.getfixturevalue("detent_crash") if "detent_crash" in wanted else None,
    )
    with temporary_home(parts) as home:
        for name, value in home.environment.items():
            monkeypatch.setenv(name, value)
        yield home
