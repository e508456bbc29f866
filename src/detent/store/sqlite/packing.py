"""Stores records in less room: what many of them have in common is stored once, and each keeps what is its own.

The records of jobs are maps with the same names and mostly the same values; what differs is digests, ticks and ids. A *shape* is
such a record with holes where these are. The table ``shapes`` has every shape once, and a stored record is the number of its
shape and the bytes for the holes. Filling them gives the record's bytes again, and only those are signed, hashed and handed out:
this module knows nothing of what records mean, and a record that fits no shape is stored as it is. That also makes it
safe: bytes are packed only after a shape was laid over them and every byte outside the holes agreed.

A hole keeps its bytes; 64 hex digits are kept as 32 bytes; the id of the record's own job, and bytes that an earlier hole of the
record has, are not kept at all. Shapes are learnt from records that come twice. Packing is the inner loop of every commit, so a shape
is laid over a record by one `struct` call, and shapes are found by the record's length.

Nothing here has to be believed: a changed shape or a changed row gives other records, and their hashes tell. Packed bytes that
cannot be filled in are handed out as they are, so `verify` finds that one record, and reads on.

A signature that many messages share (`canon/crypto.py`) repeats its 64 bytes and most of its path in every one of them. The table
``signatures`` has the 64 bytes and each hash of the paths once; a message keeps its place and the numbers of its hashes.

The commands of a batch are read as a whole, so they are packed by zlib.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final

from detent.canon import NotCanonical, decode, encode
from detent.canon.crypto import SHARED_BYTES_MAX, SIGNATURE_BYTES
from detent.canon.merkle import HASH_BYTES

SHAPES_MAX: Final = 1_000
"""Shapes of one ledger; records of any further shape are stored as they are."""
SEEN_MAX: Final = 1_000
"""Shapes that came once and are waited for to come again."""
SHAPED_BYTES_MAX: Final = 2_048
"""Longer records are stored as they are."""
SAVED_BYTES_MIN: Final = 48
"""A shape has to save this much in each record."""

MISSES_MAX: Final = 2_000
"""Records in a row that taught no shape, after which a writer stops looking: theirs is a ledger without any."""
ZIPPED_BYTES_MIN: Final = 1_536
"""Fewer bytes of commands are stored as they are. Those of one job are 726 bytes, mostly digests: packing them saves 45 and takes
as long as the signature of the batch."""
UNZIPPED_BYTES_MAX: Final = 256 * 1024 * 1024
"""More than the commands of any batch. Bytes that say otherwise were not written here, and must not fill the memory."""

SHAPED: Final = 0xC1
"""The first byte of a packed record: CBOR's tags, which no record has."""
SHARED: Final = 0xC2
"""The first byte of a message whose shared signature was taken out."""
ZIPPED: Final = 0xC3
"""The first byte of packed commands."""
_SIZED_MAX: Final = 4 * SHAPES_MAX
"""Shapes for ids of some length that are held ready."""
VERBATIM: Final = bytes((SHAPED, 0))
"""Stands before bytes that begin like packed ones and are not."""

_JOB: Final = 0
_HEX: Final = -1
"""What the numbers in a shape's list mean beside the length of a hole: the job's id, hex digits, and from -2 on down
the hole before that has the same bytes."""
_SAME: Final = -2
_HEX_DIGITS: Final = 64

_HOLE: Final = re.compile(
    rb"(?<!msigner_key_id)(?<!qquota_policy_hash)(?<!fkey_id)X (?P<digest>(?s:.{32}))"
    rb"|(?:dtick|lcreated_tick)\x1b(?P<tick>(?s:.{8}))"
    rb"|xGsha256:(?P<hex>[0-9a-f]{64})"
    rb"|csigX@(?P<signature>(?s:.{64}))"
    rb"|(?:fjob_id|frun_id|itenant_id|jreplica_id)(?P<text>[\x61-\x77]|x[\x18-\xff])"
)
"""Where records of one shape differ. Names of fields are only a help here: any choice of holes packs and unpacks."""


