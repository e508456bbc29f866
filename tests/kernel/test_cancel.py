"""Cancelling: always by legal moves; a waiting job by one atomic batch under nine conditions (A.4)."""

from __future__ import annotations

import pytest

from detent.kernel import Claim, lease_key
from tests.kernel.builders import TENANT, Scene, body_of, code_of, config, edges_of, evidence_of, quota, scene_in

DETAIL = b"\x33" * 32
WAITING = {
    "QUEUED": ["QUEUED->RUNNING", "RUNNING->CANCELED"],
    "RETRYING": ["RETRYING->QUEUED", "QUEUED->RUNNING", "RUNNING->CANCELED"],
}


@pytest.mark.parametrize("state", WAITING)
def test_condition_1_the_batch_is_one_commit_with_consecutive_sequences(state: str) -> None:
    """PIPE-059, X-001"""
    scene = scene_in(state)
    seq = scene.job().transition_seq
    outcome = scene.cancel()
    bodies = [body_of(record) for record in outcome.records]
    assert edges_of(outcome.records) == WAITING[state]
    assert [body["transition_seq"] for body in bodies] == list(range(seq, seq + len(bodies)))
    assert {body["batch_id"] for body in bodies} == {bodies[0]["idempotency_key"]}
    assert [(body["batch_index"], body["batch_len"]) for body in bodies] == [
        (index, len(bodies)) for index in range(len(bodies))
    ]
    assert len({body["tick"] for body in bodies}) == 1


@pytest.mark.parametrize("state", WAITING)
def test_condition_2_nothing_of_the_batch_is_dispatched(state: str) -> None:
    """PIPE-059, X-001, X-067"""
    scene = scene_in(state)
    outcome = scene.cancel()
    assert [body_of(record)["dispatch"] for record in outcome.records] == [False] * len(outcome.records)
    assert [event.dispatch for event in outcome.events] == [False] * len(outcome.events)
    assert outcome.grants == []
    assert scene.claim() == []


@pytest.mark.parametrize("state", WAITING)
def test_condition_3_the_scheduler_holds_the_lease_for_no_time(state: str) -> None:
    """PIPE-058, PIPE-059, X-001"""
    scene = scene_in(state)
    outcome = scene.cancel()
    granting, closing = (body_of(record) for record in outcome.records[-2:])
    lease_id = lease_key(TENANT, "job-1", granting["attempt_id"], granting["transition_seq"])
    assert granting["lease_id"] == closing["lease_id"] == lease_id == granting["idempotency_key"]
    for record in outcome.records:
        evidence = evidence_of(record)
        assert (evidence.kind, evidence.replica_id, evidence.lease_id) == ("cancel", "scheduler:0", lease_id)
    assert scene.kernel.next_due() is None


def test_condition_4_the_quota_is_traced_and_cannot_deny_the_batch() -> None:
    """PIPE-102, X-001"""
    nothing = quota(cpu_time_budget_ms=0)
    scene = Scene(config(nothing))
    scene.submit(quota=nothing)
    scene.live().usage.cpu_time_ms = 1
    outcome = scene.cancel()
    assert outcome.ok
    assert [body_of(record)["quota_verdict"] for record in outcome.records] == ["QUOTA_CPU_TIME"] * 2
    assert [event.status for event in outcome.events] == ["COMMITTED"] * 2


@pytest.mark.parametrize("state", WAITING)
def test_condition_5_the_batch_ends_only_in_canceled(state: str) -> None:
    """PIPE-059, X-001"""
    scene = scene_in(state)
    outcome = scene.cancel(reason_code="WORKFLOW_CANCELLED")
    assert outcome.job == scene.job()
    assert (scene.job().state, scene.job().reason_code) == ("CANCELED", "WORKFLOW_CANCELLED")
    assert {body_of(record)["reason_code"] for record in outcome.records} == {"WORKFLOW_CANCELLED"}


def test_condition_6_a_job_canceled_in_the_queue_was_never_started() -> None:
    """PIPE-047, X-001: attempts and start times ignore the batch"""
    scene = scene_in("QUEUED")
    scene.cancel()
    assert (scene.job().ever_dispatched, scene.job().attempt_id) == (False, 0)
    scene = scene_in("RETRYING")
    scene.cancel()
    assert (scene.job().ever_dispatched, scene.job().attempt_id) == (True, 1)  # it moved at RETRYING->QUEUED


