"""The items of an ordered run, fixed before it begins: one JSON text a line, as content of the home.

They come from values, from files found by patterns (numbered by the bytes of their names, each with the digest it had when it was
found), or from the rows of a JSON Lines file, where a bad line is refused by its number.
"""

from __future__ import annotations

import glob
import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Final

from detent.canon import digest_text, json_decode, json_encode_trusted, sha256
from detent.canon.late import dataclass
from detent.canon.strict_json import NotStrictJson
from detent.errors import InvalidInput, StoreCorrupt
from detent.jobs.values import escaped
from detent.ordered import discover
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


def found_files(patterns: Sequence[str], base: Path) -> list[bytes]:
    """The regular files that any of the patterns matches, relative to ``base``, in the order of their names' bytes."""
    names: list[bytes] = []
    for pattern in patterns:
        raw = os.fsencode(pattern)
        names += glob.iglob(raw, root_dir=os.fsencode(base), recursive=True)  # noqa: PTH207 - bytes
    root = os.fsencode(base)
    return list(discover(names, lambda name: os.path.isfile(os.path.join(root, name))).names)  # noqa: PTH113, PTH118


def matched_files(patterns: Sequence[str], base: Path) -> list[bytes]:
    """The same; a pattern that matches no file is a mistake and raises `InvalidInput`."""
    for pattern in patterns:
        if not found_files([pattern], base):
            raise InvalidInput(
                f"no file matches {pattern!r:.200}",
                hint=f"patterns start at {base}; quote them, so that the shell leaves them as they are",
                details={"pattern": pattern},
            )
    return found_files(patterns, base)


def file_lines(names: Sequence[bytes], base: Path) -> Iterator[bytes]:
    """The files as items: name, digest and size. Raises `InvalidInput` for one that cannot be read."""
    root = os.fsencode(base)
    for name in names:
        path = os.path.join(root, name)  # noqa: PTH118 - bytes
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = os.fstat(file.fileno()).st_size
        except OSError as exc:
            raise InvalidInput(
                f"{os.fsdecode(name)!r} was found and cannot be read: {exc.strerror}", hint="check its permissions"
            ) from exc
        yield json_encode_trusted([_written(name), digest, size])


def shown_name(said: object) -> str:
    """A file's name as people read it, from its item."""
    raw = bytes.fromhex(said["hex"]) if isinstance(said, dict) else str(said).encode()
    return raw.decode("utf-8", "backslashreplace")


def _written(name: bytes) -> object:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return {"hex": name.hex()}


def row_lines(stream: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Each row as one line of strict JSON; empty lines are left out. Raises `InvalidInput` by the number of the line."""
    for number, line in enumerate(stream, 1):
        text = line.strip()
        if not text:
            continue
        try:
            value = json_decode(text)
        except NotStrictJson as exc:
            raise InvalidInput(
                f"{name}:{number}: {exc}", hint="a row is one JSON value on one line", details={"line": number}
            ) from exc
        yield json_encode_trusted(escaped(value) if b'"$' in text else value)
