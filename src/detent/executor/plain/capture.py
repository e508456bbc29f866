"""What a worker's processes write to stdout and stderr: through a pipe, by way of the host, into a file that stays small.

A file alone would grow with a task that prints forever, and a limit on its size would break the task instead. So the host
reads the pipes, keeps the first bytes of each task and drops the rest; whoever writes faster than it reads waits.

The task ends when the worker says so, and by then everything written before must be in the file. The worker sees to that by
looking: the pipe is empty, and the host is not between reading and writing, which a shared count says by being odd.
"""

from __future__ import annotations

import fcntl
import os
import termios
import time

from detent.executor.plain.wire import ERR, OUT

_READ_BYTES = 1 << 16
_ROUNDS_MAX = 64
"""Reads of one pipe before the others get their turn."""
SETTLE_SECONDS_MAX = 0.5
"""How long a worker waits for the host. Longer only if something left behind goes on writing."""
_NOTHING = b"\0\0\0\0"
STREAMS = ((OUT, "stdout"), (ERR, "stderr"))


class Drain:
    """The host's side of one stream."""

    def __init__(self, path: str, shared: memoryview, place: int, bytes_max: int) -> None:
        self.reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.reading, False)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.shared = shared
        self.place = place
        self.bytes_max = bytes_max
        self.given_up: int | None = None
        """Where the task began of which no more is kept, because the disk is full."""

    def pump(self) -> bool:
        """Move what waits; False once nobody can write any more."""
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
        room = self.bytes_max - (shared[place + 1] - begun)
        if room > 0 and self.given_up != begun:
            try:
                written = os.write(self.file, data[:room])
            except OSError:
                written = 0
            if written < min(room, len(data)):
                self.given_up = begun  # A full disk: the task goes on, and what it prints is told to be cut.
        shared[place + 1] += len(data)

    def close(self) -> None:
        for handle in (self.reading, self.file):
            os.close(handle)


class Taken:
    """The worker's side of one stream; its descriptors stay open whatever the task does with 1 and 2."""

    def __init__(self, drain: Drain) -> None:
        self.writing = drain.writing
        self.file = drain.file
        self.shared = drain.shared
        self.place = drain.place
        self.bytes_max = drain.bytes_max

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
        if not self.is_quiet():
            self.settle()
        written = self.shared[self.place + 1] - self.shared[self.place + 2]
        if written == 0:
            return b"", False
        data = os.pread(self.file, self.bytes_max, 0)
        os.ftruncate(self.file, 0)
        self.shared[self.place + 2] = self.shared[self.place + 1]
        return (data, False) if written <= len(data) else (cut(data), True)

    def is_kept(self) -> bool:
        """Whether all that this task has written so far is there, as far as it is kept at all."""
        if not self.is_quiet():
            self.settle()
        written = self.shared[self.place + 1] - self.shared[self.place + 2]
        return os.fstat(self.file).st_size >= min(written, self.bytes_max)

    def peek(self, bytes_max: int) -> bytes:
        """The beginning of what this task has written so far."""
        if not self.is_quiet():
            self.settle()
        return os.pread(self.file, bytes_max, 0)

    def tail(self, bytes_max: int) -> bytes:
        """The end of what is kept of this task so far, from a character's first byte."""
        if not self.is_quiet():
            self.settle()
        data = os.pread(self.file, bytes_max, max(0, os.fstat(self.file).st_size - bytes_max))
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
