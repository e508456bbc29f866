"""Results are believed when they are signed, bound to the attempt that runs, and in time; the rest leaves its digest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detent.canon import SigningKey, decode, encode, json_decode, json_encode, sha256
from detent.errors import InvalidInput, Refused
from detent.inspect.explain_job import explain
from detent.jobs.report import read_report
from detent.jobs.status import STATUS_MOVES, JobStatus, project_job
from detent.jobs.work import Failure, WorkFile, WorkStream
from detent.kernel import Claim, Evidence, Finish, Grant, Job, JobState, Outcome, ReportUsage
from detent.ledger import Trust, sign_result, sign_trust
from detent.ledger.trust_config import KeyEntry, TrustConfig
from detent.owner.acceptance import ENVELOPE_BYTES_MAX, Accepted, VerifiedReport, accept, judge, verify_report
from detent.owner.content import Content
from detent.owner.home import genesis_trust
from detent.owner.session import Session
from detent.owner.socket_messages import Answer
from detent.owner.wiring import signing_key
from detent.store.api import CONTENT_INLINE_BYTES_MAX, Store
from tests.jobs.envelopes import JOB_ID
from tests.kernel.builders import SUBMITTER
from tests.owner.homes import House
from tests.owner.reports import BROKE, platform_report, signed, work_report
from tests.owner.rig import ORIGIN, PUBLIC_KEYS, RESULT_KEY, ROOT_KEY, Rig, cancel, fail, submit

TRUST = Trust.start(sign_trust(genesis_trust(ORIGIN, PUBLIC_KEYS), ROOT_KEY).envelope())
STRANGER = SigningKey(b"\x77" * 32)
POSITION = 1


def hand_in(rig: Rig, report: bytes | VerifiedReport, *content: tuple[bytes, bytes]) -> list[Outcome]:
    """What the owner answers to a report."""
    decide, kept = judge(TRUST, report, content, position=rig.size, partition=0, has_file=lambda _digest: False)
    future = rig.owner.ask((), content=kept, judge=decide)
    rig.owner.step()
    return future.result(timeout=0)


def code_of(outcomes: list[Outcome]) -> str | None:
    refusal = outcomes[-1].refusal
    return None if refusal is None else refusal.code


def closing(store: Store, job_id: str = "job-1") -> Evidence:
    *_, last = (row for row in store.records_of_job(job_id) if row.kind == "transition")
    return Evidence.decode(last.evidence or b"")


def logged(rig: Rig) -> list[tuple[str | None, str, bytes | None]]:
    """The decision log: job, code and the digest of the result it was about."""
    return [
        (row.job_id, row.code, decode(row.body)["diagnostics"].get("details", {}).get("result_digest"))
        for row in rig.store.refusals()
    ]


# -- a report that holds -----------------------------------------------------------------------------------------------


def test_a_signed_report_closes_its_attempt_and_the_end_names_its_digest(rig: Rig) -> None:
    """JOB-083: and the envelope is stored in the commit that names it."""
    report = signed(work_report(rig.start()), RESULT_KEY)
    assert hand_in(rig, report.envelope)[-1].status == "COMMITTED"
    assert rig.state() == "SUCCEEDED"
    assert closing(rig.store) == Evidence("result", "COMPLETED", closing(rig.store).lease_id, None, report.digest)
    assert rig.store.content(report.digest) == report.envelope
    assert logged(rig) == []


def test_a_failure_is_recorded_with_its_code_and_category(rig: Rig) -> None:
    report = work_report(rig.start(), "FAILED", error=Failure("USER_CODE_ERROR", "PYTHON_EXCEPTION", "boom"))
    hand_in(rig, signed(report, RESULT_KEY).envelope)
    assert (closing(rig.store).reason_code, closing(rig.store).category) == ("PYTHON_EXCEPTION", "USER_CODE_ERROR")
    assert rig.state() == "FAILED"


def test_what_the_supervisor_measured_enters_the_resource_ledger_once(rig: Rig) -> None:
    """X-025"""
    usage: dict[str, Any] = {"cpu_ms": 70, "memory_bytes_peak": 1000, "io_bytes_read": 5, "io_bytes_written": 6}
    report = signed(work_report(rig.start(), **usage), RESULT_KEY).envelope
    hand_in(rig, report)
    hand_in(rig, report)
    row = rig.store.job("job-1")
    assert row is not None
    used = Job.decode(row.body).usage
    assert (used.cpu_time_ms, used.peak_bytes, used.bytes_allocated) == (70, 1000, 0)
    assert (used.io_bytes_read, used.io_bytes_written) == (5, 6)


def test_a_report_of_usage_before_the_end_does_not_get_in_the_way(rig: Rig) -> None:
    grant = rig.start()
    assert rig.one(ReportUsage(0, grant.job_id, grant.lease_id, 0, cpu_time_ms=5)).ok
    assert hand_in(rig, signed(work_report(grant, cpu_ms=7), RESULT_KEY).envelope)[-1].ok
    row = rig.store.job("job-1")
    assert row is not None
    assert Job.decode(row.body).usage.cpu_time_ms == 12
    assert logged(rig) == []


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({}, "SUCCEEDED", "COMPLETED"),
        (
            {
                "status": "FAILED",
                "error": {"category": "SANDBOX_VIOLATION", "code": "SANDBOX_VIOLATION", "message": "m"},
            },
            "FAILED",
            "SANDBOX_VIOLATION",
        ),
        (
            {"status": "TIMED_OUT", "error": {"category": "RESOURCE_LIMIT", "code": "LIMIT_WALL", "message": "m"}},
            "FAILED",
            "LIMIT_WALL",
        ),
    ],
)
def test_a_platform_result_travels_in_the_same_form(rig: Rig, changes: dict[str, Any], state: str, reason: str) -> None:
    """JOB-083: the contract's envelope beside the four fields that bind it."""
    grant = rig.start(JOB_ID, job_kind="platform")
    report = signed(platform_report(grant, **changes), RESULT_KEY)
    hand_in(rig, report.envelope)
    assert (rig.state(JOB_ID), closing(rig.store, JOB_ID).reason_code) == (state, reason)
    assert closing(rig.store, JOB_ID).detail_digest == report.digest
    row = rig.store.job(JOB_ID)
    assert row is not None
    assert Job.decode(row.body).usage.cpu_time_ms == 1800


