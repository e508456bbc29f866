"""The platform's seven statuses and how they come out of the kernel's six states."""

from __future__ import annotations

from itertools import product

import pytest

from detent.errors import CODES, InvalidInput, InvariantBroken
from detent.jobs import (
    STATUS_MOVES,
    TERMINAL_STATUSES,
    TIMEOUT_CODES,
    JobStatus,
    StatusView,
    project_job,
    project_status,
    read_result,
)
from detent.kernel import State
from tests.jobs.envelopes import SUCCEEDED
from tests.kernel.builders import Scene, quota, scene_in

SEVEN_MOVES = {
    ("PENDING", "QUEUED"),
    ("QUEUED", "RUNNING"),
    ("QUEUED", "CANCELLED"),
    ("RUNNING", "SUCCEEDED"),
    ("RUNNING", "FAILED"),
    ("RUNNING", "CANCELLED"),
    ("RUNNING", "TIMED_OUT"),
}


def test_the_statuses_are_exactly_the_seven_of_the_contract() -> None:
    """JOB-011"""
    names = ("PENDING", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT")
    assert tuple(status.value for status in JobStatus) == names
    assert {"SUCCEEDED", "FAILED", "CANCELLED", "TIMED_OUT"} == TERMINAL_STATUSES


def test_exactly_seven_moves_may_be_shown() -> None:
    """JOB-012..JOB-016"""
    assert {(source, target) for source, targets in STATUS_MOVES.items() for target in targets} == SEVEN_MOVES


@pytest.mark.parametrize(
    ("state", "dispatched", "status"),
    [
        (None, False, "PENDING"),
        ("QUEUED", False, "QUEUED"),
        ("RUNNING", True, "RUNNING"),
        ("RETRYING", True, "RUNNING"),
        ("QUEUED", True, "RUNNING"),
        ("SUCCEEDED", True, "SUCCEEDED"),
        ("FAILED", True, "FAILED"),
        ("CANCELED", False, "CANCELLED"),
        ("CANCELED", True, "CANCELLED"),
    ],
)
def test_every_row_of_the_lifecycle_map_is_projected(state: str | None, dispatched: bool, status: str) -> None:
    """X-002, X-003"""
    assert project_status(state, dispatched) == status


@pytest.mark.parametrize("code", [*sorted(CODES), None, "PYTHON_EXCEPTION"])
def test_a_failure_is_a_time_out_exactly_when_its_code_is_a_deadline(code: str | None) -> None:
    """X-005, X-146"""
    deadlines = {"WATCHDOG_WALL", "WATCHDOG_IDLE", "LIMIT_WALL", "LIMIT_CPU"}
    expected = "TIMED_OUT" if code in deadlines else "FAILED"
    assert project_status("FAILED", ever_dispatched=True, failure_code=code) == expected


def test_deadline_codes_are_registered_as_resource_limits() -> None:
    """X-146"""
    assert {CODES[code].category for code in TIMEOUT_CODES} == {"RESOURCE_LIMIT"}


@pytest.mark.parametrize("state", [state for state in State if state is not State.FAILED])
def test_a_deadline_code_counts_in_a_failed_job_only(state: State) -> None:
    """X-005"""
    assert project_status(state, True, "LIMIT_WALL") == project_status(state, True, None) != "TIMED_OUT"


@pytest.mark.parametrize("foreign", ["CANCELED", "RETRYING", "cancelled", "", None, 3])
def test_a_foreign_spelling_is_refused_in_a_result(foreign: object) -> None:
    """X-002"""
    with pytest.raises(InvalidInput) as caught:
        read_result({**SUCCEEDED, "status": foreign})
    assert (caught.value.code, caught.value.details["path"]) == ("VALIDATION_ERROR", "status")


def test_what_is_no_kernel_state_is_never_projected() -> None:
    """X-002"""
    for foreign in ("CANCELLED", "TIMED_OUT", "PENDING", ""):
        with pytest.raises(InvariantBroken):
            project_status(foreign)


def test_the_projection_is_a_function_of_state_dispatch_and_code_alone() -> None:
    """JOB-018: two jobs that differ in everything else show the same."""
    for state, dispatched, code in product(State, (False, True), (None, "LIMIT_CPU")):
        assert project_status(state, dispatched, code) is project_status(state.value, dispatched, code)


def test_a_job_waiting_for_another_attempt_is_running_with_a_detail() -> None:
    """X-004"""
    scene = scene_in("RETRYING")
    assert project_job(scene.job()) == StatusView(JobStatus.RUNNING, "retrying", 0)
    scene.at(10)
    assert scene.job().state == "QUEUED"
    assert project_job(scene.job()) == StatusView(JobStatus.RUNNING, "retrying", 1)
    (grant,) = scene.claim()
    assert project_job(scene.job()) == StatusView(JobStatus.RUNNING, None, 1)
    scene.finish(grant)
    assert project_job(scene.job()) == StatusView(JobStatus.SUCCEEDED, None, 1, "COMPLETED")


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "RETRYING"])
def test_a_cancelled_job_shows_the_reason(state: str) -> None:
    """JOB-067, X-002"""
    scene = scene_in(state)
    for reason in ("SUPERSEDED", "CANCELLED_BY_USER"):
        scene.cancel(reason_code=reason)
        assert project_job(scene.job()).status == "CANCELLED"
    assert project_job(scene.job()).reason_code == "SUPERSEDED"


def test_a_job_over_quota_before_its_next_start_shows_cancelled_with_the_budget() -> None:
    """JOB-067"""
    budget = quota(cpu_time_budget_ms=0)
    scene = Scene()
    scene.kernel.reconfigure(type(scene.kernel.config)(quota_policies=(budget,)))
    scene.submit(quota=budget)
    scene.live().usage.cpu_time_ms = 1
    assert scene.claim() == []
    assert project_job(scene.job()) == StatusView(JobStatus.CANCELLED, None, 0, "QUOTA_CPU_TIME")


def test_a_job_the_kernel_does_not_know_yet_is_pending() -> None:
    """X-006"""
    assert project_job(None) == StatusView(JobStatus.PENDING)
