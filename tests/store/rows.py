"""Builds commits that belong together, one after another, so that a test names only what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from detent.store.api import (
    AnswerRow,
    BatchRow,
    Commit,
    JobRow,
    JobsWanted,
    RecordRow,
    RefusalRow,
    RunRow,
    Store,
    StoreReader,
    WorkRow,
)

ORIGIN = "detent/0123456789abcdef"
PARTITIONS = 3


def digest(text: str | bytes) -> bytes:
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).digest()


def content(text: str | bytes) -> tuple[bytes, bytes]:
    data = text.encode() if isinstance(text, str) else text
    return digest(data), data


def submitted(job_id: str, *, run_id: str | None = None) -> RecordRow:
    return RecordRow(0, 0, 0, "submitted", job_id, run_id, None, f"submitted {job_id}".encode(), b"manifest")


def transition(job_id: str, seq: int) -> RecordRow:
    return RecordRow(0, 0, 0, "transition", job_id, None, seq, f"{job_id} {seq}".encode(), b"evidence")


def note(kind: str, *, job_id: str | None = None, run_id: str | None = None, body: bytes = b"body") -> RecordRow:
    return RecordRow(0, 0, 0, kind, job_id, run_id, None, body, None)


def job(
    job_id: str,
    *,
    seq: int = 0,
    expected: int | None = None,
    state: str = "QUEUED",
    run_id: str | None = None,
    **changes: Any,
) -> JobRow:
    """A job's row after ``seq`` transitions; by default the writer saw it one before that."""
    row = JobRow(
        partition=0,
        job_id=job_id,
        tenant_id="tenant",
        run_id=run_id,
        state=state,
        transition_seq=seq,
        attempt_id=0,
        head=digest(f"{job_id} {seq}"),
        tick=seq,
        body=f"job {job_id} {seq}".encode(),
        expected_seq=seq - 1 if expected is None else expected,
    )
    return row._replace(**changes)


def stored(row: JobRow) -> JobRow:
    """The row as a store hands it back."""
    return row._replace(expected_seq=row.transition_seq)


def run(run_id: str, *, started: int = 0, ended: int | None = None, status: str = "RUNNING") -> RunRow:
    return RunRow(0, run_id, "tenant", f"name of {run_id}", status, started, ended, b"run")


def refusal(code: str, *, tick: int = 0, job_id: str | None = None) -> RefusalRow:
    return RefusalRow(0, tick, job_id, code, b"why")


def work(
    job_id: str, key: str = "key", *, workspace: str = "here", label: str = "flow/step", **changes: Any
) -> WorkRow:
    row = WorkRow(workspace, digest(key), job_id, label, tick=0, payload_digest=digest(f"payload of {job_id}"))
    return row._replace(**changes)


def answer(scope: str, *, response: bytes = b"{}", at_ms: int = 0) -> AnswerRow:
    return AnswerRow(digest(scope), digest("body"), response, at_ms)


class Writer:
    """The owner of a partition, as far as a store can tell: it knows where its log stands."""

    def __init__(self, store: Store, partition: int = 0) -> None:
        self.store = store
        self.partition = partition
        self.epoch = store.take_ownership(partition)

    def commit(self, records: Sequence[RecordRow] = (), jobs: Sequence[JobRow] = (), **parts: Any) -> Commit:
        """The next commit; what it holds is placed in this partition."""
        head = self.store.head(self.partition)
        batch_no, position = head.size, head.next_position
        placed = [
            record._replace(partition=self.partition, position=position + index, batch_no=batch_no)
            for index, record in enumerate(records)
        ]
        text = f"batch {self.partition}/{batch_no}"
        batch = BatchRow(
            partition=self.partition,
            batch_no=batch_no,
            epoch=self.epoch,
            body=text.encode(),
            signature=digest(text) * 2,
            leaf_hash=digest(text),
            nodes=digest(text) * ((batch_no ^ (batch_no + 1)).bit_length() - 1),
            commands=f"commands of {text}".encode(),
            first_position=position,
            record_count=len(placed),
            first_tick=head.last_tick,
            last_tick=head.last_tick + 1,
        )
        return Commit(batch, placed, [row._replace(partition=self.partition) for row in jobs], **parts)

    def append(self, records: Sequence[RecordRow] = (), jobs: Sequence[JobRow] = (), **parts: Any) -> Commit:
        commit = self.commit(records, jobs, **parts)
        self.store.append(commit)
        return commit

    def submit(self, *job_ids: str, run_id: str | None = None) -> Commit:
        return self.append(
            [submitted(job_id, run_id=run_id) for job_id in job_ids], [job(job_id, run_id=run_id) for job_id in job_ids]
        )

    def move(self, job_id: str, seq: int, state: str, *, run_id: str | None = None) -> Commit:
        """Write the job's transition number ``seq - 1``, after which it has ``seq`` of them."""
        return self.append([transition(job_id, seq - 1)], [job(job_id, seq=seq, state=state, run_id=run_id)])


def everything(store: StoreReader) -> dict[str, object]:
    """All that a store will tell, in values that can be compared."""
    answers: dict[str, object] = {
        "origin": store.origin,
        "jobs": list(store.jobs()),
        "recent_jobs": list(store.recent_jobs()),
        "job_heads": list(store.job_heads()),
        "job_counts": store.job_counts(),
        "tenant_counts": store.tenant_counts(),
        "runs": list(store.runs()),
        "content": [(found, size, store.content(found)) for found, size in store.content_digests()],
        "erased": list(store.erased_digests()),
        "refusals": list(store.refusals(limit=20_000)),
        "work": [
            list(store.work(workspace, digest(key))) for workspace in ("here", "there") for key in ("key", "other")
        ],
        "labels": [list(store.work_labelled("here", label)) for label in ("flow/step", "flow/other")],
        "labels of runs": {run.run_id: store.labels_of_run(run.run_id) for run in store.runs()},
        "work_rows": list(store.work_rows()),
        "work_elements": list(store.work_element_rows()),
        "jobs_outside_work": list(store.jobs_outside_work()),
        "label_rows": list(store.label_rows()),
        "labels of jobs": [store.label(row.job_id) for row in store.jobs()],
        "pages": [
            [row for _, row in store.jobs_page(JobsWanted("tenant", label=label, pool=pool), limit=9)]
            for label, pool in (("flow/step", None), ("flow/other", None), (None, "gpu"))
        ],
        "answer_rows": list(store.answer_rows()),
        "answers": [store.answer(digest(scope)) for scope in ("one", "two", "three")],
    }
    for partition in range(store.partitions):
        answers[f"partition {partition}"] = (
            store.head(partition),
            list(store.batches(partition)),
            list(store.decisions(partition)),
            list(store.records(partition)),
            list(store.checkpoints(partition)),
            list(store.tree_heads(partition)),
        )
    return answers
