"""An ordered map that does not grow in memory: what `verify` remembers of a long ledger (X-168).

The newest entries are a dictionary; when there are too many, all of them go into a temporary database in one sorted sweep.
Nearly every new job is looked for before it is put, and is not there; a filter of two bits for each spilled key answers
that without a look into the file. The file is a cache only: it is not synced, not journalled, and gone when the map is closed. Most of what is put here is
never asked for again before the end, where everything is read once in order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from heapq import merge
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import apsw

from detent.errors import StoreUnavailable
from detent.store.queries import parse_queries

HOT_MAX: Final = 50_000
"""Entries held in memory before they are spilled; some 15 MB."""
PAGE_ROWS: Final = 1_000
_CACHE_KIB: Final = 16 * 1024
_FILTER_MASK: Final = 2**24 - 1
"""2 MiB of bits: of a million keys one in seventy is looked for in vain."""


class SpilledHeads:
    """A `Heads` (see `detent.ledger`) whose memory is bounded. Use it as a context manager, from one thread."""

    def __init__(self, *, hot_max: int = HOT_MAX, folder: Path | None = None) -> None:
        self._hot: dict[bytes, bytes | None] = {}
        """None stands for a key that has been deleted since the last spill."""
        self._hot_max = hot_max
        self._folder = folder
        self._filter = bytearray()
        """Two bits for each key in the file; a key whose bits are not both set is not there."""
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._database: apsw.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget everything and remove the file."""
        self._hot.clear()
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        if key in self._hot:
            return self._hot[key]
        if self._database is None or not self._may_hold(key):
            return None
        rows = self._rows("get", key)
        return rows[0][0] if rows else None

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        self._hot[key] = value
        if len(self._hot) > self._hot_max:
            self._spill()

    def delete(self, key: bytes) -> None:
        """Forget a key, there or not."""
        if self._database is None:
            self._hot.pop(key, None)
        else:
            self._hot[key] = None

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries whose key starts so, in order; those in memory and those in the file merged."""
        hot = sorted(key for key in self._hot if key.startswith(prefix))
        if self._database is None:
            yield from ((key, value) for key in hot if (value := self._hot[key]) is not None)
            return
        ours = ((key, self._hot[key]) for key in hot)
        stored = ((key, value) for key, value in self._stored(prefix) if key not in self._hot)
        for key, value in merge(ours, stored, key=lambda entry: entry[0]):
            if value is not None:
                yield key, value

    def __len__(self) -> int:
        if self._database is None:
            return len(self._hot)
        self._spill()
        return int(self._rows("count")[0][0])

    def _stored(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The file's part of a range, in pages: no statement stays open while the caller does something else."""
        after, end = prefix, _after(prefix)
        yield from self._rows("first", prefix)
        while True:
            page = self._rows("range", after, end, PAGE_ROWS)
            yield from page
            if len(page) < PAGE_ROWS:
                return
            after = page[-1][0]

    def _rows(self, name: str, *values: bytes | int) -> list[Any]:
        """The rows a statement gives."""
        if self._database is None:
            return []
        try:
            return self._database.execute(_sql()[name], values).fetchall()
        except apsw.Error as exc:
            raise _unavailable(exc) from exc

    def _spill(self) -> None:
        """Move everything in memory to the file, in the order of the keys."""
        try:
            database = self._database or self._open()
            puts = sorted((key, value) for key, value in self._hot.items() if value is not None)
            database.execute(_sql()["begin"])
            database.executemany(_sql()["delete"], [(key,) for key, value in self._hot.items() if value is None])
            database.executemany(_sql()["put"], puts)
            database.execute(_sql()["commit"])
            for key, _ in puts:
                self._remember(key)
        except (apsw.Error, OSError) as exc:
            raise _unavailable(exc) from exc
        self._hot.clear()

    def _may_hold(self, key: bytes) -> bool:
        bits, number = self._filter, hash(key)
        low, high = number & _FILTER_MASK, number >> 32 & _FILTER_MASK
        return bool(bits[low >> 3] >> (low & 7) & 1 and bits[high >> 3] >> (high & 7) & 1)

    def _remember(self, key: bytes) -> None:
        number = hash(key)
        for place in (number & _FILTER_MASK, number >> 32 & _FILTER_MASK):
            self._filter[place >> 3] |= 1 << (place & 7)

    def _open(self) -> apsw.Connection:
        self._filter = bytearray((_FILTER_MASK + 1) >> 3)
        self._directory = tempfile.TemporaryDirectory(prefix="detent-verify-", dir=self._folder)
        database = apsw.Connection(str(Path(self._directory.name) / "heads.db"))
        for setting in (
            "journal_mode=OFF",
            "synchronous=OFF",
            "locking_mode=EXCLUSIVE",
            "temp_store=MEMORY",
            f"cache_size=-{_CACHE_KIB}",
        ):
            database.pragma(*setting.split("="))
        database.execute(_sql()["create"])
        self._database = database
        return database


@cache
def _sql() -> dict[str, str]:
    return dict(parse_queries(files("detent.store").joinpath("spill.sql").read_text(encoding="utf-8")))


def _after(prefix: bytes) -> bytes:
    """A key behind every key that starts with a prefix."""
    return prefix + b"\xff" * 1024


def _unavailable(exc: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"the temporary file of the verification cannot be used: {exc}",
        hint="make room in the folder for temporary files, or set TMPDIR to another one",
    )
