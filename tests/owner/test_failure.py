"""When the store fails, or another owner takes over: the owner closes, everybody hears, and the ledger has the truth."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from detent.errors import DetentError, EpochLost, InvariantBroken, OutcomeUnknown, StoreUnavailable
from detent.kernel import Claim, Outcome, checkpoint
from detent.owner import owner as owner_module
from detent.store.api import Store
from detent.testing import Crash, CrashAt, Faults, faulty
from tests.owner.rig import Rig, cancel, finish, heartbeat, stamped, submit


def error_of(future: Future[list[Outcome]]) -> BaseException | None:
    assert future.done()
    return future.exception(timeout=0)


# -- the store fails ---------------------------------------------------------------------------------------------------


def test_a_failed_append_closes_the_owner_and_nothing_was_done(store: Store) -> None:
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    rig.one(submit("job-1"))
    faults.fail("append")
    future = rig.ask(submit("job-2"))
    rig.owner.step()
    assert type(error_of(future)) is StoreUnavailable
    assert rig.owner.closed
    assert [row.job_id for row in store.jobs()] == ["job-1"]


@pytest.mark.parametrize("durable", [False, True])
def test_after_a_commit_with_an_unknown_outcome_the_reopened_ledger_has_the_truth(store: Store, durable: bool) -> None:
    """X-173"""
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    (faults.hide if durable else faults.lose)("append")
    future = rig.ask(submit())
    rig.owner.step()
    assert isinstance(error_of(future), OutcomeUnknown)
    assert rig.owner.closed
    rig.open()
    assert (rig.state() == "QUEUED") is durable
    again = rig.one(submit())
    assert again.status == ("DEDUPLICATED" if durable else "COMMITTED")
    assert len(list(store.records_of_job("job-1"))) == 1


def test_everybody_in_the_failed_turn_hears_that_the_outcome_is_unknown(store: Store) -> None:
    """X-173"""
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.lose("append")
    futures = [rig.ask(submit(f"job-{n}")) for n in range(3)]
    refused = rig.ask(cancel("nobody"))
    look = rig.owner.look(lambda kernel: sorted(kernel.jobs))
    rig.owner.step()
    assert all(isinstance(error_of(future), OutcomeUnknown) for future in futures)
    assert isinstance(error_of(refused), OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        look.result(timeout=0)


def test_a_request_that_was_not_looked_at_is_answered_that_nothing_was_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-173"""
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    monkeypatch.setattr(owner_module, "TURN_ITEMS_MAX", 1)
    faults.lose("append")
    first, second = rig.ask(submit("job-1")), rig.ask(submit("job-2"))
    rig.owner.step()
    assert isinstance(error_of(first), OutcomeUnknown)
    assert type(error_of(second)) is StoreUnavailable
    with pytest.raises(StoreUnavailable, match="lost an append"):
        rig.ask(submit("job-3"))


def test_nothing_is_answered_from_the_memory_of_an_owner_that_failed(store: Store) -> None:
    """X-173: its kernel has decided what the ledger may not have."""
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail("append")
    rig.ask(submit())
    rig.owner.step()
    assert "job-1" in rig.owner._kernel.jobs, "memory is ahead of the ledger here"
    for question in (lambda: rig.ask(submit()), lambda: rig.owner.look(lambda kernel: kernel.tick), rig.owner.grants):
        with pytest.raises(StoreUnavailable):
            question()


@pytest.mark.parametrize("call", ["append", "append_refusals", "head"])
def test_every_call_that_fails_closes_the_owner_with_a_typed_answer(store: Store, call: str) -> None:
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail(call)
    future = rig.ask(submit() if call == "append" else cancel("nobody"))
    rig.owner.step()
    assert isinstance(error_of(future), StoreUnavailable)
    assert rig.owner.closed


def test_a_bug_in_the_store_is_not_hidden_from_the_caller(store: Store) -> None:
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail("append", error=InvariantBroken("a bug"))
    future = rig.ask(submit())
    rig.owner.step()
    assert isinstance(error_of(future), InvariantBroken)
    assert isinstance(rig.owner.failure, InvariantBroken)


