"""What a worker does with a chunk: reads its items, calls the user's function on each, and says how each one ended.

One item's exception is that item's failure only. What concerns the machine (a disk that cannot keep a file)
ends the attempt, and the kernel tries again. The answer is written as JSON piece by piece, because every value is needed as
bytes anyway, for its digest; its form is read by `chunk_result`.

Leaves and root are those of `detent.ordered.ChunkOutcomes`; they are written out here because a worker that loads that room
takes twice as long to be ready. A test compares them.
"""

# pathlib would be the largest thing that a worker loads.
# ruff: noqa: PTH109, PTH116, PTH118, PTH123

from __future__ import annotations

import binascii
import hashlib
import json
import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from detent.executor.plain import current, loading, stored, telling
from detent.runs.ordered.item_outcome import FAILED, SKIP, SKIPPED, SUCCESS, ItemFailed

if TYPE_CHECKING:
    from detent.runs.ordered.timed_chunk import ItemDeadline

VALUE_BYTES_MAX: Final = 60 * 1024
"""Of one item's result as JSON. Larger ones travel as `detent.File`."""

_JSON_LABEL: Final = b"detent/json/v1\0"
_LEAF: Final = b"\0detent/ordered/item/v1\0"
_HEAD: Final = struct.Struct(">QBB")
_USER: Final = "USER_CODE_ERROR"
_COROUTINE: Final = 0x80
"""`inspect.CO_COROUTINE`; that module takes long to load."""
_PLAIN_INT: Final = 1 << 60
"""Integers below this are written without a further look."""

_loaders: dict[str, loading.Loader] = {}
"""By directory: two projects may have functions of the same name."""


def compute_chunk(work: dict[str, Any], part: dict[str, Any]) -> stored.Encoded:
    """Compute the items of one chunk. Raises only for what ends the whole attempt."""
    content = current.content()
    data = _spooled(content, part)
    patience = _patience(work)
    loader = _loaders.setdefault(os.getcwd(), loading.Loader())
    compute = loader.load(None, work["compute"])
    keep = loader.load(None, work["filter"]).function if work.get("filter") else None
    prepare = _prepare(work, data)
    running = current.running()
    attempt = running.parts[2] - 1 if running is not None else 0
    give_up = attempt >= work.get("retries", 0)
    codes: list[str] = []
    values: list[bytes] = []
    errors: list[list[Any]] = []
    if patience is not None:
        _load_for(prepare, keep, compute.function)
        one = partial(_one, prepare, keep, compute.function, content=content)
        ended = _timed(patience, work, data, one, compute.source, attempt)
        codes = [code for code, _ in ended]
        values = [said for code, said in ended if code == SUCCESS]
        errors = [[index, said] for index, (code, said) in enumerate(ended) if code == FAILED]
        return _answer(part["first"], codes, values, errors)
    for index, item in enumerate(_items(data)):
        try:
            value = _one(prepare, keep, compute.function, item, content)
        except stored.Unfit as exc:
            if exc.category == "INTERNAL_ERROR" or not give_up:
                raise
            codes.append(FAILED)
            errors.append([index, {"category": exc.category, "code": exc.code, "message": exc.message}])
        except (Exception, SystemExit) as exc:
            if not give_up and not isinstance(exc, ItemFailed):
                raise
            codes.append(FAILED)
            errors.append([index, _told(exc, compute.source)])
        else:
            if value is None:
                codes.append(SKIPPED)
            else:
                codes.append(SUCCESS)
                values.append(value)
    return _answer(part["first"], codes, values, errors)


def _patience(work: dict[str, Any]) -> ItemDeadline | None:
    """Of a chunk whose items have a limit; from here on its module is being loaded."""
    if "item_ms" not in work:
        return None
    from detent.runs.ordered.timed_chunk import ItemDeadline  # noqa: PLC0415 - most chunks have none

    patience = ItemDeadline(work["item_ms"])
    patience.load()
    return patience


def _load_for(prepare: Callable[[Any, str], Any] | None, *functions: Callable[[Any], Any] | None) -> None:
    """Load what items will need of ours: else the first one pays for it out of its own time, in each fork anew."""
    if prepare is _file_item:
        import pathlib  # noqa: F401, PLC0415
    if any(getattr(getattr(one, "__code__", None), "co_flags", 0) & _COROUTINE for one in functions):
        import asyncio  # noqa: F401, PLC0415


def _timed(
    patience: ItemDeadline,
    work: dict[str, Any],
    data: bytes,
    one: Callable[[Any], bytes | None],
    source: str | None,
    attempt: int,
) -> list[tuple[str, Any]]:
    """How each item of such a chunk ended."""
    from detent.runs.ordered.timed_chunk import Judge, apart, in_turn  # noqa: PLC0415

    judge = Judge(one, lambda exc: _told(exc, source), work, give_up=attempt >= work.get("retries", 0))
    compute = in_turn if attempt == 0 else apart
    return list(compute(_items(data), judge, patience))


def _items(data: bytes) -> list[Any]:
    # One text for all items: reading each by itself takes three times as long, and no JSON text holds a bare line feed.
    items: list[Any] = json.loads(b"[%b]" % data[:-1].replace(b"\n", b","))
    return items


def _prepare(work: dict[str, Any], data: bytes) -> Callable[[Any, str], Any] | None:
    """What makes of a stored item what the function is given; None where it is given as it is stored."""
    if work.get("files"):
        return _file_item
    return _restored_item if b'"$' in data else None


