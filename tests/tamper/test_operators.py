"""Tampering with operators' actions and with enrolled workers: with an editor, with the owner's key, with a worker's key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from detent.access.certificate import Enrolment, Proof, issue, prove, replica_of
from detent.canon import SigningKey, decode, encode, sha256
from detent.ledger import Report, replay_items, sign_result, verify_bundle, write_bundle
from tests.ledger.build import ORIGIN, Builder, codes, digest_of, enroll_command, key
from tests.tamper.forge import append, check, found, place_of, position_of, rewrite, with_record, with_records
from tests.tamper.test_reports import report_of

GPU, OTHER, ANN = key("gpu-1"), key("gpu-2"), key("ann")
TAG = f';tag="detent/{ORIGIN}"'


# -- operators' actions ----------------------------------------------------------------------------------------------------


def signed_request(
    signer: SigningKey = ANN, text: str = "POST /v1/jobs/plain/cancel", tag: str = TAG
) -> dict[str, Any]:
    """The fields of an action whose request the operator signed."""
    base = f"{text}{tag}".encode()
    evidence = encode({"request_id": "req-2", "signature": {"base": base, "sig": signer.sign(base)}})
    return {"request_digest": sha256(base), "evidence": evidence, "credential_id": "dtk_ann"}


def make_key(ledger: Builder, key_id: str = "dtk_ann", signer: SigningKey = ANN, action: str = "key.create") -> None:
    evidence = encode({"parameters": {"public_key": signer.public_key}})
    ledger.operate(action, key_id, object_kind="key", evidence=evidence)


def operating() -> Builder:
    """An action that the server asserts, one that its operator signed, and one that was refused; then a head over all of it."""
    ledger = Builder()
    make_key(ledger)
    ledger.submit("plain")
    ledger.commit()
    ledger.cancel("plain")
    ledger.operate("job.cancel", "plain")
    ledger.operate("job.cancel", "plain", **signed_request())
    ledger.commit()
    ledger.operate("job.cancel", "nobody", outcome_code="UNKNOWN_JOB")
    ledger.commit()
    ledger.keep_head()
    return ledger


def action(ledger: Builder, number: int = 0) -> tuple[int, int]:
    """(batch, index) of an action about a job: asserted, signed, refused."""
    places = [
        (batch, index)
        for batch, commit in enumerate(ledger.commits)
        for index, (body, _) in enumerate(commit.records)
        if decode(body)["kind"] == "operated" and decode(body)["object_kind"] == "job"
    ]
    return places[number]


def test_an_honest_ledger_says_how_many_actions_there_are_and_who_signed_them() -> None:
    report = check(operating())
    assert report.ok
    assert (report.counts["operated"], report.counts["operated_signed"]) == (4, 1)
    said = "4 operator actions; 1 signed by the operators themselves, the rest asserted by the server."
    assert said in report.proved
    assert any("it alone vouches for actions" in sentence for sentence in report.not_proved)
    assert check(operating(), operating().items(rows=True), rows_expected=True).ok
    assert replay_items(operating().items()).ok


@pytest.mark.parametrize(
    "changes",
    [
        {"principal_id": "p_bob"},
        {"credential_id": "dtk_2"},
        {"outcome_code": "FORBIDDEN"},
        {"action": "job.retry"},
        {"object_id": "other"},
        {"tenant_id": "rival"},
        {"tenant_id": None},
        {"request_digest": bytes(32)},
    ],
    ids=str,
)
def test_an_action_that_is_changed_with_an_editor_is_found(changes: dict[str, Any]) -> None:
    """Tampering: operated reattributed, outcome changed (M)"""
    ledger = operating()
    number, index = action(ledger)
    body, evidence = ledger.commits[number].records[index]
    pair = (encode(decode(body) | changes), evidence)
    report = check(ledger, with_record(ledger.items(), number, index, pair))
    assert found(report, "RECORDS_ROOT_WRONG").batch_no == number


def test_an_action_that_is_dropped_or_moved_with_an_editor_is_found() -> None:
    """Tampering: operated dropped, moved (M)"""
    ledger = operating()
    number, index = action(ledger)
    dropped = check(ledger, with_records(ledger.items(), number, lambda records: records.pop(index)))
    assert codes(dropped) >= {"RECORD_COUNT_WRONG", "RECORDS_ROOT_WRONG"}
    moved = check(ledger, with_records(ledger.items(), number, lambda records: records.insert(0, records.pop(index))))
    assert "RECORDS_ROOT_WRONG" in codes(moved)


@pytest.mark.parametrize(
    "change",
    [
        lambda records, index: records.pop(index),
        lambda records, index: records.insert(index - 1, records.pop(index)),
        lambda records, index: records.append(records[index]),
    ],
    ids=["dropped", "moved", "repeated"],
)
def test_an_owner_who_drops_moves_or_repeats_an_action_is_found_by_a_replay_and_by_a_kept_head(
    change: Callable[[list[Any], int], Any],
) -> None:
    """Tampering: operated dropped, moved by a holder of the owner's key (R, C)"""
    ledger = operating()
    kept = ledger.head()
    number, index = action(ledger)
    change(ledger.commits[number].records, index)
    ledger.heads = []
    assert not replay_items(ledger.items()).ok
    assert found(check(ledger, kept_heads=[kept]), "LEDGER_FORKED").partition == 0