def test_both_forms_are_read_back_and_neither_passes_for_the_other(rig: Rig) -> None:
    grant = rig.start(JOB_ID)
    work, platform = work_report(grant), platform_report(grant)
    assert read_report(work.body()) == work
    assert read_report(platform.body()) == platform
    mixed = {**decode(platform.body()), "status": "SUCCEEDED"}
    with pytest.raises(InvalidInput):
        read_report(encode(mixed))


def test_a_platform_result_about_another_job_or_without_a_nonce_is_no_report(rig: Rig) -> None:
    """X-171: without a nonce its digest could be guessed."""
    report = platform_report(rig.start(JOB_ID, job_kind="platform"))
    document = json_decode(report.result)
    assert isinstance(document, dict)
    for wrong in (
        {**document, "job_id": JOB_ID.replace("0b5f", "1b5f")},
        {name: value for name, value in document.items() if name != "nonce"},
    ):
        body = replace(report, result=json_encode(wrong)).body()
        assert code_of(hand_in(rig, sign_result(body, RESULT_KEY).envelope())) == "REPORT_INVALID"
    assert rig.state(JOB_ID) == "RUNNING"


def test_what_this_process_signed_is_not_verified_again_but_its_key_must_be_in_force(rig: Rig) -> None:
    grant = rig.start()
    nonsense = signed(work_report(grant), STRANGER)
    accepted = accept(TRUST, replace(nonsense, key_id=RESULT_KEY.key_id), picture(rig), POSITION, 0)
    assert isinstance(accepted, Accepted)  # The signature is not looked at: the type says that it was.
    refused = accept(TRUST, nonsense, picture(rig), POSITION, 0)
    assert isinstance(refused, Refused)
    assert refused.code == "REPORT_SIGNATURE_INVALID"


def picture(rig: Rig, job_id: str = "job-1") -> JobState:
    return JobState.of(rig.owner._kernel.jobs[job_id])


# -- a report that does not hold ---------------------------------------------------------------------------------------


def altered(envelope: bytes, place: int) -> bytes:
    return envelope[:place] + bytes([envelope[place] ^ 1]) + envelope[place + 1 :]


def test_no_byte_of_an_envelope_can_be_changed(rig: Rig) -> None:
    """JOB-083: whatever is changed, nothing is recorded, and the log has the digest of what came."""
    envelope = signed(work_report(rig.start()), RESULT_KEY).envelope
    size = rig.size
    for place in range(0, len(envelope), 7):
        changed = altered(envelope, place)
        assert code_of(hand_in(rig, changed)) in {"REPORT_SIGNATURE_INVALID", "REPORT_INVALID"}, place
        assert logged(rig)[0][2] == sha256(changed)
    assert (rig.state(), rig.size) == ("RUNNING", size)
    assert hand_in(rig, envelope)[-1].ok


