"""A project of a test's own on a home of its own; when the test is over, its whole history is verified and replayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_crash, detent_home
from tests.owner.conftest import tmp_path
from tests.runs.rig import Rig

__all__ = ["detent_clock", "detent_crash", "detent_home", "tmp_path"]


@pytest.fixture
def rig(detent_home: TemporaryHome) -> Iterator[Rig]:
    made = Rig(detent_home)
    yield made
    made.close()
    made.check()
