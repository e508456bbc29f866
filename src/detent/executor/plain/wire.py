"""The messages between the supervisor and its workers, for both sides.

The sockets are SOCK_SEQPACKET: the kernel keeps each message whole, and gives it to exactly one of those who read. What is
too long for a message goes through a file of the same bytes. Standard library only: every worker loads this.
"""

from __future__ import annotations

import os
import struct
from typing import Final, NamedTuple

JOURNAL: Final = "elements"
"""The file of a worker with what has ended of its array. It begins with the number of the task that it is written for (`NUMBER`):
a worker may be killed after it took the next task and before it emptied the file."""
SLICE_US: Final = 50_000
"""How long a worker goes on with the elements of an array before it hands back the rest: another worker may be free."""
SLICE_BYTES: Final = 1 << 20
"""The same for what their results take."""
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""Of one message; the kernel's default buffer for a socket has room for several."""

# From the supervisor to a worker. An array is a task with many calls.
TASK, IN_FILE, ARRAY = 1, 2, 9
# From a worker to the supervisor.
DONE, DONE_IN_FILE, BEGUN, MESSAGE, PROGRESS, RETURNED = 3, 4, 5, 6, 7, 8

OK, RETIRING, OUT_CUT, ERR_CUT, MESSAGE_FOLLOWS, IO_UNKNOWN = 1, 2, 4, 8, 16, 32
"""Flags of what is done; `RETIRING` says that the worker reads no further message."""

# Places in the memory that a worker shares with the host, in words of eight bytes. A number is kept one higher: 0 is none.
RUNNING, CANCEL = 0, 1
STARTED = 8
"""When the running task began, in microseconds since 1970."""
OUT, ERR = 2, 5
"""Each is followed by three words: a count that is odd while bytes are on their way from pipe to file, how many bytes have
come in all, and how many of these had come when the task began."""
SHARED_BYTES: Final = 4096

MARKER: Final = "DETENT_WORKER"
"""The environment variable in which a host and everything below it name their home and their pool."""
CRASH_STATUS: Final = 70
"""With which a worker leaves that failed itself."""

SHORT: Final = struct.Struct("<BQ")
NUMBER: Final = struct.Struct("<Q")
_TASK: Final = struct.Struct("<BQ8sQIII")
TOKEN_BYTES: Final = 8
"""Of the word by which a worker's own messages about a task are known: it goes with the task, and behind each of them."""
_VALUE: Final = struct.Struct("<HBI")
_DONE: Final = struct.Struct("<BQBQQQQQQIIII")
_ELEMENT: Final = struct.Struct("<IBQQIIII")
_BEGUN: Final = struct.Struct("<BQQ")
_PROGRESS: Final = struct.Struct("<BQd")


class TaskRead(NamedTuple):
    """A task as a worker gets it."""

    number: int
    token: bytes
    wall_ms: int
    spec: bytes
    context: bytes
    arguments: bytes
    values: bytes
    is_array: bool


class ElementRead(NamedTuple):
    """How one element of an array ended, as the supervisor gets it. Times in microseconds."""

    place: int
    flags: int
    started: int
    wall: int
    value: bytes
    error: bytes
    stdout: bytes
    stderr: bytes


class DoneRead(NamedTuple):
    """What is done, as the supervisor gets it. Times in microseconds, sizes in bytes."""

    number: int
    flags: int
    started: int
    wall: int
    cpu: int
    memory: int
    io_read: int
    io_written: int
    value: bytes
    error: bytes
    stdout: bytes
    stderr: bytes
    files: bytes


def write_task(  # noqa: PLR0913, PLR0917 - a task has this many parts
    number: int,
    token: bytes,
    wall_ms: int,
    spec: bytes,
    context: bytes,
    arguments: bytes,
    values: list[tuple[str, bool, bytes]],
    kind: int = TASK,
) -> bytes:
    """A task; each value is a digest, whether a path follows instead of the bytes, and these."""
    head = _TASK.pack(kind, number, token, wall_ms, len(spec), len(context), len(arguments))
    if not values:
        return b"".join((head, spec, context, arguments))
    pieces = [head, spec, context, arguments]
    for digest, is_path, data in values:
        name = digest.encode()
        pieces += [_VALUE.pack(len(name), is_path, len(data)), name, data]
    return b"".join(pieces)


def read_task(message: bytes) -> TaskRead:
    """The parts of a task."""
    kind, number, token, wall_ms, spec, context, arguments = _TASK.unpack_from(message)
    begin = _TASK.size
    spec += begin
    context += spec
    arguments += context
    parts = message[begin:spec], message[spec:context], message[context:arguments], message[arguments:]
    return TaskRead(number, token, wall_ms, *parts, kind == ARRAY)


