"""Crash points: the owner ends where it was told to, and the home goes on from what was durable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detent.errors import DetentError
from detent.testing import CrashAt, CrashPoints, TemporaryHome
from tests.testing.jobs import ask, state, submission

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
from pathlib import Path
from detent.testing import CrashAt, TemporaryHome
from tests.testing.jobs import ask, submission

home = TemporaryHome(Path(sys.argv[1]))
ask(home.session(crash_point=CrashAt(sys.argv[2], times=2, kill=True)), submission(home, "job-1"))
print("survived")
"""


@pytest.mark.parametrize(("point", "durable"), [("sealed", False), ("appended", True), ("committed", True)])
def test_a_crash_leaves_what_was_durable_and_nothing_else(
    detent_home: TemporaryHome, detent_crash: CrashPoints, point: str, durable: bool
) -> None:
    session = detent_home.session()
    detent_crash.at(point)
    with pytest.raises(DetentError):
        ask(session, submission(detent_home, "job-1"))
    assert detent_crash.crashes == [point]
    assert (state(detent_home, "job-1") == "QUEUED") is durable
    # The next request opens the home again; asking once more is safe either way.
    ask(session, submission(detent_home, "job-1"))
    assert state(detent_home, "job-1") == "QUEUED"
    session.close()
    assert detent_home.verify().ok


def test_a_crash_comes_at_the_time_it_was_told(detent_home: TemporaryHome, detent_crash: CrashPoints) -> None:
    session = detent_home.session()
    before = detent_crash.passed["appended"]
    detent_crash.at("appended", times=3)
    for number in (1, 2):
        ask(session, submission(detent_home, f"job-{number}"))
    assert detent_crash.crashes == []
    with pytest.raises(DetentError):
        ask(session, submission(detent_home, "job-3"))
    assert detent_crash.passed["appended"] == before + 3
    assert detent_crash.crashes == ["appended"]


def test_turns_in_which_nothing_happens_pass_no_point(detent_home: TemporaryHome, detent_crash: CrashPoints) -> None:
    detent_home.session()
    before = dict(detent_crash.passed)
    for point in detent_crash.names:
        detent_crash.at(point)
    for _ in range(5):
        detent_home.take_turns()
    assert detent_crash.passed == before
    assert detent_crash.crashes == []


def test_crashes_can_follow_one_another(detent_home: TemporaryHome, detent_crash: CrashPoints) -> None:
    session = detent_home.session()
    for point in detent_crash.names:
        detent_crash.at(point)
        with pytest.raises(DetentError):
            ask(session, submission(detent_home, f"job-{point}"))
        ask(session, submission(detent_home, f"job-{point}"))
    assert detent_crash.crashes == list(detent_crash.names)
    session.close()
    assert detent_home.verify().ok


@pytest.mark.parametrize(("point", "durable"), [("sealed", False), ("appended", True)])
def test_a_process_can_be_killed_at_a_point(detent_home: TemporaryHome, point: str, durable: bool) -> None:
    environment = {**os.environ, **detent_home.environment, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    ended = subprocess.run(
        [sys.executable, "-c", CHILD, str(detent_home.directory), point],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, ""), ended.stderr
    assert (state(detent_home, "job-1") == "QUEUED") is durable
    detent_home.session().close()
    assert detent_home.verify().ok


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no crash point 'somewhere'; known: decided, sealed, appended, committed"):
        CrashAt("somewhere")
    with pytest.raises(ValueError, match="no crash point 'decided'; known: sealed, appended, committed"):
        CrashPoints().at("decided")
    with pytest.raises(ValueError, match="counted from 1"):
        CrashAt("sealed", 0)
