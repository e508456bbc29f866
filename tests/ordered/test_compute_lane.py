"""The compute lane: order of offers, bounds, attempts, and answers that come too late."""

from __future__ import annotations

import pytest

from detent.errors import InvalidInput
from detent.kernel import KernelConfig
from detent.kernel.evidence import EXPIRY, RESULT, WORKER_LOST
from detent.kernel.job import Job
from detent.kernel.retry import end_attempt
from detent.ordered import Boundary, Chunk, Discard, Dispatch, Envelope, OrderedRun, SeqState, Withdraw
from tests.ordered.scenes import CANCEL, DONE, FAIL, SKIP, SUCCESS, begun, broken_by, commit_all, config, finish, flying


def dispatches(actions: list[object]) -> list[tuple[int, int]]:
    return [(action.first, action.last) for action in actions if isinstance(action, Dispatch)]


def test_a_seq_goes_from_unseen_over_dispatched_into_flight() -> None:
    """ORD-013, ORD-014, ORD-022, X-072"""
    run = begun(3)
    seen = [run.ledger.state(0)]
    run.tick(50)
    run.dispatched(0, 0, "owner")
    seen.append(run.ledger.state(0))
    assert (run.ledger.lease_owner(0), run.ledger.lease_heartbeat_ms[0], run.ledger.attempts[0]) == ("owner", 50, 0)
    run.started(0, 0, 0, "worker-1")
    seen.append(run.ledger.state(0))
    assert [state.name for state in seen] == ["UNSEEN", "DISPATCHED", "IN_FLIGHT"]
    assert (run.ledger.lease_owner(0), run.ledger.lease_owner(1)) == ("worker-1", None)


@pytest.mark.parametrize("wrong", [1, 0])
def test_no_other_way_leads_into_flight(wrong: int) -> None:
    """ORD-022, ORD-044"""
    run = flying(3, count=1)  # 0 is in flight, 1 is unseen
    details = broken_by(run.started, wrong, wrong, 0, "worker-2")
    assert (details["rule"], details["seq"]) == ("TRANSITION", wrong)


def test_a_heartbeat_is_kept_in_milliseconds_until_the_end() -> None:
    """ORD-014, X-078: tick 7 of 10 ms is 70"""
    run = flying(4, chunk_size=2)
    run.tick(7 * 10)
    assert run.heartbeat(0, 1, "worker-1") == []
    assert list(run.ledger.lease_heartbeat_ms) == [70, 70, 0, 0]
    assert run.heartbeat(2, 3, "worker-9") == [Discard(2, 0, "NOT_THE_OWNER")]
    run.finished(0, 0, DONE)
    assert (run.ledger.lease_owner(0), run.ledger.lease_heartbeat_ms[0]) == (None, 0)
    assert (run.ledger.lease_owner(1), run.ledger.lease_heartbeat_ms[1]) == ("worker-1", 70)


def test_a_retryable_failure_brings_the_same_seq_back() -> None:
    """ORD-013, ORD-024, ORD-037, X-068, X-072"""
    run = flying(2)
    states = []
    for attempt in range(2):
        run.failed(0, attempt, "INTERNAL_ERROR")
        states.append(run.ledger.state(0))
        blocked = run.snapshot().oldest_blocked
        assert blocked is not None
        assert (blocked.attempts, blocked.failure, blocked.owner) == (attempt + 1, "INTERNAL_ERROR", None)
        run.started(0, 0, attempt + 1, "worker-2")
        states.append(run.ledger.state(0))
    assert [state.name for state in states] == ["DISPATCHED", "IN_FLIGHT"] * 2
    assert (run.ledger.attempts[0], run.ledger.terminal_count, run.ledger.total) == (2, 0, 2)
    run.finished(0, 2, DONE)
    assert run.ledger.terminal_count == 1


