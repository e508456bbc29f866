"""The lines of a trace as bytes, and back: NDJSON for people and tools, a CBOR sequence for exactness.

Both forms hold the same lines. In NDJSON a digest is written ``sha256:<hex>``; in CBOR every line is one canonical map. A line
has exactly the fields of its kind. The last line has the digest of all lines before it, taken over their canonical CBOR in
both forms, so a file that was cut or edited is noticed. The digest is not signed: compare a trace with its ledger to
know whether it is true.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from detent.canon import (
    DIGEST_BYTES,
    RECORD_BYTES_MAX,
    UINT64_MAX,
    NotCanonical,
    decode,
    digest_text,
    encode,
    json_decode,
    parse_digest,
)
from detent.canon.show import show
from detent.errors import DetentError, InvalidInput
from detent.kernel.outcome import STATUSES
from detent.kernel.table import State

TRACE_VERSION: Final = 1
LINE_BYTES_MAX: Final = RECORD_BYTES_MAX
"""Size of one line, in either form."""
HEADER, ITER, COMMIT, END = "run_header", "iter", "run_commit", "run_end"

_LABEL: Final = b"detent/trace/v1\0"
_CHUNK_BYTES: Final = 65_536
_STRINGS, _MAP, _NESTING = (2, 3), 5, (4, 5, 6)
"""Major types of CBOR."""
_STATES: Final = frozenset(state.value for state in State)

Line = dict[str, Any]


class TraceInvalid(InvalidInput):
    """A file that is not a trace, or one that was cut off, edited or written by another version."""

    code = "TRACE_INVALID"


class ByteStream(Protocol):
    """Anything that can be read from, once and forward."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self, size: int, /) -> bytes: ...


def _is_uint(value: object) -> bool:
    return type(value) is int and 0 <= value <= UINT64_MAX


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= 1_000


def _is_digest(value: object) -> bool:
    return type(value) is bytes and len(value) == DIGEST_BYTES


