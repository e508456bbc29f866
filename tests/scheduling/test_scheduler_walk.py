"""The scheduler under random work: no slot is given twice, nothing is lost, and a restore at any point changes nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode, sha256
from detent.kernel import (
    AdvanceTick,
    Cancel,
    Claim,
    Command,
    Dispatch,
    Finish,
    Grant,
    Heartbeat,
    Kernel,
    MemoryHistory,
    Order,
    Outcome,
    Submit,
    checkpoint,
    plain_queue,
    restore,
)
from detent.scheduling import ADMISSION_POLICIES, Decision, Scheduler
from detent.scheduling.orders import write_request
from tests.kernel.builders import TENANT, Scene, verified
from tests.kernel.walk import walked
from tests.scheduling.fleets import generic, needs, replica
from tests.scheduling.test_scheduler import scheduled

REPLICAS = {
    "gpu-1": replica("gpu-1", max_slots=1, free_vram_mb=800),
    "gpu-2": replica("gpu-2", max_slots=2, free_vram_mb=500),
    "gpu-3": replica("gpu-3", pool_id="pool-b", replica_set_id="set-2", max_slots=1, device_mask="gpu1"),
    "plain": generic("plain", max_slots=2),
}
REQUESTS: list[dict[str, Any] | None] = [
    None,
    {},
    {"requirements": needs()},
    {"requirements": needs(), "session_id": "s", "prompt_tokens": 7},
    {"requirements": needs(), "device_mask": "gpu1"},
    {"wall_ms": 25},
    {"reports_progress": True, "idle_ms": 15},
    {"requirements": needs(), "vram_mb": 600},
]


class Walk:
    """A kernel with the scheduler and a source of likely commands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        policy = self.random.choice(ADMISSION_POLICIES)
        self.settings = scheduled(capacity=3, capacity_total=6, admission_policy=policy)
        self.kernel = Kernel(self.settings, make_queue=Scheduler, history=MemoryHistory())
        self.tick = 0
        self.jobs = 0
        self.grants: list[Grant] = []
        self.commands: list[Command] = []
        self.outcomes: list[Outcome] = []

    def step(self) -> Outcome:
        command = self._choose()
        outcome = self.kernel.apply(command)
        self.kernel.check()
        self.grants += outcome.grants
        self.commands.append(command)
        self.outcomes.append(outcome)
        return outcome

    def _choose(self) -> Command:
        draw = self.random
        self.tick += draw.choice((0, 0, 1, 2, 5, 12))
        kind = draw.randrange(100)
        if kind < 38:
            return self._submit()
        if kind < 50:
            return Dispatch(self.tick, draw.randint(1, 3))
        if kind < 60:
            return Claim(self.tick, draw.choice(list(REPLICAS)), draw.randint(1, 2))
        if kind < 82 and self.grants:
            return self._about(draw.choice(self.grants[-12:]))
        if kind < 90:
            return AdvanceTick(self.tick)
        return self._order()

    def _submit(self) -> Submit:
        draw = self.random
        self.jobs += 1
        job_kind = draw.choice(("task", "inference", "action", "seq"))
        pin = draw.choice((None, None, None, "pool-a", "pool-b", "nowhere"))
        manifest = verified(f"job-{self.jobs}", priority=draw.randint(1, 10), job_kind=job_kind, pool_pin=pin)
        asked = draw.choice(REQUESTS)
        return Submit(self.tick, manifest, None, None if asked is None else write_request(**asked))

    def _about(self, grant: Grant) -> Command:
        draw, tick = self.random, self.tick
        chosen = draw.randrange(5)
        if chosen == 0:
            return Cancel(tick, TENANT, grant.job_id)
        if chosen == 1:
            return Heartbeat(tick, grant.job_id, grant.lease_id, progress=draw.random() < 0.5)
        if chosen == 2:
            return Order(tick, "job_stopped", encode({"job_id": grant.job_id}))
        ok = chosen == 3
        reason, category = ("COMPLETED", None) if ok else ("TASK_FAILED", "INTERNAL_ERROR")
        return Finish(tick, grant.job_id, grant.lease_id, ok=ok, reason_code=reason, category=category)

    def _order(self) -> Order:
        draw = self.random
        name = draw.choice(list(REPLICAS))
        fields: dict[str, dict[str, object]] = {
            "replica_register": {"replica": REPLICAS[name].to_map()},
            "replica_ready": {"replica_id": name, "ready": draw.random() < 0.6},
            "replica_remove": {"replica_id": name},
            "session_open": {"session_id": "s", "tokens": 40, "time_ms": None, "cost": None},
        }
        chosen = draw.choice(("replica_register", "replica_register", *fields))
        return Order(self.tick, chosen, encode(fields[chosen]))