def test_an_unforeseen_failure_is_an_unknown_outcome_with_its_cause(store: Store) -> None:
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail("append", error=ZeroDivisionError("out of nowhere"))
    future = rig.ask(submit())
    rig.owner.step()
    error = error_of(future)
    assert isinstance(error, OutcomeUnknown)
    assert isinstance(error.__cause__, ZeroDivisionError)


def test_an_interrupt_of_the_thread_that_took_the_turn_reaches_it_and_ends_the_owner(store: Store) -> None:
    """Ctrl-C in the middle of a turn: how far it came is unknown, and the user wants out."""
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail("append", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        rig.owner.call([stamped(submit())])
    assert rig.owner.closed
    with pytest.raises(StoreUnavailable):
        rig.owner.call([stamped(submit())])


def test_an_interrupt_ends_the_loop_in_silence(store: Store) -> None:
    """It was meant for the thread that took the turn; a second traceback would not help."""
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    rig.owner.start()
    rig.owner.look(lambda kernel: kernel.tick).result(60)
    with rig.owner._turn_lock:
        pass
    faults.fail("append", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        rig.owner.call([stamped(submit())])
    rig.owner.close()


def test_a_tree_head_that_cannot_be_stored_closes_the_owner(store: Store) -> None:
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    rig.one(submit())
    faults.fail("append_tree_head")
    rig.owner.close()
    assert isinstance(rig.owner.failure, StoreUnavailable)
    assert rig.kept == []
    rig.open()
    assert rig.state() == "QUEUED"


def test_a_tree_head_that_cannot_be_stored_between_requests_closes_the_owner_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the loop would be gone, and later callers would wait for ever."""
    monkeypatch.setattr(owner_module, "HEAD_IDLE_MS", 1)
    rig, faults = Rig(store), Faults()
    owner = rig.open(store=faulty(store, faults))
    failed = threading.Event()
    owner.on_failed = failed.set
    faults.fail("append_tree_head")
    owner.start()
    assert failed.wait(60)
    assert isinstance(owner.failure, StoreUnavailable)
    with pytest.raises(StoreUnavailable):
        owner.ask([stamped(submit("job-2"))])
    owner.close()


def test_a_request_given_up_by_its_caller_does_not_disturb_the_bad_news(store: Store) -> None:
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail("append")
    given_up, waiting = rig.ask(submit("job-1")), rig.ask(submit("job-2"))
    given_up.cancel()
    rig.owner.step()
    assert isinstance(error_of(waiting), StoreUnavailable)


def test_closing_a_failed_owner_returns_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop may be asleep for long; closing must not wait for that."""
    monkeypatch.setattr(owner_module, "HEAD_IDLE_MS", 600_000)
    monkeypatch.setattr(owner_module, "LOOK_AGAIN_MS", 600_000)
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    rig.owner.start()
    rig.owner.look(lambda kernel: kernel.tick).result(60)
    with rig.owner._turn_lock:
        pass  # The loop has let go of the turn, and goes to sleep.
    faults.fail("append")
    with pytest.raises(StoreUnavailable):
        rig.owner.call([stamped(submit())])
    rig.owner._thread.join(timeout=30)  # type: ignore[union-attr]
    assert not rig.owner._thread.is_alive()  # type: ignore[union-attr]
    rig.owner.close()


# -- another owner -----------------------------------------------------------------------------------------------------


def two_owners(store: Store) -> tuple[Rig, Rig]:
    """A deposed owner that does not know it, and the one in force."""
    old = Rig(store)
    old.start("job-1")
    new = Rig(store)
    return old, new


def test_a_deposed_owner_writes_nothing(store: Store) -> None:
    """PIPE-060, PIPE-062, X-172"""
    old, new = two_owners(store)
    before = (list(store.batches(0)), list(store.records(0)), list(store.jobs()))
    future = old.ask(submit("job-2"))
    old.owner.step()
    assert isinstance(error_of(future), EpochLost)
    assert old.owner.closed
    assert (list(store.batches(0)), list(store.records(0)), list(store.jobs())) == before
    assert new.one(submit("job-2")).ok


def test_a_deposed_owner_does_not_even_refuse(store: Store) -> None:
    """X-173: what it remembers is not the ledger any more."""
    old, new = two_owners(store)
    new.one(submit("job-2"))
    future = old.ask(cancel("job-2"))
    old.owner.step()
    assert isinstance(error_of(future), EpochLost)
    assert list(store.refusals()) == []


def test_a_deposed_owner_repeats_no_answer(store: Store) -> None:
    """PIPE-066 holds for the owner in force."""
    old, new = two_owners(store)
    new.one(cancel("job-1"))
    future = old.ask(submit("job-1"))
    old.owner.step()
    assert isinstance(error_of(future), EpochLost)


def test_a_deposed_owner_signs_no_tree_head(store: Store) -> None:
    old, new = two_owners(store)
    old.owner.close()
    assert isinstance(old.owner.failure, EpochLost)
    assert list(store.tree_heads(0)) == []
    assert old.kept == []
    new.owner.close()
    assert len(list(store.tree_heads(0))) == 1


def test_the_epoch_grows_with_every_owner(store: Store) -> None:
    """X-172"""
    rig = Rig(store)
    assert [rig.owner.epoch, rig.open().epoch, rig.open().epoch] == [1, 2, 3]
    assert [row.epoch for row in store.batches(0)] == [1, 2, 3]


# -- crash points ------------------------------------------------------------------------------------------------------

DURABLE = {"decided": False, "sealed": False, "appended": True, "committed": True}


@pytest.mark.parametrize("point", CrashAt.POINTS)
def test_a_crash_leaves_the_acknowledged_whole_and_the_rest_whole_or_not_at_all(store: Store, point: str) -> None:
    """PIPE-070: crash injection between sign and append; X-067; X-173"""
    rig = Rig(store)
    grant = rig.start("acknowledged")
    rig.open(crash_point=CrashAt(point, times=2))
    future = rig.ask(submit("job-a"), finish(grant), submit("job-b"))
    rig.owner.step()
    assert isinstance(error_of(future), Crash)
    assert rig.owner.closed
    durable = DURABLE[point]
    rig.open()
    assert checkpoint(rig.recover().kernel) == rig.checkpoint()
    assert rig.state("acknowledged") == ("SUCCEEDED" if durable else "RUNNING")
    assert rig.state("job-a") == rig.state("job-b") == ("QUEUED" if durable else None)
    repeated = rig.do(submit("job-a"), finish(grant), submit("job-b"))
    assert [answer.status for answer in repeated] == ["DEDUPLICATED" if durable else "COMMITTED"] * 3
    assert [row.kind for row in store.records_of_job("acknowledged")] == ["submitted", "transition", "transition"]


@pytest.mark.parametrize("point", CrashAt.POINTS)
def test_a_crash_while_an_epoch_begins_leaves_a_ledger_that_opens(store: Store, point: str) -> None:
    rig = Rig(store)
    grant = rig.start()
    with pytest.raises(Crash):
        rig.open(crash_point=CrashAt(point))
    rig.sent.clear()
    rig.open()
    assert rig.sent == [grant]
    assert rig.one(heartbeat(grant)).ok
    assert rig.one(finish(grant)).ok


@pytest.mark.parametrize("point", CrashAt.POINTS)
def test_a_claim_lost_in_a_crash_is_redelivered_or_never_happened(store: Store, point: str) -> None:
    """X-067"""
    rig = Rig(store)
    rig.one(submit())
    rig.open(crash_point=CrashAt(point, times=2))
    rig.ask(Claim(0, "worker-1"))
    rig.owner.step()
    assert rig.sent == [], "no caller was answered before the crash"
    rig.open()
    if DURABLE[point]:
        assert [grant.replica_id for grant in rig.sent] == ["worker-1"]
    else:
        assert rig.sent == []
        assert len(rig.one(Claim(0, "worker-2")).grants) == 1
    assert rig.edges() == ["QUEUED->RUNNING"]


def test_an_unknown_crash_point_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="no crash point"):
        CrashAt("somewhere")


def test_a_planned_fault_happens_once_and_at_its_call(store: Store) -> None:
    faults = Faults()
    wrapped = faulty(store, faults)
    faults.fail("head", after=1)
    assert wrapped.origin == store.origin
    assert wrapped.head(0) == store.head(0)
    with pytest.raises(DetentError):
        wrapped.head(0)
    assert wrapped.head(0) == store.head(0)
    assert faults.calls["head"] == 3