def read_values(data: bytes) -> dict[str, bytes]:
    """The stored values by digest; those in files are read."""
    found: dict[str, bytes] = {}
    place = 0
    while place < len(data):
        name, is_path, size = _VALUE.unpack_from(data, place)
        place += _VALUE.size
        digest, value = data[place : place + name].decode(), data[place + name : place + name + size]
        place += name + size
        if is_path:
            value = read_file(os.fsdecode(value))
        found[digest] = value
    return found


def write_done(numbers: tuple[int, int, int, int, int, int, int, int], parts: tuple[bytes, ...]) -> bytes:
    """What is done: number, flags, started, wall, cpu, memory, read, written; value, error, stdout, stderr, files."""
    value, error, stdout, stderr, _ = parts
    return b"".join((_DONE.pack(DONE, *numbers, len(value), len(error), len(stdout), len(stderr)), *parts))


def read_done(message: bytes) -> DoneRead:
    """The parts of what is done; `struct.error` when the message is shorter than it says."""
    fields = _DONE.unpack_from(message)
    first = _DONE.size
    second = first + fields[9]
    third = second + fields[10]
    fourth = third + fields[11]
    fifth = fourth + fields[12]
    if fifth > len(message):
        raise struct.error("a part is missing")
    parts = message[first:second], message[second:third], message[third:fourth], message[fourth:fifth], message[fifth:]
    return DoneRead._make(fields[1:9] + parts)


def write_element(numbers: tuple[int, int, int, int], parts: tuple[bytes, bytes, bytes, bytes]) -> bytes:
    """How one element ended: place, flags, started, wall; value, error, stdout, stderr."""
    value, error, stdout, stderr = parts
    return b"".join((_ELEMENT.pack(*numbers, len(value), len(error), len(stdout), len(stderr)), *parts))


def read_elements(data: bytes) -> list[ElementRead]:
    """How some elements ended. The last one may be cut short, of a worker that was ended while it wrote: it is left out."""
    found: list[ElementRead] = []
    begin, size = 0, len(data)
    while size - begin >= _ELEMENT.size:
        *numbers, value, error, stdout, stderr = _ELEMENT.unpack_from(data, begin)
        begin += _ELEMENT.size
        value += begin
        error += value
        stdout += error
        stderr += stdout
        if stderr > size:
            break
        parts = data[begin:value], data[value:error], data[error:stdout], data[stdout:stderr]
        found.append(ElementRead._make((*numbers, *parts)))
        begin = stderr
    return found


def write_begun(number: int, monotonic_us: int) -> bytes:
    """That a task with a limit has begun, and when by the clock that all processes share."""
    return _BEGUN.pack(BEGUN, number, monotonic_us)


def read_begun(message: bytes) -> float:
    """When it began, in seconds."""
    return int(_BEGUN.unpack_from(message)[2]) / 1e6


def write_progress(number: int, fraction: float, text: str) -> bytes:
    """How far a task is."""
    return _PROGRESS.pack(PROGRESS, number, fraction) + text.encode("utf-8", "replace")


def read_progress(message: bytes) -> tuple[int, float, str]:
    """The reverse of `write_progress`."""
    _, number, fraction = _PROGRESS.unpack_from(message)
    return number, fraction, message[_PROGRESS.size :].decode("utf-8", "replace")


def write_file(path: str, data: bytes) -> None:
    """Write a new file whole, for the owner alone; it is not needed after a power cut."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        os.close(handle)


def read_file(path: str) -> bytes:
    """A file's bytes."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib would be the largest thing that a worker loads
        return file.readall()


class Context(NamedTuple):
    """What a task may know about itself."""

    job_id: str
    run_id: str | None
    attempt: int
    token: str
    step: str | None
    place: int | None
    """In the list that a mapped step goes through."""
    traceparent: str | None


def context_parts(data: bytes) -> Context:
    """What `context_bytes` joined."""
    job, run, attempt, token, step, trace, index = data.decode().split("\0")
    return Context(job, run or None, int(attempt), token, step or None, int(index) if index else None, trace or None)


def context_bytes(
    job: str,
    run: str | None,
    attempt: int,
    token: str,
    step: str | None,
    index: int | None,
    traceparent: str | None = None,
) -> bytes:
    """The context of a task in one piece, parted by zero bytes, which no name may hold."""
    place = "" if index is None else index
    text = f"{job}\0{run or ''}\0{attempt}\0{token}\0{step or ''}\0{traceparent or ''}\0{place}"
    return text.encode("utf-8", "replace")


class ArrayContext:
    """The contexts of an array's elements, made from that of its job."""

    def __init__(self, data: bytes) -> None:
        job, run, attempt, _, step, trace, _ = data.decode().split("\0")
        self._job = job
        self._between = f"\0{run}\0{attempt}\0"
        self._step = f"{step}\0{trace}"

    def of_element(self, place: int, index: int | None) -> bytes:
        """An element is called, and known to others, by its own id."""
        name = f"{self._job}.{place}"
        return f"{name}{self._between}{name}\0{self._step}\0{'' if index is None else index}".encode()
