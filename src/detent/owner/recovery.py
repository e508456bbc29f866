"""Opening a ledger: the newest good checkpoint, then the recorded commands after it, applied again (X-165).

Every batch that is re-applied must give the records that are stored for it, byte for byte, and those its batch record
binds. A difference means that the ledger was damaged or that this version decides otherwise than the one that wrote it: in
both cases nothing may be written on top. What lies before the checkpoint is not looked at; that is for `detent verify`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from detent.canon import sha256
from detent.canon.late import dataclass
from detent.canon.merkle import Frontier, leaf_hash, root_of
from detent.errors import DetentError, InvariantBroken, StoreCorrupt
from detent.kernel import (
    Command,
    Kernel,
    KernelConfig,
    RaiseEpoch,
    commands_digest,
    decode_commands,
    restore,
)
from detent.kernel.partition_state import MakeQueue
from detent.kernel.records import SUBMITTED
from detent.ledger import BatchHeader, TrustFault, batch_leaf, parse_batch
from detent.owner.store_history import StoreHistory
from detent.store.api import BatchRow, RecordRow, StoreReader

AHEAD_RECORDS: Final = 1_000
AHEAD_BATCHES: Final = 256
"""What is read at once when a ledger is opened, unless a single batch has more."""


@dataclass(slots=True)
class LogTail:
    """Where a partition's log ends, as the writer knows it."""

    frontier: Frontier
    leaf_hash: bytes
    next_position: int
    last_tick: int

    @property
    def size(self) -> int:
        """Number of batches."""
        return self.frontier.size


@dataclass(slots=True)
class Recovered:
    """A kernel that stands where the ledger ends."""

    kernel: Kernel
    history: StoreHistory
    tail: LogTail
    replayed: int
    """Records re-applied since the checkpoint, or commands where they are more: what the next checkpoint would save."""


def recover(store: StoreReader, partition: int, config: KernelConfig, *, make_queue: MakeQueue) -> Recovered:
    """Rebuild the kernel of a partition from its store.

    ``config`` serves a ledger without batches only; otherwise the recorded configuration is in force until a new epoch
    brings another. Raises `StoreCorrupt` when the ledger contradicts itself.
    """
    head = store.head(partition)
    history = StoreHistory(store, partition)
    kernel, first = _start(store, partition, config, history, make_queue)
    replayed = 0
    for batch, stored in _read_ahead(store, partition, first, head.size, history):
        history.horizon = batch.batch_no
        replayed += _reapply(kernel, batch, stored)
        history.committed()
    history.horizon = None
    history.committed()  # What was read ahead is not the past of the next turns.
    kernel.drain_touched()
    frontier = Frontier(head.size, frontier_peaks(store, partition, head.size))
    tail = LogTail(frontier, head.leaf_hash, head.next_position, head.last_tick)
    return Recovered(kernel, history, tail, replayed)


def states_from_the_beginning(
    store: StoreReader, partition: int, stop: int, *, make_queue: MakeQueue
) -> Iterator[tuple[int, Kernel]]:
    """The kernel as it stands after each batch before ``stop``, with no checkpoint believed; to look at and nothing else."""
    history = StoreHistory(store, partition)
    kernel = _begin(store, partition, KernelConfig(), history, make_queue)
    for batch, stored in _read_ahead(store, partition, 0, stop, history):
        history.horizon = batch.batch_no
        _reapply(kernel, batch, stored)
        kernel.drain_touched()
        history.committed()
        yield batch.batch_no, kernel


def frontier_peaks(store: StoreReader, partition: int, size: int) -> list[bytes]:
    """Roots of the complete subtrees along the right edge of a tree of ``size`` batches, largest first."""
    peaks = []
    begin = 0
    for level in range(size.bit_length() - 1, -1, -1):
        if size >> level & 1:
            peaks.append(tree_node(store, partition, level, begin >> level))
            begin += 1 << level
    return peaks


def tree_node(store: StoreReader, partition: int, level: int, index: int) -> bytes:
    """A complete node of the partition's tree, from the batch row that completed it."""
    batch_no = ((index + 1) << level) - 1
    row = store.batch(partition, batch_no)
    if row is None:
        raise StoreCorrupt(f"batch {batch_no} is missing", details={"batch_no": batch_no})
    if level == 0:
        return row.leaf_hash
    node = row.nodes[32 * (level - 1) : 32 * level]
    if len(node) != 32:
        raise StoreCorrupt(f"batch {batch_no} lacks a tree node of level {level}", details={"batch_no": batch_no})
    return node


