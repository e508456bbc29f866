"""Checks what a worker says before anything is made of it.

A worker speaks for itself as long as the user's code leaves its socket alone, and that code shares its process. So a message is
read as a stranger's: every length, number, name and text is checked here, once, where it enters. A misfit is a
failure of the task that runs there; it never reaches a record, and it never ends the process that listens.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Container, Sequence
from typing import Any, Final, NoReturn

from detent.canon import parse_digest
from detent.errors import InvalidInput
from detent.executor.assignment import Progress
from detent.executor.plain import wire
from detent.executor.plain.telling import MESSAGE_BYTES_MAX, NAME_CHARS_MAX, TRACEBACK_BYTES_MAX, bounded
from detent.jobs.status import ErrorCategory
from detent.jobs.values import files_named, results_named
from detent.jobs.work import EMPTY, FILES_MAX, Failure, Usage, WorkFile, WorkStream
from detent.kernel.evidence import reason_fault

IO: Final = "io_bytes"
"""What is not measured where the kernel does not count it, as `detent.jobs.work.MEASURED` calls it."""
MISUSED: Final = "CHANNEL_MISUSED"
"""The code of a task that wrote to its worker's socket itself, or something else that no worker says."""
COUNT_MAX: Final = 1 << 56
"""Of bytes, milliseconds, and microseconds since 1970; sums of many such numbers still fit where they are added up."""
PLACE_MAX: Final = 1 << 31
PROGRESS_CHARS_MAX: Final = 500
_CATEGORIES: Final = frozenset(category.value for category in ErrorCategory)
_SAID: Final = frozenset({"category", "code", "message", "type", "traceback", "text", "line", "column"})


class Garbled(Exception):
    """A message that no worker of ours sends; the text says in what."""


class Foreign(Garbled):
    """A message that the worker did not send: the user's code wrote it. The worker's own is still to come."""


def number(message: bytes, known: Container[int]) -> int:
    """The task that a message is about, which must be one that its worker was given."""
    try:
        found = int(wire.SHORT.unpack_from(message)[1])
    except struct.error:
        raise Garbled("a message is too short to name a task") from None
    if found not in known:
        raise Garbled("a message names a task that the worker does not have")
    return found


def names(message: bytes, task: int) -> bool:
    """Whether a message is about this task."""
    return message[1 : wire.SHORT.size] == wire.SHORT.pack(0, task)[1:]


def done(message: bytes, known: Container[int]) -> wire.DoneRead:
    """What is done, with every length inside the message and every number in bounds."""
    number(message, known)
    try:
        read = wire.read_done(message)
    except struct.error:
        raise Garbled("a result is shorter than it says") from None
    counted = read.started, read.wall, read.cpu, read.memory, read.io_read, read.io_written
    if max(counted) <= COUNT_MAX:
        return read
    return wire.DoneRead._make((*read[:2], *(min(one, COUNT_MAX) for one in counted), *read[8:]))


def elements(data: bytes, places: Sequence[int]) -> list[wire.ElementRead]:
    """How the elements at some places ended, one after the other from the first, as far as they have."""
    ended = wire.read_elements(data)
    if [one.place for one in ended] != list(places[: len(ended)]):
        raise Garbled("the elements of an array ended out of order")
    return ended


def begun(message: bytes) -> float:
    """When a task says it began, in seconds."""
    try:
        return wire.read_begun(message)
    except struct.error:
        raise Garbled("a beginning is too short") from None


def progress(message: bytes) -> Progress | None:
    """How far a task says it is; None for a value that is not a share from 0 to 1."""
    try:
        task, fraction, text = wire.read_progress(message)
    except struct.error:
        raise Garbled("a progress is too short") from None
    if not math.isfinite(fraction):
        return None
    return Progress(task, min(1.0, max(0.0, fraction)), text[:PROGRESS_CHARS_MAX])


def value(data: bytes) -> bytes:
    """A stored value: the bytes of a JSON value, all of them, with nothing in it that has no JSON form."""
    try:
        text = data.decode()
        found, end = _DECODER.raw_decode(text)
        if end != len(text):
            found = _DECODER.decode(text)  # Which says what is wrong with the rest.
        if b"\\ud" in data:
            # Written by us, no escape begins like this: lone surrogates have no place in a stored value.
            json.dumps(found, ensure_ascii=False).encode()
        if b'"$' in data:
            _check_references(found)
    except (ValueError, RecursionError) as exc:
        raise Garbled(f"the value is not JSON: {_cut(exc)}") from None
    return data


