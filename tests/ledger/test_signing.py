"""Manifests and results: who may sign them, and that nothing else passes for their signature."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detent.canon import encode, sha256, verify
from detent.errors import InvalidInput, Refused
from detent.kernel import KernelConfig, Manifest, VerifiedManifest
from detent.ledger import (
    KeyEntry,
    SignedResult,
    Trust,
    TrustConfig,
    TrustFault,
    result_signature,
    sign_manifest,
    sign_result,
    sign_trust,
    signer_refusal,
    verify_manifest,
)
from tests.ledger.build import ORIGIN, ROLES, key

MANIFEST = Manifest("acme", "job-1", "task", sha256(b"payload"), 5, KernelConfig().quota_policies[0].hash(), 0)


def trust(**limits: object) -> Trust:
    entries = [
        KeyEntry(key(role).public_key, role, **(limits if role in {"manifest", "result"} else {}))  # type: ignore[arg-type]
        for role in ROLES
    ]
    return Trust.start(sign_trust(TrustConfig(ORIGIN, tuple(entries)), key("root")).envelope())


def refusal(answer: VerifiedManifest | Refused) -> tuple[str, object]:
    assert isinstance(answer, Refused)
    return answer.code, answer.details.get("fault")


def test_a_signed_manifest_verifies_as_envelope_and_in_parts() -> None:
    """X-046"""
    signed = sign_manifest(MANIFEST, key("manifest"))
    assert verify_manifest(trust(), signed.envelope(), 0) == signed
    assert verify_manifest(trust(), (signed.body, signed.key_id, signed.signature), 0) == signed
    assert sign_manifest(MANIFEST, key("manifest")) == signed, "the same bytes again"


def test_the_owner_may_not_sign_a_manifest() -> None:
    """X-046: role misuse refused"""
    signed = sign_manifest(MANIFEST, key("transition"))
    assert refusal(verify_manifest(trust(), signed.envelope(), 0)) == ("MANIFEST_SIGNATURE_INVALID", "KEY_WRONG_ROLE")


def test_a_stranger_may_not_sign_a_manifest() -> None:
    signed = sign_manifest(MANIFEST, key("stranger"))
    assert refusal(verify_manifest(trust(), signed.envelope(), 0)) == ("MANIFEST_SIGNATURE_INVALID", "KEY_UNKNOWN")


def test_a_submitter_signs_for_its_own_tenants_and_in_its_own_time() -> None:
    signed = sign_manifest(MANIFEST, key("manifest"))
    limited = trust(tenants=("other",))
    assert refusal(verify_manifest(limited, signed.envelope(), 0)) == ("MANIFEST_SIGNATURE_INVALID", "KEY_OUT_OF_SCOPE")
    later = trust(from_position=4)
    assert refusal(verify_manifest(later, signed.envelope(), 3)) == ("MANIFEST_SIGNATURE_INVALID", "KEY_OUT_OF_RANGE")
    assert verify_manifest(later, signed.envelope(), 4) == signed
    placed = trust(partitions=(1,))
    assert verify_manifest(placed, signed.envelope(), 0, partition=1) == signed
    assert refusal(verify_manifest(placed, signed.envelope(), 0)) == ("MANIFEST_SIGNATURE_INVALID", "KEY_OUT_OF_SCOPE")


def test_a_manifest_that_names_another_ledger_is_refused_by_both_ways_in() -> None:
    """X-197: one from another process, and one that this process signed itself"""
    own, elsewhere = (
        sign_manifest(replace(MANIFEST, origin=origin), key("manifest")) for origin in (ORIGIN, "detent/there")
    )
    assert verify_manifest(trust(), own.envelope(), 0) == own
    assert signer_refusal(trust(), own, 0, 0) is None
    for answer in (verify_manifest(trust(), elsewhere.envelope(), 0), signer_refusal(trust(), elsewhere, 0, 0)):
        assert isinstance(answer, Refused)
        assert (answer.code, answer.details) == ("MANIFEST_ORIGIN_WRONG", {"origin": "detent/there", "ledger": ORIGIN})
        assert "job 'job-1'" in answer.message
        assert "sign it for this ledger, or submit it to the one it names" in answer.message


def test_a_copy_takes_manifests_under_its_own_name_from_the_batch_that_announces_it() -> None:
    """X-197, X-200"""
    before, entry = trust(), KeyEntry(key("manifest of the copy").public_key, "manifest", from_position=6)
    closed = [replace(one, to_position=6) if one.role != "witness" else one for one in before.config.keys]
    renamed = TrustConfig("detent/copy", (*closed, entry), 2, before.root_digest, copy_of=ORIGIN)
    copied = before.extend(sign_trust(renamed, key("root")).envelope(), 5)
    for position, origin, signer in (
        (4, ORIGIN, "manifest"),
        (6, "detent/copy", "manifest of the copy"),
    ):
        for named in (ORIGIN, "detent/copy"):
            signed = sign_manifest(replace(MANIFEST, origin=named), key(signer))
            answer = verify_manifest(copied, signed.envelope(), position)
            assert answer == signed if named == origin else refusal(answer) == ("MANIFEST_ORIGIN_WRONG", None)


def test_a_manifest_changed_after_signing_is_refused() -> None:
    signed = sign_manifest(MANIFEST, key("manifest"))
    other = replace(signed, body=replace(MANIFEST, priority=9).body())
    assert refusal(verify_manifest(trust(), other.envelope(), 0)) == ("MANIFEST_SIGNATURE_INVALID", None)


def test_a_signature_made_for_something_else_is_refused() -> None:
    """X-046: the label in front of the bytes keeps message types apart"""
    signer = key("manifest")
    body = MANIFEST.body()
    bare = VerifiedManifest(MANIFEST, body, signer.key_id, signer.sign(body))
    as_result = VerifiedManifest(MANIFEST, body, signer.key_id, sign_result(body, signer).signature)
    for forged in (bare, as_result):
        assert refusal(verify_manifest(trust(), forged.envelope(), 0)) == ("MANIFEST_SIGNATURE_INVALID", None)


def test_a_manifest_that_fits_no_schema_is_neither_signed_nor_accepted() -> None:
    wrong = replace(MANIFEST, priority=11)
    with pytest.raises(InvalidInput, match="priority"):
        sign_manifest(wrong, key("manifest"))
    for body in (wrong.body(), encode({"job_kind": []}), encode([]), b""):
        signature = key("manifest").sign(b"UML_OS.Pipeline.JobManifest_v1\x00" + body)
        answer = verify_manifest(trust(), (body, key("manifest").key_id, signature), 0)
        assert isinstance(answer, Refused)
        assert answer.code == "MANIFEST_SCHEMA_INVALID"


def test_a_field_that_cannot_even_be_compared_is_a_refusal() -> None:
    """A list where a word belongs must not end in an exception: the bytes are a stranger's."""
    fields = {name: getattr(MANIFEST, name) for name in Manifest.REQUIRED}
    fields |= {"retry_categories": [], "job_kind": ["task"]}
    body = encode(fields)
    signature = key("manifest").sign(b"UML_OS.Pipeline.JobManifest_v1\x00" + body)
    answer = verify_manifest(trust(), (body, key("manifest").key_id, signature), 0)
    assert isinstance(answer, Refused)
    assert answer.code == "MANIFEST_SCHEMA_INVALID"