def test_a_failure_without_retry_is_terminal_at_once() -> None:
    """ORD-025"""
    run = flying(2)
    run.finished(0, 0, Envelope(FAIL, code="BAD_INPUT"))
    assert (run.ledger.state(0), run.ledger.attempts[0]) == (FAIL, 0)


def test_the_kernel_decides_how_often_an_entry_is_tried() -> None:
    """ORD-026, X-008: max_retries + 1 attempts, counted alike here and there; a fourth would be a disagreement"""
    run = flying(1, max_retries=2)
    job = Job("j", "t", None, "seq", b"", b"", 5, "default", "default", b"", 2, 100, ("INTERNAL_ERROR",), 0, b"")
    attempts = 1
    while end_attempt(job, RESULT, "INTERNAL_ERROR", KernelConfig()).to_state == "RETRYING":
        run.failed(0, job.attempt_id, "INTERNAL_ERROR")
        job.attempt_id += 1
        job.failures += 1
        run.started(0, 0, job.attempt_id, "worker")
        assert run.ledger.attempts[0] == job.attempt_id
        attempts += 1
    run.finished(0, job.attempt_id, Envelope(FAIL, code="INTERNAL_ERROR"))
    assert (attempts, run.ledger.state(0)) == (3, FAIL)


def test_an_attempt_beyond_the_bound_is_a_disagreement_with_the_kernel() -> None:
    """ORD-026, ORD-044, X-163"""
    run = flying(1, max_retries=1)
    run.failed(0, 0, "INTERNAL_ERROR")
    run.started(0, 0, 1, "worker")
    assert broken_by(run.failed, 0, 1, "INTERNAL_ERROR")["rule"] == "RETRY_BOUND"


def test_interruptions_have_a_bound_of_their_own() -> None:
    """X-163"""
    run = flying(1, max_retries=0, max_interruptions=2)
    for attempt in range(2):
        run.lapsed(0, 0, attempt, "WORKER_LOST", interrupted=True)
        run.started(0, 0, attempt + 1, "worker")
    assert broken_by(run.lapsed, 0, 0, 2, "WORKER_LOST", True)["rule"] == "RETRY_BOUND"
    assert {EXPIRY, WORKER_LOST} == {"expiry", "worker_lost"}


def test_a_lapsed_lease_is_tried_again_and_its_late_envelope_is_discarded() -> None:
    """ORD-027: whether it comes before the retry has started, while it runs, or after all is committed"""
    run = flying(1)
    run.lapsed(0, 0, 0, "LEASE_EXPIRED")
    assert (run.ledger.state(0), run.ledger.lease_owner(0)) == (SeqState.DISPATCHED, None)
    late = [Discard(0, 0, "LATE")]
    assert run.finished(0, 0, DONE) == late
    run.started(0, 0, 1, "worker-2")
    assert run.finished(0, 0, DONE) == late
    run.finished(0, 1, DONE)
    commit_all(run)
    assert run.ledger.next_commit_seq == run.config.total
    assert run.finished(0, 0, DONE) == late
    assert run.failed(0, 0, "INTERNAL_ERROR") == late


def test_a_second_envelope_for_one_attempt_is_fatal() -> None:
    """ORD-023, ORD-041"""
    again = flying(1)
    again.failed(0, 0, "INTERNAL_ERROR")
    assert broken_by(again.finished, 0, 0, DONE)["rule"] == "SECOND_ENVELOPE"
    twice = flying(2)
    twice.finished(1, 0, DONE)
    assert broken_by(twice.finished, 1, 0, DONE)["rule"] == "SECOND_TERMINAL"
    committed = flying(2)
    committed.finished(0, 0, DONE)
    commit_all(committed)
    assert broken_by(committed.finished, 0, 0, DONE)["rule"] == "SECOND_TERMINAL"


