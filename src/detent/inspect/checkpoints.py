"""Checkpoints held against the commands: a checkpoint is not signed, and an owner goes on from what it says.

The commands are applied again from the beginning, up to the newest checkpoint, and the state that they lead to must be the one
that was kept. That takes as long as replaying, so `detent verify` does it for short histories and says of longer ones that it did not;
`detent replay` always does it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from detent.canon import NotCanonical, decode, sha256
from detent.kernel import checkpoint
from detent.kernel.checkpoint import CHECKPOINT_BYTES_MAX
from detent.kernel.partition_state import MakeQueue
from detent.ledger.findings import Finding
from detent.owner.recovery import states_from_the_beginning
from detent.store.api import CheckpointRow, StoreReader

RECORDS_APPLIED_MAX: Final = 20_000
"""The longest history that a verification applies again."""
COUNTED: Final = frozenset({"metrics", "trace_length"})
"""What a release may count otherwise than the one before: a difference in these alone shows no tampering."""


class Checkpoints:
    """Compares the checkpoints of one home, and counts those that were not."""

    def __init__(self, make_queue: MakeQueue) -> None:
        self._make_queue = make_queue
        self._left = 0

    def findings(self, reader: StoreReader) -> Iterator[Finding]:
        """Every checkpoint that is not what its digest names, or not the state that the commands lead to."""
        for partition in range(reader.partitions):
            rows: dict[int, CheckpointRow] = {}
            for row in reader.checkpoints(partition):
                if sha256(row.body) != row.digest:
                    yield _wrong(row, "is not what its digest names")
                elif not 0 <= row.batch_no < reader.head(partition).size:
                    yield _wrong(row, "comes after a batch that is not there")
                else:
                    rows[row.batch_no] = row
            yield from self._compared(reader, partition, rows)

    def not_proved(self) -> Iterator[str]:
        """What was not compared."""
        if self._left:
            yield (
                f"The state in checkpoints, from which the next owner goes on ({self._left:,} not compared): applying a long history"
                " again takes its time. `detent replay` does it."
            )

    def _compared(self, reader: StoreReader, partition: int, rows: dict[int, CheckpointRow]) -> Iterator[Finding]:
        left = dict(rows)
        last = reader.batch(partition, max(rows)) if rows else None
        if last is not None and last.first_position + last.record_count <= RECORDS_APPLIED_MAX:
            states = states_from_the_beginning(reader, partition, last.batch_no + 1, make_queue=self._make_queue)
            try:
                for batch_no, kernel in states:
                    if (row := rows.get(batch_no)) is None:
                        continue
                    differing = _differing(row.body, checkpoint(kernel))
                    if not differing <= COUNTED:
                        yield _wrong(row, f"is not the state that the commands lead to: {', '.join(sorted(differing))}")
                    if not differing or not differing <= COUNTED:
                        del left[batch_no]
            except Exception:  # noqa: BLE001, S110 - damaged commands do what they like, and are found where records are checked
                pass
        self._left += len(left)


def _differing(stored: bytes, made: bytes) -> set[str]:
    """The parts in which two checkpoints differ."""
    if stored == made:
        return set()
    ours, theirs = _parts(made), _parts(stored)
    return {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)} or {"encoding"}


def _parts(body: bytes) -> Mapping[str, Any]:
    try:
        said = decode(body, bytes_max=CHECKPOINT_BYTES_MAX)
    except NotCanonical:
        return {}
    return said if isinstance(said, dict) else {}


def _wrong(row: CheckpointRow, what: str) -> Finding:
    message = f"the checkpoint after batch {row.batch_no} {what}"
    return Finding("CHECKPOINT_WRONG", message, row.partition, row.batch_no)
