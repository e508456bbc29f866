"""Writing a bundle: the whole ledger, or one run of it, as one file that a stranger can check.

A whole bundle carries every batch with its commands, so it can be verified and replayed. A run's bundle carries the run's
own records, each with its path to its batch record and the batch's path to a signed tree head; of everybody else's records
it says nothing. Both carry what trust rests on: every announcement of keys and owners, and the reports that executors signed.

The file is built beside its place and renamed when it is whole and synced. What is read is one moment of the ledger, while
its owner may go on writing.
"""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from detent.access.certificate import worker_of
from detent.canon import decode, sha256
from detent.canon.late import dataclass
from detent.canon.merkle import NodeSource, Tree, inclusion_path, leaf_hash, root_at
from detent.errors import HomeCopied, HomeError, InvalidInput, StoreCorrupt, StoreUnavailable
from detent.inspect.audit import commits
from detent.kernel import Evidence, Run
from detent.kernel.history import WORKER_KINDS
from detent.ledger.batch import tree_origin
from detent.ledger.bundle import ITEM_BYTES_MAX, write_bundle
from detent.ledger.items import (
    SCOPE_LEDGER,
    SCOPE_RUN,
    BatchItem,
    ContentItem,
    HeaderItem,
    HeadItem,
    Item,
    PartialItem,
    PartialRecord,
)
from detent.ledger.note import TreeHead, sign_head
from detent.ledger.signing import report_named
from detent.owner.content import Content
from detent.owner.decision_records import read_decisions
from detent.owner.home import Home
from detent.owner.recovery import tree_node
from detent.owner.state_directory import binding_heads, refuse_copy
from detent.owner.wiring import Parts, check_kept_head, load_trust, signing_key
from detent.runs.erasable import digests_of_job
from detent.store.api import RecordRow, StoreReader
from detent.store.files import DISK

TRUST_KINDS = ("trust_changed", "owner_epoch")
"""Records that every bundle carries: who might sign, and by which configuration was decided."""
CONTENT_BYTES_MAX = ITEM_BYTES_MAX - 1024
"""Larger content does not fit into an item of a bundle and is left out."""
NODES_CACHED = 65_536


@dataclass(frozen=True, slots=True)
class Head:
    """A signed tree head over a partition's first ``size`` batches."""

    size: int
    note: str


@dataclass(frozen=True, slots=True)
class Exported:
    """A bundle that has been written."""

    path: Path
    scope: str
    run_id: str | None
    origin: str
    root: bytes
    """The trust root to pass on: verifiers of the bundle pin it."""
    size_bytes: int
    counts: Mapping[str, int]
    """What the file holds, and how much content was left out and why."""
    heads: Mapping[int, Head]
    """The tree head of each partition that the bundle leads to: worth keeping elsewhere."""


def export(
    home: Home,
    target: Path,
    *,
    run_id: str | None = None,
    with_content: bool = False,
    with_reports: bool = True,
    environment: Mapping[str, str],
    parts: Parts | None = None,
) -> Exported:
    """Write a bundle to a file; one that is there is replaced all at once.

    ``with_reports`` packs the executors' signed reports, so that the receiver can check their signatures; they hold small
    results and the beginning of what was printed. ``with_content`` packs everything else that the records name, too.

    Refuses a run that is not on the ledger, and a place inside the home. Batches that no tree head covers yet get a fresh
    one, for which the home's log key is needed; a ledger that is older than a tree head kept elsewhere gets none.
    """
    refuse_inside(home, target)
    with (parts or Parts()).open_snapshot(home.ledger) as reader:
        if run_id is not None and reader.run(run_id) is None:
            raise InvalidInput(f"there is no run {run_id!r}", code="UNKNOWN_RUN", hint="`detent list` shows the runs")
        trust = load_trust(reader, home.settings())
        root = trust.root_digest
        heads = tree_heads(home, reader, environment, must_cover=run_id is not None)
        tally: Counter[str] = Counter()
        items = bundle_items(
            home, reader, heads, run_id=run_id, with_content=with_content, with_reports=with_reports, tally=tally
        )
        with new_file(target) as file:
            for count, piece in enumerate(write_bundle(items)):  # noqa: B007 - the last piece marks the end: not an item
                file.write(piece)
            tally["items"] = count
        scope = SCOPE_LEDGER if run_id is None else SCOPE_RUN
        size = target.stat().st_size
        return Exported(target, scope, run_id, trust.origin, root, size, dict(sorted(tally.items())), heads)


