"""What an ordered run is: the function, the items, the destination and how it goes; kept so that it can be found again.

Its document is the run's inputs on the ledger. Two runs are the same line typed twice when everything that was asked for is
equal and the items have the same digest; what was worked out from it (the size of a chunk) is taken from the document of the
run that is resumed, because windows and chunks never change within a run (X-183).

The items of an ordered run, fixed before it begins: one JSON text a line, as content of the home.

They come from values, from files found by patterns (numbered by the bytes of their names, each with the digest it had when it was
found), or from the rows of a JSON Lines file, where a bad line is refused by its number.

The functions of an ordered run, looked for before there is one: a name that is wrong would fail every item of it.
"""

from __future__ import annotations

import glob
import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final

from detent.canon import digest, digest_text, json_decode, json_encode_trusted, parse_digest, sha256
from detent.canon.late import dataclass
from detent.canon.strict_json import NotStrictJson
from detent.errors import InvalidInput, StoreCorrupt
from detent.executor.plain.loading import Loader, LoadFailed
from detent.jobs.order import Retries
from detent.jobs.values import escaped
from detent.ordered import FAILURE_POLICIES, OrderedConfig, discover
from detent.ordered.config import ACTIVE_MAX
from detent.ordered.seq_ledger import TOTAL_MAX
from detent.reuse.ingredients import CodeReader
from detent.store.content import ContentFiles
from detent.store.files import open_no_follow

VERSION: Final = 1
WINDOW: Final = 2048
CHUNK_MAX: Final = 256
CHUNKS_PER_WORKER: Final = 16
CHUNKS_OPEN: Final = 4
"""A chunk of default size is at most such a part of one worker's share, so that a slow one does not hold all others,
and the two open windows have `CHUNKS_OPEN` of them for each worker."""
MICRO_BATCH: Final = 1024
PAYLOAD_BYTES_MAX: Final = 8 * 1024
BUFFERED_BYTES_MAX: Final = 64 * 1024 * 1024
WRITE_DELAYS_MS: Final = (100, 1000, 5000)
COMMIT_MS: Final = 3_600_000
"""How long a destination may take over one commit, by default. It is not part of a run's inputs: a run
that ran into it is resumed with another one."""

