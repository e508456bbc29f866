"""A project on a home of its own, as the tests of runs have it."""

from tests.runs.conftest import detent_clock, detent_crash, detent_home, rig, tmp_path

__all__ = ["detent_clock", "detent_crash", "detent_home", "rig", "tmp_path"]