@pytest.mark.parametrize(("seq", "attempt"), [(1, 0), (0, 1), (0, -1)])
def test_only_the_attempt_in_flight_can_answer(seq: int, attempt: int) -> None:
    """ORD-022, ORD-023"""
    run = flying(3, count=1)
    assert broken_by(run.finished, seq, attempt, DONE)["rule"] == "ENVELOPE_NOT_IN_FLIGHT"
    assert broken_by(flying(3).finished, 3, 0, DONE)["rule"] == "SEQ_RANGE"
    assert broken_by(flying(3).finished, -1, 0, DONE)["rule"] == "SEQ_RANGE"


def test_the_kernels_attempt_and_ours_must_be_one() -> None:
    """ORD-013, X-072"""
    run = flying(1)
    run.failed(0, 0, "INTERNAL_ERROR")
    assert broken_by(run.started, 0, 0, 2, "worker")["rule"] == "ATTEMPT"
    assert broken_by(flying(1).lapsed, 0, 0, 1, "LEASE_EXPIRED")["rule"] == "ATTEMPT"


def test_an_attempt_of_a_chunk_covers_what_has_not_ended() -> None:
    """ORD-024, X-183"""
    run = flying(4, chunk_size=4)
    run.finished(1, 0, DONE)
    run.failed(2, 0, "INTERNAL_ERROR")
    run.lapsed(0, 3, 0, "LEASE_EXPIRED")
    assert list(run.ledger.attempts) == [1, 0, 1, 1]
    assert run.open_seqs(0, 3) == [0, 2, 3]
    run.started(0, 3, 1, "worker-2")
    assert [run.ledger.state(seq).name for seq in range(4)] == [
        "IN_FLIGHT",
        "TERMINAL_SUCCESS",
        "IN_FLIGHT",
        "IN_FLIGHT",
    ]


def test_the_death_of_the_runtime_costs_no_retry() -> None:
    """X-163"""
    run = flying(6, chunk_size=2, max_retries=0)
    finish(run, [1])
    run.interrupted()
    assert list(run.ledger.attempts) == [1, 0, 1, 1, 1, 1]
    assert run.ledger.in_flight_count == 0
    run.started(0, 1, 1, "worker-2")
    assert run.finished(0, 0, DONE) == [Discard(0, 0, "LATE")]


def test_a_handler_and_a_filter_can_skip() -> None:
    """ORD-033, X-024, X-074, X-075: the filter without a job; both are committed without a write"""
    run = begun(3)
    run.skipped(0, 0)
    assert (run.ledger.state(0), run.ledger.max_seen_seq) == (SKIP, -1)
    run.dispatched(0, 0)
    run.dispatched(1, 1)
    run.started(1, 1, 0, "worker")
    run.finished(1, 0, Envelope(SKIP))
    assert (run.ledger.state(1), run.envelope(0), run.envelope(1)) == (SKIP, Envelope(SKIP), Envelope(SKIP))
    assert broken_by(run.skipped, 1, 1)["rule"] == "TRANSITION"


def test_a_job_that_the_kernel_cancelled_cancels_its_seqs() -> None:
    """ORD-054, X-075"""
    run = flying(4, chunk_size=2)
    run.finished(0, 0, DONE)
    run.canceled(0, 1)
    assert [run.ledger.state(seq) for seq in (0, 1)] == [SUCCESS, CANCEL]
    assert run.finished(1, 0, DONE) == [Discard(1, 0, "CANCELLED")]


def test_offers_go_as_far_as_the_windows() -> None:
    """ORD-021: by default two windows are all there is room for"""
    run = OrderedRun(config(100, window_size=4, chunk_size=2))
    assert dispatches(list(run.begin())) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_bound_on_the_count_holds_back_offers() -> None:
    """ORD-021"""
    run = OrderedRun(config(100, window_size=8, chunk_size=2, buffered_count_max=5))
    assert dispatches(list(run.begin())) == [(0, 1), (2, 3)]
    run.dispatched(0, 1)
    run.started(0, 1, 0, "worker")
    run.finished(1, 0, DONE)
    assert dispatches(list(run.finished(0, 0, DONE))) == []
    assert dispatches(list(run.committed(1))) == [(4, 5)]


