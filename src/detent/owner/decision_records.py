"""The decision records of one commit as one piece of bytes (X-181).

A record names the decision behind it by digest, in its own body or in its evidence. The decisions themselves are much alike and
are read rarely, so a commit keeps all of them together, packed, under its batch: the batch of a record leads to the piece, and
the digest to the one decision in it. Nothing else has to be believed about the piece. A decision that was changed has another
digest, so it is missing where a record names it, and it is one that no record of its batch names.

Ledgers from before kept each decision as content of its own; `find_decision` looks there where a batch has no piece.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final

from detent.canon import NotCanonical, decode, digest_text, encode_trusted, sha256
from detent.errors import StoreCorrupt
from detent.store.api import DecisionsRow, RecordRow, StoreReader

PACKED_BYTES_MIN: Final = 512
"""Fewer bytes are kept as they are: packing them takes longer than writing them."""
UNPACKED_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than any commit decides. A piece that says otherwise was not written here, and must not fill the memory."""
_LEVEL: Final = 1
_ZLIB: Final = 0x78
"""The first byte of packed bytes; a list of decisions in CBOR begins with another."""


def write_decisions(decisions: Sequence[bytes]) -> bytes | None:
    """Decisions in one piece, in their order; None where there are none."""
    if not decisions:
        return None
    plain = encode_trusted(list(decisions))
    return plain if len(plain) < PACKED_BYTES_MIN else zlib.compress(plain, _LEVEL)


def read_decisions(row: DecisionsRow) -> list[bytes]:
    """The decisions of a batch. Raises `StoreCorrupt` for a piece that `write_decisions` did not write."""
    body = row.body
    try:
        if body[:1] == bytes((_ZLIB,)):
            unpacking = zlib.decompressobj()
            body = unpacking.decompress(body, UNPACKED_BYTES_MAX)
            if not unpacking.eof or unpacking.unused_data:
                raise _unreadable(row)
        decisions = decode(body, bytes_max=UNPACKED_BYTES_MAX)
    except (zlib.error, NotCanonical) as exc:
        raise _unreadable(row) from exc
    if not isinstance(decisions, list) or not all(type(decision) is bytes for decision in decisions):
        raise _unreadable(row)
    return decisions


def find_decision(reader: StoreReader, record: RecordRow, digest: bytes) -> bytes | None:
    """The decision that a record names; None where it was erased or never stored here.

    Raises `StoreCorrupt` where it must be and is not: it was changed, or the piece of another batch took its place.
    """
    row = next(reader.decisions(record.partition, record.batch_no, record.batch_no + 1), None)
    if row is None:
        return reader.content(digest)
    for decision in read_decisions(row):
        if sha256(decision) == digest:
            return decision
    raise _damaged(row, f"do not hold {digest_text(digest)}, which record {record.position} names")


def _unreadable(row: DecisionsRow) -> StoreCorrupt:
    return _damaged(row, "cannot be read")


def _damaged(row: DecisionsRow, how: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the decisions of batch {row.batch_no} of partition {row.partition} {how}",
        hint="run `detent verify`, then restore the ledger from a backup",
        details={"partition": row.partition, "batch_no": row.batch_no},
    )
