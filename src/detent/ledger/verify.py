"""Verification: read everything once, forward, and say all that does not hold.

Nothing here raises on what it reads, however hostile, and nothing stops at the first fault. Memory is bounded for any
length, as long as the caller's `Heads` is. The result is green only if no finding was made, and a finding is made whenever
something that must be proved was not: no pinned root, no green (X-178).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from detent.canon import parse_digest
from detent.canon.show import a_or_an
from detent.errors import InvalidInput
from detent.ledger.batch import parse_batch, partition_of_origin, tree_origin
from detent.ledger.batch_walk import BatchWalk
from detent.ledger.book import Book, Partition, VerifyMany, verify_each
from detent.ledger.bundle import NOT_A_BUNDLE, ByteStream, Opening, read_items
from detent.ledger.claims import not_proved, proved
from detent.ledger.findings import FINDINGS_MAX, CopyState, Finding, Findings, Report, TreeState
from detent.ledger.heads import Heads
from detent.ledger.items import (
    SCOPE_LEDGER,
    SCOPE_RUN,
    BatchItem,
    ContentItem,
    HeaderItem,
    HeadItem,
    Item,
    JobItem,
    PartialItem,
    Readable,
    RunItem,
)
from detent.ledger.note import NoteInvalid, parse_head, parse_note
from detent.ledger.rows import Reports, Rows
from detent.ledger.tree_heads import HeadClaims
from detent.ledger.trust import Version
from detent.ledger.trust_config import TrustFault

STRIDE: Final = 32
SMALL_RECORDS: Final = 8
SMALL_BYTES: Final = 64 * 1024
"""Batches up to this size are read in strides."""

_STAGE: Final[dict[type, int]] = {
    HeaderItem: 0,
    HeadItem: 1,
    BatchItem: 2,
    PartialItem: 2,
    ContentItem: 3,
    JobItem: 4,
    RunItem: 5,
}
"""The order of kinds: everything is read before what refers to it."""


def verify_bundle(
    stream: ByteStream,
    root: str | bytes | None = None,
    *,
    heads: Heads | None = None,
    kept_heads: Iterable[str] = (),
    witnesses_min: int = 0,
    witnessed_since: int | None = None,
    verify_many: VerifyMany = verify_each,
) -> Report:
    """Verify a ``.detent`` file: the report says whether it holds, every finding, what was proved and what was not.

    ``root`` is the digest of the ledger's first trust configuration, as its owner passed it on; without it the answer is
    never green. The other options are those of `verify_items`. A file that is not a bundle at all gives that one finding.
    """
    opening = Opening(stream)
    report = verify_items(
        read_items(opening),
        root=root,
        heads=heads,
        kept_heads=kept_heads,
        witnesses_min=witnesses_min,
        witnessed_since=witnessed_since,
        verify_many=verify_many,
    )
    if report.scope is not None or opening.is_of_a_bundle:
        return report
    return replace(report, findings=(NOT_A_BUNDLE,), findings_total=1, codes={NOT_A_BUNDLE.code: 1}, not_proved=())


def verify_items(  # noqa: PLR0913 - each option has its own name
    items: Iterable[Readable],
    *,
    root: str | bytes | None,
    heads: Heads | None = None,
    kept_heads: Iterable[str] = (),
    pinned_home: bool = False,
    rows_expected: bool = False,
    witnesses_min: int = 0,
    witnessed_since: int | None = None,
    verify_many: VerifyMany = verify_each,
    findings_max: int = FINDINGS_MAX,
) -> Report:
    """Verify items from wherever they come.

    ``kept_heads`` are tree heads the caller kept: the ledger must continue every one of them. ``pinned_home`` says that
    the root is the ledger's own and proves less than it seems to. ``rows_expected``: the items hold every stored row.
    ``witnesses_min`` and ``witnessed_since`` (POSIX seconds) ask for cosignatures of the newest tree heads. A malformed
    ``root`` is the caller's mistake and raises `InvalidInput`.
    """
    book = Book(
        heads=heads,
        findings=Findings(findings_max),
        root=_root_of(root),
        verify_many=verify_many,
        with_rows=rows_expected,
    )
    reading = _Reading(book, tuple(kept_heads))
    for item in _in_strides(items):
        reading.take(item)
    reading.finish(rows_expected=rows_expected)
    reading.check_witnesses(witnesses_min, witnessed_since)
    return reading.report(pinned_home=pinned_home)


class _Reading:
    """One verification under way."""

    def __init__(self, book: Book, kept_heads: tuple[str, ...]) -> None:
        self._book = book
        self._kept_heads = kept_heads
        self._stage = 0
        self._walks: dict[int, BatchWalk] = {}
        self._rows = Rows(book)
        self._reports = Reports(book, self._partition)

    @property
    def _partitions(self) -> list[Partition]:
        return [self._walks[number].partition for number in sorted(self._walks)]

    def take(self, item: Readable) -> None:
        """Check the next item."""
        if type(item) is BatchItem and self._stage == _STAGE[BatchItem]:
            # Nearly all items are batches that follow a batch.
            self._of_partition(item)
            return
        if isinstance(item, Finding):
            self._book.findings.add(item)
            return
        stage = _STAGE[type(item)]
        if self._book.header is None and stage:
            self._note("ITEM_OUT_OF_ORDER", "the first item is not a header")
            self._begin(_guessed_header(item))
        if stage < self._stage or (stage == 0 and self._book.header is not None):
            self._note("ITEM_OUT_OF_ORDER", f"{a_or_an(type(item))} stands too late and is passed over")
            return
        self._stage = stage
        if isinstance(item, HeaderItem):
            self._begin(item)
        elif isinstance(item, ContentItem):
            self._rows.content(item)
            self._reports.content(item)
        elif isinstance(item, JobItem):
            self._rows.job(item)
        elif isinstance(item, RunItem):
            self._rows.run(item)
        else:
            self._of_partition(item)

    def _begin(self, header: HeaderItem) -> None:
        self._book.header = header
        for note in self._kept_heads:
            try:
                origin = parse_head(parse_note(note).text).origin
            except NoteInvalid as exc:
                self._note("HEAD_INVALID", f"a tree head kept elsewhere cannot be read: {exc}")
                continue
            number = partition_of_origin(origin)
            if number is None or number >= header.partitions:
                self._note("HEAD_INVALID", f"a tree head kept elsewhere is of another ledger, {origin!r}")
                continue
            self._add_head(self._walk(number).partition, note, kept=True)

    def _of_partition(self, item: HeadItem | BatchItem | PartialItem) -> None:
        header = self._book.header
        if header is None or item.partition >= header.partitions:
            self._note(
                "BATCH_PARTITION_WRONG", f"an item of partition {item.partition}, which the ledger does not have"
            )
            return
        walk = self._walk(item.partition)
        if isinstance(item, HeadItem):
            self._add_head(walk.partition, item.note, kept=False)
            self._book.counts["heads"] += 1
        elif isinstance(item, BatchItem) == (header.scope == SCOPE_RUN):
            self._note("ITEM_OUT_OF_ORDER", f"{a_or_an(type(item))} in a bundle of scope {header.scope}")
        elif isinstance(item, BatchItem):
            walk.batch(item)
        else:
            walk.partial(item)

    def _walk(self, number: int) -> BatchWalk:
        walk = self._walks.get(number)
        if walk is None:
            origin = "" if self._book.header is None else self._book.header.origin
            claims = HeadClaims(number, {tree_origin(origin, number)})
            walk = self._walks[number] = BatchWalk(self._book, Partition(number, claims, origin))
        return walk

    def _partition(self, number: int) -> Partition | None:
        walk = self._walks.get(number)
        return None if walk is None else walk.partition

    def _add_head(self, partition: Partition, note: str, *, kept: bool) -> None:
        finding = partition.heads.add(note, kept=kept)
        if finding is not None:
            self._book.findings.add(finding)

    # -- the end ---------------------------------------------------------------------------------------------------------

    def finish(self, *, rows_expected: bool) -> None:
        """Everything has been read: what is missing, and what could not be asked before."""
        book, header = self._book, self._book.header
        self._reports.finish(expected=rows_expected)
        book.check_signatures()
        for walk in self._walks.values():
            walk.count(book.counts)
        self._rows.finish(expected=rows_expected)
        if book.root is None:
            self._note("TRUST_UNPINNED", "no root was given to check the ledger's trust against")
        if header is None:
            self._note("BUNDLE_MALFORMED", "there is no ledger in it")
            return
        whole = header.scope == SCOPE_LEDGER
        for partition in self._partitions:
            size = partition.frontier.size if whole else None
            for finding in partition.heads.finish(partition.trust, size):
                book.findings.add(finding)
            if not whole and partition.next_batch and partition.heads.largest is None:
                self._note(
                    "HEAD_MISSING", "a run's batches are there and no tree head that holds them", partition.number
                )
        if whole:
            empty = header.partitions - sum(1 for partition in self._partitions if partition.next_batch)
            if empty:
                self._note("TRUST_MISSING", f"{empty} of {header.partitions} partitions have no batch at all")
        else:
            self._finish_run(header)

    def _finish_run(self, header: HeaderItem) -> None:
        """The bundle of a run must hold the run, and its end."""
        run_id, found = header.run_id or "", False
        for number in sorted(self._walks):
            if self._book.runs.open(number, run_id) is not None:
                self._note("RUN_NOT_ENDED", f"run {run_id!r} has no end, so its jobs cannot be known to be all", number)
                found = True
            found = found or self._book.runs.ended(number, run_id) is not None
        if not found:
            self._note("RUN_MISSING", f"the records of run {run_id!r} are not in it")

    def check_witnesses(self, witnesses_min: int, witnessed_since: int | None) -> None:
        """Hold the newest tree heads against what the caller asks of witnesses."""
        if not witnesses_min and witnessed_since is None:
            return
        for partition in self._partitions:
            times = partition.heads.witnessed
            if len(times) < max(witnesses_min, 1):
                message = f"{len(times)} witnesses cosigned the newest tree head, {max(witnesses_min, 1)} are asked for"
                self._note("HEAD_NOT_WITNESSED", message, partition.number)
            elif witnessed_since is not None and max(times.values()) < witnessed_since:
                message = f"the newest tree head was last cosigned at {max(times.values())}, asked is {witnessed_since}"
                self._note("HEAD_STALE", message, partition.number)

    def report(self, *, pinned_home: bool) -> Report:
        """What the whole reading says."""
        book, header, partitions = self._book, self._book.header, self._partitions
        log_hash = book.jobs.log_hash() if header is not None else None
        counts = Counter(dict(sorted(book.counts.items())))
        counts.update(jobs=book.jobs.count, runs=book.runs.count, rows=self._rows.jobs + self._rows.runs)
        counts.update(self._reports.counts(), erased_contents=book.erased.count)
        executors = {key.hex(): count for key, count in sorted(book.executors.items()) if count}
        trust = next((partition.trust for partition in partitions if partition.trust is not None), None)
        return Report(
            ok=book.findings.total == 0,
            findings=book.findings.sorted(),
            findings_total=book.findings.total,
            proved=tuple(proved(book, partitions, counts)),
            not_proved=tuple(not_proved(book, partitions, counts, pinned_home=pinned_home)),
            counts=dict(counts),
            scope=None if header is None else header.scope,
            origin=None if header is None else header.origin if trust is None else trust.origin,
            copies=() if trust is None else tuple(_copy_state(version) for version in trust.copies),
            run_id=None if header is None else header.run_id,
            root=None if trust is None else trust.root_text,
            root_pinned=book.root is not None,
            transition_log_hash=log_hash,
            trees=tuple(map(_tree_state, partitions)),
            codes=dict(sorted(book.findings.codes.items())),
            executors=executors,
            workers={key.hex(): worker for key, worker in sorted(book.workers.items()) if key.hex() in executors},
        )

    def _note(self, code: str, message: str, partition: int | None = None) -> None:
        self._book.findings.add(Finding(code, message, partition))


def _in_strides(items: Iterable[Readable]) -> Iterator[Readable]:
    """The same items, small batches read a few dozen at a time.

    Reading and checking each keep the processor's caches to themselves then, which makes a ledger of small commits a
    seventh faster. Large items are never held back, so this costs no memory to speak of.
    """
    waiting: list[Readable] = []
    for item in items:
        waiting.append(item)
        small = type(item) is BatchItem and len(item.records) <= SMALL_RECORDS and len(item.commands) <= SMALL_BYTES
        if not small or len(waiting) >= STRIDE:
            yield from waiting
            waiting.clear()
    yield from waiting


def _root_of(root: str | bytes | None) -> bytes | None:
    if root is None or isinstance(root, bytes):
        if root is not None and len(root) != 32:
            raise InvalidInput(f"a root digest has 32 bytes, not {len(root)}")
        return root
    return parse_digest(root)


def _guessed_header(item: Item) -> HeaderItem:
    """For a stream without a header: enough to look at the rest, which is red already."""
    origin = ""
    if isinstance(item, BatchItem | PartialItem) and not isinstance(batch := parse_batch(item.body), TrustFault):
        origin = batch.origin
    if isinstance(item, PartialItem):
        return HeaderItem(origin, 1, SCOPE_RUN, "")
    return HeaderItem(origin, 1)


def _copy_state(version: Version) -> CopyState:
    return CopyState(version.config.copy_of or "", version.position, version.config.origin)


def _tree_state(partition: Partition) -> TreeState:
    newest = partition.heads.newest()
    size = None if newest is None else newest.head.size
    return TreeState(partition.number, partition.frontier.size, partition.frontier.root(), size)
