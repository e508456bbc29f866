"""Tampering with executors' reports: by an owner that names forged ones, and by an attacker who removes or changes one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import pytest

from detent.canon import SigningKey, decode, encode, sha256
from detent.jobs.report import PlatformReport
from detent.jobs.work import Failure, WorkReport
from detent.ledger import (
    ContentItem,
    Item,
    KeyEntry,
    Report,
    SignedResult,
    TrustConfig,
    sign_result,
    verify_bundle,
    write_bundle,
)
from tests.flat_reports import flat_report
from tests.ledger.build import ORIGIN, Builder, codes, key
from tests.tamper.forge import check, found, place_of, position_of

RESULT = key("result")


def report_of(ledger: Builder, job: str, /, **changes: Any) -> WorkReport:
    """What an honest executor says of the attempt it has under way."""
    grant = ledger.grants[job]
    values: dict[str, Any] = {
        "job_id": job,
        "attempt_id": grant.attempt_id,
        "lease_id": grant.lease_id,
        "manifest_hash": grant.job_manifest_hash,
        "status": "SUCCEEDED",
        "nonce": bytes(16),
    }
    return flat_report(**(values | changes))


def hand_in(ledger: Builder, job_id: str, envelope: bytes, **fields: Any) -> bytes:
    """Have the owner record a result by this report, believing whatever it is given."""
    digest = ledger.content(envelope)
    ledger.finish(job_id, detail_digest=digest, **fields)
    return digest


def signed(report: WorkReport | PlatformReport, signer: SigningKey = RESULT) -> bytes:
    return sign_result(report.body(), signer).envelope()


def working(origin: str = ORIGIN) -> Builder:
    """A run with two jobs at work."""
    ledger = Builder(origin)
    ledger.start_run("run-1")
    for name in ("first", "second"):
        ledger.submit(name, run_id="run-1", max_retries=1)
    ledger.claim(2)
    ledger.commit()
    ledger.tick += 5
    return ledger


def forged(envelope: Callable[[Builder], bytes]) -> Builder:
    """Two jobs of a run have ended: the first by what is given, the second honestly."""
    ledger = working()
    hand_in(ledger, "first", envelope(ledger))
    hand_in(ledger, "second", signed(report_of(ledger, "second")))
    ledger.end_run("run-1")
    ledger.commit()
    return ledger


def honest() -> Builder:
    return forged(lambda ledger: signed(report_of(ledger, "first")))


def both_ways(ledger: Builder) -> list[Report]:
    """The whole ledger and the bundle of its run, verified as files."""
    written = (b"".join(write_bundle(items)) for items in (ledger.items(), ledger.run_items("run-1")))
    return [verify_bundle(BytesIO(data), ledger.root) for data in written]


def with_changed_signature(ledger: Builder) -> bytes:
    genuine = sign_result(report_of(ledger, "first").body(), RESULT)
    return genuine._replace(signature=bytes((genuine.signature[0] ^ 1,)) + genuine.signature[1:]).envelope()


def with_changed_body(ledger: Builder) -> bytes:
    genuine = sign_result(report_of(ledger, "first").body(), RESULT)
    return genuine._replace(body=report_of(ledger, "first", cpu_ms=7).body()).envelope()


def with_the_bare_body_signed(ledger: Builder) -> bytes:
    genuine = sign_result(report_of(ledger, "first").body(), RESULT)
    return genuine._replace(signature=RESULT.sign(genuine.body)).envelope()


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (with_changed_signature, "RESULT_SIGNATURE_INVALID"),
        (with_changed_body, "RESULT_SIGNATURE_INVALID"),
        (with_the_bare_body_signed, "RESULT_SIGNATURE_INVALID"),
        (lambda ledger: report_of(ledger, "first").body(), "RESULT_SIGNATURE_INVALID"),
        (lambda ledger: signed(report_of(ledger, "first"), key("a stranger")), "KEY_UNKNOWN"),
        (lambda ledger: signed(report_of(ledger, "first"), key("manifest")), "KEY_WRONG_ROLE"),
        (lambda ledger: signed(report_of(ledger, "first"), key("transition")), "KEY_WRONG_ROLE"),
        (lambda ledger: signed(report_of(ledger, "first", job_id="second")), "RESULT_MISMATCH"),
        (lambda ledger: signed(report_of(ledger, "first", attempt_id=1)), "RESULT_MISMATCH"),
        (lambda ledger: signed(report_of(ledger, "first", lease_id=sha256(b"other"))), "RESULT_MISMATCH"),
        (lambda ledger: signed(report_of(ledger, "first", manifest_hash=sha256(b"other"))), "RESULT_MISMATCH"),
        (
            lambda ledger: signed(
                report_of(ledger, "first", status="FAILED", error=Failure("INTERNAL_ERROR", "CRASHED"))
            ),
            "RESULT_MISMATCH",
        ),
        (lambda _ledger: sign_result(b"no report", RESULT).envelope(), "RESULT_MISMATCH"),
    ],
)
def test_an_owner_that_records_a_result_no_executor_signed_for_it_is_found(
    envelope: Callable[[Builder], bytes], code: str
) -> None:
    """Tampering: signature changed, foreign key, wrong role, report of another job or attempt. JOB-083, X-046"""
    ledger = forged(envelope)
    position = position_of(ledger, *place_of(ledger, "transition", "first", 1))
    for report in both_ways(ledger):
        assert codes(report) == {code}
        finding = found(report, code)
        assert (finding.job_id, finding.position, finding.partition, finding.batch_no) == ("first", position, 0, 2)
        assert sum(report.executors.values()) == (2 if code == "RESULT_MISMATCH" else 1), "only good signatures count"


def test_reports_of_two_jobs_that_change_places_are_found() -> None:
    """Tampering: the report of another job swapped in. JOB-083"""
    ledger = working()
    reports = {name: signed(report_of(ledger, name)) for name in ("first", "second")}
    hand_in(ledger, "first", reports["second"])
    hand_in(ledger, "second", reports["first"])
    ledger.end_run("run-1")
    ledger.commit()
    for report in both_ways(ledger):
        assert report.codes == {"RESULT_MISMATCH": 2}


def test_a_report_made_for_another_ledger_is_found() -> None:
    """Tampering: the report of the same job in another deployment swapped in. X-197, JOB-083"""
    elsewhere, ledger = working(origin="detent/elsewhere"), working()
    genuine, foreign = report_of(ledger, "first"), report_of(elsewhere, "first")
    assert (foreign.job_id, foreign.attempt_id, foreign.lease_id) == ("first", genuine.attempt_id, genuine.lease_id)
    hand_in(ledger, "first", signed(foreign))
    hand_in(ledger, "second", signed(report_of(ledger, "second")))
    ledger.end_run("run-1")
    ledger.commit()
    for report in both_ways(ledger):
        assert found(report, "RESULT_MISMATCH").message.endswith("manifest_hash")


def test_one_report_for_two_results_is_found() -> None:
    """Tampering: the report of an earlier attempt named again. JOB-083"""
    ledger = working()
    report = signed(report_of(ledger, "first"))
    hand_in(ledger, "first", report)
    hand_in(ledger, "second", report)
    ledger.end_run("run-1")
    ledger.commit()
    finding = found(check(ledger), "RESULT_MISMATCH")
    assert (finding.job_id, "named before" in finding.message) == ("second", True)


def test_a_failed_attempts_report_does_not_serve_for_the_next_attempt() -> None:
    """Tampering: the report of another attempt swapped in. JOB-083"""
    ledger = working()
    failed = report_of(ledger, "first", status="FAILED", error=Failure("INTERNAL_ERROR", "CRASHED"))
    early = signed(report_of(ledger, "first", nonce=b"n" * 16))
    hand_in(ledger, "first", signed(failed), ok=False)
    hand_in(ledger, "second", signed(report_of(ledger, "second")))
    ledger.commit()
    assert check(ledger).ok
    ledger.advance(1_000)
    ledger.claim(1)
    hand_in(ledger, "first", early)
    ledger.commit()
    assert "attempt_id, lease_id" in found(check(ledger), "RESULT_MISMATCH").message


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_a_platform_jobs_result_document_must_agree_with_its_record(status: str) -> None:
    """Tampering: an outcome recorded that the executor did not report. JOB-083"""

    def envelope(ledger: Builder) -> bytes:
        grant = ledger.grants["first"]
        bound = (grant.job_id, grant.attempt_id, grant.lease_id, grant.job_manifest_hash)
        document = b'{"status":"' + status.encode() + b'"}'
        names = ("job_id", "attempt_id", "lease_id", "manifest_hash")
        return signed(PlatformReport(**dict(zip(names, bound, strict=True)), result=document))  # type: ignore[arg-type]

    report = check(forged(envelope))
    assert codes(report) == (set() if status == "SUCCEEDED" else {"RESULT_MISMATCH"})


def test_a_key_outside_its_time_signs_no_result() -> None:
    """Tampering: a result signed by a key before or after its range of batches. X-047"""
    ledger = working()
    old, new = ledger.keys["result"], key("next executor")
    ledger.rotate("result", new)
    hand_in(ledger, "first", signed(report_of(ledger, "first"), old))
    hand_in(ledger, "second", signed(report_of(ledger, "second"), new))
    ledger.end_run("run-1")
    ledger.commit()
    for report in both_ways(ledger):
        assert codes(report) == {"KEY_OUT_OF_RANGE"}
        assert found(report, "KEY_OUT_OF_RANGE").job_id == "first"
        assert report.executors == {new.key_id.hex(): 1}


def test_a_result_signed_before_a_rotation_stays_believed() -> None:
    """Rotation never voids the past. X-047"""
    ledger = working()
    old, new = ledger.keys["result"], key("next executor")
    hand_in(ledger, "first", signed(report_of(ledger, "first"), old))
    ledger.commit()
    ledger.rotate("result", new)
    hand_in(ledger, "second", signed(report_of(ledger, "second"), new))
    ledger.end_run("run-1")
    ledger.commit()
    for report in both_ways(ledger):
        assert report.ok
        assert report.executors == {old.key_id.hex(): 1, new.key_id.hex(): 1}


def test_a_key_of_another_tenant_signs_no_result() -> None:
    """Tampering: a result signed by another tenant's executor. X-046"""
    ledger = Builder()
    last = ledger.trust_versions[-1]
    rival = KeyEntry(key("rival").public_key, "result", ("rival",))
    ledger.announce(TrustConfig(ledger.origin, (*last.keys, rival), 2, last.digest()), ledger.keys["root"])
    ledger.submit("first")
    ledger.claim(1)
    ledger.commit()
    hand_in(ledger, "first", signed(report_of(ledger, "first"), key("rival")))
    ledger.commit()
    assert codes(check(ledger)) == {"KEY_OUT_OF_SCOPE"}


