"""`explain` on real homes: every state a job can be in, told from the ledger alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from detent.canon import SigningKey
from detent.errors import InvalidInput
from detent.inspect.explain_history import KILLED
from detent.kernel import Claim, Finish, QuotaPolicy
from detent.kernel.policy import RULE_LE_ALL_RETRY, UNLIMITED
from tests.inspect.explained import LEASE_MS, Stage
from tests.scheduling.fleets import generic, needs, replica

MODEL = {"requirements": needs()}
SMALL = QuotaPolicy(UNLIMITED, 100, UNLIMITED, UNLIMITED)
PATIENT = QuotaPolicy(UNLIMITED, 100, UNLIMITED, UNLIMITED, RULE_LE_ALL_RETRY)
QUOTAS = "".join(
    f"\n[quotas.{name}]\n" + "".join(f"{field} = {value!r}\n" for field, value in asdict(policy).items())
    for name, policy in (("small", SMALL), ("patient", PATIENT))
).replace("'", '"')


# -- refused and never a job -------------------------------------------------------------------------------------------


def test_a_submission_to_a_full_queue_is_told_as_refused(tmp_path: Path) -> None:
    """X-182"""
    with Stage(tmp_path, "capacity_per_class = 1") as stage:
        stage.submit("first")
        assert stage.refuse("second") == "QUEUE_FULL"
        told = stage.told("second")
    assert told.state is None
    assert told.now == (
        "It was refused and never became a job: nothing of it is queued.",
        "That can pass (QUEUE_FULL: the queue has no room): the same submission may succeed later.",
    )
    (chapter,) = told.story
    assert (chapter.what, chapter.records) == ("submission refused", ())
    assert chapter.why == ("It was refused (QUEUE_FULL): the queue has no room for a job of class 5: class 5 holds 1.",)
    assert chapter.decision is not None
    assert dict(chapter.decision.facts)["waiting_in_class"] == 1


def test_a_pin_that_cannot_be_followed_is_told_as_refused(tmp_path: Path) -> None:
    """OC-CORE-1019a, X-182"""
    with Stage(tmp_path) as stage:
        stage.register(replica("r1", ready=False))
        assert stage.refuse("unready", pool_pin="pool-a", asks=MODEL) == "POOL_UNREADY"
        assert stage.refuse("unknown", pool_pin="nowhere", asks=MODEL) == "INVALID_PARAMS"
        unready, unknown = stage.told("unready"), stage.told("unknown")
    assert unready.story[0].why == ("It was refused (POOL_UNREADY): pool 'pool-a' has no replica that is ready.",)
    assert unknown.story[0].why == ("It was refused (INVALID_PARAMS): there is no pool 'nowhere' to pin to.",)
    assert unknown.now[1].endswith("something has to change first.")


def test_a_spent_budget_is_told_with_what_is_left(tmp_path: Path) -> None:
    """OC-CORE-1023b, X-182"""
    with Stage(tmp_path) as stage:
        stage.register(replica("r1"))
        stage.order("session_open", session_id="alice", tokens=100, time_ms=None, cost=None)
        asks = {**MODEL, "session_id": "alice", "prompt_tokens": 60, "max_new_tokens": 0}
        stage.submit("paid", asks=asks)
        assert stage.refuse("unpaid", asks=asks) == "SESSION_BUDGET_EXCEEDED"
        paid, unpaid = stage.told("paid"), stage.told("unpaid")
    assert "Its session had left: 40 tokens." in paid.story[0].why
    assert unpaid.story[0].why == (
        "It was refused (SESSION_BUDGET_EXCEEDED): the tokens budget of session 'alice' has 40 left, 60 are needed.",
        "Its session had left: 40 tokens.",
    )


def test_a_signature_that_does_not_hold_is_told_as_refused(tmp_path: Path) -> None:
    """X-182"""
    with Stage(tmp_path) as stage:
        assert stage.refuse("forged", key=SigningKey(b"\x77" * 32)) == "MANIFEST_SIGNATURE_INVALID"
        told = stage.told("forged")
    assert told.state is None
    assert told.story[0].what == "submission refused"
    assert "(MANIFEST_SIGNATURE_INVALID)." in told.story[0].why[0]


def test_equal_refusals_in_a_row_are_told_once_and_before_the_job_they_held_up(tmp_path: Path) -> None:
    """X-182"""
    with Stage(tmp_path, "capacity_per_class = 1") as stage:
        stage.submit("first")
        for _ in range(7):
            stage.refuse("second")
        stage.cancel("first")
        stage.submit("second")
        assert stage.refuse("second", priority=2) == "CONFLICT"
        told = stage.told("second")
    assert [(chapter.what, chapter.times) for chapter in told.story] == [
        ("submission refused", 7),
        ("submitted", 1),
        ("submission refused", 1),
    ]
    assert told.state == "QUEUED"


def test_an_unknown_job_is_refused_with_a_way_on(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        with pytest.raises(InvalidInput, match="there is no job 'nix' here") as caught:
            stage.told("nix")
        assert caught.value.hint == "`detent list --jobs` shows all"


# -- queued ------------------------------------------------------------------------------------------------------------


def test_a_job_in_the_open_pool_waits_for_a_worker(tmp_path: Path) -> None:
    """X-181"""
    with Stage(tmp_path) as stage:
        stage.submit("only")
        told = stage.told("only")
    assert told.now == (
        "It waits for a worker: the next one that asks gets it.",
        "It is next: number 1 of class 5, with no jobs before it.",
    )
    assert told.present.waiting is not None
    assert told.present.waiting.reason == "ANY_WORKER"
    assert told.story[0].why[0] == ("It was admitted: no replica is registered, so the first worker to ask takes it.")


def test_a_waiting_job_without_a_worker_is_explained_so(tmp_path: Path) -> None:
    idle = "No process is working on this home; nothing moves until one opens it."
    with Stage(tmp_path) as stage:
        stage.submit("a", "b")
        stage.succeed(stage.claim())
        assert idle in stage.told("b", at_work=False).now
        assert idle not in stage.told("b", at_work=True).now
        assert idle not in stage.told("a", at_work=False).now


def test_a_job_behind_others_is_told_who_they_are_and_what_the_first_waits_for(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.register(replica("r1", max_slots=1))
        stage.submit("running", asks=MODEL)
        assert len(stage.dispatch()) == 1
        stage.submit("urgent", priority=9, asks=MODEL)
        stage.submit("first", "second", asks=MODEL)
        told = stage.told("second")
        behind = stage.told("first")
    assert told.now == (
        "It waits in pool pool-a: earlier jobs of its class go first.",
        "It is number 2 of class 5; 2 jobs go before it.",
        "The first of its class is job first: every replica that could take it has no room.",
    )
    assert (told.present.ahead, told.present.ahead_total) == (("urgent", "first"), 2)
    assert "It is number 1 of class 5; 1 job goes before it." in behind.now
    assert behind.present.head is None


def test_of_a_long_queue_the_next_ten_are_named_and_the_others_counted(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit(*(f"job-{number:03}" for number in range(30)))
        present = stage.told("job-029").present
    assert present.ahead == tuple(f"job-{number:03}" for number in range(10))
    assert present.ahead_total == 29


def test_a_head_without_room_is_told_the_funnel_and_who_holds_the_room(tmp_path: Path) -> None:
    """CORE-X019, X-181"""
    with Stage(tmp_path) as stage:
        stage.register(
            replica("busy", max_slots=1),
            replica("asleep", ready=False),
            replica("elsewhere", device_mask="gpu9"),
            replica("short", ctx_max_supported=8),
            replica("plain", features=("mmproj",), model_id="other", replica_set_id="set-2"),
        )
        asks = {**MODEL, "device_mask": "gpu0"}
        stage.submit("running", "waiting", asks=asks)
        assert [grant.replica_id for grant in stage.dispatch()] == ["busy"]
        told = stage.told("waiting")
    assert told.now == (
        "It waits in pool pool-a: every replica that could take it has no room.",
        "It runs when one of them finishes a job.",
        (
            "5 replicas were looked at: 1 not ready, 1 outside the device mask, 1 with another engine, model or sampler"
            " profile, 1 with too small a context, 1 without room now; 0 could take it."
        ),
        "Of those not ready, 1 could otherwise take it.",
        "Their order: most free memory first, then fewest taken slots, then name.",
        "  1. busy: 1000 MB free, 1 slot taken, without room now",
        "It is next: number 1 of class 5, with no jobs before it.",
    )


def test_a_head_whose_replicas_are_not_ready_or_gone_is_told_so(tmp_path: Path) -> None:
    """CORE-X019"""
    with Stage(tmp_path) as stage:
        stage.register(replica("r1"), generic("g1", pool_id="pool-g"))
        stage.submit("waiting", asks=MODEL)
        stage.order("replica_ready", replica_id="r1", ready=False)
        unready = stage.told("waiting")
        stage.order("replica_remove", replica_id="r1")
        gone = stage.told("waiting")
        stage.order("replica_remove", replica_id="g1")
        nobody = stage.told("waiting")
    assert unready.now[0] == "It waits in pool pool-a: no replica that could take it is ready."
    assert "It runs when one of them becomes ready." in unready.now
    assert gone.now[0] == "It waits in pool pool-a: no replica that is registered now could ever take it."
    assert gone.now[2] == "1 replica was looked at: 1 in other pools; 0 could take it."
    assert nobody.now[0] == gone.now[0]
    assert nobody.now[2] == "No replica is registered."


def test_a_head_that_could_run_is_not_said_to_have_been_placed(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.register(replica("r1"))
        stage.submit("next", asks=MODEL)
        told = stage.told("next")
    assert told.now[0] == "It waits for dispatch: replica r1 in pool pool-a has room for it."
    assert told.state == "QUEUED"


def test_a_job_queued_again_after_a_retry_is_told_both_attempts(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("again")
        stage.fail(stage.claim())
        stage.pass_ms(1_000)
        told = stage.told("again")
    assert told.state == "QUEUED"
    assert told.now[0] == "It waits for a worker: the next one that asks gets it."
    assert told.now[-1] == "It has been tried before: this is for attempt 2."
    assert [chapter.what for chapter in told.story] == [
        "submitted",
        "queued -> running",
        "running -> retrying",
        "retrying -> queued",
    ]
    assert told.story[2].why == (
        "worker-1 reported a failure after 0 ms (TASK_FAILED, INTERNAL_ERROR).",
        "It is tried again: retry 1 of at most 2.",
    )
    assert told.story[3].why == (
        "After 1.0 s its delay is over and there is room: it stands at the end of its class again.",
    )


# -- retrying ----------------------------------------------------------------------------------------------------------


def test_a_retry_that_waits_for_its_delay_is_told_when_it_is_over(tmp_path: Path) -> None:
    """X-042"""
    with Stage(tmp_path) as stage:
        stage.submit("delayed")
        stage.fail(stage.claim())
        told = stage.told("delayed")
    assert told.state == "RETRYING"
    assert told.now == (
        "Attempt 1 ended (TASK_FAILED), and it is tried again.",
        "It goes back to the queue at 2023-11-14 22:13:22.000 UTC, 1.0 s after the ledger's last entry.",
        "Retries used: 1 of at most 2.",
    )


def test_a_retry_that_waits_for_room_is_told_so(tmp_path: Path) -> None:
    """X-042"""
    with Stage(tmp_path, "capacity_per_class = 1") as stage:
        for name in ("early", "late"):
            stage.submit(name)
            stage.fail(stage.claim())
        stage.submit("newcomer")
        stage.pass_ms(1_000)
        told = stage.told("late")
    assert told.state == "RETRYING"
    assert told.now[1] == (
        "Its delay is over. The queue has no room for class 5: it gets the next place that is free, before every new job,"
        " after one other retry."
    )


# -- running -----------------------------------------------------------------------------------------------------------


def test_a_running_job_is_told_where_since_when_and_until_when(tmp_path: Path) -> None:
    """OC-CORE-1012, OC-CORE-1022b, X-181"""
    with Stage(tmp_path) as stage:
        stage.register(replica("small", free_vram_mb=500), replica("large", free_vram_mb=900))
        asks = {**MODEL, "wall_ms": 60_000, "idle_ms": 20_000, "reports_progress": True}
        stage.submit("job", asks=asks)
        stage.clock.jump(250)
        (grant,) = stage.dispatch()
        stage.clock.jump(1_000)
        stage.use(grant, cpu_time_ms=5)
        stage.clock.jump(3_000)
        stage.beat(grant, progress=True)
        told = stage.told("job")
    assert told.now == (
        "It runs on large since 2023-11-14 22:13:21.250 UTC, attempt 1.",
        # The heartbeat came at :25.250 and moved the lease, of which the job's row knows nothing.
        "Its lease holds until 2023-11-14 22:13:55.250 UTC; each sign of life from the worker extends it.",
        "It may run 1 min in all and 20.0 s without progress.",
        (
            "It is stopped at 2023-11-14 22:13:45.250 UTC unless it reports progress or ends before"
            " (WATCHDOG_IDLE: made no progress for too long)."
        ),
    )
    assert told.story[1].why == (
        "It was placed on replica large of pool pool-a: it came first in order.",
        "2 replicas were looked at; all could take it.",
        "Their order: most free memory first, then fewest taken slots, then name.",
        "  1. large: 900 MB free, 0 slots taken, chosen",
        "  2. small: 500 MB free, 0 slots taken, lost by free memory",
        "It had waited 250 ms.",
    )


def test_a_job_kept_by_its_session_is_told_who_was_passed_over(tmp_path: Path) -> None:
    """OC-CORE-1013"""
    with Stage(tmp_path) as stage:
        stage.register(replica("a"))
        asks = {**MODEL, "session_id": "alice"}
        stage.submit("first", asks=asks)
        stage.succeed(stage.dispatch()[0])
        stage.register(replica("b", free_vram_mb=9_000))
        stage.submit("second", asks=asks)
        stage.dispatch()
        why = stage.told("second").story[1].why
    assert why[0] == "It was placed on replica a of pool pool-a: its session last succeeded there."
    assert why[-2].endswith("passed over, because the session stays where it last succeeded")


def test_of_many_candidates_five_are_listed_and_the_decision_has_sixteen(tmp_path: Path) -> None:
    """X-181"""
    with Stage(tmp_path) as stage:
        stage.register(*(replica(f"r{number:02}") for number in range(20)))
        stage.submit("job", asks=MODEL)
        stage.dispatch()
        placed = stage.told("job").story[1]
    assert placed.why[-3:] == (
        "  5. r04: 1000 MB free, 0 slots taken, lost by name",
        "  and 15 more that could have taken it",
        "It had waited 0 ms.",
    )
    assert placed.decision is not None
    assert len(placed.decision.candidates) == 16


# -- ended -------------------------------------------------------------------------------------------------------------


def test_a_success_is_told_with_its_attempt_and_its_worker(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("job")
        stage.fail(stage.claim())
        stage.pass_ms(1_000)
        grant = stage.claim("worker-2")
        stage.pass_ms(3_200)
        stage.succeed(grant)
        told = stage.told("job")
    assert told.now == (
        "It succeeded at attempt 2, at 2023-11-14 22:13:25.200 UTC.",
        "worker-2 reported a result after 3.2 s.",
    )
    assert told.story[-1].attempt == 2


def test_a_failure_of_a_category_that_is_not_retried_is_told_as_final(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("job")
        stage.fail(stage.claim(), "VALIDATION_ERROR", "BAD_INPUT")
        told = stage.told("job")
    assert told.now[1:] == (
        "worker-1 reported a failure after 0 ms (BAD_INPUT, VALIDATION_ERROR).",
        "A failure of category VALIDATION_ERROR is not retried; for this job these are: INTERNAL_ERROR.",
    )


def test_used_up_retries_are_told_as_used_up(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("twice", max_retries=1)
        stage.fail(stage.claim())
        stage.pass_ms(1_000)
        stage.fail(stage.claim())
        stage.submit("once", max_retries=0)
        stage.fail(stage.claim())
        twice, once = stage.told("twice"), stage.told("once")
    assert (twice.state, twice.now[-1]) == ("FAILED", "It may be retried once, and that is used up.")
    assert (once.state, once.now[-1]) == ("FAILED", "It allows no retries.")


def test_a_category_that_is_not_retried_is_the_reason_even_when_no_retry_is_left(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("job", max_retries=1)
        stage.fail(stage.claim())
        stage.pass_ms(1_000)
        stage.fail(stage.claim(), "VALIDATION_ERROR")
        assert stage.told("job").now[-1].startswith("A failure of category VALIDATION_ERROR is not retried")


def test_a_lost_worker_is_told_with_the_end_of_its_lease(tmp_path: Path) -> None:
    """X-039"""
    with Stage(tmp_path) as stage:
        stage.submit("job", max_retries=0)
        stage.claim()
        stage.pass_ms(LEASE_MS)
        told = stage.told("job")
    assert told.now[1:] == (
        (
            "worker-1 gave no sign of life in time and counts as lost, 30.0 s after the start"
            " (LEASE_EXPIRED: no heartbeat came in time)."
        ),
        "It allows no retries.",
    )


@pytest.mark.parametrize(
    ("limit", "code", "after"), [("wall_ms", "WATCHDOG_WALL", "10.0 s"), ("idle_ms", "WATCHDOG_IDLE", "10.0 s")]
)
def test_a_limit_is_told_as_what_stopped_a_job(tmp_path: Path, limit: str, code: str, after: str) -> None:
    """OC-CORE-1022a, X-091"""
    with Stage(tmp_path) as stage:
        stage.register(replica("r1"))
        stage.submit("job", asks={**MODEL, limit: 10_000, "reports_progress": True})
        (grant,) = stage.dispatch()
        stage.pass_ms(5_000, grant)
        stage.pass_ms(5_000)
        told = stage.told("job")
    assert told.state == "FAILED"
    assert told.now[1].startswith(f"The watchdog stopped it on r1 after {after} ({code}: ")
    assert told.now[2] == "A limit that was reached would be reached again, so it is not retried."


def test_a_quota_is_told_with_what_was_used(tmp_path: Path) -> None:
    """X-018"""
    with Stage(tmp_path, QUOTAS) as stage:
        stage.submit("job", quota=SMALL)
        stage.use(stage.claim(), cpu_time_ms=120)
        told = stage.told("job")
    assert told.state == "FAILED"
    assert told.now[1:] == (
        "It was over its quota on worker-1 after 0 ms (QUOTA_CPU_TIME: the CPU time budget is spent).",
        "It had used 120 ms of CPU time.",
        "A budget is for all attempts together: another one would not help.",
    )


def test_a_quota_that_cancels_is_told_while_it_ran_and_when_its_turn_came(tmp_path: Path) -> None:
    """X-018"""
    with Stage(tmp_path, QUOTAS, '\n[kernel]\non_quota_running = "cancel"\n') as stage:
        stage.submit("running", quota=SMALL)
        stage.use(stage.claim(), cpu_time_ms=120)
        stage.submit("waiting", quota=PATIENT)
        stage.use(stage.claim(), cpu_time_ms=2_500)
        assert stage.told("waiting").state == "RETRYING"
        stage.pass_ms(1_000)
        assert not stage.do(Claim(0, "worker-2")).grants
        running, waiting = stage.told("running"), stage.told("waiting")
    assert (running.state, waiting.state) == ("CANCELED", "CANCELED")
    assert running.now[1].startswith("It was over its quota on worker-1 after 0 ms (QUOTA_CPU_TIME")
    assert waiting.now[1] == "When its turn came it was over its quota (QUOTA_CPU_TIME: the CPU time budget is spent)."
    assert waiting.now[2] == "It had used 2.5 s of CPU time."
    assert waiting.story[-1].what == "queued -> cancelled"


def test_interruptions_are_told_apart_from_failures(tmp_path: Path) -> None:
    """X-163"""
    with Stage(tmp_path) as stage:
        stage.submit("job", max_interruptions=1)
        for _ in range(2):
            grant = stage.claim()
            stage.do(Finish(0, "job", grant.lease_id, ok=False, kind="worker_lost", reason_code="WORKER_LOST"))
            stage.pass_ms(1)
        told = stage.told("job")
    assert told.story[2].why == (
        "It was interrupted on worker-1 after 0 ms, by no fault of its own (WORKER_LOST).",
        "It is tried again: interruption 1 of at most 1.",
    )
    assert (told.state, told.now[-1]) == ("FAILED", KILLED)
    assert told.now[-2] == "It may be interrupted once, and that is used up."


def test_a_cancellation_is_told_with_where_the_job_stood(tmp_path: Path) -> None:
    with Stage(tmp_path) as stage:
        stage.submit("running", "retrying", "queued")
        stage.claim()
        stage.fail(stage.claim("worker-2"))
        told = {}
        for name in ("running", "retrying", "queued"):
            stage.cancel(name)
            told[name] = stage.told(name)
    words = "(CANCELLED_BY_USER: cancelled on request)"
    assert told["running"].now[1] == f"It was cancelled while it ran on worker-1 {words}."
    assert told["retrying"].now[1] == f"It was cancelled while it waited to be tried again {words}."
    assert told["queued"].now == (
        "It was cancelled, and never ran, at 2023-11-14 22:13:21.000 UTC.",
        f"It was cancelled while it waited in the queue {words}.",
    )
    assert told["retrying"].story[-1].what == "retrying -> cancelled"
    assert len(told["retrying"].story[-1].records) == 3


@pytest.mark.parametrize(
    ("policy", "bound", "loser", "reason"),
    [
        ("drop-lru", "capacity_per_class = 2", "oldest", "DROPPED_LRU: dropped to make room, oldest first"),
        ("shed-low-priority", "capacity_total = 2", "newest", "SHED_LOW_PRIORITY: shed in favour of a higher class"),
    ],
)
def test_an_evicted_job_is_told_who_took_its_place(
    tmp_path: Path, policy: str, bound: str, loser: str, reason: str
) -> None:
    """CORE-X018, X-082"""
    with Stage(tmp_path, f'admission_policy = "{policy}"', bound) as stage:
        stage.submit("oldest", "newest")
        stage.submit("urgent", priority=9 if policy == "shed-low-priority" else 5)
        told = stage.told(loser)
    assert told.state == "CANCELED"
    assert told.now[1] == f"It lost its place in the queue to job urgent ({reason})."
    assert told.story[-1].what == "queued -> cancelled"
    assert told.story[-1].decision is not None
    assert dict(told.story[-1].decision.facts) == {"by_job_id": "urgent"}