def _one(
    prepare: Callable[[Any, str], Any] | None,
    keep: Callable[[Any], Any] | None,
    function: Callable[[Any], Any],
    item: Any,
    content: str,
) -> bytes | None:
    """The value of one item as stored JSON; None for an item that is skipped."""
    if prepare is None and keep is None:
        found = function(item)
        if type(found) is int and -_PLAIN_INT < found < _PLAIN_INT:
            return b"%d" % found
    else:
        item = item if prepare is None else prepare(item, content)
        given = item.path if type(item) is _FoundFile else item
        if keep is not None and not _awaited(keep(given)):
            return None
        found = function(given)
    found = _awaited(found)
    if type(item) is _FoundFile:
        item.insist()  # A value computed from a file that changed meanwhile is not a result.
    return None if found is SKIP else stored.result(found, content, VALUE_BYTES_MAX)


def _awaited(found: Any) -> Any:
    if type(found).__name__ == "coroutine" and hasattr(found, "__await__"):
        import asyncio  # noqa: PLC0415 - only where a function is async

        return asyncio.run(found)
    return found


def _spooled(content: str, part: dict[str, Any]) -> bytes:
    """The items of the chunk as they were spooled, a line each, checked against the digest in the order."""
    name = part["items"].removeprefix("sha256:")
    path = os.path.join(content, name[:2], name[2:])
    try:
        with open(path, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), part["length"], part["offset"])
    except OSError as exc:
        raise stored.Unfit(
            "DEPENDENCY_ERROR", "DEPENDENCY_MISSING", f"the items of the run cannot be read: {exc.strerror}"
        ) from exc
    if sha256(data).hexdigest() != part["digest"]:
        raise stored.Unfit("DEPENDENCY_ERROR", "DEPENDENCY_MISMATCH", f"{path} does not hold the run's items")
    return data


def _restored_item(value: Any, content: str) -> Any:
    return stored.restored(value, {}, content)


class _FoundFile:
    """A file that discovery found, with the bytes it had then."""

    __slots__ = ("_digest", "_name", "_stat", "path")

    def __init__(self, name: bytes, digest: str, size: int) -> None:
        from pathlib import Path  # noqa: PLC0415 - what the user's function is given

        self._name = name
        self._digest = digest
        self.path = Path(os.fsdecode(name))
        self._stat = self._look()
        if self._stat[0] != size or self._hash() != digest:
            raise self._changed()

    def insist(self) -> None:
        """Raise if the file is not any more what it was when it was hashed."""
        if self._look() != self._stat and self._hash() != self._digest:
            raise self._changed()

    def _look(self) -> tuple[int, int, int]:
        try:
            found = os.stat(self._name)
        except OSError as exc:
            raise ItemFailed("DEPENDENCY_MISSING", f"{self._name!r} is gone since discovery: {exc.strerror}") from exc
        return found.st_size, found.st_mtime_ns, found.st_ino

    def _hash(self) -> str:
        try:
            with open(self._name, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as exc:
            raise ItemFailed("DEPENDENCY_MISSING", f"{self._name!r} cannot be read: {exc.strerror}") from exc

    def _changed(self) -> ItemFailed:
        return ItemFailed("DEPENDENCY_MISMATCH", f"{self._name!r} has changed since discovery")


def _file_item(found: Any, _content: str) -> _FoundFile:
    name, digest, size = found
    return _FoundFile(bytes.fromhex(name["hex"]) if type(name) is dict else name.encode(), digest, size)


def _told(exc: BaseException, source: str | None) -> dict[str, Any]:
    if isinstance(exc, ItemFailed):
        return {"category": "DEPENDENCY_ERROR", "code": exc.code, "message": str(exc)}
    exc = exc.with_traceback(_inner(exc.__traceback__))
    said = {name: value for name, value in telling.story(exc, source).items() if value is not None}
    code = "EXITED" if isinstance(exc, SystemExit) else "PYTHON_EXCEPTION"
    message = telling.quick_message(exc)
    return {
        "category": _USER,
        "code": code,
        "message": telling.slow_message(exc) if message is None else message,
        **said,
    }


def _inner(place: Any) -> Any:
    """A traceback without the frames of this module."""
    while place is not None and place.tb_frame.f_code.co_filename == __file__ and place.tb_next is not None:
        place = place.tb_next
    return place


def _answer(first: int, codes: Sequence[str], values: Sequence[bytes], errors: list[list[Any]]) -> stored.Encoded:
    """Keys in order, and the values last: who only needs the outcomes does not read them."""
    digests = [sha256(_JSON_LABEL + value).digest() for value in values]
    head = {
        "codes": "".join(codes),
        "digests": binascii.b2a_base64(b"".join(digests), newline=False).decode(),
        "errors": errors,
        "first": first,
        "root": _root(_leaves(first, codes, digests)).hex(),
    }
    return stored.Encoded(stored.written(head)[:-1] + b',"values":[' + b",".join(values) + b"]}")


def _leaves(first: int, codes: Sequence[str], digests: Sequence[bytes]) -> list[bytes]:
    pack, given = _HEAD.pack, iter(digests)
    if len(digests) == len(codes):
        return [sha256(_LEAF + pack(seq, 3, 32) + digest).digest() for seq, digest in enumerate(digests, first)]
    return [
        sha256(_LEAF + (pack(seq, 3, 32) + next(given) if code == SUCCESS else pack(seq, int(code), 0))).digest()
        for seq, code in enumerate(codes, first)
    ]


def _root(leaves: list[bytes]) -> bytes:
    """The root of RFC 6962 over one or more leaf hashes."""
    while len(leaves) > 1:
        odd = leaves[-1:] if len(leaves) % 2 else []
        pairs = iter(leaves)
        leaves = [sha256(b"\1" + left + right).digest() for left, right in zip(pairs, pairs, strict=False)]
        leaves += odd
    return leaves[0]
