"""One turn of the owner: what waits is decided together, made durable together, and answered only then."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from detent.canon import sha256
from detent.errors import InboxFull, InvalidInput, StoreUnavailable
from detent.kernel import AdvanceTick, Claim, Command, Erase, Heartbeat, Kernel, Outcome, RaiseEpoch, lease_key
from detent.owner import owner as owner_module
from detent.owner import turn as request_module
from detent.store.api import CONTENT_INLINE_BYTES_MAX, Commit, Store
from detent.testing import Faults, faulty
from tests.kernel.builders import OWNER_KEY_ID, config, queue_of
from tests.owner.rig import Rig, cancel, fail, finish, heartbeat, stamped, submit


def test_no_caller_is_answered_before_the_turn_has_been_taken(rig: Rig) -> None:
    future = rig.ask(submit())
    assert not future.done()
    assert rig.state() is None
    rig.owner.step()
    assert future.result(timeout=0)[0].status == "COMMITTED"
    assert rig.state() == "QUEUED"


def test_an_answer_is_given_after_the_append_has_returned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(store)
    seen: list[bool] = []
    append = store.append

    def watched(commit: Commit) -> None:
        append(commit)
        seen.append(future.done())

    monkeypatch.setattr(store, "append", watched)
    future = rig.ask(submit())
    rig.owner.step()
    assert seen == [False]
    assert future.done()


def test_everything_that_waits_goes_into_one_commit(rig: Rig) -> None:
    before = rig.size
    futures = [rig.ask(submit(f"job-{n}")) for n in range(5)]
    rig.owner.step()
    assert [future.result(timeout=0)[0].status for future in futures] == ["COMMITTED"] * 5
    assert rig.size == before + 1
    assert len(rig.commands()) == 5


def test_commands_of_one_request_are_decided_in_their_order(rig: Rig) -> None:
    first, second, third = rig.do(submit("job-1"), Claim(0, "worker-1", 10), submit("job-2"))
    assert first.ok
    assert [grant.job_id for grant in second.grants] == ["job-1"]
    assert third.ok


def test_a_turn_takes_a_bounded_number_of_requests(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "TURN_ITEMS_MAX", 3)
    futures = [rig.ask(submit(f"job-{n}")) for n in range(4)]
    rig.owner.step()
    assert [future.done() for future in futures] == [True, True, True, False]
    rig.owner.step()
    assert futures[3].done()


def test_a_turn_takes_a_bounded_number_of_commands(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_module, "TURN_COMMANDS_MAX", 3)
    monkeypatch.setattr(request_module, "TURN_COMMANDS_MAX", 3)
    futures = [rig.ask(submit(f"job-{n}"), submit(f"job-{n}-b")) for n in range(3)]
    rig.owner.step()
    assert [future.done() for future in futures] == [True, True, False]
    with pytest.raises(InvalidInput):
        rig.ask(*[submit(f"more-{n}") for n in range(4)])


def test_a_turn_with_many_records_goes_on_in_another_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch holds a bounded number of records, or it could not be verified in bounded memory."""
    monkeypatch.setattr(owner_module, "TURN_RECORDS_MAX", 3)
    before = rig.size
    futures = [rig.ask(submit(f"job-{n}"), submit(f"job-{n}-b")) for n in range(5)]
    rig.owner.step()
    assert all(outcome.ok for future in futures for outcome in future.result(timeout=0))
    assert rig.size == before + 3
    assert [row.record_count for row in rig.store.batches(0, before)] == [4, 4, 2]


