"""`detent copy FROM TO`: a ledger moves from one store to another, and goes on there with the same keys and the same name.

All rows are copied as they are, so everything that was signed stays signed, bundles from before still verify, and both stores give
the same hash of the log. It is done in pieces, and one that was cut short goes on where it ended. At the end both sides are
read and compared; only then is the source marked and the home led to the target: the source can be read for ever and is never
written to again. Two ledgers of one name that both go on would be a fork.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from detent.canon import digest_text
from detent.canon.late import NamedTuple
from detent.canon.merkle import root_at
from detent.errors import HomeError, InvalidInput, StoreCorrupt
from detent.kernel.identity import transition_log_hash
from detent.owner.home import Home, is_home
from detent.owner.home_permissions import insist_on_own
from detent.owner.ledgers import (
    LedgerPlace,
    held_ledger,
    mark_moved,
    moved_to,
    open_ledger,
    parse_store,
    set_store,
    unmark_moved,
)
from detent.owner.lock import held_alone
from detent.owner.place import DIRECTORY
from detent.owner.recovery import tree_node
from detent.store.api import LedgerReader, Load, StoreReader
from detent.store.files import DISK
from detent.store.sqlite import SqliteStore

_T = TypeVar("_T")

PIECE_BATCHES: Final = 500
PIECE_ROWS: Final = 2_000
_UNFINISHED: Final = ".copying"


class Moved(NamedTuple):
    """What a copy came to."""

    origin: str
    batches: int
    jobs: int
    resumed_at: int
    """Batches that an earlier attempt had copied."""
    log_hash: bytes
    roots: Sequence[bytes]
    """Of the tree of each partition."""


def move_ledger(source: LedgerPlace, target: LedgerPlace, home: Home | None) -> Moved:
    """Copy a ledger, compare both, and let the target take its place; in ``home``, if one is given, from now on.

    Refuses a target that holds anything but an unfinished copy of the same ledger, and a source that another process owns.
    """
    with ExitStack() as held:
        if home is not None:
            held.enter_context(
                held_alone(home.lock, "no process may work on the home while its ledger moves: stop that one first")
            )
        if moved_to(source) is None:
            held.enter_context(held_ledger(source, Path(os.devnull) if home is None else home.socket))
        reader = held.enter_context(closing(open_ledger(source)))
        moment = held.enter_context(reader.snapshot())
        moved = _already_there(moment, target) or _copy(moment, target)
    mark_moved(source, str(target))
    if home is not None:
        set_store(home.path, target)
    return moved


def ends_of(source: str, target: str) -> tuple[LedgerPlace, LedgerPlace, Home | None]:
    """The places that a move goes between, each given as a home or as the URL of a store, and the home that goes along."""
    begin, of_source = _end(source, "FROM")
    end, of_target = _end(target, "TO")
    if of_target is not None:
        if of_source is not None and of_source.path != of_target.path:
            raise InvalidInput(
                f"{source} and {target} are two homes",
                hint="`cp -r`, then `detent copy` without arguments, copies a home",
            )
        end = of_target.ledger_file
        if of_source is None and of_target.ledger != begin:
            raise InvalidInput(
                f"the ledger of {target} is not in {begin}",
                hint="give the home whose settings name that store, and its keys",
            )
    if begin == end:
        raise InvalidInput("FROM and TO are the same place")
    return begin, end, of_source or of_target


def _end(said: str, name: str) -> tuple[LedgerPlace, Home | None]:
    if "://" in said:
        return parse_store(said, name, password=False), None
    for path in (Path(said), Path(said) / DIRECTORY):
        if is_home(path):
            insist_on_own(path, os.environ, found=False)
            home = Home(path.absolute())
            return home.ledger, home
    raise InvalidInput(
        f"{said} is neither a home nor the URL of a store", hint="name a .detent directory, or postgresql://..."
    )


def _copy(source: StoreReader, target: LedgerPlace) -> Moved:
    loader = _loader(target, source.origin, source.partitions)
    try:
        sizes = loader.sizes()
        for partition, done in enumerate(sizes):
            for piece in _log(source, partition, done):
                loader.load(piece)
        for piece in _rest(source):
            loader.load(piece)
        copied = loader.finish(_last(source))
    finally:
        loader.close()
    with closing(copied) as found:
        return compared(source, found, sum(sizes))


def compared(source: StoreReader, target: StoreReader, resumed_at: int = 0) -> Moved:
    """Insist that two stores hold the same ledger: every batch and record, every head, the same log hash and trees."""
    for name, one, other in (
        ("the hash of the log", log_hash(source), log_hash(target)),
        ("the roots of the trees", roots(source), roots(target)),
        ("the history", history_digest(source), history_digest(target)),
    ):
        if one != other:
            raise StoreCorrupt(
                f"the copy differs from its source: {name} is another one",
                hint="nothing was moved: remove the copy and try again; `detent verify` says whether the source is sound",
            )
    sizes = [source.head(partition).size for partition in range(source.partitions)]
    return Moved(
        source.origin, sum(sizes), sum(source.job_counts().values()), resumed_at, log_hash(source), roots(source)
    )


def log_hash(reader: StoreReader) -> bytes:
    """The hash of all jobs' heads (X-050)."""
    heads = [(head.job_id, head.transition_seq, head.head) for head in reader.job_heads()]
    return transition_log_hash(len(heads), heads)


