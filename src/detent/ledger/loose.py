"""Reading records by their bytes, before anything is believed.

Decoding without believing: the fast half of strictness.

`canon.decode` is strict by itself: it walks the value, encodes it again and compares. Where the reader checks the type of
every single value anyway and then compares with an encoding it builds itself, the walk says nothing new and costs more
than the rest. A caller of `loose` must do both; a value that came out of it is not yet known to be canonical, and may even
hold floats.

Which digests a record names: found by the bytes, for every kind of record.

A 32-byte string begins alike wherever it is in CBOR, also inside a manifest that lies in its envelope as bytes. What is
found this way may be more than content (keys, hashes, leases), which is harmless for the one question asked of it: has
anything named this digest again since it was erased?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from libipld import decode_dag_cbor

from detent.canon.late import pattern


def loose(data: bytes) -> Any:
    """The value the bytes decode to, canonical or not; None when they are not a value of DAG-CBOR at all."""
    try:
        return decode_dag_cbor(data)
    except (ValueError, RecursionError):
        return None


_MARK: Final = b"\x58\x20"
"""How a 32-byte string begins in CBOR."""


def named_digests(data: bytes) -> Iterator[bytes]:
    """Everything in a record's body or evidence that could be a digest."""
    place = data.find(_MARK)
    while place >= 0:
        begin = place + len(_MARK)
        yield data[begin : begin + 32]
        place = data.find(_MARK, place + 1)


def written_digests(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Every digest written in text as ``sha256:`` and 64 digits, also across the pieces that the text comes in."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        for match in _WRITTEN.finditer(text):
            yield bytes.fromhex(match[1].decode())
        rest = text[-(_WRITTEN_BYTES - 1) :]


_WRITTEN: Final = pattern(rb"sha256:([0-9a-f]{64})")
_WRITTEN_BYTES: Final = len("sha256:") + 64
