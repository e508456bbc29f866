"""A claim whose answer was lost: the worker asks which leases it holds, and none of them waits for its end (X-173)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from detent.errors import InvalidInput, OutcomeUnknown
from detent.kernel import Claim, Finish, Grant
from detent.owner import session as session_module
from detent.owner import store_history as grants_module
from detent.owner.socket_messages import frame
from detent.owner.socket_server import SocketServer
from detent.owner.store_history import open_grants
from tests.kernel.builders import Scene
from tests.owner.homes import House, one
from tests.owner.test_socket_server import Raw


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_worker_whose_claim_was_cut_off_fetches_its_grants_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-067, X-173: the answer to the claim never arrives; the lease is found and used at once"""
    send, cut = SocketServer._send, threading.Event()

    def cutting(service: SocketServer, writer: asyncio.StreamWriter, message: dict[str, object]) -> None:
        answers = message.get("answers")
        if not cut.is_set() and isinstance(answers, list) and answers[0][4]:
            cut.set()
            writer.transport.abort()
            return
        send(service, writer, message)

    monkeypatch.setattr(SocketServer, "_send", cutting)
    with house.session() as owner, house.session() as worker:
        for number in range(3):
            assert one(owner, house.submit(f"job-{number}")).ok
        with pytest.raises(OutcomeUnknown):
            worker.ask([Claim(0, "worker-1", 2)])
        assert cut.is_set()
        held = worker.grants("worker-1")
        assert [(grant.job_id, grant.replica_id) for grant in held] == [("job-0", "worker-1"), ("job-1", "worker-1")]
        assert worker.grants("worker-2") == []
        for grant in held:
            assert one(worker, Finish(0, grant.job_id, grant.lease_id)).status == "COMMITTED"
        assert worker.grants("worker-1") == []
    assert [house.state(f"job-{number}") for number in range(3)] == ["SUCCEEDED", "SUCCEEDED", "QUEUED"]


def test_the_owner_and_its_clients_are_told_the_same(house: House) -> None:
    """X-067"""
    with house.session() as owner, house.session() as client:
        one(owner, house.submit())
        granted = one(client, Claim(0, "worker-1")).grants
        assert tuple(owner.grants("worker-1")) == tuple(client.grants("worker-1")) == granted


def test_many_grants_come_page_by_page(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(kernel: object, replica_id: str, after: str | None = None) -> list[Grant]:
        return open_grants(kernel, replica_id, after, 2)  # type: ignore[arg-type]

    monkeypatch.setattr("detent.owner.socket_server.open_grants", small)
    monkeypatch.setattr(session_module, "open_grants", small)
    monkeypatch.setattr(session_module, "GRANTS_PAGE", 2)
    with house.session() as owner, house.session() as client:
        for number in range(5):
            one(owner, house.submit(f"job-{number}"))
        one(owner, Claim(0, "worker-1", 5))
        for asking in (owner, client):
            assert [grant.job_id for grant in asking.grants("worker-1")] == [f"job-{number}" for number in range(5)]


def test_a_page_holds_what_one_claim_can_give() -> None:
    assert grants_module.GRANTS_PAGE == 10_000
    scene = Scene()
    for number in range(4):
        scene.submit(f"job-{number}")
    scene.claim(3)
    scene.claim(1, "worker-2")
    assert [grant.job_id for grant in open_grants(scene.kernel, "worker-1", None, 2)] == ["job-0", "job-1"]
    assert [grant.job_id for grant in open_grants(scene.kernel, "worker-1", "job-1", 2)] == ["job-2"]


@pytest.mark.parametrize("replica_id", ["", "\n", None, 7])
def test_who_has_no_name_has_no_grants(house: House, replica_id: str) -> None:
    with house.session() as owner, house.session() as client:
        for asking in (owner, client):
            with pytest.raises(InvalidInput):
                asking.grants(replica_id)


@pytest.mark.parametrize(
    "fields", [{}, {"replica_id": 7}, {"replica_id": "w", "partition": 1}, {"replica_id": "w", "after": 7}]
)
def test_what_is_no_question_for_grants_is_refused_and_the_connection_goes_on(
    house: House, fields: dict[str, object]
) -> None:
    with house.session(), Raw(house) as raw:
        raw.send(frame({"op": "grants", "id": 1, "partition": 0, **fields}))
        answer = raw.read()
        assert answer is not None
        assert answer["error"]["code"] == "INVALID_PARAMS"
        raw.send(frame({"op": "grants", "id": 2, "partition": 0, "replica_id": "w"}))
        assert raw.read() == {"id": 2, "grants": []}
