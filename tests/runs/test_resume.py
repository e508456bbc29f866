"""A run that was left is taken up from the ledger alone: the same run, each job recorded once, at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from detent.kernel import Claim
from detent.owner.content import Content
from detent.owner.wiring import Parts
from detent.runs.erase import erase_job
from detent.runs.handle import RunHandle, ahead_of
from detent.runs.record.outcome import failures_of
from detent.store.api import JobRow
from detent.store.sqlite import SqliteReader, SqliteStore
from detent.testing import CrashPoints, FakeClock, Faults, faulty
from detent.workers.supervisor import Supervisor
from tests.runs.rig import Child, Rig, eventually, in_thread, states

PIPE = """
name: pipe
steps:
  - {id: made, run: {python: "steps:numbers", with: {n: 4}}}
  - {id: each, map: {x: {$from: made}}, run: {python: "steps:double"}}
  - {id: sum, run: {python: "steps:total", with: {xs: {$from: each}}}}
  - {id: last, run: {python: "steps:same", with: {value: {$from: sum}}}}
result: {$from: last}
"""
JOBS = 7


def left(rig: Rig, text: str, held: str) -> str:
    """Begin a run and leave it as it stands when work of a target would begin; its id."""
    rig.new_lane()
    rig.lane.held = {held}
    work = rig.work()
    handle = rig.handle(work, text)
    run_id = handle.open()
    rig.lane.on_idle = lambda: handle.stop() if rig.lane.waiting(held) else None
    assert handle.run().status == "stopped"
    work.close()
    return run_id


def test_a_run_that_was_left_goes_on_where_it_stopped(rig: Rig) -> None:
    """X-174: the same run and operation; what is done is not done again."""
    run_id = left(rig, PIPE, "steps:total")
    assert sorted(rig.calls()) == ["each"] * 4 + ["made"]
    result = rig.run(PIPE)
    assert (result.run_id, result.status, result.value) == (run_id, "completed", 12)
    assert result.view.resumed
    assert rig.calls() == ["sum", "last"]
    assert len(rig.jobs()) == JOBS
    assert rig.kinds(run_id).count("run_started") == 1
    assert states(result) == dict.fromkeys(["made", "each", "sum", "last"], "succeeded")


def test_a_run_that_is_taken_up_after_its_time_tells_what_was_done_and_what_was_open(
    rig: Rig, detent_clock: FakeClock
) -> None:
    """X-116: its answer agrees with the ledger, which has what was done and what was open."""
    text = PIPE.replace("steps:\n", "timeout: 5m\nsteps:\n", 1)
    run_id = left(rig, text, "steps:total")
    detent_clock.jump(300_000)
    rig.new_lane()
    rig.lane.held = {"steps:total"}
    result = rig.handle(rig.work(), text).run()
    assert (result.run_id, result.status) == (run_id, "failed")
    assert states(result) == {"made": "succeeded", "each": "succeeded", "sum": "failed", "last": "skipped"}
    with rig.reader() as reader:
        (failure,) = failures_of(reader, Content(reader, rig.home.home.content_files()), result.failed)
    assert (failure.step, failure.code) == ("sum", "RUN_TIMEOUT")


def test_the_same_line_after_success_is_a_new_run(rig: Rig) -> None:
    """X-174."""
    first, second = rig.run(PIPE), rig.run(PIPE)
    assert first.run_id != second.run_id
    assert not second.view.resumed


def test_new_begins_a_new_run_beside_one_that_was_left(rig: Rig) -> None:
    """X-174: `--new`; what the old one left in the queue is worked off, and its result taken."""
    run_id = left(rig, PIPE, "steps:total")
    result = rig.run(PIPE, new=True)
    assert result.run_id != run_id
    assert result.ok
    assert {run.run_id: run.status for run in rig.runs()} == {run_id: "running", result.run_id: "completed"}
    assert rig.run(PIPE).run_id == run_id
    assert {run.status for run in rig.runs()} == {"completed"}


def test_what_a_run_that_was_left_has_in_the_queue_is_told_to_the_next(rig: Rig) -> None:
    """X-174: it is worked off first, so a user waiting for another run learns of it, and how to end it."""
    run_id = left(rig, PIPE, "steps:total")
    work = rig.work()
    handle = rig.handle(work, PIPE.replace("pipe", "other"))
    handle.open()  # Its workers may have begun with that job, and are held there.
    assert handle.view().note == (
        f"finishing 1 leftover job of interrupted run {run_id} first: `detent cancel {run_id}` ends it"
    )
    rig.lane.release()
    assert handle.run().ok
    work.close()
    assert rig.run(PIPE.replace("pipe", "third")).view.note == ""
    assert rig.run(PIPE).run_id == run_id


def test_a_leftover_job_that_is_begun_while_it_is_counted_is_counted_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-174: a worker takes it between the look at what is queued and the look at what is running."""
    run_id = left(rig, PIPE, "steps:total")
    monkeypatch.setattr(Supervisor, "_run", lambda _self: None)
    work = rig.work()
    handle = rig.handle(work, PIPE.replace("pipe", "other"))
    handle.open()
    jobs = SqliteReader.jobs

    def begun(self: SqliteReader, **asked: Any) -> Iterator[JobRow]:
        found = list(jobs(self, **asked))
        if found and asked.get("state") == "QUEUED":
            (claimed,) = work.session.ask([Claim(0, "somebody else", 1)])
            assert claimed.grants
        return iter(found)

    monkeypatch.setattr(SqliteReader, "jobs", begun)
    assert ahead_of(work, "other").startswith(f"finishing 1 leftover job of interrupted run {run_id} first")


