"""Writes a turn to the log: numbers the records, seals the batch, lists the rows that changed, appends them in one transaction, and
now and then adds a checkpoint and a tree head.

When a turn is written, and what happens after it, is the owner's to say (`owner/owner.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from detent.canon import SigningKey
from detent.canon.late import dataclass
from detent.errors import EpochLost
from detent.kernel import (
    AdvanceTick,
    Command,
    Erase,
    Finish,
    Job,
    Kernel,
    Outcome,
    Record,
    Run,
    Submit,
    checkpoint,
    checkpoint_digest,
    encode_commands,
)
from detent.kernel.manifest import id_fault
from detent.kernel.outcome import COMMITTED
from detent.ledger.batch import seal, tree_origin
from detent.ledger.note import TreeHead, sign_head
from detent.owner.decision_records import write_decisions
from detent.owner.recovery import LogTail, Recovered
from detent.store.api import (
    ANSWERS_KEPT_MS,
    AnswerRow,
    BatchRow,
    CheckpointRow,
    Commit,
    JobRow,
    RecordRow,
    RefusalRow,
    RunRow,
    Store,
    TreeHeadRow,
    WorkRow,
)


@dataclass(slots=True)
class Turn:
    """What one turn of the owner gathered before its commit."""

    tick: int
    commands: list[Command] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    content: list[tuple[bytes, bytes]] = field(default_factory=list)
    decisions: list[bytes] = field(default_factory=list)
    erased: list[bytes] = field(default_factory=list)
    refusals: list[RefusalRow] = field(default_factory=list)
    work: list[WorkRow] = field(default_factory=list)
    answers: list[AnswerRow] = field(default_factory=list)
    answers_kept_ms: int = ANSWERS_KEPT_MS

    def add(self, command: Command, outcome: Outcome) -> None:
        """Take in a command that must be recorded."""
        self.commands.append(command)
        self.records.extend(outcome.records)
        if outcome.decisions:
            self.decisions.extend(outcome.decisions)
        if type(command) is Erase and outcome.refusal is None and outcome.status == COMMITTED:
            # Read off the command, so that no bytes ever go without the record that says so.
            self.erased.extend(command.digests)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to make durable."""
        return not self.commands


class Assembler:
    """Builds commits for one partition under one epoch."""

    def __init__(
        self,
        *,
        origin: str,
        partition: int,
        epoch: int,
        tail: LogTail,
        batch_key: SigningKey,
        head_key: SigningKey,
    ) -> None:
        self.origin = origin
        self.partition = partition
        self.epoch = epoch
        self.tail = tail
        self._batch_key = batch_key
        self._head_key = head_key

    def commit(self, turn: Turn, kernel: Kernel, *, with_checkpoint: bool, with_head: bool) -> Commit:
        """Everything the turn makes durable; advances the tail, so a commit that fails ends this assembler's life."""
        tail, partition, records = self.tail, self.partition, turn.records
        batch_no, first = tail.size, tail.next_position
        commands = encode_commands(turn.commands)
        tick = kernel.tick
        body, signature, leaf_hash, _ = seal(
            self._batch_key,
            origin=self.origin,
            partition=partition,
            epoch=self.epoch,
            batch_no=batch_no,
            prev_batch_hash=tail.leaf_hash,
            commands=commands,
            command_count=len(turn.commands),
            records=[record.body for record in records],
            first_position=first,
            first_tick=tick,
            last_tick=tick,
        )
        nodes = b"".join(tail.frontier.append(leaf_hash))
        count = len(records)
        tail.leaf_hash = leaf_hash
        tail.next_position = first + count
        tail.last_tick = tick
        jobs, runs = kernel.drain_touched()
        return Commit(
            BatchRow(
                partition, batch_no, self.epoch, body, signature, leaf_hash, nodes, commands, first, count, tick, tick
            ),
            _record_rows(records, partition, batch_no, first),
            _job_rows(jobs, partition, tick),
            _run_rows(runs, partition) if runs else (),
            turn.content,
            turn.erased,
            turn.refusals,
            _checkpoint_row(kernel, partition, batch_no) if with_checkpoint else None,
            self.tree_head() if with_head else None,
            turn.work,
            turn.answers,
            turn.answers_kept_ms,
            write_decisions(turn.decisions),
        )

    def tree_head(self) -> TreeHeadRow:
        """A signed note over all batches so far."""
        origin = tree_origin(self.origin, self.partition)
        head = TreeHead(origin, self.tail.size, self.tail.frontier.root())
        return TreeHeadRow(self.partition, self.tail.size, sign_head(head, origin, self._head_key))


def _checkpoint_row(kernel: Kernel, partition: int, batch_no: int) -> CheckpointRow:
    state = checkpoint(kernel)
    return CheckpointRow(partition, batch_no, checkpoint_digest(state), state)


def _record_rows(records: Sequence[Record], partition: int, batch_no: int, first: int) -> list[RecordRow]:
    return [
        RecordRow(partition, position, batch_no, r.kind, r.job_id, r.run_id, r.transition_seq, r.body, r.evidence)
        for position, r in enumerate(records, first)
    ]


def _job_rows(jobs: Sequence[tuple[Job, int]], partition: int, tick: int) -> list[JobRow]:
    return [
        JobRow(
            partition,
            job.job_id,
            job.tenant_id,
            job.run_id,
            job.state,
            job.transition_seq,
            job.attempt_id,
            job.head,
            tick,
            job.encode(),
            seq_before,
        )
        for job, seq_before in jobs
    ]


def _run_rows(runs: Sequence[Run], partition: int) -> list[RunRow]:
    return [
        RunRow(
            partition, run.run_id, run.tenant_id, run.name, run.status, run.started_tick, run.ended_tick, run.encode()
        )
        for run in runs
    ]


def refusal_rows(partition: int, tick: int, command: Command | None, outcome: Outcome) -> list[RefusalRow]:
    """A refused request as a row of the decision log, under the job it was about (X-182).

    Of a result that is discarded the log keeps the digest, and nothing else does (X-157). A request without a command
    says in its refusal what it was about.
    """
    if outcome.refusal is None or outcome.error is None:
        return []
    if command is None:
        job_id = outcome.refusal.details.get("job_id")
    else:
        job_id = getattr(command.manifest if isinstance(command, Submit) else command, "job_id", None)
    known = job_id if isinstance(job_id, str) and id_fault("job_id", job_id) is None else None
    error = outcome.error
    if isinstance(command, Finish) and isinstance(command.detail_digest, bytes):
        details = error.diagnostics.get("details")
        details = {**(details if isinstance(details, dict) else {}), "result_digest": command.detail_digest}
        error = error._replace(diagnostics={**error.diagnostics, "details": details})
    return [RefusalRow(partition, tick, known, outcome.refusal.code, error.encode())]


CHECKPOINT_RECORDS = 20_000
"""Records after which the kernel's state is written down again, at least; more when much is alive."""
HEAD_BATCHES = 256
"""Batches after which a tree head is signed, at most."""


class LogWriter:
    """Writes one partition's log under one epoch. For the holder of the turn."""

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
