"""A result on its way into the kernel: how it ends the attempt, and what it leaves in the ledger."""

from __future__ import annotations

import pytest

from detent.jobs import JobResult, ResourceUsage, closing_of, project_job, read_result, usage_of, usage_reports
from detent.kernel import Grant, Outcome, Usage
from tests.jobs.envelopes import FAILED, failure, result, without
from tests.kernel.builders import Scene, code_of

CANCELLED = read_result({**without(FAILED, "error"), "status": "CANCELLED"})


def close(scene: Scene, grant: Grant, answer: JobResult) -> Outcome:
    return scene.finish(grant, **closing_of(answer)._asdict())


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (result(), "SUCCEEDED"),
        (read_result(FAILED), "FAILED"),
        (failure("RESOURCE_LIMIT", "LIMIT_WALL", "TIMED_OUT"), "TIMED_OUT"),
        (failure("RESOURCE_LIMIT", "LIMIT_CPU", "TIMED_OUT"), "TIMED_OUT"),
        (failure("RESOURCE_LIMIT", "LIMIT_MEMORY"), "FAILED"),
        (failure("RESOURCE_LIMIT", "LIMIT_OUTPUT"), "FAILED"),
        (failure("RESOURCE_LIMIT", "LIMIT_ARTIFACTS"), "FAILED"),
        (failure("SANDBOX_VIOLATION", "SYSCALL_REFUSED"), "FAILED"),
        (failure("DEPENDENCY_ERROR", "DATASET_MISSING"), "FAILED"),
        (failure("VALIDATION_ERROR", "VALIDATION_ERROR"), "FAILED"),
    ],
)
def test_a_job_shows_the_status_that_its_result_reports(answer: JobResult, status: str) -> None:
    """JOB-061..JOB-065, X-005, X-146"""
    scene = Scene()
    assert close(scene, scene.start(job_kind="platform"), answer).ok
    view = project_job(scene.job())
    assert view.status == answer.status == status
    assert view.reason_code == ("COMPLETED" if answer.error is None else answer.error.code)


def test_an_internal_error_is_tried_again_and_shown_as_running() -> None:
    """JOB-066, X-004"""
    scene = Scene()
    close(scene, scene.start(job_kind="platform"), failure("INTERNAL_ERROR", "WORKER_CRASHED"))
    assert (project_job(scene.job()).status, project_job(scene.job()).detail) == ("RUNNING", "retrying")


def test_a_worker_that_says_cancelled_unasked_is_at_fault_and_tried_again_up_to_the_bound() -> None:
    """X-158"""
    scene = Scene()
    scene.submit(job_kind="platform", max_retries=1)
    for state in ("RETRYING", "FAILED"):
        (grant,) = scene.claim()
        close(scene, grant, CANCELLED)
        assert scene.job().state == state
        scene.at(scene.tick + 40)
    assert project_job(scene.job()).status == "FAILED"


def test_a_result_after_a_cancel_is_discarded_whatever_it_says() -> None:
    """JOB-069, X-158"""
    for answer in (CANCELLED, result(), read_result(FAILED)):
        scene = Scene()
        grant = scene.start(job_kind="platform")
        scene.cancel()
        late = close(scene, grant, answer)
        assert (code_of(late), late.records) == ("LEASE_INVALID", [])
        assert project_job(scene.job()).status == "CANCELLED"


def test_usage_is_turned_into_the_units_of_the_ledger() -> None:
    """X-025"""
    usage = ResourceUsage(cpu_ms=1800, memory_mb_peak=210, gpu_ms=7, io_bytes_read=11, io_bytes_written=13)
    assert usage_of(usage) == Usage(0, 210 * 2**20, 11, 13, 7, 1800)
    assert usage_of(ResourceUsage(cpu_ms=1)) == Usage(0, 0, 0, 0, 0, 1)


def test_the_ledger_after_two_attempts_has_the_sum_of_times_and_the_highest_peak() -> None:
    """X-025"""
    scene = Scene()
    scene.submit()
    for peak in (210, 180):
        (grant,) = scene.claim()
        usage = ResourceUsage(cpu_ms=1800, memory_mb_peak=peak, io_bytes_read=5)
        for report in usage_reports(scene.tick, grant.job_id, grant.lease_id, usage):
            assert scene.apply(report).ok
        scene.fail(grant)
        scene.at(scene.tick + 40)
    assert scene.live().usage == Usage(0, 210 * 2**20, 10, 0, 0, 3600)
