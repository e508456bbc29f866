"""Manifests: the bytes that are signed, the schema they must fit, and the envelope they are stored in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cbor2
import pytest

from detent.canon import SigningKey, decode, encode, sha256, verify
from detent.errors import Refused
from detent.kernel import MANIFEST_LABEL, Manifest, VerifiedManifest, open_envelope
from tests.kernel.builders import SUBMITTER, manifest, signed, verified

FIELDS = {
    "manifest_version",
    "tenant_id",
    "job_id",
    "job_kind",
    "payload_digest",
    "priority",
    "lease_policy_id",
    "max_retries",
    "max_interruptions",
    "retry_categories",
    "backoff_schedule_id",
    "quota_policy_hash",
    "created_tick",
}


def fields_of(described: Manifest) -> dict[str, Any]:
    fields = decode(described.body())
    assert isinstance(fields, dict)
    return fields


def refusal_of(fields: dict[str, Any]) -> str | None:
    answer = Manifest.parse(encode(fields))
    if isinstance(answer, Refused):
        assert answer.code == "MANIFEST_SCHEMA_INVALID"
        return answer.message
    return None


def test_a_manifest_has_exactly_the_fields_of_the_contract() -> None:
    """PIPE-044, PIPE-049, X-040, X-163, X-164"""
    assert set(fields_of(manifest())) == FIELDS
    assert set(fields_of(manifest(pool_pin="gpu"))) == FIELDS | {"pool_pin"}
    assert set(fields_of(manifest(evictable=False))) == FIELDS | {"evictable"}
    assert set(fields_of(manifest(origin="detent/here"))) == FIELDS | {"origin"}


def test_a_manifest_is_the_same_bytes_for_another_cbor_library() -> None:
    """PIPE-049, X-047"""
    described = manifest(pool_pin="gpu", retry_categories=("INTERNAL_ERROR", "ValueError"))
    assert cbor2.dumps(fields_of(described), canonical=True) == described.body()


def test_defaults_of_a_manifest_are_those_of_the_decisions() -> None:
    """X-163, X-164, X-191"""
    plain = Manifest("t", "j", "task", bytes(32), 5, bytes(32), 0)
    assert (plain.max_retries, plain.max_interruptions, plain.retry_categories) == (2, 10, ("INTERNAL_ERROR",))


def test_a_manifest_survives_its_bytes() -> None:
    """PIPE-049"""
    described = manifest(pool_pin="gpu", priority=10, max_retries=0, retry_categories=(), evictable=False)
    for one in (described, replace(described, origin="detent/here")):
        assert Manifest.parse(one.body()) == one


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_missing_field_is_refused_by_name(name: str) -> None:
    """PIPE-030, PIPE-042"""
    fields = fields_of(manifest())
    del fields[name]
    assert refusal_of(fields) == f"the manifest lacks {name}"


def test_an_extra_field_is_refused_by_name() -> None:
    """PIPE-030"""
    assert "surprise" in str(refusal_of({**fields_of(manifest()), "surprise": 1}))


@pytest.mark.parametrize("wrong", [None, True, -1, 2**63, "", "x" * 201, b"", b"\0" * 31, [], ["x"], {}, {"a": 1}])
@pytest.mark.parametrize("name", sorted(FIELDS | {"pool_pin"}))
def test_a_wrongly_typed_field_is_refused_by_name(name: str, wrong: Any) -> None:
    """PIPE-018, PIPE-030, PIPE-042"""
    fits = {"max_retries": 2**63, "max_interruptions": 2**63, "created_tick": 2**63, "retry_categories": []}
    message = refusal_of({**fields_of(manifest()), name: wrong})
    assert (message is None) == (name in fits and type(fits[name]) is type(wrong) and fits[name] == wrong)
    assert message is None or name in message


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"priority": 0}, "priority"),
        ({"priority": 11}, "priority"),
        ({"job_kind": "cron"}, "job_kind"),
        ({"job_id": "a\nb"}, "control characters"),
        ({"job_id": "a\x85b"}, "control characters"),
        ({"job_id": "a\N{RIGHT-TO-LEFT OVERRIDE}b"}, "marks of direction"),
        ({"tenant_id": "ö" * 101}, "at most 200 bytes"),
        ({"manifest_version": 2}, "manifest_version"),
        ({"retry_categories": ["ValueError", "INTERNAL_ERROR"]}, "sorted"),
        ({"retry_categories": ["ValueError", "ValueError"]}, "without repeats"),
        ({"retry_categories": ["lower"]}, "retry_categories"),
        ({"retry_categories": [f"E{number:02d}" for number in range(33)]}, "at most 32"),
        ({"job_kind": "platform", "retry_categories": ["ValueError"]}, "platform"),
        ({"evictable": True}, "evictable is false, or left out"),
        ({"evictable": 0}, "evictable is false, or left out"),
        ({"origin": ""}, "origin must be a non-empty text"),
        ({"origin": None}, "origin must be a non-empty text"),
        ({"origin": "detent/a\nb"}, "origin must not contain control characters"),
        ({"origin": "x" * 201}, "origin must have at most 200 bytes"),
    ],
)
def test_a_value_outside_its_range_is_refused(changes: dict[str, Any], text: str) -> None:
    """PIPE-030, X-010, X-016, X-164"""
    assert text in str(refusal_of({**fields_of(manifest()), **changes}))


@pytest.mark.parametrize("kind", ["platform", "action", "seq", "inference", "task"])
def test_every_kind_of_job_has_a_manifest_without_documents(kind: str) -> None:
    """X-016, X-186"""
    assert refusal_of(fields_of(manifest(job_kind=kind))) is None


def test_jobs_of_workflows_and_ordered_runs_are_never_evicted() -> None:
    """X-031"""
    kinds = ("platform", "action", "seq", "inference", "task")
    assert [kind for kind in kinds if manifest(job_kind=kind).may_be_evicted] == ["platform", "inference", "task"]


def test_a_submitter_that_waits_for_room_keeps_its_jobs_from_being_evicted() -> None:
    """X-187"""
    kinds = ("platform", "action", "seq", "inference", "task")
    assert not any(manifest(job_kind=kind, evictable=False).may_be_evicted for kind in kinds)


@pytest.mark.parametrize(
    "job_id", ["j", "x" * 200, "ö" * 100, "job 1", "作業", "\N{GRINNING FACE}", "a\u3000b", "\U000e0fff"]
)
def test_an_id_is_judged_by_a_fixed_list_and_not_by_a_table_of_unicode(job_id: str) -> None:
    """PIPE-017: a character that one Python knows and another does not must not decide"""
    assert refusal_of(fields_of(manifest(job_id))) is None


@pytest.mark.parametrize("body", [b"", b"\xff", b"\xa0\xa0", encode([1]), encode("text"), b"\xa1\x01\x02"])
def test_bytes_that_are_no_manifest_are_refused(body: bytes) -> None:
    """PIPE-030"""
    answer = Manifest.parse(body)
    assert isinstance(answer, Refused)
    assert answer.code == "MANIFEST_SCHEMA_INVALID"


def test_the_manifest_hash_is_that_of_the_signed_bytes() -> None:
    """PIPE-040, X-046"""
    accepted = verified()
    assert accepted.hash == sha256(accepted.body) == sha256(manifest().body())


def test_the_signature_covers_label_and_body_and_is_the_same_each_time() -> None:
    """PIPE-029, X-046"""
    accepted = verified()
    assert MANIFEST_LABEL == b"UML_OS.Pipeline.JobManifest_v1\0"
    assert verify(SUBMITTER.public_key, MANIFEST_LABEL + accepted.body, accepted.signature)
    assert not verify(SUBMITTER.public_key, accepted.body, accepted.signature)
    assert verified() == accepted


def test_the_stored_envelope_opens_to_what_was_signed() -> None:
    """PIPE-049: the signature block stands outside the body"""
    accepted = verified()
    opened = open_envelope(accepted.envelope())
    assert opened == (accepted.body, SUBMITTER.key_id, accepted.signature)
    envelope = decode(accepted.envelope())
    assert isinstance(envelope, dict)
    assert {name: sorted(value) for name, value in envelope.items() if name == "sig"} == {
        "sig": ["alg", "key_id", "sig"]
    }


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"alg": "ECDSA"}, "MANIFEST_SIGNATURE_INVALID"),
        ({"alg": []}, "MANIFEST_SIGNATURE_INVALID"),
        ({"key_id": b"short"}, "MANIFEST_SCHEMA_INVALID"),
        ({"key_id": 7}, "MANIFEST_SCHEMA_INVALID"),
        ({"sig": bytes(63)}, "MANIFEST_SCHEMA_INVALID"),
        ({"sig": "text"}, "MANIFEST_SCHEMA_INVALID"),
        ({"extra": 1}, "MANIFEST_SCHEMA_INVALID"),
    ],
)
def test_a_bad_signature_block_is_refused(change: dict[str, Any], code: str) -> None:
    """PIPE-029, PIPE-030, X-046: algorithms with random nonces are refused by name"""
    block = {"alg": "Ed25519", "key_id": bytes(32), "sig": bytes(64), **change}
    answer = open_envelope(encode({"body": manifest().body(), "sig": block}))
    assert isinstance(answer, Refused)
    assert answer.code == code


@pytest.mark.parametrize("data", [b"", b"\xff", encode([]), encode({"body": b""}), encode({"body": 1, "sig": {}})])
def test_bytes_that_are_no_envelope_are_refused(data: bytes) -> None:
    """PIPE-030"""
    assert isinstance(open_envelope(data), Refused)


def test_another_key_makes_another_envelope_of_the_same_manifest() -> None:
    """PIPE-114: the same job signed by another key"""
    mine, other = signed(manifest()), signed(manifest(), SigningKey(b"\x09" * 32))
    assert isinstance(mine, VerifiedManifest)
    assert (mine.hash, mine.envelope() == other.envelope()) == (other.hash, False)


def test_the_golden_manifest_has_its_bytes_and_hash() -> None:
    """PIPE-049, PIPE-117"""
    golden = (Path(__file__).resolve().parents[1] / "golden" / "manifest.hex").read_text(encoding="ascii")
    body, digest = golden.split()
    assert manifest("job-1").body().hex() == body
    assert manifest("job-1").body() == bytes.fromhex(body)
    assert sha256(bytes.fromhex(body)).hex() == digest
