"""The supervisor: claims, heartbeats, signs and reports; what it no longer holds it ends, and does not report."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from detent.canon import sha256
from detent.errors import StoreUnavailable
from detent.executor.assignment import Assignment
from detent.executor.plain.pool import Pool
from detent.jobs.order import Call, JobLimits, Order, Retries
from detent.jobs.work import CANCELLED, Result
from detent.kernel import Claim, Finish, Manifest, Submit
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.ledger import sign_manifest
from detent.owner.backend import commands_of
from detent.owner.content import seal_value
from detent.runs.erase import erase_job
from detent.runs.runtime import Runtime
from detent.store.content import ProcessMark
from detent.testing import CrashPoints, FakeClock, InlineLane
from detent.workers.home_bench import HomeBench
from detent.workers.identity import WorkerIdentity, is_gone, worker_identity
from detent.workers.supervisor import Supervisor
from tests.runs.rig import Child, Rig, eventually

GONE = WorkerIdentity(ProcessMark("0", "0", 4_000_000, "1"), "x")


def order(target: str = "steps:one", *, retries: Retries | None = None, **more: Any) -> Order:
    call = Call(kind="python", target=target, **more)
    return Order(call, "label", JobLimits(retries=retries or Retries()))


def submit(work: Runtime, given: Order, job_id: str = "job-1") -> str:
    """Submit a job beside any run."""
    made = work.backend.submission(given, job_id=job_id, job_kind="task", priority=5, key=None)
    (answer,) = work.session.ask(commands_of([made]), content=made.inline)
    assert answer.ok, answer
    return job_id


def ended(rig: Rig, job_id: str = "job-1") -> str:
    eventually(lambda: rig.job(job_id).state in {"SUCCEEDED", "FAILED", "CANCELED"}, "it has not ended")
    return rig.job(job_id).state


def test_a_job_is_claimed_run_and_reported_under_its_lease(rig: Rig) -> None:
    """JOB-082, JOB-083, X-007: the owner hands the lease out; the signed report names job, attempt, lease and manifest."""
    work = rig.work()
    submit(work, order(base=str(rig.project)))
    assert ended(rig) == "SUCCEEDED"
    report, job = rig.report(work, "job-1"), rig.job("job-1")
    assert (report.job_id, report.attempt_id, report.manifest_hash) == ("job-1", 0, job.manifest_hash)
    assert report.worker == work.supervisor.identity
    assert report.result.value == b"1"


def test_two_crews_never_have_the_same_job(rig: Rig) -> None:
    """JOB-082: two supervisors on one home, one lease for each job."""
    first, second = rig.new_lane(), None
    one = rig.work()
    second = rig.new_lane()
    two = rig.work()
    assert one.supervisor.identity != two.supervisor.identity
    for number in range(40):
        submit(one, order(base=str(rig.project)), f"job-{number}")
    for number in range(40):
        assert ended(rig, f"job-{number}") == "SUCCEEDED"
    began = [assignment.job_id for lane in (first, second) for assignment in lane.began]
    assert len(began) == len(set(began)) == 40


def test_every_start_has_a_name_of_its_own(rig: Rig) -> None:
    """X-163: a name used twice would hide that its first bearer died."""
    names = set()
    for _ in range(3):
        work = rig.work()
        names.add(work.supervisor.identity)
        work.close()
    assert len(names) == 3
    assert not any(is_gone(name) for name in names)


def test_who_is_provably_gone_and_who_may_live() -> None:
    """X-163: any doubt counts as life."""
    me = worker_identity("abcd")
    assert not is_gone(str(me))
    assert WorkerIdentity.parse(str(me)) == me
    assert is_gone(
        str(WorkerIdentity(ProcessMark("other-boot"[:8], me.mark.namespace, me.mark.pid, me.mark.started), "x"))
    )
    assert is_gone(str(WorkerIdentity(ProcessMark(me.mark.boot, me.mark.namespace, me.mark.pid, "1"), "x")))
    assert is_gone(str(WorkerIdentity(ProcessMark(me.mark.boot, me.mark.namespace, 4_194_304, "1"), "x")))
    assert not is_gone(str(WorkerIdentity(ProcessMark(me.mark.boot, "other", 4_194_304, "1"), "x")))
    assert not is_gone(str(WorkerIdentity(ProcessMark("", me.mark.namespace, 4_194_304, "1"), "x")))
    assert not is_gone("scheduler:0")
    assert not is_gone("worker-1")


def test_the_lease_of_a_worker_that_is_gone_ends_at_once(rig: Rig) -> None:
    """X-163: `worker_lost`, without waiting for the lease."""
    session = rig.home.session()
    work = rig.work()
    work.close()
    rig.new_lane()
    rig.lane.slots = 0
    work = rig.work()
    submit(work, order(base=str(rig.project)))
    (answer,) = session.ask([Claim(0, str(GONE))])
    assert len(answer.grants) == 1
    rig.lane.slots = 4
    assert ended(rig) == "SUCCEEDED"
    assert rig.job("job-1").interruptions == 1


def test_the_lease_of_a_worker_that_may_live_is_left_alone(rig: Rig) -> None:
    """X-163: another container's worker, say."""
    rig.lane.slots = 0
    work = rig.work()
    submit(work, order(base=str(rig.project)))
    session = rig.home.session()
    session.ask([Claim(0, "worker-elsewhere")])
    work.supervisor._release_orphans()
    assert rig.job("job-1").state == "RUNNING"


