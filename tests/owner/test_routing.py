"""Commands go to the partition they are about: a session is told which only by those who mean one in particular."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.canon import sha256
from detent.errors import InvalidInput
from detent.kernel import Cancel, Claim, Dispatch, Finish, Heartbeat, ReuseStep, StartRun, partition_of
from detent.kernel.identity import id_in_run, name_in_run, same_partition
from detent.owner.session import Session
from tests.kernel.builders import TENANT
from tests.owner.homes import House
from tests.owner.test_partitions import P, name, names, start


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, partitions=P)


@pytest.fixture(params=["owner", "client"])
def session(house: House, request: pytest.FixtureRequest) -> Iterator[Session]:
    """The session of the owner, and that of another process's kind, over the socket."""
    with house.session() as owner, house.session() as client:
        yield owner if request.param == "owner" else client
    whole_but_runs(house)


def whole_but_runs(house: House) -> None:
    with house.reader() as reader:
        assert all(row.partition == partition_of(row.job_id, P) for row in reader.jobs())


def test_a_request_is_decided_where_its_jobs_are_and_answered_in_order(house: House, session: Session) -> None:
    """PIPE-061, PIPE-062"""
    job_ids = [f"job-{number}" for number in range(12)]
    answers = session.ask([house.submit(job_id) for job_id in job_ids])
    assert [answer.job.job_id for answer in answers if answer.job is not None] == job_ids
    (claimed,) = session.ask([Claim(0, "worker-1", 12)])
    assert sorted(grant.job_id for grant in claimed.grants) == sorted(job_ids)
    assert sorted(grant.job_id for grant in session.grants("worker-1")) == sorted(job_ids)
    beats = session.ask([Heartbeat(0, grant.job_id, grant.lease_id) for grant in claimed.grants])
    assert [beat.heartbeat.job_id for beat in beats if beat.heartbeat] == [grant.job_id for grant in claimed.grants]
    ends = session.ask([Finish(0, grant.job_id, grant.lease_id) for grant in claimed.grants])
    assert [end.job.job_id for end in ends if end.job] == [grant.job_id for grant in claimed.grants]
    assert {house.state(job_id) for job_id in job_ids} == {"SUCCEEDED"}


def test_each_command_is_refused_or_granted_by_itself(house: House, session: Session) -> None:
    first, second = name("job", 1), name("job", 3)
    submitted, unknown, again = session.ask(
        [house.submit(first), Cancel(0, TENANT, second), house.submit(second, priority=1)]
    )
    assert (submitted.ok, again.ok) == (True, True)
    assert unknown.refusal is not None
    assert unknown.refusal.code == "UNKNOWN_JOB"


def test_claims_go_round_and_take_from_every_partition_with_work(house: House, session: Session) -> None:
    """A worker with free slots starves while no partition has work, and no partition starves while others have."""
    for partition in range(P):
        session.ask([house.submit(job_id) for job_id, _ in zip(names("job", partition), range(4), strict=False)])
    served = [partition_of(grant.job_id, P) for _ in range(16) for grant in session.ask([Claim(0, "w")])[0].grants]
    assert served == [0, 1, 2, 3] * 4
    session.ask([house.submit(name("last", 2))])
    (claimed,) = session.ask([Claim(0, "w", 5)])
    assert [grant.job_id for grant in claimed.grants] == [name("last", 2)]
    (nothing,) = session.ask([Claim(0, "w", 5)])
    assert (nothing.ok, nothing.grants) == (True, ())


def test_a_claim_for_many_takes_no_more_than_it_asks_for(house: House, session: Session) -> None:
    session.ask([house.submit(f"job-{number}") for number in range(20)])
    counted: Counter[int] = Counter()
    while grants := session.ask([Claim(0, "w", 3)])[0].grants:
        counted[len(grants)] += 1
    assert counted == {3: 6, 2: 1}


def test_a_submission_and_a_claim_are_one_request_wherever_they_are_decided(house: House, session: Session) -> None:
    *submitted, claimed = session.ask([*(house.submit(f"job-{number}") for number in range(6)), Claim(0, "w", 4)])
    assert all(answer.ok for answer in submitted)
    assert len(claimed.grants) == 4


def test_content_goes_with_the_command_that_names_it(house: House, session: Session) -> None:
    payloads = {name("job", partition): f"payload {partition}".encode() for partition in range(P)}
    commands = [house.submit(job_id, payload_digest=sha256(data)) for job_id, data in payloads.items()]
    session.ask(commands, content_of=[[(sha256(data), data)] for data in payloads.values()])
    with house.reader() as reader:
        assert [dict(reader.contents([sha256(data)])) for data in payloads.values()] == [
            {sha256(data): data} for data in payloads.values()
        ]


def test_what_no_partition_is_named_for_is_refused(house: House) -> None:
    with house.session() as session:
        with pytest.raises(InvalidInput, match="claims once"):
            session.ask([Claim(0, "w"), Claim(0, "w")])
        with pytest.raises(InvalidInput, match="Dispatch names nothing"):
            session.ask([house.submit(name("job", 1)), house.submit(name("job", 2)), Dispatch(0)])


def test_a_run_takes_a_result_of_another_partition_only_if_there_is_one(house: House) -> None:
    """X-167: the job's history is another partition's; its owner looks before it lets the record be written."""
    run_id, done, waits = name("run", 1), name("job", 2), name("waits", 3)
    with house.session() as session:
        session.ask([house.submit(done)])
        (claimed,) = session.ask([Claim(0, "w")])
        session.ask([Finish(0, done, claimed.grants[0].lease_id)])
        session.ask([house.submit(waits), start(run_id)])
        for job_id in (waits, name("nowhere", 0)):
            (refused,) = session.ask([ReuseStep(0, run_id, "step", job_id, bytes(32))])
            assert refused.refusal is not None
            assert refused.refusal.code == "UNKNOWN_JOB"
        (taken,) = session.ask([ReuseStep(0, run_id, "step", done, bytes(32))])
        assert taken.ok
        (again,) = session.ask([ReuseStep(0, run_id, "step", done, bytes(32))])
        assert again.status == "DEDUPLICATED"
        other = StartRun(0, "elsewhere", name("other", 0), "nightly", bytes(32), bytes(32), bytes(32), "op")
        (started, foreign) = session.ask([other, ReuseStep(0, other.run_id, "step", done, bytes(32))])
        assert started.ok
        assert foreign.refusal is not None


def test_the_ids_of_a_run_lie_in_its_partition() -> None:
    """Decision 0009"""
    for run_id in ("nightly-1", "nightly-2", "nightly-3"):
        suits = same_partition(run_id, P)
        assert suits is not None
        for number in range(20):
            job_id = id_in_run(run_id, f"seq-{number}", P)
            assert suits(job_id)
            assert name_in_run(run_id, job_id) == f"seq-{number}"
            assert id_in_run(run_id, f"seq-{number}", 1) == f"{run_id}/seq-{number}"
    assert same_partition("any", 1) is None
