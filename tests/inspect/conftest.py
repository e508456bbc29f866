"""Fixtures of the owner's tests: what is read here was written by an owner."""

from tests.owner.conftest import rig, store, tmp_path

__all__ = ["rig", "store", "tmp_path"]