def test_other_parameters_are_another_run(rig: Rig) -> None:
    """X-174: the same inputs, or it is not the run that is meant."""
    text = 'name: p\nparams: {n: 1}\nsteps: [{id: a, run: {python: "steps:double", with: {x: {$param: n}}}}]'
    run_id = left(rig, text, "steps:double")
    assert rig.run(text, {"n": 2}).run_id != run_id
    assert rig.run(text).run_id == run_id


def test_another_contract_is_another_run(rig: Rig) -> None:
    """X-174: the same contract and bindings, or it is not the run that is meant."""
    run_id = left(rig, PIPE, "steps:total")
    edited = PIPE.replace("{id: last, run:", "{id: last, retry: 1, run:")
    assert rig.run(edited).run_id != run_id
    assert [run.status for run in rig.runs()] == ["running", "completed"]
    assert rig.run(PIPE).run_id == run_id


def test_a_run_whose_code_has_changed_ends_and_a_new_one_takes_what_still_holds(rig: Rig) -> None:
    """X-174, X-176: history stays true: the old run is cancelled, never continued with other code."""
    run_id = left(rig, PIPE, "steps:total")
    source = rig.project.joinpath("steps.py").read_text()
    rig.write(source.replace("def double(x): return 2 * x", "def double(x): return 5 * x"))
    result = rig.run(PIPE)
    assert result.run_id != run_id
    assert (result.status, result.value) == ("completed", 30)
    assert "function steps:double changed" in result.view.note
    assert {run.run_id: run.status for run in rig.runs()} == {run_id: "cancelled", result.run_id: "completed"}
    assert states(result)["made"] == "reused"
    assert {row.state for row in rig.jobs(run_id)} <= {"SUCCEEDED", "CANCELED"}