def test_a_job_whose_lease_was_lost_is_ended_and_its_report_refused(rig: Rig, detent_clock: FakeClock) -> None:
    """JOB-083, A.6: another worker has it by then."""
    rig.lane.held = {"steps:one"}
    work = rig.work()
    submit(work, order(base=str(rig.project), retries=Retries(9)))
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it was not taken")
    lease = rig.job("job-1").lease_id
    rig.home._sessions.append(work.session)
    rig.home.pass_ms(35_000)
    eventually(lambda: rig.job("job-1").lease_id != lease, "the lease did not end")
    eventually(lambda: bool(rig.lane.cancelled), "what ran under it was not ended")
    rig.lane.release()
    rig.home.pass_ms(5_000)
    assert ended(rig) == "SUCCEEDED"
    assert rig.job("job-1").failures >= 1
    (refused,) = work.session.ask([Finish(0, "job-1", lease or b"")])
    assert not refused.ok


def test_work_of_an_unknown_kind_fails_and_says_so(rig: Rig) -> None:
    """JOB-060: DEPENDENCY_ERROR, and it is not retried."""
    work = rig.work()
    submit(work, Order(Call(kind="shell", target="true"), "l"))
    assert ended(rig) == "FAILED"
    report = rig.report(work, "job-1")
    assert report.result.failure is not None
    assert report.result.failure.category == "DEPENDENCY_ERROR"
    assert "no worker here runs work of kind 'shell'" in report.result.failure.message
    assert rig.job("job-1").attempt_id == 0


def test_a_payload_that_is_no_order_fails_its_job(rig: Rig) -> None:
    """X-016: a foreign entry in the queue is refused, not choked on."""
    work = rig.work()
    data = seal_value({"version": 9}, bytes(16), name="payload")
    backend = work.backend
    manifest = Manifest(
        "local", "odd", "task", sha256(data), 5, UNLIMITED_QUOTA.hash(), backend.now_ms(), origin=backend._origin
    )
    command = Submit(0, sign_manifest(manifest, backend._manifest_key))
    work.session.ask([command], content=[(sha256(data), data)])
    assert ended(rig, "odd") == "FAILED"
    submit(work, order(base=str(rig.project)))
    assert ended(rig) == "SUCCEEDED"


def test_a_payload_that_was_never_stored_is_a_missing_dependency(rig: Rig) -> None:
    """JOB-060."""
    work = rig.work()
    backend = work.backend
    manifest = Manifest(
        "local",
        "bare",
        "task",
        sha256(b"nobody has it"),
        5,
        UNLIMITED_QUOTA.hash(),
        backend.now_ms(),
        origin=backend._origin,
    )
    work.session.ask([Submit(0, sign_manifest(manifest, backend._manifest_key))])
    assert ended(rig, "bare") == "FAILED"
    error = rig.report(work, "bare").result.failure
    assert error is not None
    assert error.category == "DEPENDENCY_ERROR"
    assert [finding.code for finding in rig.home.verify().findings] == ["CONTENT_MISSING"]
    rig.checked = False