def test_an_owner_who_reattributes_an_action_is_found_by_a_replay_and_by_a_kept_head() -> None:
    """Tampering: operated reattributed by a holder of the owner's key (R, C)"""
    ledger = operating()
    kept = ledger.head()
    rewrite(ledger, *action(ledger), principal_id="p_bob", outcome_code="FORBIDDEN")
    ledger.heads = []
    report = replay_items(ledger.items())
    assert "outcome_code, principal_id" in report.differences[0].problem
    assert found(check(ledger, kept_heads=[kept]), "LEDGER_FORKED").partition == 0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"request_digest": bytes(32)}, "another request than the recorded one"),
        ({"credential_id": "dtk_1"}, "no key in force"),
    ],
    ids=str,
)
def test_an_owner_who_reattributes_a_signed_action_is_found_by_its_signature(
    changes: dict[str, Any], told: str
) -> None:
    """Tampering: operated reattributed, request changed (S)"""
    ledger = operating()
    number, index = action(ledger, 1)
    rewrite(ledger, number, index, **changes)
    finding = found(check(ledger), "OPERATOR_SIGNATURE_INVALID")
    assert finding.position == position_of(ledger, number, index)
    assert told in finding.message


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (signed_request(OTHER), "does not verify"),
        (signed_request(tag=';tag="detent/elsewhere"'), "another ledger"),
        ({**signed_request(), "evidence": encode({"signature": {"base": b"", "sig": b""}})}, "another request"),
        ({**signed_request(), "evidence": encode({"signature": {"sig": bytes(64)}})}, "is a signature base and a sig"),
    ],
    ids=["another key", "another ledger", "nothing", "no base"],
)
def test_a_forged_signature_of_an_operator_is_found(fields: dict[str, Any], told: str) -> None:
    """Tampering: an operator's signature of another key, ledger or request (S)"""
    ledger = operating()
    ledger.operate("job.cancel", "plain", **fields)
    ledger.commit()
    assert told in "".join(one.message for one in check(ledger).findings if one.code == "OPERATOR_SIGNATURE_INVALID")


def test_a_key_that_was_revoked_signs_no_request_any_more() -> None:
    """Tampering: an operator's key used after it was revoked (T)"""
    ledger = operating()
    make_key(ledger, action="key.revoke")
    ledger.operate("job.cancel", "plain", **signed_request())
    ledger.commit()
    assert "no key in force" in found(check(ledger), "OPERATOR_SIGNATURE_INVALID").message


def test_keys_that_are_made_twice_or_were_never_made_are_found() -> None:
    """Tampering: the history of access does not follow on itself (R)"""
    for key_id, done in (("dtk_ann", "key.create"), ("dtk_new", "key.revoke"), ("dtk_new", "key.rotate")):
        ledger = operating()
        make_key(ledger, key_id, action=done)
        ledger.commit()
        assert codes(check(ledger)) == {"OPERATED_WRONG"}
    ledger = operating()
    for _ in range(2):
        make_key(ledger, action="key.revoke")  # Two operators at once: neither is wrong.
    ledger.commit()
    assert check(ledger).ok


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        (None, "EVIDENCE_MISSING"),
        (b"", "EVIDENCE_MISSING"),
        (encode({"reason": "another"}), "EVIDENCE_DIGEST_WRONG"),
    ],
    ids=["removed", "emptied", "changed"],
)
def test_evidence_of_an_action_that_is_removed_or_changed_is_found(evidence: bytes | None, code: str) -> None:
    """Tampering: the evidence beside operated (X)"""
    ledger = operating()
    number, index = action(ledger)
    body, _ = ledger.commits[number].records[index]
    report = check(ledger, with_record(ledger.items(), number, index, (body, evidence)))
    assert found(report, code).position == position_of(ledger, number, index)


