"""What the sandbox must not break: honest code that uses the standard library, in every profile with a filter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from detent.errors import Refused
from detent.executor.sandbox import Job, Limits, Profile, Sandbox, probe, profile_of
from tests.executor.honest import GUESTS

FILTERED = [
    profile
    for profile in (Profile.FULL, Profile.FULL_ROOTLESS, Profile.KERNEL_FILTER)
    if profile.strength <= profile_of(probe()).strength
]


@pytest.fixture(scope="module", params=FILTERED, ids=lambda profile: profile.value)
def supervisor(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with Sandbox(profile=request.param, required=Profile.KERNEL_FILTER) as one:
        yield one


@pytest.mark.parametrize("name", GUESTS)
def test_honest_code_works(supervisor: Sandbox, name: str) -> None:
    """JOB-073"""
    execution = supervisor.run(Job(source=GUESTS[name], entry="main", limits=Limits(wall_ms=120_000)))
    assert not isinstance(execution, Refused)
    if name == "processes" and supervisor.profile is Profile.KERNEL_FILTER:
        # Locks that processes share lie in /dev/shm, which is the host's there.
        assert execution.raised is not None
        assert execution.raised.type == "PermissionError"
        return
    assert (execution.result, execution.message) == (b"true", "done"), (execution.raised, execution.stderr.text)
    supervisor.discard(execution)
