"""What must hold of a commit before any store looks at its own state.

A commit that fails here was put together wrongly, so nearly every answer is `InvariantBroken`. The exception is an
integer beyond 63 bits: the log format allows 64, the databases do not, and the caller learns that it asked for too much.

`check_commit` is the half that every store runs: it compares rows with each other, which no database does. `check_rows`
looks at each value alone; SQLite states the same rules once more as ``CHECK``s and so leaves it out of its hot path.

Rows whose values are of the kinds their columns promise.

A database is a file that anyone can edit, and SQLite returns any kind of value it finds there: a flipped byte can
turn bytes into a number. So a row is looked at where it is read, and nothing behind the reader meets a value of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import product
from typing import Any, Final, TypeVar

from detent.canon.show import a_or_an, show
from detent.errors import InvalidInput, InvariantBroken, StoreCorrupt
from detent.kernel.table import State
from detent.store.api import (
    ANSWER_BYTES_MAX,
    CONTENT_INLINE_BYTES_MAX,
    NEVER_REUSED,
    AnswerRow,
    BatchRow,
    CheckpointRow,
    Commit,
    DecisionsRow,
    Hashed,
    JobHead,
    JobRow,
    LabelRow,
    LedgerHead,
    RecordRow,
    RefusalRow,
    RunRow,
    TreeHeadRow,
    WorkRow,
)

INTEGER_MAX: Final = 2**63 - 1
"""The largest integer a store keeps: databases count in signed 64 bits."""

POSITION_BITS: Final = 40
"""A partition holds at most 2^40 batches and as many records; some 600 TB of them."""

PARTITIONS_MAX: Final = 65_536

RECORD_BYTES_MAX: Final = 60 * 1024
"""Content larger than this goes into a record by digest."""

JOB_STATES: Final = frozenset(state.value for state in State)

JOB_RECORD_KINDS: Final = frozenset({"submitted", "transition"})
"""Record kinds that always name a job."""


def check_ledger(origin: str, partitions: int) -> None:
    """Refuse to make a ledger without a name, or with a number of partitions that no store could keep."""
    if not origin:
        raise InvalidInput("a ledger needs an origin: the name that every signed batch carries")
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidInput(f"a ledger has 1 to {PARTITIONS_MAX} partitions, not {partitions}")


def check_partition(partition: int, partitions: int) -> None:
    """Insist that the ledger has this partition."""
    if not 0 <= partition < partitions:
        raise InvariantBroken(f"partition {partition} of a ledger with {partitions}")


def check_commit(commit: Commit, partitions: int) -> None:
    """Insist that the parts of a commit belong together."""
    batch, records, jobs, runs, content, erased, refusals, checkpoint, tree_head, work, answers, _, decisions = commit
    partition = batch.partition
    check_partition(partition, partitions)
    _check_place(batch)
    _check_positions(batch, records)
    _check_home(jobs, partition)
    if len(jobs) > 1:
        _check_jobs_once(jobs)
    if runs:
        _check_home(runs, partition)
    if refusals:
        _check_home(refusals, partition)
    for piece in content:
        _check_content(piece)
    if decisions is not None:
        _insist(bool(decisions), "decisions without a byte")
    if erased:
        _check_digests(erased)
    if checkpoint is not None:
        check_checkpoint(checkpoint, partition, batch.batch_no)
    if tree_head is not None:
        check_tree_head(tree_head, partition, batch.batch_no + 1)
    if work or answers:
        check_beside(work, answers)


def check_rows(commit: Commit, partitions: int) -> None:
    """Insist that each row is possible by itself: the rules the SQLite schema states as ``CHECK``s."""
    _check_batch(commit.batch)
    for record in commit.records:
        _check_record(record)
    for job in commit.jobs:
        _check_job(job)
    for run in commit.runs:
        _insist(bool(run.run_id and run.tenant_id and run.status), "a run without id, tenant or status")
        _insist(run.started_tick >= 0, "a run that started before tick 0")
        _insist(run.ended_tick is None or run.ended_tick >= run.started_tick, "a run that ended before it started")
    check_refusals(commit.refusals, partitions)


def check_refusals(refusals: Iterable[RefusalRow], partitions: int) -> None:
    """Insist that each refusal says where, when and why."""
    for refusal in refusals:
        check_partition(refusal.partition, partitions)
        _insist(refusal.tick >= 0 and bool(refusal.code) and refusal.job_id != "", "a refusal without tick, code or id")


def check_beside(work: Iterable[WorkRow], answers: Iterable[AnswerRow]) -> None:
    """Insist that each row of the work index and each kept answer is possible by itself."""
    for row in work:
        _insist(bool(row.workspace and row.job_id and row.label), "work without workspace, job or label")
        _insist(row.pool != "", "work in a pool without a name")
        _insist(row.tick >= 0, "work before tick 0")
        _check_digests((row.payload_digest, *([row.execution_key] if row.execution_key != NEVER_REUSED else ())))
        _check_digests(key for key in row.element_keys if key is not None)
    for answer in answers:
        _insist(len(answer.response) <= ANSWER_BYTES_MAX, f"an answer of {len(answer.response)} bytes")
        _insist(answer.stored_at_ms >= 0, "an answer from before 1970")
        _check_digests((answer.scope, answer.body_digest))


def check_integers(rows: Iterable[Sequence[object]]) -> None:
    """Refuse integers that a database could not hold."""
    for row in rows:
        for value in row:
            if isinstance(value, int) and value > INTEGER_MAX:
                raise integer_too_large()


def integer_too_large() -> InvalidInput:
    """The refusal of a number beyond 63 bits."""
    return InvalidInput(
        f"a tick, sequence or attempt number is larger than {INTEGER_MAX}, the largest a store keeps",
        hint="ticks are milliseconds; a clock this far ahead is wrong",
        details={"integer_max": INTEGER_MAX},
    )


def check_checkpoint(checkpoint: CheckpointRow, partition: int, last_batch_no: int) -> None:
    """Insist that a checkpoint speaks of batches that are there."""
    if checkpoint.partition != partition or not 0 <= checkpoint.batch_no <= last_batch_no:
        raise InvariantBroken(
            f"a checkpoint after batch {checkpoint.batch_no} of partition {checkpoint.partition} "
            f"in a commit of batch {last_batch_no} to partition {partition}"
        )
    _check_digests((checkpoint.digest,))


def check_tree_head(head: TreeHeadRow, partition: int, size: int) -> None:
    """Insist that a tree head speaks of batches that are there."""
    if head.partition != partition or not 1 <= head.size <= size:
        raise InvariantBroken(
            f"a tree head of size {head.size} for partition {head.partition}, where partition {partition} has {size}"
        )
    if not head.note:
        raise InvariantBroken("a tree head without its note")


def _check_place(batch: BatchRow) -> None:
    # Leaf n completes one interior node for each one at the end of n in binary: n XOR (n + 1) is those ones and one more.
    batch_no = batch.batch_no
    node_count = (batch_no ^ (batch_no + 1)).bit_length() - 1
    if len(batch.nodes) != 32 * node_count:
        raise InvariantBroken(f"leaf {batch_no} completes {node_count} tree nodes, not {len(batch.nodes) / 32:g}")
    if (batch.first_position + batch.record_count | batch_no) >> POSITION_BITS > 0:
        raise InvalidInput(f"partition {batch.partition} is full: it holds 2^{POSITION_BITS} records")
    if batch.epoch <= 0:
        raise InvariantBroken("a batch under epoch 0, which has no owner")


def _check_positions(batch: BatchRow, records: Sequence[RecordRow]) -> None:
    if batch.record_count != len(records):
        raise InvariantBroken(f"batch {batch.batch_no} claims {batch.record_count} records and has {len(records)}")
    partition, position, batch_no = batch.partition, batch.first_position, batch.batch_no
    for record in records:
        # By index, because this runs for every record written and attributes of a named tuple cost more.
        if record[1] != position or record[0] != partition or record[2] != batch_no:
            raise InvariantBroken(
                f"record {record.partition}/{record.position} of batch {record.batch_no} stands at {partition}/{position}"
                f" of batch {batch_no}"
            )
        position += 1


def _check_home(rows: Sequence[JobRow | RunRow | RefusalRow], partition: int) -> None:
    for row in rows:
        if row[0] != partition:
            raise InvariantBroken(f"{a_or_an(type(row))} of partition {row[0]} in a commit to partition {partition}")


def _check_jobs_once(jobs: Sequence[JobRow]) -> None:
    if len({job[1] for job in jobs}) != len(jobs):
        raise InvariantBroken("a commit moves one job's row twice; only its last state belongs in it")


def _check_content(piece: tuple[bytes, bytes]) -> None:
    digest, data = piece
    if len(data) > CONTENT_INLINE_BYTES_MAX:
        raise InvariantBroken(f"{len(data)} bytes of inline content; more than {CONTENT_INLINE_BYTES_MAX} go to a file")
    if type(piece) is not Hashed and sha256(data).digest() != digest:
        raise InvariantBroken(f"content does not have the digest {digest.hex()} it is to be kept under")


def _check_digests(digests: Iterable[bytes]) -> None:
    for digest in digests:
        _insist(len(digest) == 32, "a digest that is not 32 bytes")


def _check_batch(batch: BatchRow) -> None:
    _insist(batch.batch_no >= 0 and batch.first_position >= 0, "a batch before the first")
    _insist(
        bool(batch.body) and len(batch.signature) == 64 and len(batch.leaf_hash) == 32,
        "a batch without a body, a signature of 64 bytes or a leaf hash of 32",
    )
    _insist(0 <= batch.first_tick <= batch.last_tick, "a batch whose ticks run backwards")


def _check_record(record: RecordRow) -> None:
    _insist(bool(record.kind), "a record without a kind")
    _insist(1 <= len(record.body) <= RECORD_BYTES_MAX, f"a record body of {len(record.body)} bytes")
    _insist(record.run_id != "" and record.job_id != "", "a record with an empty id")
    _insist((record.kind == "transition") == (record.transition_seq is not None), "a sequence number off a transition")
    _insist(record.transition_seq is None or record.transition_seq >= 0, "a negative sequence number")
    _insist(record.kind not in JOB_RECORD_KINDS or record.job_id is not None, f"a {record.kind} record without a job")


def _check_job(job: JobRow) -> None:
    _insist(bool(job.job_id and job.tenant_id) and job.run_id != "", "a job without id or tenant")
    _insist(job.state in JOB_STATES, f"a job in state {job.state!r}")
    _insist(job.transition_seq >= 0 and job.attempt_id >= 0 and job.tick >= 0, "a job with a negative number")
    _insist(job.expected_seq >= -1, "a job expected before its beginning")
    _insist(len(job.head) == 32, "a job whose head is not 32 bytes")


def _insist(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InvariantBroken(otherwise)


_Row = TypeVar(
    "_Row",
    BatchRow,
    RecordRow,
    JobRow,
    RunRow,
    TreeHeadRow,
    CheckpointRow,
    DecisionsRow,
    WorkRow,
    LabelRow,
    AnswerRow,
    RefusalRow,
    LedgerHead,
    JobHead,
)

_INT, _TEXT, _BYTES = (int,), (str,), (bytes,)
_INT_OR_NONE, _TEXT_OR_NONE, _BYTES_OR_NONE = (int, type(None)), (str, type(None)), (bytes, type(None))

_KINDS: Final[dict[type, frozenset[tuple[type, ...]]]] = {
    row: frozenset(product(*columns))
    for row, columns in {
        BatchRow: (_INT, _INT, _INT, _BYTES, _BYTES, _BYTES, _BYTES, _BYTES, _INT, _INT, _INT, _INT),
        RecordRow: (
            _INT,
            _INT,
            _INT,
            _TEXT,
            _TEXT_OR_NONE,
            _TEXT_OR_NONE,
            _INT_OR_NONE,
            _BYTES,
            _BYTES_OR_NONE,
        ),
        JobRow: (_INT, _TEXT, _TEXT, _TEXT_OR_NONE, _TEXT, _INT, _INT, _BYTES, _INT, _BYTES, _INT),
        RunRow: (_INT, _TEXT, _TEXT, _TEXT, _TEXT, _INT, _INT_OR_NONE, _BYTES),
        TreeHeadRow: (_INT, _INT, _TEXT),
        CheckpointRow: (_INT, _INT, _BYTES, _BYTES),
        DecisionsRow: (_INT, _INT, _BYTES),
        WorkRow: (_TEXT, _BYTES, _TEXT, _TEXT, _INT, _BYTES, _INT_OR_NONE, (tuple,), _TEXT_OR_NONE),
        LabelRow: (_TEXT, _TEXT, _TEXT, _TEXT_OR_NONE, _BYTES),
        AnswerRow: (_BYTES, _BYTES, _BYTES, _INT),
        RefusalRow: (_INT, _INT, _TEXT_OR_NONE, _TEXT, _BYTES),
        LedgerHead: (_INT, _INT, _BYTES, _INT, _INT),
        JobHead: (_TEXT, _INT, _BYTES),
    }.items()
}
"""For each row every combination of kinds that it may have."""


def maker(row: type[_Row]) -> Callable[[tuple[Any, ...]], _Row]:
    """Makes rows of the values that a database hands out; raises `StoreCorrupt` for one with a value of another kind."""
    kinds, make = _KINDS[row], row._make

    def made(values: tuple[Any, ...]) -> _Row:
        if tuple(map(type, values)) not in kinds:
            raise _of_another_kind(row, values)
        return make(values)

    return made


def _of_another_kind(row: type[_Row], values: tuple[Any, ...]) -> StoreCorrupt:
    place = ", ".join(
        f"{name} {show(value)}" for name, value in zip(row._fields, values, strict=True) if name in _PLACE
    )
    return StoreCorrupt(
        f"a stored {row.__name__.removesuffix('Row').lower()} ({place}) holds a value of another kind",
        hint="restore the ledger from a backup",
    )


_PLACE: Final = frozenset({"partition", "batch_no", "position", "job_id", "run_id", "size"})