def test_evidence_that_is_added_or_not_written_as_evidence_is_found() -> None:
    """Tampering: the evidence beside operated (X, B)"""
    ledger = operating()
    ledger.operate("verify", "here", object_kind="ledger", evidence=None)
    ledger.commit()
    number, body = len(ledger.commits) - 1, ledger.commits[-1].records[0][0]
    added = check(ledger, with_record(ledger.items(), number, 0, (body, encode({"reason": "x"}))))
    assert found(added, "EVIDENCE_UNEXPECTED").batch_no == number
    junk = encode({"secret": "x"})
    rewrite(ledger, number, 0, evidence_digest=sha256(junk))
    ledger.commits[number].records[0] = (ledger.commits[number].records[0][0], junk)
    assert found(check(ledger), "EVIDENCE_INVALID").batch_no == number


# -- enrolled workers ------------------------------------------------------------------------------------------------------


def enrolled(**changes: Any) -> Builder:
    """A worker has been enrolled, and has a job of each of two tenants; so has another worker."""
    ledger = Builder()
    ledger.allow_enrolment()
    ledger.enroll("gpu-1", **changes)
    ledger.commit()
    ledger.start_run("run-1")
    ledger.submit("own", run_id="run-1")
    ledger.claim(1, replica_of("gpu-1", "boot-1"))
    ledger.submit("foreign", tenant="rival")
    ledger.claim(1, replica_of("gpu-1", "boot-1"))
    ledger.submit("others")
    ledger.claim(1, replica_of("gpu-2", "boot-1"))
    ledger.commit()
    ledger.tick += 5
    return ledger


def hand_in(ledger: Builder, job_id: str = "own", signer: SigningKey = GPU) -> None:
    """Have the owner record a result of a worker, believing whatever it is given."""
    envelope = sign_result(report_of(ledger, job_id).body(), signer).envelope()
    ledger.finish(job_id, detail_digest=ledger.content(envelope))
    ledger.commit()


def both_ways(ledger: Builder) -> list[Report]:
    """The whole ledger and the bundle of its run, verified as files."""
    ledger.end_run("run-1")
    ledger.commit()
    written = (b"".join(write_bundle(items)) for items in (ledger.items(), ledger.run_items("run-1")))
    return [verify_bundle(BytesIO(data), ledger.root) for data in written]


def test_results_of_an_enrolled_worker_verify_in_a_ledger_and_in_the_bundle_of_a_run() -> None:
    ledger = enrolled()
    hand_in(ledger)
    ledger.retire()
    for report in both_ways(ledger):
        assert report.ok, report.findings
        assert (report.executors, report.workers) == ({GPU.key_id.hex(): 1}, {GPU.key_id.hex(): "gpu-1"})
        assert any("1 by worker gpu-1" in sentence for sentence in report.proved)
        assert any("1 worker was enrolled, each certified" in sentence for sentence in report.proved)


def test_a_run_without_the_certificate_of_its_worker_is_found() -> None:
    """Tampering: a certificate left out of a bundle (X)"""
    ledger = enrolled()
    hand_in(ledger)
    ledger.end_run("run-1")
    ledger.commit()
    items = [
        item
        for item in ledger.run_items("run-1")
        if not any(decode(record.body)["kind"] == "worker_enrolled" for record in getattr(item, "records", ()))
    ]
    assert found(check(ledger, items), "KEY_UNKNOWN").job_id == "own"


def test_a_key_that_is_used_after_its_worker_was_retired_is_found() -> None:
    """Tampering: retired key used later (T, by positions)"""
    ledger = enrolled()
    ledger.retire()
    ledger.commit()
    hand_in(ledger)
    for report in both_ways(ledger):
        assert "was retired at record" in found(report, "KEY_OUT_OF_RANGE").message


def test_a_retirement_in_the_same_batch_as_the_result_counts_by_its_place() -> None:
    """T, by positions: behind the result it takes nothing away, before it everything"""
    for retired_first in (False, True):
        ledger = enrolled()
        envelope = sign_result(report_of(ledger, "own").body(), GPU).envelope()
        digest = ledger.content(envelope)
        if retired_first:
            ledger.retire()
        ledger.finish("own", detail_digest=digest)
        if not retired_first:
            ledger.retire()
        ledger.commit()
        assert codes(check(ledger)) == ({"KEY_OUT_OF_RANGE"} if retired_first else set())


def test_a_key_that_is_used_before_its_worker_was_enrolled_is_found() -> None:
    """Tampering: a certificate issued afterwards, to cover a result (T, by positions)"""
    ledger = Builder()
    ledger.allow_enrolment()
    ledger.start_run("run-1")
    ledger.submit("own", run_id="run-1")
    ledger.claim(1, replica_of("gpu-1", "boot-1"))
    hand_in(ledger)
    ledger.enroll("gpu-1")
    for report in both_ways(ledger):
        assert "was enrolled at record" in found(report, "KEY_OUT_OF_RANGE").message


