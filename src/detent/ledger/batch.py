"""Batch records: one signature for all records of a group commit (X-165, X-166).

A batch record binds the commands of a commit by digest, its records by the root of a small Merkle tree over their bodies,
and the batch before it by hash. It is itself a leaf of the partition's tree: its leaf data are its body and its signature.
A single record is therefore proved by three things: its path in the batch, the batch record, and the batch's path in a
tree whose head was signed or kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Final

from detent.canon import SigningKey, encode_trusted, verify
from detent.canon.crypto import SIGNATURE_BYTES
from detent.canon.late import NamedTuple, dataclass
from detent.canon.merkle import Tree, leaf_hash, root_of, verify_inclusion
from detent.canon.show import a_or_an
from detent.kernel.commands import commands_digest
from detent.ledger.loose import loose
from detent.ledger.note import TreeHead
from detent.ledger.trust import Trust
from detent.ledger.trust_config import POSITION_MAX, TRANSITION, TrustFault

BATCH_LABEL: Final = b"detent/batch/v1\x00"
BATCH_BYTES_MAX: Final = 4 * 1024
KIND: Final = "batch"
FORMAT_VERSION: Final = 1
NO_BATCH: Final = bytes(32)
"""``prev_batch_hash`` of the first batch."""
RECORDS_PER_BATCH_MAX: Final = 262_144
"""More than any turn of an owner makes, unless that many leases run out at one tick."""
COMMANDS_PER_BATCH_MAX: Final = 65_536


class BatchHeader(NamedTuple):
    """What a batch record says, in the order of its definition."""

    origin: str
    partition: int
    epoch: int
    batch_no: int
    prev_batch_hash: bytes
    commands_digest: bytes
    command_count: int
    records_root: bytes
    record_count: int
    first_position: int
    first_tick: int
    last_tick: int
    signer_key_id: bytes

    def body(self) -> bytes:
        """Canonical bytes: what is signed."""
        return encode_trusted({"kind": KIND, "v": FORMAT_VERSION, **self._asdict()})


class SealedBatch(NamedTuple):
    """A batch record ready to be stored."""

    body: bytes
    signature: bytes
    leaf_hash: bytes
    """Leaf of the partition's tree, and ``prev_batch_hash`` of the next batch."""
    records_root: bytes


def seal(  # noqa: PLR0913 - one argument for each thing a batch record binds
    key: SigningKey,
    *,
    origin: str,
    partition: int,
    epoch: int,
    batch_no: int,
    prev_batch_hash: bytes,
    commands: bytes,
    command_count: int,
    records: Sequence[bytes],
    first_position: int,
    first_tick: int,
    last_tick: int,
) -> SealedBatch:
    """Bind a commit's commands (their recorded blob) and records (their bodies, in order) under one signature.

    ``first_tick`` and ``last_tick`` are the kernel's tick after the first and after the last command. This is the hot path
    of every commit: arguments come from the owner itself and are not checked again.
    """
    records_root = root_of([sha256(b"\x00" + body).digest() for body in records])
    body = encode_trusted(
        {
            "kind": KIND,
            "v": FORMAT_VERSION,
            "origin": origin,
            "partition": partition,
            "epoch": epoch,
            "batch_no": batch_no,
            "prev_batch_hash": prev_batch_hash,
            "commands_digest": commands_digest(commands),
            "command_count": command_count,
            "records_root": records_root,
            "record_count": len(records),
            "first_position": first_position,
            "first_tick": first_tick,
            "last_tick": last_tick,
            "signer_key_id": key.key_id,
        }
    )
    signature = key.sign(BATCH_LABEL + body)
    return SealedBatch(body, signature, batch_leaf(body, signature), records_root)


def batch_leaf(body: bytes, signature: bytes) -> bytes:
    """Hash of a batch's leaf in the partition's tree."""
    return leaf_hash(encode_trusted([body, signature]))


def tree_origin(origin: str, partition: int) -> str:
    """The origin line, and key name, of a partition's tree heads."""
    return f"{origin}/p{partition}"


def partition_of_origin(origin: str) -> int | None:
    """The partition whose tree heads carry this origin line; None when it is the line of none."""
    _, found, number = origin.rpartition("/p")
    return int(number) if found and number.isascii() and number.isdecimal() and len(number) < 20 else None


def parse_batch(body: bytes) -> BatchHeader | TrustFault:
    """Read a batch record's body; refuse everything that `seal` would not have written."""
    fields = loose(body) if len(body) <= BATCH_BYTES_MAX else None
    if type(fields) is not dict or len(fields) != _FIELD_COUNT:
        return TrustFault("BATCH_MALFORMED", "the batch record is not a map of exactly the fields of a batch record")
    try:
        kind, version, *values = _values(fields)
    except KeyError as exc:
        return TrustFault("BATCH_MALFORMED", f"the batch record lacks {exc}")
    header = BatchHeader._make(values)
    if fault := _header_fault(header, kind, version):
        return TrustFault("BATCH_MALFORMED", f"the batch record's {fault}")
    # Every value has been looked at, so equal bytes mean that these are the canonical ones.
    if encode_trusted(fields) != body:
        return TrustFault("BATCH_MALFORMED", "the batch record is not the canonical encoding of what it says")
    return header


