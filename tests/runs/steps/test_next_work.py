"""What is done about an element whose turn it is: plain values in, decisions out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from detent.contract.model import Binding, Kind
from detent.jobs.dedupe import ExecutionKey
from detent.jobs.order import Call
from detent.jobs.work import WorkReport
from detent.reuse.work_keys import Found, Miss, WorkKey
from detent.runs.record.resumed import GONE, Recorded
from detent.runs.record.step_run import Element, StepRun
from detent.runs.steps.next_work import (
    WAITING_MAX,
    Adopt,
    Candidate,
    Drop,
    Fail,
    Join,
    Offer,
    Reuse,
    Submit,
    Supersede,
    after_join,
    may_begin,
    next_work,
    room,
)
from detent.words.states import BLOCKED, FAILED, READY, RUNNING, SKIPPED, WAITING

PLAIN_STEP: Any = None
REPORT: Any = object.__new__(WorkReport)
KEY = WorkKey(ExecutionKey("sha256:1"), {}, Call(kind="python", target="steps:one"))
NO_KEY = WorkKey(None, {}, Call(kind="python", target="steps:one"), why="its cache is turned off")
DONE = Found("earlier", False, "SUCCEEDED", b"result", REPORT)
FAILED_BEFORE = Found("earlier", False, "FAILED", b"result", REPORT)
RUNNING_ELSEWHERE = Found("elsewhere", True)


def element(job_id: str = "own", state: str = READY) -> Element:
    step = StepRun("a", PLAIN_STEP, Binding(Kind.PYTHON, "steps:one"), UUID(int=1), 1, state=state)
    return Element(step, None, job_id)


def candidate(work_key: WorkKey = KEY, **known: Any) -> Candidate:
    return Candidate(element(), work_key, **known)


NEW = candidate(found=Miss())
FORCED = candidate(found=Miss("`--force` asked for it again"))
EACH_TIME = candidate(NO_KEY)
REUSABLE = candidate(found=DONE)
FAILED_ONCE = candidate(found=FAILED_BEFORE)
ELSEWHERE = candidate(found=RUNNING_ELSEWHERE)
LEFT_OPEN = candidate(recorded=Recorded("RUNNING"))
ENDED = candidate(recorded=Recorded("FAILED"))
TOOK = candidate(recorded=Recorded("SUCCEEDED", taken=DONE))
CHANGED = candidate(recorded=Recorded("SUCCEEDED", "function steps:one changed"))
RESULT_GONE = candidate(recorded=Recorded("", GONE))
SAME = {KEY.flight: "same"}


@pytest.mark.parametrize(
    ("given", "under_way", "decision"),
    [
        (NEW, {}, Submit(NEW)),
        (FORCED, {}, Submit(FORCED, "`--force` asked for it again")),
        (NEW, {KEY.flight: "own"}, Submit(NEW)),  # Its own job, which the queue had no room for.
        (NEW, SAME, Join(NEW, "same")),
        (REUSABLE, SAME, Join(REUSABLE, "same")),
        (ELSEWHERE, SAME, Join(ELSEWHERE, "same")),
        (ELSEWHERE, {}, Join(ELSEWHERE, "elsewhere")),
        (EACH_TIME, {NO_KEY.flight: "same"}, Submit(EACH_TIME)),
        (REUSABLE, {}, Reuse(REUSABLE, DONE)),
        (FAILED_ONCE, {}, Fail(FAILED_ONCE, FAILED_BEFORE)),
        (LEFT_OPEN, SAME, Adopt(LEFT_OPEN, "RUNNING")),
        (ENDED, {}, Adopt(ENDED, "FAILED")),
        (TOOK, SAME, Reuse(TOOK, DONE, is_recorded=True)),
        (CHANGED, {}, Supersede(CHANGED, "function steps:one changed")),
        (RESULT_GONE, {}, Supersede(RESULT_GONE, "its result is gone")),
    ],
)
def test_each_element_is_submitted_joined_reused_failed_adopted_or_ends_its_run(
    given: Candidate, under_way: dict[Any, str], decision: object
) -> None:
    """X-174, X-186, JOB-027."""
    assert next_work(given, under_way) == decision


@pytest.mark.parametrize(
    ("state", "left_open", "begins"),
    [
        (READY, False, True),
        (RUNNING, False, True),
        (SKIPPED, False, False),
        (BLOCKED, False, False),
        (FAILED, False, False),
        (SKIPPED, True, True),
    ],
)
def test_nothing_begins_of_a_step_that_is_over_except_a_job_that_was_left_open(
    state: str, left_open: bool, begins: bool
) -> None:
    """A.9, X-174."""
    assert may_begin(element(state=state), left_open=left_open) is begins


@pytest.mark.parametrize(
    ("ended", "state", "ending", "decided"),
    [
        (DONE, RUNNING, False, "reuse"),
        (DONE, RUNNING, True, "reuse"),
        (Found("earlier", False, "SUCCEEDED"), RUNNING, False, "offer"),  # Its report is gone.
        (FAILED_BEFORE, RUNNING, False, "offer"),
        (FAILED_BEFORE, SKIPPED, False, "drop"),
        (FAILED_BEFORE, RUNNING, True, "drop"),
    ],
)
def test_an_element_takes_the_result_of_the_job_that_it_joined_or_does_the_work_itself(
    ended: Found, state: str, ending: bool, decided: str
) -> None:
    """X-186."""
    one = Candidate(element(state=state), KEY)
    expected = {"reuse": Reuse(one, ended), "offer": Offer(one.element), "drop": Drop(one.element)}[decided]
    assert after_join(one, ended, ending=ending) == expected


@pytest.mark.parametrize(
    ("most", "one_by_one", "own", "open_jobs", "left"),
    [
        (None, False, 0, 0, WAITING_MAX),
        (None, False, WAITING_MAX, WAITING_MAX, 0),
        (3, False, 2, 2, 1),
        (3, False, 2, 9, 1),  # Joined jobs count for the runs that submitted them.
        (3, False, 5, 5, 0),
        (3, True, 0, 0, 1),
        (None, True, 0, 1, 0),  # One by one, a joined job is waited for like any other.
    ],
)
def test_a_run_has_room_for_as_many_jobs_as_its_limit_leaves(
    most: int | None, one_by_one: bool, own: int, open_jobs: int, left: int
) -> None:
    """X-138, X-194."""
    assert room(most=most, one_by_one=one_by_one, own=own, open_jobs=open_jobs) == left


def test_a_decision_changes_nothing_about_its_element() -> None:
    """A part returns decisions; only the driver carries them out."""
    for one in (NEW, REUSABLE, FAILED_ONCE, ELSEWHERE, LEFT_OPEN, CHANGED):
        next_work(one, {})
        assert (one.element.state, one.element.source, one.element.message) == (WAITING, None, "")
        assert one.element.step.state == READY