def test_a_bound_on_bytes_reserves_before_it_knows_the_size() -> None:
    """ORD-049: 3 seqs of at most 10 bytes fit in 35; small answers make room at once, large ones when committed"""
    run = OrderedRun(config(100, buffered_bytes_max=35, payload_bytes_max=10))
    assert dispatches(list(run.begin())) == [(0, 0), (1, 1), (2, 2)]
    for seq in range(3):
        run.dispatched(seq, seq)
        run.started(seq, seq, 0, "worker")
    assert dispatches(list(run.finished(1, 0, Envelope(SUCCESS, size=10)))) == []
    assert dispatches(list(run.finished(2, 0, Envelope(SUCCESS, size=1)))) == [(3, 3)]
    assert dispatches(list(run.finished(0, 0, Envelope(SUCCESS, size=10)))) == []
    assert run.commits.buffered_bytes == 21
    assert dispatches(list(run.committed(2))) == [(4, 4), (5, 5)]


def test_a_bound_can_never_hold_back_the_chunk_that_the_cursor_waits_for() -> None:
    """ORD-050"""
    with pytest.raises(InvalidInput, match="buffered_count_max"):
        config(9, chunk_size=4, buffered_count_max=3)
    with pytest.raises(InvalidInput, match="buffered_bytes_max"):
        config(9, chunk_size=4, buffered_bytes_max=39, payload_bytes_max=10)


@pytest.mark.parametrize(
    "envelope",
    [
        Envelope(CANCEL),
        Envelope(SeqState.UNSEEN),
        Envelope(SUCCESS, size=-1),
        Envelope(SUCCESS, size=64 * 1024 + 1),
        Envelope(SUCCESS, b"short"),
        *(Envelope(CANCEL, b"d" * 32), Envelope(SUCCESS, b"d" * 32, -1), Envelope(SUCCESS, b"d" * 32, 64 * 1024 + 1)),
        *(Envelope(SUCCESS, b"d" * 31), Envelope(SUCCESS, "d" * 32), Envelope(SUCCESS, b"d" * 32, 1.0)),  # type: ignore[arg-type]
    ],
)
def test_an_envelope_that_no_worker_may_send_is_refused_and_changes_nothing(envelope: Envelope) -> None:
    """ORD-049: a payload beyond its bound is held by reference, or not at all"""
    run = flying(2, chunk_size=2)
    before = run.snapshot()
    with pytest.raises(InvalidInput):
        run.finished(0, 0, envelope)
    with pytest.raises(InvalidInput):
        run.finished_many(0, 0, [DONE, envelope])
    assert run.snapshot() == before
    assert run.finished(0, 0, DONE) != []


def test_a_cancellation_withdraws_what_the_kernel_has() -> None:
    """ORD-038, X-069: 0..2 are natural, 3 is cut out of its chunk, the rest go with their jobs or were never offered"""
    run = flying(30, count=3, chunk_size=2)
    finish(run, [2])
    actions = run.cancel(0)
    assert [(action.first, action.last) for action in actions if isinstance(action, Withdraw)] == [(3, 5)]
    assert (run.boundary, run.ledger.counts[CANCEL]) == (3, 27)
    assert run.ledger.lease_owner(4) is None
    assert run.finished(4, 0, DONE) == [Discard(4, 0, "CANCELLED")]
    # An offer that was on its way when the cancellation came is taken back as soon as it arrives.
    assert run.dispatched(6, 7) == [Withdraw(6, 7)]
    assert run.started(6, 7, 0, "worker") == [Withdraw(6, 7)]
    assert run.skipped(9, 9) == [Discard(9, 0, "CANCELLED")]


