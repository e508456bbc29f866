"""Cuts the power: from a recording of what was done to the files, builds what a disk may hold afterwards.

The disk of these tests keeps its word and nothing more. What was written to a file before the file was last synced is
there. Of what was written since, any sectors may have arrived and others not, in the middle of one write too, in whatever
order the disk liked: for each sector that comes down to whether a given write reached it. A file that grew may show zeros
or old rubbish where nothing arrived. A file that was made or deleted since its directory was last synced may be found in
either condition. SQLite syncs the directory when it first syncs a WAL it has made, so that is when the name becomes firm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.store.vfs import Event

SECTOR_BYTES = 512


@dataclass
class _Inode:
    """A file's bytes as the disk surely has them, and what was done to it since."""

    data: bytearray = field(default_factory=bytearray)
    pending: list[Event] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Image:
    """The files found after a power cut."""

    cut: int
    """How many events had happened, or begun to, when the power went."""
    files: dict[str, bytes]


class Disk:
    """Files as a disk has them, while events happen to them."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._firm = {name: _Inode(bytearray(data)) for name, data in files.items()}
        """Names that would survive, and what they name."""
        self._seen = dict(self._firm)
        """Names as the running program sees them."""
        self._renamed: list[tuple[str, _Inode | None]] = []
        """Names given (or taken away: None) since the directory was last synced."""

    def happen(self, event: Event) -> None:
        match event.act:
            case "create":
                self._seen[event.file] = _Inode()
                self._renamed.append((event.file, self._seen[event.file]))
            case "delete":
                del self._seen[event.file]
                self._renamed.append((event.file, None))
            case "sync":
                self._sync(event.file)
            case _:
                self._seen[event.file].pending.append(event)

    def cut(self, random: Random) -> dict[str, bytes]:
        """The files as they may be found if the power went now."""
        names = dict(self._firm)
        for name, inode in self._renamed:
            if random.random() < 0.5:
                if inode is None:
                    names.pop(name, None)
                else:
                    names[name] = inode
        how = random.choice(("nothing", "everything", "some", "some", "torn", "torn", "torn"))
        return {name: _arrived(inode, how, random) for name, inode in names.items()}

    def _sync(self, name: str) -> None:
        inode = self._seen[name]
        for event in inode.pending:
            _apply(inode.data, event)
        inode.pending.clear()
        if any(made is inode for _, made in self._renamed):
            self._firm = dict(self._seen)
            self._renamed.clear()


def images(start: dict[str, bytes], events: Sequence[Event], count: int, random: Random) -> Iterator[Image]:
    """Power cuts at random points of a recording, in the order of their points."""
    disk = Disk(start)
    done = 0
    for cut in sorted(random.randint(0, len(events)) for _ in range(count)):
        for event in events[done:cut]:
            disk.happen(event)
        done = cut
        yield Image(cut, disk.cut(random))


def _arrived(inode: _Inode, how: str, random: Random) -> bytes:
    """The bytes of one file, with as much of its pending events as happened to reach the disk."""
    data = bytearray(inode.data)
    rubbish = random.random() < 0.3
    for event in inode.pending:
        if how == "nothing" or (how != "everything" and random.random() < 0.3):
            continue
        if event.act == "truncate" or how != "torn" or random.random() < 0.5:
            _apply(data, event)
            continue
        for first, stop in _sectors(event):
            if random.random() < 0.5:
                _grow(data, first, random if rubbish else None)
                data[first:stop] = event.data[first - event.offset : stop - event.offset]
    return bytes(data)


def _apply(data: bytearray, event: Event) -> None:
    if event.act == "truncate":
        del data[event.offset :]
        _grow(data, event.offset, None)
    else:
        _grow(data, event.offset, None)
        data[event.offset : event.offset + len(event.data)] = event.data


def _grow(data: bytearray, size: int, random: Random | None) -> None:
    missing = size - len(data)
    if missing > 0:
        data += random.randbytes(missing) if random else bytes(missing)


def _sectors(event: Event) -> Iterator[tuple[int, int]]:
    """The pieces of a write that lie in one sector of the file each."""
    first, end = event.offset, event.offset + len(event.data)
    while first < end:
        stop = min(end, (first // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield first, stop
        first = stop
