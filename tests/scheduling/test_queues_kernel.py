"""Class queues under the kernel: evicted jobs end, retries wait for room, a restore goes on."""

from __future__ import annotations

import pytest

from detent.kernel import Kernel, MemoryHistory, QueuePolicy, checkpoint, restore
from detent.scheduling import Scheduler
from detent.scheduling.policy import SchedulingPolicy
from tests.kernel.builders import Scene, config, waiting_retries


def scene_with(policy: QueuePolicy) -> Scene:
    return Scene(kernel=Kernel(config(queue=policy), make_queue=Scheduler, history=MemoryHistory()))


@pytest.mark.parametrize(
    ("policy", "newcomer", "evicted", "reason"),
    [("drop-lru", 5, "old", "DROPPED_LRU"), ("shed-low-priority", 6, "new", "SHED_LOW_PRIORITY")],
)
def test_an_evicted_job_ends_canceled_for_its_reason(policy: str, newcomer: int, evicted: str, reason: str) -> None:
    """CORE-X018, X-082"""
    scene = scene_with(QueuePolicy(9, 2, policy))
    scene.submit("old", priority=5)
    scene.submit("new", priority=5)
    assert scene.submit("newcomer", priority=newcomer).ok
    state = scene.job(evicted)
    assert (state.state, state.reason_code) == ("CANCELED", reason)
    assert scene.edges(evicted) == ["QUEUED->RUNNING", "RUNNING->CANCELED"]
    assert not any(body["dispatch"] for body in scene.bodies(evicted))
    assert len(scene.kernel.queue) == 2


def test_a_refused_submission_makes_no_job() -> None:
    """OC-CORE-1002b"""
    scene = scene_with(QueuePolicy(1, 1))
    scene.submit("one")
    refusal = scene.submit("two").refusal
    assert refusal is not None
    assert refusal.code == "QUEUE_FULL"
    assert list(scene.kernel.jobs) == ["one"]


@pytest.mark.parametrize("policy", ["reject", "drop-lru", "shed-low-priority"])
def test_a_retry_gets_the_first_free_place_and_keeps_it(policy: str) -> None:
    """X-042, X-043: the bound holds, and neither policy lets a newcomer throw a retried job out again."""
    scene = scene_with(QueuePolicy(1, 1, policy))
    first = scene.start("retried", max_retries=2)
    scene.submit("waiting")
    scene.fail(first)
    scene.at(50)
    assert (scene.job("retried").state, waiting_retries(scene.kernel)) == ("RETRYING", 1)
    (grant,) = scene.claim()
    assert grant.job_id == "waiting"
    assert scene.job("retried").state == "QUEUED"
    assert not scene.submit("newcomer", priority=5).ok
    assert not scene.submit("high", priority=9).ok
    assert (len(scene.kernel.queue), scene.job("retried").state) == (1, "QUEUED")
    assert [grant.job_id for grant in scene.claim()] == ["retried"]


def test_workflow_and_ordered_work_is_held_back_and_never_dropped() -> None:
    """X-031"""
    scene = scene_with(QueuePolicy(1, 1, "drop-lru"))
    scene.submit("step", job_kind="action")
    assert not scene.submit("task").ok
    (grant,) = scene.claim()
    assert grant.job_id == "step"
    scene.submit("task")
    assert not scene.submit("item", job_kind="seq").ok
    assert scene.submit("other-task").ok
    assert scene.job("task").reason_code == "DROPPED_LRU"


def test_a_restored_kernel_goes_on_with_the_same_queue() -> None:
    """X-043: cut in the middle of a crowd, both kernels write the same checkpoint afterwards."""
    scene = scene_with(QueuePolicy(2, 3, "drop-lru"))
    for number, priority in enumerate((5, 5, 9, 5, 1, 9)):
        scene.submit(f"job-{number}", priority=priority)
    scene.cancel("job-3")
    copy = Scene(kernel=restore(checkpoint(scene.kernel), make_queue=Scheduler, history=scene.kernel.history))
    for one in (scene, copy):
        one.submit("later", priority=5)
        assert one.claim(1)
    assert checkpoint(copy.kernel) == checkpoint(scene.kernel)


@pytest.mark.parametrize("policy", ["reject", "drop-lru", "shed-low-priority"])
def test_a_tenant_at_its_bound_is_refused_and_displaces_no_one(policy: str) -> None:
    """The bound counts jobs that wait: what runs has left the queue, what is tried again counts and is never refused."""
    settings = SchedulingPolicy.from_settings({"capacity": 9, "admission_policy": policy, "capacity_per_tenant": 2})
    bound = config(queue=settings.queue_policy(), scheduling=settings.to_map())
    scene = Scene(kernel=Kernel(bound, make_queue=Scheduler, history=MemoryHistory()))
    for job_id in ("one", "two"):
        assert scene.submit(job_id, tenant_id="flood", max_retries=2).ok
    refusal = scene.submit("three", tenant_id="flood", priority=9).refusal
    assert refusal is not None
    assert (refusal.code, refusal.details["waiting"]) == ("LIMIT_TENANT", 2)
    assert scene.submit("other", tenant_id="calm").ok
    assert scene.kernel.queued == {"flood": 2, "calm": 1}
    (grant,) = scene.claim()
    assert scene.submit("three", tenant_id="flood").ok, "one has left the queue"
    scene.fail(grant)
    scene.at(50_000)
    assert scene.kernel.queued == {"flood": 3, "calm": 1}
    assert not scene.submit("four", tenant_id="flood").ok
    copy = restore(checkpoint(scene.kernel), make_queue=Scheduler, history=scene.kernel.history)
    assert copy.queued == scene.kernel.queued
    while scene.claim():
        pass
    assert scene.kernel.queued == {}
    scene.kernel.check()
