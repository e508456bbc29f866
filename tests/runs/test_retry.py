"""What is tried again, how often, and what a limit of time does."""

from __future__ import annotations

import pytest

from detent.inspect.explain_run import explain_run
from detent.jobs.status import JobStatus, project_job
from detent.owner.content import Content
from detent.runs.record.outcome import failures_of
from detent.testing import FakeClock
from tests.runs.rig import Rig, states


def step(call: str, **more: str) -> str:
    """A contract of one step."""
    rest = "".join(f", {name}: {value}" for name, value in more.items())
    return f"name: single\nsteps: [{{id: a, run: {call}{rest}}}]\nresult: {{$from: a}}"


def until(rig: Rig, times: int, category: str) -> str:
    return f'{{python: "steps:until", with: {{path: {rig.project / "tries"}, times: {times}, category: {category}}}}}'


def run(rig: Rig, text: str) -> tuple[str, object, int]:
    """The run's status and value, and how often its step was begun; backoff passes in virtual time."""
    rig.new_lane()
    rig.time_passes()
    work = rig.work()
    result = rig.handle(work, text).run()
    return result.status, result.value, len(rig.lane.began)


@pytest.mark.parametrize(
    ("category", "retry", "attempts"),
    [
        ("INTERNAL_ERROR", None, 3),
        ("USER_CODE_ERROR", None, 1),
        ("USER_CODE_ERROR", "2", 3),
        ("INTERNAL_ERROR", "2", 3),
        ("RESOURCE_LIMIT", "2", 1),
        ("RESOURCE_LIMIT", "{max: 1, on: [RESOURCE_LIMIT]}", 2),
        ("USER_CODE_ERROR", "{max: 1, on: [RESOURCE_LIMIT]}", 1),
        ("DEPENDENCY_ERROR", "{max: 1, on: [DEPENDENCY_ERROR]}", 2),
        ("USER_CODE_ERROR", "0", 1),
    ],
)
def test_failures_are_tried_again_by_category_and_count(
    rig: Rig, detent_clock: FakeClock, category: str, retry: str | None, attempts: int
) -> None:
    """A.7, X-164, JOB-066: bounded, and by default only failures of the system."""
    text = step(until(rig, 99, category), **({} if retry is None else {"retry": retry}))
    status, value, began = run(rig, text)
    assert (status, value, began) == ("failed", None, attempts)
    job = rig.job(rig.jobs()[0].job_id)
    assert (job.state, job.attempt_id) == ("FAILED", attempts - 1)


def test_a_task_that_fails_twice_succeeds_at_the_third_try(rig: Rig, detent_clock: FakeClock) -> None:
    """X-164."""
    assert run(rig, step(until(rig, 2, "USER_CODE_ERROR"), retry="2")) == ("completed", 3, 3)
    view = rig.job(rig.jobs()[0].job_id)
    assert project_job(view).status is JobStatus.SUCCEEDED


def test_the_report_of_a_retried_job_is_that_of_the_attempt_that_made_it(rig: Rig, detent_clock: FakeClock) -> None:
    """X-033, JOB-083: the result names its attempt, its lease and its manifest."""
    before = detent_clock.wall_ms()
    rig.new_lane()
    rig.time_passes()
    work = rig.work()
    assert rig.handle(work, step(until(rig, 1, "INTERNAL_ERROR"))).run().ok
    report = rig.report(work, rig.jobs()[0].job_id)
    assert report.attempt_id == 1
    assert report.result.started_ms >= before + 1000
    assert report.manifest_hash == rig.job(report.job_id).manifest_hash


def test_a_lost_worker_costs_no_try_and_at_first_no_pause(rig: Rig, detent_clock: FakeClock) -> None:
    """X-163, X-191: virtual time stands still, and the job goes on at once."""
    start = detent_clock.wall_ms()
    call = f'{{python: "steps:lost", with: {{path: {rig.project / "tries"}, times: 2}}}}'
    result = rig.run(step(call, retry="0"))
    assert (result.status, result.value) == ("completed", 3)
    job = rig.job(rig.jobs()[0].job_id)
    assert (job.interruptions, job.failures) == (2, 0)
    assert detent_clock.wall_ms() == start


