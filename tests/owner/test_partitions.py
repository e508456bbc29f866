"""A ledger of four partitions: four owners in one home, each with its own log, one trust and one store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from io import BytesIO
from itertools import count
from pathlib import Path

import pytest

import detent
from detent.errors import InvalidInput
from detent.inspect.audit import verify_home
from detent.inspect.doctor import examine
from detent.inspect.export import export
from detent.inspect.replay import replay_file, replay_home
from detent.kernel import Cancel, Claim, Command, EndRun, Erase, Finish, ReuseStep, StartRun, Submit, partition_of
from detent.ledger import verify_bundle
from detent.owner.content import Content
from detent.owner.keys import keys_view, rotate
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.views import job_view, jobs, run_view, runs, timeline_of_job, timeline_of_run
from detent.owner.wiring import Parts, signing_key
from detent.runs.erase import erase_job
from detent.testing import FakeClock
from tests.kernel.builders import TENANT
from tests.owner.homes import House

P = 4


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, partitions=P)


def names(word: str, partition: int) -> Iterator[str]:
    """Ids that a partition owns."""
    return (name for number in count() if partition_of(name := f"{word}-{number}", P) == partition)


def name(word: str, partition: int) -> str:
    return next(names(word, partition))


def ask(session: Session, command: Command, partition: int) -> Answer:
    (answer,) = session.ask([command], partition=partition)
    return answer


def granted(session: Session, command: Command, partition: int) -> Answer:
    answer = ask(session, command, partition)
    assert answer.refusal is None, answer.refusal
    return answer


def start(run_id: str) -> StartRun:
    return StartRun(0, TENANT, run_id, "nightly", bytes(32), bytes(32), bytes(32), "op")


def work(house: House, session: Session, *, word: str = "job") -> None:
    """In every partition a run with two jobs, one done and one reused, and a job that waits."""
    for partition in range(P):
        run_id = name(f"run-{word}", partition)
        granted(session, start(run_id), partition)
        first, second, third, *_ = (found for found, _ in zip(names(word, partition), range(3), strict=False))
        for job_id in (first, second):
            granted(session, Submit(0, house.verified(job_id), run_id), partition)
        granted(session, Submit(0, house.verified(third, priority=1)), partition)
        grants = granted(session, Claim(0, "worker-1", 2), partition).grants
        assert [grant.job_id for grant in grants] == [first, second]
        for grant in grants:
            granted(session, Finish(0, grant.job_id, grant.lease_id), partition)
        granted(session, ReuseStep(0, run_id, "step", first, bytes(32)), partition)
        granted(session, EndRun(0, run_id, "completed"), partition)


def whole(house: House) -> None:
    """The home verifies, replays and exports, and so does every run of it."""
    environment = house.environment
    report = verify_home(house.home, environment=environment)
    assert report.findings == ()
    replayed = replay_home(house.home)
    assert (replayed.ok, replayed.differences) == (True, ())
    assert replayed.transition_log_hash == report.transition_log_hash
    root = report.root
    bundle = export(house.home, house.directory / "all.detent", environment=environment, with_content=True)
    assert detent.verify(bundle.path, root).ok
    assert replay_file(bundle.path).transition_log_hash == report.transition_log_hash
    with house.reader() as reader:
        run_ids = [row.run_id for row in reader.runs()]
    for run_id in run_ids:
        bundle = export(house.home, house.directory / "run.detent", run_id=run_id, environment=environment)
        alone = verify_bundle(BytesIO(bundle.path.read_bytes()), root=root)
        assert alone.findings == ()
        assert alone.counts["jobs"] == 2


def test_every_partition_works_and_the_whole_verifies_replays_and_exports(house: House) -> None:
    """PIPE-060, PIPE-061"""
    with house.session() as session:
        assert session.owned is not None
        assert len(session.owned.owners) == P
        work(house, session)
        whole(house)  # While its owners go on.
    whole(house)
    with house.reader() as reader:
        assert {partition_of(row.job_id, P) for row in reader.jobs()} == set(range(P))
        assert all(row.partition == partition_of(row.job_id, P) for row in reader.jobs())
        assert all(row.partition == partition_of(row.run_id, P) for row in reader.runs())


def test_every_partition_goes_on_after_a_restart_and_over_the_socket(house: House) -> None:
    """X-172"""
    with house.session() as owner, house.session() as client:
        assert not client.owns
        work(house, client)
        assert owner.owns
    with house.session(Parts(checkpoint_records=1)) as session:
        work(house, session, word="later")
    with house.session(Parts(checkpoint_records=1)) as session:
        for partition in range(P):
            assert len(granted(session, Claim(0, "worker-2", 9), partition).grants) == 2
            assert len(session.grants("worker-2", partition=partition)) == 2
    whole(house)


def test_partitions_write_side_by_side(house: House) -> None:
    """PIPE-060: four writers on one file, none of them loses a commit"""
    with house.session() as session:
        submissions = [
            [Submit(0, house.verified(job_id)) for job_id, _ in zip(names("job", partition), range(20), strict=False)]
            for partition in range(P)
        ]
        failures: list[BaseException] = []

        def send(partition: int) -> None:
            try:
                for command in submissions[partition]:
                    granted(session, command, partition)
            except BaseException as exc:  # noqa: BLE001 - handed to the test
                failures.append(exc)

        threads = [threading.Thread(target=send, args=(partition,)) for partition in range(P)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
    with house.reader() as reader:
        assert reader.job_counts() == {"QUEUED": 20 * P}
    whole(house)


@pytest.mark.parametrize("remote", [False, True])
def test_what_belongs_to_another_partition_is_refused_by_name(house: House, remote: bool) -> None:
    """PIPE-061, PIPE-062, X-167: a run and its jobs share a partition, and any other request gets an error"""
    with house.session() as owner, house.session() as client:
        session = client if remote else owner
        run_id, job_id = name("run", 1), name("job", 2)
        assert session.partition(run_id) == 1
        granted(session, start(run_id), 1)
        for command, partition in (
            (start(run_id), 2),
            (EndRun(0, run_id, "completed"), 0),
            (ReuseStep(0, run_id, "step", job_id, bytes(32)), 3),
            (Submit(0, house.verified(job_id), run_id), 2),
            (Submit(0, house.verified(job_id), run_id), 1),
            (Submit(0, house.verified(job_id)), 0),
            (Erase(0, (bytes(32),), 0), 1),
        ):
            answer = ask(session, command, partition)
            assert answer.refusal is not None, command
            assert answer.refusal.code == "NOT_PARTITION_OWNER", command
        answer = ask(session, Submit(0, house.verified(job_id), run_id), 2)
        assert answer.refusal is not None
        assert f"run {run_id!r} lives in partition 1 of 4" in answer.refusal.message
        for partition in (-1, P, 99):
            with pytest.raises(InvalidInput, match="partition"):
                session.ask([Cancel(0, TENANT, job_id)], partition=partition)
            with pytest.raises(InvalidInput, match="partition"):
                session.grants("worker-1", partition=partition)
    assert verify_home(house.home, environment=house.environment).ok


@pytest.mark.parametrize("role", ["transition", "log", "manifest", "root"])
def test_keys_are_rotated_in_every_partition_whatever_their_lengths(house: House, role: str) -> None:
    """PIPE-060"""
    parts = Parts(clock=FakeClock(2_000_000_000_000))
    with house.session() as session:
        work(house, session)
        for job_id, _ in zip(names("more", 2), range(5), strict=False):
            granted(session, Submit(0, house.verified(job_id, priority=1)), 2)
    rotate(house.home, role, environment=house.environment, parts=parts)
    with house.session(parts) as owner, house.session() as client:
        if role == "manifest":
            for session in (owner, client):
                answer = ask(session, Submit(0, house.verified(name("old", 3))), 3)
                assert answer.refusal is not None
                assert answer.refusal.details["fault"] == "KEY_OUT_OF_RANGE"
        house._key = signing_key(house.home, house.trust(), "manifest", house.size())
        work(house, owner, word="rotated")
        work(house, client, word="again")
    whole(house)
    with house.reader() as reader:
        assert keys_view(house.home, reader).version == 2


def test_content_is_erased_whichever_partition_names_it(house: House) -> None:
    """X-171"""
    payload = b"payload"
    with house.session() as session, house.reader() as reader:
        staged = Content(reader, house.home.content_files()).stage(payload)
        job_id = name("job", 3)
        submission = Submit(0, house.verified(job_id, payload_digest=staged.digest))
        (answer,) = session.ask([submission], partition=3, content=staged.inline)
        assert answer.ok
        granted(session, Cancel(0, TENANT, job_id), 3)
    done = erase_job(house.home, job_id, environment=house.environment)
    assert done.erased == (staged.digest,)
    whole(house)
    with house.reader() as reader:
        assert reader.is_erased(staged.digest)
        assert len(list(reader.records_of_kind(0, "erased"))) == 1
    again = erase_job(house.home, job_id, environment=house.environment)
    assert (again.erased, again.already) == ((), (staged.digest,))


def test_what_there_is_to_see_is_seen_over_all_partitions(house: House) -> None:
    with house.session() as session:
        work(house, session)
    # What the machine lacks for a sandbox is no fault of the home: an ordinary user has no control group, for one.
    checks = [
        check for check in examine(house.home, environment=house.environment) if not check.name.startswith("sandbox")
    ]
    # How this machine's interpreter was built is not about partitions.
    assert {check.status for check in checks if check.name not in {"interpreter", "bytecode"}} == {"ok"}, checks
    assert [check.name for check in checks].count("kept tree head") == P
    with house.reader() as reader:
        content = Content(reader, house.home.content_files())
        assert len(list(runs(reader))) == P
        assert len(list(jobs(reader))) == 3 * P
        for partition in range(P):
            run = run_view(reader, name("run-job", partition))
            job = job_view(reader, name("job", partition))
            assert run is not None
            assert job is not None
            assert [view.row.kind for view in timeline_of_run(reader, content, run)] == [
                "run_started",
                "step_reused",
                "run_ended",
            ]
            assert len(timeline_of_job(reader, content, job)) == 3


def test_a_changed_record_of_any_partition_is_found_in_it(house: House, tmp_path: Path) -> None:
    with house.session() as session:
        work(house, session)
    bundle = export(house.home, tmp_path / "all.detent", environment=house.environment).path
    data = bundle.read_bytes()
    root = house.trust().root_text
    for partition in range(P):
        at = data.rindex(name("job", partition).encode())
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        report = verify_bundle(BytesIO(changed), root=root)
        assert partition in {finding.partition for finding in report.findings}