@pytest.mark.parametrize("key", [STRANGER, SUBMITTER, ROOT_KEY], ids=["unknown", "manifest", "root"])
def test_only_a_key_with_the_role_of_an_executor_is_believed(rig: Rig, key: SigningKey) -> None:
    report = signed(work_report(rig.start()), key)
    assert code_of(hand_in(rig, report.envelope)) == "REPORT_SIGNATURE_INVALID"
    assert rig.state() == "RUNNING"
    assert logged(rig) == [("job-1", "REPORT_SIGNATURE_INVALID", report.digest)]
    assert rig.store.content(report.digest) is None


@pytest.mark.parametrize("scope", [{"tenants": ("another",)}, {"partitions": (1,)}])
def test_an_executor_of_another_tenant_or_partition_is_not_believed(rig: Rig, scope: dict[str, Any]) -> None:
    config = genesis_trust(ORIGIN, PUBLIC_KEYS)
    keys = tuple(replace(key, **scope) if key.role == "result" else key for key in config.keys)
    trust = Trust.start(sign_trust(TrustConfig(ORIGIN, keys), ROOT_KEY).envelope())
    report = signed(work_report(rig.start()), RESULT_KEY)
    verified = verify_report(trust, report.envelope, POSITION)
    assert verified == report
    refused = accept(trust, report, picture(rig), POSITION, 0)
    assert isinstance(refused, Refused)
    assert (refused.code, refused.details["fault"]) == ("REPORT_SIGNATURE_INVALID", "KEY_OUT_OF_SCOPE")


def test_an_executor_whose_time_is_over_is_not_believed(rig: Rig) -> None:
    config = genesis_trust(ORIGIN, PUBLIC_KEYS)
    keys = tuple(_until(key, 5) if key.role == "result" else key for key in config.keys)
    trust = Trust.start(sign_trust(TrustConfig(ORIGIN, keys), ROOT_KEY).envelope())
    report = signed(work_report(rig.start()), RESULT_KEY)
    assert not isinstance(verify_report(trust, report.envelope, 4), Refused)
    refused = verify_report(trust, report.envelope, 5)
    assert isinstance(refused, Refused)
    assert refused.code == "REPORT_SIGNATURE_INVALID"


def _until(key: KeyEntry, position: int) -> KeyEntry:
    return replace(key, to_position=position)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"job_id": "job-2"}, "REPORT_MISMATCH"),
        ({"job_id": "nobody"}, "UNKNOWN_JOB"),
        ({"manifest_hash": bytes(32)}, "REPORT_MISMATCH"),
        ({"attempt_id": 1}, "REPORT_MISMATCH"),
        ({"lease_id": bytes(32)}, "LEASE_INVALID"),
    ],
    ids=["another job", "no job", "another manifest", "another attempt", "another lease"],
)
def test_a_report_about_something_else_is_discarded(rig: Rig, changes: dict[str, Any], code: str) -> None:
    """JOB-083"""
    grant = rig.start()
    rig.start("job-2", "worker-2")
    report = signed(work_report(grant, **changes), RESULT_KEY)
    assert code_of(hand_in(rig, report.envelope)) == code
    assert (rig.state(), rig.state("job-2")) == ("RUNNING", "RUNNING")
    assert logged(rig) == [(report.report.job_id, code, report.digest)]
    assert rig.store.content(report.digest) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00" * 40,
        b"\x80\x04\x95\x00",  # a pickle's first bytes
        encode({"version": 1}),
        encode(["not", "a", "map"]),
        encode({"version": 2, "job_id": "job-1"}),
        b'{"job_id": "job-1", "status": "SUCCEEDED"}',
    ],
)
def test_a_body_that_is_no_report_is_discarded_however_well_it_is_signed(rig: Rig, body: bytes) -> None:
    rig.start()
    envelope = sign_result(body, RESULT_KEY).envelope()
    assert code_of(hand_in(rig, envelope)) == "REPORT_INVALID"
    assert rig.state() == "RUNNING"
    assert logged(rig) == [(None, "REPORT_INVALID", sha256(envelope))]