@pytest.mark.parametrize(("job_id", "told"), [("foreign", "for tenant 'rival'"), ("others", "not its own")])
def test_a_worker_that_signs_beyond_its_certificate_is_found(job_id: str, told: str) -> None:
    """Tampering: a worker's key used for another tenant, or for another worker's lease (T)"""
    ledger = enrolled()
    hand_in(ledger, job_id)
    assert told in found(check(ledger), "KEY_OUT_OF_SCOPE").message


def replaced(ledger: Builder, enrolment: Enrolment, **changes: Any) -> Builder:
    """As the owner: another enrolment in the place of the one that was recorded, with a record that binds it."""
    number, index = place_of(ledger, "worker_enrolled")
    body, _ = ledger.commits[number].records[index]
    command = enroll_command(0, enrolment)
    fields = decode(body) | {
        "key_id": command.key_id,
        "certificate_digest": command.certificate_digest,
        "evidence_digest": sha256(command.evidence),
    }
    ledger.commits[number].records[index] = (encode(fields | changes), command.evidence)
    return ledger


def widened(ledger: Builder) -> Enrolment:
    """The certificate with a further tenant, under the signature of the one that was issued."""
    honest = ledger.enrolment("gpu-1", GPU)
    wider = replace(honest.signed.certificate, tenants=("acme", "rival"))
    return honest._replace(signed=honest.signed._replace(certificate=wider, body=wider.body()))


def issued_by(role: str) -> Callable[[Builder], Enrolment]:
    def make(ledger: Builder) -> Enrolment:
        honest = ledger.enrolment("gpu-1", GPU)
        signer = key("stranger") if role == "stranger" else ledger.keys[role]
        return honest._replace(signed=issue(honest.signed.certificate, signer))

    return make


def of_another_ledger(ledger: Builder) -> Enrolment:
    certificate = replace(ledger.enrolment("gpu-1", GPU).signed.certificate, origin="detent/elsewhere")
    return Enrolment(issue(certificate, ledger.keys["enroll"]), proof("detent/elsewhere", GPU))


def proof(origin: str, worker: SigningKey) -> Proof:
    return prove(origin, digest_of("token"), bytes(16), worker)


def proved_by(worker: SigningKey, origin: str = ORIGIN) -> Callable[[Builder], Enrolment]:
    return lambda ledger: ledger.enrolment("gpu-1", GPU)._replace(proof=proof(origin, worker))


@pytest.mark.parametrize(
    ("forge", "code", "told"),
    [
        (widened, "CERTIFICATE_INVALID", "certificate's signature"),
        (issued_by("stranger"), "KEY_UNKNOWN", "issuer"),
        (issued_by("result"), "KEY_WRONG_ROLE", "issuer"),
        (issued_by("transition"), "KEY_WRONG_ROLE", "issuer"),
        (of_another_ledger, "CERTIFICATE_INVALID", "of the ledger 'detent/elsewhere'"),
        (proved_by(OTHER), "CERTIFICATE_INVALID", "proof"),
        (proved_by(GPU, "detent/elsewhere"), "CERTIFICATE_INVALID", "proof"),
        (lambda ledger: ledger.enrolment("gpu-9", GPU), "CERTIFICATE_INVALID", "another worker or key"),
    ],
    ids=[
        "tenants widened",
        "issued by a stranger",
        "issued by an executor",
        "issued by the owner",
        "certificate of another ledger",
        "proof of another key",
        "proof for another ledger",
        "certificate of another worker",
    ],
)
def test_a_forged_certificate_or_proof_is_found(forge: Callable[[Builder], Enrolment], code: str, told: str) -> None:
    """Tampering: forged certificate, certificate of another ledger, tenants widened, proof of another key (S, T)"""
    ledger = enrolled()
    assert check(ledger).ok
    replaced(ledger, forge(ledger))
    finding = found(check(ledger), code)
    assert finding.position == position_of(ledger, *place_of(ledger, "worker_enrolled"))
    assert told in finding.message


