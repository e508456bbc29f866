"""Decoding without believing: the fast half of strictness.

`canon.decode` is strict by itself: it walks the value, encodes it again and compares. Where the reader checks the type of
every single value anyway and then compares with an encoding it builds itself, the walk says nothing new and costs more
than the rest. A caller of `loose` must do both; a value that came out of it is not yet known to be canonical, and may even
hold floats.
"""

from __future__ import annotations

from typing import Any

from libipld import decode_dag_cbor


def loose(data: bytes) -> Any:
    """The value the bytes decode to, canonical or not; None when they are not a value of DAG-CBOR at all."""
    try:
        return decode_dag_cbor(data)
    except (ValueError, RecursionError):
        return None
