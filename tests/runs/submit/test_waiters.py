"""What waits for which job, and which equal work can be joined."""

from __future__ import annotations

from detent.jobs.dedupe import ExecutionKey
from detent.runs.submit.waiters import Waiters

FLIGHT = (ExecutionKey("sha256:1"), None)


def test_a_waiter_for_the_job_of_another_is_not_one_more_job_of_its_own() -> None:
    """X-138, X-186."""
    waiters: Waiters[str] = Waiters()
    waiters.add("first", "job", own=True, flight=FLIGHT)
    waiters.add("second", "job")
    assert (len(waiters), list(waiters.own), waiters.foreign) == (1, ["job"], [])
    assert waiters.pop("job") == ["first", "second"]
    assert (len(waiters), list(waiters.own)) == (0, [])
    assert waiters.pop("job") == []


def test_a_job_that_has_ended_can_no_longer_be_joined() -> None:
    """X-186."""
    waiters: Waiters[str] = Waiters()
    waiters.add("first", "job", own=True, flight=FLIGHT)
    assert waiters.under_way == {FLIGHT: "job"}
    waiters.pop("job")
    assert waiters.under_way == {}


def test_a_later_job_for_the_same_work_is_joined_although_the_earlier_one_ends_after_it_began() -> None:
    waiters: Waiters[str] = Waiters()
    waiters.add("first", "job", own=True, flight=FLIGHT)
    waiters.add("second", "other", own=True, flight=FLIGHT)
    waiters.pop("job")
    assert waiters.under_way == {FLIGHT: "other"}


def test_what_joined_a_job_waits_on_while_the_queue_has_no_room_for_it() -> None:
    """X-031: the job is offered again; what joined it neither runs by itself nor is forgotten."""
    waiters: Waiters[str] = Waiters()
    waiters.add("first", "job", own=True, flight=FLIGHT)
    waiters.add("second", "job")
    waiters.withdraw("first", "job")
    assert (list(waiters.own), waiters.foreign, waiters.under_way) == ([], ["job"], {FLIGHT: "job"})
    assert waiters.of("job") == ["second"]


def test_a_job_that_was_not_submitted_and_that_nothing_joined_is_forgotten() -> None:
    waiters: Waiters[str] = Waiters()
    waiters.add("first", "job", own=True, flight=FLIGHT)
    waiters.withdraw("first", "job")
    assert "job" not in waiters
    assert waiters.under_way == {}


def test_every_open_job_is_polled_in_turn() -> None:
    waiters: Waiters[str] = Waiters()
    for number in range(5):
        waiters.add("one", f"job-{number}")
    polled = [list(waiters.some(2)) for _ in range(4)]
    assert polled == [["job-0", "job-1"], ["job-2", "job-3"], ["job-4"], ["job-1", "job-2"]]


def test_a_job_that_ended_before_its_submission_was_answered_is_not_offered_to_equal_work() -> None:
    """X-186: a failed job would answer for all later equal work."""
    waiters: Waiters[str] = Waiters()
    waiters.add("first", "job", own=True)
    waiters.pop("job")
    waiters.announce("job", FLIGHT)
    assert waiters.under_way == {}
