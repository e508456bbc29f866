"""Work that is leased in the commit that submits it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from detent.errors import OutcomeUnknown, StoreUnavailable
from detent.jobs.order import Call, Order
from detent.kernel import Claim, Command, Grant
from detent.owner.backend import Submission
from detent.owner.socket_messages import Answer
from detent.runs.runtime import Runtime
from detent.runs.single_jobs import SingleJobs
from detent.runs.submit.calls import JobRequest
from detent.testing import FakeClock
from detent.workers.claim_ahead import Asks, ClaimAhead, given_up
from detent.workers.home_bench import HomeBench
from detent.workers.supervisor import Supervisor
from tests.runs.rig import WAIT_SECONDS, Rig, eventually

NEVER = threading.Event()


def submissions(work: Runtime, rig: Rig, *names: str) -> list[Submission]:
    order = Order(Call(kind="python", target="steps:one", base=str(rig.project)), "label")
    return [work.backend.submission(order, job_id=name, job_kind="task", priority=5, key=None) for name in names]


def states(rig: Rig, *names: str) -> list[str]:
    return [rig.job(name).state for name in names]


def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that never does anything by itself."""
    monkeypatch.setattr(Supervisor, "_run", lambda _self: None)


def silent(work: Runtime, session: Asks | None = None) -> ClaimAhead:
    """Claims ahead of a supervisor that is never woken."""
    return ClaimAhead(session or work.session, work.supervisor.identity, rouse=lambda: None, look=lambda: None)


def batches(work: Runtime) -> int:
    return work.backend.reader.head(0).size


