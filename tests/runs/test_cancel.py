"""Cancelling: a whole run, one job, from this process or another; and leaving a run as it stands."""

from __future__ import annotations

import pytest

from detent.kernel import Cancel, EndRun
from tests.runs.rig import Child, Rig, eventually, in_thread, states

SLOW = """
name: slow
steps:
  - {id: first, run: {python: "steps:one"}}
  - {id: held, map: {x: [1, 2, 3]}, needs: [first], run: {python: "steps:double"}}
  - {id: last, run: {python: "steps:total", with: {xs: {$from: held}}}}
"""


def test_cancelling_a_run_cancels_its_open_jobs_and_ends_it(rig: Rig) -> None:
    """X-157, JOB-067: at once, with the reason on record."""
    rig.lane.held = {"steps:double"}
    work = rig.work()
    handle = rig.handle(work, SLOW)
    rig.lane.on_idle = lambda: handle.cancel("enough") if rig.lane.waiting("steps:double") == 3 else None
    result = handle.run()
    assert (result.status, result.message) == ("cancelled", "enough")
    assert states(result) == {"first": "succeeded", "held": "cancelled", "last": "cancelled"}
    assert [run.status for run in rig.runs()] == ["cancelled"]
    cancelled = [rig.job(row.job_id) for row in rig.jobs() if row.state == "CANCELED"]
    assert {job.reason_code for job in cancelled} == {"WORKFLOW_CANCELLED"}
    assert len(cancelled) == 3
    eventually(lambda: len(rig.lane.cancelled) == 3, "what ran was not ended")


def test_a_run_cancelled_before_it_began_ends_as_cancelled(rig: Rig) -> None:
    """X-157."""
    work = rig.work()
    handle = rig.handle(work, SLOW)
    handle.open()
    handle.cancel()
    assert handle.run().status == "cancelled"
    assert [run.status for run in rig.runs()] == ["cancelled"]


def test_another_process_can_cancel_a_run(rig: Rig) -> None:
    """X-172, X-157: it cancels the jobs and ends the run; the driver notices."""
    rig.lane.held = {"steps:double"}
    work = rig.work()
    handle = rig.handle(work, SLOW)
    run_id = handle.open()
    ended = in_thread(handle.run)
    eventually(lambda: rig.lane.waiting("steps:double") == 3, "it did not begin")
    session = rig.home.session()
    assert not session.owns
    jobs = [row.job_id for row in rig.jobs(run_id) if row.state == "RUNNING"]
    answers = session.ask([Cancel(0, "local", job, "WORKFLOW_CANCELLED") for job in jobs])
    assert all(answer.ok for answer in answers)
    session.ask([EndRun(0, run_id, "cancelled")])
    result = ended()
    assert result.status == "cancelled"
    assert [run.status for run in rig.runs()] == ["cancelled"]


def test_a_run_that_was_ended_from_elsewhere_between_two_jobs_is_cancelled(rig: Rig) -> None:
    """X-157: the first end decides; the driver submits and reuses nothing more."""
    work = rig.work()
    handle = rig.handle(work, SLOW)
    run_id = handle.open()
    session = rig.home.session()

    def end() -> int:
        # The first step is under way: its job is the only one, so nothing else keeps the run open.
        (job,) = rig.jobs(run_id)
        session.ask([Cancel(0, "local", job.job_id), EndRun(0, run_id, "cancelled")])
        return 1

    rig.lane.functions["steps:one"] = end
    result = handle.run()
    assert result.status == "cancelled"
    assert len(rig.jobs()) == 1
    assert "last" not in rig.calls()


@pytest.mark.parametrize("before", ["ReuseRun", "EndRun"])
def test_a_run_ended_from_elsewhere_takes_no_more_results(rig: Rig, before: str) -> None:
    """X-167: nothing is added to a run that has ended, and it ended as the first request said."""
    assert rig.run(SLOW).ok
    rig.new_lane()
    work = rig.work()
    handle = rig.handle(work, SLOW)
    run_id = handle.open()
    driver = handle._driver
    assert driver is not None
    ask = driver.backend.session.ask

    def first_end_it(commands, **more):  # type: ignore[no-untyped-def]
        if type(commands[0]).__name__ == before:
            ask([EndRun(0, run_id, "cancelled")])
        return ask(commands, **more)

    driver.backend.session.ask = first_end_it  # type: ignore[method-assign]
    result = handle.run()
    driver.backend.session.ask = ask  # type: ignore[method-assign]
    assert (result.status, result.message) == ("cancelled", "the run was ended from elsewhere")


