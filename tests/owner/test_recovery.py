"""Opening a ledger: what an owner that stopped leaves behind, and what the next one makes of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from detent.canon import decode, encode, sha256
from detent.errors import DetentError, HomeError, InvariantBroken, StoreCorrupt
from detent.kernel import (
    BackoffSchedule,
    Claim,
    LeasePolicy,
    ReuseStep,
    checkpoint,
    commands_digest,
    partition_of,
    plain_queue,
    transition_log_hash,
)
from detent.ledger import batch_leaf
from detent.owner.owner import Owner
from detent.owner.recovery import AHEAD_BATCHES, recover
from detent.store.api import BatchRow, JobHead, RecordRow, Store
from detent.store.memory import MemoryStore
from detent.store.postgres.store import PostgresStore
from detent.store.sqlite import SqliteStore
from detent.testing import FakeClock
from tests.kernel.builders import BACKOFF, LEASE, config, queue_of
from tests.owner.rig import LOG_KEY, ORIGIN, OWNER_KEY, Rig, cancel, end_run, finish, stamped, start_run, submit
from tests.owner.scenario import story
from tests.postgres_server import Server


def log_hash(store: Store) -> bytes:
    heads: list[JobHead] = list(store.job_heads())
    return transition_log_hash(len(heads), heads)


def test_a_recovered_kernel_is_the_one_that_never_stopped(rig: Rig) -> None:
    """PIPE-121, PIPE-122, PIPE-123, X-165: after every chapter the bytes are the same."""
    for chapter in story(rig):
        recovered = rig.recover()
        recovered.kernel.check()
        assert checkpoint(recovered.kernel) == rig.checkpoint(), chapter
        assert recovered.tail.size == rig.size
        assert recovered.tail.frontier.root() == rig.owner._log_writer._assembler.tail.frontier.root()


def test_a_recovered_kernel_is_the_same_from_a_checkpoint(store: Store) -> None:
    """PIPE-123"""
    rig = Rig(store)
    rig.open(checkpoint_records=3)
    for chapter in story(rig):
        assert checkpoint(rig.recover().kernel) == rig.checkpoint(), chapter


def test_a_story_with_an_owner_for_each_chapter_ends_like_one_with_one_owner() -> None:
    """PIPE-123: restarting changes no transition."""
    stayed, restarted = (Rig(MemoryStore.create(ORIGIN, 1)) for _ in range(2))
    for _ in story(stayed):
        pass
    for _ in story(restarted):
        restarted.open()
    ours = [(row.job_id, row.transition_seq, row.body) for row in stayed.store.records(0) if row.job_id is not None]
    theirs = [
        (row.job_id, row.transition_seq, row.body) for row in restarted.store.records(0) if row.job_id is not None
    ]
    assert ours == theirs
    assert log_hash(stayed.store) == log_hash(restarted.store)


def test_every_store_gives_the_same_bytes(tmp_path: Path, postgres: Server) -> None:
    """PIPE-118, PIPE-119, PIPE-120: exchanging the backend exchanges nothing else."""
    stores: list[MemoryStore | SqliteStore | PostgresStore] = [
        MemoryStore.create(ORIGIN, 1),
        SqliteStore.create(tmp_path / "ledger.db", ORIGIN, 1),
        PostgresStore.create(postgres.address(), ORIGIN, 1),
    ]
    for store in stores:
        rig = Rig(store)
        for _ in story(rig):
            rig.open(checkpoint_records=7)
        rig.owner.close()
    memory, *others = stores
    for other in others:
        assert log_hash(memory) == log_hash(other)
        assert list(memory.batches(0)) == list(other.batches(0))
        assert list(memory.records(0)) == list(other.records(0))
        assert list(memory.jobs()) == list(other.jobs())
        assert list(memory.runs()) == list(other.runs())
        assert list(memory.checkpoints(0)) == list(other.checkpoints(0))
        assert list(memory.tree_heads(0)) == list(other.tree_heads(0))
        assert list(memory.refusals()) == list(other.refusals())
        other.close()


def test_a_repeat_after_a_restart_gets_the_record_that_was_committed(rig: Rig) -> None:
    """PIPE-066"""
    grant = rig.start()
    first = rig.one(finish(grant))
    rig.open()
    again = rig.one(finish(grant))
    assert again.status == "DEDUPLICATED"
    assert again.record == first.record
    assert rig.one(submit()).status == "DEDUPLICATED"


def test_runs_survive_a_restart(rig: Rig) -> None:
    rig.do(start_run(), submit(run_id="run-1"))
    rig.open()
    (grant,) = rig.one(Claim(0, "worker-1")).grants
    rig.one(finish(grant))
    rig.open()
    assert rig.one(end_run()).status == "COMMITTED"
    rig.open()
    assert rig.one(end_run()).status == "DEDUPLICATED"
    assert rig.one(start_run()).status == "DEDUPLICATED"


class Asked:
    """A store that counts what it is asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.questions: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.questions[name] += 1
        return getattr(self._store, name)


