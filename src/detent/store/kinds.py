"""Rows whose values are of the kinds their columns promise.

A database is a file that anyone can edit, and SQLite returns any kind of value it finds there: a flipped byte can
turn bytes into a number. So a row is looked at where it is read, and nothing behind the reader meets a value of another kind.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final, TypeVar

from detent.canon.show import show
from detent.errors import StoreCorrupt
from detent.store.api import (
    AnswerRow,
    BatchRow,
    CheckpointRow,
    JobHead,
    JobRow,
    LedgerHead,
    RecordRow,
    RefusalRow,
    RunRow,
    TreeHeadRow,
    WorkRow,
)

_Row = TypeVar(
    "_Row",
    BatchRow,
    RecordRow,
    JobRow,
    RunRow,
    TreeHeadRow,
    CheckpointRow,
    WorkRow,
    AnswerRow,
    RefusalRow,
    LedgerHead,
    JobHead,
)

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
        RefusalRow: (_INT, _INT, _TEXT_OR_NONE, _TEXT, _BYTES),
        LedgerHead: (_INT, _INT, _BYTES, _INT, _INT),
        JobHead: (_TEXT, _INT, _BYTES),
    }.items()
}
"""For each row every combination of kinds that it may have."""


def maker(row: type[_Row]) -> Callable[[tuple[Any, ...]], _Row]:
    """Makes rows of the values that a database hands out; raises `StoreCorrupt` for one with a value of another kind."""
    kinds, make = _KINDS[row], row._make

    def made(values: tuple[Any, ...]) -> _Row:
        if tuple(map(type, values)) not in kinds:
            raise _of_another_kind(row, values)
        return make(values)

    return made


def _of_another_kind(row: type[_Row], values: tuple[Any, ...]) -> StoreCorrupt:
    place = ", ".join(
        f"{name} {show(value)}" for name, value in zip(row._fields, values, strict=True) if name in _PLACE
    )
    return StoreCorrupt(
        f"a stored {row.__name__.removesuffix('Row').lower()} ({place}) holds a value of another kind",
        hint="restore the ledger from a backup",
    )


_PLACE: Final = frozenset({"partition", "batch_no", "position", "job_id", "run_id", "size"})