def failure(data: bytes, message: str | None) -> Failure:
    """Why a task failed, as its worker tells it; ``message`` came later."""
    said = _json(data, "error")
    if type(said) is not dict or not said.keys() <= _SAID:
        raise Garbled("the error is not one that a worker writes")
    category, code = said.get("category"), said.get("code")
    if type(category) is not str or category not in _CATEGORIES or reason_fault(code):
        raise Garbled("the error has no category and code that a task can have")
    told = _text(said, "message", MESSAGE_BYTES_MAX) or "" if message is None else bounded(message, MESSAGE_BYTES_MAX)
    kind, traceback = _text(said, "type", NAME_CHARS_MAX * 4), _text(said, "traceback", TRACEBACK_BYTES_MAX)
    if traceback is not None:
        own = _text(said, "text", MESSAGE_BYTES_MAX) if "text" in said else told
        last = f"{kind}: {own}" if own else f"{kind}"
        traceback = bounded(traceback, TRACEBACK_BYTES_MAX - len(last.encode()) - 1) + "\n" + last
    return Failure(str(category), str(code), told, kind, traceback, _place(said, "line"), _place(said, "column"))


def files(data: bytes) -> tuple[WorkFile, ...]:
    """The declared outputs that a task left."""
    said = _json(data, "list of files")
    if type(said) is not list or len(said) > FILES_MAX:
        raise Garbled("the files are not a list that a worker writes")
    return tuple(_file(one) for one in said)


def usage(read: wire.DoneRead) -> Usage:
    """What a task used; its numbers were bounded by `done`."""
    unmeasured = (IO,) if read.flags & wire.IO_UNKNOWN else ()
    return Usage(read.cpu // 1000, read.wall // 1000, read.memory, read.io_read, read.io_written, unmeasured=unmeasured)


def stream(data: bytes, truncated: bool) -> WorkStream:
    """What a task printed."""
    return WorkStream(data, None, truncated) if data or truncated else EMPTY


def count(found: Any) -> int:
    """A number that came through memory which the task could write, too."""
    return min(max(0, found), COUNT_MAX) if type(found) is int else 0


def _check_references(found: Any) -> None:
    """A result names files by their digests, and no results of other work."""
    try:
        for named in files_named(found):
            parse_digest(named)
    except InvalidInput as exc:
        raise Garbled(f"the value names a file without a digest: {_cut(exc)}") from None
    if any(True for _ in results_named(found)):
        raise Garbled("the value names the result of other work")


def _file(said: Any) -> WorkFile:
    if type(said) is not list or [type(part) for part in said] != [str, str, str, int, str]:
        raise Garbled("a file is not output, path, digest, size and type")
    output, path, digest, size, kind = said
    try:
        found = bytes.fromhex(digest)
    except ValueError:
        found = b""
    if len(found) != 32 or not 0 <= size <= COUNT_MAX:
        raise Garbled("a file has no digest and size that a file can have")
    return WorkFile(
        bounded(path, MESSAGE_BYTES_MAX), found, size, bounded(kind, NAME_CHARS_MAX), bounded(output, MESSAGE_BYTES_MAX)
    )


def _text(said: dict[str, Any], name: str, bytes_max: int) -> str | None:
    found = said.get(name)
    if found is None:
        return None
    if type(found) is not str:
        raise Garbled(f"the error's {name} is not text")
    return bounded(found, bytes_max)


def _place(said: dict[str, Any], name: str) -> int | None:
    found = said.get(name)
    if found is None:
        return None
    if type(found) is not int or not 0 <= found <= PLACE_MAX:
        raise Garbled(f"the error's {name} is not a place in a file")
    return found


def _json(data: bytes, what: str) -> Any:
    try:
        return _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as exc:
        raise Garbled(f"the {what} is not JSON: {_cut(exc)}") from None


def _cut(exc: Exception) -> str:
    return bounded(str(exc), 200)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number)