def test_a_later_cancellation_can_only_lower_the_boundary() -> None:
    """X-069"""
    run = flying(30)
    boundaries = [action for each in (12, 20, 5) for action in run.cancel(each) if isinstance(action, Boundary)]
    assert [(each.requested, each.resolved) for each in boundaries] == [(12, 12), (20, 12), (5, 5)]
    finish(run, [4])
    run.cancel(0)
    assert run.boundary == 5
    with pytest.raises(InvalidInput):
        run.cancel(-1)


def test_the_policy_stop_ends_behind_the_window_after_the_failed_one() -> None:
    """ORD-035, ORD-038: wherever the others stood when it failed"""
    for others in ([], [*range(15)], [0, 13, 19]):
        run = flying(50, window_size=5, failure_policy="stop")
        finish(run, [seq for seq in others if seq < 10 and seq != 3])
        run.finished(3, 0, Envelope(FAIL, code="BAD_INPUT"))
        assert run.boundary == 10
    going_on = flying(50, window_size=5)
    going_on.finished(3, 0, Envelope(FAIL, code="BAD_INPUT"))
    assert going_on.boundary == 50


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    """ORD-009: also where one of them fails under the policy stop, or some were cancelled before"""
    for policy, boundary in (("stop", 40), ("continue", 40), ("continue", 2)):
        envelopes = [DONE, Envelope(FAIL, code="BAD_INPUT"), Envelope(SKIP), DONE]
        runs = [flying(40, chunk_size=4, window_size=4, failure_policy=policy) for _ in range(2)]
        for run in runs:
            run.cancel(boundary)
        runs[0].finished_many(0, 0, envelopes)
        for seq, envelope in enumerate(envelopes):
            runs[1].finished(seq, 0, envelope)
        assert runs[0].boundary == runs[1].boundary
        # One by one, the first is handed out by itself; what is held and where it stands is the same.
        assert runs[0].snapshot() == runs[1].snapshot()
        assert runs[0].commits.envelope_by_seq == runs[1].commits.envelope_by_seq


def test_owners_that_hold_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """ORD-014: names do not pile up over a long run"""
    monkeypatch.setattr("detent.ordered.seq_ledger.OWNERS_MAX", 4)
    run = begun(60)
    for seq in range(60):
        run.dispatched(seq, seq, "owner")
        run.started(seq, seq, 0, f"worker-{seq}")
        if seq:
            assert run.ledger.lease_owner(seq - 1) in {None, f"worker-{seq - 1}"}
        assert run.ledger.lease_owner(seq) == f"worker-{seq}"
        if seq % 2:
            finish(run, [seq - 1, seq])
            commit_all(run)
    assert len(run.ledger._owner_names) <= 6
    assert run.ledger.next_commit_seq == run.config.total


def test_chunks_are_compared_as_plain_pairs() -> None:
    assert Chunk(0, 1) == (0, 1)


def test_many_late_envelopes_are_as_late_as_one() -> None:
    """ORD-027"""
    run = flying(2, chunk_size=2)
    run.lapsed(0, 1, 0, "LEASE_EXPIRED")
    run.started(0, 1, 1, "worker-2")
    assert run.finished_many(0, 0, [DONE, DONE]) == [Discard(0, 0, "LATE"), Discard(1, 0, "LATE")]
    assert run.ledger.terminal_count == 0


def test_many_that_ended_at_once_are_not_cancelled() -> None:
    """X-069"""
    run = flying(10, chunk_size=2)
    run.finished_many(2, 0, [DONE, DONE])
    run.cancel(0)
    assert run.boundary == 4


def test_earlier_attempts_are_forgotten_with_the_commit() -> None:
    """ORD-013: the count stays, the memory of each attempt goes"""
    run = flying(2)
    run.failed(0, 0, "INTERNAL_ERROR")
    run.started(0, 0, 1, "worker-2")
    run.finished(0, 1, DONE)
    assert list(run.compute.retried) == [0]
    commit_all(run)
    assert (run.compute.retried, run.ledger.attempts[0]) == ({}, 1)