def bundle_items(
    home: Home,
    reader: StoreReader,
    heads: Mapping[int, Head],
    *,
    run_id: str | None,
    with_content: bool,
    with_reports: bool = True,
    tally: Counter[str],
) -> Iterator[Item]:
    """Everything a bundle holds, in its order; counts what goes by."""
    tick = max(reader.head(partition).last_tick for partition in range(reader.partitions))
    scope = SCOPE_LEDGER if run_id is None else SCOPE_RUN
    yield HeaderItem(reader.origin, reader.partitions, scope, run_id, tick)
    for partition, head in heads.items():
        tally["tree_heads"] += 1
        yield HeadItem(partition, head.note)
    for item in ledger_items(reader) if run_id is None else run_items(reader, run_id, heads):
        tally["batches"] += 1
        tally["records"] += len(item.records)
        yield item
    content = Content(reader, home.content_files())
    if with_content:
        named = digests_of_run(reader, run_id) if run_id is not None else (digest for digest, _ in content.digests())
        yield from _content_items(home, reader, content, dict.fromkeys(named), tally, "content")
        if run_id is None:
            yield from _decision_items(reader, tally)
    elif with_reports:
        yield from _content_items(home, reader, content, reports(reader, run_id), tally, "reports")


def tree_heads(home: Home, reader: StoreReader, environment: Mapping[str, str], *, must_cover: bool) -> dict[int, Head]:
    """A signed tree head over all batches of each partition: the stored one, or one signed now.

    Without the log key the newest stored one has to do, unless it ``must_cover`` everything.
    """
    trust = load_trust(reader, home.settings())
    kept = dict(binding_heads(home, trust, environment))
    found = {}
    for partition in range(reader.partitions):
        size = reader.head(partition).size
        newest = next(reader.tree_heads(partition), None)
        if newest is not None and newest.size == size:
            found[partition] = Head(size, newest.note)
            continue
        try:
            refuse_copy(home, trust.origin, environment)  # It must not sign in the original's name.
            if partition in kept:
                check_kept_head(reader, kept[partition], partition)
            found[partition] = _signed_now(home, reader, partition, size)
        except (HomeError, HomeCopied):
            if must_cover:
                raise
            if newest is not None:
                found[partition] = Head(newest.size, newest.note)
    return found


def ledger_items(reader: StoreReader) -> Iterator[BatchItem]:
    """Every batch of every partition with its records."""
    for partition in range(reader.partitions):
        for batch, records in commits(reader, partition):
            yield BatchItem(
                partition,
                batch.body,
                batch.signature,
                batch.commands,
                [(record.body, record.evidence) for record in records],
            )


def run_items(reader: StoreReader, run_id: str, heads: Mapping[int, Head]) -> Iterator[PartialItem]:
    """The batches that hold a run's records, and those that trust rests on, with these records alone and their paths."""
    for partition, by_batch in sorted(_positions_of_run(reader, run_id).items()):
        node = lru_cache(NODES_CACHED)(partial(tree_node, reader, partition))
        for batch_no, positions in sorted(by_batch.items()):
            yield _partial_item(reader, partition, batch_no, sorted(positions), heads[partition].size, node)


def digests_of_run(reader: StoreReader, run_id: str) -> Iterator[bytes]:
    """Every digest of content that a run and its jobs name."""
    row = reader.run(run_id)
    if row is not None:
        run = Run.decode(row.body)
        yield from (run.contract_digest, run.bindings_digest, run.inputs_digest)
    for job in reader.jobs(run_id=run_id):
        yield from digests_of_job(reader, job.job_id)


def reports(reader: StoreReader, run_id: str | None) -> Iterator[bytes]:
    """The digest of every signed report that the records of a run, or of the whole ledger, name."""
    if run_id is None:
        records = chain.from_iterable(map(reader.records, range(reader.partitions)))
    else:
        records = chain.from_iterable(reader.records_of_job(job.job_id) for job in reader.jobs(run_id=run_id))
    for row in records:
        if row.kind == "transition" and row.evidence is not None and (named := report_named(row.evidence)) is not None:
            yield named


def _signed_now(home: Home, reader: StoreReader, partition: int, size: int) -> Head:
    trust = load_trust(reader, home.settings(), partition)
    origin = tree_origin(trust.origin_of_head(size), partition)
    key = signing_key(home, trust, "log", size, partition)
    root = root_at(size, partial(tree_node, reader, partition))
    return Head(size, sign_head(TreeHead(origin, size, root), origin, key))


def _positions_of_run(reader: StoreReader, run_id: str) -> dict[int, dict[int, set[int]]]:
    """Partition -> batch -> positions of the records that a run's bundle shows."""
    found: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    of_jobs = (reader.records_of_job(job.job_id) for job in reader.jobs(run_id=run_id))
    of_trust = (
        reader.records_of_kind(partition, kind) for partition in range(reader.partitions) for kind in TRUST_KINDS
    )
    for row in chain(reader.records_of_run(run_id), chain.from_iterable(of_jobs), chain.from_iterable(of_trust)):
        found[row.partition][row.batch_no].add(row.position)
    for row in chain(_workers_of_run(reader, run_id), _actions_of_run(reader, run_id)):
        found[row.partition][row.batch_no].add(row.position)
    named = frozenset(digests_of_run(reader, run_id))
    for partition in range(reader.partitions):
        for row in reader.records_of_kind(partition, "erased"):
            if not named.isdisjoint(decode(row.body)["digests"]):
                found[row.partition][row.batch_no].add(row.position)
    return found