def _read_ahead(
    store: StoreReader, partition: int, first: int, stop: int, history: StoreHistory
) -> Iterator[tuple[BatchRow, list[RecordRow]]]:
    """Batches with their records, read many at a time together with the jobs that they submit.

    Two questions for each batch made a ledger slow to open whose database is on another machine.
    """
    batches = store.batches(partition, first, stop)
    while some := _some(batches):
        end = some[-1].first_position + some[-1].record_count
        rows = deque(store.records(partition, some[0].first_position, end))
        history.look_ahead([row.job_id for row in rows if row.kind == SUBMITTED and row.job_id is not None])
        for batch in some:
            own: list[RecordRow] = []
            while rows and rows[0].position < batch.first_position + batch.record_count:
                own.append(rows.popleft())
            yield batch, own


def _some(batches: Iterator[BatchRow]) -> list[BatchRow]:
    """The next batches, as many as are read at once; none at the end."""
    found: list[BatchRow] = []
    records = 0
    while records < AHEAD_RECORDS and len(found) < AHEAD_BATCHES and (batch := next(batches, None)) is not None:
        found.append(batch)
        records += batch.record_count
    return found


def _start(
    store: StoreReader, partition: int, config: KernelConfig, history: StoreHistory, make_queue: MakeQueue
) -> tuple[Kernel, int]:
    size = store.head(partition).size
    for row in store.checkpoints(partition):
        if sha256(row.body) != row.digest or not 0 <= row.batch_no < size:
            continue  # Checkpoints are not signed: an impossible one is passed over, and the commands are applied again.
        # A checkpoint of another version is as good as none: the commands are all there.
        with contextlib.suppress(DetentError):
            return restore(row.body, make_queue=make_queue, history=history), row.batch_no + 1
    return _begin(store, partition, config, history, make_queue), 0


def _begin(
    store: StoreReader, partition: int, config: KernelConfig, history: StoreHistory, make_queue: MakeQueue
) -> Kernel:
    """A kernel that stands before the first batch."""
    first = store.batch(partition, 0)
    if first is not None:
        for command in _commands(first, _header(first)):
            if isinstance(command, RaiseEpoch):
                config = KernelConfig.decode(command.config)
                break
    return Kernel(config, make_queue=make_queue, history=history)


def _reapply(kernel: Kernel, batch: BatchRow, stored: Iterable[RecordRow]) -> int:
    """Apply a batch's commands again; returns how many records that gave, or commands where they are more."""
    header = _header(batch)
    commands = _commands(batch, header)
    try:
        records = [record for command in commands for record in kernel.apply(command).records]
    except (DetentError, InvariantBroken) as exc:
        raise _corrupt(batch, f"the commands of batch {batch.batch_no} cannot be applied again: {exc}") from exc
    if [(record.body, record.evidence) for record in records] != [(row.body, row.evidence) for row in stored]:
        raise _corrupt(batch, f"applying the commands of batch {batch.batch_no} again does not give its records")
    if root_of([leaf_hash(record.body) for record in records]) != header.records_root:
        raise _corrupt(batch, f"the records of batch {batch.batch_no} are not the signed ones")
    return max(len(records), len(commands))


def _commands(batch: BatchRow, header: BatchHeader) -> list[Command]:
    """The recorded commands of a batch, once they are known to be the signed ones."""
    if header.commands_digest != commands_digest(batch.commands):
        raise _corrupt(batch, f"the commands of batch {batch.batch_no} are not the signed ones")
    try:
        return decode_commands(batch.commands)
    except (DetentError, TypeError, ValueError) as exc:
        raise _corrupt(batch, f"the commands of batch {batch.batch_no} cannot be read: {exc}") from exc


def _header(batch: BatchRow) -> BatchHeader:
    header = parse_batch(batch.body)
    if isinstance(header, TrustFault) or header.batch_no != batch.batch_no:
        raise _corrupt(batch, f"the batch record {batch.batch_no} cannot be read")
    if batch_leaf(batch.body, batch.signature) != batch.leaf_hash:
        raise _corrupt(batch, f"the batch record {batch.batch_no} is not the one that was appended")
    return header


def _corrupt(batch: BatchRow, message: str) -> StoreCorrupt:
    return StoreCorrupt(message, details={"partition": batch.partition, "batch_no": batch.batch_no}, hint=HINT)


HINT = "run `detent verify` to see which record is affected, and restore the ledger from a backup"