def test_what_the_workers_can_begin_is_leased_with_its_submission(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """JOB-082: one commit submits and leases; what there are no workers for stays in the queue."""
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead = silent(work)
    claim_ahead.offer(2)
    made = submissions(work, rig, "job-1", "job-2", "job-3")
    before = batches(work)
    answers = claim_ahead.submit(made, NEVER)
    assert [answer.ok for answer in answers] == [True] * 3
    assert batches(work) == before + 1
    assert states(rig, "job-1", "job-2", "job-3") == ["RUNNING", "RUNNING", "QUEUED"]
    assert [grant.job_id for grant in claim_ahead.granted()] == ["job-1", "job-2"]
    assert claim_ahead.granted() == []
    assert rig.job("job-1").lease_holder == work.supervisor.identity


def test_nothing_is_claimed_beyond_what_was_offered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead = silent(work)
    claim_ahead.offer(1)
    for name in ("job-1", "job-2"):
        made = submissions(work, rig, name)
        claim_ahead.submit(made, NEVER)
    assert states(rig, "job-1", "job-2") == ["RUNNING", "QUEUED"]
    claim_ahead.offer(1)  # The supervisor says so while what was leased for it still waits: that takes the place.
    made = submissions(work, rig, "job-3")
    claim_ahead.submit(made, NEVER)
    assert states(rig, "job-3") == ["QUEUED"]


def test_the_crew_is_woken_only_for_what_it_does_not_hear_otherwise(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    work = rig.work()
    woken: list[str] = []
    claim_ahead = ClaimAhead(
        work.session, work.supervisor.identity, rouse=lambda: woken.append("rouse"), look=lambda: woken.append("look")
    )
    claim_ahead.offer(1)
    made = submissions(work, rig, "job-1")
    claim_ahead.submit(made, NEVER)
    assert woken == ["rouse"]  # For the lease.
    made = submissions(work, rig, "job-2", "job-3")
    claim_ahead.submit(made, NEVER)
    assert woken == ["rouse", "look"]  # For what waits in the queue.


class Through:
    """A session that a test stands before."""

    may_own = True

    def __init__(self, work: Runtime) -> None:
        self._work = work

    def partition(self, name: str) -> int:
        return self._work.session.partition(name)


class Losing(Through):
    """A session whose first answers are lost after everything was done."""

    def __init__(self, work: Runtime, losses: int, error: type[BaseException] = OutcomeUnknown) -> None:
        super().__init__(work)
        self._losses, self._error = losses, error
        self.asked: list[list[str]] = []

    def ask(self, commands: Sequence[Command], **beside: Any) -> Sequence[Answer]:
        self.asked.append([type(command).__name__ for command in commands])
        answers = self._work.session.ask(commands, **beside)
        if len(self.asked) <= self._losses:
            raise self._error("lost")
        return answers


class Closing(Through):
    """A session during whose answer the supervisor ends."""

    def __init__(self, work: Runtime, claim_ahead: ClaimAhead) -> None:
        super().__init__(work)
        self._claim_ahead = claim_ahead

    def ask(self, commands: Sequence[Command], **beside: Any) -> Sequence[Answer]:
        answers = self._work.session.ask(commands, **beside)
        self._claim_ahead.close()
        return answers


class Meanwhile(Through):
    """A session beside whose requests the supervisor goes on, before they are decided and after."""

    def __init__(self, work: Runtime, meanwhile: Callable[[], None]) -> None:
        super().__init__(work)
        self._meanwhile = meanwhile

    def ask(self, commands: Sequence[Command], **beside: Any) -> Sequence[Answer]:
        self._meanwhile()
        answers = self._work.session.ask(commands, **beside)
        self._meanwhile()
        return answers


def test_a_crew_claims_nothing_for_a_worker_that_a_submission_is_about_to_fill(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker, one lease: the second job stays in the queue, where an idle process can take it."""
    quiet(monkeypatch)
    rig.new_lane(slots=1).held = {"steps:one"}
    work = rig.work()
    claim_ahead = work.supervisor.claim_ahead
    silent(work).submit(submissions(work, rig, "job-1"), NEVER)

    def look() -> None:
        work.supervisor.wake()
        work.supervisor._step()

    monkeypatch.setattr(claim_ahead, "_session", Meanwhile(work, look))
    claim_ahead.offer(1)
    claim_ahead.submit(submissions(work, rig, "job-2"), NEVER)
    assert sorted(states(rig, "job-1", "job-2")) == ["QUEUED", "RUNNING"]
    look()
    assert work.supervisor.busy == 1
    assert sorted(states(rig, "job-1", "job-2")) == ["QUEUED", "RUNNING"]


def test_a_crew_is_told_when_a_submission_filled_no_worker(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker was spoken for until then, and the supervisor may have left a job in the queue for that reason."""
    quiet(monkeypatch)
    work = rig.work()
    made = submissions(work, rig, "job-1")
    silent(work).submit(made, NEVER)
    work.session.ask([Claim(0, "somebody else", 1)])
    woken: list[str] = []
    claim_ahead = ClaimAhead(
        work.session, work.supervisor.identity, rouse=lambda: woken.append("rouse"), look=lambda: None
    )
    claim_ahead.offer(1)
    assert claim_ahead.submit(made, NEVER)[0].ok
    assert (claim_ahead.granted(), claim_ahead.free(1), woken) == ([], 1, ["rouse"])


def test_a_lost_answer_is_asked_for_again_without_a_second_claim(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-173: the lease may be there; the supervisor is told to look for it, and no second one is taken."""
    quiet(monkeypatch)
    work = rig.work()
    session = Losing(work, 1)
    claim_ahead = silent(work, session)
    claim_ahead.offer(2)
    made = submissions(work, rig, "job-1")
    (answer,) = claim_ahead.submit(made, NEVER)
    assert answer.ok
    assert session.asked == [["Submit", "Claim"], ["Submit"]]
    assert claim_ahead.granted() == []
    assert claim_ahead.lost()
    assert not claim_ahead.lost()


def test_a_request_that_fails_for_good_leaves_the_crew_looking_for_its_lease(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead = silent(work, Losing(work, 9, KeyboardInterrupt))
    claim_ahead.offer(1)
    made = submissions(work, rig, "job-1")
    with pytest.raises(KeyboardInterrupt):
        claim_ahead.submit(made, NEVER)
    assert claim_ahead.lost()


def test_a_crew_finds_the_leases_whose_answers_were_lost(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-173: nothing waits for a lease to run out that is this very supervisor's own."""
    work = rig.work()
    eventually(lambda: work.supervisor.claim_ahead._vacant > 0, "the supervisor has offered nothing")
    monkeypatch.setattr(work.supervisor.claim_ahead, "_session", Losing(work, 1))
    made = submissions(work, rig, "job-1")
    work.supervisor.claim_ahead.submit(made, NEVER)
    eventually(lambda: states(rig, "job-1") == ["SUCCEEDED"], "no worker ran it")
    assert rig.job("job-1").attempt_id == 0


def look(work: Runtime) -> None:
    """One step of a supervisor that does nothing by itself."""
    work.supervisor.wake()
    work.supervisor._step()


class Decided(Through):
    """A session between whose decisions and answers the supervisor goes on."""

    def __init__(self, work: Runtime, meanwhile: Callable[[], None]) -> None:
        super().__init__(work)
        self._meanwhile = meanwhile

    def ask(self, commands: Sequence[Command], **beside: Any) -> Sequence[Answer]:
        answers = self._work.session.ask(commands, **beside)
        self._meanwhile()
        return answers


def lose_claim(work: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the answer to the supervisor's own next claim, once it is decided."""
    ask = work.session.ask

    def losing(commands: Sequence[Command], **beside: Any) -> Sequence[Answer]:
        answers = ask(commands, **beside)
        if isinstance(commands[-1], Claim):
            monkeypatch.setattr(work.session, "ask", ask)
            raise OutcomeUnknown("lost")
        return answers

    monkeypatch.setattr(work.session, "ask", losing)


@pytest.mark.parametrize("whose", ["a submission", "the supervisor"])
@pytest.mark.parametrize("held", [True, False], ids=["under way", "ended"])
def test_a_lease_that_is_found_before_its_answer_arrives_is_begun_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, whose: str, held: bool
) -> None:
    """X-173: an answer is lost, and the supervisor asks for its leases while the one of job-2 is on its way to it."""
    quiet(monkeypatch)
    rig.lane.held = {"steps:one"} if held else set()
    work = rig.work()
    claim_ahead = work.supervisor.claim_ahead
    made = submissions(work, rig, "job-1")

    def steps() -> None:
        for _ in range(6):
            look(work)

    def meanwhile() -> None:
        if whose == "the supervisor":
            silent(work).submit(made, NEVER)
            lose_claim(work, monkeypatch)
        else:
            monkeypatch.setattr(claim_ahead, "_session", Losing(work, 1))
            claim_ahead.submit(made, NEVER)
        steps()

    claim_ahead.offer(2)
    monkeypatch.setattr(claim_ahead, "_session", Decided(work, meanwhile))
    claim_ahead.submit(submissions(work, rig, "job-2"), NEVER)
    steps()
    rig.lane.release()
    steps()
    assert sorted(one.job_id for one in rig.lane.began) == ["job-1", "job-2"]
    assert states(rig, "job-1", "job-2") == ["SUCCEEDED", "SUCCEEDED"]


def test_a_crew_asks_again_for_lost_leases_when_it_is_not_answered(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-173: the owner ends while it is asked; nothing waits for the lease to run out."""
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead, grants = work.supervisor.claim_ahead, work.session.grants
    claim_ahead.offer(1)
    monkeypatch.setattr(claim_ahead, "_session", Losing(work, 1))
    claim_ahead.submit(submissions(work, rig, "job-1"), NEVER)

    def unanswered(_worker: str) -> list[Grant]:
        monkeypatch.setattr(work.session, "grants", grants)
        raise StoreUnavailable("the owner has closed")

    monkeypatch.setattr(work.session, "grants", unanswered)
    for _ in range(4):
        look(work)
    assert states(rig, "job-1") == ["SUCCEEDED"]


def test_a_lost_lease_of_a_job_whose_last_attempt_is_still_being_ended_is_found(
    detent_clock: FakeClock, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-173: a lease is held or not, whatever else is held of its job."""
    quiet(monkeypatch)
    rig.lane.held = {"steps:one"}
    work = rig.work()
    work.supervisor.claim_ahead.offer(1)
    work.supervisor.claim_ahead.submit(submissions(work, rig, "job-1"), NEVER)
    look(work)
    monkeypatch.setattr(rig.lane, "cancel", lambda _number: None)  # A process that takes its time to end.
    work.session.ask(given_up(work.session.grants(work.supervisor.identity)))
    detent_clock.jump(1000)
    lose_claim(work, monkeypatch)
    for _ in range(4):
        look(work)
    assert [held.revoked for held in work.supervisor._held.values()] == [True, False]
    assert list(work.supervisor._held.values())[1].grant == work.session.grants(work.supervisor.identity)[0]


def test_what_was_leased_for_a_crew_that_closes_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    work = rig.work()
    work.supervisor.claim_ahead.offer(1)
    made = submissions(work, rig, "job-1")
    work.supervisor.claim_ahead.submit(made, NEVER)
    assert states(rig, "job-1") == ["RUNNING"]
    work.supervisor.close()
    job = rig.job("job-1")
    assert job.state in {"RETRYING", "QUEUED"}  # Back in the queue as soon as time has passed.
    assert (job.interruptions, job.failures) == (1, 0)


def test_what_is_leased_for_a_crew_that_has_closed_meanwhile_is_given_up_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-163: the claim was on its way when the supervisor ended; the job does not wait for the lease to run out."""
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead = silent(work)
    claim_ahead.offer(1)
    monkeypatch.setattr(claim_ahead, "_session", Closing(work, claim_ahead))
    made = submissions(work, rig, "job-1")
    claim_ahead.submit(made, NEVER)
    assert claim_ahead.granted() == []
    job = rig.job("job-1")
    assert job.state in {"RETRYING", "QUEUED"}
    assert (job.interruptions, job.failures) == (1, 0)
    claim_ahead.offer(1)
    made = submissions(work, rig, "job-2")
    claim_ahead.submit(made, NEVER)
    assert states(rig, "job-2") == ["QUEUED"]


def test_a_crew_that_hears_of_no_commits_claims_what_was_submitted_beside_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process that does not own the home: more is submitted than was leased with it."""
    monkeypatch.setattr(HomeBench, "_observe", lambda _self, _listener, _records: None)
    monkeypatch.setattr("detent.workers.work_loop.LOOK_SECONDS", 3600.0)
    work = rig.work()
    eventually(lambda: work.supervisor.claim_ahead._vacant > 0, "the supervisor has offered nothing")
    names = [f"job-{number}" for number in range(work.supervisor.claim_ahead._vacant + 3)]
    made = submissions(work, rig, *names)
    work.supervisor.claim_ahead.submit(made, NEVER)
    eventually(lambda: set(states(rig, *names)) == {"SUCCEEDED"}, "no worker looked into the queue")


def test_a_closed_session_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    work = rig.work()
    made = submissions(work, rig, "job-1")
    stop = threading.Event()
    stop.set()
    work.session.close()
    with pytest.raises(StoreUnavailable):
        work.supervisor.claim_ahead.submit(made, stop)


def answered(claim_ahead: ClaimAhead, made: Sequence[Submission]) -> list[str | None]:
    return [answer.refusal.code if answer.refusal else None for answer in claim_ahead.submit(made, NEVER)]


def refusals(work: Runtime) -> int:
    return len(list(work.backend.reader.refusals(limit=1000)))


def fill(work: Runtime, rig: Rig, claim_ahead: ClaimAhead) -> list[Submission]:
    """Submit 20 jobs to a queue that takes 256, of which 250 are there: returns what was refused."""
    silent(work).submit(submissions(work, rig, *(f"early-{number}" for number in range(250))), NEVER)
    made = submissions(work, rig, *(f"late-{number}" for number in range(20)))
    assert answered(claim_ahead, made) == [None] * 6 + ["QUEUE_FULL"] * 14
    assert refusals(work) == 14
    return made[6:]


def test_a_full_queue_is_asked_again_for_what_has_left_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-182, X-187: the decision log is for refusals worth knowing; it is bounded."""
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead = silent(work)
    left = fill(work, rig, claim_ahead)
    assert answered(claim_ahead, left) == ["QUEUE_FULL"] * 14
    assert refusals(work) == 15  # One was asked for, in case that others have made room.
    (claimed,) = work.session.ask([Claim(0, work.supervisor.identity, 10)])
    claim_ahead.leased(claimed.grants)
    assert answered(claim_ahead, left) == [None] * 10 + ["QUEUE_FULL"] * 4
    assert refusals(work) == 15
    claim_ahead.offer(1)
    assert answered(claim_ahead, left[10:]) == ["QUEUE_FULL"] * 4  # The lease is claimed behind the submissions.
    assert refusals(work) == 16
    assert answered(claim_ahead, left[10:]) == [None, *["QUEUE_FULL"] * 3]
    assert refusals(work) == 16


def test_room_that_others_have_made_is_found(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(monkeypatch)
    work = rig.work()
    claim_ahead = silent(work)
    left = fill(work, rig, claim_ahead)
    work.session.ask([Claim(0, "somebody else", 50)])
    assert answered(claim_ahead, left) == [None, *["QUEUE_FULL"] * 13]
    assert answered(claim_ahead, left[1:]) == [None] * 13
    assert refusals(work) == 14


def test_a_crew_tells_what_it_has_taken_from_the_queue(rig: Rig) -> None:
    """X-182: more work than the queue holds is refused once, not again and again."""
    work = rig.work()
    tasks = SingleJobs(work)
    call = Call(kind="python", target="steps:one", base=str(rig.project), cache=False)
    for ticket in tasks.submit([JobRequest(call, f"job-{number}") for number in range(1000)]):
        assert tasks.wait(ticket, WAIT_SECONDS)
    assert refusals(work) <= 250


def test_a_lease_that_comes_while_the_executors_are_asked_is_begun_at_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking them ends one call of `wake`: the supervisor must look again before it sleeps, or it sleeps with work in hand."""
    quiet(monkeypatch)
    work = rig.work()
    supervisor = work.supervisor
    supervisor._step()
    slept: list[float] = []
    monkeypatch.setattr(rig.lane, "wait", slept.append)
    ask = rig.lane.finished

    def finished() -> Sequence[Any]:
        monkeypatch.setattr(rig.lane, "finished", ask)
        assert supervisor.claim_ahead.submit(submissions(work, rig, "job-1"), NEVER)[0].ok
        rig.lane._bell.clear()
        return ()

    monkeypatch.setattr(rig.lane, "finished", finished)
    supervisor._step()
    assert slept == []
    supervisor._step()
    assert [assignment.job_id for assignment in rig.lane.began] == ["job-1"]