def _workers_of_run(reader: StoreReader, run_id: str) -> Iterator[RecordRow]:
    """Enrolments and retirements of the workers that ran its jobs: their certificates are what their signatures rest on."""
    of_workers = [
        (row, decode(row.body)["worker_id"])
        for partition in range(reader.partitions)
        for kind in WORKER_KINDS
        for row in reader.records_of_kind(partition, kind)
    ]
    if not of_workers:
        return
    workers = {
        worker_of(evidence.replica_id)
        for job in reader.jobs(run_id=run_id)
        for row in reader.records_of_job(job.job_id)
        if row.kind == "transition" and row.evidence is not None
        if (evidence := Evidence.decode(row.evidence)).replica_id is not None
    }
    yield from (row for row, worker_id in of_workers if worker_id in workers)


def _actions_of_run(reader: StoreReader, run_id: str) -> Iterator[RecordRow]:
    """What operators asked for about the run and its jobs, and the making of keys with which they signed that."""
    objects = {("run", run_id)}
    made: dict[str, RecordRow] = {}
    asked: list[RecordRow] = []
    for partition in range(reader.partitions):
        for row in reader.records_of_kind(partition, "operated"):
            body = decode(row.body)
            kind, name = body["object_kind"], body["object_id"]
            if body["action"] == "key.create" and body["outcome_code"] == "OK":
                made[name] = row
            elif (kind, name) in objects or (kind == "job" and _is_of_run(reader, name, run_id)):
                asked.append(row)
    yield from asked
    signed = {decode(row.body)["credential_id"] for row in asked if b"signature" in (row.evidence or b"")}
    yield from (made[credential] for credential in sorted(signed & made.keys()))


def _is_of_run(reader: StoreReader, job_id: str, run_id: str) -> bool:
    row = reader.job(job_id)
    return row is not None and row.run_id == run_id


def _partial_item(
    reader: StoreReader, partition: int, batch_no: int, positions: list[int], tree_size: int, node: NodeSource
) -> PartialItem:
    batch = reader.batch(partition, batch_no)
    if batch is None:
        raise _damaged(partition, batch_no)
    first = batch.first_position
    rows = list(reader.records(partition, first, first + batch.record_count))
    if len(rows) != batch.record_count or not first <= positions[0] <= positions[-1] < first + len(rows):
        raise _damaged(partition, batch_no)
    tree = Tree([leaf_hash(row.body) for row in rows])
    shown = [
        PartialRecord(index, rows[index].body, rows[index].evidence, tree.inclusion_path(index))
        for index in (position - first for position in positions)
    ]
    path = inclusion_path(batch_no, tree_size, node)
    return PartialItem(partition, batch.body, batch.signature, shown, path)


def _content_items(
    home: Home, reader: StoreReader, content: Content, named: Iterable[bytes], tally: Counter[str], counted: str
) -> Iterator[ContentItem]:
    files = home.content_files()
    for digest in named:
        if (files.size(digest) or 0) > CONTENT_BYTES_MAX:
            tally["content_too_large"] += 1
            continue
        try:
            data = content.get(digest)
        except StoreCorrupt:
            tally["content_damaged"] += 1
            continue
        if data is None:
            tally["content_erased" if reader.is_erased(digest) else "content_absent"] += 1
            continue
        tally[counted] += 1
        yield ContentItem(digest, data)


def _decision_items(reader: StoreReader, tally: Counter[str]) -> Iterator[ContentItem]:
    """The decisions that are kept with batches, each once, under the digest by which its records name it."""
    written: set[bytes] = set()
    for partition in range(reader.partitions):
        for row in reader.decisions(partition):
            try:
                decisions = read_decisions(row)
            except StoreCorrupt:
                tally["content_damaged"] += 1
                continue
            for decision in decisions:
                digest = sha256(decision)
                if digest not in written:
                    written.add(digest)
                    tally["content"] += 1
                    yield ContentItem(digest, decision)


def refuse_inside(home: Home, target: Path) -> None:
    """Refuse to write a file into a home, where it would be taken for a part of it."""
    if home.path.resolve() in target.resolve().parents:
        raise InvalidInput(f"{target} lies inside the home", hint="write the file somewhere else")


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name whole and synced, or not at all."""
    temporary = target.with_name(f"{target.name}.{secrets.token_hex(4)}.new")
    try:
        with temporary.open("xb") as file:
            yield file
        DISK.sync_file(temporary)
        temporary.replace(target)
        DISK.sync_directory(target.parent)
    except OSError as exc:
        raise StoreUnavailable(
            f"{target} cannot be written: {exc.strerror or exc}",
            hint="check that its directory exists, is writable and has space",
            retryable=False,
        ) from exc
    finally:
        temporary.unlink(missing_ok=True)


def _damaged(partition: int, batch_no: int) -> StoreCorrupt:
    return StoreCorrupt(
        f"batch {batch_no} of partition {partition} is not whole, so its records cannot be proved",
        hint="run `detent verify` to see what was changed",
        details={"partition": partition, "batch_no": batch_no},
    )