def test_a_ledger_is_opened_with_few_questions_however_many_batches_it_has() -> None:
    """Each is a round trip to a database that may be on another machine, and a take-over waits for all of them."""
    rig = Rig(MemoryStore.create(ORIGIN, 1), settings=config(queue=queue_of(1_000)))
    jobs = 2 * AHEAD_BATCHES
    for number in range(jobs):
        rig.one(submit(f"job-{number}"))
    asked = Asked(rig.store)
    recovered = rig.recover(asked)
    assert checkpoint(recovered.kernel) == rig.checkpoint()
    assert recovered.replayed >= jobs
    assert asked.questions.total() < 40, asked.questions


# -- damage ------------------------------------------------------------------------------------------------------------


class Edited:
    """A store some of whose rows read otherwise than they were written."""

    def __init__(self, store: Store, batches: dict[int, BatchRow], records: dict[int, RecordRow]) -> None:
        self._store = store
        self._batches = batches
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def batch(self, partition: int, batch_no: int) -> BatchRow | None:
        return self._batches.get(batch_no) or self._store.batch(partition, batch_no)

    def batches(self, partition: int, first: int = 0, stop: int | None = None) -> Any:
        return (self._batches.get(row.batch_no, row) for row in self._store.batches(partition, first, stop))

    def records(self, partition: int, first: int = 0, stop: int | None = None) -> Any:
        return (self._records.get(row.position, row) for row in self._store.records(partition, first, stop))


def edited(
    store: Store, *, batches: dict[int, BatchRow] | None = None, records: dict[int, RecordRow] | None = None
) -> Store:
    return Edited(store, batches or {}, records or {})


@pytest.fixture
def told() -> Rig:
    rig = Rig(MemoryStore.create(ORIGIN, 1))
    for _ in story(rig):
        pass
    return rig


def flipped(data: bytes, index: int) -> bytes:
    return data[:index] + bytes([data[index] ^ 0x01]) + data[index + 1 :]


