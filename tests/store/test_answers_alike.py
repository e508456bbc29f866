"""Whatever is done to them, in whatever order, the stores answer as memory does."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from detent.errors import DetentError, InvariantBroken
from detent.store.api import (
    ANSWERS_KEPT_MS,
    NEVER_REUSED,
    AnswerRow,
    CheckpointRow,
    Commit,
    JobRow,
    RecordRow,
    Store,
    TreeHeadRow,
    WorkRow,
)
from detent.store.memory import MemoryStore
from detent.store.postgres.store import PostgresStore
from detent.store.sqlite import SqliteStore
from detent.store.sqlite.database import Options
from tests.postgres_server import Server
from tests.store.rows import (
    Writer,
    content,
    digest,
    everything,
    job,
    note,
    refusal,
    run,
    submitted,
    transition,
    work,
)
from tests.store.rows import answer as kept

JOB_IDS = st.sampled_from(["a", "b", "é", "\U0001f600"])
RUN_IDS = st.sampled_from([None, "run-1", "run-2"])
TEXTS = st.sampled_from(["one", "two", "three"])
STATES = st.sampled_from(["QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELED", "LOST"])
SMALL = st.integers(-1, 3)

JOBS = st.builds(
    lambda job_id, run_id, state, seq, expected: job(job_id, run_id=run_id, state=state, seq=seq, expected=expected),
    JOB_IDS, RUN_IDS, STATES, st.integers(0, 3), SMALL,
)  # fmt: skip
RECORDS: st.SearchStrategy[RecordRow] = st.one_of(
    st.builds(lambda job_id, run_id: submitted(job_id, run_id=run_id), JOB_IDS, RUN_IDS),
    st.builds(transition, JOB_IDS, SMALL),
    st.builds(lambda job_id, run_id: note("step_reused", job_id=job_id, run_id=run_id), st.none() | JOB_IDS, RUN_IDS),
)
WORK = st.builds(
    lambda job_id, key, place, label, text, keys, pool: work(
        job_id, execution_key=key, workspace=place, label=label, payload_digest=digest(text), element_keys=keys, pool=pool
    ),
    JOB_IDS, st.sampled_from([digest("key"), digest("other"), NEVER_REUSED]), st.sampled_from(["here", "there", "tenant"]),
    st.sampled_from(["flow/step", "flow/other"]), TEXTS,
    st.sampled_from([(), (), (digest("key"),), (None, digest("other"), digest("key"))]),
    st.sampled_from([None, "gpu", "flow/step"]),
)  # fmt: skip
ANSWERS = st.builds(
    lambda scope, days, response: kept(scope, response=response, at_ms=days * ANSWERS_KEPT_MS // 2),
    TEXTS, st.integers(0, 4), st.sampled_from([b"a", b"b"]),
)  # fmt: skip


@dataclass(frozen=True)
class Append:
    """A commit that is right in itself, most of the time, and fits the store's state some of the time."""

    partition: int
    records: list[RecordRow]
    jobs: list[JobRow]
    content: list[str]
    erased: list[str]
    refusals: list[str]
    run_id: str | None
    checkpoint: bool
    tree_size: int | None
    batch_shift: int
    epoch_shift: int
    work: list[WorkRow]
    answers: list[AnswerRow]

    def build(self, writer: Writer) -> Commit:
        number = writer.store.head(self.partition).size
        commit = writer.commit(
            self.records,
            self.jobs,
            content=[content(text) for text in self.content],
            erased=[digest(text) for text in self.erased],
            refusals=[refusal("CONFLICT", job_id=text)._replace(partition=self.partition) for text in self.refusals],
            runs=[] if self.run_id is None else [run(self.run_id, started=number)._replace(partition=self.partition)],
            checkpoint=CheckpointRow(self.partition, number, digest("state"), b"state") if self.checkpoint else None,
            tree_head=None if self.tree_size is None else TreeHeadRow(self.partition, self.tree_size, "note"),
            work=self.work,
            answers=self.answers,
        )
        batch = commit.batch
        return commit._replace(
            batch=batch._replace(batch_no=batch.batch_no + self.batch_shift, epoch=batch.epoch + self.epoch_shift)
        )


MOSTLY_ZERO = st.sampled_from([0, 0, 0, 0, 0, 0, 0, -1, 1])
APPENDS = st.builds(
    Append,
    partition=st.integers(0, 1),
    records=st.lists(RECORDS, max_size=3),
    jobs=st.lists(JOBS, max_size=2),
    content=st.lists(TEXTS, max_size=2),
    erased=st.lists(TEXTS, max_size=1),
    refusals=st.lists(JOB_IDS, max_size=2),
    run_id=RUN_IDS,
    checkpoint=st.booleans(),
    tree_size=st.none() | st.integers(0, 3),
    batch_shift=MOSTLY_ZERO,
    epoch_shift=MOSTLY_ZERO,
    work=st.lists(WORK, max_size=2),
    answers=st.lists(ANSWERS, max_size=2),
)

Act = Append | int | list[str] | tuple[list[WorkRow], list[AnswerRow]]
ACTS: st.SearchStrategy[Act] = st.one_of(
    APPENDS, APPENDS, APPENDS, APPENDS, st.integers(0, 1), st.lists(TEXTS, min_size=1, max_size=2),
    st.tuples(st.lists(WORK, max_size=1), st.lists(ANSWERS, max_size=2)),
)  # fmt: skip


def answer(act: Act, store: Store, writers: list[Writer]) -> object:
    """What the store says to one act: a value, or that it refused.

    Which error it is, test_conformance asks for each fault alone; a commit with two may be answered by either.
    """
    try:
        match act:
            case Append():
                return store.append(act.build(writers[act.partition]))  # type: ignore[func-returns-value]
            case int():
                writers[act] = Writer(store, act)
                return writers[act].epoch
            case list():
                return store.remove_content([digest(text) for text in act])
            case tuple():
                return store.append_beside(*act)  # type: ignore[func-returns-value]
    except (DetentError, InvariantBroken):
        return "refused"


@given(st.lists(ACTS, max_size=12))
def test_sqlite_answers_as_memory_does(acts: list[Act]) -> None:
    """PIPE-065"""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "ledger.db"
        store = SqliteStore.create(path, "origin", 2, _options=Options(synchronous="OFF"))
        assert_alike(store, acts)


@settings(max_examples=15)  # Each makes a schema of its own.
@given(acts=st.lists(ACTS, max_size=12))
def test_postgres_answers_as_memory_does(postgres: Server, acts: list[Act]) -> None:
    """PIPE-065"""
    assert_alike(PostgresStore.create(postgres.address(), "origin", 2), acts)


def assert_alike(store: SqliteStore | PostgresStore, acts: list[Act]) -> None:
    """Do the same to a store and to the one in memory."""
    memory = MemoryStore.create("origin", 2)
    try:
        memory_writers = [Writer(memory, partition) for partition in range(2)]
        store_writers = [Writer(store, partition) for partition in range(2)]
        for act in acts:
            assert answer(act, store, store_writers) == answer(act, memory, memory_writers), act
            assert everything(store) == everything(memory), act
        assert store.damage() == []
    finally:
        store.close()
