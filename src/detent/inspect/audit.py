"""Verification and replay of a home, straight from its store.

Everything a bundle would hold is read from the rows, and beside it what only a store has: unsigned columns, stored tree
nodes, the fold of every job and run, checkpoints, content. The root is the home's own, which proves less than a root that
came another way; the report says so (X-178).

What cannot be read is a finding, not an error: damage to a file must not pass for a message about the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from detent.canon import DIGEST_BYTES, digest_text
from detent.canon.show import show
from detent.errors import DetentError, StoreCorrupt
from detent.inspect.missing_content import missing_findings
from detent.inspect.signatures import signature_checkers
from detent.inspect.unsigned_rows import Beside, Checkpoints
from detent.ledger.batch import RECORDS_PER_BATCH_MAX, BatchHeader, parse_batch, partition_of_origin
from detent.ledger.findings import Finding, Report
from detent.ledger.items import ContentItem, HeaderItem, HeadItem, Readable, batch_item, job_item, run_item
from detent.ledger.note import NoteInvalid, parse_head, parse_note
from detent.ledger.verify import verify_items
from detent.owner.content import Content
from detent.owner.home import Home
from detent.owner.settings import Settings
from detent.owner.state_directory import KeptHeads, binding_heads, ledger_name, original_of, state_directory
from detent.owner.wiring import Parts, load_trust
from detent.store.api import BatchRow, RecordRow, StoreReader, TreeHeadRow
from detent.store.content import ContentFiles
from detent.store.spill import SpilledHeads

CONTENT_LOADED_MAX = 16 * 1024 * 1024
"""Larger files are hashed piece by piece instead of being held in memory."""
TREE_HEADS_MAX = 10_000
"""Stored tree heads of a partition that are checked, the newest first; each is held until the tree has its size."""
EPOCHS_LOST_MAX = 10_000
"""Owners in a row that may have ended between taking a partition over and their first commit."""
ROWS = (
    "What no record says of a job: the usage it reported, and how far heartbeats have moved the lease of one that runs. "
    "`detent replay` compares it with the commands, byte for byte."
)

REFUSALS = "The log of refused requests that `detent explain` shows: it is not part of the signed history."


def verify_home(
    home: Home,
    *,
    environment: Mapping[str, str],
    root: bytes | None = None,
    kept_heads: Iterable[str] = (),
    parts: Parts | None = None,
) -> Report:
    """Verify the ledger of a home and everything stored beside it, as it is at this moment.

    ``root`` is a root digest that came another way than with the home; without one the home's own is pinned. The tree
    heads in the user's state directory count as kept elsewhere, beside those given.
    """
    settings, chosen = home.settings(), parts or Parts()
    kept = [*kept_heads, *_kept_here(home, settings, environment, chosen)]
    beside, checkpoints = Beside(settings.idempotency.window_ms), Checkpoints(chosen.make_queue)
    with SpilledHeads() as heads, signature_checkers() as verify_many:
        report = verify_items(
            home_items(home, settings, chosen, beside, checkpoints),
            root=settings.root if root is None else root,
            heads=heads,
            kept_heads=kept,
            pinned_home=root is None,
            rows_expected=True,
            verify_many=verify_many,
        )
    return replace(
        report, not_proved=(*report.not_proved, ROWS, REFUSALS, *beside.not_proved(), *checkpoints.not_proved())
    )


def _kept_here(home: Home, settings: Settings, environment: Mapping[str, str], parts: Parts) -> list[str]:
    """The tree heads in the user's state directory that this home must continue.

    Of a copy without an identity of its own, those that are not longer than it is: the original may have gone on since.
    """
    try:
        with parts.open_reader(home.ledger, any_schema=True) as reader:
            name = ledger_name(reader)
            sizes = [reader.head(partition).size for partition in range(reader.partitions)]
            trust = load_trust(reader, settings)
    except DetentError:
        # What is wrong with it is found below; the heads of the name that the settings give still count.
        return [note for _, note in KeptHeads(state_directory(environment), settings.origin).heads().values()]
    copied = original_of(home, name, environment) is not None
    return [
        note
        for partition, (size, note) in binding_heads(home, trust, environment)
        if not copied or (partition < len(sizes) and size <= sizes[partition])
    ]


def home_items(
    home: Home, settings: Settings, parts: Parts, beside: Beside, checkpoints: Checkpoints
) -> Iterator[Readable]:
    """Everything a home's store holds, in the order in which it can be checked; damage becomes a finding in its place."""
    try:
        for fault in parts.schema_faults(home.ledger):
            yield Finding("SCHEMA_CHANGED", fault)
        with parts.open_snapshot(home.ledger, any_schema=True) as reader:
            if reader.origin != settings.origin:
                message = f"the database calls itself {reader.origin!r}, the settings belong to {settings.origin!r}"
                yield Finding("STORED_COLUMN_DIFFERS", message)
            yield from store_items(reader, home.content_files(), settings.origin, beside, checkpoints)
            for damage in parts.damage(home.ledger):
                yield Finding("STORE_DAMAGED", f"SQLite's integrity check: {damage}")
    except StoreCorrupt as exc:
        yield Finding("STORE_DAMAGED", str(exc))


