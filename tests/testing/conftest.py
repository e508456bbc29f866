"""The fixtures as a project gets them; `pytest_plugins` may stand only in a top conftest."""

from __future__ import annotations

from detent.testing.plugin import detent_clock, detent_crash, detent_home

__all__ = ["detent_clock", "detent_crash", "detent_home"]