def test_lost_workers_are_bounded_and_slow_down(rig: Rig, detent_clock: FakeClock) -> None:
    """X-163, X-191: a task whose worker is killed each time has failed after 11 attempts, within four minutes."""
    start = detent_clock.wall_ms()
    call = f'{{python: "steps:lost", with: {{path: {rig.project / "tries"}, times: 500}}}}'
    assert run(rig, step(call)) == ("failed", None, 11)
    job = rig.job(rig.jobs()[0].job_id)
    assert (job.reason_code, job.interruptions) == ("WORKER_LOST", 10)
    assert 183_000 <= detent_clock.wall_ms() - start <= 240_000


def test_the_settings_say_how_long_to_pause_after_an_interruption(rig: Rig, detent_clock: FakeClock) -> None:
    """X-191: `interruptions` under [backoffs]; what was decided by it is recorded with the owner's epoch."""
    settings = rig.home.path / "config.toml"
    settings.write_text(settings.read_text().replace("[backoffs]\n", "[backoffs]\ninterruptions = [0]\n"))
    start = detent_clock.wall_ms()
    call = f'{{python: "steps:lost", with: {{path: {rig.project / "tries"}, times: 9}}}}'
    assert rig.run(step(call, retry="0")).value == 10
    assert detent_clock.wall_ms() == start


def test_a_step_without_a_timeout_may_take_all_day(rig: Rig, detent_clock: FakeClock) -> None:
    """X-162: the models' defaults of 30 s and 600 s do not bind."""
    rig.new_lane()
    rig.lane.functions["steps:one"] = lambda: detent_clock.jump(20_000)
    work = rig.work()
    steps = "\n".join(
        f'  - {{id: s{n}, run: {{python: "steps:one", version: "{n}"}}{f", needs: [s{n - 1}]" if n else ""}}}'
        for n in range(35)
    )
    assert rig.handle(work, f"name: long\nsteps:\n{steps}\n").run().ok


def test_a_written_timeout_is_enforced(rig: Rig, detent_clock: FakeClock) -> None:
    """X-162, X-146: TIMED_OUT with RESOURCE_LIMIT, and not tried again."""
    rig.new_lane()
    rig.lane.functions["steps:one"] = lambda: detent_clock.jump(1001)
    work = rig.work()
    result = rig.handle(work, step('{python: "steps:one"}', timeout="1s")).run()
    assert result.status == "failed"
    job = rig.job(rig.jobs()[0].job_id)
    assert project_job(job).status is JobStatus.TIMED_OUT
    assert len(rig.lane.began) == 1
    report = rig.report(work, job.job_id)
    assert report.result.failure is not None
    assert (report.result.status, report.result.failure.category) == ("TIMED_OUT", "RESOURCE_LIMIT")


def test_the_run_s_own_timeout_ends_it(rig: Rig, detent_clock: FakeClock) -> None:
    """A.6: the driver cancels the open jobs; the run has failed."""
    rig.new_lane()
    rig.lane.functions["steps:one"] = lambda: detent_clock.jump(6000)
    work = rig.work()
    text = """
    name: late
    timeout: 5s
    steps:
      - {id: a, run: {python: "steps:one"}}
      - {id: b, needs: [a], run: {python: "steps:nothing"}}
      - {id: c, map: {x: []}, needs: [a], run: {python: "steps:double"}}
    """
    result = rig.handle(work, text).run()
    assert result.status == "failed"
    assert "5000 ms had elapsed" in result.message
    assert states(result)["a"] == "succeeded"
    assert states(result)["b"] == "cancelled"
    assert [run.status for run in rig.runs()] == ["failed"]
    assert _told(rig, result.run_id) == (
        "It did not end in time: the run's 5000 ms had elapsed (timeout of the workflow).",
    )


def test_a_run_that_was_late_is_told_to_be_although_all_of_it_succeeded(rig: Rig, detent_clock: FakeClock) -> None:
    """A.6."""
    rig.new_lane()
    rig.lane.functions["steps:one"] = lambda: detent_clock.jump(6000)
    text = 'name: late\ntimeout: 5s\nsteps: [{id: a, run: {python: "steps:one"}}]'
    result = rig.handle(rig.work(), text).run()
    assert (result.status, states(result)) == ("failed", {"a": "succeeded"})
    assert _told(rig, result.run_id) == (
        "It did not end in time: the run's 5000 ms had elapsed (timeout of the workflow).",
    )


