"""Destinations lie in memory where there is room: a sync to a busy disk takes longer than a test."""

from tests.owner.conftest import tmp_path

__all__ = ["tmp_path"]