def edited(items: Sequence[Item], change: Callable[[ContentItem], ContentItem | None]) -> list[Item]:
    """The items with the first report changed, or left out."""
    place = next(place for place, item in enumerate(items) if isinstance(item, ContentItem))
    first = items[place]
    assert isinstance(first, ContentItem)
    kept = change(first)
    return [*items[:place], *([] if kept is None else [kept]), *items[place + 1 :]]


@pytest.mark.parametrize(
    ("change", "codes_found"),
    [
        (lambda _item: None, {"RESULT_MISSING"}),
        (lambda item: item._replace(data=item.data + b"\x00"), {"CONTENT_DIGEST_WRONG", "RESULT_SIGNATURE_INVALID"}),
        (
            lambda item: item._replace(data=relabelled(item.data)),
            {"CONTENT_DIGEST_WRONG", "RESULT_SIGNATURE_INVALID"},
        ),
    ],
)
def test_a_report_that_is_taken_out_or_changed_without_any_key_is_found(
    change: Callable[[ContentItem], ContentItem | None], codes_found: set[str]
) -> None:
    """Tampering: report removed; report bytes changed"""
    ledger = honest()
    for items in (ledger.items(), ledger.run_items("run-1")):
        report = check(ledger, edited(items, change))
        assert codes(report) == codes_found


