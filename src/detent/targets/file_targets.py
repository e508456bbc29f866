"""``append:FILE`` and ``jsonl:FILE``: a file that has each entry once, in order, whenever the run is ended and resumed.

A file that only grows, by whole batches, and whose length at every recorded moment is known.

The rules that make a batch appear exactly once:

* The length is recorded after a batch is durable. Bytes behind the recorded length were written and not recorded, so `open`
  cuts them off and the run writes them again.
* Nothing is cut or written unless the file is the one that was recorded: not shorter, and with the same bytes before the
  recorded length (the last `TAIL_BYTES` of them are compared).
* No bytes are destroyed. What `open` cuts off is set aside first (see `detent.targets.disk`), because another program may have added to the
  file after the crash, which looks the same. While the file is open its length is compared before and after every batch, and
  writes go to the end of the file, wherever that is: another program that adds to it is found, not overwritten.
* One run at a time: a lock on the file itself, which ends with the process.

The weak spot: a change in the middle of a long file, with its length kept, is not seen.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from detent.canon.strict_json import JsonValue
from detent.errors import InvariantBroken
from detent.owner.lock import OwnerLock
from detent.store.content import ContentFiles
from detent.targets.api import (
    Anew,
    CommitFailed,
    DestinationBusy,
    DestinationChanged,
    DestinationNotEmpty,
    Mark,
    Nothing,
    still_due,
)
from detent.targets.disk import DISK, Disk, SetAside, failed, insist_on_directory, shown
from detent.targets.render import Render, RenderLines, RenderText
from detent.words.quantities import count_text


class FileTarget:
    """A destination that is a file. Made by `append_target` and `json_lines_target`."""

    is_recorded = True

    def __init__(self, spec: str, path: Path, render: Render, disk: Disk, anew: Anew | None = None) -> None:
        self.spec = spec
        self._path = path
        self._file = GrowingFile(path, spec, disk, anew)
        self._render = render
        self._next_seq = 0
        self._is_begun = False

    def check(self) -> None:
        """Refuse, with `InvalidInput`, a place that nothing can be written to: better than when there is a run."""
        insist_on_directory(self.spec, self._path)

    def insist_on_room(self) -> None:
        """Refuse, with `DestinationNotEmpty`, what a new run must not begin with."""
        self._file.insist_on_room()

    def holds(self, run_id: str, recorded: Mark | None, rows: int) -> bool:  # noqa: ARG002 - a file does not know its runs
        """Whether the file still has what a run left in it."""
        return recorded is not None and self._file.holds(recorded)

    def open(self, run_id: str, recorded: Mark | None) -> int:  # noqa: ARG002 - a file does not know its runs
        """Cut off what was written and not recorded. A run without a record begins at the end of the file, or makes it."""
        self.close()
        self._file.open(recorded)
        self._next_seq = 0 if recorded is None else recorded.next_seq
        self._is_begun = recorded is not None
        return self._next_seq

    def begin(self) -> Mark:
        """Where the file ends now."""
        self._is_begun = True
        return Mark(self._next_seq, self._file.offset, self._file.tail_digest())

    def write(self, first_seq: int, values: Sequence[JsonValue | Nothing]) -> Mark:
        """Append a batch; it is synced when this returns."""
        if not self._is_begun:
            raise InvariantBroken(f"{self.spec}: begin() must be recorded before the first write")
        due = still_due(self._next_seq, first_seq, values)
        pieces = self._render(self._next_seq, due)
        if any(not isinstance(value, Nothing) for value in due):
            self._file.append(pieces)
        self._next_seq += len(due)
        return Mark(self._next_seq, self._file.offset, self._file.tail_digest())

    def close(self) -> None:
        """Let go of the file and its lock."""
        self._file.close()
        self._is_begun = False


def append_target(
    spec: str, path: Path, content: ContentFiles | None = None, disk: Disk = DISK, *, anew: Anew | None = None
) -> FileTarget:
    """Text and files, one after the other. ``content`` is where the bytes of files are."""
    return FileTarget(spec, path, RenderText(spec, content), disk, anew)


def json_lines_target(
    spec: str,
    path: Path,
    *,
    numbered: bool = False,
    disk: Disk = DISK,
    anew: Anew | None = None,
    seqs: Sequence[int] | None = None,
) -> FileTarget:
    """One line of JSON for each entry; ``numbered`` puts the seq beside the value, ``seqs`` says which those are."""
    return FileTarget(spec, path, RenderLines(spec, numbered=numbered, seqs=seqs), disk, anew)


TAIL_BYTES: Final = 4096
"""How much before the recorded length is compared."""
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""O_NONBLOCK because opening a pipe would otherwise wait for its other end."""
_MODE: Final = 0o666


