"""Submitting a job: what is created, what is the same again, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from detent.errors import Refused
from detent.kernel import Enqueued, Kernel, KernelConfig, PriorityFifo, StartRun, Submit, chain_genesis
from tests.kernel.builders import (
    TENANT,
    Scene,
    body_of,
    code_of,
    config,
    edges_of,
    manifest,
    queue_of,
    quota,
    scene_in,
    verified,
)


def test_a_submitted_job_is_queued_at_sequence_zero() -> None:
    """PIPE-047, PIPE-048, PIPE-075"""
    scene = Scene()
    scene.at(7)
    outcome = scene.submit()
    assert outcome.ok
    assert outcome.job == scene.job()
    job = scene.live()
    assert (job.state, job.transition_seq, job.attempt_id, job.submitted_tick) == ("QUEUED", 0, 0, 7)
    assert len(scene.kernel.queue) == 1
    assert outcome.events == []  # submitting is the chain's genesis, not a transition


def test_the_record_of_a_submission_binds_the_signed_manifest() -> None:
    """PIPE-040, PIPE-057, X-050, X-167"""
    scene = Scene()
    record = scene.submit().record
    accepted = verified()
    body = body_of(record)
    assert body == {
        "kind": "submitted",
        "tenant_id": TENANT,
        "job_id": "job-1",
        "run_id": None,
        "job_kind": "task",
        "job_manifest_hash": accepted.hash,
        "quota_policy_hash": manifest().quota_policy_hash,
        "chain_hash": chain_genesis(TENANT, "job-1", accepted.hash),
        "decision_digest": None,
        "partition_id": 0,
        "tick": 0,
        "signer_key_id": bytes(32),
    }
    assert record is not None
    assert record.evidence == accepted.envelope()


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "RETRYING", "SUCCEEDED", "FAILED", "CANCELED"])
def test_the_same_manifest_again_returns_the_job_it_made(state: str) -> None:
    """PIPE-066, PIPE-076"""
    scene = scene_in(state)
    outcome = scene.submit()
    assert (outcome.status, outcome.refusal, outcome.records) == ("DEDUPLICATED", None, [])
    assert outcome.job == scene.job()
    assert not outcome.recorded


@pytest.mark.parametrize("state", ["QUEUED", "SUCCEEDED"])
def test_another_manifest_under_the_same_id_is_a_conflict(state: str) -> None:
    """PIPE-076"""
    scene = scene_in(state)
    before = scene.job()
    outcome = scene.submit(priority=6)
    assert (outcome.status, code_of(outcome), outcome.records) == ("CONFLICT", "CONFLICT", [])
    assert scene.job() == before


def test_one_job_id_cannot_belong_to_two_tenants() -> None:
    """X-017"""
    scene = Scene()
    scene.submit()
    assert code_of(scene.submit(tenant_id="tenant-b")) == "CONFLICT"


def test_a_manifest_that_was_not_verified_makes_no_job() -> None:
    """PIPE-029"""
    scene = Scene()
    unverified: Any = manifest()
    outcome = scene.apply(Submit(0, unverified))
    assert code_of(outcome) == "MANIFEST_SIGNATURE_INVALID"
    assert (outcome.records, scene.kernel.jobs, len(scene.kernel.queue)) == ([], {}, 0)


@pytest.mark.parametrize(
    "changes",
    [{"lease_policy_id": "other"}, {"backoff_schedule_id": "other"}, {"quota_policy_hash": bytes(32)}],
)
def test_a_policy_that_is_not_configured_makes_no_job(changes: dict[str, Any]) -> None:
    """PIPE-030, PIPE-042"""
    scene = Scene()
    outcome = scene.submit(**changes)
    assert code_of(outcome) == "MANIFEST_SCHEMA_INVALID"
    assert (outcome.records, scene.kernel.jobs) == ([], {})


def test_a_repeat_is_recognised_after_its_policies_are_gone() -> None:
    """PIPE-076"""
    budget = quota(cpu_time_budget_ms=9)
    scene = Scene(config(budget))
    scene.finish(scene.start(quota=budget))
    later = Kernel(config(), history=scene.history)
    assert later.apply(Submit(9, verified(quota=budget))).status == "DEDUPLICATED"


def test_a_job_of_another_partition_is_refused() -> None:
    """PIPE-061, PIPE-062"""
    settings = KernelConfig(partitions=7, partition_id=2)
    scene = Scene(settings)
    assert scene.submit("job-1").ok  # SHA-256 mod 7 is 2
    assert code_of(scene.submit("job-2")) == "NOT_PARTITION_OWNER"  # and 6
    assert sorted(scene.kernel.jobs) == ["job-1"]


def test_a_full_queue_refuses_with_its_numbers() -> None:
    """PIPE-033"""
    scene = Scene(config(queue=queue_of(1)))
    scene.submit("job-1")
    outcome = scene.submit("job-2")
    assert code_of(outcome) == "QUEUE_FULL"
    assert outcome.refusal is not None
    assert outcome.refusal.details == {
        "waiting": 1,
        "waiting_in_class": 1,
        "capacity_per_class": 1,
        "capacity_total": 10,
    }
    assert scene.submit("job-3", priority=6).ok


def test_a_job_joins_only_an_open_run_of_its_own_tenant() -> None:
    """X-017, X-167"""
    scene = Scene()
    scene.apply(StartRun(0, "tenant-b", "run-1", "nightly", bytes(32), bytes(32), bytes(32), "op"))
    assert code_of(scene.submit("job-1", run_id="run-1")) == "UNKNOWN_RUN"
    assert code_of(scene.submit("job-1", run_id="run-2")) == "UNKNOWN_RUN"
    assert code_of(scene.submit("job-1", run_id="")) == "INVALID_PARAMS"
    assert scene.submit("job-1", run_id="run-1", tenant_id="tenant-b").ok


class DropOldest(PriorityFifo):
    """A queue that drops its oldest evictable job for a new one, as the scheduler's will."""

    def __init__(self, settings: KernelConfig) -> None:
        super().__init__(settings.queue)
        self.evictable: list[str] = []

    def enqueue(self, job_id: str, priority: int, *, evictable: bool = True) -> Enqueued | Refused:
        dropped: tuple[str, ...] = ()
        if not self.has_room(priority) and self.evictable:
            dropped = (self.evictable.pop(0),)
            self.cancel(dropped[0])
        placed = super().enqueue(job_id, priority, evictable=evictable)
        if evictable and isinstance(placed, Enqueued):
            self.evictable.append(job_id)
        return Enqueued(placed.arrival, dropped) if isinstance(placed, Enqueued) else placed


def test_a_job_evicted_by_the_queue_ends_in_the_cancel_batch() -> None:
    """PIPE-059, X-001: system cancellations use the same batch"""
    kernel = Kernel(config(queue=queue_of(2)), make_queue=DropOldest)
    scene = Scene(kernel=kernel)
    scene.submit("job-1", job_kind="seq")
    scene.submit("job-2")
    outcome = scene.submit("job-3")
    assert outcome.ok
    assert [record.kind for record in outcome.records] == ["submitted", "transition", "transition"]
    assert edges_of(outcome.records) == ["QUEUED->RUNNING", "RUNNING->CANCELED"]
    evicted = scene.job("job-2")
    assert (evicted.state, evicted.reason_code, evicted.ever_dispatched) == ("CANCELED", "DROPPED_LRU", False)
    assert scene.job("job-1").state == scene.job("job-3").state == "QUEUED"
