"""Calls that are on no list of a runner are refused in every profile, as root and as a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from detent.executor.sandbox import Input, Job, Profile, Sandbox, filter_rules
from tests.hostile import as_user, outside
from tests.hostile.payloads import SMALL
from tests.hostile.rig import CONTAINED, STRONG, run

FILTERED = [*CONTAINED, *([Profile.KERNEL_FILTER] if STRONG.strength >= Profile.KERNEL_FILTER.strength else [])]
NOTHING: dict[str, list[str]] = {runner: [] for runner in filter_rules.RUNNERS}


@pytest.mark.parametrize("profile", FILTERED, ids=lambda profile: profile.value)
def test_a_call_outside_the_list_is_refused(profile: Profile) -> None:
    """JOB-060, JOB-073"""
    assert len(outside.calls("code")) > 100
    assert outside.let_through(profile) == NOTHING


def test_a_call_outside_the_list_is_refused_for_an_ordinary_user() -> None:
    """JOB-060, JOB-073"""
    if os.geteuid() != 0:
        return  # The test above is this one.
    answer = subprocess.run(
        [sys.executable, as_user.__file__, "outside"], capture_output=True, timeout=600, check=False
    )
    assert answer.returncode == 0, answer.stderr.decode()
    assert json.loads(answer.stdout) == {profile.value: NOTHING for profile in FILTERED if profile is not Profile.FULL}


LOCKS = """
import fcntl, os, struct
def attempt(call):
    try:
        call()
        return "held"
    except OSError as exc:
        return exc.errno
def main(given):
    shared, found = os.open(os.__file__, os.O_RDONLY), {}
    places = {"library": shared, "directory": os.open(os.path.dirname(os.__file__), os.O_RDONLY),
              "device": os.open("/dev/null", os.O_RDWR), "own": os.open("own", os.O_RDWR | os.O_CREAT)}
    if given:
        places["input"] = os.open(os.environ["DETENT_INPUTS"] + "/given", os.O_RDONLY)
    for name, f in places.items():
        found[name] = [attempt(lambda: fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)),
                       attempt(lambda: fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB)),
                       attempt(lambda: fcntl.fcntl(f, fcntl.F_GETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)))]
    found["notices"] = [attempt(lambda: fcntl.fcntl(places["directory"], command, 1)) for command in (1024, 1026, 37)]
    return found
"""


@pytest.mark.parametrize("profile", FILTERED, ids=lambda profile: profile.value)
def test_files_that_jobs_share_cannot_be_locked(profile: Profile) -> None:
    """JOB-073: a lock on a file of the runtime, an input or a device is seen by every job that has the same one."""
    with Sandbox(profile=profile, required=Profile.KERNEL_FILTER) as supervisor:
        given = supervisor.staging / "given"
        given.write_text("x")
        given.chmod(0o444)
        inputs = {"given": Input(given)} if profile is not Profile.KERNEL_FILTER else {}
        job = Job(source=LOCKS, entry="main", parameters={"given": bool(inputs)}, inputs=inputs, limits=SMALL)
        execution = run(supervisor, job)
        assert execution.result is not None, execution.message
        found = json.loads(execution.result)
    refused = [37, 37, 37]
    assert found.pop("own") == ["held", "held", "held"]
    assert found.pop("notices") == [22, 22, 22]
    assert found == dict.fromkeys(found, refused)
