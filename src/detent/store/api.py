"""What a ledger store can do: operations, not SQL.

One append carries everything a group commit decided, and the store makes all of it durable or none of it. The rules that
every implementation keeps, and that the conformance suite puts to each of them:

* An append names the owner's epoch and the batch number it expects to write. Both are predicates of the write itself, so
  a deposed owner writes nothing however late it wakes up (X-172).
* ``(job_id, transition_seq)`` is unique among transition records, and a job's row moves only from the sequence the writer
  saw. The kernel checks the same thing in memory; here it holds against the whole world (PIPE-065).
* Records and batches are never updated and never deleted. Content can be erased; what named it stays (PIPE-057).
* A read sees whole commits only, in the order in which they were appended.

Rows are plain tuples, because the hot path binds tens of thousands of them a second to prepared statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Protocol, Self

from detent.canon.late import NamedTuple

CONTENT_INLINE_BYTES_MAX = 16 * 1024
"""Content up to this size lives in the database, in the transaction of the record that names it (X-181)."""

REFUSALS_KEPT_MAX = 10_000
"""The decision log of refusals is bounded: the oldest go first (X-182)."""

ANSWERS_KEPT_MS = 86_400_000
"""How long an answer to a client's idempotency key is kept unless the writer says otherwise (JOB-030)."""

ANSWER_BYTES_MAX = 64 * 1024
"""The largest answer that is kept."""

NEVER_REUSED = b""
"""In place of an execution key, for work that is done every time: no digest, so that nothing is ever found by it."""

PAYLOAD_MARK_BYTES = 8
"""How much of a payload's digest a label is kept with."""

CHECKPOINTS_KEPT = 2
"""The newest kernel checkpoints kept; the older one is there in case the newest turns out damaged."""


class Hashed(tuple[bytes, bytes]):
    """Content with the digest that this process computed from its bytes: nothing else can make one.

    A pair of digest and bytes as any other, so it is unpacked and bound like one. The receiver of one need not hash the bytes
    again; a plain pair, such as one that came through a socket, is always hashed.
    """

    __slots__ = ()

    def __new__(cls, data: bytes) -> Self:
        """Hash the bytes, and keep them with their digest."""
        return super().__new__(cls, (sha256(data).digest(), data))

    def __reduce__(self) -> str:
        raise TypeError(
            "hashed content does not leave its process; send its digest and bytes, which the receiver hashes"
        )


class BatchRow(NamedTuple):
    """A signed batch record with what is stored beside it."""

    partition: int
    batch_no: int
    epoch: int
    body: bytes
    signature: bytes
    leaf_hash: bytes
    nodes: bytes
    """Interior tree nodes completed by this leaf, level 1 first, 32 bytes each."""
    commands: bytes
    first_position: int
    record_count: int
    first_tick: int
    last_tick: int


class RecordRow(NamedTuple):
    """One ledger record: the bytes bound by its batch, and the evidence those bytes name."""

    partition: int
    position: int
    batch_no: int
    kind: str
    job_id: str | None
    run_id: str | None
    transition_seq: int | None
    body: bytes
    evidence: bytes | None


class JobRow(NamedTuple):
    """The fold of one job's records: what the log says about it now."""

    partition: int
    job_id: str
    tenant_id: str
    run_id: str | None
    state: str
    transition_seq: int
    attempt_id: int
    head: bytes
    """Hash of the job's last transition record, or its chain's genesis hash."""
    tick: int
    body: bytes
    """The kernel's own encoding of the job, handed back to it when a command names a job that has ended."""
    expected_seq: int
    """The ``transition_seq`` the row must have for this write to happen; -1 for a job that must not exist yet."""


class RunRow(NamedTuple):
    """The fold of one run's records."""

    partition: int
    run_id: str
    tenant_id: str
    name: str
    status: str
    started_tick: int
    ended_tick: int | None
    body: bytes


class RefusalRow(NamedTuple):
    """A request that was refused: kept for ``explain``, outside the signed history (X-182)."""

    partition: int
    tick: int
    job_id: str | None
    code: str
    body: bytes


