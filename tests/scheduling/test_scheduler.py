"""The scheduler under the kernel: what it decides becomes records, and every record says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import encode, sha256
from detent.kernel import (
    AdvanceTick,
    Claim,
    Command,
    Dispatch,
    Heartbeat,
    Kernel,
    KernelConfig,
    MemoryHistory,
    Order,
    Outcome,
    PriorityFifo,
    Submit,
    checkpoint,
    partition_of,
    restore,
)
from detent.kernel.policy import RULES_ORIGIN_NAMED, RULES_POOL_OPENED
from detent.scheduling import Decision, Position, ReplicaStatus, Scheduler, SchedulingPolicy, TaskRequest
from detent.scheduling.decisions import admitted_to_open_pool, placed_on_asker
from detent.scheduling.orders import write_request
from tests.kernel.builders import LEASE, Scene, body_of, code_of, config, evidence_of, quota, verified, waiting_retries
from tests.scheduling.fleets import generic, needs, replica


def scheduled(**settings: Any) -> KernelConfig:
    policy = SchedulingPolicy.from_settings(settings)
    return config(queue=policy.queue_policy(), scheduling=policy.to_map())


class House(Scene):
    """A kernel that is handed the scheduler, and the words in which one talks to it."""

    def __init__(self, *replicas: ReplicaStatus, settings: KernelConfig | None = None, **policy: Any) -> None:
        made = Kernel(settings or scheduled(**policy), make_queue=Scheduler, history=MemoryHistory())
        super().__init__(kernel=made)
        for one in replicas:
            assert self.order("replica_register", replica=one.to_map()).ok

    @property
    def scheduler(self) -> Scheduler:
        assert isinstance(self.kernel.queue, Scheduler)
        return self.kernel.queue

    def order(self, name: str, **fields: Any) -> Outcome:
        return self.apply(Order(self.tick, name, encode(fields)))

    def ask(self, job_id: str, *, pool_pin: str | None = None, priority: int = 5, **request: Any) -> Outcome:
        origin = "detent/00" if self.kernel.config.rules >= RULES_ORIGIN_NAMED else None
        manifest = verified(job_id, priority=priority, pool_pin=pool_pin, job_kind="inference", origin=origin)
        return self.apply(Submit(self.tick, manifest, None, write_request(**request)))

    def push(self, limit: int = 10) -> list[tuple[str, str]]:
        """Dispatch, and who went where."""
        return [(grant.job_id, grant.replica_id) for grant in self.apply(Dispatch(self.tick, limit)).grants]

    def pull(self, replica_id: str, limit: int = 10) -> list[str]:
        return [grant.job_id for grant in self.claim(limit, replica_id)]

    def decisions(self) -> dict[bytes, Decision]:
        return {sha256(data): Decision.decode(data) for outcome in self.outcomes for data in outcome.decisions}

    def decision_of(self, outcome: Outcome) -> Decision:
        """The decision that the record of an outcome names."""
        assert outcome.record is not None
        if outcome.record.kind == "submitted":
            return self.decisions()[body_of(outcome.record)["decision_digest"]]
        named = evidence_of(outcome.record).detail_digest
        assert named is not None
        return self.decisions()[named]


# -- without a fleet ---------------------------------------------------------------------------------------------------


def test_without_replicas_any_claiming_worker_gets_the_next_job_and_the_records_say_so() -> None:
    """X-007, X-181"""
    house = House()
    house.submit("low", priority=1)
    admitted = house.submit("high", priority=9)
    assert house.decision_of(admitted).reason == "ANY_WORKER"
    queue = house.decision_of(admitted).queue
    assert queue is not None
    assert (queue.priority, queue.place, queue.before) == (9, 1, 0)
    placed = house.apply(Claim(0, "worker-7", 2))
    assert [grant.job_id for grant in placed.grants] == ["high", "low"]
    decision = house.decision_of(placed)
    assert (decision.kind, decision.job_id, decision.replica_id) == ("placed", "low", "worker-7")


def test_a_decision_is_named_by_the_digest_of_its_bytes() -> None:
    """X-181"""
    house = House()
    outcome = house.submit()
    (data,) = outcome.decisions
    assert sha256(data) == body_of(outcome.record)["decision_digest"]


def test_a_pin_without_a_fleet_is_refused() -> None:
    """OC-CORE-1019a, OC-CORE-1019b"""
    house = House()
    assert code_of(house.submit(pool_pin="gpu")) == "INVALID_PARAMS"
    assert (len(house.kernel.queue), house.kernel.jobs) == (0, {})


def test_a_model_without_a_replica_is_refused_and_the_refusal_carries_its_decision() -> None:
    """X-086, X-182"""
    house = House()
    refusal = house.ask("job-1", requirements=needs()).refusal
    assert refusal is not None
    assert refusal.code == "NO_FEASIBLE_POOL"
    decision = Decision.decode(refusal.details["decision"])  # type: ignore[arg-type]
    assert (decision.kind, decision.reason, decision.job_id) == ("refused", "NO_FEASIBLE_POOL", "job-1")


# -- placement ---------------------------------------------------------------------------------------------------------


def test_jobs_go_to_the_replica_with_the_most_free_memory_as_long_as_it_has_slots() -> None:
    """OC-CORE-1012, OC-CORE-1017, CORE-X017"""
    house = House(replica("small", free_vram_mb=500), replica("large", free_vram_mb=900))
    for name in ("a", "b", "c", "d", "e"):
        assert house.ask(name, requirements=needs()).ok
    assert house.push() == [("a", "large"), ("b", "large"), ("c", "small"), ("d", "small")]
    assert house.push() == []
    assert house.scheduler.fleet.leases() == {"a": "large", "b": "large", "c": "small", "d": "small"}


def test_a_replica_that_asks_gets_what_belongs_to_it_and_nothing_else() -> None:
    """X-007: asking gives the same history as being told"""

    def arrivals() -> House:
        house = House(replica("small", free_vram_mb=500, max_slots=1), replica("large", free_vram_mb=900, max_slots=1))
        for name in ("a", "b"):
            assert house.ask(name, requirements=needs()).ok
        return house

    pushed, pulled = arrivals(), arrivals()
    assert pushed.push() == [("a", "large"), ("b", "small")]
    assert pulled.pull("small") == []
    assert pulled.pull("large") == ["a"]
    assert pulled.pull("small") == ["b"]
    assert [record.body for record in pushed.records] == [record.body for record in pulled.records]


def test_a_stranger_is_told_that_it_is_one() -> None:
    """OC-CORE-1010"""
    house = House(generic("known"))
    house.submit()
    outcome = house.apply(Claim(0, "stranger"))
    assert code_of(outcome) == "INVALID_PARAMS"
    assert house.pull("known") == ["job-1"]


def test_a_job_without_a_model_goes_to_a_generic_replica_only() -> None:
    """X-093"""
    house = House(replica("gpu"), generic("plain"))
    house.submit()
    assert house.pull("gpu") == []
    assert house.pull("plain") == ["job-1"]


def test_jobs_of_the_open_pool_are_placed_once_there_is_a_fleet() -> None:
    house = House()
    house.submit("early")
    house.order("replica_register", replica=generic("g1").to_map())
    assert house.push() == [("early", "g1")]


@pytest.mark.parametrize(("rules", "taken"), [(RULES_ORIGIN_NAMED, []), (RULES_POOL_OPENED, ["high", "plain"])])
def test_the_pool_opens_for_what_waited_for_a_fleet_that_is_gone_under_the_rules_that_say_so(
    rules: int, taken: list[str]
) -> None:
    """X-093: what needs a model waits on; histories under earlier rules are replayed as they were decided."""
    house = House(generic("g1"), replica("r1"), settings=replace(scheduled(), rules=rules))
    for job_id, priority in (("plain", 5), ("high", 7)):
        assert house.ask(job_id, priority=priority).ok
    assert house.ask("model", priority=9, requirements=needs()).ok
    for replica_id in ("g1", "r1"):
        assert house.order("replica_remove", replica_id=replica_id).ok
    assert house.pull("anyone") == taken
    assert house.pull("anyone") == []
    assert "model" in house.scheduler.queues


def test_a_blocked_class_holds_its_own_followers_but_no_lower_class() -> None:
    """CORE-X016, X-084"""
    house = House(replica("gpu", max_slots=1), generic("plain", pool_id="pool-a"))
    house.ask("running", requirements=needs())
    house.push()
    house.ask("blocked", requirements=needs(), priority=9)
    house.submit("follower", priority=9)
    house.submit("below", priority=1)
    assert house.push() == [("below", "plain")]


@pytest.mark.parametrize(("order", "first"), [("least-loaded", "empty"), ("pack", "half")])
def test_the_placement_order_is_part_of_the_policy(order: str, first: str) -> None:
    """OC-CORE-1017, CORE-X013"""
    house = House(replica("empty", free_vram_mb=900), replica("half", free_vram_mb=300), placement_order=order)
    house.ask("job-1", requirements=needs(), vram_mb=200)
    assert house.push() == [("job-1", first)]


def test_policies_are_part_of_the_queue_policy_hash() -> None:
    """CORE-X013, X-051"""
    hashes = {
        scheduled(**policy).queue_policy_hash
        for policy in ({}, {"placement_order": "pack"}, {"workflow_priority_cap": 3}, {"capacity": {"1": 7}})
    }
    assert len(hashes) == 4


def test_a_session_stays_where_it_last_succeeded() -> None:
    """OC-CORE-1013, X-085"""
    house = House(replica("large", free_vram_mb=900, max_slots=1), replica("small", free_vram_mb=100, max_slots=1))
    house.ask("other", requirements=needs())
    house.push()
    house.ask("one", requirements=needs(), session_id="s")
    (grant,) = house.apply(Dispatch(0, 1)).grants
    assert grant.replica_id == "small"
    house.finish(grant)
    house.cancel("other")
    house.order("job_stopped", job_id="other")
    house.ask("two", requirements=needs(), session_id="s")
    placed = house.apply(Dispatch(0, 1))
    assert placed.grants[0].replica_id == "small"
    assert house.decision_of(placed).reason == "SESSION_AFFINITY"


# -- slots -------------------------------------------------------------------------------------------------------------


def test_the_slot_of_a_cancelled_job_stays_taken_until_its_lease_would_have_run_out() -> None:
    """CORE-X017, X-092"""
    house = House(generic("g1", max_slots=1))
    house.submit("one")
    house.push()
    house.submit("two")
    house.cancel("one")
    assert house.push() == []
    house.tick = LEASE.lease_ttl_ticks - 1
    assert house.push() == []
    assert house.kernel.next_due() == LEASE.lease_ttl_ticks
    house.tick = LEASE.lease_ttl_ticks
    assert house.push() == [("two", "g1")]


def test_a_worker_that_confirms_gives_the_slot_back_at_once() -> None:
    """X-092"""
    house = House(generic("g1", max_slots=1))
    house.submit("one")
    house.push()
    house.submit("two")
    house.cancel("one")
    assert house.order("job_stopped", job_id="one").ok
    assert house.push() == [("two", "g1")]
    assert code_of(house.order("job_stopped", job_id="two")) == "INVALID_PARAMS"
    assert house.job("two").state == "RUNNING"


def test_an_expired_lease_gives_its_slot_back() -> None:
    """X-091"""
    house = House(generic("g1", max_slots=1))
    house.submit("one")
    house.push()
    house.at(LEASE.lease_ttl_ticks)
    assert house.job("one").state == "RETRYING"
    assert house.scheduler.fleet.leases() == {}


# -- full queues -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "newcomer", "evicted", "reason"),
    [("drop-lru", 5, "old", "DROPPED_LRU"), ("shed-low-priority", 6, "new", "SHED_LOW_PRIORITY")],
)
def test_an_evicted_jobs_last_record_says_who_took_its_place(
    policy: str, newcomer: int, evicted: str, reason: str
) -> None:
    """CORE-X018, X-082"""
    house = House(capacity_total=2, admission_policy=policy)
    house.submit("old")
    house.submit("new")
    outcome = house.submit("newcomer", priority=newcomer)
    assert outcome.ok
    assert (house.job(evicted).state, house.job(evicted).reason_code) == ("CANCELED", reason)
    named = evidence_of(outcome.records[-1]).detail_digest
    assert named is not None
    decision = house.decisions()[named]
    assert (decision.kind, decision.job_id, dict(decision.facts)["by_job_id"]) == ("evicted", evicted, "newcomer")


@pytest.mark.parametrize("kind", ["action", "seq"])
def test_workflow_and_ordered_work_is_held_back_and_never_dropped(kind: str) -> None:
    """X-031"""
    house = House(capacity_total=1, admission_policy="drop-lru")
    house.submit("kept", job_kind=kind)
    assert code_of(house.submit("newcomer", job_kind="task")) == "QUEUE_FULL"
    assert house.job("kept").state == "QUEUED"


def test_no_new_job_takes_the_room_that_a_retry_waits_for() -> None:
    """X-042"""
    house = House(capacity_total=1, admission_policy="drop-lru")
    grant = house.start("again")
    house.fail(grant)
    house.submit("queued")
    house.at(10)
    assert (house.job("again").state, waiting_retries(house.kernel)) == ("RETRYING", 1)
    assert code_of(house.submit("pushy")) == "QUEUE_FULL"
    assert house.job("queued").state == "QUEUED"
    assert house.pull("worker-1", 1) == ["queued"]
    assert house.job("again").state == "QUEUED"


def test_a_retry_comes_back_to_its_own_pool() -> None:
    """X-043, X-045"""
    house = House(replica("a", pool_id="pool-a"), replica("b", pool_id="pool-b", replica_set_id="set-2"))
    house.ask("job-1", pool_pin="pool-b", requirements=needs())
    (grant,) = house.apply(Dispatch(0, 1)).grants
    house.fail(grant)
    house.at(10)
    assert house.scheduler.queues.pool_of("job-1") == "pool-b"
    assert house.push() == [("job-1", "b")]


def test_an_operator_may_lower_workflow_work() -> None:
    """X-010"""
    house = House(workflow_priority_cap=2)
    house.submit("action", priority=10, job_kind="action")
    house.submit("task", priority=3)
    assert house.pull("worker-1") == ["task", "action"]


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_job_over_its_wall_limit_fails_for_good() -> None:
    """OC-CORE-1022a, OC-CORE-1022b, X-091"""
    house = House()
    house.ask("job-1", wall_ms=40)
    house.apply(Submit(0, verified("job-2"), None, write_request(wall_ms=40)))
    (grant,) = house.claim(1)
    house.at(39)
    assert house.job(grant.job_id).state == "RUNNING"
    house.at(40)
    ended = house.job(grant.job_id)
    assert (ended.state, ended.reason_code) == ("FAILED", "WATCHDOG_WALL")


@pytest.mark.parametrize(("asked", "due"), [(40, 40), (400, 100)])
def test_of_the_operators_wall_limit_and_a_jobs_the_smaller_one_binds(asked: int, due: int) -> None:
    """X-019, A.6"""
    house = House(watchdog_wall_ms=100)
    house.apply(Submit(0, verified("job"), None, write_request(wall_ms=asked)))
    house.claim(1)
    house.at(due - 1)
    assert house.job("job").state == "RUNNING"
    house.at(due)
    assert house.job("job").reason_code == "WATCHDOG_WALL"


def test_heartbeats_keep_the_lease_and_only_progress_keeps_an_idle_job() -> None:
    """OC-CORE-1022b, X-162"""
    house = House()
    house.apply(Submit(0, verified("silent"), None, write_request(reports_progress=True, idle_ms=50)))
    house.apply(Submit(0, verified("busy"), None, write_request(reports_progress=True, idle_ms=50)))
    silent, busy = house.claim(2)
    house.tick = 40
    house.apply(Heartbeat(40, silent.job_id, silent.lease_id))
    house.apply(Heartbeat(40, busy.job_id, busy.lease_id, progress=True))
    house.at(50)
    assert (house.job("silent").state, house.job("silent").reason_code) == ("FAILED", "WATCHDOG_IDLE")
    assert house.job("busy").state == "RUNNING"
    house.at(90)
    assert house.job("busy").reason_code == "WATCHDOG_IDLE"


def test_a_job_that_promised_no_progress_may_be_silent() -> None:
    """X-162"""
    house = House(watchdog_idle_ms=10)
    grant = house.start()
    for tick in (50, 100, 150):
        house.tick = tick
        house.heartbeat(grant)
    assert house.job().state == "RUNNING"


def test_a_limit_and_a_lease_that_run_out_together_end_the_job_by_the_limit() -> None:
    """X-091"""
    house = House()
    house.apply(Submit(0, verified(), None, write_request(wall_ms=LEASE.lease_ttl_ticks)))
    house.claim()
    house.at(LEASE.lease_ttl_ticks)
    assert (house.job().state, house.job().reason_code) == ("FAILED", "WATCHDOG_WALL")


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_budgets_are_taken_at_admission_settled_at_the_end_and_never_negative() -> None:
    """OC-CORE-1023a, OC-CORE-1023b"""
    house = House(replica("r"))
    house.order("session_open", session_id="s", tokens=100, time_ms=None, cost=None)
    asked: dict[str, Any] = {"requirements": needs(), "session_id": "s", "prompt_tokens": 30, "max_new_tokens": 30}
    admitted = house.ask("one", **asked)
    assert house.decision_of(admitted).budget_left == (("tokens", 40),)
    refusal = house.ask("two", **asked).refusal
    assert refusal is not None
    assert (refusal.code, refusal.details["budget"]) == ("SESSION_BUDGET_EXCEEDED", "tokens")
    (grant,) = house.apply(Dispatch(0, 1)).grants
    house.order("session_settle", job_id="one", tokens=35, time_ms=0, cost=0)
    house.finish(grant)
    assert house.scheduler.sessions.left("s") == (("tokens", 65),)
    assert house.ask("three", **asked).ok


def test_a_job_that_never_ran_costs_its_session_nothing() -> None:
    """OC-CORE-1023a"""
    house = House(replica("r"))
    house.order("session_open", session_id="s", tokens=100, time_ms=None, cost=None)
    house.ask("one", requirements=needs(), session_id="s", prompt_tokens=60)
    house.cancel("one")
    assert house.scheduler.sessions.left("s") == (("tokens", 100),)
    house.ask("two", requirements=needs(), session_id="s", prompt_tokens=60)
    (grant,) = house.apply(Dispatch(0, 1)).grants
    house.finish(grant)
    assert house.scheduler.sessions.left("s") == (("tokens", 40),), (
        "no usage was reported, so it is charged what it asked for"
    )


def test_a_session_of_another_partition_pays_there_and_the_job_runs_here() -> None:
    """X-030: one session, two partitions, and its budget is never overspent"""
    policy = scheduled().scheduling
    houses = [House(settings=config(partitions=2, partition_id=number, scheduling=policy)) for number in range(2)]
    budget = {"tokens": 100, "time_ms": None, "cost": None}
    session = "session-1"
    home = partition_of(session, 2)
    away = 1 - home
    assert code_of(houses[away].order("session_open", session_id=session, **budget)) == "NOT_PARTITION_OWNER"
    assert houses[home].order("session_open", session_id=session, **budget).ok
    jobs = [name for name in map("job-{}".format, range(20)) if partition_of(name, 2) == away][:3]
    paid = []
    for job_id in jobs:
        task = TaskRequest(job_id, session_id=session, prompt_tokens=40)
        if houses[home].order("session_debit", task=task.to_map()).ok:
            paid.append(job_id)
            assert houses[away].ask(job_id, session_id=session, prompt_tokens=40, debited=True).ok
    assert paid == jobs[:2]
    assert houses[home].scheduler.sessions.left(session) == (("tokens", 20),)
    assert code_of(houses[away].ask(jobs[2], session_id=session, prompt_tokens=40)) == "NOT_PARTITION_OWNER"


# -- orders ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("replica_regster", {}),
        ("replica_register", {}),
        ("replica_register", {"replica": generic("g1").to_map()}),
        ("replica_register", {"replica": {**generic("g2").to_map(), "max_slots": 0}}),
        ("replica_register", {"replica": {**generic("g2").to_map(), "ready": 1}}),
        ("replica_update", {"replica": generic("g2").to_map()}),
        ("replica_ready", {"replica_id": "g2", "ready": True}),
        ("replica_ready", {"replica_id": "g1", "ready": "yes"}),
        ("replica_remove", {"replica_id": "g2"}),
        ("job_stopped", {"job_id": "nobody"}),
        ("session_open", {"session_id": "s", "tokens": -1, "time_ms": None, "cost": None}),
        ("session_debit", {"task": {}}),
        ("session_settle", {"job_id": "one", "tokens": None, "time_ms": 0, "cost": 0}),
    ],
)
def test_an_order_that_does_not_fit_changes_nothing(name: str, fields: dict[str, Any]) -> None:
    house = House(generic("g1"))
    before = checkpoint(house.kernel)
    outcome = house.order(name, **fields)
    assert code_of(outcome) == "INVALID_PARAMS"
    assert not outcome.recorded
    assert checkpoint(house.kernel) == before


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x80", encode("text")])
def test_an_order_that_cannot_be_read_is_refused(data: bytes) -> None:
    house = House()
    assert code_of(house.apply(Order(0, "replica_remove", data))) == "INVALID_PARAMS"


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        encode([]),
        encode({"job_id": "x"}),
        encode({"priority": 9}),
        encode({"wall_ms": 0}),
        encode({"wall_ms": -1}),
        encode({"reports_progress": 1}),
        encode({"requirements": {"model_id": "m"}}),
        encode({"prompt_tokens": -1}),
        encode({"last_good": ""}),
        bytes(17 * 1024),
    ],
)
def test_a_request_that_does_not_fit_is_refused_and_nothing_is_enqueued(request_: bytes) -> None:
    house = House(generic("g1"))
    outcome = house.apply(Submit(0, verified(), None, request_))
    assert code_of(outcome) == "INVALID_PARAMS"
    assert (house.kernel.jobs, len(house.kernel.queue)) == ({}, 0)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_restored_scheduler_goes_on_where_the_old_one_stood() -> None:
    """X-022"""
    house = House(replica("gpu", max_slots=1), generic("plain"), workflow_priority_cap=2)
    house.order("session_open", session_id="s", tokens=100, time_ms=None, cost=None)
    house.ask("running", requirements=needs(), session_id="s", prompt_tokens=5, wall_ms=77)
    house.push()
    house.ask("waiting", requirements=needs(), session_id="s", prompt_tokens=5)
    house.submit("action", job_kind="action", priority=9)
    data = checkpoint(house.kernel)
    again = restore(data, make_queue=Scheduler, history=house.kernel.history)
    assert checkpoint(again) == data
    for kernel in (house.kernel, again):
        assert kernel.next_due() == 77
    commands: list[Command] = [AdvanceTick(77), Dispatch(77, 5), AdvanceTick(100), Dispatch(100, 5)]
    made = [[record.body for command in commands for record in kernel.apply(command).records] for kernel in (again,)]
    assert made == [[record.body for command in commands for record in house.apply(command).records]]
    assert made[0], "the commands must decide something"


def test_a_new_policy_is_taken_over_with_everything_that_waits() -> None:
    """PIPE-107"""
    house = House(replica("empty", free_vram_mb=900), replica("half", free_vram_mb=300))
    house.ask("job-1", requirements=needs())
    house.kernel.reconfigure(scheduled(placement_order="pack"))
    assert house.push() == [("job-1", "half")]


def test_over_quota_at_its_turn_a_job_takes_no_slot() -> None:
    """X-018"""
    tight = quota(cpu_time_budget_ms=1)
    settings = scheduled()
    settings = config(tight, queue=settings.queue, scheduling=settings.scheduling)
    house = House(generic("g1", max_slots=1), settings=settings)
    house.submit("job-1", quota=tight, max_retries=5)
    (grant,) = house.apply(Dispatch(0, 1)).grants
    house.kernel.jobs["job-1"].usage.cpu_time_ms = 5
    house.finish(grant, ok=False, reason_code="LOST", kind="worker_lost")
    house.at(50)
    house.push()
    assert house.job("job-1").state == "CANCELED"
    assert house.scheduler.fleet.leases() == {}
    assert house.bodies("job-1")[-1]["to_state"] == "CANCELED"


def test_the_commonest_decisions_have_the_bytes_of_any_other() -> None:
    """X-181: what is written by hand is what the decision itself would write"""
    stands = Position(5, 17, 3, 9)
    admitted = Decision("admitted", "job-é", "ANY_WORKER", queue=stands)
    assert admitted_to_open_pool("job-é", stands) == admitted.encode()
    placed = Decision("placed", "job-é", "ANY_WORKER", replica_id="worker-1")
    assert placed_on_asker("job-é", "worker-1") == placed.encode()


@pytest.mark.parametrize("asked", [{}, {"wall_ms": 5}])
def test_jobs_that_ask_for_nothing_and_for_a_limit_stand_in_one_line(asked: dict[str, Any]) -> None:
    """X-043, X-084"""
    house = House()
    house.submit("first")
    house.apply(Submit(0, verified("second"), None, write_request(**asked)))
    house.submit("third")
    places = [house.decision_of(outcome).queue for outcome in house.outcomes]
    assert [(place.arrival, place.place, place.before) for place in places if place] == [
        (0, 1, 0),
        (1, 2, 1),
        (2, 3, 2),
    ]
    assert house.pull("worker-1") == ["first", "second", "third"]


def test_a_session_does_not_stay_where_it_failed() -> None:
    """OC-CORE-1013, X-085: the last *good* replica"""
    house = House(replica("large", free_vram_mb=900), replica("small", free_vram_mb=100))
    house.order("replica_ready", replica_id="large", ready=False)
    house.ask("one", requirements=needs(), session_id="s")
    (grant,) = house.apply(Dispatch(0, 1)).grants
    house.fail(grant, category="USER_CODE_ERROR")
    house.order("replica_ready", replica_id="large", ready=True)
    house.ask("two", requirements=needs(), session_id="s")
    assert house.push() == [("two", "large")]


@pytest.mark.parametrize(
    "asked", [{"engine": "llama"}, {"device_mask": "gpu0"}, {"vram_mb": 1}, {"sampler_profile_version": "s1"}]
)
def test_a_job_that_needs_a_certain_replica_goes_to_no_other(asked: dict[str, Any]) -> None:
    """X-086, X-093"""
    house = House()
    assert code_of(house.ask("job-1", **asked)) == "NO_FEASIBLE_POOL"
    assert house.ask("job-2", engine="generic").ok


def test_a_slot_that_comes_free_by_itself_is_part_of_the_recorded_history() -> None:
    """X-092, X-165: a replay must free it at the same command"""
    house = House(generic("g1", max_slots=1))
    house.submit("one")
    house.push()
    house.cancel("one")
    early = house.apply(Dispatch(LEASE.lease_ttl_ticks - 1, 1))
    assert (early.recorded, early.grants) == (False, [])
    due = house.apply(Dispatch(LEASE.lease_ttl_ticks, 1))
    assert (due.recorded, due.grants, house.scheduler.fleet.leases()) == (True, [], {})


class Witness(PriorityFifo):
    """A plain queue that remembers what it is told of attempts."""

    def __init__(self, settings: KernelConfig) -> None:
        super().__init__(settings.queue)
        self.told: list[tuple[str, str]] = []

    def leased(self, job_id: str, replica_id: str, tick: int) -> None:
        self.told.append(("leased", job_id))

    def left(self, job_id: str, *, succeeded: bool, held_until: int | None) -> None:
        self.told.append(("left", job_id))


def test_a_queue_hears_of_every_attempt_and_of_no_lease_that_was_never_dispatched() -> None:
    """X-001: the leases inside a cancel batch belong to no attempt"""
    witness = Witness(config())
    scene = Scene(kernel=Kernel(config(), make_queue=lambda _: witness, history=MemoryHistory()))
    scene.finish(scene.start("ran"))
    scene.submit("waited")
    scene.cancel("waited")
    scene.fail(scene.start("failed"))
    scene.cancel("failed")
    assert witness.told == [("leased", "ran"), ("left", "ran"), ("leased", "failed"), ("left", "failed")]
