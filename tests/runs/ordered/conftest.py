"""A project of a test's own on a home of its own; when the test is over, its whole history is verified and replayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.testing import TemporaryHome
from detent.testing.plugin import detent_clock, detent_crash, detent_home
from tests.runs.ordered.map_steps import MORE, add
from tests.runs.ordered.rig import OrderedRig

__all__ = ["detent_clock", "detent_crash", "detent_home"]


@pytest.fixture
def rig(detent_home: TemporaryHome, monkeypatch: pytest.MonkeyPatch) -> Iterator[OrderedRig]:
    made = OrderedRig(detent_home)
    monkeypatch.chdir(made.project)
    yield made
    made.close()
    made.check()


@pytest.fixture
def project(rig: OrderedRig) -> OrderedRig:
    """With the functions that map steps call."""
    add(rig, MORE)
    return rig