def look(walk: Walk) -> None:
    """What must hold after every command."""
    scheduler = walk.kernel.queue
    assert isinstance(scheduler, Scheduler)
    leases = scheduler.fleet.leases()
    for status in scheduler.fleet:
        held = [job for job, where in leases.items() if where == status.replica_id]
        assert len(held) <= status.max_slots, "a slot was given twice"
    running = {job.job_id for job in walk.kernel.jobs.values() if job.state == "RUNNING"}
    held_on = scheduler.fleet.lapses().keys()
    assert leases.keys() - held_on <= running
    queued = {job.job_id for job in walk.kernel.jobs.values() if job.state == "QUEUED"}
    assert {job_id for job_id in queued if job_id in scheduler.queues} == queued
    assert set(scheduler.known) <= set(walk.kernel.jobs), "something is kept of a job that has ended"
    for depths in (queues.depths() for queues in scheduler.queues.pools().values()):
        assert max(depths.values()) <= 3
        assert sum(depths.values()) <= 6


@given(st.integers(0, 2**32), st.integers(0, 59))
def test_a_restore_at_any_command_goes_on_to_the_same_bytes(seed: int, cut: int) -> None:
    """X-022, CORE-X017, OC-CORE-1001b, OC-CORE-1005"""
    walk = Walk(seed)
    for _ in range(cut):
        walk.step()
        look(walk)
    data = checkpoint(walk.kernel)
    again = restore(data, make_queue=Scheduler, history=walk.kernel.history)
    assert checkpoint(again) == data
    for _ in range(60 - cut):
        outcome = walk.step()
        look(walk)
        repeated = again.apply(walk.commands[-1])
        assert [record.body for record in repeated.records] == [record.body for record in outcome.records]
        assert (repeated.decisions, repeated.refusal) == (outcome.decisions, outcome.refusal)
    assert checkpoint(again) == checkpoint(walk.kernel)


@pytest.mark.parametrize("seed", range(6))
def test_only_recorded_commands_matter_and_every_one_of_them_decides_the_same_again(seed: int) -> None:
    """X-165, X-181: two schedulers fed the same recorded inputs produce the same bytes"""
    walk = Walk(seed)
    for _ in range(400):
        walk.step()
    again = Kernel(walk.settings, make_queue=Scheduler, history=MemoryHistory())
    decisions: list[bytes] = []
    for command, outcome in zip(walk.commands, walk.outcomes, strict=True):
        if outcome.recorded:
            decisions += again.apply(command).decisions
    assert decisions == [decision for outcome in walk.outcomes for decision in outcome.decisions]
    assert checkpoint(again) == checkpoint(walk.kernel)


@pytest.mark.parametrize("seed", range(6))
def test_every_record_that_was_decided_names_a_decision_about_its_own_job(seed: int) -> None:
    """X-181"""
    walk = Walk(seed)
    for _ in range(700):
        walk.step()
    stored = {sha256(data): Decision.decode(data) for outcome in walk.outcomes for data in outcome.decisions}
    kinds: dict[str, int] = {}
    for outcome in walk.outcomes:
        for record in outcome.records:
            body: Any = decode(record.body)
            evidence: Any = decode(record.evidence or b"\xa0")
            named = body.get("decision_digest") or evidence.get("detail_digest")
            if record.kind == "submitted" or evidence.get("kind") == "dispatch":
                assert stored[named].job_id == record.job_id
                kinds[stored[named].kind] = kinds.get(stored[named].kind, 0) + 1
    assert kinds["admitted"] > 20
    assert kinds["placed"] > 10


@pytest.mark.parametrize("seed", range(12))
def test_without_a_fleet_the_scheduler_decides_what_the_plain_queue_decides(seed: int) -> None:
    """PIPE-028, OC-CORE-1004a, OC-CORE-1004b"""
    commands = walked(seed, 250).commands
    settings = walked(seed, 0).kernel.config
    plain = Scene(kernel=Kernel(settings, make_queue=plain_queue, history=MemoryHistory()))
    full = Scene(kernel=Kernel(settings, make_queue=Scheduler, history=MemoryHistory()))
    for command in commands:
        ours, theirs = full.apply(command), plain.apply(command)
        assert ours.status == theirs.status
        assert [grant.job_id for grant in ours.grants] == [grant.job_id for grant in theirs.grants]
        assert _moves(ours) == _moves(theirs)


def _moves(outcome: Outcome) -> list[tuple[object, ...]]:
    bodies: list[Any] = [decode(record.body) for record in outcome.records]
    return [(body["kind"], body.get("job_id"), body.get("to_state"), body.get("reason_code")) for body in bodies]