def test_a_report_that_is_not_canonical_is_discarded(rig: Rig) -> None:
    report = work_report(rig.start())
    body = report.body()
    assert body[0] & 0xE0 == 0xA0
    longer = bytes([0xB8, body[0] & 0x1F]) + body[1:]  # the same map, its length in two bytes
    assert code_of(hand_in(rig, sign_result(longer, RESULT_KEY).envelope())) == "REPORT_INVALID"
    envelope = signed(report, RESULT_KEY).envelope
    assert code_of(hand_in(rig, bytes([0xB8, envelope[0] & 0x1F]) + envelope[1:])) == "REPORT_INVALID"
    assert rig.state() == "RUNNING"


def test_an_envelope_beyond_the_limit_is_not_even_read(rig: Rig) -> None:
    assert code_of(hand_in(rig, bytes(ENVELOPE_BYTES_MAX + 1))) == "REPORT_INVALID"


def test_a_code_that_belongs_to_another_category_is_no_report_of_a_failure(rig: Rig) -> None:
    error = Failure("INTERNAL_ERROR", "SANDBOX_VIOLATION", "so that it is tried again")
    report = signed(work_report(rig.start(), "FAILED", error=error), RESULT_KEY)
    assert code_of(hand_in(rig, report.envelope)) == "REPORT_INVALID"
    spelled = signed(work_report(grant_of(rig), "FAILED", error=Failure("INTERNAL_ERROR", "lower case")), RESULT_KEY)
    assert code_of(hand_in(rig, spelled.envelope)) == "REPORT_INVALID"
    assert rig.state() == "RUNNING"


def grant_of(rig: Rig, job_id: str = "job-1") -> Grant:
    return Grant.of(rig.owner._kernel.jobs[job_id])


def test_content_that_a_report_names_comes_with_it_or_is_there(rig: Rig) -> None:
    output = b"x" * 3_000
    stdout = WorkStream(b"", sha256(output))
    report = signed(work_report(rig.start(), stdout=stdout), RESULT_KEY)
    assert code_of(hand_in(rig, report.envelope)) == "REPORT_INVALID"
    assert hand_in(rig, report.envelope, (sha256(output), output))[-1].ok
    assert rig.store.content(sha256(output)) == output


def test_a_file_that_is_not_there_makes_no_result(rig: Rig) -> None:
    files = (WorkFile("plot.png", sha256(b"plot"), 4),)
    report = signed(work_report(rig.start(), files=files), RESULT_KEY)
    assert code_of(hand_in(rig, report.envelope)) == "REPORT_INVALID"
    decide, kept = judge(TRUST, report, (), position=1, partition=0, has_file={sha256(b"plot")}.__contains__)
    rig.owner.ask((), content=kept, judge=decide)
    rig.owner.step()
    assert rig.state() == "SUCCEEDED"


# -- too late, or again ------------------------------------------------------------------------------------------------


def test_the_same_report_again_gets_the_same_answer_and_records_nothing(rig: Rig) -> None:
    """JOB-017, X-173"""
    envelope = signed(work_report(rig.start(), cpu_ms=3), RESULT_KEY).envelope
    first = hand_in(rig, envelope)[-1]
    size = rig.size
    again = hand_in(rig, envelope)[-1]
    assert (again.status, again.record) == ("DEDUPLICATED", first.record)
    assert (rig.size, logged(rig)) == (size, [])


def test_another_report_of_the_same_attempt_after_its_end_changes_nothing(rig: Rig) -> None:
    """JOB-017: a success after a failure, and a failure after a success."""
    grant = rig.start()
    hand_in(rig, signed(work_report(grant), RESULT_KEY).envelope)
    later = signed(work_report(grant, "FAILED", error=BROKE), RESULT_KEY)
    assert code_of(hand_in(rig, later.envelope)) == "LEASE_INVALID"
    assert rig.state() == "SUCCEEDED"
    assert logged(rig) == [("job-1", "LEASE_INVALID", later.digest)]


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_a_result_after_a_cancel_is_discarded_and_its_digest_kept(rig: Rig, status: str) -> None:
    """X-157, X-158, JOB-069, X-182"""
    output = b"x" * 3_000
    report = signed(work_report(rig.start(), status, stdout=WorkStream(b"", sha256(output))), RESULT_KEY)
    rig.one(cancel())
    assert code_of(hand_in(rig, report.envelope, (sha256(output), output))) == "LEASE_INVALID"
    assert rig.state() == "CANCELED"
    assert rig.edges() == ["QUEUED->RUNNING", "RUNNING->CANCELED"]
    assert logged(rig) == [("job-1", "LEASE_INVALID", report.digest)]
    assert (rig.store.content(report.digest), rig.store.content(sha256(output))) == (None, None)


