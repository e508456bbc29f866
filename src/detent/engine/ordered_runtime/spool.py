"""The items of a run, written down before it begins: one JSON text a line, as content of the home.

An input without a length, or one that can be read only once, is thereby as good as a list: a killed run finds its items again,
a chunk's order names them by place and digest, and memory holds eight bytes for each. Equal items give equal bytes, so the
digest of the spool says whether two runs are over the same items.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice
from pathlib import Path
from typing import Final

from detent.canon import digest_text, sha256
from detent.canon.late import dataclass
from detent.errors import InvalidInput, StoreCorrupt
from detent.ordered.seq_ledger import TOTAL_MAX
from detent.store.content import ContentFiles
from detent.store.no_follow import open_no_follow

PIECE_BYTES: Final = 1 << 18
LINES_MAX: Final = 64
"""Lines taken at once; an item may be large, so they are few."""
_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Items:
    """A run's items, in content."""

    digest: bytes
    path: Path
    ends: array[int]
    """Where each line ends."""

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.ends)

    def part(self, first: int, last: int) -> dict[str, object]:
        """How an order names the items ``first`` to ``last``."""
        data, start = self._slice(first, last)
        return {
            "items": digest_text(self.digest),
            "first": first,
            "offset": start,
            "length": len(data),
            "digest": sha256(data).hex(),
        }

    def lines(self, first: int, last: int) -> list[bytes]:
        """The items themselves, each as its JSON text."""
        return self._slice(first, last)[0].split(b"\n")[:-1]

    def _slice(self, first: int, last: int) -> tuple[bytes, int]:
        start = self.ends[first - 1] if first else 0
        length = self.ends[last] - start
        descriptor = open_no_follow(self.path)
        try:
            data = os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)
        if len(data) != length:
            raise StoreCorrupt(f"{self.path} is shorter than it was")
        return data, start


def spool(files: ContentFiles, lines: Iterable[bytes]) -> Items:
    """Keep items, each given as one line of strict JSON without its end; durable when this returns."""
    ends: array[int] = array("Q")
    digest = files.put(_pieces(lines, ends))
    return Items(digest, files.path(digest), ends)


def open_spool(files: ContentFiles, digest: bytes) -> Items:
    """The items of a run that was spooled before; `StoreCorrupt` when they are gone or damaged."""
    file = files.open(digest)
    if file is None:
        raise StoreCorrupt(f"the items {digest_text(digest)} are gone", hint="they were erased; begin a new run")
    ends: array[int] = array("Q")
    place = 0
    with file:
        while piece := file.read(_READ_BYTES):
            found = piece.find(b"\n")
            while found >= 0:
                ends.append(place + found + 1)
                found = piece.find(b"\n", found + 1)
            place += len(piece)
    return Items(digest, files.path(digest), ends)


def _pieces(lines: Iterable[bytes], ends: array[int]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = end = 0
    taken = iter(lines)
    while some := list(islice(taken, LINES_MAX)):
        if len(ends) + len(some) > TOTAL_MAX:
            raise InvalidInput(f"an ordered run has at most {TOTAL_MAX:,} items")
        ends.extend(accumulate([len(line) + 1 for line in some[1:]], initial=end + len(some[0]) + 1))
        size += ends[-1] - end
        end = ends[-1]
        held += (b"\n".join(some), b"\n")
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)
