"""The submitter on its own: what a full queue gives back, and how an end is heard of that is not told."""

from __future__ import annotations

import threading
import time

import pytest

from detent.errors import QueueFull, RequestRefused
from detent.jobs.order import Call, Order
from detent.kernel import Cancel
from detent.owner.backend import Submission
from detent.runs.runtime import Runtime
from detent.runs.submit.submitter import RunEnded, Submitter
from detent.workers.supervisor import Supervisor
from tests.runs.rig import Rig


@pytest.fixture
def work(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A process whose supervisor never does anything by itself."""
    monkeypatch.setattr(Supervisor, "_run", lambda _self: None)
    return rig.work()


def submitter_of(work: Runtime, run_id: str | None = None) -> Submitter[str]:
    return Submitter(work.backend, work.supervisor, threading.Event(), run_id=run_id)


def submissions(work: Runtime, rig: Rig, *names: str, run_id: str | None = None) -> list[Submission]:
    order = Order(Call(kind="python", target="steps:one", base=str(rig.project)), "label")
    return [
        work.backend.submission(order, job_id=name, job_kind="task", priority=5, key=None, run_id=run_id)
        for name in names
    ]


def test_a_full_queue_takes_what_it_has_room_for_and_gives_the_rest_back(work: Runtime, rig: Rig) -> None:
    """X-031: 256 jobs of one class wait at once."""
    submitter = submitter_of(work)
    taken = submitter.submit(submissions(work, rig, *(f"job-{number}" for number in range(260))))
    assert taken == [True] * 256 + [False] * 4
    with pytest.raises(QueueFull, match="no room in time"):
        submitter.wait_for_room(time.monotonic())


def test_a_job_that_was_submitted_before_counts_as_taken_only_where_that_may_be(work: Runtime, rig: Rig) -> None:
    """X-174: chunks of a resumed run have the same names."""
    submitter = submitter_of(work)
    (first,), (again,) = submissions(work, rig, "job"), submissions(work, rig, "job")
    assert submitter.submit([first]) == [True]
    assert submitter.submit([again], repeated=True) == [True]
    with pytest.raises(RequestRefused):
        submitter.submit([again])


def test_nothing_is_submitted_for_a_run_that_is_not_open(work: Runtime, rig: Rig) -> None:
    """X-167: the caller learns that its run was ended by another process."""
    submitter = submitter_of(work, "gone")
    with pytest.raises(RunEnded, match="ended from elsewhere") as refused:
        submitter.submit(submissions(work, rig, "job", run_id="gone"))
    assert (refused.value.code, refused.value.details) == ("CONFLICT", {"run_id": "gone"})


def test_an_end_that_is_not_told_is_found_on_the_ledger(work: Runtime, rig: Rig) -> None:
    """Nothing depends on being told."""
    submitter = submitter_of(work)
    submitter.submit(submissions(work, rig, "one", "two"))
    for name in ("one", "two"):
        submitter.waiters.add(name, name, own=True)
    assert list(submitter.poll()) == []
    submitter.ask([Cancel(0, work.backend.tenant, "two")])
    assert [(ended.job_id, ended.state) for ended in submitter.poll()] == [("two", "CANCELED")]
    assert submitter.look("one") is None