def test_a_result_of_an_attempt_that_another_has_replaced_is_discarded(rig: Rig) -> None:
    """JOB-083, JOB-017"""
    first = rig.start()
    rig.one(fail(first))
    rig.pass_ms(100)
    (second,) = rig.one(Claim(0, "worker-2")).grants
    assert second.attempt_id == first.attempt_id + 1
    late = signed(work_report(first), RESULT_KEY)
    assert code_of(hand_in(rig, late.envelope)) == "LEASE_INVALID"
    assert rig.state() == "RUNNING"
    assert logged(rig) == [("job-1", "LEASE_INVALID", late.digest)]
    assert hand_in(rig, signed(work_report(second), RESULT_KEY).envelope)[-1].ok


def test_a_result_after_the_lease_has_expired_is_discarded(rig: Rig) -> None:
    """JOB-083"""
    report = signed(work_report(rig.start()), RESULT_KEY)
    rig.pass_ms(150)
    assert code_of(hand_in(rig, report.envelope)) == "LEASE_INVALID"
    assert rig.state() in {"RETRYING", "QUEUED"}


def test_a_finish_of_a_worker_that_signs_for_itself_leaves_its_digest_too(rig: Rig) -> None:
    """X-157: the commands of a process that need not be verified."""
    grant = rig.start()
    rig.one(cancel())
    rig.one(Finish(0, grant.job_id, grant.lease_id, detail_digest=sha256(b"late")))
    assert logged(rig) == [("job-1", "LEASE_INVALID", sha256(b"late"))]


def test_cancelled_unasked_is_the_workers_failure_and_tried_again_up_to_the_bound(rig: Rig) -> None:
    """X-158"""
    grant = rig.start(max_retries=1)
    hand_in(rig, signed(work_report(grant, "CANCELLED"), RESULT_KEY).envelope)
    assert rig.state() == "RETRYING"
    assert (closing(rig.store).reason_code, closing(rig.store).category) == ("CANCELLED_UNASKED", "INTERNAL_ERROR")
    rig.pass_ms(100)
    (grant,) = rig.one(Claim(0, "worker-1")).grants
    hand_in(rig, signed(work_report(grant, "CANCELLED"), RESULT_KEY).envelope)
    assert rig.state() == "FAILED"


def test_cancelled_unasked_by_a_platform_worker_is_the_same(rig: Rig) -> None:
    """X-158"""
    grant = rig.start(JOB_ID, job_kind="platform")
    hand_in(rig, signed(platform_report(grant, status="CANCELLED"), RESULT_KEY).envelope)
    assert (rig.state(JOB_ID), closing(rig.store, JOB_ID).reason_code) == ("RETRYING", "CANCELLED_UNASKED")


@pytest.mark.parametrize("seed", range(8))
def test_whatever_workers_hand_in_a_status_only_ever_moves_as_the_contract_says(store: Store, seed: int) -> None:
    """JOB-017: late, repeated and contradictory reports in any order."""
    dice, rig = random.Random(seed), Rig(store)
    rig.one(submit(max_retries=20))
    shown, reports = JobStatus.QUEUED, []
    for _ in range(60):
        act = dice.choice(("claim", "report", "report", "time", "cancel" if dice.random() < 0.1 else "report"))
        if act == "claim":
            for grant in rig.one(Claim(0, "worker-1")).grants:
                reports += [
                    signed(work_report(grant, status), RESULT_KEY) for status in ("SUCCEEDED", "FAILED", "CANCELLED")
                ]
        elif act == "report" and reports:
            hand_in(rig, dice.choice(reports[-6:] if dice.random() < 0.3 else reports).envelope)
        elif act == "time":
            rig.pass_ms(dice.choice((10, 50, 150)))
        elif act == "cancel":
            rig.one(cancel())
        row = rig.store.job("job-1")
        assert row is not None
        now = project_job(Job.decode(row.body)).status
        assert now is shown or now in STATUS_MOVES[shown], (act, shown, now)
        shown = now


# -- other processes ---------------------------------------------------------------------------------------------------


