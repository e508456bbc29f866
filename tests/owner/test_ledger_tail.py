"""An observer of a home gets every record, in order, from any process and across take-overs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from detent.canon import decode
from detent.errors import StoreUnavailable
from detent.kernel import Claim, Finish, Record
from detent.owner import store_history
from detent.owner.session import Session
from detent.owner.store_history import Tail, record_of
from detent.store.sqlite import SqliteStore
from tests.owner.homes import House, eventually, one
from tests.owner.processes import talking
from tests.owner.rig import Rig, cancel, submit

WAIT_SECONDS = 60


class Seen:
    """An observer that remembers what it was told, and by whom."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.threads: set[str] = set()

    def __call__(self, records: Sequence[Record]) -> None:
        self.records += records
        self.threads.add(threading.current_thread().name)

    @property
    def story(self) -> list[str]:
        """Jobs and where they went."""
        return [
            f"{record.job_id} {decode(record.body).get('to_state', record.kind)}"
            for record in self.records
            if record.job_id is not None
        ]

    def wait(self, count: int) -> list[str]:
        eventually(lambda: len(self.story) >= count, f"{count} records, not {self.story}")
        return self.story


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tail that looks by itself only when it is told to."""
    monkeypatch.setattr(store_history, "POLL_SECONDS", 3_600.0)
    monkeypatch.setattr(store_history, "IDLE_SECONDS", 3_600.0)


def on_the_ledger(house: House, first: int) -> list[bytes]:
    with house.reader() as reader:
        return [row.body for row in reader.records(0, first)]


def next_position(house: House) -> int:
    with house.reader() as reader:
        return reader.head(0).next_position


# -- the owner ---------------------------------------------------------------------------------------------------------


def test_an_owner_tells_of_each_commit_after_its_callers_were_answered(rig: Rig) -> None:
    told: list[tuple[int, list[str], bool]] = []
    future = rig.ask(submit())
    rig.owner.observers.append(
        lambda first, records: told.append((first, [record.kind for record in records], future.done()))
    )
    first = rig.store.head(0).next_position
    rig.owner.step()
    rig.one(Claim(0, "worker-1"))
    rig.one(cancel("nobody"))
    assert told == [(first, ["submitted"], True), (first + 1, ["transition"], True)]


def test_an_observer_that_fails_neither_ends_the_owner_nor_keeps_others_from_being_told(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_first: int, _records: Sequence[Record]) -> None:
        raise ValueError("an observer's own")

    told: list[int] = []
    rig.owner.observers += [fails, lambda _first, records: told.append(len(records))]
    assert rig.one(submit()).ok
    assert rig.one(submit("job-2")).ok
    assert told == [1, 1]
    assert not rig.owner.closed
    assert caplog.text.count("an observer of the ledger failed") == 2


def test_what_time_does_is_told_like_what_callers_do(rig: Rig) -> None:
    rig.start()
    told: list[str] = []
    rig.owner.observers.append(lambda _first, records: told.extend(decode(r.body)["to_state"] for r in records))
    rig.pass_ms(1_000)
    assert told[:1] == ["RETRYING"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet")
def test_a_session_that_owns_the_home_is_told_by_the_thread_that_takes_the_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers are answered first, so it may be a moment later; the ledger's end is not read for it."""
    monkeypatch.setattr(Tail, "look", lambda _tail: None)
    with house.session() as session:
        seen = Seen()
        session.observe(seen)
        one(session, house.submit())
        assert seen.wait(1) == ["job-1 submitted"]
        (grant,) = one(session, Claim(0, "worker-1")).grants
        one(session, Finish(0, grant.job_id, grant.lease_id))
        assert seen.wait(3) == ["job-1 submitted", "job-1 RUNNING", "job-1 SUCCEEDED"]


def test_a_session_is_told_from_the_moment_it_observes(house: House) -> None:
    with house.session() as owner, house.session() as client:
        one(owner, house.submit())
        early, late, theirs = Seen(), Seen(), Seen()
        owner.observe(early)
        client.observe(theirs)
        one(client, house.submit("job-2"))
        owner.observe(late)
        one(owner, house.submit("job-3"))
        assert early.wait(2) == ["job-2 submitted", "job-3 submitted"]
        assert late.wait(1) == ["job-3 submitted"]
        assert theirs.wait(2) == early.story


def test_a_client_is_told_of_what_others_do(house: House) -> None:
    with house.session() as owner, house.session() as client:
        seen = Seen()
        client.observe(seen)
        for number in range(30):
            one(owner, house.submit(f"job-{number}"))
        assert seen.wait(30) == [f"job-{number} submitted" for number in range(30)]
        assert seen.threads == {"detent-observe"}


def test_who_stops_observing_is_told_no_more(house: House) -> None:
    with house.session() as session:
        stays, leaves = Seen(), Seen()
        session.observe(stays)
        stop = session.observe(leaves)
        one(session, house.submit())
        leaves.wait(1)
        stop()
        stop()
        one(session, house.submit("job-2"))
        assert stays.wait(2) == ["job-1 submitted", "job-2 submitted"]
        assert leaves.story == ["job-1 submitted"]


def test_an_observer_that_fails_leaves_session_and_others_alone(house: House, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_records: Sequence[Record]) -> None:
        raise ValueError("an observer's own")

    with house.session() as owner, house.session() as client:
        seen = Seen()
        for session in (owner, client):
            session.observe(fails)
        client.observe(seen)
        one(owner, house.submit())
        assert seen.wait(1) == ["job-1 submitted"]
        assert one(client, house.submit("job-2")).ok
        seen.wait(2)
    assert "an observer's own" in caplog.text


