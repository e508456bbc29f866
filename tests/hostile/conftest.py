"""One supervisor for each profile that contains untrusted code, shared by all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.executor.sandbox import Profile, Sandbox
from tests.hostile.payloads import SMALL
from tests.hostile.rig import CONTAINED, traces


@pytest.fixture(scope="session", params=CONTAINED, ids=lambda profile: profile.value)
def contained(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    profile: Profile = request.param
    with Sandbox(profile=profile, warm=1, warm_limits=SMALL) as supervisor:
        yield supervisor


@pytest.fixture
def supervisor(contained: Sandbox) -> Iterator[Sandbox]:
    """The same, and after each test nothing may be left: no process, file, mount or control group."""
    yield contained
    assert traces(contained) == []
