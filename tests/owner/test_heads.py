"""Tree heads and checkpoints: when they are made, what they say, and where they are kept."""

from __future__ import annotations

import threading

import pytest

from detent.canon import decode, encode
from detent.errors import HomeError, StoreUnavailable
from detent.kernel import Claim, checkpoint, checkpoint_digest
from detent.ledger import root_of, tree_origin, verify_head
from detent.owner import log_writer
from detent.owner import owner as owner_module
from detent.store.api import CheckpointRow, Store, TreeHeadRow
from detent.store.memory import MemoryStore
from tests.owner.rig import LOG_KEY, ORIGIN, Rig, cancel, heartbeat, stamped, submit
from tests.owner.scenario import story

WAIT_SECONDS = 30


def check_head(store: Store, row: TreeHeadRow) -> None:
    """A stored head is signed by the log's key, over the batches that are there."""
    origin = tree_origin(ORIGIN, 0)
    head = verify_head(row.note, name=origin, public_key=LOG_KEY.public_key, origin=origin)
    assert head.size == row.size
    assert head.root == root_of([batch.leaf_hash for batch in store.batches(0, 0, row.size)])


def test_a_tree_head_is_signed_after_a_number_of_batches(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "HEAD_BATCHES", 3)
    rig.open()
    for n in range(5):
        rig.one(submit(f"job-{n}"))
    assert [row.size for row in rig.store.tree_heads(0)] == [7, 4]
    for row in rig.store.tree_heads(0):
        check_head(rig.store, row)


def test_a_tree_head_is_signed_at_the_end(rig: Rig) -> None:
    rig.one(submit())
    assert list(rig.store.tree_heads(0)) == []
    rig.owner.close()
    (row,) = rig.store.tree_heads(0)
    assert row.size == rig.size
    check_head(rig.store, row)