def test_condition_7_a_retrying_job_passes_through_the_queue_without_entering_it() -> None:
    """PIPE-059, X-001"""
    scene = scene_in("RETRYING")
    scene.cancel()
    assert [body["attempt_id"] for body in scene.bodies()[-3:]] == [0, 1, 1]
    assert len(scene.kernel.queue) == 0


def test_condition_8_a_cancel_that_lost_the_race_with_a_claim_is_a_conflict() -> None:
    """X-001"""
    scene = scene_in("QUEUED")
    scene.claim()
    lost = scene.cancel(expected_transition_seq=0)
    assert (code_of(lost), lost.records, scene.job().state) == ("CONFLICT", [], "RUNNING")
    assert lost.refusal is not None
    assert lost.refusal.details["stored_transition_seq"] == 1
    assert scene.cancel(expected_transition_seq=1).ok
    assert scene.job().state == "CANCELED"


def test_condition_8_a_claim_that_lost_the_race_finds_nothing() -> None:
    """X-001"""
    scene = scene_in("QUEUED")
    assert scene.cancel(expected_transition_seq=0).ok
    outcome = scene.apply(Claim(0, "worker-1"))
    assert (outcome.grants, outcome.recorded) == ([], False)


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "RETRYING"])
def test_condition_9_a_repeated_cancel_returns_the_last_record(state: str) -> None:
    """PIPE-066, PIPE-077, X-001"""
    scene = scene_in(state)
    first = scene.cancel()
    again = scene.cancel(expected_transition_seq=0)
    assert first.record == first.records[-1] == again.record
    assert (again.status, again.records, again.recorded) == ("DEDUPLICATED", [], False)
    assert again.job == scene.job()


def test_a_running_job_is_canceled_at_once_and_its_late_result_discarded() -> None:
    """PIPE-077, X-157"""
    scene = Scene()
    grant = scene.start()
    outcome = scene.cancel(detail_digest=DETAIL)
    assert edges_of(outcome.records) == ["RUNNING->CANCELED"]
    evidence = evidence_of(outcome.record)
    assert (evidence.kind, evidence.lease_id, evidence.detail_digest) == ("cancel", grant.lease_id, DETAIL)
    late = scene.finish(grant)
    assert (code_of(late), late.records, scene.job().state) == ("LEASE_INVALID", [], "CANCELED")


def test_the_digest_of_the_cancel_request_is_in_the_evidence_of_the_batch() -> None:
    """PIPE-081, X-064"""
    outcome = scene_in("QUEUED").cancel(detail_digest=DETAIL)
    assert {evidence_of(record).detail_digest for record in outcome.records} == {DETAIL}


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_a_job_that_has_ended_otherwise_stays_as_it_is(state: str) -> None:
    """PIPE-051, PIPE-077"""
    scene = scene_in(state)
    before = scene.job()
    outcome = scene.cancel()
    assert (code_of(outcome), outcome.records) == ("CONTRACT_VIOLATION", [])
    assert scene.job() == before


def test_a_canceled_job_leaves_its_place_to_the_next() -> None:
    """PIPE-028, PIPE-077"""
    scene = Scene()
    for number in (1, 2, 3):
        scene.submit(f"job-{number}")
    scene.cancel("job-2")
    assert [grant.job_id for grant in scene.claim(3)] == ["job-1", "job-3"]


def test_another_tenants_job_cannot_be_canceled() -> None:
    """X-017"""
    scene = scene_in("QUEUED")
    assert code_of(scene.cancel(tenant_id="tenant-b")) == "UNKNOWN_JOB"
    assert code_of(scene.cancel("job-9")) == "UNKNOWN_JOB"
    assert scene.job().state == "QUEUED"


def test_a_canceled_job_is_gone_from_memory_and_from_the_clock() -> None:
    """X-168"""
    scene = scene_in("RETRYING")
    scene.cancel()
    assert (scene.kernel.jobs, scene.kernel.next_due()) == ({}, None)
    assert scene.at(10_000).records == []