class WorkRow(NamedTuple):
    """What a job does, by its execution key: the index in which equal work is found (X-148).

    It lies beside the ledger and is not part of it: a reader who guesses the ingredients of a key can test the guess, so the
    key goes when the job's payload is erased, and the payload's digest takes its place (X-171): nothing finds the job as equal
    work any more, and `explain` can still say that a job of this label was erased. A job has one row; the first one
    written stays.

    An array has a key for each element. Its own row has the payload's digest in place of a key from the beginning; what is found by
    the key of an element is this row with that key and the element's place.
    """

    workspace: str
    execution_key: bytes
    """`NEVER_REUSED` on the way to a store: such a row leaves its job's label and pool (`LabelRow`), and nothing in this index."""
    job_id: str
    label: str
    """Names the work across runs: ``workflow/step``, or a task's name."""
    tick: int = 0
    payload_digest: bytes = bytes(32)
    """By which the row is found when that payload is erased. The owner sets it, and the tick."""
    element: int | None = None
    """Which element of an array was found by the key; None when it was the job itself."""
    element_keys: tuple[bytes | None, ...] = ()
    """What to index of an array: the keys of its elements, None for one that is done every time. Not read back here."""
    pool: str | None = None
    """The pool that the job asked for. Not read back here."""


class LabelRow(NamedTuple):
    """What a job is called and which pool it asked for, to be listed by; every job has one, whether its work is reused or not.

    It lies beside the ledger like a `WorkRow`, from which a store makes it, and goes when the job's payload is erased: both
    names are the submitter's words.
    """

    job_id: str
    workspace: str
    label: str
    pool: str | None
    payload_mark: bytes
    """The first `PAYLOAD_MARK_BYTES` of the payload's digest, by which the row is found when that payload is erased."""


def label_of(row: WorkRow) -> LabelRow:
    """What the row of a job's work says of how the job is listed."""
    return LabelRow(row.job_id, row.workspace, row.label, row.pool, row.payload_digest[:PAYLOAD_MARK_BYTES])


class AnswerRow(NamedTuple):
    """What a request under a client's idempotency key was answered, for as long as the key counts (JOB-031).

    A reader who guesses a request can test the guess against its digest, so the row goes when content is erased that the job it
    was answered with names: its payload (X-171).
    """

    scope: bytes
    """Digest over workspace, user, endpoint and key."""
    body_digest: bytes
    response: bytes
    """The id of the job, as text; or a whole answer (`detent.jobs.kept_answer`)."""
    stored_at_ms: int
    """By the wall clock, since 1970."""


class DecisionsRow(NamedTuple):
    """The decision records of one commit, together: `owner/decision_records.py` writes and reads them.

    Its batch and the digest in a record lead to each. Ledgers from before hold a piece of content for each decision instead.
    """

    partition: int
    batch_no: int
    body: bytes


class CheckpointRow(NamedTuple):
    """The kernel's state after ``batch_no``, with the digest of its bytes."""

    partition: int
    batch_no: int
    digest: bytes
    body: bytes


class TreeHeadRow(NamedTuple):
    """A signed note over the first ``size`` batches."""

    partition: int
    size: int
    note: str


class JobHead(NamedTuple):
    """A job's place in the canonical log: how many transitions it has and the hash of the last."""

    job_id: str
    transition_seq: int
    head: bytes


class Commit(NamedTuple):
    """Everything one group commit makes durable, together or not at all."""

    batch: BatchRow
    records: Sequence[RecordRow] = ()
    jobs: Sequence[JobRow] = ()
    runs: Sequence[RunRow] = ()
    content: Sequence[tuple[bytes, bytes]] = ()
    """(digest, bytes) pairs of at most ``CONTENT_INLINE_BYTES_MAX`` each, `Hashed` where this process hashed them; a digest
    already there is left alone."""
    erased: Sequence[bytes] = ()
    """Digests whose bytes leave the database in this commit; they stay known as erased."""
    refusals: Sequence[RefusalRow] = ()
    checkpoint: CheckpointRow | None = None
    tree_head: TreeHeadRow | None = None
    work: Sequence[WorkRow] = ()
    """Rows of the work index and labels; each names a job that this commit or an earlier one submitted."""
    answers: Sequence[AnswerRow] = ()
    """Answers to keep; one that is kept for the same scope and still counts is left alone."""
    answers_kept_ms: int = ANSWERS_KEPT_MS
    """How long answers count. A commit that keeps one takes away those that no longer do, and never any other: how many
    there may be is for the writer to decide."""
    decisions: bytes | None = None
    """The decision records that this commit's records name, all in one: the body of its `DecisionsRow`."""


class Load(NamedTuple):
    """Rows of another ledger, to be kept as they are: a piece of a copy."""

    batches: Sequence[BatchRow] = ()
    decisions: Sequence[DecisionsRow] = ()
    records: Sequence[RecordRow] = ()
    jobs: Sequence[JobRow] = ()
    runs: Sequence[RunRow] = ()
    content: Sequence[tuple[bytes, bytes]] = ()
    erased: Sequence[bytes] = ()
    checkpoints: Sequence[CheckpointRow] = ()
    tree_heads: Sequence[TreeHeadRow] = ()
    refusals: Sequence[RefusalRow] = ()
    work: Sequence[WorkRow] = ()
    """Without their elements, which follow."""
    elements: Sequence[tuple[str, int, bytes]] = ()
    labels: Sequence[LabelRow] = ()
    answers: Sequence[AnswerRow] = ()
    epochs: Sequence[tuple[int, int]] = ()
    """(epoch, partition) pairs."""


