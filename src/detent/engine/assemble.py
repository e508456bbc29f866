"""From a turn's outcomes to one commit: number the records, seal the batch, list the rows that changed.

Nothing here decides anything. It is the border between the kernel's values and the store's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from detent.canon import SigningKey
from detent.canon.late import dataclass
from detent.engine.recover import LogTail
from detent.kernel import (
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
    erased: list[bytes] = field(default_factory=list)
    refusals: list[RefusalRow] = field(default_factory=list)
    work: list[WorkRow] = field(default_factory=list)
    answers: list[AnswerRow] = field(default_factory=list)
    answers_kept_ms: int = ANSWERS_KEPT_MS

    def add(self, command: Command, outcome: Outcome) -> None:
        """Take in a command that must be recorded."""
        self.commands.append(command)
        self.records.extend(outcome.records)
        if outcome.content:
            self.content.extend(outcome.content)
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