def test_a_thread_exists_only_while_there_are_observers(house: House) -> None:
    def observing() -> bool:
        return any(thread.name == "detent-observe" for thread in threading.enumerate())

    with house.session() as session:
        assert not observing()
        session.observe(Seen())
        session.observe(Seen())
        assert [thread.name for thread in threading.enumerate()].count("detent-observe") == 1
    assert not observing()
    with pytest.raises(StoreUnavailable):
        session.observe(Seen())


# -- take-overs --------------------------------------------------------------------------------------------------------


def test_a_client_that_becomes_the_owner_is_told_of_everything_once(house: House) -> None:
    """X-172"""
    owner, client = house.session(), house.session()
    seen = Seen()
    first = next_position(house)
    client.observe(seen)
    for number in range(5):
        one(owner, house.submit(f"old-{number}"))
    owner.close()
    eventually(lambda: client.owns, "the client takes over")
    for number in range(5):
        one(client, house.submit(f"new-{number}"))
    seen.wait(10)
    client.close()
    assert [record.body for record in seen.records] == on_the_ledger(house, first)


def test_an_owner_that_fails_and_becomes_a_client_is_told_of_everything_once(house: House) -> None:
    """X-172"""
    session = house.session()
    seen = Seen()
    first = next_position(house)
    session.observe(seen)
    one(session, house.submit())
    owned = session.owned
    assert owned is not None
    owned.owners[0].close()  # The loop ends; the next request finds the home lost.
    with talking(house) as other:
        assert other.hello["owns"] is False
        one(session, house.submit("job-2"))
        other.ask("submit", "job-3")
        seen.wait(3)
    session.close()
    assert [record.body for record in seen.records] == on_the_ledger(house, first)


def test_a_client_sees_across_the_death_of_the_owner_whichever_process_takes_over(house: House) -> None:
    """X-172: what it is told is the ledger."""
    with talking(house) as dying, talking(house) as heir, house.session() as client:
        seen = Seen()
        first = next_position(house)
        client.observe(seen)
        dying.ask("submit", "job-1")
        dying.kill()
        while "ack" not in heir.ask("submit", "job-2"):
            pass
        one(client, house.submit("job-3"))
        assert seen.wait(3) == ["job-1 submitted", "job-2 submitted", "job-3 submitted"]
        heir.kill()
    assert [record.body for record in seen.records] == on_the_ledger(house, first)


# -- the tail ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def session(house: House) -> Iterator[Session]:
    with house.session() as opened:
        yield opened


@pytest.mark.usefixtures("quiet")
def test_missed_records_are_read_from_the_ledger_before_the_next_announcement(house: House, session: Session) -> None:
    tail = Tail(SqliteStore.open_reader(house.home.ledger_file), lambda: True)
    seen = Seen()
    tail.add(seen)
    first = next_position(house)
    for number in range(3):
        one(session, house.submit(f"job-{number}"))
    with house.reader() as reader:
        rows = [record_of(row) for row in reader.records(0, first)]
    tail.hear(0, first + 2, rows[2:])
    assert seen.records == rows
    for position, again in ((first, rows), (first, rows[:1]), (first + 2, rows[2:])):
        tail.hear(0, position, again)
    tail.close()
    assert seen.records == rows


@pytest.mark.usefixtures("quiet")
def test_of_what_was_told_in_part_the_rest_is_told(house: House, session: Session) -> None:
    tail = Tail(SqliteStore.open_reader(house.home.ledger_file), lambda: True)
    seen = Seen()
    tail.add(seen)
    first = next_position(house)
    for number in range(3):
        one(session, house.submit(f"job-{number}"))
    with house.reader() as reader:
        rows = [record_of(row) for row in reader.records(0, first)]
    tail.hear(0, first, rows[:2])
    tail.hear(0, first + 1, rows[1:])
    assert seen.records == rows
    tail.close()


@pytest.mark.usefixtures("quiet")
def test_a_turn_never_waits_for_an_observer_of_another_thread(house: House, session: Session) -> None:
    """It leaves its records to the thread that is announcing; they follow afterwards."""
    entered, leave = threading.Event(), threading.Event()
    seen, let_go = Seen(), []

    def lingers(records: Sequence[Record]) -> None:
        seen(records)
        entered.set()
        let_go.append(leave.wait(WAIT_SECONDS))

    session.observe(lingers)
    teller = threading.Thread(target=lambda: one(session, house.submit("job-1")))
    teller.start()
    assert entered.wait(WAIT_SECONDS)
    tail = session._tail
    assert tail is not None
    tail.hear(0, 10**6, [])  # As from the turn of another partition: it comes back at once.
    leave.set()
    teller.join()
    one(session, house.submit("job-2"))
    assert seen.wait(2) == ["job-1 submitted", "job-2 submitted"]
    eventually(lambda: len(let_go) == 2, "both observers were let go")
    assert let_go == [True, True]


@pytest.mark.usefixtures("quiet")
def test_a_long_gap_is_told_in_parts(house: House, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_history, "RECORDS_AT_ONCE", 2)
    lengths: list[int] = []
    tail = Tail(SqliteStore.open_reader(house.home.ledger_file), lambda: False)
    tail.add(lambda records: lengths.append(len(records)))
    for number in range(5):
        one(session, house.submit(f"job-{number}"))
    tail.close()
    assert lengths == [2, 2, 1]
