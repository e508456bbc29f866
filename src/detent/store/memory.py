"""The reference store: the protocol in plain lists and dictionaries.

Nothing here is fast and nothing is clever. Every append first looks whether all of it may happen and then does all of it,
so "together or not at all" can be read off the code. The conformance suite holds the real stores against this one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import chain
from typing import Self

from detent.errors import EpochLost, InvariantBroken
from detent.store.api import (
    ANSWERS_KEPT_MS,
    CHECKPOINTS_KEPT,
    NEVER_REUSED,
    PAYLOAD_MARK_BYTES,
    REFUSALS_KEPT_MAX,
    AnswerRow,
    BatchRow,
    Commit,
    DecisionsRow,
    RefusalRow,
    TreeHeadRow,
    WorkRow,
    label_of,
)
from detent.store.checks import (
    check_beside,
    check_commit,
    check_integers,
    check_refusals,
    check_rows,
    check_tree_head,
)
from detent.store.memory_reader import MemoryReader


class MemoryStore(MemoryReader):
    """A ledger that is gone when the process ends."""

    @classmethod
    def create(cls, origin: str, partitions: int) -> Self:
        """Make an empty ledger."""
        return cls(origin, partitions)

    def take_ownership(self, partition: int) -> int:
        """Raise the partition's epoch by one and return it."""
        log = self._log(partition)
        log.epoch += 1
        return log.epoch

    def append(self, commit: Commit) -> None:
        """Keep the whole commit, or raise and keep nothing of it."""
        check_commit(commit, self.partitions)
        rows = (commit.records, commit.jobs, commit.runs, commit.refusals, commit.work, commit.answers)
        check_integers(chain((commit.batch,), *rows))
        check_rows(commit, self.partitions)
        self._check_ownership(commit.batch)
        self._check_jobs(commit)
        self._check_work(commit.work, self._named.keys() | _named_by(commit))
        log = self._logs[commit.batch.partition]
        log.batches.append(commit.batch)
        log.records.extend(commit.records)
        for record in commit.records:
            if record.job_id is not None and record.transition_seq is not None:
                self._transitions[record.job_id, record.transition_seq] = record
        for name in _named_by(commit):
            self._named.setdefault(name, len(self._named))
        self._jobs.update((job.job_id, job._replace(expected_seq=job.transition_seq)) for job in commit.jobs)
        self._runs.update((run.run_id, run) for run in commit.runs)
        self._keep_beside(commit.work, commit.answers, commit.answers_kept_ms)
        self._keep_content(commit)
        if commit.decisions is not None:
            log.decisions.append(DecisionsRow(commit.batch.partition, commit.batch.batch_no, commit.decisions))
        self._keep_refusals(commit.refusals)
        if commit.checkpoint is not None:
            log.checkpoints[commit.checkpoint.batch_no] = commit.checkpoint
            for batch_no in sorted(log.checkpoints)[:-CHECKPOINTS_KEPT]:
                del log.checkpoints[batch_no]
        if commit.tree_head is not None:
            log.tree_heads[commit.tree_head.size] = commit.tree_head

    def append_refusals(self, refusals: Sequence[RefusalRow]) -> None:
        """Add to the bounded decision log outside a commit."""
        check_integers(refusals)
        check_refusals(refusals, self.partitions)
        self._keep_refusals(refusals)

    def append_beside(
        self, work: Sequence[WorkRow], answers: Sequence[AnswerRow], answers_kept_ms: int = ANSWERS_KEPT_MS
    ) -> None:
        """Add to the work index and to the kept answers outside a commit."""
        check_integers(chain(work, answers))
        check_beside(work, answers)
        self._check_work(work, self._named.keys())
        self._keep_beside(work, answers, answers_kept_ms)

    def append_tree_head(self, head: TreeHeadRow) -> None:
        """Keep a signed tree head over batches that are already there."""
        log = self._log(head.partition)
        check_tree_head(head, head.partition, len(log.batches))
        log.tree_heads[head.size] = head

    def remove_content(self, digests: Sequence[bytes]) -> int:
        """Delete unreferenced inline content; returns the number of bytes freed."""
        return sum(len(self._content.pop(digest, b"")) for digest in digests)

    def _check_ownership(self, batch: BatchRow) -> None:
        head = self.head(batch.partition)
        if (batch.epoch, batch.batch_no) != (head.epoch, head.size):
            raise EpochLost(
                f"batch {batch.batch_no} of epoch {batch.epoch}: partition {batch.partition} stands at batch {head.size} "
                f"of epoch {head.epoch}",
                details={"partition": batch.partition, "epoch": head.epoch, "size": head.size},
            )
        if batch.first_position != head.next_position:
            raise InvariantBroken(f"batch {batch.batch_no} starts at {batch.first_position}, not {head.next_position}")
        if batch.first_tick < head.last_tick:
            raise InvariantBroken(f"batch {batch.batch_no} starts at tick {batch.first_tick}, before {head.last_tick}")

    def _check_jobs(self, commit: Commit) -> None:
        for job in commit.jobs:
            stored = self._jobs.get(job.job_id)
            if (stored.transition_seq if stored else -1) != job.expected_seq:
                raise _moved(job.job_id)
            if stored and job[:4] != stored[:4]:  # partition, id, tenant and run are for life
                raise _moved(job.job_id)
        known = self._named.keys() | _named_by(commit)
        written: set[tuple[str, int]] = set()
        for record in commit.records:
            if record.job_id is None or record.transition_seq is None:
                continue
            if record.job_id not in known:
                raise InvariantBroken(f"a transition of job {record.job_id!r}, which was never submitted")
            key = (record.job_id, record.transition_seq)
            if key in self._transitions or key in written:
                raise _moved(record.job_id)
            written.add(key)

    def _keep_content(self, commit: Commit) -> None:
        for digest, data in commit.content:
            self._content.setdefault(digest, data)
            self._erased.discard(digest)
        for digest in commit.erased:
            self._content.pop(digest, None)
            self._erased.add(digest)
            for name, row in self._work.items():
                if row.payload_digest == digest:
                    self._work[name] = row._replace(execution_key=digest, element_keys=())
            mark = digest[:PAYLOAD_MARK_BYTES]
            self._labels = {name: row for name, row in self._labels.items() if row.payload_mark != mark}
        if commit.erased:
            self._erase_answers(frozenset(commit.erased))

    def _erase_answers(self, erased: frozenset[bytes]) -> None:
        from detent.jobs.kept_answer import jobs_named  # noqa: PLC0415 - erasing is rare
        from detent.ledger.loose import named_digests  # noqa: PLC0415

        for scope, answer in list(self._answers.items()):
            jobs = (self._jobs.get(job_id) for job_id in jobs_named(answer.response))
            if any(job is not None and not erased.isdisjoint(named_digests(job.body)) for job in jobs):
                del self._answers[scope]

    def _check_work(self, work: Sequence[WorkRow], known: Container[str]) -> None:
        for row in work:
            if row.job_id not in known:
                raise InvariantBroken(f"work of job {row.job_id!r}, which was never submitted")

    def _keep_beside(self, work: Sequence[WorkRow], answers: Sequence[AnswerRow], kept_ms: int) -> None:
        for row in work:
            self._labels.setdefault(row.job_id, label_of(row))
            if row.execution_key != NEVER_REUSED:
                self._work.setdefault(row.job_id, row._replace(pool=None))
        for answer in answers:
            kept = self._answers.get(answer.scope)
            if kept is None or kept.stored_at_ms <= answer.stored_at_ms - kept_ms:
                self._answers[answer.scope] = answer
        if answers:
            expired = min(answer.stored_at_ms for answer in answers) - kept_ms
            for scope in [scope for scope, answer in self._answers.items() if answer.stored_at_ms <= expired]:
                del self._answers[scope]

    def _keep_refusals(self, refusals: Sequence[RefusalRow]) -> None:
        if refusals:
            self._refusals = [*self._refusals, *refusals][-REFUSALS_KEPT_MAX:]


def _named_by(commit: Commit) -> dict[str, None]:
    """Job ids this commit brings in, in order: by any record but a transition, or by a row."""
    named = {
        record.job_id: None for record in commit.records if record.job_id is not None and record.kind != "transition"
    }
    return named | {job.job_id: None for job in commit.jobs if job.expected_seq < 0}


def _moved(job_id: str) -> EpochLost:
    return EpochLost(f"job {job_id!r} is no longer where the writer saw it", details={"job_id": job_id})
