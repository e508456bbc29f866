"""A caller that drives, on a home whose owner fails under it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from detent.jobs.order import Call
from detent.runs.runtime import Runtime
from detent.runs.single_jobs import SingleJobs
from detent.runs.submit.calls import JobRequest
from detent.testing import CrashPoints
from detent.workers.drive import Drive
from tests.runs.rig import WAIT_SECONDS, Rig

POINTS = ["sealed", "appended", "committed"]


def jobs(rig: Rig, work: Runtime) -> tuple[SingleJobs, JobRequest]:
    return SingleJobs(work), JobRequest(Call(kind="python", target="steps:one", base=str(rig.project)), "label")


def test_a_caller_whose_time_is_over_does_not_drive() -> None:
    """It may be over between the caller's last look at the clock and the turn it asks for."""
    drive = Drive()
    with drive.turn(), ThreadPoolExecutor(1) as other:
        assert not other.submit(drive.take, -0.001, lambda: None).result(WAIT_SECONDS)


@pytest.mark.parametrize("point", POINTS)
def test_a_report_whose_commit_fails_under_a_caller_is_made_again(
    rig: Rig, detent_crash: CrashPoints, point: str
) -> None:
    """X-173: the caller leaves it to the supervisor's thread, and waits; the job ends once."""
    work = rig.work()
    single, request = jobs(rig, work)
    try:
        rig.lane.held = {"steps:one"}
        (ticket,) = single.submit([request])
        detent_crash.at(point)
        rig.lane.release("steps:one")
        assert single.wait(ticket, WAIT_SECONDS)
    finally:
        single.close()
    assert ticket.state == "SUCCEEDED"
    assert detent_crash.crashes == [point]
    assert len(rig.lane.began) == 1


@pytest.mark.parametrize("point", POINTS)
def test_a_submission_that_fails_with_reports_is_made_again_without_them(
    rig: Rig, detent_crash: CrashPoints, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The ends of earlier jobs and a new job in one commit: whether it stood or not, each happens once."""
    work = rig.work()
    single, request = jobs(rig, work)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("detent.workers.drive.LINGER_SECONDS", WAIT_SECONDS)
            first = single.submit([request])
            assert single.wait(first[0], WAIT_SECONDS)
            tickets = [single.submit([request])[0] for _ in range(5)]
        detent_crash.at(point)
        tickets += [single.submit([request])[0] for _ in range(5)]
        assert all(single.wait(ticket, WAIT_SECONDS) for ticket in tickets)
    finally:
        single.close()
    assert {ticket.state for ticket in tickets} == {"SUCCEEDED"}
    assert detent_crash.crashes == [point]
    began = [assignment.job_id for assignment in rig.lane.began]
    assert len(began) == len(set(began)) == 11