@pytest.mark.parametrize(
    "envelope", [b"", encode({}), encode({"body": b"", "sig": {"alg": "none", "key_id": bytes(32), "sig": bytes(64)}})]
)
def test_bytes_that_are_no_signed_manifest_are_refused(envelope: bytes) -> None:
    assert isinstance(verify_manifest(trust(), envelope, 0), Refused)


def believed(signed: SignedResult) -> bool:
    found = result_signature(trust(), signed, 0, tenant="acme")
    return not isinstance(found, TrustFault) and verify(*found)


def test_a_result_is_signed_by_its_executor() -> None:
    """X-046: role `result`"""
    signed = sign_result(b"result", key("result"))
    assert SignedResult.parse(signed.envelope()) == signed
    assert believed(signed)


def test_a_result_by_another_role_for_another_tenant_or_with_other_bytes_is_not_believed() -> None:
    def code(signed: SignedResult, tenants: tuple[str, ...] | None = None, tenant: str = "acme") -> str | None:
        found = result_signature(trust(tenants=tenants), signed, 0, tenant=tenant)
        return found.code if isinstance(found, TrustFault) else None

    signed = sign_result(b"result", key("result"))
    assert code(sign_result(b"result", key("manifest"))) == "KEY_WRONG_ROLE"
    assert code(signed, ("acme",), "other") == "KEY_OUT_OF_SCOPE"
    assert not believed(signed._replace(body=b"other"))
    assert not believed(signed._replace(signature=key("result").sign(b"result")))


@pytest.mark.parametrize(
    "envelope",
    [
        b"\xff",
        encode({"body": b""}),
        encode({"body": b"", "sig": {"alg": "none", "key_id": bytes(32), "sig": bytes(64)}}),
        encode({"body": b"", "sig": {"alg": "Ed25519", "key_id": bytes(31), "sig": bytes(64)}}),
        encode({"body": 1, "sig": {"alg": "Ed25519", "key_id": bytes(32), "sig": bytes(64)}}),
    ],
)
def test_bytes_that_are_no_signed_result_are_refused(envelope: bytes) -> None:
    with pytest.raises(InvalidInput):
        SignedResult.parse(envelope)