def test_a_certificate_that_is_not_the_one_the_record_names_is_found() -> None:
    """Tampering: certificate swapped, digest kept (X)"""
    for changes in ({"certificate_digest": bytes(32)}, {"key_id": OTHER.key_id}):
        ledger = enrolled()
        replaced(ledger, ledger.enrolment("gpu-1", GPU), **changes)
        assert "CERTIFICATE_INVALID" in codes(check(ledger))
    ledger = enrolled()
    number, index = place_of(ledger, "worker_enrolled")
    body, _ = ledger.commits[number].records[index]
    other = ledger.enrolment("gpu-1", GPU, tenants=None).evidence()
    for evidence, code in (
        (other, "EVIDENCE_DIGEST_WRONG"),
        (None, "EVIDENCE_MISSING"),
        (b"junk", "CERTIFICATE_INVALID"),
    ):
        report = check(ledger, with_record(ledger.items(), number, index, (body, evidence)))
        assert found(report, code).batch_no == number


def test_a_certificate_of_a_rotated_enrolment_key_does_not_count() -> None:
    """Tampering: a key used after its time (T, by positions)"""
    ledger = Builder()
    ledger.allow_enrolment()
    old = ledger.keys["enroll"]
    ledger.rotate("enroll", key("enroll 2"))
    ledger.keys["enroll"] = old
    ledger.enroll("gpu-1")
    ledger.commit()
    assert "issuer" in found(check(ledger), "KEY_OUT_OF_RANGE").message


def test_a_worker_that_is_enrolled_twice_or_retired_without_being_enrolled_is_found() -> None:
    """Tampering: worker_enrolled repeated; worker_retired dropped and repeated (R)"""
    ledger = enrolled()
    ledger.retire()
    ledger.commit()
    assert check(ledger).ok
    number, index = place_of(ledger, "worker_enrolled")
    body, evidence = ledger.commits[number].records[index]
    retirement, _ = ledger.commits.pop().records[0]
    for record, told in (
        ((encode(decode(body) | {"tick": ledger.tick}), evidence), "enrolled before"),
        ((encode(decode(retirement) | {"worker_id": "gpu-7"}), None), "worker 'gpu-7' is not enrolled"),
        ((encode(decode(retirement) | {"key_id": OTHER.key_id}), None), "not enrolled with this key"),
    ):
        append(ledger, record)
        assert told in found(check(ledger), "WORKER_WRONG").message
        ledger.commits.pop()
    append(ledger, (retirement, None), (retirement, None))
    assert found(check(ledger), "WORKER_WRONG").position == position_of(ledger, len(ledger.commits) - 1, 1)


def test_a_dropped_retirement_is_found_by_a_replay_and_by_a_kept_head() -> None:
    """Tampering: worker_retired dropped by a holder of the owner's key, so that a lost key counts again (R, C)"""
    ledger = enrolled()
    ledger.retire()
    ledger.commit()
    kept = ledger.head()
    ledger.commits[-1].records.clear()
    assert not replay_items(ledger.items()).ok
    assert found(check(ledger, kept_heads=[kept]), "LEDGER_FORKED").partition == 0


def test_a_worker_of_another_partition_is_unknown_in_this_one() -> None:
    ledger = Builder(partitions=2)
    ledger.allow_enrolment()
    ledger.submit("own")
    place = ledger.owner("own")
    ledger.apply(enroll_command(0, ledger.enrolment("gpu-1", GPU)), 1 - place)
    ledger.claim(1, replica_of("gpu-1", "boot-1"), place)
    hand_in(ledger)
    assert found(check(ledger), "KEY_UNKNOWN").partition == place


def test_no_bit_of_the_new_records_and_their_evidence_can_be_flipped() -> None:
    """Tampering: flip one bit (S/B); every seventh byte of every record and its evidence"""
    ledger = enrolled()
    make_key(ledger)
    ledger.operate("job.cancel", "own", **signed_request())
    ledger.retire()
    ledger.commit()
    items = ledger.items()
    for kind in ("operated", "worker_enrolled", "worker_retired"):
        number, index = place_of(ledger, kind)
        body, evidence = ledger.commits[number].records[index]
        for place in range(0, len(body), 7):
            pair = (body[:place] + bytes((body[place] ^ 1,)) + body[place + 1 :], evidence)
            assert not check(ledger, with_record(items, number, index, pair)).ok, (kind, place)
        for place in range(0, len(evidence or b""), 29):
            assert evidence is not None
            pair = (body, evidence[:place] + bytes((evidence[place] ^ 1,)) + evidence[place + 1 :])
            assert not check(ledger, with_record(items, number, index, pair)).ok, (kind, place)


def test_commands_and_records_are_what_a_replay_makes() -> None:
    ledger = enrolled()
    hand_in(ledger)
    ledger.retire()
    ledger.operate("worker.retire", "gpu-1", object_kind="worker")
    ledger.commit()
    assert replay_items(ledger.items()).ok
