from __future__ import annotations

from typing import Any

import pytest

from detent.errors import CODES
from detent.jobs import ErrorCategory, category_of
from detent.jobs.status import code_fault
from tests.jobs.envelopes import failure
from tests.kernel.builders import Scene

FINAL = ("USER_CODE_ERROR", "VALIDATION_ERROR", "RESOURCE_LIMIT", "SANDBOX_VIOLATION", "DEPENDENCY_ERROR")


def test_the_categories_are_exactly_the_six_of_the_contract() -> None:
    """JOB-060"""
    assert [category.value for category in ErrorCategory] == [*FINAL, "INTERNAL_ERROR"]


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_registered_code_has_the_category_of_the_registry(code: str) -> None:
    """JOB-060"""
    found = category_of(code)
    assert (None if found is None else found.value) == CODES[code].category


def test_an_unregistered_code_has_no_category_of_its_own() -> None:
    assert category_of("PYTHON_EXCEPTION") is None


@pytest.mark.parametrize("category", FINAL)
def test_a_platform_job_is_tried_once_after_every_category_but_one(category: str) -> None:
    """JOB-061..JOB-065"""
    scene = Scene()
    scene.fail(scene.start(job_kind="platform"), category=category)
    assert (scene.job().state, scene.job().attempt_id) == ("FAILED", 0)


def test_an_internal_error_of_a_platform_job_is_retried_up_to_its_bound() -> None:
    """JOB-066"""
    scene = Scene()
    scene.submit(job_kind="platform", max_retries=2)
    attempts = 0
    while scene.job().state != "FAILED":
        (grant,) = scene.claim()
        attempts += 1
        scene.fail(grant, category="INTERNAL_ERROR")
        scene.at(scene.tick + 40)
    assert attempts == 3


@pytest.mark.parametrize("job_kind", ["task", "action", "seq"])
def test_a_users_own_job_retries_what_its_manifest_says(job_kind: str) -> None:
    """X-164"""
    named: dict[str, Any] = {"job_kind": job_kind, "retry_categories": ("USER_CODE_ERROR",)}
    scene = Scene()
    scene.fail(scene.start(**named), category="USER_CODE_ERROR")
    assert scene.job().state == "RETRYING"


def test_a_failure_cannot_carry_a_registered_code_under_another_category() -> None:
    """JOB-060: a guest must not be able to choose that its failure is retried, or that it timed out."""
    assert code_fault("LIMIT_MEMORY", ErrorCategory.RESOURCE_LIMIT) is None
    assert code_fault("PYTHON_EXCEPTION", ErrorCategory.USER_CODE_ERROR) is None
    assert code_fault("LIMIT_WALL", ErrorCategory.USER_CODE_ERROR) == (
        "LIMIT_WALL belongs to RESOURCE_LIMIT, not to USER_CODE_ERROR"
    )
    assert code_fault("QUEUE_FULL", ErrorCategory.INTERNAL_ERROR) == "QUEUE_FULL is not a code a job can fail with"
    assert failure("RESOURCE_LIMIT", "LIMIT_MEMORY").error is not None