def relabelled(envelope: bytes) -> bytes:
    """The same report with another value inside, under the old signature."""
    signed_result = SignedResult.parse(envelope)
    return signed_result._replace(body=encode(decode(signed_result.body) | {"cpu_ms": 1})).envelope()


def test_the_report_says_which_keys_signed_how_many_results() -> None:
    """JOB-083: and each result counts for the key that signed it."""
    for report in both_ways(honest()):
        assert report.ok
        assert report.executors == {RESULT.key_id.hex(): 2}
        assert (report.counts["results"], report.counts["results_signed"]) == (2, 2)
        assert any(
            sentence.startswith("2 results are signed by executor keys") and RESULT.key_id.hex()[:16] in sentence
            for sentence in report.proved
        )


def test_a_bundle_without_any_report_says_that_signatures_were_not_included() -> None:
    """As bundles were that were exported before reports went along: they verify, and say what they do not show."""
    ledger = honest()
    for items in (ledger.items(), ledger.run_items("run-1")):
        bare = [item for item in items if not isinstance(item, ContentItem)]
        report = check(ledger, bare)
        assert report.ok
        assert (report.executors, report.counts["reports_missing"]) == ({}, 2)
        assert any("Which executors signed the 2 results" in sentence for sentence in report.not_proved)
        assert not any("signed by executor keys" in sentence for sentence in report.proved)


def test_a_home_that_lacks_a_report_is_red_however_many_it_lacks() -> None:
    """Tampering: reports removed from a home. A home has what it has not erased."""
    ledger = honest()
    bare = [item for item in ledger.items(rows=True) if not isinstance(item, ContentItem)]
    assert check(ledger, bare, rows_expected=True).codes == {"RESULT_MISSING": 2}
    assert check(ledger, ledger.items(rows=True), rows_expected=True).ok


def test_an_erased_report_is_said_to_be_erased_and_is_no_finding() -> None:
    """X-171: erasure is recorded, and explains the absence."""
    ledger = honest()
    ledger.erase(ledger.contents[0].digest)
    ledger.commit()
    for report in (check(ledger), check(ledger, ledger.items(rows=True), rows_expected=True)):
        assert report.ok
        assert (report.counts["results_signed"], report.counts["reports_erased"]) == (1, 1)
        assert any("1 result whose report was erased" in sentence for sentence in report.not_proved)


def test_results_that_name_no_report_are_counted_apart() -> None:
    ledger = working()
    ledger.finish("first")
    ledger.commit()
    report = check(ledger)
    assert report.ok
    assert report.counts["results_without_report"] == 1
    assert any("no signed report" in sentence for sentence in report.not_proved)


def test_a_report_is_checked_against_the_trust_of_its_own_batch() -> None:
    """X-047: a later version that drops the key does not undo what it signed."""
    ledger = honest()
    last = ledger.trust_versions[-1]
    position = ledger.size() + 1
    entries = tuple(replace(one, to_position=position) if one.role == "result" else one for one in last.keys)
    ledger.announce(TrustConfig(ledger.origin, entries, 2, last.digest()), ledger.keys["root"])
    ledger.commit()
    assert check(ledger).ok
