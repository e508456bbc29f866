from __future__ import annotations

from typing import Any

import pytest

from detent.jobs import DedupeRequest, ExecutionKey, JobStatus, Join, Limits, PriorJob, Reuse, Run, dedupe

KEY = ExecutionKey("sha256:" + "a" * 64)
OTHER_KEY = ExecutionKey("sha256:" + "b" * 64)


def prior(status: str, job_id: str = "old", position: int = 1, **fields: Any) -> PriorJob:
    named: dict[str, Any] = {"workspace_id": "w", "execution_key": KEY}
    return PriorJob(**{**named, **fields}, job_id=job_id, status=JobStatus(status), position=position)


def asked(**fields: Any) -> DedupeRequest:
    named: dict[str, Any] = {"workspace_id": "w", "execution_key": KEY}
    return DedupeRequest(**{**named, **fields})


REUSED = {status: Reuse("old", JobStatus(status)) for status in ("SUCCEEDED", "FAILED")}


@pytest.mark.parametrize(
    ("status", "plain", "reuse_failed", "join"),
    [
        ("PENDING", Run(), Run(), Join("old")),
        ("QUEUED", Run(), Run(), Join("old")),
        ("RUNNING", Run(), Run(), Join("old")),
        ("SUCCEEDED", REUSED["SUCCEEDED"], REUSED["SUCCEEDED"], REUSED["SUCCEEDED"]),
        ("FAILED", Run(), REUSED["FAILED"], Run()),
        ("CANCELLED", Run(), Run(), Run()),
        ("TIMED_OUT", Run(), Run(), Run()),
    ],
)
def test_the_answer_for_every_status_of_a_prior_job(status: str, plain: Any, reuse_failed: Any, join: Any) -> None:
    """JOB-026..JOB-028, X-149"""
    assert dedupe(asked(), [prior(status)]) == plain
    assert dedupe(asked(reuse_failed=True), [prior(status)]) == reuse_failed
    assert dedupe(asked(in_flight_policy="join"), [prior(status)]) == join


def test_nothing_prior_means_run() -> None:
    """X-149"""
    assert dedupe(asked(reuse_failed=True, in_flight_policy="join"), []) == Run()


def test_the_first_committed_of_several_successes_is_reused() -> None:
    """X-149"""
    jobs = [prior("SUCCEEDED", "a", 9), prior("SUCCEEDED", "c", 4), prior("SUCCEEDED", "b", 12)]
    assert dedupe(asked(), jobs) == dedupe(asked(), reversed(jobs)) == Reuse("c", JobStatus.SUCCEEDED)


def test_a_success_is_preferred_to_failures_and_to_work_in_progress() -> None:
    """JOB-026, X-149"""
    jobs = [prior("FAILED", "failed", 1), prior("RUNNING", "running", 2), prior("SUCCEEDED", "done", 3)]
    request = asked(reuse_failed=True, in_flight_policy="join")
    assert dedupe(request, jobs) == Reuse("done", JobStatus.SUCCEEDED)
    assert dedupe(request, jobs[:2]) == Reuse("failed", JobStatus.FAILED)
    assert dedupe(asked(in_flight_policy="join"), jobs[:2]) == Join("running")


def test_the_oldest_job_in_progress_is_joined() -> None:
    """X-149"""
    jobs = [prior("QUEUED", "young", 8), prior("RUNNING", "old", 3)]
    assert dedupe(asked(in_flight_policy="join"), jobs) == Join("old")


@pytest.mark.parametrize("foreign", [{"workspace_id": "v"}, {"execution_key": OTHER_KEY}])
def test_jobs_of_another_workspace_or_key_never_answer(foreign: dict[str, Any]) -> None:
    """X-148"""
    jobs = [prior("SUCCEEDED", **foreign), prior("RUNNING", **foreign)]
    assert dedupe(asked(reuse_failed=True, in_flight_policy="join"), jobs) == Run()


def test_an_erased_result_is_no_answer() -> None:
    """JOB-026"""
    jobs = [prior("SUCCEEDED", "erased", 1, available=False), prior("SUCCEEDED", "kept", 2)]
    assert dedupe(asked(), jobs) == Reuse("kept", JobStatus.SUCCEEDED)
    assert dedupe(asked(), jobs[:1]) == Run()


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_an_outcome_shaped_by_its_limits_answers_only_under_the_same_limits(status: str) -> None:
    """JOB-063"""
    job = prior(status, limits=Limits(), limit_bound=True)
    assert dedupe(asked(reuse_failed=True, limits=Limits()), [job]) == REUSED[status]
    assert dedupe(asked(reuse_failed=True, limits=Limits(memory_mb=1024)), [job]) == Run()
    free = prior(status, limits=Limits())
    assert dedupe(asked(reuse_failed=True, limits=Limits(memory_mb=1024)), [free]) == REUSED[status]


def test_an_answer_without_a_new_job_says_so() -> None:
    """X-149"""
    assert (REUSED["FAILED"].deduplicated, Join("old").deduplicated, Run().deduplicated) == (True, True, False)