def test_a_run_whose_work_was_under_way_with_other_code_ends_first(rig: Rig) -> None:
    """X-174: jobs that are still open are cancelled with their run."""
    run_id = left(rig, PIPE, "steps:double")
    source = rig.project.joinpath("steps.py").read_text()
    rig.write(source.replace("return list(range(n))", "return list(range(n + 1))"))
    rig.new_lane(slots=0)  # Or the supervisor might have done what was left before the run is looked at.
    work = rig.work()
    ended = in_thread(rig.handle(work, PIPE).run)
    eventually(lambda: rig.runs()[0].status == "cancelled", "it is not cancelled")
    rig.lane.slots = 64
    work.supervisor.wake()
    result = ended()
    assert (result.status, result.value) == ("completed", 20)
    assert [run.status for run in rig.runs()] == ["cancelled", "completed"]
    assert {row.state for row in rig.jobs(run_id)} == {"SUCCEEDED", "CANCELED"}


def test_what_was_run_with_code_that_it_was_not_ordered_with_answers_for_neither(rig: Rig) -> None:
    """X-176: it would stand under the old code's key, and answer for it when the old code comes back."""
    text = 'name: edited\nsteps: [{id: a, run: {python: "steps:one"}}]\nresult: {$from: a}'
    before = rig.project.joinpath("steps.py").read_text()
    left(rig, text, "steps:one")
    rig.write("def one(): return 'other'\n")
    rig.new_lane()
    work = rig.work()
    eventually(lambda: rig.jobs()[0].state == "SUCCEEDED", "no worker took it up")
    report = rig.report(work, rig.jobs()[0].job_id)
    assert report.stale
    work.close()
    assert rig.run(text).value == "other"
    rig.write(before)
    assert rig.run(text).value == 1
    assert rig.calls() == ["a"]


def test_a_run_whose_result_is_gone_is_begun_anew(rig: Rig) -> None:
    """X-171: an erased result is no result, in the middle of a run as well."""
    run_id = left(rig, PIPE, "steps:total")
    made = next(one.job_id for one in rig.lane.began if one.order.origin.step == "made")
    erase_job(rig.home.home, made, environment=rig.home.environment)
    result = rig.run(PIPE)
    assert (result.status, result.value) == ("completed", 12)
    assert result.run_id != run_id


def test_a_failure_before_the_crash_is_a_failure_after_it(rig: Rig) -> None:
    """A.9: what was under way beside the failed step is waited for, and the run ends as failed."""
    text = """
    name: half
    steps:
      - {id: bad, map: {x: [1, 3]}, run: {python: "steps:odd"}}
      - {id: ok, run: {python: "steps:one"}}
      - {id: slow, needs: [ok], run: {python: "steps:nothing"}}
      - {id: never, needs: [bad], run: {python: "steps:nothing"}}
    """
    rig.new_lane()
    rig.lane.held = {"steps:odd", "steps:nothing"}
    work = rig.work()
    handle = rig.handle(work, text)
    run_id = handle.open()

    def idle() -> None:
        if rig.lane.waiting("steps:nothing") and rig.lane.waiting("steps:odd") == 2:
            rig.lane.run_one("steps:odd")
        elif any(row.state == "FAILED" for row in rig.jobs()):
            handle.stop()

    rig.lane.on_idle = idle
    assert handle.run().status == "stopped"
    work.close()
    assert sorted(row.state for row in rig.jobs(run_id)) == ["FAILED", "QUEUED", "QUEUED", "SUCCEEDED"]
    rig.new_lane()
    rig.lane.held = {"steps:odd"}
    work = rig.work()
    handle = rig.handle(work, text)

    def release() -> None:
        # The other element's job is still open when everything else is over: the run must not end before it.
        steps = {step.key: step.state for step in handle.view().steps}
        if (steps.get("bad"), steps.get("slow")) == ("failed", "succeeded"):
            rig.lane.release()

    rig.lane.on_idle = release
    result = handle.run()
    assert (result.run_id, result.status) == (run_id, "failed")
    assert states(result) == {"bad": "failed", "ok": "succeeded", "slow": "succeeded", "never": "skipped"}
    assert {row.state for row in rig.jobs(run_id)} == {"FAILED", "SUCCEEDED"}
    assert [run.status for run in rig.runs()] == ["failed"]


