"""An unknown outcome is asked again, by another owner, after a restart: nothing is counted twice (X-173)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from detent.canon import decode, sha256
from detent.errors import DetentError, OutcomeUnknown
from detent.inspect.audit import verify_home
from detent.inspect.replay import replay_home
from detent.kernel import (
    BackoffSchedule,
    Claim,
    Command,
    Erase,
    Finish,
    Job,
    Outcome,
    ReportUsage,
    ReuseStep,
    Run,
    checkpoint,
)
from detent.owner.session import Session
from detent.owner.turn import LOOK_AHEAD_MIN
from detent.owner.wiring import Parts
from detent.runs.erasable import digests_of_job
from detent.runs.erase import erase
from detent.store.api import AnswerRow, Store
from detent.store.memory import MemoryStore
from detent.store.sqlite import SqliteStore
from detent.testing import FakeClock, Faults, faulty
from tests.homes import EARLY_MS, Played, fresh
from tests.kernel.builders import config
from tests.owner.rig import ORIGIN, Rig, end_run, fail, finish, stamped, start_run, submit

DIGEST = sha256(b"content")
Ask = Callable[[Rig], Command]


def usage(rig: Rig) -> Command:
    """A report of a running job."""
    return ReportUsage(0, "job-1", rig.start().lease_id, 0, cpu_time_ms=5)


def reuse(rig: Rig) -> Command:
    """A step of an open run."""
    rig.one(finish(rig.start()))
    rig.one(start_run())
    return ReuseStep(0, "run-1", "step", "job-1", DIGEST)


def erasure(rig: Rig) -> Command:
    """The first erasure."""
    return Erase(0, (DIGEST,), 0)


def seen(rig: Rig) -> tuple[object, ...]:
    """All that the three commands leave in a store."""
    job, run = rig.store.job("job-1"), rig.store.run("run-1")
    return (
        None if job is None else Job.decode(job.body).usage.to_list(),
        None if run is None else Run.decode(run.body).steps_reused,
        [row.body for kind in ("step_reused", "run_reused", "erased") for row in rig.store.records_of_kind(0, kind)],
    )


@pytest.mark.parametrize("ask", [usage, reuse, erasure])
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_request_repeated_after_an_unknown_outcome_is_decided_once(
    store: Store, ask: Ask, durable: bool, checkpointed: bool
) -> None:
    """X-173"""
    rig, faults = Rig(store), Faults()
    command = ask(rig)
    before = seen(rig)
    rig.open(store=faulty(store, faults), checkpoint_records=1 if checkpointed else 20_000)
    (faults.hide if durable else faults.lose)("append")
    future = rig.ask(command)
    rig.owner.step()
    with pytest.raises(OutcomeUnknown):
        future.result(timeout=0)
    assert (seen(rig) == before) is not durable
    rig.open(checkpoint_records=1 if checkpointed else 20_000)
    first = rig.one(command)
    assert first.status == ("DEDUPLICATED" if durable else "COMMITTED")
    after, size = seen(rig), rig.size
    assert after != before
    for _ in range(2):
        again = rig.one(command)
        assert (again.status, again.refusal) == ("DEDUPLICATED", None)
        assert (None if again.record is None else again.record.body) == (
            None if first.record is None else first.record.body
        )
        rig.open()
    assert seen(rig) == after
    assert rig.size == size + 2, "the two new epochs and nothing else"
    assert rig.recover().kernel.erasures == (ask is erasure)


@pytest.mark.parametrize("ask", [usage, reuse, erasure])
def test_a_repeat_in_the_same_turn_is_decided_once(store: Store, ask: Ask) -> None:
    """X-173: what the turn has decided counts before it is durable"""
    rig = Rig(store)
    command = ask(rig)
    first, second, third = rig.do(command, command, submit("other"))
    assert [outcome.status for outcome in (first, second, third)] == ["COMMITTED", "DEDUPLICATED", "COMMITTED"]
    assert first.record == second.record
    assert [type(command) for command in rig.commands()] == [type(command), type(submit("other"))]


@pytest.mark.parametrize("together", [True, False])
def test_a_second_request_under_one_idempotency_key_is_not_decided(store: Store, *, together: bool) -> None:
    """JOB-029: a server that was deposed behind its look at the key sends it to the next owner all the same."""
    rig = Rig(store)

    def ask(job_id: str) -> Future[list[Outcome]]:
        answer = AnswerRow(sha256(b"scope"), sha256(b"body"), job_id.encode(), rig.clock.wall_ms())
        asked = rig.owner.ask([stamped(submit(job_id))], answers=[answer])
        if not together:
            rig.owner.step()
        return asked

    first, again, other = ask("first"), ask("first"), ask("other")
    rig.owner.step()
    assert [one.result(timeout=0)[0].ok for one in (first, again)] == [True, True]
    (refused,) = other.result(timeout=0)
    assert refused.refusal is not None
    assert refused.refusal.code == "IDEMPOTENCY_KEY_DECIDED"
    assert [row.job_id for row in store.jobs()] == ["first"]


def test_many_requests_at_once_are_decided_like_one_by_one(store: Store) -> None:
    """PIPE-076, X-173: the jobs of a long request are looked up together, before the first of it is decided."""
    rig = Rig(store)
    rig.one(finish(rig.start("ended")))
    rig.one(start_run())
    again, other = submit("ended"), submit("ended", priority=9)
    long = [submit(f"new-{number}") for number in range(LOOK_AHEAD_MIN)]
    reuse_it = ReuseStep(0, "run-1", "step", "ended", DIGEST)
    unknown = ReuseStep(0, "run-1", "other", "nobody", DIGEST)
    outcomes = rig.do(again, other, *long, long[0], reuse_it, unknown)
    assert [outcome.status for outcome in outcomes] == [
        "DEDUPLICATED",
        "CONFLICT",
        *["COMMITTED"] * LOOK_AHEAD_MIN,
        "DEDUPLICATED",
        "COMMITTED",
        "REFUSED",
    ]
    grants = rig.one(Claim(0, "worker", LOOK_AHEAD_MIN)).grants
    for grant in grants:
        rig.one(finish(grant))
    # Nothing of what was looked up before those commits is believed now.
    assert [rig.one(command).status for command in long] == ["DEDUPLICATED"] * LOOK_AHEAD_MIN


def test_a_reuse_repeated_after_the_end_of_its_run_is_answered_from_the_ledger(store: Store) -> None:
    """X-173"""
    rig = Rig(store)
    command = reuse(rig)
    first = rig.one(command)
    rig.one(end_run())
    rig.open()
    again = rig.one(command)
    assert (again.status, again.record) == ("DEDUPLICATED", first.record)


def test_an_erasure_repeated_after_its_content_came_back_takes_nothing_away(store: Store) -> None:
    """The first wish was fulfilled; the content that is there now was brought by another request."""
    rig = Rig(store)
    content = (sha256(b"payload"), b"payload")
    command = Erase(0, (content[0],), 0)
    rig.one(command)
    rig.do(submit("again", payload_digest=content[0]), content=[content])
    assert rig.one(command).status == "DEDUPLICATED"
    assert store.content(content[0]) == b"payload"
    assert rig.one(Erase(0, (content[0],), 1)).status == "COMMITTED"
    assert store.content(content[0]) is None


def test_a_repeated_erasure_that_is_recorded_for_the_time_it_let_pass_takes_nothing_away_either() -> None:
    """X-165: a command is recorded with whatever fell due before it, and must not be taken for a new wish"""
    store = MemoryStore.create(ORIGIN, 1)
    rig = Rig(store, settings=config(backoff_schedules=(BackoffSchedule("default", (0,)),)))
    content = (sha256(b"payload"), b"payload")
    command = Erase(0, (content[0],), 0)
    rig.one(command)
    grant = rig.start()
    rig.do(submit("again", payload_digest=content[0]), content=[content])
    _, repeated = rig.do(fail(grant), command)
    assert (repeated.status, len(repeated.records)) == ("DEDUPLICATED", 1)
    assert [type(command) for command in rig.commands()] == [Finish, Erase]
    assert store.content(content[0]) == b"payload"
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()


# -- a home ------------------------------------------------------------------------------------------------------------


def digests_of(played: Played) -> list[bytes]:
    """What the records of a job that has ended name."""
    with Parts().open_reader(played.home.ledger) as reader:
        return list(digests_of_job(reader, "done"))


def test_erasing_goes_on_over_an_unknown_outcome_and_is_recorded_once(tmp_path: Path) -> None:
    """X-173"""
    played, faults = fresh(tmp_path), Faults()
    digests = digests_of(played)
    parts = Parts(
        clock=FakeClock(EARLY_MS + 10_000_000), open_store=lambda path: faulty(SqliteStore.open(path), faults)
    )
    faults.hide("append", after=1)  # After the batch that begins the epoch.
    done = erase(played.home, digests[:1], environment=played.environment, parts=parts)
    assert done.erased == (digests[0],)
    with Parts().open_reader(played.home.ledger) as reader:
        assert [decode(row.body)["digests"] for row in reader.records_of_kind(0, "erased")] == [[digests[0]]]
    assert verify_home(played.home, environment=played.environment).ok
    assert replay_home(played.home).ok


def test_an_erasure_steps_back_behind_one_that_came_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = fresh(tmp_path)
    digests = digests_of(played)
    ask, others = Session.ask, [Erase(0, (DIGEST,), 0)]

    def interrupted(session: Session, commands: list[Command], **options: object) -> object:
        if others:
            ask(session, [others.pop()])
        return ask(session, commands, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "ask", interrupted)
    clock = FakeClock(EARLY_MS + 10_000_000)
    erase(played.home, digests[:1], environment=played.environment, parts=Parts(clock=clock))
    with Parts().open_reader(played.home.ledger) as reader:
        bodies = [decode(row.body) for row in reader.records_of_kind(0, "erased")]
    assert [(body["erasure_seq"], body["digests"]) for body in bodies] == [(0, [DIGEST]), (1, [digests[0]])]


def test_a_refused_erasure_is_said_and_takes_nothing_away(tmp_path: Path) -> None:
    played = fresh(tmp_path)
    digests = digests_of(played)
    with pytest.raises(DetentError) as caught:
        erase(played.home, digests[:1], environment=played.environment, reason_code="lower case")
    assert "reason_code" in str(caught.value)
    with Parts().open_reader(played.home.ledger) as reader:
        assert reader.content(digests[0]) is not None
