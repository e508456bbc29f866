"""Writing a turn down: one commit, with a checkpoint now and then, and tree heads over what stands.

The scribe knows how long the last checkpoint and the last tree head are ago; when a turn is written, and who is answered
after it, is the owner's to say (`engine/owner.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from detent.canon import SigningKey
from detent.engine.assemble import Assembler, Turn
from detent.engine.recover import Recovered
from detent.errors import EpochLost
from detent.kernel import AdvanceTick
from detent.store.api import Store, TreeHeadRow

CHECKPOINT_RECORDS = 20_000
"""Records after which the kernel's state is written down again, at least; more when much is alive."""
HEAD_BATCHES = 256
"""Batches after which a tree head is signed, at most."""


class Scribe:
    """Writes one partition's log under one epoch. For whoever holds the turn."""

    def __init__(  # noqa: PLR0913 - the parts a scribe is wired from
        self,
        store: Store,
        recovered: Recovered,
        *,
        partition: int,
        origin: str | None = None,
        batch_key: SigningKey,
        head_key: SigningKey,
        keep_head: Callable[[TreeHeadRow], None],
        crash_point: Callable[[str], None],
        checkpoint_records: int = CHECKPOINT_RECORDS,
    ) -> None:
        self.keep_head = keep_head
        self.epoch = store.take_ownership(partition)
        self._store = store
        self._partition = partition
        self._kernel = recovered.kernel
        self._history = recovered.history
        self._assembler = Assembler(
            origin=origin or store.origin,
            partition=partition,
            epoch=self.epoch,
            tail=recovered.tail,
            batch_key=batch_key,
            head_key=head_key,
        )
        self._crash = crash_point
        self._checkpoint_records = checkpoint_records
        self._since_checkpoint = recovered.replayed
        self._batches_since_head = 0
        self._new_head: TreeHeadRow | None = None

    @property
    def size(self) -> int:
        """Number of batches written so far."""
        return self._assembler.tail.size

    @property
    def next_position(self) -> int:
        """Where the next record will stand."""
        return self._assembler.tail.next_position

    @property
    def owes_head(self) -> bool:
        """Whether there are batches that no tree head covers yet."""
        return self._batches_since_head > 0

    def commit(self, turn: Turn) -> None:
        """Make a turn durable."""
        # Heartbeats and the like are commands without records, and a restart applies them all the same.
        self._since_checkpoint += max(len(turn.records), len(turn.commands))
        self._batches_since_head += 1
        since = self._since_checkpoint
        with_checkpoint = since >= self._checkpoint_records and since >= 2 * len(self._kernel.jobs)
        with_head = self._batches_since_head >= HEAD_BATCHES
        commit = self._assembler.commit(turn, self._kernel, with_checkpoint=with_checkpoint, with_head=with_head)
        self._crash("sealed")
        self._store.append(commit)
        self._crash("appended")
        self._history.committed()
        if with_checkpoint:
            self._since_checkpoint = 0
        if commit.tree_head is not None:
            self._batches_since_head = 0
            self._new_head = commit.tree_head

    def keep_beside(self, turn: Turn) -> None:
        """Keep what a turn leaves beside the ledger when nothing of it belongs into the log."""
        self._insist_on_epoch()
        if turn.refusals:
            self._store.append_refusals(turn.refusals)
        if turn.work or turn.answers:
            self._store.append_beside(turn.work, turn.answers, turn.answers_kept_ms)

    def keep_new_head(self) -> None:
        """Hand a tree head to the keeper outside, once those who waited for its commit have been answered."""
        head, self._new_head = self._new_head, None
        if head is not None:
            self.keep_head(head)

    def sign_head(self) -> None:
        """Sign a tree head over everything that stands, and hand it to the keeper."""
        self._insist_on_epoch()
        head = self._assembler.tree_head()
        self._store.append_tree_head(head)
        self.keep_head(head)
        self._batches_since_head = 0

    def finish(self) -> None:
        """The last words: a checkpoint when reopening would otherwise replay much, and a tree head over everything."""
        # Applying a record again takes about as long as writing a waiting job into a checkpoint.
        if self._since_checkpoint > max(self._checkpoint_records // 100, len(self._kernel.jobs)):
            turn = Turn(self._kernel.tick)
            command = AdvanceTick(turn.tick)  # Lets no time pass: it only carries the checkpoint.
            turn.add(command, self._kernel.apply(command))
            self._since_checkpoint = self._checkpoint_records + 2 * len(self._kernel.jobs)
            self.commit(turn)
        if self.owes_head:
            self.sign_head()
        self.keep_new_head()

    def _insist_on_epoch(self) -> None:
        """Answer nothing from the memory of an owner that another has deposed."""
        epoch = self._store.head(self._partition).epoch
        if epoch != self.epoch:
            raise EpochLost(
                f"this owner has epoch {self.epoch}, but partition {self._partition} is at epoch {epoch}",
                hint="another process has taken over; open the ledger again as its client",
            )