class Shape:
    """A record with holes."""

    __slots__ = (
        "_bytes_of",
        "_constants",
        "_fills",
        "_head",
        "_hexes",
        "_jobs",
        "_kept",
        "_kept_size",
        "_parts",
        "_same",
        "size",
    )

    def __init__(self, number: int, pieces: list[bytes | int], job_size: int) -> None:
        """``pieces`` are constants and holes in turn; a constant comes first and last."""
        self._head = bytes((SHAPED,)) + _number(number)
        self._constants = tuple(piece for piece in pieces if isinstance(piece, bytes))
        holes = [piece for piece in pieces if isinstance(piece, int)]
        sizes: list[int] = []
        for hole in holes:
            sizes.append(
                job_size if hole == _JOB else _HEX_DIGITS if hole == _HEX else sizes[_SAME - hole] if hole < 0 else hole
            )
        laid = struct.Struct(
            ">"
            + "".join(f"{len(constant)}s{size}s" for constant, size in zip(self._constants, sizes, strict=False))
            + f"{len(self._constants[-1])}s"
        )
        self._parts = laid.unpack
        self.size = laid.size
        self._jobs = tuple(2 * index + 1 for index, hole in enumerate(holes) if hole == _JOB)
        self._hexes = tuple(index for index, hole in enumerate(holes) if hole == _HEX)
        self._same = tuple((2 * index + 1, 2 * (_SAME - hole) + 1) for index, hole in enumerate(holes) if hole <= _SAME)
        kept = [index for index, hole in enumerate(holes) if hole > 0 or hole == _HEX]
        self._kept = _getter([2 * index + 1 for index in kept])
        kept_sizes = [HASH_BYTES if holes[index] == _HEX else sizes[index] for index in kept]
        self._kept_size = sum(kept_sizes)
        self._bytes_of = struct.Struct(">" + "".join(f"{size}s" for size in kept_sizes)).unpack
        self._fills = tuple(holes)

    def pack(self, data: bytes, job: bytes) -> bytes | None:
        """A record's packed form; None if it is not of this shape. It has the shape's size."""
        parts = self._parts(data)
        if parts[::2] != self._constants:
            return None
        for at in self._jobs:
            if parts[at] != job:
                return None
        for at, earlier in self._same:
            if parts[at] != parts[earlier]:
                return None
        if not self._hexes:
            return self._head + b"".join(self._kept(parts))
        return self._pack_hex(parts)

    def _pack_hex(self, parts: tuple[bytes, ...]) -> bytes | None:
        changed = list(parts)
        for index in self._hexes:
            digits = parts[2 * index + 1]
            try:
                changed[2 * index + 1] = raw = bytes.fromhex(digits.decode())
            except ValueError:
                return None
            if raw.hex().encode() != digits:
                return None
        return self._head + b"".join(self._kept(changed))

    def unpack(self, kept: bytes, job: bytes) -> bytes | None:
        """A record from the bytes for its holes; None if they are not as many as it has."""
        if len(kept) != self._kept_size:
            return None
        given = iter(self._bytes_of(kept))
        filled: list[bytes] = []
        for hole in self._fills:
            if hole == _JOB:
                filled.append(job)
            elif hole == _HEX:
                filled.append(next(given).hex().encode())
            elif hole < 0:
                filled.append(filled[_SAME - hole])
            else:
                filled.append(next(given))
        pieces = [self._constants[0]]
        for hole_bytes, constant in zip(filled, self._constants[1:], strict=True):
            pieces += (hole_bytes, constant)
        return b"".join(pieces)


