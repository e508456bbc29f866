"""Records put together by hand are the bytes that the encoder makes, for every value: also for digests it trips over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detent.canon import UINT64_MAX, encode
from detent.kernel import LEGAL, chain_genesis, request_digest, transition_key
from detent.ledger.schema import VERDICTS
from detent.ledger.templates import job_parts, owner_parts, submitted_body, text, transition_body, uint

LOOK_ALIKES = [b"\x01\x55\x12\x02ab" + bytes(26), b"\x01\x71\x00\x00" + bytes(28), b"\xd8\x2a" * 16]

digests = st.one_of(st.binary(min_size=32, max_size=32), st.sampled_from(LOOK_ALIKES))
numbers = st.one_of(
    st.integers(0, 30), st.integers(0, UINT64_MAX), st.sampled_from([23, 24, 255, 256, 65535, 65536, 2**32 - 1, 2**32])
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(numbers)
def test_an_integer_by_hand_is_the_encoders(number: int) -> None:
    """X-047"""
    assert uint(number) == encode(number)


@given(names)
def test_a_text_by_hand_is_the_encoders(value: str) -> None:
    """X-047"""
    assert text(value) == encode(value)


@given(
    names=st.tuples(names, names, names),
    digests=st.tuples(digests, digests, digests, digests, digests),
    numbers=st.tuples(numbers, numbers, numbers, st.integers(0, 1000)),
    move=st.sampled_from(sorted(LEGAL)),
    verdict=st.sampled_from(sorted(VERDICTS)),
    batch=st.one_of(st.none(), st.tuples(digests, st.integers(0, 3), st.integers(2, 3))),
    leased=st.booleans(),
)
def test_a_transition_record_by_hand_is_the_encoders(
    names: tuple[str, str, str],
    digests: tuple[bytes, ...],
    numbers: tuple[int, int, int, int],
    move: tuple[str, str],
    verdict: str,
    batch: tuple[bytes, int, int] | None,
    *,
    leased: bool,
) -> None:
    """PIPE-063, X-035, X-047"""
    tenant_id, job_id, reason = names
    manifest_hash, quota_hash, signer, head, lease = digests
    attempt, seq, tick, partition = numbers
    key = transition_key(tenant_id, job_id, attempt, seq)
    reference = "sha256:" + "0f" * 32
    lease_id = key if move[1] == "RUNNING" else lease if leased else None
    batch_id, index, length = batch or (key, 0, 1)
    expected = {
        "kind": "transition",
        "tenant_id": tenant_id,
        "job_id": job_id,
        "attempt_id": attempt,
        "transition_seq": seq,
        "from_state": move[0],
        "to_state": move[1],
        "evidence_ref": reference,
        "job_manifest_hash": manifest_hash,
        "idempotency_key": key,
        "request_digest": request_digest(*move, reference),
        "lease_id": lease_id,
        "dispatch": move[1] == "RUNNING" and length == 1,
        "reason_code": reason,
        "tick": tick,
        "partition_id": partition,
        "quota_policy_hash": quota_hash,
        "quota_verdict": verdict,
        "batch_id": batch_id,
        "batch_index": index,
        "batch_len": length,
        "prev_chain_hash": head,
        "signer_key_id": signer,
    }
    made = transition_body(
        job_parts(tenant_id, job_id, manifest_hash, quota_hash),
        owner_parts(partition, signer, VERDICTS).verdicts[verdict],
        (*move, length, index),
        attempt,
        seq,
        tick,
        "0f" * 32,
        reason,
        lease_id,
        None if batch is None else batch_id,
        head,
    )
    assert made == (encode(expected), key)


@given(
    st.tuples(names, names, st.one_of(st.none(), names)),
    st.tuples(digests, digests, digests, st.one_of(st.none(), digests)),
    numbers,
    st.integers(0, 999),
)
def test_a_submitted_record_by_hand_is_the_encoders(
    ids: tuple[str, str, str | None], hashes: tuple[bytes, bytes, bytes, bytes | None], tick: int, partition: int
) -> None:
    """X-047, X-050"""
    tenant_id, job_id, run_id = ids
    manifest_hash, quota_hash, signer, decision = hashes
    genesis = chain_genesis(tenant_id, job_id, manifest_hash)
    expected = {
        "kind": "submitted",
        "tenant_id": tenant_id,
        "job_id": job_id,
        "run_id": run_id,
        "job_kind": "task",
        "job_manifest_hash": manifest_hash,
        "quota_policy_hash": quota_hash,
        "chain_hash": genesis,
        "decision_digest": decision,
        "partition_id": partition,
        "tick": tick,
        "signer_key_id": signer,
    }
    parts = job_parts(tenant_id, job_id, manifest_hash, quota_hash)
    owner = owner_parts(partition, signer, VERDICTS)
    assert submitted_body(parts, owner, tick, run_id, "task", manifest_hash, decision) == (encode(expected), genesis)
