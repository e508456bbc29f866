"""The elements of an array: many equal calls that are one job, each with an outcome of its own.

An array job computes its elements one after the other. Its report has, for each of them, what the report of a job of its own would
have: outcome, value, failure, output and time. They are kept by columns, because most elements have a small value and nothing else,
and an object for each would cost more than the element. The root over all elements is in the signed report, so one element can
be proved without showing its neighbours.

An element that has an outcome is *settled*; the others are *open*: they were not begun, or their worker was lost. A later attempt
computes those that are open, and those whose failure is tried again, and takes over all others.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, Final

from detent.canon import UINT64_MAX, encode_trusted, json_digest
from detent.canon.grammar import CHUNK_MAX
from detent.canon.late import dataclass
from detent.canon.merkle import root_and_paths, root_of
from detent.canon.strict_json import JSON_LABEL
from detent.kernel.manifest import digest_fault

ELEMENTS_MAX: Final = CHUNK_MAX
"""Of one array."""
OPEN, SUCCEEDED, FAILED, TIMED_OUT = range(4)
"""How an element ended; open ones have not."""
_HEAD: Final = struct.Struct(">IB")
_LEAF: Final = b"\0detent/element/v1\0"
_FIELDS: Final = ("codes", "values", "started_ms", "wall_us", "contents", "failures", "streams", "attempts")
_REQUIRED: Final = frozenset(_FIELDS[:4])
_BY_PLACE: Final = frozenset(_FIELDS[4:])


def element_id(job_id: str, place: int | None) -> str:
    """What an element is called: by its array's job and its place in it. Without a place, it is the job itself."""
    return job_id if place is None else f"{job_id}.{place}"


def split_element_id(text: str) -> tuple[str, int] | None:
    """The job and the place that a text may name; None for one that is not the id of an element."""
    job_id, dot, place = text.rpartition(".")
    if not dot or not job_id or not (place.isascii() and place.isdigit()) or len(place) > len(str(ELEMENTS_MAX)):
        return None
    return (job_id, int(place)) if place == str(int(place)) else None