def test_a_result_that_is_gone_when_it_is_needed_is_a_missing_dependency(rig: Rig) -> None:
    """X-171, JOB-060: erased between the step that made it and the one that reads it."""
    work = rig.work()
    submit(work, order(base=str(rig.project)))
    assert ended(rig) == "SUCCEEDED"
    digest, _ = work.backend.report_of("job-1") or (b"", None)
    work.close()
    erase_job(rig.home.home, "job-1", environment=rig.home.environment)
    work = rig.work()
    reference = {"$result": "sha256:" + digest.hex()}
    submit(work, order("steps:same", base=str(rig.project), keywords={"value": reference}), "job-2")
    assert ended(rig, "job-2") == "FAILED"
    error = rig.report(work, "job-2").result.failure
    assert error is not None
    assert (error.category, "is gone" in error.message) == ("DEPENDENCY_ERROR", True)


def test_a_worker_that_says_cancelled_unasked_is_tried_again_and_bounded(rig: Rig, detent_clock: FakeClock) -> None:
    """X-158: INTERNAL_ERROR, so RETRYING, then FAILED at the bound."""

    class Odd(InlineLane):
        def _run(self, assignment: Assignment) -> Result:
            self.began.append(assignment)
            return Result(status=CANCELLED)

    rig.lane = Odd(content=rig.home.path / "content")
    rig.time_passes()
    work = rig.work()
    submit(work, order(base=str(rig.project), retries=Retries(2)))
    assert ended(rig) == "FAILED"
    assert len(rig.lane.began) == 3
    assert rig.job("job-1").reason_code == "CANCELLED_UNASKED"


def test_large_values_and_streams_lie_beside_the_report(rig: Rig) -> None:
    """X-181: the report stays small whatever the work gives."""
    rig.write("def big(n): return ['x' * 1000] * n\ndef count(xs): return len(xs)\n")
    work = rig.work()
    submit(work, order("steps:big", base=str(rig.project), arguments=(100,)))
    assert ended(rig) == "SUCCEEDED"
    digest, report = work.backend.report_of("job-1") or (b"", None)
    assert report is not None
    assert report.result.value is None
    assert report.value_content is not None
    assert isinstance(work.backend.result_value("sha256:" + digest.hex()), Path)
    reference = {"$result": "sha256:" + digest.hex()}
    submit(work, order("steps:count", base=str(rig.project), arguments=(reference,)), "job-2")
    assert ended(rig, "job-2") == "SUCCEEDED"
    assert rig.report(work, "job-2").result.value == b"100"


def test_what_runs_when_a_crew_is_closed_is_given_up_not_failed(rig: Rig) -> None:
    """X-163: evidence `interrupted`; another worker can have it at once."""
    rig.lane.held = {"steps:one"}
    work = rig.work()
    submit(work, order(base=str(rig.project), retries=Retries(0)))
    eventually(lambda: rig.lane.waiting("steps:one") == 1, "it was not taken")
    work.close()
    job = rig.job("job-1")
    assert (job.state, job.interruptions, job.failures) == ("QUEUED", 1, 0)
    rig.new_lane()
    rig.work()
    assert ended(rig) == "SUCCEEDED"


@pytest.mark.parametrize("point", ["sealed", "appended", "committed"])
def test_a_claim_whose_answer_was_lost_is_worked_off_all_the_same(
    rig: Rig, detent_crash: CrashPoints, point: str
) -> None:
    """X-173, X-067: the leases are there; the supervisor asks which ones it holds, and goes on claiming."""
    rig.lane.slots = 0
    work = rig.work()
    for number in range(30):
        submit(work, order(base=str(rig.project)), f"job-{number}")
    detent_crash.at(point)
    rig.lane.slots = 8
    work.supervisor.wake()
    for number in range(30):
        assert ended(rig, f"job-{number}") == "SUCCEEDED"
    assert detent_crash.crashes == [point]
    began = [assignment.job_id for assignment in rig.lane.began]
    assert len(began) == len(set(began)) == 30


def test_a_crew_that_cannot_go_on_tells_those_who_wait(rig: Rig) -> None:
    """A driver does not wait for workers that are gone."""

    class Broken(InlineLane):
        def finished(self) -> Sequence[tuple[int, Result]]:
            raise RuntimeError("the executor is gone")

    rig.lane = Broken(content=rig.home.path / "content")
    work = rig.work()
    with pytest.raises(RuntimeError, match="the executor is gone"):
        rig.handle(work, 'name: n\nsteps: [{id: a, run: {python: "steps:one"}}]').run()