@pytest.mark.parametrize("point", ["sealed", "appended", "committed"])
@pytest.mark.parametrize("times", [1, 2, 3, 5, 8])
def test_an_owner_that_crashes_under_the_driver_costs_nothing(
    rig: Rig, detent_crash: CrashPoints, point: str, times: int
) -> None:
    """X-173: at every point of every commit; the caller asks again, and is answered by what was decided."""
    rig.new_lane()
    work = rig.work()
    detent_crash.at(point, times=times)
    result = rig.handle(work, PIPE).run()
    assert (result.status, result.value) == ("completed", 12)
    assert detent_crash.crashes == [point]
    assert len(rig.jobs()) == JOBS
    assert [run.status for run in rig.runs()] == ["completed"]


@pytest.mark.parametrize("how", ["fail", "lose", "hide"])
@pytest.mark.parametrize("after", [0, 1, 2, 4, 6])
def test_a_commit_with_an_unknown_outcome_is_asked_for_again(rig: Rig, how: str, after: int) -> None:
    """X-173: nothing lost, nothing twice, whether it took effect or not."""
    faults = Faults()
    rig.new_lane()
    work = rig.work(parts=Parts(open_store=lambda path: faulty(SqliteStore.open(path), faults)))
    getattr(faults, how)("append", after=after)
    result = rig.handle(work, PIPE).run()
    assert (result.status, result.value) == ("completed", 12)
    assert len(rig.jobs()) == JOBS


@pytest.mark.parametrize(
    ("point", "times"),
    [("sealed", 3), ("sealed", 7), ("appended", 4), ("appended", 8), ("committed", 5), ("committed", 9)],
)
def test_a_process_killed_at_any_commit_is_taken_up_by_the_next(rig: Rig, point: str, times: int) -> None:
    """X-163, X-174: real SIGKILL; the same run, each job recorded once, without waiting for any lease."""
    child = Child(rig, PIPE, point=point, times=times)
    first = child.line()
    assert child.end() == -9
    result = rig.run(PIPE)
    assert (result.status, result.value) == ("completed", 12)
    # The first commits open the home: before the run's own there is nothing to take up.
    if "run_id" in first and rig.kinds(first["run_id"]):
        assert result.run_id == first["run_id"]
    assert [run.run_id for run in rig.runs()] == [result.run_id]
    assert len(rig.jobs()) == JOBS


def test_what_a_killed_process_had_taken_is_given_out_again_at_once(rig: Rig) -> None:
    """X-163: its worker is provably gone, so the run does not wait for the lease of thirty seconds."""
    child = Child(rig, PIPE, held=["steps:total"])
    run_id = child.line()["run_id"]
    assert child.line() == {"held": "steps:total"}
    child.kill()
    (job,) = [row for row in rig.jobs() if row.state == "RUNNING"]
    result = rig.run(PIPE)
    assert (result.run_id, result.value) == (run_id, 12)
    ended = rig.job(job.job_id)
    assert (ended.state, ended.interruptions, ended.failures) == ("SUCCEEDED", 1, 0)


def test_kills_inside_one_step_and_it_still_finishes(rig: Rig) -> None:
    """X-163."""
    text = 'name: hard\nsteps: [{id: a, run: {python: "steps:one"}, retry: 0}]\nresult: {$from: a}'
    for _ in range(3):
        child = Child(rig, text, held=["steps:one"])
        child.line()
        assert child.line() == {"held": "steps:one"}
        child.kill()
    result = rig.run(text)
    assert (result.status, result.value) == ("completed", 1)
    assert rig.job(rig.jobs()[0].job_id).interruptions == 3
    assert len(rig.runs()) == 1


def test_opening_settles_which_run_it_is_and_begins_nothing(rig: Rig) -> None:
    """X-174."""
    work = rig.work()
    handle: RunHandle = rig.handle(work, PIPE)
    assert handle.open() == handle.open()
    assert rig.runs() == []