class Shapes:
    """The shapes of one ledger: those it has, and for its writer those it learns.

    ``load`` reads the stored shapes after a number. A writer calls `fresh` for what it has to store with its commit, and makes a new
    object when a commit fails.
    """

    def __init__(self, load: Callable[[int], Iterable[tuple[int, bytes]]]) -> None:
        self._load = load
        self._pieces: dict[int, list[bytes | int]] = {}
        self._sized: dict[tuple[int, int], Shape] = {}
        self._by_size: dict[tuple[int, int], list[Shape]] = {}
        self._seen: set[bytes] = set()
        self._fresh: list[tuple[int, bytes]] = []
        self._last = 0
        self._misses = 0
        self._loaded = False

    def pack(self, data: bytes, job_id: str | None) -> bytes:
        """The form in which bytes are stored."""
        job = b"" if job_id is None else job_id.encode()
        if not self._loaded:
            self._reload()
        fitting = self._by_size.get((len(data), len(job)))
        for shape in self._shapes_for(len(data), len(job)) if fitting is None else fitting:
            packed = shape.pack(data, job)
            if packed is not None:
                return packed
        if data[:1] in PACKED:
            return VERBATIM + data
        if len(data) <= SHAPED_BYTES_MAX and self._last < SHAPES_MAX and self._misses < MISSES_MAX:
            self._misses += 1
            self._learn(data, job)
        return data

    def unpack(self, data: bytes, job_id: str | None) -> bytes:
        """The bytes that are stored in a form; packed ones that cannot be read come back as they are."""
        if data[:1] != _SHAPED_MARK:
            return data
        number, at = _read_number(data, 1)
        if number == 0:
            return data[len(VERBATIM) :]
        job = b"" if job_id is None else job_id.encode()
        shape = self._shape(number, len(job))
        if shape is None:
            return data
        filled = shape.unpack(data[at:], job)
        return data if filled is None else filled

    def fresh(self) -> list[tuple[int, bytes]]:
        """Shapes that were learnt since the last call, with their numbers."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def _shape(self, number: int, job_size: int) -> Shape | None:
        shape = self._sized.get((number, job_size))
        if shape is None:
            if number not in self._pieces:
                self._reload()
            if number not in self._pieces:
                return None
            if len(self._sized) >= _SIZED_MAX:
                self._sized.clear()
            shape = self._sized[number, job_size] = Shape(number, self._pieces[number], job_size)
        return shape

    def _shapes_for(self, size: int, job_size: int) -> list[Shape]:
        """The shapes that may fit bytes of a size; remembered, until a shape is learnt."""
        every = (self._shape(number, job_size) for number in self._pieces)
        found = [shape for shape in every if shape is not None and shape.size == size]
        if len(self._by_size) > SEEN_MAX:
            self._by_size.clear()
        self._by_size[size, job_size] = found
        return found

    def _reload(self) -> None:
        self._loaded = True
        for number, body in self._load(self._last):
            self._last = max(self._last, number)
            if (pieces := _read_shape(body)) is not None:
                self._pieces[number] = pieces
        self._by_size.clear()

    def _learn(self, data: bytes, job: bytes) -> None:
        """Note the shape of bytes that fit none; the second time it is a shape of the ledger."""
        pieces = _pieces_of(data, job)
        if sum(len(piece) for piece in pieces if isinstance(piece, bytes)) < SAVED_BYTES_MIN:
            return
        body = encode(pieces)
        if body not in self._seen:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            self._seen.add(body)
            return
        self._seen.discard(body)
        self._misses = 0
        self._reload()  # Under the lock of the commit: another partition's owner may have learnt shapes, too.
        self._last += 1
        self._pieces[self._last] = pieces
        self._fresh.append((self._last, body))
        self._by_size.clear()


def _pieces_of(data: bytes, job: bytes) -> list[bytes | int]:
    """Bytes as constants and holes in turn."""
    pieces: list[bytes | int] = []
    holes: list[bytes] = []
    done = at = 0
    while (found := _HOLE.search(data, at)) is not None:
        kind = found.lastgroup
        start, end = found.span(kind or 0)
        if kind == "text":
            start, end = end, end + (data[end - 1] if end - start > 1 else data[start] & 0x1F)
        at = max(end, found.end())
        hole = data[start:end]
        if end > len(data) or not hole:
            continue
        if kind == "text" and hole == job:
            spec = _JOB
        elif hole in holes:
            spec = _SAME - holes.index(hole)
        else:
            spec = _HEX if kind == "hex" else len(hole)
        pieces += (data[done:start], spec)
        holes.append(hole)
        done = end
    return [*pieces, data[done:]]


def _read_shape(body: bytes) -> list[bytes | int] | None:
    """The pieces of a stored shape; None for bytes that are none."""
    try:
        pieces = decode(body)
    except NotCanonical:
        return None
    if not isinstance(pieces, list) or len(pieces) % 2 == 0 or len(body) > 2 * SHAPED_BYTES_MAX:
        return None
    constants, holes = pieces[::2], pieces[1::2]
    if not all(type(constant) is bytes for constant in constants):
        return None
    for index, hole in enumerate(holes):
        if type(hole) is not int or not _SAME - index < hole <= SHAPED_BYTES_MAX:
            return None
    return pieces


def _getter(indexes: list[int]) -> Callable[[tuple[bytes, ...] | list[bytes]], Iterable[bytes]]:
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda parts: [parts[index] for index in indexes]


def _number(value: int) -> bytes:
    """A number below 2^14 in one or two bytes."""
    return bytes((value,)) if value < 0x80 else bytes((0x80 | value >> 8, value & 0xFF))


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it; 0 where there is none."""
    first = data[at : at + 1]
    if not first or first[0] < 0x80:
        return (first[0] if first else 0), at + 1
    return (first[0] & 0x7F) << 8 | (data[at + 1] if at + 1 < len(data) else 0), at + 2


