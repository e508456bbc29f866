"""A file system in memory that can lose its power between any two steps, and keeps no more than it promised.

Bytes that were synced are there; of bytes that were not, some pieces are. Names whose directory was synced are there; of
names given, changed or taken away since, each may have reached the disk or not, whatever became of the others.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import BinaryIO


class PowerCut(BaseException):
    """The power went; no code runs after this, so nothing may catch it as an error."""


@dataclass
class _Data:
    synced: bytes = b""
    written: bytes = b""


@dataclass
class _Directory:
    firm: dict[str, _Data | _Directory] = field(default_factory=dict)
    seen: dict[str, _Data | _Directory] = field(default_factory=dict)
    changes: list[tuple[str, _Data | _Directory | None]] = field(default_factory=list)

    def change(self, name: str, entry: _Data | _Directory | None) -> None:
        if entry is None:
            del self.seen[name]
        else:
            self.seen[name] = entry
        self.changes.append((name, entry))

    def sync(self) -> None:
        self.firm = dict(self.seen)
        self.changes.clear()


class _NewFile:
    def __init__(self, files: FakeFiles, data: _Data) -> None:
        self._files = files
        self._data = data

    def write(self, data: bytes | memoryview) -> None:
        self._files.step()
        self._data.written += data

    def sync(self) -> None:
        self._files.step()
        if self._files.syncs_files:
            self._data.synced = self._data.written

    def close(self) -> None:
        pass


class FakeFiles:
    """The file system. ``steps_left`` is how many more steps there is power for."""

    def __init__(self) -> None:
        self._root = _Directory()
        self.steps_left: int | None = None
        self.syncs_files = True
        self.syncs_directories = True

    def step(self) -> None:
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise PowerCut
            self.steps_left -= 1

    def after_power_cut(self, random: Random) -> FakeFiles:
        """The file system as it may be found, with power again."""
        found = FakeFiles()
        found._root = _survivor(self._root, random)
        return found

    def make_directory(self, path: Path) -> bool:
        self.step()
        parent = self._directory(path.parent)
        if path.name in parent.seen:
            return False
        parent.change(path.name, _Directory())
        return True

    def create(self, path: Path, *, streamed: bool = False) -> _NewFile:
        self.step()
        data = _Data()
        parent = self._directory(path.parent)
        if path.name in parent.seen:
            raise FileExistsError(path)
        parent.change(path.name, data)
        return _NewFile(self, data)

    def open(self, path: Path) -> BinaryIO:
        entry = self._directory(path.parent).seen.get(path.name)
        if not isinstance(entry, _Data):
            raise FileNotFoundError(path)
        return io.BytesIO(entry.written)

    def size(self, path: Path) -> int | None:
        try:
            entry = self._directory(path.parent).seen.get(path.name)
        except FileNotFoundError:
            return None
        return len(entry.written) if isinstance(entry, _Data) else None

    def touch(self, path: Path) -> None:
        if self.size(path) is None:
            raise FileNotFoundError(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        entry = self._directory(source.parent).seen[source.name]
        self._directory(target.parent).change(target.name, entry)
        self._directory(source.parent).change(source.name, None)

    def remove(self, path: Path) -> bool:
        self.step()
        parent = self._directory(path.parent)
        if path.name not in parent.seen:
            return False
        parent.change(path.name, None)
        return True

    def names(self, directory: Path) -> list[str]:
        try:
            return sorted(self._directory(directory).seen)
        except FileNotFoundError:
            return []

    def sync_directory(self, path: Path) -> None:
        self.step()
        if self.syncs_directories:
            self._directory(path).sync()

    def _directory(self, path: Path) -> _Directory:
        entry = self._root
        for part in path.parts[1:]:
            child = entry.seen.get(part)
            if not isinstance(child, _Directory):
                raise FileNotFoundError(path)
            entry = child
        return entry


def _survivor(directory: _Directory, random: Random) -> _Directory:
    entries = dict(directory.firm)
    for name, entry in directory.changes:
        if random.random() < 0.5:
            if entry is None:
                entries.pop(name, None)
            else:
                entries[name] = entry
    kept: dict[str, _Data | _Directory] = {}
    for name, entry in entries.items():
        kept[name] = _survivor(entry, random) if isinstance(entry, _Directory) else _surviving_bytes(entry, random)
    return _Directory(dict(kept), dict(kept))


def _surviving_bytes(data: _Data, random: Random) -> _Data:
    if data.synced == data.written:
        return _Data(data.synced, data.written)
    found = bytearray(data.written[: random.randint(len(data.synced), len(data.written))])
    for index in range(len(data.synced), len(found)):
        if random.random() < 0.2:
            found[index] = 0
    return _Data(bytes(found), bytes(found))