def test_closing_twice_is_closing_once(rig: Rig) -> None:
    work = rig.pool()
    work.close()
    work.close()
    work.supervisor.wake()
    with pytest.raises(StoreUnavailable, match="was closed"):
        _ = work.backend.reader


def test_a_worker_process_that_is_killed_is_replaced_and_its_work_done(rig: Rig) -> None:
    """X-163: kill -9 of a child of the pool; tried again at once, and not counted against the task."""
    marker = rig.project / "pid"
    rig.write(
        f"""
        import os, pathlib, time
        def stuck():
            marker = pathlib.Path({str(marker)!r})
            if marker.exists(): return os.getpid()
            marker.write_text(str(os.getpid()))
            time.sleep(600)
        """
    )
    work = rig.pool()
    submit(work, order("steps:stuck", base=str(rig.project), retries=Retries(0)))
    eventually(lambda: marker.exists() and bool(marker.read_text()), "it did not begin")
    os.kill(int(marker.read_text()), signal.SIGKILL)
    assert ended(rig) == "SUCCEEDED"
    job = rig.job("job-1")
    assert (job.interruptions, job.failures) == (1, 0)


def test_when_the_owner_is_killed_another_process_takes_over_and_finishes_both_runs_work(rig: Rig) -> None:
    """X-172: its own run ends, and what the dead process left in the queue is worked off."""
    text = 'name: {name}\nsteps: [{{id: a, run: {{python: "steps:{call}"}}}}]\nresult: {{$from: a}}'
    child = Child(rig, text.format(name="dies", call="one"), held=["steps:one"], slots=1)
    assert child.line()["owns"]
    assert child.line() == {"held": "steps:one"}
    rig.new_lane()
    rig.lane.held = {"steps:nothing"}
    work = rig.work()
    assert not work.session.owns
    handle = rig.handle(work, text.format(name="lives", call="nothing"))

    def idle() -> None:
        if rig.lane.waiting("steps:nothing"):
            child.kill()
            rig.lane.release()

    rig.lane.on_idle = idle
    assert handle.run().status == "completed"
    eventually(lambda: work.session.owns, "no process took over")
    eventually(lambda: all(row.state == "SUCCEEDED" for row in rig.jobs()), "the dead one's job was left")
    assert sorted(rig.calls()) == ["a", "a"]


def test_the_crew_s_parts_can_be_chosen(rig: Rig) -> None:
    """The wiring picks concrete parts; a test picks others."""
    work = rig.work()
    assert isinstance(work.supervisor, Supervisor)
    assert work.supervisor.busy == 0
    assert work.supervisor.failure is None


def test_unannounced_work_is_found_all_the_same(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up may be lost; a job in the queue must not wait for the next one."""
    monkeypatch.setattr("detent.workers.work_loop.LOOK_SECONDS", 0.02)
    monkeypatch.setattr(HomeBench, "_observe", lambda _self, _listener, _records: None)
    monkeypatch.setattr(Supervisor, "wake", lambda _self: None)
    work = rig.work()
    eventually(lambda: not work.supervisor._maybe_queued, "the supervisor never found the queue empty")
    result = rig.handle(work, 'name: quiet\nsteps: [{id: a, run: {python: "steps:one"}}]').run()
    assert result.status == "completed"


def test_a_home_that_cannot_be_opened_leaves_no_process(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers' process is begun before the home is opened; it goes when that fails, or what comes after it."""
    started: list[Pool] = []
    real = Pool.__init__

    def noted(self: Pool, *given: Any, **settings: Any) -> None:
        real(self, *given, **settings)
        started.append(self)

    def refuse(*_: object, **__: object) -> None:
        raise StoreUnavailable("no")

    monkeypatch.setattr(Pool, "__init__", noted)
    for part in ("Session", "Backend"):
        with monkeypatch.context() as patched:
            patched.setattr(f"detent.runs.runtime.{part}", refuse)
            with pytest.raises(StoreUnavailable):
                rig.pool()
    assert len(started) == 2
    assert [Path(f"/proc/{pool.host_pid}").exists() for pool in started] == [False, False]
    assert list((rig.home.path / "live").iterdir()) == []
