"""One session on a home: how it opens, what it says when the home fails, and how it goes on afterwards."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from detent.errors import HomeError, OutcomeUnknown, StoreUnavailable
from detent.kernel import Claim
from detent.owner import session as session_module
from detent.owner.lock import TurnTaking, is_held
from detent.owner.session import Session, ask_again
from detent.owner.wiring import Parts
from detent.store.api import Store
from detent.store.sqlite import SqliteStore
from detent.testing import CrashAt, FakeClock, Faults, faulty
from tests.owner.homes import House, ask, eventually, one
from tests.owner.rig import cancel

WAIT_SECONDS = 60


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


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
    """X-172: not only at some later request."""
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


def test_a_home_whose_owner_failed_is_served_again_without_a_request_there(house: House) -> None:
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
        assert one(session, house.submit()).ok, "a request opens it again"
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
    house.home.ledger_file.rename(house.directory / "gone.db")
    broken.owners[0]._fail(StoreUnavailable("as if the disk had failed"), [])
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="does not exist"):
            session.ask([house.submit()])
    (house.directory / "gone.db").rename(house.home.ledger_file)
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


def test_a_home_that_may_not_be_written_is_told_apart_from_one_that_takes_no_sockets(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("detent.owner.socket_server.os.fchmod", refuse)
        with pytest.raises(HomeError, match="Permission denied") as refused:
            house.session()
    assert refused.value.hint == f"get the right to write to {house.home.path}, or choose another home with DETENT_HOME"
    house.session().close()


def test_a_thread_waiting_for_an_owner_in_another_process_gives_up_its_turn(house: House) -> None:
    """Or those who work beside it in its process would wait for an answer that is not theirs."""
    turns = TurnTaking(patience_seconds=WAIT_SECONDS)
    taken = threading.Event()
    with house.session() as owner, house.session() as client, turns:
        assert owner.owned is not None
        turn = owner.owned.owners[0]._turn_lock

        def other() -> None:
            with turns:
                taken.set()
            turn.release()

        assert not client.owns
        turn.acquire()  # Nothing is decided until the other one has had its turn.
        threading.Thread(target=other, daemon=True).start()
        (answer,) = client.ask([Claim(0, "worker", 1)], timeout=WAIT_SECONDS)
        assert answer.refusal is None
        assert taken.is_set()


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


def test_a_socket_left_by_a_dead_owner_blocks_no_process(house: House) -> None:
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


def test_a_child_of_a_server_asks_for_as_long_as_the_server_is_there(house: House) -> None:
    """X-173: what it has finished must not be lost because the server's disk is full for long."""

    class Full:
        """A server whose disk has room again at the third question."""

        asked = 0

        def __call__(self) -> int:
            self.asked += 1
            if self.asked < 3:
                raise StoreUnavailable("the disk of the home is full")
            return self.asked

    with house.session() as own, Session(own.home, take_over=False) as child:
        assert ask_again(child, Full(), threading.Event(), seconds=-1) == 3
        with pytest.raises(StoreUnavailable):
            ask_again(own, Full(), threading.Event(), seconds=-1)
