"""Several sessions on one home: one owns it, the others are its clients, and one of them goes on when it ends (X-172)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from detent.canon import sha256
from detent.errors import OutcomeUnknown, StoreUnavailable
from detent.inspect.audit import verify_home
from detent.kernel import Cancel, Claim, Finish
from detent.owner import session as session_module
from detent.owner.lock import is_held
from detent.owner.wiring import OwnedHome
from tests.kernel.builders import TENANT
from tests.owner.homes import House, eventually, one
from tests.owner.processes import talking
from tests.owner.rig import cancel

WAIT_SECONDS = 60


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


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


def test_a_client_takes_over_even_without_a_request(house: House) -> None:
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
            eventually(lambda: any(session.owns for session in sessions), "no process took over")
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


# -- children of a server ----------------------------------------------------------------------------------------------


def test_a_session_that_may_not_take_over_waits_for_the_next_owner(house: House) -> None:
    """X-172: children of a server never own its home."""
    with house.session() as owner:
        child = house.session(take_over=False)
        assert one(child, house.submit()).status == "COMMITTED"
        owner.close()
        eventually(lambda: not child.linked, "the child has lost its owner")
        assert not is_held(house.home.lock)
    with house.session() as owner:
        assert owner.owns
        assert one(child, house.submit()).status == "DEDUPLICATED"
    child.close()


def test_a_session_that_may_not_take_over_tells_when_no_owner_comes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "OWNERLESS_SECONDS", 0.2)
    told = threading.Event()
    with house.session():
        child = house.session(take_over=False, on_failed=lambda _: told.set())
    assert told.wait(WAIT_SECONDS)
    with pytest.raises(StoreUnavailable, match="no process owns the home"):
        one(child, house.submit())
    child.close()
    with pytest.raises(StoreUnavailable, match="no process owns the home") as raised:
        house.session(take_over=False)
    assert "detent serve" in str(raised.value.hint)
    assert not is_held(house.home.lock)


def test_a_session_that_waits_for_an_owner_can_be_closed(house: House) -> None:
    with house.session():
        child = house.session(take_over=False)
    eventually(lambda: not child.linked, "the child has lost its owner")
    child.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        one(child, house.submit())
