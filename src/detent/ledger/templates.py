"""Canonical bytes of job records, put together by hand: the walk's inner loop.

A record's map has a fixed set of keys, and canonical CBOR fixes their order, so its encoding is a fixed text with holes.
Filling the holes costs half of what building a map and encoding it costs, and never meets the encoder's trouble with
digests that look like content ids. That the two agree for every value is what `tests/ledger/test_templates.py` is for.

Pieces that come back are kept: those of a job (its id, tenant, manifest, quota) with the job, those of an owner with the
partition, those of a reason or a move in small caches.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import Final

from detent.canon.late import NamedTuple

_SMALL: Final = tuple(bytes((number,)) for number in range(24))
_NULL: Final = b"\xf6"


def uint(number: int) -> bytes:
    """An unsigned integer of at most 64 bits."""
    if number < 24:
        return _SMALL[number]
    if number < 0x1_0000:
        return b"\x18" + number.to_bytes(1, "big") if number < 0x100 else b"\x19" + number.to_bytes(2, "big")
    return b"\x1a" + number.to_bytes(4, "big") if number < 0x1_0000_0000 else b"\x1b" + number.to_bytes(8, "big")


def text(value: str) -> bytes:
    """A text."""
    data = value.encode()
    size = len(data)
    return (bytes((0x60 | size,)) if size < 24 else b"\x78" + bytes((size,)) if size < 256 else _long(size)) + data


def _long(size: int) -> bytes:
    head = uint(size)
    return bytes((head[0] | 0x60,)) + head[1:]


_known_text = lru_cache(maxsize=4096)(text)
"""For texts that come back: tenants, kinds, runs."""


class JobParts(NamedTuple):
    """The pieces of a job's records that never change."""

    key: bytes
    job: bytes
    tenant: bytes
    tail: bytes


class OwnerParts(NamedTuple):
    """The pieces of a partition's records that stay the same under one owner."""

    verdicts: dict[str, bytes]
    submitted: bytes


def job_parts(tenant_id: str, job_id: str, manifest_hash: bytes, quota_policy_hash: bytes) -> JobParts:
    """Make a job's pieces."""
    tenant, job = _known_text(tenant_id), text(job_id)
    return JobParts(
        b"\x84" + tenant + job,
        b"\x66job_id" + job,
        b"\x69tenant_id" + tenant,
        b"\x71job_manifest_hash\x58\x20" + manifest_hash + b"\x71quota_policy_hash\x58\x20" + quota_policy_hash,
    )


def owner_parts(partition: int, signer: bytes, verdicts: frozenset[str]) -> OwnerParts:
    """Make an owner's pieces, one of them for each quota verdict."""
    place = b"\x6cpartition_id" + uint(partition)
    name = b"\x6dsigner_key_id\x58\x20" + signer
    return OwnerParts(
        {
            verdict: place + b"\x6dquota_verdict" + text(verdict) + name + b"\x6erequest_digest\x58\x20"
            for verdict in verdicts
        },
        place + name,
    )


def submitted_body(
    parts: JobParts,
    owner: OwnerParts,
    tick: int,
    run_id: str | None,
    job_kind: str,
    manifest_hash: bytes,
    decision_digest: bytes | None,
) -> tuple[bytes, bytes]:
    """The one right encoding of a ``submitted`` record, and the chain's genesis in it."""
    genesis = sha256(b"\x84\x68chain/v1" + parts.key[1:] + b"\x58\x20" + manifest_hash).digest()
    body = b"".join(
        (
            b"\xac\x64kind\x69submitted\x64tick",
            uint(tick),
            parts.job,
            b"\x66run_id",
            _NULL if run_id is None else _known_text(run_id),
            b"\x68job_kind",
            _known_text(job_kind),
            parts.tenant,
            b"\x6achain_hash\x58\x20",
            genesis,
            owner.submitted,
            b"\x6fdecision_digest",
            _NULL if decision_digest is None else b"\x58\x20" + decision_digest,
            parts.tail,
        )
    )
    return body, genesis


def transition_body(  # noqa: PLR0913, PLR0917 - one argument for each hole; naming them in the call costs more than the hashing
    parts: JobParts,
    owner_verdict: bytes,
    move: tuple[str, str, int, int],
    attempt_id: int,
    transition_seq: int,
    tick: int,
    evidence_hex: str,
    reason_code: str,
    lease_id: bytes | None,
    batch_id: bytes | None,
    head: bytes,
) -> tuple[bytes, bytes]:
    """The one right encoding of a transition record, and the key in it.

    ``move`` is (from, to, length and index of the batch). The key is used for a ``batch_id`` of None, and for the lease of
    a record that grants one.
    """
    to_part, from_part, request = _move(move)
    attempt = _SMALL[attempt_id] if attempt_id < 24 else uint(attempt_id)
    key = sha256(
        parts.key + attempt + (_SMALL[transition_seq] if transition_seq < 24 else uint(transition_seq))
    ).digest()
    reference = b"sha256:" + evidence_hex.encode()
    if move[1] == "RUNNING":
        lease_id = key
    body = b"".join(
        (
            b"\xb7\x64kind\x6atransition\x64tick",
            uint(tick),
            parts.job,
            b"\x68batch_id\x58\x20",
            batch_id or key,
            to_part[0] if lease_id is None else to_part[1],
            lease_id or b"",
            to_part[2],
            parts.tenant,
            b"\x6aattempt_id",
            attempt,
            from_part,
            _reason(reason_code),
            reference,
            owner_verdict,
            sha256(request + reference).digest(),
            _seq(transition_seq),
            key,
            b"\x6fprev_chain_hash\x58\x20",
            head,
            parts.tail,
        )
    )
    return body, key


@lru_cache(maxsize=256)
def _move(move: tuple[str, str, int, int]) -> tuple[tuple[bytes, bytes, bytes], bytes, bytes]:
    """Pieces of a move: dispatch and lease (without and with one), target; source; the request digest's beginning."""
    source, target, length, index = move
    dispatch = b"\x68dispatch" + (b"\xf5" if target == "RUNNING" and length == 1 else b"\xf4") + b"\x68lease_id"
    to_state = b"\x68to_state" + text(target) + b"\x69batch_len" + uint(length)
    from_part = b"\x6afrom_state" + text(source) + b"\x6bbatch_index" + uint(index)
    request = b"\x83" + text(source) + text(target) + b"\x78\x47"
    return (dispatch + _NULL, dispatch + b"\x58\x20", to_state), from_part, request


@lru_cache(maxsize=1024)
def _seq(transition_seq: int) -> bytes:
    return b"\x6etransition_seq" + uint(transition_seq) + b"\x6fidempotency_key\x58\x20"


@lru_cache(maxsize=1024)
def _reason(reason_code: str) -> bytes:
    return b"\x6breason_code" + text(reason_code) + b"\x6cevidence_ref\x78\x47"