def test_cancelling_one_job_fails_its_step(rig: Rig) -> None:
    """X-157, A.9 line 5: the run goes on with what does not need it."""
    text = """
    name: one
    steps:
      - {id: a, error_action: continue, run: {python: "steps:one"}}
      - {id: b, needs: [a], run: {python: "steps:nothing"}}
      - {id: c, run: {python: "steps:nothing", version: "c"}}
    """
    rig.lane.held = {"steps:one"}
    work = rig.work()
    handle = rig.handle(work, text)
    ended = in_thread(handle.run)
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it did not begin")
    (job,) = rig.lane.waiting_jobs("steps:one")
    (answer,) = rig.home.session().ask([Cancel(0, "local", job)])
    assert answer.ok
    result = ended()
    assert result.status == "failed"
    assert states(result) == {"a": "failed", "b": "blocked", "c": "succeeded"}
    assert "cancelled (CANCELLED_BY_USER)" in result.view.steps[0].message


def test_a_late_result_of_a_cancelled_job_is_not_recorded(rig: Rig) -> None:
    """JOB-069, X-157, X-158: cancelled is cancelled, whatever the worker still says."""
    seen: list[str] = []

    def one() -> int:
        # Cancelled in the very moment in which it runs: its result comes after.
        (job,) = [row.job_id for row in rig.jobs() if row.state == "RUNNING"]
        rig.home.session().ask([Cancel(0, "local", job)])
        seen.append(job)
        return 1

    rig.lane.functions["steps:one"] = one
    work = rig.work()
    result = rig.handle(work, 'name: late\nsteps: [{id: a, run: {python: "steps:one"}}]').run()
    assert result.status == "failed"
    assert rig.job(seen[0]).state == "CANCELED"
    assert work.backend.report_of(seen[0]) is None


def test_what_another_run_is_doing_is_left_to_it(rig: Rig) -> None:
    """X-186: cancelling a run that joined a job of another does not cancel that job."""
    text = 'name: {name}\nsteps: [{{id: a, run: {{python: "steps:one"}}}}]\nresult: {{$from: a}}'
    rig.lane.held = {"steps:one"}
    work = rig.work()
    first = rig.handle(work, text.format(name="owner"))
    ended = in_thread(first.run)
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it did not begin")
    second = rig.handle(work, text.format(name="guest"))
    second.open()
    joined = in_thread(second.run)
    eventually(lambda: second.view().steps[0].started_ms is not None, "it did not join")
    second.cancel()
    assert joined().status == "cancelled"
    rig.lane.release()
    result = ended()
    assert (result.status, result.value) == ("completed", 1)
    assert len(rig.jobs()) == 1


def test_a_joined_job_that_is_cancelled_or_fails_is_done_by_the_one_who_waited(rig: Rig) -> None:
    """X-186, JOB-028: the other did not get there, so it is done here."""
    text = 'name: {name}\nsteps: [{{id: a, run: {{python: "steps:one"}}}}]\nresult: {{$from: a}}'
    rig.lane.held = {"steps:one"}
    work = rig.work()
    first = rig.handle(work, text.format(name="owner"))
    first.open()
    ended = in_thread(first.run)
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it did not begin")
    second = rig.handle(work, text.format(name="guest"))
    second.open()
    joined = in_thread(second.run)
    eventually(lambda: second.view().steps[0].started_ms is not None, "it did not join")
    assert len(rig.jobs()) == 1
    first.cancel()
    assert ended().status == "cancelled"
    rig.lane.release()
    result = joined()
    assert (result.status, result.value) == ("completed", 1)
    assert sorted(row.state for row in rig.jobs()) == ["CANCELED", "SUCCEEDED"]


def test_equal_work_of_two_runs_is_done_once(rig: Rig) -> None:
    """X-186: single flight across runs; the second one records whose result it took."""
    text = 'name: {name}\nsteps: [{{id: a, run: {{python: "steps:one"}}}}]\nresult: {{$from: a}}'
    rig.lane.held = {"steps:one"}
    work = rig.work()
    first = in_thread(rig.handle(work, text.format(name="owner")).run)
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it did not begin")
    handle = rig.handle(work, text.format(name="guest"))
    handle.open()
    second = in_thread(handle.run)
    eventually(lambda: handle.view().steps[0].started_ms is not None, "it did not join")
    rig.lane.release()
    assert [first().value, second().value] == [1, 1]
    assert len(rig.lane.began) == 1
    assert rig.kinds(second().run_id) == ["run_started", "step_reused", "run_ended"]


def test_equal_work_of_two_processes_is_done_once(rig: Rig) -> None:
    """X-172, X-186: a second process joins what the first one's worker is doing."""
    text = 'name: shared\nsteps: [{id: a, run: {python: "steps:one"}}]\nresult: {$from: a}'
    rig.lane.held = {"steps:one"}
    work = rig.work()
    first = in_thread(rig.handle(work, text).run)
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it did not begin")
    child = Child(rig, text)
    other = child.line()
    assert not other["owns"]
    eventually(lambda: bool(rig.kinds(other["run_id"])), "the second run did not begin")
    rig.lane.release()
    said = child.line()
    assert (said["status"], said["value"], said["calls"]) == ("completed", 1, [])
    assert child.end() == 0
    assert first().value == 1
    assert len({run.run_id for run in rig.runs()}) == 2
    assert len(rig.jobs()) == 1