def roots(reader: StoreReader) -> list[bytes]:
    """The root of each partition's tree."""
    return [
        root_at(reader.head(partition).size, partial(tree_node, reader, partition))
        for partition in range(reader.partitions)
    ]


def history_digest(reader: StoreReader) -> bytes:
    """A digest over every batch and record with all that is stored beside it."""
    digest = sha256()
    for partition in range(reader.partitions):
        for row in (*reader.tree_heads(partition), *reader.checkpoints(partition)):
            digest.update(repr(row).encode())
        for batch in reader.batches(partition):
            digest.update(repr(batch).encode())
        for record in reader.records(partition):
            digest.update(repr(record).encode())
    return digest.digest()


def _already_there(source: StoreReader, target: LedgerPlace) -> Moved | None:
    """What an earlier attempt came to that ended before it could mark its source; `HomeError` for any other ledger there."""
    try:
        found = open_ledger(target)
    except Exception as exc:
        if isinstance(target, Path) and target.exists():
            raise HomeError(f"{target} is there already", hint="move it away first") from exc
        return None
    with closing(found):
        same = found.origin == source.origin and all(
            found.head(number)[1:] == source.head(number)[1:] for number in range(source.partitions)
        )
        if not same:
            raise HomeError(
                f"{target} is another ledger already, {found.origin}",
                hint="copy to a place where nothing is: a new schema (?schema=NAME), or another directory",
            )
        return compared(source, found, source.head(0).size)


def _log(source: StoreReader, partition: int, done: int) -> Iterator[Load]:
    """The history of a partition from a batch on, in pieces of whole batches."""
    size = source.head(partition).size
    for first in range(done, size, PIECE_BATCHES):
        batches = list(source.batches(partition, first, first + PIECE_BATCHES))
        begin, end = batches[0].first_position, batches[-1].first_position + batches[-1].record_count
        yield Load(
            batches=batches,
            decisions=list(source.decisions(partition, first, first + PIECE_BATCHES)),
            records=list(source.records(partition, begin, end)),
        )


def _rest(source: StoreReader) -> Iterator[Load]:
    """What is folded from the history or lies beside it; a piece that is there already changes nothing."""
    for jobs in _pieces(source.jobs()):
        yield Load(jobs=jobs)
    for runs in _pieces(source.runs()):
        yield Load(runs=runs)
    for digests in _pieces(digest for digest, _ in source.content_digests()):
        yield Load(content=list(source.contents(digests)))
    for erased in _pieces(source.erased_digests()):
        yield Load(erased=erased)
    for work in _pieces(source.work_rows()):
        yield Load(work=work)
    for elements in _pieces(source.work_element_rows()):
        yield Load(elements=elements)
    for labels in _pieces(source.label_rows()):
        yield Load(labels=labels)
    for answers in _pieces(source.answer_rows()):
        yield Load(answers=answers)


def _last(source: StoreReader) -> Load:
    """What is kept once, together with the end of the copy: the bounded log of refusals, checkpoints and tree heads."""
    numbers = range(source.partitions)
    return Load(
        checkpoints=[row for number in numbers for row in source.checkpoints(number)],
        tree_heads=[row for number in numbers for row in source.tree_heads(number)],
        refusals=list(source.refusals(limit=2**31 - 1))[::-1],
        epochs=[(source.head(number).epoch, number) for number in numbers],
    )


def _pieces(rows: Iterator[_T]) -> Iterator[list[_T]]:
    while piece := list(islice(rows, PIECE_ROWS)):
        yield piece


class _FileLoader:
    """The target of a copy that is a file: built under another name, and renamed when it is whole."""

    def __init__(self, path: Path, origin: str, partitions: int) -> None:
        self._path, self._building = path, path.with_name(path.name + _UNFINISHED)
        if not self._building.exists():
            SqliteStore.make(self._building, origin, partitions)
        self._store = SqliteStore.open(self._building)
        if (self._store.origin, self._store.partitions) != (origin, partitions):
            self._store.close()
            raise HomeError(f"{self._building} is an unfinished copy of another ledger", hint="remove it")

    def sizes(self) -> list[int]:
        return [self._store.head(partition).size for partition in range(self._store.partitions)]

    def load(self, rows: Load) -> None:
        self._store.load(rows)

    def finish(self, rows: Load) -> LedgerReader:
        self._store.load(rows)
        self._store.close()
        self._building.rename(self._path)
        unmark_moved(self._path)
        DISK.sync_directory(self._path.parent)
        return SqliteStore.open(self._path)

    def close(self) -> None:
        self._store.close()


def _loader(target: LedgerPlace, origin: str, partitions: int) -> _FileLoader:
    if isinstance(target, Path):
        return _FileLoader(target, origin, partitions)
    from detent.store.postgres.load import PostgresLoader  # noqa: PLC0415 - most homes have no PostgreSQL

    return PostgresLoader(target, origin, partitions)  # type: ignore[return-value]


def describe(moved: Moved) -> dict[str, object]:
    """A copy for `-o json`."""
    return {
        "origin": moved.origin,
        "batches": moved.batches,
        "jobs": moved.jobs,
        "resumed_at": moved.resumed_at,
        "transition_log_hash": digest_text(moved.log_hash),
        "tree_roots": [digest_text(root) for root in moved.roots],
    }
