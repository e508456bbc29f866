"""The digests that name things, against known vectors and a second CBOR library."""

from __future__ import annotations

import hashlib
from typing import Any

import cbor2
import pytest

from detent.errors import InvalidInput
from detent.kernel import chain_genesis, lease_key, partition_of, request_digest, transition_key, transition_log_hash
from tests.kernel.builders import Scene


def digest(value: object) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def test_transition_keys_have_their_known_answers() -> None:
    """PIPE-063"""
    assert cbor2.dumps(["tenant-a", "job-1", 0, 0]).hex() == "846874656e616e742d61656a6f622d310000"
    first = "1c9381cd6f0c9ce1efc10f14785bde402242199a5941288f8f8352a030e013fd"
    second = "359e2d6cf721b44c3acc74bdaf523e0e13c5150424472dc4bed76700f6c3986d"
    assert transition_key("tenant-a", "job-1", 0, 0).hex() == first
    assert transition_key("tenant-a", "job-1", 0, 1).hex() == second


def test_the_lease_after_one_loss_has_its_known_answer() -> None:
    """PIPE-087"""
    known = "fd5d7e3df9828c29390c673aa333e06846ed405aa792e3ebcda845896294992d"
    assert lease_key("tenant-a", "job-1", 1, 3).hex() == known
    scene = Scene()
    scene.start()
    scene.at(100)  # the lease is lost
    scene.at(110)  # the retry is ready
    (second,) = scene.claim()
    assert second.lease_id.hex() == known


def test_a_lease_is_named_by_the_record_that_grants_it() -> None:
    """PIPE-087, X-036"""
    scene = Scene()
    grant = scene.start()
    (granting,) = scene.bodies()
    assert granting["idempotency_key"] == granting["lease_id"] == grant.lease_id
    scene.at(50)
    assert scene.heartbeat(grant).ok
    scene.finish(grant)
    leaving = scene.bodies()[-1]
    assert leaving["lease_id"] == grant.lease_id != leaving["idempotency_key"]


@pytest.mark.parametrize(
    ("attempt_id", "seq"), [(1.0, 0), (0, 1.0), (True, 0), (0, "0"), (None, 0), (-1, 0), (0, 2**64)]
)
def test_a_key_of_anything_but_integers_is_refused(attempt_id: Any, seq: Any) -> None:
    """PIPE-018"""
    with pytest.raises(InvalidInput):
        transition_key("tenant-a", "job-1", attempt_id, seq)


@pytest.mark.parametrize(("partitions", "expected"), [(7, [2, 6, 5]), (16, [9, 8, 12]), (1, [0, 0, 0])])
def test_partitions_have_their_known_answers(partitions: int, expected: list[int]) -> None:
    """PIPE-061, X-044"""
    assert [partition_of(f"job-{number}", partitions) for number in (1, 2, 3)] == expected


def test_the_partition_of_a_non_ascii_id_is_that_of_its_utf8_bytes() -> None:
    """X-044"""
    expected = int.from_bytes(hashlib.sha256("jöb".encode()).digest(), "big") % 1000
    assert partition_of("jöb", 1000) == expected


def test_there_is_at_least_one_partition() -> None:
    """X-044"""
    with pytest.raises(InvalidInput):
        partition_of("job-1", 0)


def test_a_request_digest_covers_states_and_evidence() -> None:
    """X-035"""
    reference = "sha256:" + "ab" * 32
    assert request_digest("RUNNING", "FAILED", reference) == digest(["RUNNING", "FAILED", reference])
    others = {
        request_digest("RUNNING", "SUCCEEDED", reference),
        request_digest("QUEUED", "FAILED", reference),
        request_digest("RUNNING", "FAILED", reference[:-1] + "c"),
    }
    assert len(others) == 3
    assert request_digest("RUNNING", "FAILED", reference) not in others


def test_a_chain_starts_from_tenant_job_and_manifest() -> None:
    """X-050"""
    assert chain_genesis("tenant-a", "job-1", b"\x07" * 32) == digest(["chain/v1", "tenant-a", "job-1", b"\x07" * 32])


@pytest.mark.parametrize("count", [0, 1, 23, 24, 255, 256, 65_536])
def test_the_log_hash_is_that_of_the_formula_at_every_size(count: int) -> None:
    """PIPE-085, X-050: also where the length of a CBOR list takes more bytes"""
    heads = [(f"job-{number:06d}", number % 7, bytes([number % 256]) * 32) for number in range(count)]
    assert transition_log_hash(count, iter(heads)) == digest(["log/v1", [list(head) for head in heads]])


def test_heads_out_of_order_repeated_or_miscounted_are_refused() -> None:
    """X-050"""
    one, two = ("a", 1, bytes(32)), ("b", 1, bytes(32))
    for count, heads in ((2, [two, one]), (2, [one, one]), (1, [one, two]), (3, [one, two])):
        with pytest.raises(ValueError, match="heads"):
            transition_log_hash(count, heads)
