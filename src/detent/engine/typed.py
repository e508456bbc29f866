"""Rows whose values are of the kinds their columns promise.

A database is a file that anybody can edit, and SQLite hands out whatever kind of value it finds there: a flipped byte can
turn bytes into a number. Verification and replay read foreign rows, so they look before they touch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final, TypeVar

from detent.errors import StoreCorrupt
from detent.store.api import AnswerRow, BatchRow, CheckpointRow, JobRow, RecordRow, RunRow, TreeHeadRow, WorkRow

_Row = TypeVar("_Row", BatchRow, RecordRow, JobRow, RunRow, TreeHeadRow, CheckpointRow, WorkRow, AnswerRow)

_INT, _TEXT, _BYTES = (int,), (str,), (bytes,)
_INT_OR_NONE, _TEXT_OR_NONE, _BYTES_OR_NONE = (int, type(None)), (str, type(None)), (bytes, type(None))

_KINDS: Final[dict[type, frozenset[tuple[type, ...]]]] = {
    row: frozenset(product(*columns))
    for row, columns in {
        BatchRow: (_INT, _INT, _INT, _BYTES, _BYTES, _BYTES, _BYTES, _BYTES, _INT, _INT, _INT, _INT),
        RecordRow: (
            _INT,
            _INT,
            _INT,
            _TEXT,
            _TEXT_OR_NONE,
            _TEXT_OR_NONE,
            _INT_OR_NONE,
            _BYTES,
            _BYTES_OR_NONE,
        ),
        JobRow: (_INT, _TEXT, _TEXT, _TEXT_OR_NONE, _TEXT, _INT, _INT, _BYTES, _INT, _BYTES, _INT),
        RunRow: (_INT, _TEXT, _TEXT, _TEXT, _TEXT, _INT, _INT_OR_NONE, _BYTES),
        TreeHeadRow: (_INT, _INT, _TEXT),
        CheckpointRow: (_INT, _INT, _BYTES, _BYTES),
        WorkRow: (_TEXT, _BYTES, _TEXT, _TEXT, _INT, _BYTES),
        AnswerRow: (_BYTES, _BYTES, _BYTES, _INT),
    }.items()
}
"""For each row every combination of kinds that it may have."""


def typed(rows: Iterable[_Row]) -> Iterator[_Row]:
    """The rows as they come; raises `StoreCorrupt` at the first one with a value of another kind."""
    for row in rows:
        if tuple(map(type, row)) not in _KINDS[type(row)]:
            place = ", ".join(
                f"{name} {value!r}" for name, value in zip(row._fields, row, strict=True) if name in _PLACE
            )
            raise StoreCorrupt(
                f"a stored {type(row).__name__.removesuffix('Row').lower()} ({place}) holds a value of another kind",
                hint="restore the ledger from a backup",
            )
        yield row


_PLACE: Final = frozenset({"partition", "batch_no", "position", "job_id", "run_id", "size"})
