"""Batch records: what they bind, who may sign them, and one record proved alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import encode, sha256
from detent.canon.merkle import Tree, leaf_hash
from detent.kernel import commands_digest
from detent.ledger import (
    NO_BATCH,
    BatchHeader,
    RecordProof,
    SealedBatch,
    TreeHead,
    Trust,
    TrustFault,
    batch_leaf,
    open_batch,
    parse_batch,
    record_proof,
    root_of,
    seal,
    tree_origin,
    verify_record_proof,
)
from tests.ledger.build import ORIGIN, Builder, edit, key

RECORDS = [b"one", b"two", b"three", b"four", b"five"]


def sealed(signer: str = "transition", **changes: Any) -> SealedBatch:
    values: dict[str, Any] = {
        "origin": ORIGIN,
        "partition": 0,
        "epoch": 1,
        "batch_no": 4,
        "prev_batch_hash": sha256(b"before"),
        "commands": b"\x80",
        "command_count": 0,
        "records": RECORDS,
        "first_position": 10,
        "first_tick": 7,
        "last_tick": 9,
    }
    return seal(key(signer), **(values | changes))


def trust() -> Trust:
    return Builder().trust()


def fault(answer: BatchHeader | TrustFault) -> str:
    return answer.code if isinstance(answer, TrustFault) else "believed"


def test_a_batch_binds_commands_records_and_the_batch_before() -> None:
    """X-165"""
    batch = sealed()
    header = parse_batch(batch.body)
    assert isinstance(header, BatchHeader)
    assert header.prev_batch_hash == sha256(b"before")
    assert header.commands_digest == commands_digest(b"\x80") == sha256(b"detent/commands/v1\x00\x80")
    assert header.records_root == root_of([leaf_hash(body) for body in RECORDS]) == batch.records_root
    assert (header.record_count, header.first_position, header.first_tick, header.last_tick) == (5, 10, 7, 9)
    assert header.signer_key_id == key("transition").key_id
    assert header.body() == batch.body


def test_the_leaf_of_a_batch_covers_body_and_signature() -> None:
    batch = sealed()
    assert batch.leaf_hash == leaf_hash(encode([batch.body, batch.signature]))
    assert batch.leaf_hash != batch_leaf(batch.body, bytes(64))


def test_sealing_twice_gives_the_same_bytes() -> None:
    """X-046"""
    assert sealed() == sealed()


def test_the_signature_stands_behind_a_label() -> None:
    batch = sealed()
    assert batch.signature == key("transition").sign(b"detent/batch/v1\x00" + batch.body)


def test_a_batch_opens_for_its_owner_only() -> None:
    """X-046: role `transition`"""
    batch = sealed()
    assert isinstance(open_batch(batch.body, batch.signature, trust()), BatchHeader)
    for signer, code in (("manifest", "KEY_WRONG_ROLE"), ("stranger", "KEY_UNKNOWN")):
        other = sealed(signer)
        assert fault(open_batch(other.body, other.signature, trust())) == code


def test_a_batch_of_another_ledger_or_with_another_signature_does_not_open() -> None:
    elsewhere = sealed(origin="detent/elsewhere")
    assert fault(open_batch(elsewhere.body, elsewhere.signature, trust())) == "BATCH_ORIGIN_WRONG"
    batch = sealed()
    assert fault(open_batch(batch.body, bytes(64), trust())) == "BATCH_SIGNATURE_INVALID"
    bare = key("transition").sign(batch.body)
    assert fault(open_batch(batch.body, bare, trust())) == "BATCH_SIGNATURE_INVALID"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "batches"},
        {"v": 2},
        {"v": True},
        {"origin": b"detent"},
        {"partition": -1},
        {"partition": 2**63},
        {"epoch": -1},
        {"epoch": True},
        {"batch_no": 2**63},
        {"batch_no": None},
        {"prev_batch_hash": b"short"},
        {"commands_digest": bytes(33)},
        {"command_count": 262_145},
        {"records_root": "sha256:"},
        {"record_count": 262_145},
        {"record_count": -1},
        {"first_position": 2**63},
        {"first_tick": 10},
        {"first_tick": -1},
        {"last_tick": 6},
        {"signer_key_id": b""},
        {"more": 1},
    ],
)
def test_a_malformed_batch_record_is_refused(changes: dict[str, Any]) -> None:
    fields: dict[str, Any] = {"more": None} if "more" in changes else {}
    body = sealed().body if not fields else encode({**_fields(), "more": None})
    assert fault(parse_batch(edit(body, **changes))) == "BATCH_MALFORMED"


def test_a_batch_record_with_a_field_missing_or_too_long_is_refused() -> None:
    fields = _fields()
    del fields["epoch"]
    assert fault(parse_batch(encode(fields))) == "BATCH_MALFORMED"
    assert fault(parse_batch(edit(sealed().body, origin="x" * 5_000))) == "BATCH_MALFORMED"


@pytest.mark.parametrize("body", [b"", b"\xa0", b"\xff", encode([]), encode("batch")])
def test_bytes_that_are_no_batch_record_are_refused(body: bytes) -> None:
    assert fault(parse_batch(body)) == "BATCH_MALFORMED"


def test_another_encoding_of_the_same_batch_record_is_refused() -> None:
    """X-047"""
    body = sealed().body
    longer = body.replace(b"\x65epoch\x01", b"\x65epoch\x18\x01")
    assert longer != body
    assert fault(parse_batch(longer)) == "BATCH_MALFORMED"


def test_a_digest_that_looks_like_a_content_id_is_read_like_any_other() -> None:
    """docs/decisions/0003: the fast encoder would write it as a tag"""
    look_alike = b"\x01\x55\x12\x02ab" + bytes(26)
    batch = sealed(prev_batch_hash=look_alike)
    header = parse_batch(batch.body)
    assert isinstance(header, BatchHeader)
    assert header.prev_batch_hash == look_alike
    assert isinstance(open_batch(batch.body, batch.signature, trust()), BatchHeader)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.data())
def test_one_record_is_verified_alone_with_its_path_and_the_batch_record(
    records: list[bytes], data: st.DataObject
) -> None:
    """X-166"""
    batch = sealed(records=records)
    index = data.draw(st.integers(0, len(records) - 1))
    proof = record_proof(batch, records, index)
    assert isinstance(verify_record_proof(records[index], proof, TRUST), BatchHeader)
    assert fault(verify_record_proof(records[index] + b"x", proof, TRUST)) == "RECORD_NOT_INCLUDED"


def test_a_proof_of_another_place_or_with_a_wrong_path_proves_nothing() -> None:
    proof = record_proof(sealed(), RECORDS, 2)
    wrong = [
        RecordProof(proof.body, proof.signature, 3, proof.path),
        RecordProof(proof.body, proof.signature, -1, proof.path),
        RecordProof(proof.body, proof.signature, 2**63, proof.path),
        RecordProof(proof.body, proof.signature, 2, proof.path[:-1]),
        RecordProof(proof.body, proof.signature, 2, (*proof.path, bytes(32))),
        RecordProof(proof.body, proof.signature, 2, ()),
        RecordProof(proof.body, proof.signature, 2, (b"short", *proof.path[1:])),
    ]
    for other in wrong:
        assert fault(verify_record_proof(RECORDS[2], other, trust())) == "RECORD_NOT_INCLUDED"
    forged = RecordProof(proof.body, bytes(64), 2, proof.path)
    assert fault(verify_record_proof(RECORDS[2], forged, trust())) == "BATCH_SIGNATURE_INVALID"


def test_a_record_is_proved_to_be_under_a_tree_head() -> None:
    """X-166"""
    batches: list[SealedBatch] = []
    for number in range(6):
        batches.append(sealed(batch_no=number, prev_batch_hash=batches[-1].leaf_hash if batches else NO_BATCH))
    tree = Tree([batch.leaf_hash for batch in batches])
    head = TreeHead(tree_origin(ORIGIN, 0), 6, tree.root())
    proof = record_proof(batches[3], RECORDS, 1, tree.inclusion_path(3))
    assert isinstance(verify_record_proof(RECORDS[1], proof, trust(), head), BatchHeader)
    other = TreeHead(tree_origin(ORIGIN, 1), 6, tree.root())
    assert fault(verify_record_proof(RECORDS[1], proof, trust(), other)) == "HEAD_INVALID"
    short = record_proof(batches[3], RECORDS, 1)
    assert fault(verify_record_proof(RECORDS[1], short, trust(), head)) == "BATCH_NOT_INCLUDED"
    moved = record_proof(batches[2], RECORDS, 1, tree.inclusion_path(3))
    assert fault(verify_record_proof(RECORDS[1], moved, trust(), head)) == "BATCH_NOT_INCLUDED"


def _fields() -> dict[str, Any]:
    from detent.canon import decode

    fields: dict[str, Any] = decode(sealed().body)
    return fields


TRUST = Builder().trust()
