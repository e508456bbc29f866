"""How hypothesis runs here, the time limit that every test has, and the marker of the doors.

`quick` is for a person at work: few examples, new ones each time. `ci` draws the same ones each time, so that a red build
is red for everybody. `soak` looks long. `HYPOTHESIS_PROFILE` chooses; otherwise `CI` does.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.time_limit"]

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