@dataclass(frozen=True, slots=True)
class Elements:
    """How the elements of an array ended, by their places. Failures and streams are as a report stores them."""

    codes: bytes
    """`OPEN`, `SUCCEEDED`, `FAILED` or `TIMED_OUT`, one byte each."""
    values: Sequence[bytes | None]
    """The stored values as strict JSON; None where there is none, or where it is content."""
    started_ms: Sequence[int]
    """Since 1970; 0 for what never began."""
    wall_us: Sequence[int]
    """How long each took."""
    contents: Mapping[int, Sequence[bytes]] = field(default_factory=dict)
    """Of large values: the digest of the content that holds one, and the digest of the value as a value."""
    failures: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    streams: Mapping[int, Sequence[Sequence[Any]]] = field(default_factory=dict)
    """Stdout and stderr of those that printed something."""
    attempts: Mapping[int, int] = field(default_factory=dict)
    """The attempt in which an element was settled, where that was not the attempt of the report."""

    def __len__(self) -> int:
        """How many elements there are."""
        return len(self.codes)

    @property
    def ok(self) -> bool:
        """Whether all have succeeded."""
        return self.codes.count(SUCCEEDED) == len(self.codes)

    def open(self) -> list[int]:
        """The places of those that have no outcome."""
        return [place for place, code in enumerate(self.codes) if code == OPEN]

    def again(self, categories: Container[str]) -> list[int]:
        """The places of those to compute in the next attempt: open ones, and failures of these categories."""
        if self.ok:
            return []
        return [
            place
            for place, code in enumerate(self.codes)
            if code == OPEN or (code != SUCCEEDED and self.failures[place]["category"] in categories)
        ]

    def value_digest(self, place: int) -> bytes | None:
        """The digest of an element's value as a value; None where there is none."""
        value = self.values[place]
        if value is not None:
            return json_digest(value)
        return self.contents[place][1] if place in self.contents else None

    def root(self) -> bytes:
        """The Merkle root over all elements."""
        return root_of(self._leaves())

    def proof(self, place: int) -> tuple[bytes, bytes]:
        """The leaf of one element, and its path to the root, nearest hash first, as one piece of bytes."""
        leaves = self._leaves()
        return leaves[place], root_and_paths(leaves)[1][place]

    def _leaf(self, place: int) -> bytes:
        """The leaf of one element: its place, how it ended, and what came of it."""
        return _leaf(
            place, self.codes[place], self.value_digest(place), self.failures.get(place), self.streams.get(place)
        )

    def _leaves(self) -> list[bytes]:
        if not self.failures and not self.streams and not self.contents and self.ok:
            pack, label = _HEAD.pack, JSON_LABEL  # Written out: nearly all arrays are such.
            return [
                sha256(_LEAF + pack(place, SUCCEEDED) + sha256(label + (value or b"")).digest()).digest()
                for place, value in enumerate(self.values)
            ]
        return [self._leaf(place) for place in range(len(self.codes))]

    def stored(self) -> dict[str, object]:
        """As a map for a report; what has its default is left out."""
        said: dict[str, object] = {name: getattr(self, name) for name in _FIELDS[:4]}
        for name in _FIELDS[4:]:
            if by_place := getattr(self, name):
                said[name] = [[place, by_place[place]] for place in sorted(by_place)]
        return said

    @classmethod
    def read(cls, said: object) -> Elements:
        """The reverse of `stored`; raises `ValueError` or `TypeError` for what is not such a map."""
        if not isinstance(said, dict) or not _REQUIRED <= said.keys() <= set(_FIELDS):
            raise ValueError("elements are a map of columns")
        columns: dict[str, Any] = {name: dict(value) if name in _BY_PLACE else value for name, value in said.items()}
        return cls(**columns)

    def fault(self) -> str | None:
        """Say which column is not what it must be, or nothing."""
        count = len(self.codes) if type(self.codes) is bytes else 0
        if not 1 <= count <= ELEMENTS_MAX or max(self.codes) > TIMED_OUT:
            return f"elements must have 1 to {ELEMENTS_MAX} outcomes"
        for name in ("values", "started_ms", "wall_us"):
            if type(getattr(self, name)) is not list or len(getattr(self, name)) != count:
                return f"elements.{name} must have {count} entries"
        if not all(type(number) is int and 0 <= number <= UINT64_MAX for number in (*self.started_ms, *self.wall_us)):
            return "elements have times that are not integers from 0 to 2^64-1"
        for name in _FIELDS[4:]:
            if not all(type(place) is int and 0 <= place < count for place in getattr(self, name)):
                return f"elements.{name} names an element that there is not"
        return next((fault for place in range(count) if (fault := self._fault_of(place))), None)

    def _fault_of(self, place: int) -> str | None:
        code, value, content = self.codes[place], self.values[place], self.contents.get(place)
        if (value is not None or content is not None) != (code == SUCCEEDED) or (value is not None and content):
            return f"element {place} must have one value exactly when it succeeded"
        if value is not None and type(value) is not bytes:
            return f"element {place} has a value that is not bytes"
        if content is not None and (len(content) != 2 or any(digest_fault("", one) for one in content)):
            return f"element {place} must name its value by two digests"
        if (place in self.failures) != (code in {FAILED, TIMED_OUT}):
            return f"element {place} must say why it failed exactly when it did"
        return None


def large_values(stored: object) -> Iterator[object]:
    """What holds the large values of stored elements, as far as they can be read: the digests of content."""
    contents = stored.get("contents") if isinstance(stored, dict) else None
    for entry in contents if isinstance(contents, list) else ():
        match entry:
            case [_, [content, *_]]:
                yield content


def _leaf(place: int, code: int, value: bytes | None, failure: object, streams: object) -> bytes:
    rest = b"" if failure is None and streams is None else encode_trusted([failure, streams])
    return sha256(_LEAF + _HEAD.pack(place, code) + (value or b"") + rest).digest()
