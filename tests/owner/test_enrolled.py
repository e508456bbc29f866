"""Workers on other machines: the key that certifies them, their enrolment in a home, and whose results are believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detent.access.certificate import Certificate, Proof, prove, replica_of
from detent.canon import SigningKey
from detent.errors import DetentError, InvalidInput, TrustError
from detent.inspect.audit import verify_home
from detent.kernel import Claim, EnrollWorker, Grant, RetireWorker
from detent.ledger import sign_result
from detent.owner.enrolled import certify
from detent.owner.keys import adopt, keys_view, rotate
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import Parts
from tests.kernel.builders import TENANT
from tests.ledger.build import digest_of, key
from tests.owner.homes import House
from tests.owner.reports import work_report

GPU = key("gpu-1")
SERVES = Parts(serves=True)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def enrolment(
    house: House, worker_id: str = "gpu-1", worker: SigningKey = GPU, proof: Proof | None = None, **changes: Any
) -> EnrollWorker:
    """What an honest server sends after an honest worker asked, but for what is changed."""
    trust = house.trust()
    values: dict[str, Any] = {"origin": trust.origin, "tenants": (TENANT,), "pools": None, "labels": ()} | changes
    certificate = Certificate(worker_id=worker_id, public_key=worker.public_key, issued_tick=0, **values)
    proof = proof or prove(trust.origin, digest_of("token"), bytes(16), worker)
    return certify(house.home, trust, certificate, proof, house.size())


def leased(session: Session, house: House, holder: str = replica_of("gpu-1", "boot-1")) -> Grant:
    submitted, claimed = session.ask([house.submit(), Claim(0, holder)])
    assert submitted.ok
    (grant,) = claimed.grants
    return grant


def report(session: Session, grant: Grant, worker: SigningKey = GPU) -> Answer:
    return session.report(sign_result(work_report(grant).body(), worker).envelope())


def roles(house: House) -> list[str]:
    return [entry.role for entry in house.trust().config.keys]


def test_the_first_server_of_a_home_announces_a_key_that_certifies_workers(house: House) -> None:
    with house.session():
        assert "enroll" not in roles(house)
    for _ in range(2):
        with house.session(SERVES):
            assert roles(house).count("enroll") == 1
    with house.reader() as reader:
        (shown,) = [view for view in keys_view(house.home, reader).keys if view.entry.role == "enroll"]
    assert (shown.state, shown.private, house.trust().config.version) == ("active", "here", 2)
    assert verify_home(house.home, environment=house.environment).ok


def test_every_partition_gets_the_key_and_the_workers(tmp_path: Path) -> None:
    house = House(tmp_path, partitions=3)
    with house.session(SERVES) as session:
        for partition in range(3):
            assert session.ask([enrolment(house)], partition=partition)[0].ok
    assert verify_home(house.home, environment=house.environment).ok


def test_without_the_root_key_a_server_starts_and_enrols_no_worker(house: House) -> None:
    (root,) = house.home.path.glob("keys/root-*.key")
    root.rename(house.directory / "root.key")
    with house.session(SERVES):
        assert "enroll" not in roles(house)
        with pytest.raises(TrustError, match="no key that certifies workers"):
            enrolment(house)
    (house.directory / "root.key").rename(root)
    rotated = rotate(house.home, "enroll", environment=house.environment)
    assert rotated.old_key_ids == ()
    with house.session(SERVES) as session:
        assert session.ask([enrolment(house)])[0].ok


def test_a_rotated_enrolment_key_certifies_from_the_next_batch_on_and_old_workers_stay(house: House) -> None:
    with house.session(SERVES) as session:
        session.ask([enrolment(house)])
        late = enrolment(house, "gpu-2", key("gpu-2"))
    rotate(house.home, "enroll", environment=house.environment)
    with house.session(SERVES) as session:
        with pytest.raises(InvalidInput, match="is valid before position"):
            session.ask([late])
        assert session.ask([enrolment(house, "gpu-3", key("gpu-3"))])[0].ok
        assert report(session, leased(session, house)).ok
    assert verify_home(house.home, environment=house.environment).ok


def test_a_copy_gets_an_enrolment_key_of_its_own_and_believes_no_worker_of_the_original(house: House) -> None:
    with house.session(SERVES) as session:
        session.ask([enrolment(house)])
        grant = leased(session, house)
    adopt(house.home, environment=house.environment, force=True)
    with house.session(SERVES) as session:
        assert [entry.to_position is None for entry in house.trust().config.keys if entry.role == "enroll"].count(
            True
        ) == 1
        answer = report(session, grant)
        assert answer.refusal is not None
        assert answer.refusal.details["fault"] == "KEY_OUT_OF_SCOPE"
    assert verify_home(house.home, environment=house.environment).ok


@pytest.mark.parametrize("over_the_socket", [False, True], ids=["owner", "socket"])
def test_a_result_of_an_enrolled_worker_counts_for_its_own_lease(house: House, over_the_socket: bool) -> None:
    with house.session(SERVES) as owner, house.session() as client:
        session = client if over_the_socket else owner
        assert session.ask([enrolment(house)])[0].ok
        assert report(session, leased(session, house)).ok
    assert house.state() == "SUCCEEDED"
    told = verify_home(house.home, environment=house.environment)
    assert told.ok
    assert told.executors == {GPU.key_id.hex(): 1}


@pytest.mark.parametrize("over_the_socket", [False, True], ids=["owner", "socket"])
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"origin": "detent/elsewhere"}, "of the ledger"),
        ({"proof": prove("detent/elsewhere", digest_of("token"), bytes(16), GPU)}, "proof"),
        ({"proof": prove("detent/elsewhere", digest_of("token"), bytes(16), key("gpu-2"))}, "proof"),
    ],
    ids=["certificate of another ledger", "proof for another ledger", "proof of another key"],
)
def test_a_certificate_or_proof_that_does_not_hold_is_refused_before_it_is_written(
    house: House, changes: dict[str, Any], told: str, over_the_socket: bool
) -> None:
    with house.session(SERVES) as owner, house.session() as client:
        size = house.size()
        with pytest.raises(DetentError, match=told) as caught:
            (client if over_the_socket else owner).ask([enrolment(house, **changes)])
        assert (caught.value.code, house.size()) == ("ENROLMENT_REFUSED", size)


@pytest.mark.parametrize(
    ("tenants", "holder", "fault"),
    [
        (("another",), replica_of("gpu-1", "boot-1"), "KEY_OUT_OF_SCOPE"),
        ((TENANT,), replica_of("gpu-2", "boot-1"), "KEY_OUT_OF_SCOPE"),
        ((TENANT,), "gpu-10", "KEY_OUT_OF_SCOPE"),
    ],
    ids=["another tenant's job", "another worker's lease", "a lease of a name that begins alike"],
)
def test_a_worker_is_not_believed_beyond_its_certificate(
    house: House, tenants: tuple[str, ...], holder: str, fault: str
) -> None:
    with house.session(SERVES) as session:
        session.ask([enrolment(house, tenants=tenants)])
        answer = report(session, leased(session, house, holder))
        assert answer.refusal is not None
        assert (answer.refusal.code, answer.refusal.details["fault"]) == ("REPORT_SIGNATURE_INVALID", fault)
    assert house.state() == "RUNNING"


def test_a_retired_worker_is_not_believed_any_more(house: House) -> None:
    with house.session(SERVES) as session:
        session.ask([enrolment(house)])
        grant = leased(session, house)
        session.ask([RetireWorker(0, "gpu-1", "KEY_LOST")])
        answer = report(session, grant)
        assert answer.refusal is not None
        assert (answer.refusal.code, answer.refusal.details["fault"]) == (
            "REPORT_SIGNATURE_INVALID",
            "KEY_OUT_OF_RANGE",
        )
    assert house.state() == "RUNNING"
    assert verify_home(house.home, environment=house.environment).ok


def test_a_key_that_is_not_enrolled_is_not_believed_however_often_it_asks(house: House) -> None:
    with house.session(SERVES) as session:
        grant = leased(session, house)
        for _ in range(3):
            answer = report(session, grant)
            assert answer.refusal is not None
            assert answer.refusal.details["fault"] == "KEY_UNKNOWN"
        session.ask([enrolment(house)])
        assert report(session, grant).ok


def test_a_late_report_is_a_repeat_or_late_and_nothing_else(house: House) -> None:
    with house.session(SERVES) as session:
        session.ask([enrolment(house)])
        grant = leased(session, house)
        assert report(session, grant).status == "COMMITTED"
        assert report(session, grant).status == "DEDUPLICATED"
