"""The fast readers answer as the kernel's strict parsers do, and records have exactly their fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from detent.canon import decode, encode, sha256
from detent.errors import InvalidInput
from detent.kernel import RECORD_FIELDS, Evidence, KernelConfig, Manifest
from detent.kernel import evidence as ev
from detent.kernel.records import OPTIONAL_FIELDS
from detent.ledger import TrustFault, sign_own_manifests
from detent.ledger.schema import (
    _CHECKS,
    Grounds,
    _read_submitted_slowly,
    read_evidence,
    read_record,
    read_submitted,
    record_fault,
)
from tests.ledger.build import digest_of, key, lively

digests = st.one_of(st.none(), st.binary(min_size=32, max_size=32), st.just(b"\x01\x55\x12\x02ab" + bytes(26)))
evidences = st.builds(
    Evidence,
    st.sampled_from(sorted(ev.KINDS)),
    st.sampled_from(["COMPLETED", "DISPATCHED", "X"]),
    digests,
    st.sampled_from([None, "worker-1", "hlease_idX ", "mdetail_digestX ", "wörker"]),
    digests,
    st.sampled_from([None, "INTERNAL_ERROR"]),
)


def strict(data: bytes) -> Grounds | None:
    try:
        found = Evidence.decode(data)
    except (InvalidInput, TypeError):
        return None
    return Grounds(found.kind, found.reason_code, found.lease_id, found.replica_id, found.category, found.detail_digest)


def fast(data: bytes) -> Grounds | None:
    found = read_evidence(data)
    return None if isinstance(found, TrustFault) else found


@given(evidences)
def test_evidence_is_read_as_the_kernel_reads_it(evidence: Evidence) -> None:
    """X-064"""
    data = evidence.encode()
    assert fast(data) == strict(data)
    assert fast(data) == fast(data), "also when its form is known"


@given(evidences, st.data())
@example(Evidence("result", "COMPLETED", b"\x6ddetail_digest\x58\x20" + bytes(17)), None)
def test_changed_evidence_is_judged_as_the_kernel_judges_it(evidence: Evidence, draw: Any) -> None:
    data = bytearray(evidence.encode())
    if draw is not None:
        for _ in range(draw.draw(st.integers(1, 3))):
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
        cut = draw.draw(st.integers(0, 40))
        data = data[: len(data) - cut] if draw.draw(st.booleans()) else data
    assert fast(bytes(data)) == strict(bytes(data))


def test_every_single_flip_in_evidence_is_judged_as_the_kernel_judges_it() -> None:
    """X-047: forms that were read once are not a way around the strict reading"""
    data = Evidence("result", "COMPLETED", digest_of("lease"), None, digest_of("detail")).encode()
    assert fast(data) is not None
    for place in range(len(data)):
        for bit in range(8):
            changed = data[:place] + bytes((data[place] ^ 1 << bit,)) + data[place + 1 :]
            assert fast(changed) == strict(changed)


def test_two_holes_that_overlap_are_no_form() -> None:
    """The lease ends in what looks like a detail: both cannot be cut out."""
    marker = b"\x6ddetail_digest\x58\x20"
    lease = digest_of("x")[: 32 - len(marker)] + marker
    data = Evidence("result", "COMPLETED", lease).encode()
    assert fast(data) == strict(data)
    broken = data[:-1]
    assert fast(broken) == strict(broken)


def signed(together: int = 1, **changes: Any) -> bytes:
    """A manifest, signed alone or together with some others."""
    fields: dict[str, Any] = {"job_id": "job-1", "payload_digest": digest_of("p"), "priority": 5, "created_tick": 0}
    quota = KernelConfig().quota_policies[0].hash()
    manifest = Manifest("acme", job_kind="task", quota_policy_hash=quota, **(fields | changes))
    return sign_own_manifests([manifest] * together, key("manifest"))[-1].envelope()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pool_pin": "gpu"},
        {"origin": "detent/0123456789abcdef"},
        {"origin": "created_tick"},
        {"origin": "detent/here", "pool_pin": "gpu", "evictable": False},
        {"retry_categories": ("INTERNAL_ERROR", "TIMEOUT")},
        {"retry_categories": ()},
        {"max_retries": 2**64 - 1, "created_tick": 2**63},
        {"payload_digest": b"\x01\x55\x12\x02ab" + bytes(26)},
    ],
)
def test_a_signed_manifest_is_read_whatever_rare_fields_it_has(changes: dict[str, Any]) -> None:
    read = read_submitted(signed(**changes))
    assert not isinstance(read, TrustFault)
    manifest = Manifest.parse(read.body)
    assert isinstance(manifest, Manifest)
    assert read.job_id == manifest.job_id
    shared = [name for name in changes if name not in {"retry_categories", "payload_digest", "created_tick"}]
    assert all(read.fields[name] == getattr(manifest, name) for name in shared)
    assert tuple(read.fields["retry_categories"]) == manifest.retry_categories


manifests = st.builds(
    signed,
    together=st.sampled_from([1, 2, 3, 33, 300]),
    job_id=st.one_of(
        st.text("abü-", min_size=1, max_size=100), st.sampled_from(["created_tick", "lcreated_tick\u0661"])
    ),
    created_tick=st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([23, 24, 255, 256, 65_535, 65_536, 2**32])),
    priority=st.integers(1, 10),
    lease_policy_id=st.sampled_from(["default", "lcreated_tick"]),
    retry_categories=st.sampled_from([(), ("INTERNAL_ERROR",), ("A", "B")]),
)


def same_answer(data: bytes) -> bool:
    """Whether the fast reading says what the slow one says."""
    fast, slow = read_submitted(data), _read_submitted_slowly(data)
    if isinstance(fast, TrustFault) or isinstance(slow, TrustFault):
        return isinstance(fast, TrustFault) and isinstance(slow, TrustFault)
    return fast[:4] == slow[:4] and all(slow.fields[name] == fast.fields[name] for name in SHARED)


SHARED = sorted(set(Manifest.REQUIRED) - {"job_id", "created_tick", "payload_digest"})


@given(manifests, st.data())
def test_a_signed_manifest_is_judged_as_the_kernel_judges_it(envelope: bytes, draw: st.DataObject) -> None:
    """X-046, X-047"""
    assert same_answer(envelope)
    assert not isinstance(read_submitted(envelope), TrustFault)
    data = bytearray(envelope)
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(0, len(data) - 1))
        if draw.draw(st.booleans()):
            data[place] = draw.draw(st.integers(0, 255))
        else:
            del data[place : place + draw.draw(st.integers(1, 30))]
    assert same_answer(bytes(data))


def test_a_tick_or_a_name_with_a_longer_head_than_needed_is_refused() -> None:
    """X-047"""
    envelope = decode(signed())
    body = envelope["body"]
    for before, after in ((b"created_tick\x00", b"created_tick\x18\x00"), (b"job_id\x65job-1", b"job_id\x78\x05job-1")):
        assert before in body
        data = encode(envelope | {"body": body.replace(before, after)})
        assert isinstance(read_submitted(data), TrustFault)
        assert same_answer(data)


@pytest.mark.parametrize("together", [1, 2, 100])
def test_every_single_flip_in_a_signed_manifest_is_refused_or_shows(together: int) -> None:
    """X-046, X-047: whatever is still readable has another body, key or signature"""
    data = signed(together)
    original = read_submitted(data)
    for place in range(len(data)):
        for bit in range(8):
            changed = data[:place] + bytes((data[place] ^ 1 << bit,)) + data[place + 1 :]
            assert read_submitted(changed) != original
            assert same_answer(changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 11),
        ("priority", True),
        ("manifest_version", 2),
        ("max_retries", -1),
        ("tenant_id", ""),
        ("tenant_id", "a\x00b"),
        ("job_id", "x" * 201),
        ("job_kind", "other"),
        ("payload_digest", b"short"),
        ("retry_categories", ["B", "A"]),
        ("retry_categories", None),
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused(name: str, value: object) -> None:
    envelope = decode(signed())
    envelope["body"] = encode(decode(envelope["body"]) | {name: value})
    read = read_submitted(encode(envelope))
    assert isinstance(read, TrustFault)
    assert read.code == "MANIFEST_INVALID"


def test_every_field_of_every_record_kind_has_a_check_and_no_other_has() -> None:
    """X-167: the kinds and their fields are the kernel's"""
    named = frozenset[str]().union(*RECORD_FIELDS.values(), *OPTIONAL_FIELDS.values()) - {"kind"}
    assert set(_CHECKS) == named


