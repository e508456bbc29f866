from __future__ import annotations

from typing import Any

import pytest

from detent.errors import InvalidInput
from detent.jobs import JobStatus, Timeline, timeline
from tests.kernel.builders import Scene, body_of

ALL = ["PENDING", "QUEUED", "RUNNING"]


def told(scene: Scene) -> Timeline:
    return timeline(body_of(record) for record in scene.records)


def test_a_job_without_records_is_pending() -> None:
    """X-006"""
    assert timeline(()) == Timeline()
    assert timeline(()).answer(tick_ms=1, epoch_base_ms=0)["status"] == "PENDING"


def test_a_retried_job_never_leaves_running_until_it_ends() -> None:
    """X-004, X-033"""
    scene = Scene()
    scene.tick = 5
    scene.submit()
    scene.at(8)
    (grant,) = scene.claim()
    scene.at(20)
    scene.fail(grant)
    assert (told(scene).status, told(scene).detail, told(scene).attempt) == ("RUNNING", "retrying", 0)
    scene.at(30)
    scene.at(37)
    (grant,) = scene.claim()
    scene.at(50)
    scene.finish(grant)
    story = told(scene)
    assert story.history == (*ALL, "SUCCEEDED")
    assert story.answer(tick_ms=2, epoch_base_ms=1_000) == {
        "status": "SUCCEEDED",
        "detail": None,
        "attempt": 1,
        "reason_code": "COMPLETED",
        "submitted_at": "1970-01-01T00:00:01.010Z",
        "first_started_at": "1970-01-01T00:00:01.016Z",
        "started_at": "1970-01-01T00:00:01.074Z",
        "finished_at": "1970-01-01T00:00:01.100Z",
        "queue_time_ms": 14,
    }


def test_a_job_cancelled_before_its_claim_never_shows_running_and_never_started() -> None:
    """JOB-015, X-006"""
    scene = Scene()
    scene.submit()
    scene.at(4)
    scene.cancel()
    assert scene.edges() == ["QUEUED->RUNNING", "RUNNING->CANCELED"]
    story = told(scene)
    assert story.history == ("PENDING", "QUEUED", "CANCELLED")
    assert (story.started_tick, story.queue_ticks, story.finished_tick) == (None, None, 4)


def test_a_job_cancelled_while_it_waits_for_a_retry_keeps_its_last_real_start() -> None:
    """JOB-014, X-033"""
    scene = Scene()
    grant = scene.start()
    scene.at(3)
    scene.fail(grant)
    scene.at(7)
    scene.cancel()
    assert scene.edges()[-3:] == ["RETRYING->QUEUED", "QUEUED->RUNNING", "RUNNING->CANCELED"]
    story = told(scene)
    assert story.history == (*ALL, "CANCELLED")
    assert (story.started_tick, story.queue_ticks, story.finished_tick) == (0, 0, 7)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"kind": "result", "reason_code": "LIMIT_CPU", "category": "RESOURCE_LIMIT"}, "TIMED_OUT"),
        ({"kind": "watchdog", "reason_code": "WATCHDOG_IDLE", "category": None}, "TIMED_OUT"),
        ({"kind": "result", "reason_code": "LIMIT_MEMORY", "category": "RESOURCE_LIMIT"}, "FAILED"),
    ],
)
def test_a_failed_job_ends_in_the_status_of_its_code(fields: dict[str, Any], status: str) -> None:
    """JOB-014, X-005, X-146"""
    scene = Scene()
    scene.fail(scene.start(), **fields)
    assert told(scene).history == (*ALL, status)


def test_the_middle_of_a_commit_batch_is_never_shown() -> None:
    """X-003: records up to the middle of a batch show what stood before it."""
    scene = Scene()
    scene.submit()
    scene.cancel()
    bodies = [body_of(record) for record in scene.records]
    assert [timeline(bodies[:count]).status for count in range(4)] == ["PENDING", "QUEUED", "QUEUED", "CANCELLED"]


def test_records_of_a_batch_that_is_not_whole_give_no_times_either() -> None:
    scene = Scene()
    scene.submit()
    scene.cancel()
    assert timeline([body_of(record) for record in scene.records[:2]]).started_tick is None


def test_records_that_do_not_follow_each_other_are_refused() -> None:
    scene = Scene()
    scene.finish(scene.start())
    bodies = [body_of(record) for record in scene.records]
    with pytest.raises(InvalidInput, match="submission"):
        timeline(bodies[1:])
    with pytest.raises(InvalidInput, match="QUEUED"):
        timeline([bodies[0], bodies[2]])
    with pytest.raises(InvalidInput, match="QUEUED"):
        timeline([bodies[0], bodies[0]])
    assert timeline(bodies).status is JobStatus.SUCCEEDED
