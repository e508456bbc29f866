"""Fakes that behave, for tests of Detent and for users' own: nothing here sleeps, reads a clock or draws a number."""

from __future__ import annotations

from detent.testing.clock import FakeClock
from detent.testing.crash import Crash, CrashAt
from detent.testing.faulty_store import Faults, faulty

__all__ = ["Crash", "CrashAt", "FakeClock", "Faults", "faulty"]
