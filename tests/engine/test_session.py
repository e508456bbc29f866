"""Several sessions on one home: one owns it, the others are its clients, and one of them goes on when it ends (X-172)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from detent.canon import sha256
from detent.engine import session as session_module
from detent.engine.audit import verify_home
from detent.engine.lock import is_held
from detent.engine.session import Session
from detent.engine.wiring import OwnedHome, Parts
from detent.errors import HomeError, OutcomeUnknown, StoreUnavailable
from detent.kernel import Cancel, Claim, Finish
from detent.store.api import Store
from detent.store.sqlite import SqliteStore
from detent.testing import CrashAt, FakeClock, Faults, faulty
from tests.engine.homes import House, ask, one
from tests.engine.processes import talking
from tests.engine.rig import cancel
from tests.kernel.builders import TENANT

WAIT_SECONDS = 60


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for another thread or process to get there; it looks again whenever a take-over has ended."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        os.sched_yield()


# -- one session -------------------------------------------------------------------------------------------------------


def test_the_first_session_owns_the_home(house: House) -> None:
    with house.session() as session:
        assert session.owns
        assert one(session, house.submit()).status == "COMMITTED"
        assert house.state() == "QUEUED"
        assert house.home.socket.exists()
        assert house.home.socket.stat().st_mode & 0o777 == 0o600
    assert not house.home.socket.exists()


def test_the_socket_is_private_from_its_first_moment(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-172: not only after somebody has got round to it."""
    monkeypatch.setattr(Path, "chmod", lambda *_arguments: None)
    before = os.umask(0)
    try:
        with house.session():
            assert house.home.socket.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


def test_a_closed_session_says_so(house: House) -> None:
    session = house.session()
    session.close()
    session.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        session.ask([house.submit()])


def test_a_home_can_be_opened_again_and_again(house: House) -> None:
    for _ in range(3):
        with house.session() as session:
            assert session.owns
    assert house.epochs() == [1, 2, 3, 4]


def test_a_session_knows_the_partition_of_a_job(tmp_path: Path) -> None:
    """PIPE-061"""
    house = House(tmp_path, partitions=7)
    with house.session() as session:
        assert [session.partition(f"job-{n}") for n in (1, 2, 3)] == [2, 6, 5]
        (answer,) = session.ask([house.submit("job-1")], partition=2)
        assert answer.ok
        (refused,) = session.ask([house.submit("job-2")], partition=0)
        assert refused.refusal is not None
        assert refused.refusal.code == "NOT_PARTITION_OWNER"


def test_an_answer_that_does_not_come_in_time_is_an_unknown_outcome(house: House) -> None:
    """X-173"""
    with house.session() as session:
        assert session.owned is not None
        with session.owned.owners[0]._turn_lock, pytest.raises(OutcomeUnknown, match="no answer"):
            session.ask([house.submit()], timeout=0.01)
        assert ask(session, house.submit())[0].ok


# -- two sessions ------------------------------------------------------------------------------------------------------


def test_the_second_session_is_a_client_of_the_first(house: House) -> None:
    """X-172"""
    with house.session() as owner, house.session() as client:
        assert (owner.owns, client.owns) == (True, False)
        assert one(client, house.submit()).status == "COMMITTED"
        assert one(owner, house.submit()).status == "DEDUPLICATED"


def test_a_client_gets_the_answer_the_owner_would_have_got(house: House) -> None:
    """X-172: it need not care which it is."""
    with house.session() as owner, house.session() as client:
        one(owner, house.submit("job-1", priority=9))
        one(owner, house.submit("job-2"))
        (grant,) = one(client, Claim(0, "worker-1")).grants
        assert grant.job_id == "job-1"
        finish = Finish(0, grant.job_id, grant.lease_id, detail_digest=sha256(b"result"))
        done = one(client, finish)
        assert one(owner, finish) == done._replace(status="DEDUPLICATED")
        assert one(client, finish) == one(owner, finish)
        ours, theirs = one(owner, cancel("nobody")), one(client, cancel("nobody"))
        assert ours.refusal == theirs.refusal


def test_content_of_a_client_goes_with_its_commit(house: House) -> None:
    payload = b"payload"
    with house.session(), house.session() as client:
        command = house.submit(payload_digest=sha256(payload))
        client.ask([command], content=[(sha256(payload), payload)])
    with house.reader() as reader:
        assert reader.content(sha256(payload)) == payload