class Plant:
    """A home with an owner and a client, either of which may hand in reports."""

    def __init__(self, house: House, owner: Session, client: Session) -> None:
        self.house = house
        self.sessions = {"owner": owner, "client": client}
        self.key = signing_key(house.home, house.trust(), "result", 1)

    def start(self, job_id: str = "job-1", **changes: Any) -> Grant:
        self.sessions["owner"].ask([self.house.submit(job_id, **changes)])
        ((grant,),) = [answer.grants for answer in self.sessions["owner"].ask([Claim(0, "worker-1")])]
        return grant

    def explained(self, job_id: str = "job-1") -> list[tuple[str, tuple[str, ...]]]:
        with self.house.reader() as reader:
            found = explain(reader, Content(reader, self.house.home.content_files()), job_id)
        return [(chapter.what, chapter.why) for chapter in found.story]


@contextmanager
def plant(directory: Path) -> Iterator[Plant]:
    house = House(directory)
    with house.session() as owner, house.session() as client:
        yield Plant(house, owner, client)


@pytest.mark.parametrize("hand", ["owner", "client"])
def test_a_session_hands_in_reports_whichever_process_owns_the_home(tmp_path: Path, hand: str) -> None:
    """JOB-083"""
    with plant(tmp_path) as made:
        session = made.sessions[hand]
        output = b"x" * 3_000
        report = signed(work_report(made.start(), stdout=WorkStream(b"", sha256(output))), made.key)
        answers: list[Answer] = [
            session.report(report.envelope, content=[(sha256(output), output)]),
            session.report(report, content=[(sha256(output), output)]),
        ]
        assert [answer.status for answer in answers] == ["COMMITTED", "DEDUPLICATED"]
        assert made.house.state() == "SUCCEEDED"
    with made.house.reader() as reader:
        assert reader.content(report.digest) == report.envelope
        assert reader.content(sha256(output)) == output


@pytest.mark.parametrize("hand", ["owner", "client"])
def test_a_large_report_becomes_a_file_before_it_is_named(tmp_path: Path, hand: str) -> None:
    with plant(tmp_path) as made:
        report = signed(work_report(made.start(), stderr=WorkStream(b"x" * 20_000)), made.key)
        assert len(report.envelope) > CONTENT_INLINE_BYTES_MAX
        assert made.sessions[hand].report(report.envelope).ok
        assert made.house.home.content_files().get(report.digest) == report.envelope
        with pytest.raises(InvalidInput):
            made.sessions[hand].report(bytes(ENVELOPE_BYTES_MAX + 1))


@pytest.mark.parametrize("hand", ["owner", "client"])
def test_what_is_refused_is_explained_under_its_job_with_its_digest(tmp_path: Path, hand: str) -> None:
    """X-157, X-182, JOB-069"""
    with plant(tmp_path) as made:
        session, grant = made.sessions[hand], made.start()
        forged = signed(work_report(grant), STRANGER)
        assert session.report(forged.envelope).refusal is not None
        session.ask([cancel()])
        late = signed(work_report(grant), made.key)
        answer = session.report(late.envelope)
        assert answer.refusal is not None
        assert answer.refusal.code == "LEASE_INVALID"
        assert made.house.state() == "CANCELED"
        told = [why for what, why in made.explained() if what == "result discarded"]
    assert [
        any(digest.hex() in line for line in why)
        for digest, why in zip((forged.digest, late.digest), told, strict=True)
    ] == [True, True]
    assert "REPORT_SIGNATURE_INVALID" in told[0][0]
    assert "LEASE_INVALID" in told[1][0]


def test_a_client_that_sends_what_is_no_report_is_answered_and_the_owner_lives(tmp_path: Path) -> None:
    with plant(tmp_path) as made:
        client = made.sessions["client"]
        for nonsense in (b"", b"\xff" * 100, b"{}", bytes(20_000)):
            answer = client.report(nonsense)
            assert answer.refusal is not None
            assert answer.refusal.code == "REPORT_INVALID"
        assert client.report(signed(work_report(made.start()), made.key).envelope).ok


def test_a_report_reaches_the_partition_of_its_job(tmp_path: Path) -> None:
    house = House(tmp_path, partitions=3)
    with house.session() as owner, house.session() as client:
        key = signing_key(house.home, house.trust(), "result", 1)
        for number in range(4):
            job_id = f"job-{number}"
            place = owner.partition(job_id)
            owner.ask([house.submit(job_id)], partition=place)
            ((grant,),) = [answer.grants for answer in owner.ask([Claim(0, "worker-1")], partition=place)]
            assert client.report(signed(work_report(grant), key).envelope).ok
            assert house.state(job_id) == "SUCCEEDED"