class SharedSignatures:
    """The signatures of one ledger that several messages share.

    ``load`` reads a stored one, ``last`` is the number of the last. A writer calls `fresh` once a commit: what was taken out
    before belongs to that commit.
    """

    def __init__(self, load: Callable[[int], bytes | None], last: Callable[[], int]) -> None:
        self._load = load
        self._find_last = last
        self._last: int | None = None
        self._open: dict[bytes, tuple[int, dict[bytes, int]]] = {}
        self._begun: list[tuple[int, bytes, dict[bytes, int]]] = []
        self._read: dict[int, bytes] = {}

    def take_out(self, envelope: bytes) -> tuple[bytes, bytes] | None:
        """What is stored in the place of a message's shared signature, and the rest of its bytes; None where there is none."""
        if not envelope.startswith(_ENVELOPE):
            return None
        start = len(_ENVELOPE) + 2 + (envelope[len(_ENVELOPE) : len(_ENVELOPE) + 1] == b"Y")
        head = envelope[len(_ENVELOPE) : start]
        size = int.from_bytes(head[1:], "big")
        if size > SHARED_BYTES_MAX or _bytes_head(size) != head:
            return None
        path = envelope[start + _SIGNED_BYTES + 4 : start + size]
        place = int.from_bytes(envelope[start + _SIGNED_BYTES : start + _SIGNED_BYTES + 4], "big")
        hashes = len(path) // HASH_BYTES
        if hashes * HASH_BYTES + _SIGNED_BYTES + 4 != size or place > 0xFFFF or not hashes:
            return None
        signed = envelope[start : start + _SIGNED_BYTES]
        number, known = self._open.get(signed) or self._begin(signed)
        if len(known) + hashes > 0xFFFF:
            number, known = self._begin(signed)
        keep = known.setdefault
        numbers = [keep(path[at : at + HASH_BYTES], len(known)) for at in range(0, len(path), HASH_BYTES)]
        taken = struct.pack(f">BIHB{hashes}H", SHARED, number, place, hashes, *numbers)
        return taken, envelope[start + size :]

    def fresh(self) -> list[tuple[int, bytes]]:
        """Signatures that were taken out since the last call, with their numbers."""
        fresh = [(number, b"".join((signed, *hashes))) for number, signed, hashes in self._begun]
        self._open, self._begun, self._last = {}, [], None
        return fresh

    def put_back(self, stored: bytes, rest: Callable[[bytes], bytes]) -> bytes:
        """A message with its signature, from its stored form; ``rest`` reads what follows it. As it is if it cannot be read."""
        if stored[:1] != SHARED_MARK or len(stored) < _TAKEN.size:
            return stored
        _, number, place, hashes = _TAKEN.unpack_from(stored)
        end = _TAKEN.size + 2 * hashes
        kept = self._kept(number)
        if kept is None or len(stored) < end:
            return stored
        at = struct.unpack_from(f">{hashes}H", stored, _TAKEN.size)
        path = b"".join([kept[_SIGNED_BYTES + HASH_BYTES * one : _SIGNED_BYTES + HASH_BYTES * (one + 1)] for one in at])
        signature = kept[:_SIGNED_BYTES] + place.to_bytes(4, "big") + path
        return b"".join((_ENVELOPE, _bytes_head(len(signature)), signature, rest(stored[end:])))

    def _begin(self, signed: bytes) -> tuple[int, dict[bytes, int]]:
        if self._last is None:
            self._last = self._find_last()
        self._last += 1
        hashes: dict[bytes, int] = {}
        self._open[signed] = begun = (self._last, hashes)
        self._begun.append((self._last, signed, hashes))
        return begun

    def _kept(self, number: int) -> bytes | None:
        kept = self._read.get(number)
        if kept is None and (kept := self._load(number)) is not None:
            if len(self._read) >= _READ_MAX:
                self._read.clear()
            self._read[number] = kept
        return kept


def _bytes_head(size: int) -> bytes:
    """What stands before a shared signature in CBOR; all of them have more than 23 bytes."""
    return b"X" + size.to_bytes(1, "big") if size < 0x100 else b"Y" + size.to_bytes(2, "big")


_ENVELOPE: Final = b"\xa2csig\xa3calggEd25519csig"
"""How a signed message begins; its signature follows."""
_SIGNED_BYTES: Final = SIGNATURE_BYTES + 4
"""Signature and size of the tree: the same for all messages under one root."""
_TAKEN: Final = struct.Struct(">BIHB")
_READ_MAX: Final = 16


def zip_commands(commands: bytes) -> bytes:
    """The form in which the commands of a batch are stored."""
    if len(commands) < ZIPPED_BYTES_MIN:
        return VERBATIM + commands if commands[:1] in PACKED else commands
    return _ZIPPED_MARK + zlib.compress(commands, 1)


def unzip_commands(stored: bytes) -> bytes:
    """The commands of a batch, from their stored form; bytes that cannot be unpacked come back as they are."""
    if stored.startswith(VERBATIM):
        return stored[len(VERBATIM) :]
    if stored[:1] != _ZIPPED_MARK:
        return stored
    unpacking = zlib.decompressobj()
    try:
        commands = unpacking.decompress(stored[1:], UNZIPPED_BYTES_MAX)
    except zlib.error:
        return stored
    return commands if unpacking.eof and not unpacking.unused_data else stored


_SHAPED_MARK: Final = bytes((SHAPED,))
SHARED_MARK: Final = bytes((SHARED,))
_ZIPPED_MARK: Final = bytes((ZIPPED,))
PACKED: Final = (_SHAPED_MARK, SHARED_MARK, _ZIPPED_MARK)
"""With what bytes begin that are not stored as they are."""