def test_a_job_is_cancelled_from_another_session(house: House) -> None:
    """X-172: `cancel` from another terminal."""
    with house.session() as owner, house.session() as client:
        one(owner, house.submit())
        answer = one(client, cancel())
        assert answer.job is not None
        assert answer.job.state == "CANCELED"
        assert one(owner, cancel()).status == "DEDUPLICATED"


def test_when_the_owner_closes_a_client_takes_over_with_a_higher_epoch(house: House) -> None:
    """X-172"""
    owner, client = house.session(), house.session()
    one(client, house.submit("job-1"))
    owner.close()
    assert one(client, house.submit("job-2")).ok
    assert client.owns
    client.close()
    assert house.epochs()[-1] == 3
    assert (house.state("job-1"), house.state("job-2")) == ("QUEUED", "QUEUED")


def test_a_client_takes_over_even_if_nobody_asks_it_for_anything(house: House) -> None:
    """X-172: leases and retries must be looked after."""
    owner, client = house.session(), house.session()
    owner.close()
    eventually(lambda: client.owns, "the client did not take over")
    client.close()


def test_of_several_clients_one_takes_over_and_the_others_follow_it(house: House) -> None:
    """X-172"""
    owner = house.session()
    clients = [house.session() for _ in range(3)]
    owner.close()
    for number, client in enumerate(clients):
        assert one(client, house.submit(f"job-{number}")).ok
    assert sum(client.owns for client in clients) == 1
    for client in clients:
        client.close()
    assert house.epochs()[-1] >= 3


def test_a_chain_of_take_overs_loses_nothing(house: House) -> None:
    """X-172"""
    sessions = [house.session() for _ in range(4)]
    for number in range(4):
        for session in sessions:
            assert one(session, house.submit(f"job-{number}")).ok
        owner = next(session for session in sessions if session.owns)
        sessions.remove(owner)
        owner.close()
        if sessions:
            eventually(lambda: any(session.owns for session in sessions), "nobody took over")
    assert [house.state(f"job-{number}") for number in range(4)] == ["QUEUED"] * 4


def test_a_client_that_loses_its_owner_in_flight_learns_that_the_outcome_is_unknown(house: House) -> None:
    """X-173"""
    owner, client = house.session(), house.session()
    assert owner.owned is not None
    failed: list[type[BaseException]] = []

    def asking() -> None:
        try:
            client.ask([house.submit()])
        except OutcomeUnknown as exc:
            failed.append(type(exc))

    with owner.owned.owners[0]._turn_lock:
        thread = threading.Thread(target=asking)
        thread.start()
        eventually(lambda: not owner.owned.owners[0]._inbox.empty(), "the request did not arrive")  # type: ignore[union-attr]
        assert owner.owned._service is not None
        owner.owned._service.close()
        thread.join(WAIT_SECONDS)
    assert failed == [OutcomeUnknown]
    owner.owned._service = None
    owner.close()
    assert one(client, house.submit()).status in {"COMMITTED", "DEDUPLICATED"}
    client.close()
    with house.reader() as reader:
        assert len(list(reader.records_of_job("job-1"))) == 1


# -- an owner that fails ------------------------------------------------------------------------------------------------


class Failing:
    """Parts whose store fails when told to."""

    def __init__(self) -> None:
        self.faults = Faults()

    def open_store(self, path: Path) -> Store:
        return faulty(SqliteStore.open(path), self.faults)

    def parts(self) -> Parts:
        return Parts(open_store=self.open_store)


@pytest.mark.parametrize("durable", [False, True])
def test_an_embedded_session_reopens_the_ledger_after_an_unknown_outcome(house: House, durable: bool) -> None:
    """X-173"""
    failing = Failing()
    with house.session(failing.parts()) as session:
        one(session, house.submit("job-0"))
        (failing.faults.hide if durable else failing.faults.lose)("append")
        with pytest.raises(OutcomeUnknown):
            session.ask([house.submit("job-1")])
        (again,) = session.ask([house.submit("job-1")])
        assert again.status == ("DEDUPLICATED" if durable else "COMMITTED")
        assert session.owns
    assert house.state("job-1") == "QUEUED"


