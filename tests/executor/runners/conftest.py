"""One supervisor for all tests of a worker, in the strongest profile there is; none, no tests (`test_refused` has those)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.executor.sandbox import Profile, Sandbox
from tests.executor.runners.rig import Backend, backend
from tests.hostile.rig import CONTAINED, traces


@pytest.fixture(scope="session", params=CONTAINED[:1], ids=lambda profile: profile.value)
def contained(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    profile: Profile = request.param
    with Sandbox(profile=profile, warm=1) as supervisor:
        yield supervisor


@pytest.fixture
def here(contained: Sandbox, tmp_path: Path) -> Iterator[Backend]:
    """A desk with a store of its own. Afterwards nothing is left: no process, group, mount, and no file at all."""
    before = set(
        contained.staging.iterdir()
    )  # Other tests may keep what their jobs left, for as long as they look at it.
    yield backend(contained, tmp_path / "content")
    assert traces(contained) == []
    assert set(contained.staging.iterdir()) <= before