class GrowingFile:
    """The file of a destination. ``spec`` is what errors call the destination."""

    def __init__(self, path: Path, spec: str, disk: Disk, anew: Anew | None = None) -> None:
        self._path = path
        self._spec = spec
        self._disk = disk
        self._anew = anew
        self._handle: int | None = None
        self._lock: OwnerLock | None = None
        self._aside: SetAside | None = None
        self._tail = b""
        self._reach_max = 0
        self.offset = 0
        """The length of everything that is committed."""

    def open(self, recorded: Mark | None) -> None:
        """Lock the file and bring it to the recorded length; without a record, begin at its end or make it.

        A file that is begun anew is emptied instead.
        """
        is_begun = recorded is not None and recorded.offset != 0
        try:
            self._handle = os.open(self._path, _FLAGS if is_begun else _FLAGS | os.O_CREAT, _MODE)
            self._lock = self._locked(self._handle)
            if recorded is None:
                self.offset = os.fstat(self._handle).st_size
                self._tail = self._read_tail()
                if self._anew is not None and self.offset:
                    self._empty(self._handle, self._anew)
            else:
                self._restore(self._handle, recorded)
            self._reach_max = self.offset
            self._disk.sync(self._handle)
            if not is_begun:
                self._disk.sync_directory(self._path.parent)
        except FileNotFoundError as exc:
            self.close()
            if is_begun and self._path.parent.is_dir():
                raise self._changed("is gone", "put it back as it was, or start a new run") from exc
            raise failed(exc, self._spec, self._path) from exc
        except OSError as exc:
            self.close()
            raise failed(exc, self._spec, self._path) from exc
        except BaseException:
            self.close()
            raise

    def append(self, pieces: Iterable[bytes]) -> None:
        """Add a batch: when this returns all of it is durable, and when it raises the file is as it was, or `open` makes it so."""
        if self._handle is None:
            raise InvariantBroken(f"{self._spec} is written to and not open")
        try:
            self._insist_untouched(self._handle)
            self._reach_max, tail = self.offset, self._tail
            for piece in pieces:
                self._write(self._handle, piece)
                tail = piece[-TAIL_BYTES:] if len(piece) >= TAIL_BYTES else (tail + piece)[-TAIL_BYTES:]
            self._disk.sync(self._handle)
        except OSError as exc:
            self._take_back()
            raise failed(exc, self._spec, self._path) from exc
        except BaseException:
            self._take_back()
            raise
        if os.fstat(self._handle).st_size != self._reach_max:
            raise self._changed("was added to while a batch was being written", "stop the other program")
        self.offset, self._tail = self._reach_max, tail
        if self._aside is not None:
            self._aside.compare(self._handle, self.offset)

    def tail_digest(self) -> str:
        """What a record keeps of the bytes before `offset`."""
        return hashlib.sha256(self._tail).hexdigest()

    def close(self) -> None:
        """Let go of the file and its lock."""
        handle, self._handle = self._handle, None
        lock, self._lock = self._lock, None
        if handle is not None:
            with suppress(OSError):
                os.close(handle)
        if lock is not None:
            lock.release()

    def _locked(self, handle: int) -> OwnerLock:
        """Lock the file, if it is one. The lock has a descriptor of its own, which children made by fork let go of."""
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise CommitFailed(
                f"{shown(self._path)} is not a regular file",
                spec=self._spec,
                hint="a pipe or device cannot be resumed: write to a file, or use a function",
                details={"path": shown(self._path)},
                retryable=False,
            )
        descriptor = os.open(self._path, _FLAGS)
        lock = OwnerLock(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(descriptor), os.fstat(handle)):
                raise self._changed("was replaced while it was being opened", "try again")
        except BlockingIOError as exc:
            lock.release()
            raise DestinationBusy(
                f"{shown(self._path)} is being written by another run",
                spec=self._spec,
                hint="wait for that run to end, or choose another file",
                details={"path": shown(self._path)},
            ) from exc
        except BaseException:
            lock.release()
            raise
        return lock

    def _restore(self, handle: int, recorded: Mark) -> None:
        if recorded.offset is None:
            raise CommitFailed(
                "what is recorded for this run is not a file length",
                spec=self._spec,
                hint="resume the run with the destination that it was started with",
                retryable=False,
            )
        size = os.fstat(handle).st_size
        if size < recorded.offset:
            raise self._changed(
                f"has {size} bytes, and {recorded.offset} were committed", "put it back as it was, or start a new run"
            )
        self.offset = recorded.offset
        self._tail = self._read_tail()
        if self.tail_digest() != recorded.tail:
            raise self._changed(
                f"has other bytes before byte {recorded.offset} than were committed",
                "put it back as it was, or start a new run with another file",
            )
        self._aside = SetAside(self._path)
        if size > self.offset:
            self._aside.keep(handle, self.offset, size)
            self._disk.truncate(handle, self.offset)

    def _empty(self, handle: int, anew: Anew) -> None:
        """Begin with nothing. What is not known to be the run's own kind is refused, or set aside like anything that is cut off."""
        if not self._may_replace(anew):
            self._aside = SetAside(self._path)
            self._aside.keep(handle, 0, self.offset)
        self._disk.truncate(handle, 0)
        self.offset, self._tail = 0, b""

    def _may_replace(self, anew: Anew) -> bool:
        """Whether what is there was left by an earlier run of the same work; raises `DestinationNotEmpty` if it is to stay."""
        run_id = anew.whose(self.offset, self.tail_digest())
        if anew.refuses_others and (run_id is None or not anew.replaces_own):
            what = f"{shown(self._path)} holds {count_text(self.offset, 'byte')}"
            raise DestinationNotEmpty.holding(what, spec=self._spec, run_id=run_id, path=shown(self._path))
        return run_id is not None

    def insist_on_room(self) -> None:
        """Refuse, with `DestinationNotEmpty`, what a new run must not begin with. Changes nothing."""
        anew = self._anew
        if anew is None or not anew.refuses_others or not self._path.is_file():
            return  # What is in the way, such as a pipe, is for `open` to say.
        try:
            with self._path.open("rb") as file:
                self.offset = os.fstat(file.fileno()).st_size
                self._tail = _tail_of(file.fileno(), self.offset)
        except OSError:
            return
        if self.offset:
            self._may_replace(anew)

    def holds(self, recorded: Mark) -> bool:
        """Whether the file still has what a run had committed when this was recorded; more may come behind it."""
        if not self._path.is_file():
            return False
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                tail = b"" if recorded.offset is None else _tail_of(file.fileno(), recorded.offset)
        except OSError:
            return False
        has_length = recorded.offset is not None and size >= recorded.offset
        return has_length and hashlib.sha256(tail).hexdigest() == recorded.tail

    def _read_tail(self) -> bytes:
        assert self._handle is not None
        return _tail_of(self._handle, self.offset)

    def _insist_untouched(self, handle: int) -> None:
        """Refuse a file that is not as the last batch left it; finish taking back a batch that failed."""
        mine = os.fstat(handle)
        try:
            named = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116 - a path object costs as much as the call
        except FileNotFoundError as exc:
            raise self._changed("was removed or renamed while the run had it open", "put it back") from exc
        if not os.path.samestat(named, mine):
            raise self._changed("was replaced by another file while the run had it open", "put the first one back")
        if mine.st_size == self.offset:
            return
        if not self.offset < mine.st_size <= self._reach_max:
            raise self._changed(
                f"has {mine.st_size} bytes, and this run left it with {self.offset}", "stop the other program"
            )
        self._disk.truncate(handle, self.offset)

    def _write(self, handle: int, piece: bytes) -> None:
        self._reach_max += len(piece)  # Before the call: an interrupted one cannot say how far it came.
        rest = memoryview(piece)
        while rest:
            rest = rest[self._disk.write(handle, rest) :]

    def _take_back(self) -> None:
        """Cut off what a failed batch left, unless another program has written too. The next batch repeats what fails here."""
        assert self._handle is not None
        with suppress(OSError):
            if self.offset < os.fstat(self._handle).st_size <= self._reach_max:
                self._disk.truncate(self._handle, self.offset)

    def _changed(self, what: str, hint: str) -> DestinationChanged:
        return DestinationChanged(f"{shown(self._path)} {what}", spec=self._spec, hint=hint, path=shown(self._path))


def _tail_of(handle: int, offset: int) -> bytes:
    """The last bytes before an offset, as far as they are compared."""
    length = min(TAIL_BYTES, offset)
    return os.pread(handle, length, offset - length)