def test_a_home_whose_owner_failed_is_served_again_without_anybody_asking_there(house: House) -> None:
    """X-172, X-173: the failed owner must not sit on the lock."""
    failing = Failing()
    owner, client = house.session(failing.parts()), house.session()
    failing.faults.fail("append")
    with pytest.raises(StoreUnavailable):
        client.ask([house.submit("job-1")])
    eventually(lambda: _served(client, house), "the home stays dead")
    owner.close()
    client.close()


def _served(client: Session, house: House) -> bool:
    try:
        return client.ask([house.submit("job-2")])[0].ok
    except (StoreUnavailable, OutcomeUnknown):
        return False


def test_a_home_that_fails_as_often_as_it_is_opened_is_not_opened_over_and_over(house: House) -> None:
    """Each opening writes an epoch: left to itself, a home with a fault would fill its own disk."""
    failing = Failing()
    with house.session(failing.parts()) as session:
        failed = threading.Event()
        assert session.owned is not None
        told = session.owned.owners[0].on_failed

        def tell() -> None:
            told()
            failed.set()

        session.owned.owners[0].on_failed = tell
        failing.faults.fail("append")
        with pytest.raises(StoreUnavailable):
            session.ask([house.submit()])
        assert failed.wait(WAIT_SECONDS)
        eventually(lambda: not is_held(house.home.lock), "the failed owner keeps the lock")
        assert house.epochs() == [1, 2]
        assert one(session, house.submit()).ok, "somebody asks, and it is opened again"
        assert house.epochs()[-1] == 3