_SPEC_LABEL: Final = b"detent/ordered/spec/v1\0"
_ITEMS_LABEL: Final = b"detent/ordered/run_items/v1\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedSpec:
    """One ordered run as it was asked for."""

    compute: str
    """``module:function`` or ``file.py:function``."""
    base: str | None = None
    """The directory that modules, scripts and files start from."""
    filter: str | None = None
    commit: str | None = None
    """The destination as it was written; None when the results are iterated over."""
    files: bool = False
    """Whether the items are files that were found, and not values."""
    name: str = "map"
    key: str | None = None
    on_error: str = "stop"
    window: int = WINDOW
    chunk: int | None = None
    retries: Retries = field(default_factory=lambda: Retries(0, ()))
    """How often an item that failed is tried again, and after which failures; those of the system always are."""
    item_ms: int | None = None
    """Time that one item may take."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The run that this one retries, and the seqs that its items had there (X-183)."""

    def __post_init__(self) -> None:
        if self.on_error not in FAILURE_POLICIES:
            raise InvalidInput(f"on_error is one of {', '.join(FAILURE_POLICIES)}, not {self.on_error!r}")
        if type(self.window) is not int or self.window < 1:
            raise InvalidInput(f"window is at least 1, not {self.window!r}")
        if self.chunk is not None and (type(self.chunk) is not int or not 1 <= self.chunk <= CHUNK_MAX):
            raise InvalidInput(f"chunk is from 1 to {CHUNK_MAX}, not {self.chunk!r}")

    def document(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "compute": self.compute,
            "base": self.base,
            "filter": self.filter,
            "commit": self.commit,
            "files": self.files,
            "name": self.name,
            "key": self.key,
            "on_error": self.on_error,
            "window": self.window,
            "chunk": self.chunk,
            "retries": [self.retries.max, list(self.retries.on)],
            "item_ms": self.item_ms,
            "origin": dict(self.origin),
        }

    @classmethod
    def read(cls, said: Any) -> OrderedSpec:
        """Read `document` back."""
        try:
            most, on = said["retries"]
            return cls(**{**said, "retries": Retries(most, tuple(on))})
        except (TypeError, KeyError, ValueError) as exc:
            raise StoreCorrupt(f"not what an ordered run was started with: {exc}") from exc

    def digest(self) -> bytes:
        """Names what was asked for, the items apart."""
        return digest(_SPEC_LABEL, json_encode_trusted(self.document()))

    def config(self, total: int, workers: int) -> OrderedConfig:
        """How a run of so many items is cut and bounded."""
        chunk = self.chunk
        if chunk is None:
            share = -(-total // (workers * CHUNKS_PER_WORKER))
            chunk = max(1, min(CHUNK_MAX, share, ACTIVE_MAX * self.window // (workers * CHUNKS_OPEN)))
        chunk = min(chunk, self.window)
        return OrderedConfig(
            total=total,
            window_size=self.window,
            chunk_size=chunk,
            micro_batch_size=MICRO_BATCH,
            buffered_bytes_max=BUFFERED_BYTES_MAX,
            payload_bytes_max=PAYLOAD_BYTES_MAX,
            failure_policy=self.on_error,
            max_retries=max(2, self.retries.max),
            write_delays_ms=WRITE_DELAYS_MS,
        )


@dataclass(frozen=True, slots=True)
class OrderedInputs:
    """What a run was started with: the spec, the items by digest, and what was worked out from both."""

    spec: OrderedSpec
    items: bytes
    config: OrderedConfig
    ingredients: Mapping[str, Any]
    """What the function is made of, so that a change of it is noticed when the run is resumed."""
    files: Sequence[str] = ()
    """Digests of the content that the items name: it must be kept."""
    step_of: str | None = None
    """The run whose step began it; None for one that a user began by hand. Others that resumed it have left a note."""

    def document(self) -> dict[str, Any]:
        """As plain JSON. It has no ``version``: that tells it from the inputs of a workflow."""
        return {
            "ordered": VERSION,
            "spec": self.spec.document(),
            "items": digest_text(self.items),
            "config": self.config.to_map(),
            "ingredients": dict(self.ingredients),
            "files": list(self.files),
            "step_of": self.step_of,
        }

    def digests(self) -> tuple[bytes, bytes]:
        """What the run's record calls contract and bindings: what was asked for, and the items."""
        return self.spec.digest(), digest(_ITEMS_LABEL, self.items)


def read_ordered(document: Any) -> OrderedInputs | None:
    """The inputs of an ordered run; None for those of another kind of run."""
    if not isinstance(document, dict) or document.get("ordered") != VERSION:
        return None
    try:
        return OrderedInputs(
            OrderedSpec.read(document["spec"]),
            parse_digest(document["items"]),
            OrderedConfig.from_map(document["config"]),
            document["ingredients"],
            tuple(document["files"]),
            document.get("step_of"),
        )
    except (KeyError, TypeError, InvalidInput) as exc:
        raise StoreCorrupt(f"not what an ordered run was started with: {exc}") from exc


PIECE_BYTES: Final = 1 << 18
LINES_MAX: Final = 64
"""Lines taken at once; an item may be large, so they are few."""
_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Items:
    """A run's items, in content."""

    digest: bytes
    path: Path
    ends: array[int]
    """Where each line ends."""

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.ends)

    def part(self, first: int, last: int) -> dict[str, object]:
        """How an order names the items ``first`` to ``last``."""
        data, start = self._slice(first, last)
        return {
            "items": digest_text(self.digest),
            "first": first,
            "offset": start,
            "length": len(data),
            "digest": sha256(data).hex(),
        }

    def lines(self, first: int, last: int) -> list[bytes]:
        """The items themselves, each as its JSON text."""
        return self._slice(first, last)[0].split(b"\n")[:-1]

    def _slice(self, first: int, last: int) -> tuple[bytes, int]:
        start = self.ends[first - 1] if first else 0
        length = self.ends[last] - start
        descriptor = open_no_follow(self.path)
        try:
            data = os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)
        if len(data) != length:
            raise StoreCorrupt(f"{self.path} is shorter than it was")
        return data, start


def spool(files: ContentFiles, lines: Iterable[bytes]) -> Items:
    """Keep items, each given as one line of strict JSON without its end; durable when this returns."""
    ends: array[int] = array("Q")
    digest = files.put(_pieces(lines, ends))
    return Items(digest, files.path(digest), ends)


def open_spool(files: ContentFiles, digest: bytes) -> Items:
    """The items of a run that was spooled before; `StoreCorrupt` when they are gone or damaged."""
    file = files.open(digest)
    if file is None:
        raise StoreCorrupt(f"the items {digest_text(digest)} are gone", hint="they were erased; begin a new run")
    ends: array[int] = array("Q")
    place = 0
    with file:
        while piece := file.read(_READ_BYTES):
            found = piece.find(b"\n")
            while found >= 0:
                ends.append(place + found + 1)
                found = piece.find(b"\n", found + 1)
            place += len(piece)
    return Items(digest, files.path(digest), ends)


def _pieces(lines: Iterable[bytes], ends: array[int]) -> Iterator[bytes]:
    held: list[bytes] = []
    size = end = 0
    taken = iter(lines)
    while some := list(islice(taken, LINES_MAX)):
        if len(ends) + len(some) > TOTAL_MAX:
            raise InvalidInput(f"an ordered run has at most {TOTAL_MAX:,} items")
        ends.extend(accumulate([len(line) + 1 for line in some[1:]], initial=end + len(some[0]) + 1))
        size += ends[-1] - end
        end = ends[-1]
        held += (b"\n".join(some), b"\n")
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def found_files(patterns: Sequence[str], base: Path) -> list[bytes]:
    """The regular files that any of the patterns matches, relative to ``base``, in the order of their names' bytes."""
    names: list[bytes] = []
    for pattern in patterns:
        raw = os.fsencode(pattern)
        names += glob.iglob(raw, root_dir=os.fsencode(base), recursive=True)  # noqa: PTH207 - bytes
    root = os.fsencode(base)
    return list(discover(names, lambda name: os.path.isfile(os.path.join(root, name))).names)  # noqa: PTH113, PTH118


def matched_files(patterns: Sequence[str], base: Path) -> list[bytes]:
    """The same; a pattern that matches no file is a mistake and raises `InvalidInput`."""
    for pattern in patterns:
        if not found_files([pattern], base):
            raise InvalidInput(
                f"no file matches {pattern!r:.200}",
                hint=f"patterns start at {base}; quote them, so that the shell leaves them as they are",
                details={"pattern": pattern},
            )
    return found_files(patterns, base)


def file_lines(names: Sequence[bytes], base: Path) -> Iterator[bytes]:
    """The files as items: name, digest and size. Raises `InvalidInput` for one that cannot be read."""
    root = os.fsencode(base)
    for name in names:
        path = os.path.join(root, name)  # noqa: PTH118 - bytes
        try:
            with open(path, "rb") as file:  # noqa: PTH123
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                size = os.fstat(file.fileno()).st_size
        except OSError as exc:
            raise InvalidInput(
                f"{os.fsdecode(name)!r} was found and cannot be read: {exc.strerror}", hint="check its permissions"
            ) from exc
        yield json_encode_trusted([_written(name), digest, size])


def shown_name(said: object) -> str:
    """A file's name as people read it, from its item."""
    raw = bytes.fromhex(said["hex"]) if isinstance(said, dict) else str(said).encode()
    return raw.decode("utf-8", "backslashreplace")


def _written(name: bytes) -> object:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return {"hex": name.hex()}


def row_lines(stream: Iterable[bytes], name: str) -> Iterator[bytes]:
    """Each row as one line of strict JSON; empty lines are left out. Raises `InvalidInput` by the number of the line."""
    for number, line in enumerate(stream, 1):
        text = line.strip()
        if not text:
            continue
        try:
            value = json_decode(text)
        except NotStrictJson as exc:
            raise InvalidInput(
                f"{name}:{number}: {exc}", hint="a row is one JSON value on one line", details={"line": number}
            ) from exc
        yield json_encode_trusted(escaped(value) if b'"$' in text else value)


def insist_on_function(target: str, base: str | None) -> None:
    """Refuse, with `InvalidInput`, a function that no worker could load.

    Where the project's source defines it, nothing is imported. Names that come about otherwise, by a package or while a module
    is loaded, are loaded here as a worker does it.
    """
    if CodeReader(base).digest(target).parts:
        return
    loader = Loader()
    try:
        loader.load(base, target)
    except LoadFailed as exc:
        because = "" if exc.cause is None else f": {type(exc.cause).__name__}: {exc.cause}"
        hint = "name a function of a module or of a file: module:function or path/file.py:function"
        raise InvalidInput(f"{exc.message}{because}", hint=hint, details={"target": target}) from exc
    finally:
        loader.leave()
