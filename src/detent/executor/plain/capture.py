"""What a worker's processes write to stdout and stderr: through a pipe, by way of the host, into a file that stays small.

A file alone would grow with a task that prints forever, and a limit on its size would break the task instead. So the host
reads the pipes and keeps both ends of what each task writes: the first half in one file, which can be watched, and the last half
in another, which is written round and round. A writer that is faster than the host waits.

The task ends when the worker says so, and by then everything written before must be in the file. The worker sees to that by
looking: the pipe is empty, and the host is not between reading and writing, which a shared count says by being odd.
"""

from __future__ import annotations

import fcntl
import os
import re
import termios
import time

from detent.executor.plain.wire import ERR, OUT

_READ_BYTES = 1 << 16
_ROUNDS_MAX = 64
"""Reads of one pipe before the others get their turn."""
SETTLE_SECONDS_MAX = 0.5
"""How long a worker waits for the host. Longer only if something left behind goes on writing."""
_NOTHING = b"\0\0\0\0"
END = ".end"
"""Behind the name of a stream's file: the file with the last bytes."""
_GAP = b"\n[... %d bytes left out ...]\n"
GAP = re.compile(rb"\n\[\.\.\. [0-9]+ bytes left out \.\.\.\]\n")
"""What the mark looks like. A task may print the same; that deceives only its own reader."""
_GAP_BYTES_MAX = 64
STREAMS = ((OUT, "stdout"), (ERR, "stderr"))


class Drain:
    """The host's side of one stream."""

    def __init__(self, path: str, shared: memoryview, place: int, bytes_max: int) -> None:
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reading, False)
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        self.file = os.open(path, flags | os.O_APPEND, 0o600)
        self.end = os.open(path + END, flags, 0o600)
        self.shared = shared
        self.place = place
        self.head_max = bytes_max // 2
        self.end_max = max(1, bytes_max - self.head_max - _GAP_BYTES_MAX)
        self.given_up: int | None = None
        """Where the task began whose output is no longer kept, because the disk is full."""

    def pump(self) -> bool:
        """Move what waits; False once every writer has closed."""
        shared, place = self.shared, self.place
        for _ in range(_ROUNDS_MAX):
            shared[place] += 1
            try:
                data = os.read(self.reading, _READ_BYTES)
                if data:
                    self._keep(data)
            except BlockingIOError:
                return True
            finally:
                shared[place] += 1
            if not data:
                return False
        return True

    def _keep(self, data: bytes) -> None:
        shared, place = self.shared, self.place
        begun = shared[place + 2]
        if self.given_up != begun and not self._written(data, shared[place + 1] - begun):
            self.given_up = begun  # A full disk: the task goes on, and its output is marked as cut.
            os.ftruncate(self.end, 0)
        shared[place + 1] += len(data)

    def _written(self, data: bytes, before: int) -> bool:
        """Write what comes after ``before`` bytes of a task; False when not all that is kept could be written."""
        room = max(0, self.head_max - before)
        try:
            if room and os.write(self.file, data[:room]) < min(room, len(data)):
                return False
            return len(data) <= room or self._write_end(data[room:], max(0, before - self.head_max))
        except OSError:
            return False

    def _write_end(self, data: bytes, before: int) -> bool:
        skipped = max(0, len(data) - self.end_max)
        data, place = data[skipped:], (before + skipped) % self.end_max
        first = data[: self.end_max - place]
        written = os.pwrite(self.end, first, place)
        return written + os.pwrite(self.end, data[len(first) :], 0) == len(data)

    def close(self) -> None:
        for handle in (self.reading, self.file, self.end):
            os.close(handle)


class Taken:
    """The worker's side of one stream; its descriptors stay open even if the task closes 1 and 2."""

    def __init__(self, drain: Drain) -> None:
        self.writing = drain.writing
        self.file = drain.file
        self.end = drain.end
        self.shared = drain.shared
        self.place = drain.place
        self.head_max = drain.head_max
        self.end_max = drain.end_max

    def is_quiet(self) -> bool:
        """Whether all that was ever written has arrived."""
        before = self.shared[self.place]
        if before & 1 or fcntl.ioctl(self.writing, termios.FIONREAD, _NOTHING) != _NOTHING:
            return False
        return self.shared[self.place] == before

    def settle(self) -> None:
        """Wait until the host has taken everything."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not self.is_quiet() and time.monotonic() < deadline:
            time.sleep(0.0001)

    def take(self) -> tuple[bytes, bool]:
        """What this task wrote, and whether that is not all; the next task begins with nothing."""
        written = self._written()
        if written == 0:
            return b"", False
        kept = self._kept(written)
        os.ftruncate(self.file, 0)
        if written > self.head_max:
            os.ftruncate(self.end, 0)
        self.shared[self.place + 2] = self.shared[self.place + 1]
        return kept

    def is_kept(self) -> bool:
        """Whether all that this task has written so far is there, as far as it is kept at all."""
        written = self._written()
        at_end = min(max(0, written - self.head_max), self.end_max)
        return os.fstat(self.file).st_size >= min(written, self.head_max) and os.fstat(self.end).st_size >= at_end

    def peek(self, bytes_max: int) -> bytes:
        """The beginning of what this task has written so far."""
        return self._kept(self._written())[0][:bytes_max]

    def tail(self, bytes_max: int) -> bytes:
        """The end of what is kept of this task so far, from a character's first byte."""
        return _from_a_character(self._kept(self._written())[0][-bytes_max:])

    def _written(self) -> int:
        """How many bytes this task has written; all have arrived."""
        if not self.is_quiet():
            self.settle()
        return self.shared[self.place + 1] - self.shared[self.place + 2]

    def _kept(self, written: int) -> tuple[bytes, bool]:
        end = os.pread(self.end, self.end_max, 0) if written > self.head_max else b""
        return joined(os.pread(self.file, self.head_max, 0), end, written)


def joined(head: bytes, end: bytes, written: int) -> tuple[bytes, bool]:
    """What was kept of ``written`` bytes, with a mark where some are left out, and whether there are such.

    ``end`` is as its file has it, a ring buffer. The text before the mark is as long as ``head``, so a reader that has seen
    that much of it continues with the mark.
    """
    if written <= len(head) + len(end):
        return head + end, False
    whole = cut(head)
    if not end:
        return whole, True
    place = (written - len(head)) % len(end)
    rest = _from_a_character(end[place:] + end[:place])
    return whole + b"\n" * (len(head) - len(whole)) + _GAP % (written - len(head) - len(rest)) + rest, True


def _from_a_character(data: bytes) -> bytes:
    """The same without a character that was cut in two at the beginning."""
    for place in range(min(4, len(data))):
        if data[place] & 0xC0 != 0x80:
            return data[place:]
    return data


def cut(data: bytes) -> bytes:
    """The same without a character that was cut in two at the end (X-147)."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            wanted = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if wanted > back else data
        if byte < 0x80:
            break
    return data