def test_every_tree_head_is_kept_outside(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-178"""
    monkeypatch.setattr(log_writer, "HEAD_BATCHES", 2)
    rig.open()
    for n in range(4):
        rig.one(submit(f"job-{n}"))
    rig.owner.close()
    assert rig.kept == sorted(rig.store.tree_heads(0), key=lambda row: row.size)
    assert rig.kept[-1].size == rig.size


def test_an_idle_owner_signs_a_tree_head_over_what_it_wrote(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "HEAD_IDLE_MS", 1)
    rig = Rig(store)
    kept = threading.Event()

    def keep(head: TreeHeadRow) -> None:
        rig.kept.append(head)
        kept.set()

    rig.owner._log_writer.keep_head = keep
    rig.owner.start()
    try:
        rig.owner.call([stamped(submit())])
        assert kept.wait(WAIT_SECONDS)
    finally:
        rig.owner.close()
    assert rig.kept[0].size <= rig.size
    check_head(store, rig.kept[-1])
    assert rig.kept[-1].size == rig.size


def test_an_owner_with_nothing_new_signs_no_second_head(rig: Rig) -> None:
    rig.owner._idle()
    rig.owner._idle()
    assert len(rig.kept) == 1


def test_a_commit_is_answered_before_its_tree_head_is_kept_outside(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-173: a keeper that fails must not make a durable commit look undone."""
    monkeypatch.setattr(log_writer, "HEAD_BATCHES", 1)

    def broken(_head: TreeHeadRow) -> None:
        raise HomeError("the state directory cannot be written")

    rig.owner._log_writer.keep_head = broken
    future = rig.ask(submit())
    rig.owner.step()
    assert future.result(timeout=0)[0].ok
    assert isinstance(rig.owner.failure, HomeError)
    with pytest.raises(StoreUnavailable, match="state directory"):
        rig.ask(submit("job-2"))


# -- checkpoints -------------------------------------------------------------------------------------------------------


def checkpoints(store: Store) -> list[int]:
    return [row.batch_no for row in store.checkpoints(0)]


def test_a_checkpoint_is_written_after_a_number_of_records(rig: Rig) -> None:
    rig.open(checkpoint_records=4)
    for n in range(3):
        rig.one(submit(f"job-{n}"))
        rig.one(cancel(f"job-{n}"))
    assert checkpoints(rig.store) != []
    (row, *_) = rig.store.checkpoints(0)
    assert row.digest == checkpoint_digest(row.body)


def test_commands_without_records_count_towards_a_checkpoint(rig: Rig) -> None:
    """A restart applies every heartbeat again, so a long job must not make it long."""
    rig.open(checkpoint_records=10)
    grant = rig.start()
    for _ in range(20):
        rig.pass_ms(5)
        rig.one(heartbeat(grant))
    assert checkpoints(rig.store) != []
    assert rig.recover().replayed < 20


def test_a_checkpoint_is_written_at_the_end_when_it_saves_much(rig: Rig) -> None:
    rig.open(checkpoint_records=20)
    for n in range(3):
        rig.one(submit(f"job-{n}"))
    rig.owner.close()
    assert checkpoints(rig.store) == [rig.size - 1]
    assert rig.recover().replayed == 0


def test_no_checkpoint_is_written_at_the_end_when_there_is_little_to_save(rig: Rig) -> None:
    rig.open(checkpoint_records=1_000)
    rig.one(submit())
    rig.owner.close()
    assert checkpoints(rig.store) == []


def test_a_checkpoint_waits_until_more_was_written_than_is_alive(rig: Rig) -> None:
    """Otherwise a large live state would be written again and again."""
    rig.open(checkpoint_records=2)
    before = checkpoints(rig.store)
    rig.do(*[submit(f"job-{n}") for n in range(20)])
    rig.do(*[cancel(f"job-{n}") for n in range(4)])
    assert checkpoints(rig.store) == before, "16 live jobs, 28 records"
    rig.do(cancel("job-4"), cancel("job-5"))
    assert checkpoints(rig.store) == [rig.size - 1, *before]


def grown(store: Store) -> Rig:
    """A ledger with two checkpoints and batches after the newer one."""
    rig = Rig(store)
    rig.open(checkpoint_records=4)
    for _ in story(rig):
        pass
    rig.start("alive", priority=10)
    assert len(checkpoints(store)) == 2
    return rig


def damage(store: Store, rows: list[CheckpointRow]) -> Store:
    """The store as one whose checkpoints are these."""

    class Damaged:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        def checkpoints(self, _partition: int) -> object:
            return iter(rows)

    return Damaged()  # type: ignore[return-value]


def test_a_damaged_newest_checkpoint_leaves_the_older_one(store: Store) -> None:
    rig = grown(store)
    newest, older = store.checkpoints(0)
    flipped = newest.body[:-1] + bytes([newest.body[-1] ^ 1])
    recovered = rig.recover(damage(store, [newest._replace(body=flipped), older]))
    assert recovered.replayed > rig.recover().replayed
    assert checkpoint(recovered.kernel) == rig.checkpoint()


def test_without_a_good_checkpoint_everything_is_applied_again(store: Store) -> None:
    rig = grown(store)
    bad = [row._replace(digest=bytes(32)) for row in store.checkpoints(0)]
    recovered = rig.recover(damage(store, bad))
    assert recovered.replayed > 20
    assert checkpoint(recovered.kernel) == rig.checkpoint()


def test_a_checkpoint_of_another_version_is_passed_over(store: Store) -> None:
    rig = grown(store)

    def other(row: CheckpointRow) -> CheckpointRow:
        state = decode(row.body)
        state["version"] = 99
        body = encode(state)
        return row._replace(body=body, digest=checkpoint_digest(body))

    recovered = rig.recover(damage(store, [other(row) for row in store.checkpoints(0)]))
    assert checkpoint(recovered.kernel) == rig.checkpoint()


def test_ended_jobs_leave_the_memory_of_kernel_and_history() -> None:
    """X-168: memory is bounded by what is alive."""
    rig = Rig(MemoryStore.create(ORIGIN, 1))
    for n in range(30):
        rig.do(*[submit(f"job-{n}-{i}") for i in range(20)])
        for i in range(20):
            (grant,) = rig.one(Claim(0, "worker-1")).grants
            rig.one(cancel(grant.job_id) if i % 2 else heartbeat(grant))
        rig.do(*[cancel(f"job-{n}-{i}") for i in range(20)])
    kernel, history = rig.owner._kernel, rig.owner._log_writer._history
    assert kernel.jobs == {}
    assert len(kernel.queue) == 0
    assert (history._jobs, history._records, history._runs) == ({}, {}, {})
    assert kernel._touched == {}
    assert len(kernel._timers) <= 2_048, "timers of ended leases are swept"
    assert len(rig.checkpoint()) < 4_096
