"""The partitions of a home: who owns each, how far its log has come, and how many of its jobs are open.

Each partition has a log, an owner and a tree head of its own. The owner's epoch is on the ledger. Which process that is, is known by the
lock of the home, or by the database that several machines share.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from detent.canon import digest_text
from detent.canon.late import dataclass
from detent.kernel.table import TERMINAL, State
from detent.ledger.note import parse_head, parse_note
from detent.owner.home import Home
from detent.owner.ledgers import OwnerView, owner_of
from detent.owner.views import Times
from detent.store.api import StoreReader

OPEN: Final = tuple(state for state in State if state not in TERMINAL)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition, as the ledger has it now."""

    partition: int
    owner: OwnerView | None
    """None while no process owns it."""
    epoch: int
    size: int
    """Batches in its log."""
    records: int
    head_size: int | None
    """Batches that its newest signed tree head covers; None before there is one."""
    head_root: bytes | None
    jobs: dict[str, int]
    """Jobs that have not ended, by state."""
    tick: int
    at: str
    """The time of its last commit."""

    @property
    def jobs_open(self) -> int:
        """Jobs that have not ended."""
        return sum(self.jobs.values())

    def to_map(self) -> dict[str, Any]:
        """One object of `detent partitions -o json`."""
        head = None
        if self.head_size is not None and self.head_root is not None:
            head = {"size": self.head_size, "root": digest_text(self.head_root)}
        return {
            "partition": self.partition,
            "owner": None if self.owner is None else self.owner._asdict(),
            "epoch": self.epoch,
            "size": self.size,
            "records": self.records,
            "head": head,
            "jobs_open": self.jobs_open,
            "jobs": self.jobs,
            "tick": self.tick,
            "at": self.at,
        }


def partitions(home: Home, reader: StoreReader) -> list[PartitionView]:
    """Every partition of a home, in order."""
    place = home.ledger
    times, jobs = Times.of(reader), [Counter[str]() for _ in range(reader.partitions)]
    for state in OPEN:
        for row in reader.jobs(state=state.value):
            jobs[row.partition][state.value] += 1
    found = []
    for number, counted in enumerate(jobs):
        head, newest = reader.head(number), next(iter(reader.tree_heads(number)), None)
        root = None if newest is None else parse_head(parse_note(newest.note).text).root
        found.append(
            PartitionView(
                number,
                owner_of(reader, place, home.lock, number),
                head.epoch,
                head.size,
                head.next_position,
                None if newest is None else newest.size,
                root,
                dict(counted),
                head.last_tick,
                times.iso(head.last_tick),
            )
        )
    return found