def test_of_a_turn_in_several_batches_the_durable_ones_are_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-173"""
    monkeypatch.setattr(owner_module, "TURN_RECORDS_MAX", 1)
    rig, faults = Rig(store), Faults()
    rig.open(store=faulty(store, faults))
    faults.fail("append", after=1)
    first, second, third = (rig.ask(submit(f"job-{n}")) for n in range(3))
    rig.owner.step()
    assert first.result(timeout=0)[0].ok
    assert isinstance(second.exception(timeout=0), StoreUnavailable)
    assert isinstance(third.exception(timeout=0), StoreUnavailable)
    assert [row.job_id for row in store.jobs()] == ["job-0"]


def test_one_request_cannot_claim_more_than_a_batch_may_hold(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_module, "TURN_COMMANDS_MAX", 4)
    rig.do(*[submit(f"job-{n}") for n in range(4)])
    greedy = rig.ask(Claim(0, "worker-1", 3), Claim(0, "worker-2", 3))
    rig.owner.step()
    assert isinstance(greedy.exception(timeout=0), InvalidInput)
    assert rig.store.job_counts() == {"QUEUED": 4}


def test_the_inbox_is_bounded_and_says_so(store: Store) -> None:
    rig = Rig(store)
    rig.open(inbox_max=2)
    waiting = [rig.ask(submit("job-1")), rig.ask(submit("job-2"))]
    with pytest.raises(InboxFull):
        rig.ask(submit("job-3"))
    with pytest.raises(InboxFull):
        rig.owner.look(lambda kernel: kernel.tick)
    rig.owner.step()
    assert all(future.result(timeout=0)[0].ok for future in waiting)
    assert rig.one(submit("job-3")).ok
    assert [row.job_id for row in store.jobs()] == ["job-1", "job-2", "job-3"]


def test_a_turn_without_anything_to_do_writes_nothing(rig: Rig) -> None:
    before = rig.store.head(0)
    rig.owner.step()
    rig.pass_ms(1_000)
    assert rig.store.head(0) == before


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_refusal_is_no_batch_but_stands_in_the_decision_log(rig: Rig) -> None:
    """X-182"""
    before = rig.size
    outcome = rig.one(cancel("nobody"))
    assert outcome.refusal is not None
    assert outcome.refusal.code == "UNKNOWN_JOB"
    assert rig.size == before
    assert [(row.job_id, row.code) for row in rig.store.refusals()] == [("nobody", "UNKNOWN_JOB")]


def test_a_refused_submission_can_be_found_by_the_id_of_the_job_it_would_have_made(store: Store) -> None:
    """X-182"""
    rig = Rig(store, settings=config(queue=queue_of(1)))
    assert rig.one(submit("job-1")).ok
    refused = rig.one(submit("job-2"))
    assert refused.refusal is not None
    assert refused.refusal.code == "QUEUE_FULL"
    assert [row.code for row in store.refusals(job_id="job-2")] == ["QUEUE_FULL"]


def test_a_refusal_rides_along_with_a_commit(rig: Rig) -> None:
    before = rig.size
    refused = rig.ask(cancel("nobody"))
    granted = rig.ask(submit())
    rig.owner.step()
    assert refused.result(timeout=0)[0].refusal is not None
    assert granted.result(timeout=0)[0].ok
    assert rig.size == before + 1
    assert [type(command).__name__ for command in rig.commands()] == ["Submit"]
    assert [row.code for row in rig.store.refusals()] == ["UNKNOWN_JOB"]


def test_a_refusal_that_left_a_trace_event_is_recorded(rig: Rig) -> None:
    """A replay must count the event too."""
    grant = rig.start()
    rig.one(finish(grant))
    outcome = rig.one(cancel())
    assert outcome.status == "CONTRACT_VIOLATION"
    assert [type(command).__name__ for command in rig.commands()] == ["Cancel"]
    assert rig.recover().kernel.trace_length == rig.owner._kernel.trace_length


# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_heartbeats_of_one_lease_in_one_turn_are_recorded_once(rig: Rig) -> None:
    """X-165"""
    grant = rig.start()
    rig.clock.jump(5)
    futures = [rig.ask(heartbeat(grant)) for _ in range(4)]
    rig.owner.step()
    answers = [future.result(timeout=0)[0] for future in futures]
    assert all(answer.heartbeat == answers[0].heartbeat and answer.ok for answer in answers)
    assert rig.commands() == [Heartbeat(rig.tick, grant.job_id, grant.lease_id)]


def test_a_heartbeat_after_the_end_of_its_lease_is_refused_in_the_same_turn(rig: Rig) -> None:
    grant = rig.start()
    alive, ended, late = rig.do(heartbeat(grant), finish(grant), heartbeat(grant))
    assert alive.ok
    assert ended.ok
    assert late.refusal is not None
    assert late.refusal.code == "LEASE_INVALID"


def test_a_heartbeat_refused_before_its_lease_was_granted_does_not_spoil_the_next(rig: Rig) -> None:
    guess = rig.start("job-0")
    rig.one(finish(guess))
    rig.one(submit("job-1"))
    lease = rig.recover().kernel.jobs["job-1"]
    early = Heartbeat(0, "job-1", lease_key(lease.tenant_id, "job-1", 0, 0))
    refused, claimed, alive = rig.do(early, Claim(0, "worker-1"), early)
    assert refused.refusal is not None
    assert [grant.lease_id for grant in claimed.grants] == [early.lease_id]
    assert alive.ok


# -- what a caller does wrong is the caller's trouble -------------------------------------------------------------------


def test_a_command_that_cannot_be_made_is_its_callers_error_alone(rig: Rig) -> None:
    def broken(_tick: int) -> Command:
        raise KeyError("no such thing")

    bad = rig.owner.ask([stamped(submit("job-1")), broken])
    good = rig.ask(submit("job-2"))
    rig.owner.step()
    with pytest.raises(KeyError):
        bad.result(timeout=0)
    assert good.result(timeout=0)[0].ok
    assert [row.job_id for row in rig.store.jobs()] == ["job-2"], "the other half of the request was not done either"


def test_what_is_no_command_is_its_callers_error_alone(rig: Rig) -> None:
    bad = rig.owner.ask([lambda _tick: "submit"])  # type: ignore[list-item, return-value]
    good = rig.ask(submit("job-2"))
    rig.owner.step()
    with pytest.raises(InvalidInput):
        bad.result(timeout=0)
    assert good.result(timeout=0)[0].ok
    assert not rig.owner.closed


@pytest.mark.parametrize("value", [None, 7, b"job-1", ["job-1"], {"job": 1}, "\ud800", 2**63, "x" * 100_000])
@pytest.mark.parametrize(
    "make",
    [
        lambda value, grant: Heartbeat(0, value, grant.lease_id),
        lambda value, grant: Heartbeat(0, grant.job_id, value),
        lambda value, grant: finish(grant._replace(job_id=value)),
        lambda value, grant: finish(grant._replace(lease_id=value)),
        lambda value, grant: finish(grant, reason_code=value),
        lambda value, grant: finish(grant, kind=value, ok=False),
        lambda value, grant: finish(grant, ok=False, category=value),
        lambda value, grant: finish(grant, detail_digest=value),
        lambda value, grant: cancel(value),
        lambda value, grant: cancel("job-1", expected_transition_seq=value),
        lambda value, grant: submit("job-9", run_id=value),
        lambda value, grant: Claim(0, value),
        lambda value, grant: Claim(0, "worker-1", value),
        lambda value, grant: Erase(0, (value,), 0),
    ],
)
def test_nothing_ill_typed_ends_the_owner(rig: Rig, make: Any, value: Any) -> None:
    grant = rig.start()
    future = rig.ask(make(value, grant))
    rig.owner.step()
    assert future.done()
    assert not rig.owner.closed, rig.owner.failure
    assert rig.one(heartbeat(grant)).ok or rig.state() != "RUNNING"


def test_a_request_given_up_before_its_turn_is_not_decided(rig: Rig) -> None:
    future = rig.ask(submit("job-1"))
    assert future.cancel()
    other = rig.ask(submit("job-2"))
    rig.owner.step()
    assert other.result(timeout=0)[0].ok
    assert not rig.owner.closed
    assert [row.job_id for row in rig.store.jobs()] == ["job-2"]


def test_a_question_that_fails_is_its_askers_error_alone(rig: Rig) -> None:
    def bad(_kernel: Kernel) -> int:
        raise ZeroDivisionError

    future = rig.owner.look(bad)
    good = rig.owner.look(lambda kernel: kernel.tick)
    rig.owner.step()
    with pytest.raises(ZeroDivisionError):
        future.result(timeout=0)
    assert good.result(timeout=0) == rig.tick


def test_a_question_is_answered_between_turns(rig: Rig) -> None:
    rig.ask(submit())
    future = rig.owner.look(lambda kernel: sorted(kernel.jobs))
    rig.owner.step()
    assert future.result(timeout=0) == ["job-1"]


def test_a_closed_owner_refuses_and_has_done_nothing(rig: Rig) -> None:
    rig.owner.close()
    before = rig.size
    with pytest.raises(StoreUnavailable):
        rig.ask(submit())
    with pytest.raises(StoreUnavailable):
        rig.owner.look(lambda kernel: kernel.tick)
    rig.owner.close()
    assert rig.size == before


def test_closing_finishes_what_waits(rig: Rig) -> None:
    future = rig.ask(submit())
    rig.owner.close()
    assert future.result(timeout=0)[0].ok
    assert rig.state() == "QUEUED"


# -- content -----------------------------------------------------------------------------------------------------------


def piece(data: bytes) -> tuple[bytes, bytes]:
    return sha256(data), data


def test_content_is_durable_with_the_record_that_names_it(rig: Rig) -> None:
    """X-067 and scope 7: in the same transaction."""
    payload = piece(b"payload")
    rig.do(submit(payload_digest=payload[0]), content=[payload])
    assert rig.store.content(payload[0]) == b"payload"


def test_content_of_a_refused_request_is_not_kept(rig: Rig) -> None:
    payload = piece(b"payload")
    refused = rig.ask(cancel("nobody"), content=[payload])
    rig.ask(submit("job-2"))
    rig.owner.step()
    assert refused.result(timeout=0)[0].refusal is not None
    assert rig.store.content(payload[0]) is None


def test_a_repeated_submission_does_not_bring_erased_content_back(rig: Rig) -> None:
    payload = piece(b"payload")
    rig.do(submit(payload_digest=payload[0]), content=[payload])
    rig.one(cancel())
    assert rig.one(Erase(0, (payload[0],), 0)).ok
    repeated = rig.ask(submit(payload_digest=payload[0]), content=[payload])
    rig.ask(submit("job-2"))
    rig.owner.step()
    assert repeated.result(timeout=0)[0].status == "DEDUPLICATED"
    assert rig.store.content(payload[0]) is None
    assert rig.store.is_erased(payload[0])


def test_bytes_leave_only_with_the_record_that_says_so(rig: Rig) -> None:
    payload = piece(b"payload")
    rig.do(submit(payload_digest=payload[0]), content=[payload])
    refused = rig.one(Erase(0, (payload[0], b"short"), 0))
    assert refused.refusal is not None
    assert rig.store.content(payload[0]) == b"payload"
    assert rig.one(Erase(0, (payload[0],), 0)).ok
    assert rig.store.content(payload[0]) is None


@pytest.mark.parametrize(
    "pair",
    [
        (sha256(b"one"), b"two"),
        (b"short", b"one"),
        piece(b"x" * (CONTENT_INLINE_BYTES_MAX + 1)),
    ],
)
def test_content_that_is_not_what_it_is_called_is_refused_where_it_enters(rig: Rig, pair: tuple[bytes, bytes]) -> None:
    with pytest.raises(InvalidInput):
        rig.ask(submit(), content=[pair])
    assert rig.one(submit()).ok


# -- the outbox --------------------------------------------------------------------------------------------------------


def test_a_dispatch_leaves_after_its_commit(store: Store) -> None:
    """X-067"""
    faults = Faults()
    rig = Rig(store)
    rig.open(store=faulty(store, faults))
    rig.one(submit())
    faults.fail("append")
    future: Future[list[Outcome]] = rig.ask(Claim(0, "worker-1"))
    rig.owner.step()
    assert future.exception(timeout=0) is not None
    assert rig.sent == []
    rig.open()
    assert rig.sent == [], "nothing was granted, so nothing is redelivered"
    rig.one(Claim(0, "worker-1"))
    assert [grant.job_id for grant in rig.sent] == ["job-1"]


def test_dispatches_in_force_are_redelivered_by_the_next_owner(rig: Rig) -> None:
    """X-067: crash after the commit, before the send."""
    first = rig.start("job-1", "worker-1")
    second = rig.start("job-2", "worker-2")
    rig.one(finish(rig.start("job-3", "worker-1")))
    rig.sent.clear()
    rig.open()
    assert rig.sent == [first, second]
    everyone, one = rig.owner.grants(), rig.owner.grants("worker-2")
    rig.owner.step()
    assert everyone.result(timeout=0) == [first, second]
    assert one.result(timeout=0) == [second]


def test_a_redelivered_dispatch_can_be_finished_once(rig: Rig) -> None:
    """X-067, PIPE-066"""
    rig.start()
    rig.sent.clear()
    rig.open()
    (again,) = rig.sent
    answers = [rig.one(finish(again)) for _ in range(3)]
    assert [answer.status for answer in answers] == ["COMMITTED", "DEDUPLICATED", "DEDUPLICATED"]
    assert len({answer.record.body for answer in answers if answer.record is not None}) == 1
    assert rig.edges() == ["QUEUED->RUNNING", "RUNNING->SUCCEEDED"]


# -- the procedure of the contract --------------------------------------------------------------------------------------


def test_a_job_goes_through_the_procedure_of_the_contract(rig: Rig) -> None:
    """PIPE-080: submit, run, heartbeats, expiry, retry, run again, end."""
    first = rig.start()
    rig.pass_ms(50)
    assert rig.one(heartbeat(first)).ok
    rig.pass_ms(LEASE_AND_BACKOFF_MS)
    (second,) = rig.one(Claim(0, "worker-2")).grants
    assert second.attempt_id == 1
    final = rig.one(finish(second))
    assert final.job is not None
    assert final.job.state == "SUCCEEDED"
    assert rig.edges() == [
        "QUEUED->RUNNING",
        "RUNNING->RETRYING",
        "RETRYING->QUEUED",
        "QUEUED->RUNNING",
        "RUNNING->SUCCEEDED",
    ]


LEASE_AND_BACKOFF_MS = 100 + 10 + 10


def test_a_first_batch_announces_the_trust_and_then_the_epoch(rig: Rig) -> None:
    """PIPE-108, PIPE-109: the trust is known before the log begins."""
    assert [record.kind for record in rig.store.records(0)] == ["trust_changed", "owner_epoch"]
    assert rig.commands(0)[1] == RaiseEpoch(rig.tick, 1, OWNER_KEY_ID, rig.settings.encode())


def test_every_owner_begins_with_its_epoch(rig: Rig) -> None:
    """PIPE-060"""
    rig.start()
    rig.open()
    assert rig.owner.epoch == 2
    assert [type(command) for command in rig.commands()] == [RaiseEpoch]
    row = rig.store.batch(0, rig.size - 1)
    assert row is not None
    assert row.epoch == 2
    assert AdvanceTick not in [type(command) for command in rig.commands()]


def test_failed_attempts_are_retried_within_their_bound(rig: Rig) -> None:
    rig.one(submit(max_retries=1))
    for expected in ("RETRYING", "FAILED"):
        rig.pass_ms(20)
        (grant,) = rig.one(Claim(0, "worker-1")).grants
        outcome = rig.one(fail(grant))
        assert outcome.job is not None
        assert outcome.job.state == expected