class LedgerHead(NamedTuple):
    """Where a partition's log stands."""

    epoch: int
    """Epoch of the present owner (0: never owned)."""
    size: int
    """Number of batches; the next batch has this number."""
    leaf_hash: bytes
    """Leaf hash of the last batch; 32 zero bytes when there is none."""
    next_position: int
    last_tick: int


class JobsWanted(NamedTuple):
    """Which jobs a page lists: those of one tenant, and of a run, under a label or in a pool if one of the three is given."""

    tenant_id: str
    run_id: str | None = None
    state: str | None = None
    label: str | None = None
    before: int | None = None
    """Only jobs that are numbered below."""
    pool: str | None = None
    """The pool that they asked for."""


class StoreReader(Protocol):
    """The reading half: safe from any process, needs no ownership."""

    @property
    def origin(self) -> str:
        """The ledger's own name, unique to it and part of every signed batch."""

    @property
    def partitions(self) -> int:
        """P, fixed when the ledger was made."""

    def head(self, partition: int) -> LedgerHead: ...

    def batch(self, partition: int, batch_no: int) -> BatchRow | None: ...

    def batches(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[BatchRow]: ...

    def records(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[RecordRow]:
        """Records by position, oldest first."""

    def records_of_job(self, job_id: str) -> Iterator[RecordRow]:
        """A job's records in the order of their positions, its ``submitted`` record first."""

    def records_of_kind(self, partition: int, kind: str, first: int = 0) -> Iterator[RecordRow]:
        """A partition's records of one kind from position ``first`` on, in the order of their positions."""

    def records_of_run(self, run_id: str) -> Iterator[RecordRow]:
        """The run's own records (``run_started``, ``step_reused``, ``run_ended``) and its jobs' ``submitted`` records."""

    def record_of_run(self, run_id: str, kind: str) -> RecordRow | None:
        """The newest record of a kind that a run has of its own."""

    def transition(self, job_id: str, transition_seq: int) -> RecordRow | None:
        """The transition record of a job that carries this sequence number."""

    def submissions(self, job_ids: Sequence[str]) -> Iterator[RecordRow]:
        """The ``submitted`` records of many jobs, in no order, and those that there are."""

    def transitions(self, wanted: Sequence[tuple[str, int]]) -> Iterator[RecordRow]:
        """The same for many at once, pairs of a job's id and a number; in no order, and those that there are."""

    def job(self, job_id: str) -> JobRow | None:
        """The job's row, with ``expected_seq`` set to its stored ``transition_seq``."""

    def jobs_of(self, job_ids: Sequence[str]) -> list[JobRow]:
        """The same for many at once, in no order, and those that there are."""

    def jobs(
        self,
        *,
        run_id: str | None = None,
        state: str | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> Iterator[JobRow]:
        """Jobs by id (UTF-8 order), those after ``after`` only."""

    def recent_jobs(
        self, *, run_id: str | None = None, state: str | None = None, limit: int | None = None
    ) -> Iterator[JobRow]:
        """Jobs in the order in which they were submitted, newest first."""

    def jobs_page(self, wanted: JobsWanted, *, limit: int) -> list[tuple[int, JobRow]]:
        """Jobs as they were submitted, newest first, each with its number."""

    def jobs_prefixed(self, tenant_id: str, prefix: str, *, after: str = "", limit: int) -> list[JobRow]:
        """A tenant's jobs whose ids begin so, by id, those after ``after`` only."""

    def runs_prefixed(self, tenant_id: str, prefix: str, *, after: str = "", limit: int) -> list[RunRow]:
        """The same for runs."""

    def last_run_prefixed(self, tenant_id: str, prefix: str) -> RunRow | None:
        """The last, by id, of a tenant's runs whose ids begin so."""

    def runs_page(
        self, tenant_id: str, *, status: str | None = None, before: tuple[int, str] | None = None, limit: int
    ) -> list[RunRow]:
        """A tenant's runs, newest first, those before a ``started_tick`` and ``run_id`` only."""

    def tenant_counts(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """How many jobs each tenant has in each state, and how many runs of each status. Reads all of them."""

    def job_heads(self, *, run_id: str | None = None) -> Iterator[JobHead]:
        """Every job's head in canonical order, i.e. by the UTF-8 bytes of its id (X-050)."""

    def job_counts(self) -> dict[str, int]:
        """How many jobs are in each state."""

    def run(self, run_id: str) -> RunRow | None: ...

    def runs(self, *, status: str | None = None, limit: int | None = None) -> Iterator[RunRow]:
        """Runs, or those of one status, newest first."""

    def content(self, digest: bytes) -> bytes | None:
        """Bytes stored inline under a digest; None when absent or erased."""

    def contents(self, digests: Sequence[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The same for many at once, each with its digest; in no order, and those that there are."""

    def content_digests(self) -> Iterator[tuple[bytes, int]]:
        """(digest, size) of all inline content that is still there, by digest."""

    def is_erased(self, digest: bytes) -> bool: ...

    def erased_digests(self) -> Iterator[bytes]: ...

    def decisions(self, partition: int, first: int = 0, stop: int | None = None) -> Iterator[DecisionsRow]:
        """What was kept of the decisions of batches, by batch number; a batch that decided nothing has none."""

    def checkpoints(self, partition: int) -> Iterator[CheckpointRow]:
        """Kept checkpoints, newest first."""

    def tree_heads(self, partition: int) -> Iterator[TreeHeadRow]:
        """Stored tree heads, newest first."""

    def refusals(self, *, job_id: str | None = None, limit: int = 100) -> Iterator[RefusalRow]:
        """The newest refusals first."""

    def work(self, workspace: str, execution_key: bytes) -> Iterator[WorkRow]:
        """Jobs and elements of arrays that do this work, in the order in which they were submitted."""

    def work_of_keys(self, workspace: str, execution_keys: Sequence[bytes]) -> Iterator[tuple[WorkRow, JobRow]]:
        """The same for any of these pieces of work, each with its job's row."""

    def work_labelled(self, workspace: str, label: str, limit: int = 100) -> Iterator[WorkRow]:
        """Jobs under a label, with any keys, newest first."""

    def work_rows(self) -> Iterator[WorkRow]:
        """The whole index, in the order in which the jobs were submitted; without the elements of arrays."""

    def work_element_rows(self) -> Iterator[tuple[str, int, bytes]]:
        """The keys of all elements of arrays: job, element and key, in the order of submission."""

    def jobs_outside_work(self) -> Iterator[JobRow]:
        """Jobs that have no row in the index, in the order in which they were submitted; none where there is no index."""

    def labels_of_run(self, run_id: str) -> set[str]:
        """The labels of what a run's jobs do, without work that is never reused."""

    def label(self, job_id: str) -> LabelRow | None:
        """What a job is called and which pool it asked for; None of a job whose payload was erased, or that is older than labels."""

    def label_rows(self) -> Iterator[LabelRow]:
        """The labels of all jobs, in the order of submission."""

    def answer(self, scope: bytes) -> AnswerRow | None:
        """What was answered under a client's idempotency key; it may have expired."""

    def answer_rows(self) -> Iterator[AnswerRow]:
        """Every answer that is kept, oldest first."""

    def answers_kept(self, after_ms: int) -> tuple[int, int | None]:
        """How many answers were stored after a moment, and when the oldest of them was. Reads all of them."""

    def close(self) -> None: ...


class LedgerReader(StoreReader, Protocol):
    """A reader that can look at one moment."""

    def snapshot(self) -> AbstractContextManager[StoreReader]:
        """A reader that sees the commits of this moment and none that follow, for as long as the block lasts."""


class Store(StoreReader, Protocol):
    """The writing half: one owner per partition uses it, from one thread."""

    def take_ownership(self, partition: int) -> int:
        """Raise the partition's epoch by one, durably, and return it: the owner of an older epoch can no longer write."""

    def append(self, commit: Commit) -> None:
        """Make one commit durable before returning.

        Raises `EpochLost` when the epoch or the batch number is no longer the caller's to write, or a job's row was not
        where the writer saw it; `StoreUnavailable` when the world failed (disk full, read-only, locked). In every such
        case nothing of the commit is there, except after a failed sync, whose outcome is unknown: then `OutcomeUnknown`.
        """

    def append_refusals(self, refusals: Sequence[RefusalRow]) -> None:
        """Add to the bounded decision log outside a commit."""

    def append_beside(
        self, work: Sequence[WorkRow], answers: Sequence[AnswerRow], answers_kept_ms: int = ANSWERS_KEPT_MS
    ) -> None:
        """Add to the work index and to the kept answers outside a commit: for a request that changed nothing else."""

    def append_tree_head(self, head: TreeHeadRow) -> None:
        """Keep a signed tree head over batches that are already durable."""

    def remove_content(self, digests: Sequence[bytes]) -> int:
        """Delete unreferenced inline content (garbage collection); returns the number of bytes freed."""