def store_items(
    reader: StoreReader, files: ContentFiles, origin: str, beside: Beside, checkpoints: Checkpoints
) -> Iterator[Readable]:
    """The ledger, its rows and its content, from a reader that stands still."""
    yield HeaderItem(origin, reader.partitions)
    for partition in range(reader.partitions):
        for head in islice(reader.tree_heads(partition), TREE_HEADS_MAX):
            yield from _head_findings(head)
            yield HeadItem(partition, head.note)
        yield from _epoch_findings(reader, partition)
    orphans: list[RecordRow] = []
    for partition in range(reader.partitions):
        for batch, records in commits(reader, partition, orphans.append):
            yield batch_item(batch, records)
    for row in orphans[:1]:
        message = f"record {row.position} and everything after it belong to no batch"
        yield Finding("POSITION_WRONG", message, row.partition, position=row.position)
    yield from content_items(reader, files)
    yield from map(job_item, reader.jobs())
    yield from map(run_item, reader.runs())
    yield from checkpoints.findings(reader)
    content = Content(reader, files)
    yield from beside.findings(content)
    yield from missing_findings(content)


def _head_findings(row: TreeHeadRow) -> Iterator[Finding]:
    """The columns of a tree head must repeat what its signed note says."""
    try:
        head = parse_head(parse_note(row.note).text)
    except NoteInvalid:
        return  # Which is found where the note is read.
    if (head.size, partition_of_origin(head.origin)) != (row.size, row.partition):
        message = f"the row of the tree head of size {head.size} says size {row.size} and partition {row.partition}"
        yield Finding("STORED_COLUMN_DIFFERS", message, row.partition)


def _epoch_findings(reader: StoreReader, partition: int) -> Iterator[Finding]:
    """A partition's epoch is that of its last batch, or higher by the owners that ended before their first commit."""
    head = reader.head(partition)
    last = reader.batch(partition, head.size - 1) if head.size else None
    if last is not None and not last.epoch <= head.epoch <= last.epoch + EPOCHS_LOST_MAX:
        message = f"the partition's row says epoch {head.epoch}, its last batch was written under {last.epoch}"
        yield Finding("STORED_COLUMN_DIFFERS", message, partition, last.batch_no)


def commits(
    reader: StoreReader, partition: int, orphan: Callable[[RecordRow], None] = lambda _: None
) -> Iterator[tuple[BatchRow, list[RecordRow]]]:
    """Every batch of a partition with its records, even from damaged rows.

    Each stored record is given to exactly one batch, by position and by what the batch record itself says, or to
    ``orphan`` when it comes after all of them: a record that is overlooked could not be found wrong.
    """
    records = reader.records(partition)
    pending = next(records, None)
    for batch in reader.batches(partition):
        header = parse_batch(batch.body)
        said = header if isinstance(header, BatchHeader) else batch
        end = said.first_position + said.record_count
        rows: list[RecordRow] = []
        while pending is not None and pending.position < end and len(rows) < RECORDS_PER_BATCH_MAX:
            rows.append(pending)
            pending = next(records, None)
        yield batch, rows
    if pending is not None:
        orphan(pending)


def content_items(reader: StoreReader, files: ContentFiles) -> Iterator[Readable]:
    """All content that is stored, in the database and in files."""
    for digest, _size in reader.content_digests():
        if type(digest) is bytes and len(digest) == DIGEST_BYTES:
            yield from _read_content(digest, partial(reader.content, digest))
        else:
            yield Finding("STORE_DAMAGED", f"content is kept under {show(digest)}, which is not a digest")
    for digest in files.digests():
        if (files.size(digest) or 0) > CONTENT_LOADED_MAX:
            yield from _large_file(reader, files, digest)
        else:
            yield from _read_content(digest, partial(files.get, digest))


def _read_content(digest: bytes, read: Callable[[], bytes | None]) -> Iterator[Readable]:
    try:
        data = read()
    except (StoreCorrupt, TypeError) as exc:  # A value that is not even bytes has no digest.
        yield Finding("CONTENT_DIGEST_WRONG", str(exc))
        return
    if data is not None:
        yield ContentItem(digest, data)


def _large_file(reader: StoreReader, files: ContentFiles, digest: bytes) -> Iterator[Readable]:
    try:
        file = files.open(digest)
    except StoreCorrupt as exc:
        yield Finding("CONTENT_DIGEST_WRONG", str(exc))
        return
    if file is not None:
        file.close()
    if reader.is_erased(digest) and digest in Content(reader, files).erased_last():
        yield Finding("CONTENT_NOT_ERASED", f"{digest_text(digest)} is erased on the ledger and still here")