def _or_none(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or check(value)


def _is_state(value: object) -> bool:
    return type(value) is str and value in _STATES


_FIELDS: Final[Mapping[str, Mapping[str, Callable[[object], bool]]]] = {
    HEADER: {
        "t": _is_uint,
        "trace_version": _is_uint,
        "ledger": _is_text,
        "run_id": _or_none(_is_text),
        "partition_id": _is_uint,
        "orchestrator_version": _is_text,
        "table_digest": _is_text,
        "queue_policy_hash": _is_digest,
        "seed": _is_uint,
        "prng_family": _is_text,
        "numeric_policy_id": _is_text,
        "ordering_policy_id": _is_text,
        "parallel_policy_id": _is_text,
        "environment_policy_hash": _is_digest,
        "replay_token": _is_digest,
        "tick_ms": _is_uint,
    },
    ITER: {
        "t": _is_uint,
        "tick": _is_uint,
        "job_id": _is_text,
        "from_state": _is_state,
        "to_state": _is_state,
        "status": lambda value: value in STATUSES,
        "transition_seq": _is_uint,
        "attempt_id": _is_uint,
        "quota_policy_hash": _is_digest,
        "quota_verdict": _is_text,
        "reason_code": _or_none(_is_text),
        "batch_id": _or_none(_is_digest),
        "dispatch": lambda value: type(value) is bool,
        "replay_token": _is_digest,
    },
    COMMIT: {"run_id": _is_text, "transition_log_hash": _is_digest, "job_count": _is_uint, "replay_token": _is_digest},
    END: {
        "t": _is_uint,
        "transition_log_hash": _is_digest,
        "replay_token": _is_digest,
        "run_commit_record_hash": _is_digest,
        "jobs": _is_uint,
        "arrivals_digest": _is_digest,
        "manifest_signatures_digest": _is_digest,
        "lines": _is_uint,
        "lines_digest": _is_digest,
    },
}
_OPTIONAL: Final[Mapping[str, frozenset[str]]] = {END: frozenset({"run_commit_record_hash"})}
_DIGESTS: Final = frozenset(
    name for fields in _FIELDS.values() for name, check in fields.items() if name == "batch_id" or check is _is_digest
)


class LinesDigest:
    """Counts lines and digests them, one after the other."""

    __slots__ = ("_hasher", "lines")

    def __init__(self) -> None:
        self._hasher = hashlib.sha256(_LABEL)
        self.lines = 0

    def take(self, line: Line) -> bytes:
        """Take the next line and give back its canonical CBOR."""
        data = encode(line)
        self._hasher.update(data)
        self.lines += 1
        return data

    def digest(self) -> bytes:
        """The digest of the lines so far."""
        return self._hasher.digest()


def json_line(line: Line) -> bytes:
    """A line of NDJSON. ASCII only: what strangers named their jobs reaches no terminal as it is."""
    plain = {name: digest_text(value) if type(value) is bytes else value for name, value in line.items()}
    return json.dumps(plain, separators=(",", ":")).encode("ascii") + b"\n"


def read_lines(stream: ByteStream) -> Iterator[Line]:
    """Every line of a trace in either form, each with exactly the fields of its kind.

    Raises `TraceInvalid` at the first byte that does not fit. Holds no more than one line and a chunk of the file.
    """
    start = stream.read(1)
    lines = _json_lines(stream, start) if start == b"{" else _cbor_items(stream, start)
    for number, line in enumerate(lines, 1):
        _check(line, number)
        yield line


def _json_lines(stream: ByteStream, start: bytes) -> Iterator[Line]:
    number = 0
    while True:
        data = start + stream.readline(LINE_BYTES_MAX + 1)
        start = b""
        if not data:
            return
        number += 1
        if not data.endswith(b"\n"):
            raise _too_long(number) if len(data) > LINE_BYTES_MAX else _cut(f"line {number} is not whole")
        try:
            line = json_decode(data, name=f"line {number}", bytes_max=LINE_BYTES_MAX + 1)
        except DetentError as exc:
            raise _not_a_trace(str(exc)) from exc
        if not isinstance(line, dict):
            raise _not_a_trace(f"line {number} is not an object")
        for name in _DIGESTS & line.keys():
            if line[name] is not None:
                line[name] = _digest_of(line[name], name, number)
        yield line


def _digest_of(value: Any, name: str, number: int) -> bytes:
    try:
        return parse_digest(value)
    except DetentError as exc:
        raise _not_a_trace(f"line {number}: {name} is {exc}") from exc


def _cbor_items(stream: ByteStream, start: bytes) -> Iterator[Line]:
    buffer, place, number = start, 0, 0
    while True:
        end = _item_end(buffer, place)
        while end is None or end > len(buffer):
            if len(buffer) - place > LINE_BYTES_MAX:
                raise _too_long(number + 1)
            more = stream.read(_CHUNK_BYTES)
            if not more and place == len(buffer):
                return
            if not more:
                raise _cut(f"line {number + 1} is not whole")
            buffer, place = buffer[place:] + more, 0
            end = _item_end(buffer, place)
        number += 1
        if end - place > LINE_BYTES_MAX:
            raise _too_long(number)
        try:
            line: Any = decode(buffer[place:end])
        except NotCanonical as exc:
            raise _not_a_trace(f"line {number} is not canonical CBOR: {exc}") from exc
        place = end
        yield line


def _item_end(data: bytes, place: int) -> int | None:
    """Where the flat map that begins at a place ends; None where the bytes end before that is known."""
    head = _head(data, place)
    if head is None:
        return None
    major, entries, place = head
    if major != _MAP:
        raise _not_a_trace("it does not begin as a trace does")
    for _ in range(2 * entries):
        head = _head(data, place)
        if head is None:
            return None
        major, amount, place = head
        if major in _NESTING:
            raise _not_a_trace("a line holds more than plain values")
        place += amount if major in _STRINGS else 0
    return place


def _head(data: bytes, place: int) -> tuple[int, int, int] | None:
    """Major type, argument and end of the head at a place; None where the bytes end before it does."""
    if place >= len(data):
        return None
    major, short = data[place] >> 5, data[place] & 31
    if short < 24:
        return major, short, place + 1
    if short > 27:
        raise _not_a_trace("a line has a length that trace lines do not have")
    end = place + 1 + (1 << (short - 24))
    return None if end > len(data) else (major, int.from_bytes(data[place + 1 : end], "big"), end)


def _check(line: Line, number: int) -> None:
    kind = line.get("kind")
    fields = _FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        raise _not_a_trace(f"line {number} is of the unknown kind {show(kind)}")
    for name in fields.keys() - line.keys() - _OPTIONAL.get(str(kind), frozenset()):
        raise _not_a_trace(f"line {number}, a {kind}, lacks {name}")
    for name in line.keys() - fields.keys() - {"kind"}:
        raise _not_a_trace(f"line {number}, a {kind}, has the unknown field {show(name)}")
    for name, check in fields.items():
        if name in line and not check(line[name]):
            raise _not_a_trace(f"line {number}, a {kind}: {name} cannot be {show(line[name])}")


def _not_a_trace(what: str) -> TraceInvalid:
    return TraceInvalid(what, hint="give a file that `detent trace` wrote, as it wrote it")


def _cut(what: str) -> TraceInvalid:
    return TraceInvalid(f"the trace is cut off: {what}", hint="write it again with `detent trace`")


def _too_long(number: int) -> TraceInvalid:
    return TraceInvalid(
        f"line {number} is longer than {LINE_BYTES_MAX:,} bytes", hint="`detent trace` writes no such line"
    )