@pytest.mark.parametrize("field", ["body", "signature", "leaf_hash", "commands"])
def test_a_flipped_bit_of_any_batch_is_found(told: Rig, field: str) -> None:
    """X-165"""
    for row in told.store.batches(0):
        data = getattr(row, field)
        for index in {0, len(data) // 2, len(data) - 1}:
            bad = row._replace(**{field: flipped(data, index)})  # type: ignore[arg-type]
            with pytest.raises(StoreCorrupt) as caught:
                told.recover(edited(told.store, batches={row.batch_no: bad}))
            assert caught.value.details["batch_no"] == row.batch_no
            assert caught.value.hint is not None


@pytest.mark.parametrize("field", ["body", "evidence"])
def test_a_flipped_bit_of_any_record_is_found(told: Rig, field: str) -> None:
    for row in told.store.records(0):
        data = getattr(row, field)
        if data is None:
            continue
        bad = row._replace(**{field: flipped(data, len(data) // 2)})  # type: ignore[arg-type]
        with pytest.raises(StoreCorrupt):
            told.recover(edited(told.store, records={row.position: bad}))


def test_other_commands_under_a_fitting_digest_are_found(told: Rig) -> None:
    """An attacker who rewrites the commands and the batch record has to rewrite the records too."""
    row = next(row for row in told.store.batches(0) if b"cancel" in row.commands)
    commands = decode(row.commands)
    changed = encode([[*command[:2], *command[2:4], "SUPERSEDED", *command[5:]] for command in commands])
    body = decode(row.body)
    body["commands_digest"] = commands_digest(changed)
    forged = row._replace(body=encode(body), commands=changed, leaf_hash=batch_leaf(encode(body), row.signature))
    with pytest.raises(StoreCorrupt, match="does not give its records"):
        told.recover(edited(told.store, batches={row.batch_no: forged}))


def test_commands_that_the_kernel_cannot_apply_are_damage_and_no_bug_of_ours(told: Rig) -> None:
    row = next(row for row in told.store.batches(0) if b"claim" in row.commands)
    body = decode(row.body)
    beyond_time = [["claim", 2**64 - 1, "worker-1", 1]]
    for value in ([["no-such-command", 1]], {"not": "a list"}, [["tick"]], [["tick", 1, 2]], beyond_time):
        changed = encode(value)
        body["commands_digest"] = commands_digest(changed)
        forged = row._replace(body=encode(body), commands=changed, leaf_hash=batch_leaf(encode(body), row.signature))
        with pytest.raises(StoreCorrupt):
            told.recover(edited(told.store, batches={row.batch_no: forged}))


def test_a_missing_tree_node_is_damage(told: Rig) -> None:
    size = told.size
    peak = 1 << (size.bit_length() - 1)
    row = told.store.batch(0, peak - 1)
    assert row is not None
    with pytest.raises(StoreCorrupt):
        told.recover(edited(told.store, batches={peak - 1: row._replace(nodes=b"")}))


# -- settings that changed ----------------------------------------------------------------------------------------------


def test_a_new_owner_may_bring_other_settings(rig: Rig) -> None:
    rig.one(submit())
    rig.open(settings=config(lease_policies=(LEASE, LeasePolicy("long", 10_000, 10_000))))
    assert "long" in rig.owner._kernel.config.leases
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()


def test_settings_that_drop_what_a_live_job_needs_are_refused_as_a_fault_of_the_settings(rig: Rig) -> None:
    rig.one(submit())
    before = list(rig.store.batches(0))
    lacking = config(backoff_schedules=(BackoffSchedule("other", (1,)),))
    with pytest.raises(HomeError, match="settings"):
        rig.open(settings=lacking)
    assert list(rig.store.batches(0)) == before, "nothing was written under the epoch that never began"
    rig.open(settings=config(backoff_schedules=(BACKOFF, BackoffSchedule("other", (1,)))))
    rig.one(cancel())
    rig.open(settings=lacking)
    assert rig.one(submit("job-2", backoff_schedule_id="other")).ok


def test_the_meaning_of_a_tick_is_fixed_for_the_life_of_a_ledger(rig: Rig) -> None:
    with pytest.raises(HomeError):
        rig.open(settings=config(tick_ms=7))


def test_a_kernel_that_refuses_its_owner_for_another_reason_is_a_bug(rig: Rig) -> None:
    rig.owner._kernel.epoch = 99
    with pytest.raises(InvariantBroken):
        rig.owner.begin()


# -- partitions --------------------------------------------------------------------------------------------------------


def test_a_partition_knows_its_own_past_only() -> None:
    """PIPE-062: what another partition decided is no recorded input of this one, so no decision may rest on it."""
    store = MemoryStore.create(ORIGIN, 2)
    settings = [config(partitions=2, partition_id=number) for number in range(2)]
    owners = []
    for number in range(2):
        recovered = recover(store, number, settings[number], make_queue=plain_queue)
        owners.append(
            Owner(
                store,
                recovered,
                partition=number,
                config=settings[number],
                batch_key=OWNER_KEY,
                head_key=LOG_KEY,
                clock=FakeClock(),
            )
        )
        owners[-1].begin()

    def do(partition: int, command: Any) -> Any:
        future = owners[partition].ask([stamped(command)])
        owners[partition].step()
        (outcome,) = future.result(timeout=0)
        return outcome

    job_id = next(f"job-{n}" for n in range(100) if partition_of(f"job-{n}", 2) == 1)
    assert do(0, submit(job_id)).refusal.code == "NOT_PARTITION_OWNER"
    for n in range(5):
        do(1, submit(f"{job_id}-filler-{n}"))
    do(1, submit(job_id))
    (grant,) = [grant for grant in do(1, Claim(0, "w", 100)).grants if grant.job_id == job_id]
    do(1, finish(grant))
    here, there = (next(f"run-{n}" for n in range(100) if partition_of(f"run-{n}", 2) == number) for number in (0, 1))
    assert do(0, start_run(here)).ok
    assert do(0, cancel(job_id)).refusal.code == "UNKNOWN_JOB"
    # The owner looks at a job of another partition before a reuse is recorded; the kernel itself decides without it.
    absent = next(f"absent-{n}" for n in range(100) if partition_of(f"absent-{n}", 2) == 1)
    assert do(0, ReuseStep(0, here, "step", absent, sha256(b"x"))).refusal.code == "UNKNOWN_JOB"
    assert do(0, ReuseStep(0, here, "step", job_id, sha256(b"x"))).ok
    assert do(1, start_run(there)).ok
    assert do(1, end_run(there)).ok
    assert do(0, end_run(there)).refusal.code == "NOT_PARTITION_OWNER"
    for number in range(2):
        recovered = recover(store, number, settings[number], make_queue=plain_queue)
        assert checkpoint(recovered.kernel) == checkpoint(owners[number]._kernel)


def test_an_unreadable_ledger_is_no_detent_error_of_another_kind(told: Rig) -> None:
    """Every fault that `recover` can meet in a store is one kind of error: the ledger is damaged."""
    row = told.store.batch(0, 0)
    assert row is not None
    for body in (b"", b"\xff", encode({"kind": "batch"}), encode([1, 2])):
        with pytest.raises(DetentError) as caught:
            told.recover(edited(told.store, batches={0: row._replace(body=body)}))
        assert caught.value.code == "STORE_CORRUPT"
