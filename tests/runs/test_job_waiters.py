"""Who waits for which job, and how many of them count against a run's own limit."""

from __future__ import annotations

from typing import Any

from detent.jobs.keys import ExecutionKey
from detent.reuse.work_keys import Wanted, WorkKey
from detent.runs.record.step_run import Element
from detent.runs.steps.job_waiters import JobWaiters

STEP: Any = None
"""What an element belongs to; these tests do not use it."""


def element(job_id: str) -> Element:
    return Element(STEP, None, job_id)


def work_key(key: str | None = "sha256:1") -> WorkKey:
    return WorkKey(None if key is None else ExecutionKey(key), {}, Wanted(kind="python", target="steps:one"))


def test_who_waits_for_the_job_of_another_does_not_count_as_one_more_under_way() -> None:
    """X-138, X-186."""
    awaited, own, other = JobWaiters(), element("own"), element("other")
    awaited.add(own, "own", work_key())
    awaited.add(other, "own", work_key())
    assert (awaited.live, awaited.joined) == (2, 1)
    assert awaited.pop("own") == [own, other]
    assert (awaited.live, awaited.joined) == (0, 0)
    assert awaited.pop("own") == []


def test_the_work_key_of_a_job_is_kept_only_for_elements_that_joined_it() -> None:
    """X-186: they record it when they take its result. A long run keeps nothing of what has ended."""
    awaited, own, other, made = JobWaiters(), element("own"), element("other"), work_key()
    awaited.add(own, "own", work_key())
    awaited.add(other, "own", made)
    awaited.pop("own")
    assert awaited.work_key(own) is None
    assert awaited.work_key(other) is made


def test_a_job_that_has_ended_is_not_joined_any_more() -> None:
    """X-186."""
    awaited, own, other = JobWaiters(), element("own"), element("other")
    awaited.add(own, "own", work_key())
    assert awaited.same_work(other, work_key()) == "own"
    assert awaited.same_work(own, work_key()) is None
    assert awaited.same_work(other, work_key("sha256:2")) is None
    awaited.pop("own")
    assert awaited.same_work(other, work_key()) is None