@pytest.mark.parametrize("late", [True, False])
def test_a_run_that_ran_out_of_time_is_told_from_one_whose_step_failed(
    rig: Rig, detent_clock: FakeClock, *, late: bool
) -> None:
    """A.6: also when both happened."""
    rig.write("def wrong(): raise ValueError('no')\n", "wrong.py")
    rig.new_lane()
    rig.lane.functions["steps:one"] = lambda: detent_clock.jump(6000 if late else 10)
    text = """
    name: late
    timeout: 5s
    steps:
      - {id: a, on_error: continue, run: {python: "wrong:wrong"}}
      - {id: b, run: {python: "steps:one"}}
      - {id: c, map: {x: [1, 2, 3]}, needs: [b], run: {python: "steps:double"}}
    """
    result = rig.handle(rig.work(), text).run()
    assert (result.status, states(result)["a"]) == ("failed", "failed")
    # The limit may find b under way, and end it.
    in_time, too_late = [("succeeded", "succeeded")], [("succeeded", "cancelled"), ("cancelled", "skipped")]
    assert (states(result)["b"], states(result)["c"]) in (too_late if late else in_time)
    assert bool(_told(rig, result.run_id)) is late


def _told(rig: Rig, run_id: str) -> tuple[str, ...]:
    """What is said later of the run as a whole."""
    with rig.home.parts.open_reader(rig.home.home.ledger) as reader:
        return explain_run(reader, Content(reader, rig.home.home.content_files()), run_id).lines


@pytest.mark.parametrize("late", [True, False])
def test_a_run_that_is_taken_up_again_has_no_more_time_than_it_had(
    rig: Rig, detent_clock: FakeClock, *, late: bool
) -> None:
    """X-116, X-174: its limit counts from the recorded start, whichever process drove it meanwhile."""
    text = """
    name: late
    timeout: 5m
    steps:
      - {id: a, run: {python: "steps:one"}}
      - {id: b, run: {python: "steps:double", with: {x: {$from: a}}}}
      - {id: c, run: {python: "steps:double", with: {x: {$from: b}}}}
    """
    work = rig.work()
    handle = rig.handle(work, text)
    run_id = handle.open()
    handle.stop()
    assert handle.run().status == "stopped"
    work.close()
    detent_clock.jump(300_000 if late else 200_000)
    result = rig.run(text)
    assert (result.run_id, result.status) == (run_id, "failed" if late else "completed")
    assert _told(rig, run_id) == (
        ("It did not end in time: the run's 300000 ms had elapsed (timeout of the workflow).",) if late else ()
    )
    assert rig.run(text).status == "completed", "a new run has its own time"


def test_a_job_whose_process_is_killed_every_time_says_what_that_may_mean(rig: Rig, detent_clock: FakeClock) -> None:
    """There is no report to tell of it, then and later."""
    rig.new_lane()
    rig.time_passes()
    text = step(f'{{python: "steps:lost", with: {{path: {rig.project / "tries"}, times: 500}}}}')
    result = rig.handle(rig.work(), text).run()
    assert result.status == "failed"
    with rig.home.parts.open_reader(rig.home.home.ledger) as reader:
        content = Content(reader, rig.home.home.content_files())
        (failure,) = failures_of(reader, content, result.failed)
        told = explain_run(reader, content, result.run_id).steps[0].lines[0]
    assert (failure.code, failure.attempts > 1) == ("WORKER_LOST", True)
    assert "its worker was killed each time it ran (out of memory?)" in failure.message
    assert told == f"It failed: {failure.message} (INTERNAL_ERROR WORKER_LOST)."


def test_a_message_that_says_its_kind_itself_says_it_once(rig: Rig) -> None:
    """As what comes from the sandbox does."""
    rig.write("from detent.testing import Fails\ndef no(said): raise Fails('USER_CODE_ERROR', 'NO', said)\n", "says.py")
    for said, told in (("NO: because", "NO: because"), ("because", "NO: because"), ("", "NO")):
        result = rig.run(step(f'{{python: "says:no", with: {{said: "{said}"}}}}'))
        assert result.view.steps[0].message == told
