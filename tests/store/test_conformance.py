"""What every store must do, put to each of them. A store answers as memory does."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detent.errors import EpochLost, InvalidInput, InvariantBroken
from detent.kernel.table import State
from detent.store import checks
from detent.store.api import (
    ANSWER_BYTES_MAX,
    CONTENT_INLINE_BYTES_MAX,
    CheckpointRow,
    Commit,
    LedgerHead,
    Store,
    TreeHeadRow,
)
from detent.store.memory import MemoryStore
from detent.store.postgres.store import PostgresStore
from detent.store.sqlite import SqliteStore
from tests.postgres_server import Server
from tests.store.ledgers import Ledger
from tests.store.rows import (
    ORIGIN,
    PARTITIONS,
    Writer,
    answer,
    content,
    digest,
    everything,
    job,
    refusal,
    run,
    stored,
    submitted,
    transition,
    work,
)

# The shape of the protocol


@pytest.mark.parametrize("implementation", [MemoryStore, SqliteStore, PostgresStore])
def test_a_store_has_every_operation_of_the_protocol_with_the_same_arguments(implementation: type) -> None:
    operations = {name for name in dir(Store) if not name.startswith("_")}
    assert {"append", "take_ownership", "head", "records", "job_heads"} <= operations
    for name in sorted(operations):
        expected, found = getattr(Store, name), getattr(implementation, name)
        if callable(expected):
            assert inspect.signature(found).parameters == inspect.signature(expected).parameters, name


def test_no_operation_updates_or_deletes_a_record() -> None:
    """PIPE-057"""
    writing = {
        name for name in dir(Store) if name.split("_")[0] in {"append", "take", "remove", "update", "delete", "set"}
    }
    assert writing == {
        "append",
        "append_beside",
        "append_refusals",
        "append_tree_head",
        "remove_content",
        "take_ownership",
    }


def test_the_states_a_store_accepts_are_those_of_the_kernel() -> None:
    """PIPE-050"""
    assert {str(state.value) for state in State} == checks.JOB_STATES


# Heads, epochs, order


def test_a_new_ledger_is_empty_and_has_no_owner(store: Store) -> None:
    assert (store.origin, store.partitions) == (ORIGIN, PARTITIONS)
    assert [store.head(partition) for partition in range(PARTITIONS)] == [
        LedgerHead(0, 0, bytes(32), 0, 0)
    ] * PARTITIONS
    assert store.batch(0, 0) is None
    assert everything(store)["jobs"] == []


@pytest.mark.parametrize(("origin", "partitions"), [("", 1), ("origin", 0), ("origin", 65_537)])
def test_a_ledger_without_a_name_or_with_impossible_partitions_is_refused(
    tmp_path: Path, postgres: Server, origin: str, partitions: int
) -> None:
    with pytest.raises(InvalidInput):
        MemoryStore.create(origin, partitions)
    with pytest.raises(InvalidInput):
        PostgresStore.create(postgres.address(), origin, partitions)
    with pytest.raises(InvalidInput):
        SqliteStore.create(tmp_path / "ledger.db", origin, partitions)
    assert list(tmp_path.iterdir()) == []


def test_taking_ownership_raises_the_epoch_of_that_partition_alone(store: Store) -> None:
    assert [store.take_ownership(1), store.take_ownership(1), store.take_ownership(2)] == [1, 2, 1]
    assert [store.head(partition).epoch for partition in range(PARTITIONS)] == [0, 2, 1]


def test_what_was_appended_is_read_back_as_it_was(writer: Writer, store: Store) -> None:
    first = writer.submit("a", "b")
    second = writer.move("a", 1, "RUNNING")
    assert list(store.batches(0)) == [first.batch, second.batch]
    assert list(store.records(0)) == [*first.records, *second.records]
    assert store.head(0) == LedgerHead(writer.epoch, 2, second.batch.leaf_hash, 3, second.batch.last_tick)


def test_ranges_of_batches_and_records_leave_out_their_end(writer: Writer, store: Store) -> None:
    commits = [writer.submit(f"job-{number}") for number in range(5)]
    batches = [commit.batch for commit in commits]
    assert list(store.batches(0, 1, 3)) == batches[1:3]
    assert list(store.batches(0, 3)) == batches[3:]
    assert list(store.batches(0, 4, 9)) == batches[4:]
    assert list(store.batches(0, 2, 2)) == []
    assert list(store.batches(0, 7)) == []
    assert store.batch(0, 3) == batches[3]
    assert store.batch(0, 5) is None
    assert [record.position for record in store.records(0, 1, 4)] == [1, 2, 3]
    assert [record.position for record in store.records(0, 3)] == [3, 4]


def test_partitions_have_logs_of_their_own(store: Store) -> None:
    for partition, job_id in ((0, "a"), (2, "b"), (2, "c")):
        Writer(store, partition).submit(job_id)
    assert [store.head(partition).size for partition in range(PARTITIONS)] == [1, 0, 2]
    assert [record.job_id for record in store.records(2)] == ["b", "c"]
    assert [record.job_id for record in store.records(1)] == []


def test_a_partition_the_ledger_does_not_have_is_a_broken_invariant(store: Store) -> None:
    for ask in (store.head, store.records, store.batches, store.checkpoints, store.tree_heads, store.take_ownership):
        with pytest.raises(InvariantBroken):
            ask(PARTITIONS)


def test_a_batch_without_records_is_a_commit_like_any_other(writer: Writer, store: Store) -> None:
    writer.append()
    writer.submit("a")
    assert store.head(0)[1:4:2] == (2, 1)


# Compare and swap


def _refuse(store: Store, commit: Commit, error: type[Exception]) -> None:
    """The commit is refused with this error and leaves nothing behind."""
    before = everything(store)
    with pytest.raises(error):
        store.append(commit)
    assert everything(store) == before


def test_a_deposed_owner_writes_nothing(ledger: Ledger) -> None:
    """X-172, PIPE-060, PIPE-062"""
    old = Writer(ledger.store)
    old.submit("a")
    late = old.commit([], [job("late")])
    new = Writer(ledger.second())
    _refuse(ledger.store, late, EpochLost)
    new.submit("b")
    later = late.batch._replace(batch_no=2, first_position=2, first_tick=2, last_tick=2, nodes=b"")
    _refuse(ledger.store, late._replace(batch=later), EpochLost)
    assert [record.job_id for record in ledger.store.records(0)] == ["a", "b"]


def test_no_process_writes_before_taking_ownership(store: Store) -> None:
    writer = Writer(store, 1)
    commit = writer.commit()
    _refuse(store, commit._replace(batch=commit.batch._replace(partition=0)), EpochLost)


@pytest.mark.parametrize("batch_no", [0, 2])
def test_only_the_next_batch_number_is_written(writer: Writer, store: Store, batch_no: int) -> None:
    writer.submit("a")
    commit = writer.commit()
    _refuse(store, commit._replace(batch=commit.batch._replace(batch_no=batch_no, nodes=b"")), EpochLost)


def test_the_first_batch_starts_at_the_first_position(writer: Writer, store: Store) -> None:
    commit = writer.commit([])
    _refuse(store, commit._replace(batch=commit.batch._replace(first_position=1)), InvariantBroken)


@pytest.mark.parametrize("first_position", [0, 2])
def test_a_batch_starts_where_the_last_one_ended(writer: Writer, store: Store, first_position: int) -> None:
    writer.submit("a")
    commit = writer.commit()
    _refuse(store, commit._replace(batch=commit.batch._replace(first_position=first_position)), InvariantBroken)


@pytest.mark.parametrize("expected", [-1, 0, 1, 2, 3])
def test_a_job_moves_only_from_the_sequence_its_writer_saw(writer: Writer, store: Store, expected: int) -> None:
    """PIPE-064, PIPE-065"""
    writer.submit("a")
    writer.move("a", 1, "RUNNING")
    commit = writer.commit([], [job("a", seq=2, expected=expected, state="SUCCEEDED")])
    if expected == 1:
        store.append(commit)
        row = store.job("a")
        assert row is not None
        assert (row.transition_seq, row.state) == (2, "SUCCEEDED")
    else:
        _refuse(store, commit, EpochLost)


def test_a_job_that_must_be_there_is_not_made(writer: Writer, store: Store) -> None:
    _refuse(store, writer.commit([], [job("a", seq=1, expected=0)]), EpochLost)


@pytest.mark.parametrize("change", [{"tenant_id": "other"}, {"run_id": "other"}])
def test_a_job_never_changes_its_tenant_or_run(writer: Writer, store: Store, change: dict[str, Any]) -> None:
    writer.submit("a")
    _refuse(store, writer.commit([], [job("a", seq=1, **change)]), EpochLost)


def test_a_transition_is_written_once(writer: Writer, store: Store) -> None:
    """PIPE-065"""
    writer.submit("a")
    writer.move("a", 1, "RUNNING")
    _refuse(store, writer.commit([transition("a", 0)]), EpochLost)
    _refuse(store, writer.commit([transition("a", 7), transition("a", 7)]), EpochLost)


def test_of_a_commit_whose_last_row_fails_nothing_stays(writer: Writer, store: Store) -> None:
    writer.submit("a", "b")
    doomed = writer.commit(
        [submitted("c"), transition("a", 0)],
        [job("c"), job("a", seq=1), job("b", seq=5, expected=4)],
        runs=[run("run-1")],
        content=[content("payload")],
        erased=[digest("gone")],
        refusals=[refusal("QUEUE_FULL")],
        checkpoint=CheckpointRow(0, 1, digest("state"), b"state"),
        tree_head=TreeHeadRow(0, 2, "note"),
        work=[work("a")],
        answers=[answer("one")],
        decisions=b"decided",
    )
    _refuse(store, doomed, EpochLost)
    writer.submit("c")
    assert [record.job_id for record in store.records(0)] == ["a", "b", "c"]


# Commits that were put together wrongly


def _batch(**changes: Any) -> Callable[[Commit], Commit]:
    return lambda commit: commit._replace(batch=commit.batch._replace(**changes))


def _job(**changes: Any) -> Callable[[Commit], Commit]:
    return lambda commit: commit._replace(jobs=[commit.jobs[0]._replace(**changes)])


def _record(**changes: Any) -> Callable[[Commit], Commit]:
    return lambda commit: commit._replace(records=[commit.records[0]._replace(**changes), *commit.records[1:]])


def _with(**parts: Any) -> Callable[[Commit], Commit]:
    return lambda commit: commit._replace(**parts)


_LARGE = bytes(CONTENT_INLINE_BYTES_MAX + 1)

WRONG: dict[str, Callable[[Commit], Commit]] = {
    "epoch 0": _batch(epoch=0),
    "batch without body": _batch(body=b""),
    "short signature": _batch(signature=bytes(63)),
    "short leaf hash": _batch(leaf_hash=bytes(31)),
    "node that the leaf does not complete": _batch(nodes=bytes(64)),
    "node missing": _batch(nodes=b""),
    "fewer records than claimed": _batch(record_count=3),
    "position left out": _batch(first_position=2),
    "ticks run backwards": _batch(first_tick=5, last_tick=4),
    "tick before the last batch": _batch(first_tick=0),
    "record of another batch": _record(batch_no=7),
    "record of another partition": _record(partition=1),
    "record at another position": _record(position=0),
    "record without kind": _record(kind=""),
    "record without body": _record(body=b""),
    "record beyond 60 KiB": _record(body=bytes(checks.RECORD_BYTES_MAX + 1)),
    "record with an empty run": _record(run_id=""),
    "submission without job": _record(job_id=None),
    "sequence on a submission": _record(transition_seq=0),
    "transition without sequence": _record(kind="transition"),
    "transition with a negative sequence": _record(kind="transition", transition_seq=-1),
    "transition without job": _record(kind="transition", transition_seq=0, job_id=None),
    "transition of a job that was never submitted": _record(kind="transition", transition_seq=0, job_id="nobody"),
    "job of another partition": _job(partition=1),
    "job without id": _job(job_id=""),
    "job without tenant": _job(tenant_id=""),
    "job with an empty run": _job(run_id=""),
    "job in no state": _job(state="PAUSED"),
    "job with a British state": _job(state="CANCELLED"),
    "job with a negative sequence": _job(transition_seq=-1),
    "job with a negative attempt": _job(attempt_id=-1),
    "job with a negative tick": _job(tick=-1),
    "job with a short head": _job(head=bytes(31)),
    "job moved twice": lambda commit: commit._replace(jobs=[commit.jobs[0], commit.jobs[0]]),
    "run of another partition": _with(runs=[run("r")._replace(partition=1)]),
    "run without id": _with(runs=[run("")]),
    "run without status": _with(runs=[run("r", status="")]),
    "run that ends before it starts": _with(runs=[run("r", started=5, ended=4)]),
    "run before tick 0": _with(runs=[run("r", started=-1)]),
    "refusal of another partition": _with(refusals=[refusal("C")._replace(partition=1)]),
    "refusal without code": _with(refusals=[refusal("")]),
    "refusal before tick 0": _with(refusals=[refusal("C", tick=-1)]),
    "content under another digest": _with(content=[(digest("other"), b"data")]),
    "content too large for the database": _with(content=[content(_LARGE)]),
    "decisions without a byte": _with(decisions=b""),
    "short digest erased": _with(erased=[bytes(31)]),
    "checkpoint of another partition": _with(checkpoint=CheckpointRow(1, 1, bytes(32), b"")),
    "checkpoint of a batch to come": _with(checkpoint=CheckpointRow(0, 2, bytes(32), b"")),
    "checkpoint with a short digest": _with(checkpoint=CheckpointRow(0, 1, bytes(31), b"")),
    "tree head of another partition": _with(tree_head=TreeHeadRow(1, 1, "note")),
    "tree head of batches to come": _with(tree_head=TreeHeadRow(0, 3, "note")),
    "tree head over nothing": _with(tree_head=TreeHeadRow(0, 0, "note")),
    "tree head without note": _with(tree_head=TreeHeadRow(0, 1, "")),
    "work of a job that was never submitted": _with(work=[work("nobody")]),
    "work without workspace": _with(work=[work("a", workspace="")]),
    "work without label": _with(work=[work("a", label="")]),
    "work with a short key": _with(work=[work("a", execution_key=bytes(31))]),
    "work with a short key of an element": _with(work=[work("a", element_keys=(None, bytes(31)))]),
    "work with a short payload digest": _with(work=[work("a", payload_digest=bytes(31))]),
    "work before tick 0": _with(work=[work("a", tick=-1)]),
    "answer under a short scope": _with(answers=[answer("one")._replace(scope=bytes(31))]),
    "answer to a short digest": _with(answers=[answer("one")._replace(body_digest=bytes(31))]),
    "answer from before 1970": _with(answers=[answer("one", at_ms=-1)]),
    "answer that is too large": _with(answers=[answer("one", response=bytes(ANSWER_BYTES_MAX + 1))]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_commit_put_together_wrongly_is_a_broken_invariant_and_leaves_nothing(
    writer: Writer, store: Store, wrong: Callable[[Commit], Commit]
) -> None:
    writer.submit("a")
    right = writer.commit([submitted("b"), submitted("c")], [job("b")])
    _refuse(store, wrong(right), InvariantBroken)
    store.append(right)


@pytest.mark.parametrize(
    "wrong",
    [
        _batch(last_tick=2**63),
        _job(tick=2**63),
        _job(transition_seq=2**64 - 1),
        _job(attempt_id=2**63),
        _record(kind="transition", transition_seq=2**63),
        _with(runs=[run("r", started=2**63)]),
        _with(refusals=[refusal("C", tick=2**63)]),
        _with(work=[work("a", tick=2**63)]),
        _with(answers=[answer("one", at_ms=2**63)]),
        _batch(batch_no=2**40 - 1, nodes=bytes(32 * 40), first_position=2**40 - 1),
    ],
)
def test_integers_beyond_63_bits_are_refused_and_nothing_is_written(
    writer: Writer, store: Store, wrong: Callable[[Commit], Commit]
) -> None:
    writer.submit("a")
    right = writer.commit([submitted("b"), submitted("c")], [job("b")])
    _refuse(store, wrong(right), InvalidInput)


def test_the_largest_integer_is_kept(writer: Writer, store: Store) -> None:
    row = job("a", tick=2**63 - 1, attempt_id=2**63 - 1)
    commit = writer.commit([submitted("a")], [row])
    store.append(commit._replace(batch=commit.batch._replace(last_tick=2**63 - 1)))
    assert store.job("a") == stored(row)
    assert store.head(0).last_tick == 2**63 - 1
    assert store.transition("a", 2**64) is None