def records() -> dict[str, dict[str, Any]]:
    """One honest record of every kind."""
    found: dict[str, dict[str, Any]] = {}
    ledger = lively()
    ledger.start_run("run-2")
    ledger.reuse_run("run-2", "run-1")
    ledger.commit()
    ledger.allow_enrolment()
    ledger.operate()
    ledger.enroll()
    ledger.retire()
    ledger.commit()
    for commit in ledger.commits:
        for body, _ in commit.records:
            fields = decode(body)
            found.setdefault(fields["kind"], fields)
    return found


HONEST = records()


def test_honest_records_of_all_kinds_pass() -> None:
    """X-167"""
    assert set(HONEST) == set(RECORD_FIELDS)
    for fields in HONEST.values():
        assert read_record(encode(fields)) == fields


@pytest.mark.parametrize("kind", sorted(RECORD_FIELDS))
def test_a_record_with_a_field_too_few_too_many_or_of_another_type_is_refused(kind: str) -> None:
    fields = HONEST[kind]
    assert "unknown fields" in str(record_fault(fields | {"more": 1}))
    for name in sorted(fields.keys() - {"kind"}):
        assert f"lacks {name}" in str(record_fault({key: value for key, value in fields.items() if key != name}))
        wrong: list[Any] = [1.5, {}, [[]], "\x00", -1, True if type(fields[name]) is int else 2**65]
        for value in wrong:
            assert record_fault(fields | {name: value}) is not None


def test_a_record_of_a_run_names_its_run() -> None:
    for kind in ("run_started", "step_reused", "run_reused", "run_ended"):
        assert "names no run" in str(record_fault(HONEST[kind] | {"run_id": None}))


@pytest.mark.parametrize("body", [b"", b"\xff", encode(7), encode({}), encode({"kind": "other"}), encode({"kind": 7})])
def test_bytes_that_are_no_record_are_refused(body: bytes) -> None:
    assert isinstance(read_record(body), TrustFault)


def test_a_record_beyond_60_kib_is_refused() -> None:
    body = encode(HONEST["erased"] | {"digests": [sha256(bytes([n % 256])) for n in range(2000)]})
    fault = read_record(body)
    assert isinstance(fault, TrustFault)
    assert fault.code == "RECORD_TOO_LARGE"
