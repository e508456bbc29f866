"""The things a verification reads, whether they come out of a bundle or straight from a store.

A store's rows are taken as they are: `batch_item`, `job_item` and `run_item` read the attributes of any row that has
them, so this room needs no store. What only a store has (leaf hashes, inner nodes, unsigned columns) is optional here and
is compared with the signed bytes where it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from detent.canon.late import NamedTuple
from detent.ledger.findings import Finding

SCOPE_LEDGER = "ledger"
SCOPE_RUN = "run"


class HeaderItem(NamedTuple):
    """What follows: from which ledger, and how much of it."""

    origin: str
    partitions: int
    scope: str = SCOPE_LEDGER
    run_id: str | None = None
    exported_tick: int = 0


class BatchColumns(NamedTuple):
    """A stored batch's unsigned columns."""

    batch_no: int
    epoch: int
    first_position: int
    record_count: int
    first_tick: int
    last_tick: int


class RecordColumns(NamedTuple):
    """A stored record's unsigned columns."""

    position: int
    batch_no: int
    kind: str
    job_id: str | None
    run_id: str | None
    transition_seq: int | None


class BatchItem(NamedTuple):
    """A whole commit: the batch record, its commands, its records with their evidence."""

    partition: int
    body: bytes
    signature: bytes
    commands: bytes
    records: Sequence[tuple[bytes, bytes | None]]
    leaf_hash: bytes | None = None
    nodes: bytes | None = None
    columns: BatchColumns | None = None
    record_columns: Sequence[RecordColumns] | None = None


class PartialRecord(NamedTuple):
    """A record with its place in its batch and the path that proves it."""

    index_in_batch: int
    body: bytes
    evidence: bytes | None
    path: Sequence[bytes]


class PartialItem(NamedTuple):
    """A batch record with some of its records, each proved by a path; and the batch's own path in the tree."""

    partition: int
    body: bytes
    signature: bytes
    records: Sequence[PartialRecord]
    tree_path: Sequence[bytes]


class HeadItem(NamedTuple):
    """A signed tree head."""

    partition: int
    note: str


class ContentItem(NamedTuple):
    """Content and the digest it is kept under."""

    digest: bytes
    data: bytes


class JobItem(NamedTuple):
    """A stored job row: must say what the fold of the job's records says. In the order of the ids' UTF-8 bytes."""

    job_id: str
    tenant_id: str
    run_id: str | None
    state: str
    transition_seq: int
    attempt_id: int
    head: bytes
    body: bytes | None = None
    """The kernel's own encoding of the job, where the row has it."""
    partition: int | None = None
    """The partition the row says the job is in, where it says so."""
    tick: int | None = None
    """The tick the row says it was written at, where it says so."""


class RunItem(NamedTuple):
    """A stored run row: must say what the run's records say."""

    partition: int
    run_id: str
    tenant_id: str
    name: str
    status: str
    started_tick: int
    ended_tick: int | None
    body: bytes | None = None
    """The kernel's own encoding of the run, where the row has it."""


Item: TypeAlias = HeaderItem | BatchItem | PartialItem | HeadItem | ContentItem | JobItem | RunItem
Readable: TypeAlias = Item | Finding
"""What a reader yields: an item, or what is wrong with the stream at this place."""


class BatchRowLike(Protocol):
    """A stored batch, as a store's row has it."""

    @property
    def partition(self) -> int: ...
    @property
    def batch_no(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def signature(self) -> bytes: ...
    @property
    def leaf_hash(self) -> bytes: ...
    @property
    def nodes(self) -> bytes: ...
    @property
    def commands(self) -> bytes: ...
    @property
    def first_position(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def first_tick(self) -> int: ...
    @property
    def last_tick(self) -> int: ...


class RecordRowLike(Protocol):
    """A stored record, as a store's row has it."""

    @property
    def position(self) -> int: ...
    @property
    def batch_no(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def job_id(self) -> str | None: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def transition_seq(self) -> int | None: ...
    @property
    def body(self) -> bytes: ...
    @property
    def evidence(self) -> bytes | None: ...


class JobRowLike(Protocol):
    """A stored job, as a store's row has it."""

    @property
    def partition(self) -> int: ...
    @property
    def job_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def run_id(self) -> str | None: ...
    @property
    def state(self) -> str: ...
    @property
    def transition_seq(self) -> int: ...
    @property
    def attempt_id(self) -> int: ...
    @property
    def head(self) -> bytes: ...
    @property
    def tick(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class RunRowLike(Protocol):
    """A stored run, as a store's row has it."""

    @property
    def partition(self) -> int: ...
    @property
    def run_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def started_tick(self) -> int: ...
    @property
    def ended_tick(self) -> int | None: ...
    @property
    def body(self) -> bytes: ...


def batch_item(row: BatchRowLike, records: Iterable[RecordRowLike]) -> BatchItem:
    """A stored batch with its stored records, unsigned columns included."""
    rows = list(records)
    return BatchItem(
        row.partition,
        row.body,
        row.signature,
        row.commands,
        [(record.body, record.evidence) for record in rows],
        row.leaf_hash,
        row.nodes,
        BatchColumns(row.batch_no, row.epoch, row.first_position, row.record_count, row.first_tick, row.last_tick),
        [
            RecordColumns(
                record.position,
                record.batch_no,
                record.kind,
                record.job_id,
                record.run_id,
                record.transition_seq,
            )
            for record in rows
        ],
    )


def job_item(row: JobRowLike) -> JobItem:
    """A stored job row."""
    return JobItem(
        row.job_id,
        row.tenant_id,
        row.run_id,
        row.state,
        row.transition_seq,
        row.attempt_id,
        row.head,
        row.body,
        row.partition,
        row.tick,
    )


def run_item(row: RunRowLike) -> RunItem:
    """A stored run row."""
    return RunItem(
        row.partition,
        row.run_id,
        row.tenant_id,
        row.name,
        row.status,
        row.started_tick,
        row.ended_tick,
        row.body,
    )
