from __future__ import annotations

from dataclasses import replace

import pytest

from detent.errors import CODES
from detent.jobs import JobStatus, Revised, superseded_by
from detent.jobs.dedupe import SUPERSEDED

NEW = Revised("w", "new", "object_execute", "d", frozenset({"a"}), revision_number=3)
OLD = replace(NEW, job_id="old", revision_number=2, status=JobStatus.RUNNING)


def test_nothing_is_superseded_unless_the_policy_is_on() -> None:
    """JOB-067, X-034"""
    assert superseded_by(NEW, [OLD]) == []
    assert superseded_by(NEW, [OLD], enabled=True) == ["old"]
    assert SUPERSEDED in CODES


@pytest.mark.parametrize("status", JobStatus)
def test_only_jobs_that_have_not_ended_are_superseded(status: JobStatus) -> None:
    """X-034"""
    expected = ["old"] if status in {"PENDING", "QUEUED", "RUNNING"} else []
    assert superseded_by(NEW, [replace(OLD, status=status)], enabled=True) == expected


@pytest.mark.parametrize(
    "other",
    [
        replace(OLD, workspace_id="v"),
        replace(OLD, document_id="e"),
        replace(OLD, job_type="object_render"),
        replace(OLD, object_ids=frozenset({"a", "b"})),
        replace(OLD, revision_number=3),
        replace(OLD, revision_number=4),
    ],
)
def test_other_work_and_newer_work_is_left_alone(other: Revised) -> None:
    """X-034"""
    assert superseded_by(NEW, [other], enabled=True) == []


def test_the_answer_does_not_depend_on_the_order_of_the_jobs() -> None:
    jobs = [replace(OLD, job_id=name) for name in ("c", "a", "b")]
    assert superseded_by(NEW, jobs, enabled=True) == superseded_by(NEW, jobs[::-1], enabled=True) == ["a", "b", "c"]