def test_an_owner_that_fails_after_a_long_life_is_opened_again_by_itself(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-172, X-173: leases and retries must be looked after."""
    monkeypatch.setattr(session_module, "REOPEN_SECONDS", 0.0)
    failing = Failing()
    with house.session(failing.parts()) as session:
        failing.faults.fail("append")
        with pytest.raises(StoreUnavailable):
            session.ask([house.submit()])
        eventually(lambda: session.owned is not None and not session.owned.failed, "it stays closed")
        assert house.epochs()[-1] == 3


def test_a_session_whose_home_broke_for_good_says_so_each_time(house: House) -> None:
    session = house.session()
    assert session.owned is not None
    broken = session.owned
    house.home.ledger.rename(house.directory / "gone.db")
    broken.owners[0]._fail(StoreUnavailable("as if the disk had failed"), [])
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="does not exist"):
            session.ask([house.submit()])
    (house.directory / "gone.db").rename(house.home.ledger)
    assert ask(session, cancel("nobody"))[0].refusal is not None
    session.close()


def test_a_home_that_cannot_be_listened_on_is_not_opened_by_half(house: House) -> None:
    """No thread, no lock and no open file may be left behind."""
    house.home.socket.mkdir()
    before = set(threading.enumerate())
    with pytest.raises(HomeError, match=r"owner\.sock"):
        house.session()
    assert set(threading.enumerate()) - before == set()
    house.home.socket.rmdir()
    house.session().close()


def test_a_crash_between_take_overs_is_no_loss(house: House) -> None:
    session = house.session(Parts(crash_point=CrashAt("appended", times=3)))
    one(session, house.submit("job-1"))
    with pytest.raises(StoreUnavailable):
        session.ask([house.submit("job-2")])
    assert one(session, house.submit("job-2")).status == "DEDUPLICATED"
    session.close()


def test_an_owner_that_cannot_be_reached_is_named(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "CONNECT_SECONDS", 0.0)
    with house.session(listen=False), pytest.raises(StoreUnavailable, match=f"process {os.getpid()}"):
        house.session()


def test_a_home_deep_in_the_file_system_has_a_socket_all_the_same(tmp_path: Path) -> None:
    """A socket's path has at most 108 bytes; a home's may be longer."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    house = House(deep)
    assert len(str(house.home.socket)) > 200
    with house.session() as owner, house.session() as client:
        assert owner.owns
        assert not client.owns
        assert one(client, house.submit()).ok
    assert not house.home.socket.exists()


def test_a_socket_left_by_a_dead_owner_is_in_nobodys_way(house: House) -> None:
    house.home.socket.write_text("left over")
    with house.session() as owner, house.session() as client:
        assert owner.owns
        assert one(client, house.submit()).ok


def test_dispatches_are_redelivered_when_a_home_is_opened(house: House) -> None:
    """X-067"""
    with house.session() as session:
        one(session, house.submit())
        (grant,) = one(session, Claim(0, "worker-1")).grants
    sent: list[object] = []
    with house.session(Parts(on_dispatch=sent.append)):
        assert sent == [grant]


def test_the_clock_of_a_session_is_one_of_its_parts(house: House) -> None:
    clock = FakeClock(10**13)
    with house.session(Parts(clock=clock)) as session:
        one(session, house.submit())
    with house.reader() as reader:
        assert reader.head(0).last_tick == 10**13


# -- two processes -----------------------------------------------------------------------------------------------------


def test_two_processes_share_a_home(house: House) -> None:
    """X-172"""
    with house.session() as owner, talking(house) as other:
        assert other.hello == {"owns": False, "epoch": None}
        assert other.ask("submit", "job-1")["ack"]["status"] == "COMMITTED"
        (grant,) = one(owner, Claim(0, "worker-1")).grants
        assert grant.job_id == "job-1"
        assert other.ask("cancel", "job-1")["ack"]["state"] == "CANCELED"
        assert other.ask("close") == {"closed": True}


def test_a_process_goes_on_when_the_owner_in_another_one_ends(house: House) -> None:
    """X-172"""
    with talking(house) as first:
        assert first.hello["owns"]
        with house.session() as client:
            assert not client.owns
            one(client, house.submit("job-1"))
            first.ask("close")
            assert one(client, house.submit("job-2")).ok
            assert client.owns
            assert client.owned is not None
            assert client.owned.owners[0].epoch == 3


def test_a_killed_owner_is_followed_by_a_client(house: House) -> None:
    """X-172: kill the first, the second goes on."""
    with talking(house) as first, house.session() as client:
        assert first.ask("submit", "job-1")["ack"]["status"] == "COMMITTED"
        assert first.ask("claim", "worker-1")["ack"]["grants"][0][0] == "job-1"
        first.kill()
        assert one(client, house.submit("job-2")).ok
        assert client.owns
        assert isinstance(client.owned, OwnedHome)
        assert [grant.job_id for grant in client.owned.owners[0].grants().result(WAIT_SECONDS)] == ["job-1"]
        assert one(client, Cancel(0, TENANT, "job-1")).ok
    assert house.epochs()[-1] == 3


def test_what_was_in_flight_when_the_owner_was_killed_can_be_repeated(house: House) -> None:
    """X-173"""
    with talking(house) as first, house.session() as client:
        os.kill(first.process.pid, signal.SIGSTOP)
        failed: list[BaseException] = []
        thread = threading.Thread(target=lambda: _caught(failed, lambda: client.ask([house.submit("job-1")])))
        thread.start()
        first.kill()
        thread.join(WAIT_SECONDS)
        assert [type(error) for error in failed] in ([OutcomeUnknown], [])
        again = one(client, house.submit("job-1"))
        assert again.ok
        assert client.owns
    with house.reader() as reader:
        assert len(list(reader.records_of_job("job-1"))) == 1


def _caught(errors: list[BaseException], work: Callable[[], object]) -> None:
    try:
        work()
    except OutcomeUnknown as exc:
        errors.append(exc)


@pytest.mark.parametrize("owning", [True, False])
def test_a_forked_child_cannot_use_or_end_its_parents_session(house: House, owning: bool) -> None:
    """Its copy has no threads, and what it closed would be closed under the parent."""
    with ExitStack() as stack:
        if not owning:
            stack.enter_context(house.session())
        talker = stack.enter_context(talking(house))
        assert talker.hello["owns"] is owning
        assert talker.ask("submit", "job-1")["ack"]["status"] == "COMMITTED"
        assert talker.ask("fork and use") == {"child": "STORE_UNAVAILABLE"}
        assert talker.ask("submit", "job-2")["ack"]["status"] == "COMMITTED"
        assert talker.ask("owns")["owns"] is owning
        talker.ask("close")
    assert house.state("job-of-the-child") is None
    assert (house.state("job-1"), house.state("job-2")) == ("QUEUED", "QUEUED")
    assert verify_home(house.home, environment=house.environment).ok


def test_children_of_a_killed_owner_do_not_keep_its_clients_waiting(house: House) -> None:
    """X-172: a forked worker inherits the owner's sockets, and would hold them open after the owner's death."""
    with talking(house) as first, house.session() as client:
        assert not client.owns
        orphan = first.ask("fork")["forked"]
        try:
            first.kill()
            assert one(client, house.submit("job-1")).ok
            assert client.owns
        finally:
            os.kill(orphan, signal.SIGKILL)
