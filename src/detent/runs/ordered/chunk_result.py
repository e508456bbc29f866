"""A chunk's result as the runtime reads it: how each item ended, and the values when their turn comes."""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence
from typing import Any, Final

from detent.canon import DIGEST_BYTES
from detent.canon.late import dataclass
from detent.canon.strict_json import JsonValue
from detent.errors import InvalidInput
from detent.ordered import SeqState

_VALUES: Final = b',"values":['
_SUCCESS: Final = "3"
_OUTCOME: Final = {
    "3": SeqState.TERMINAL_SUCCESS,
    "4": SeqState.TERMINAL_SKIP,
    "5": SeqState.TERMINAL_FAIL,
}


@dataclass(frozen=True, slots=True)
class ChunkResult:
    """The outcome of a chunk. ``errors`` has one entry for each failed item, by its place in the chunk."""

    first: int
    outcomes: tuple[SeqState, ...]
    digests: tuple[bytes | None, ...]
    """Of the values as values; None for an item that has none."""
    errors: dict[int, dict[str, Any]]
    root: bytes

    def code(self, index: int) -> str:
        """Why an item failed."""
        return str(self.errors.get(index, {}).get("code", "UNKNOWN"))


def read_head(data: bytes) -> ChunkResult:
    """Everything but the values. Raises `InvalidInput` for what `chunk.compute_chunk` did not write."""
    # The first occurrence is the right one: inside a JSON text the quotes would be escaped.
    cut = data.find(_VALUES)
    try:
        head: Any = json.loads(data[:cut] + b"}") if cut >= 0 else None
        codes = head["codes"]
        if codes.count(_SUCCESS) == len(codes):
            outcomes = (SeqState.TERMINAL_SUCCESS,) * len(codes)
        else:
            outcomes = tuple(map(_OUTCOME.__getitem__, codes))
        raw = binascii.a2b_base64(head["digests"], strict_mode=True) if head["digests"] else b""
        digests = _each(outcomes, raw)
        return ChunkResult(
            head["first"],
            outcomes,
            digests,
            dict(head["errors"]),
            bytes.fromhex(head["root"]),
        )
    except (TypeError, KeyError, ValueError) as exc:
        raise InvalidInput(f"not the result of a chunk: {data[:80]!r}") from exc


def read_values(data: bytes, result: ChunkResult) -> tuple[Sequence[int], list[JsonValue]]:
    """The seqs of the items that succeeded, in order, and their stored values."""
    values = json.loads(data[data.find(_VALUES) + len(_VALUES) - 1 : -1])
    seqs: Sequence[int] = range(result.first, result.first + len(result.outcomes))
    if result.outcomes.count(SeqState.TERMINAL_SUCCESS) != len(seqs):
        ended = zip(seqs, result.outcomes, strict=True)
        seqs = [seq for seq, outcome in ended if outcome is SeqState.TERMINAL_SUCCESS]
    if len(seqs) != len(values):
        raise InvalidInput(f"the chunk from {result.first} on has {len(values)} values for {len(seqs)} successes")
    return seqs, values


def _each(outcomes: tuple[SeqState, ...], raw: bytes) -> tuple[bytes | None, ...]:
    succeeded = outcomes.count(SeqState.TERMINAL_SUCCESS)
    if len(raw) != succeeded * DIGEST_BYTES:
        raise ValueError("one digest for each success")
    cuts = iter([raw[place : place + DIGEST_BYTES] for place in range(0, len(raw), DIGEST_BYTES)])
    if succeeded == len(outcomes):
        return tuple(cuts)
    return tuple(next(cuts) if outcome is SeqState.TERMINAL_SUCCESS else None for outcome in outcomes)
