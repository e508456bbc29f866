"""Fakes that behave, for tests of Detent and for users' own, and a real home to try them on: nothing here sleeps.

`detent.testing.plugin` has the same as fixtures for pytest; docs/testing.md shows how they are used. No command imports this room.
"""

from __future__ import annotations

from detent.testing.faults import Crash, CrashAt, CrashPoints, Faults, faulty
from detent.testing.home import START_MS, FakeClock, TemporaryHome, temporary_home
from detent.testing.inline import Fails, InlineLane, Lost

__all__ = [
    "START_MS",
    "Crash",
    "CrashAt",
    "CrashPoints",
    "Fails",
    "FakeClock",
    "Faults",
    "InlineLane",
    "Lost",
    "TemporaryHome",
    "faulty",
    "temporary_home",
]