def open_batch(body: bytes, signature: bytes, trust: Trust) -> BatchHeader | TrustFault:
    """The header of a batch record, once its signer, scope, range and signature have been checked."""
    header = parse_batch(body)
    if isinstance(header, TrustFault):
        return header
    public_key = signer_of(header, trust)
    if isinstance(public_key, TrustFault):
        return public_key
    if not verify(public_key, BATCH_LABEL + body, signature):
        return TrustFault("BATCH_SIGNATURE_INVALID", "the batch record's signature does not verify")
    return header


def signer_of(header: BatchHeader, trust: Trust) -> bytes | TrustFault:
    """The public key that may have signed this batch, or why the key it names may not."""
    if header.origin != (origin := trust.origin_of_batch(header.batch_no)):
        return TrustFault("BATCH_ORIGIN_WRONG", f"the batch is of {header.origin!r}, not of {origin!r}")
    return trust.find(header.signer_key_id, TRANSITION, header.batch_no, partition=header.partition)


@dataclass(frozen=True, slots=True)
class RecordProof:
    """All it takes to check one record alone, beside trust (and a tree head, for the second path)."""

    body: bytes
    """The batch record's body."""
    signature: bytes
    index: int
    """Place of the record in its batch."""
    path: tuple[bytes, ...]
    tree_path: tuple[bytes, ...] | None = None
    """Path of the batch in the tree of a head, where one was asked for."""


def record_proof(
    sealed: SealedBatch, records: Sequence[bytes], index: int, tree_path: Sequence[bytes] | None = None
) -> RecordProof:
    """The proof of record ``index`` of a batch, from the bodies of all its records."""
    path = Tree([leaf_hash(body) for body in records]).inclusion_path(index)
    return RecordProof(
        sealed.body, sealed.signature, index, tuple(path), None if tree_path is None else tuple(tree_path)
    )


def verify_record_proof(
    record: bytes, proof: RecordProof, trust: Trust, head: TreeHead | None = None
) -> BatchHeader | TrustFault:
    """Check one record by its proof: signer and signature of the batch, place in the batch and, given a head, in the tree.

    The head must have been verified before. A proof without a tree path says nothing about a head and fails if one is
    given.
    """
    header = open_batch(proof.body, proof.signature, trust)
    if isinstance(header, TrustFault):
        return header
    if not verify_inclusion(leaf_hash(record), proof.index, header.record_count, proof.path, header.records_root):
        return TrustFault("RECORD_NOT_INCLUDED", f"the path does not lead from the record to batch {header.batch_no}")
    if head is not None:
        origin = trust.origin_of_head(head.size)
        fault = inclusion_fault(header, origin, batch_leaf(proof.body, proof.signature), proof.tree_path, head)
        if fault is not None:
            return fault
    return header


def inclusion_fault(
    header: BatchHeader, origin: str, leaf: bytes, tree_path: Sequence[bytes] | None, head: TreeHead
) -> TrustFault | None:
    """Say that a batch is not shown to be in the tree of a head of this origin, or nothing."""
    if head.origin != tree_origin(origin, header.partition):
        return TrustFault("HEAD_INVALID", f"the tree head is of {head.origin!r}, not of the batch's partition")
    if tree_path is None or not verify_inclusion(leaf, header.batch_no, head.size, tree_path, head.root):
        return TrustFault(
            "BATCH_NOT_INCLUDED", f"the path does not lead from batch {header.batch_no} to the head of size {head.size}"
        )
    return None


_FIELD_COUNT: Final = 2 + len(BatchHeader._fields)
_values: Final = itemgetter("kind", "v", *BatchHeader._fields)
_TYPES: Final = (str, int, int, int, bytes, bytes, int, bytes, int, int, int, int, bytes)
_DIGESTS: Final = ("prev_batch_hash", "commands_digest", "records_root", "signer_key_id")
_LARGEST: Final = {
    "partition": POSITION_MAX,
    "batch_no": POSITION_MAX,
    "command_count": COMMANDS_PER_BATCH_MAX,
    "record_count": RECORDS_PER_BATCH_MAX,
    "first_position": POSITION_MAX,
}


def _header_fault(header: BatchHeader, kind: object, version: object) -> str | None:
    """Say what is wrong with a header's values, or nothing; their types first, all at once."""
    if kind != KIND or type(version) is not int or version != FORMAT_VERSION:
        return f"kind and version are not {KIND} and {FORMAT_VERSION}"
    types = tuple(map(type, header))
    if types != _TYPES:
        wrong = next(index for index, (one, other) in enumerate(zip(types, _TYPES, strict=True)) if one is not other)
        return f"{header._fields[wrong]} is {a_or_an(types[wrong])}"
    _, partition, epoch, batch_no, prev, commands, command_count, root, count, position, first, last, signer = header
    if not len(prev) == len(commands) == len(root) == len(signer) == 32:
        return f"digests ({', '.join(_DIGESTS)}) have not all 32 bytes"
    if min(partition, epoch, batch_no, command_count, count, position, first) < 0:
        return "numbers are not all positive"
    if (
        command_count > COMMANDS_PER_BATCH_MAX
        or count > RECORDS_PER_BATCH_MAX
        or max(partition, batch_no, position) > POSITION_MAX
    ):
        return f"numbers are beyond {_LARGEST}"
    return "first_tick comes after its last_tick" if first > last else None


def is_signature(value: object) -> bool:
    """Whether a value has the shape of an Ed25519 signature."""
    return type(value) is bytes and len(value) == SIGNATURE_BYTES
