"""Records beside the lifecycle: runs, reuse, owners' epochs, trust, erasures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from detent.canon import sha256
from detent.kernel import (
    RECORD_FIELDS,
    AdvanceTick,
    BackoffSchedule,
    ChangeTrust,
    Claim,
    EndRun,
    Erase,
    KernelConfig,
    LeasePolicy,
    Outcome,
    RaiseEpoch,
    ReuseRun,
    ReuseStep,
    Run,
    StartRun,
    Submit,
    checkpoint,
    restore,
    transition_log_hash,
)
from detent.kernel.policy import UNLIMITED_QUOTA
from detent.kernel.records import DIGESTS_PER_ERASED_MAX, EXCEPTED_STEPS_MAX
from tests.kernel.builders import (
    OWNER_KEY_ID,
    TENANT,
    Scene,
    body_of,
    code_of,
    config,
    queue_of,
    quota,
    verified,
    waiting_retries,
)
from tests.kernel.walk import walked

START = StartRun(3, TENANT, "run-1", "nightly", b"\x01" * 32, b"\x02" * 32, b"\x03" * 32, "op-1")
COMMON = {"partition_id": 0, "tick": 3, "signer_key_id": bytes(32)}


def scene_with_run() -> Scene:
    scene = Scene()
    scene.tick = 3
    assert scene.apply(START).ok
    return scene


# -- runs ----------------------------------------------------------------------------------------------------------


def test_a_run_starts_with_the_digests_of_what_it_will_do() -> None:
    """X-167"""
    scene = scene_with_run()
    (record,) = scene.records
    assert (record.kind, record.run_id, record.job_id) == ("run_started", "run-1", None)
    assert body_of(record) == {
        "kind": "run_started",
        "tenant_id": TENANT,
        "run_id": "run-1",
        "name": "nightly",
        "contract_digest": b"\x01" * 32,
        "bindings_digest": b"\x02" * 32,
        "inputs_digest": b"\x03" * 32,
        "operation_id": "op-1",
        **COMMON,
    }


def test_the_same_run_again_is_the_same_answer_open_or_ended() -> None:
    """X-167, X-174"""
    scene = scene_with_run()
    for _ in range(2):
        again = scene.apply(replace(START, tick=9))
        assert (again.status, again.refusal, again.recorded) == ("DEDUPLICATED", None, False)
        scene.apply(EndRun(4, "run-1", "completed"))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "hourly"},
        {"contract_digest": bytes(32)},
        {"bindings_digest": bytes(32)},
        {"inputs_digest": bytes(32)},
        {"operation_id": "op-2"},
        {"tenant_id": "tenant-b"},
    ],
)
def test_another_run_under_the_same_id_is_a_conflict(change: dict[str, Any]) -> None:
    """X-145, X-167"""
    scene = scene_with_run()
    assert code_of(scene.apply(replace(START, **change))) == "CONFLICT"
    scene.apply(EndRun(4, "run-1", "completed"))
    assert code_of(scene.apply(replace(START, **change))) == "CONFLICT"


def test_the_end_of_a_run_binds_every_job_of_it_with_count_and_head() -> None:
    """X-167"""
    scene = scene_with_run()
    for job_id in ("job-b", "job-é", "job-a"):
        scene.submit(job_id, run_id="run-1")
    scene.submit("stranger")
    for grant in scene.claim(2):
        scene.finish(grant)
    scene.cancel("job-a")
    outcome = scene.apply(EndRun(9, "run-1", "failed"))
    heads = [(job_id, job.transition_seq, job.head) for job_id, job in sorted(scene.history.jobs.items())]
    assert [head[0] for head in heads] == ["job-a", "job-b", "job-é"]
    assert body_of(outcome.record) == {
        "kind": "run_ended",
        "tenant_id": TENANT,
        "run_id": "run-1",
        "status": "failed",
        "job_count": 3,
        "jobs_digest": transition_log_hash(3, heads),
        "steps_reused": 0,
        **COMMON,
        "tick": 9,
    }
    assert scene.kernel.runs == {}
    ended = Run.decode(scene.history.runs["run-1"])
    assert (ended.status, ended.ended_tick, ended.jobs, ended.live_jobs) == ("failed", 9, 3, 0)


def test_the_end_of_a_run_says_that_its_own_time_was_over() -> None:
    """X-116, X-167: in the record and in the run's row; without a reason both have the bytes they always had."""
    scene = scene_with_run()
    outcome = scene.apply(EndRun(9, "run-1", "failed", "RUN_TIMEOUT"))
    assert body_of(outcome.record)["reason_code"] == "RUN_TIMEOUT"
    ended = Run.decode(scene.history.runs["run-1"])
    assert (ended.status, ended.reason_code) == ("failed", "RUN_TIMEOUT")
    assert Run.decode(ended.encode()) == ended
    other = scene_with_run()
    assert "reason_code" not in body_of(other.apply(EndRun(9, "run-1", "failed")).record)
    assert len(Run.decode(other.history.runs["run-1"]).to_list()) == len(ended.to_list()) - 1


@pytest.mark.parametrize("reason", ["", "run timeout", 7, b"RUN_TIMEOUT"])
def test_a_reason_for_the_end_of_a_run_is_a_code(reason: Any) -> None:
    """X-116"""
    assert code_of(scene_with_run().apply(EndRun(4, "run-1", "failed", reason))) == "INVALID_PARAMS"


def test_a_run_with_a_job_alive_does_not_end() -> None:
    """X-167"""
    scene = scene_with_run()
    scene.submit(run_id="run-1")
    refused = scene.apply(EndRun(9, "run-1", "completed"))
    assert code_of(refused) == "RUN_NOT_DONE"
    assert refused.refusal is not None
    assert refused.refusal.details["live_jobs"] == 1
    (grant,) = scene.claim()
    scene.finish(grant)
    assert scene.apply(EndRun(9, "run-1", "completed")).ok


def test_ending_twice_is_the_same_answer_and_ending_otherwise_a_conflict() -> None:
    """X-167"""
    scene = scene_with_run()
    scene.apply(EndRun(4, "run-1", "completed"))
    assert scene.apply(EndRun(5, "run-1", "completed")).status == "DEDUPLICATED"
    assert code_of(scene.apply(EndRun(5, "run-1", "failed"))) == "CONFLICT"
    assert code_of(scene.apply(EndRun(5, "run-2", "failed"))) == "UNKNOWN_RUN"


@pytest.mark.parametrize("status", ["running", "CANCELED", "", None, ["completed"]])
def test_a_run_ends_in_the_words_of_the_workflow_contract(status: Any) -> None:
    """X-029"""
    assert code_of(scene_with_run().apply(EndRun(4, "run-1", status))) == "INVALID_PARAMS"


def test_a_closed_run_takes_no_more_jobs() -> None:
    """X-167"""
    scene = scene_with_run()
    scene.apply(EndRun(4, "run-1", "completed"))
    assert code_of(scene.submit(run_id="run-1")) == "UNKNOWN_RUN"


def test_the_shell_is_told_which_rows_to_write() -> None:
    """PIPE-041, X-168"""
    scene = scene_with_run()
    jobs, runs = scene.kernel.drain_touched()
    assert (jobs, [run.run_id for run in runs]) == ([], ["run-1"])
    scene.submit(run_id="run-1")
    (grant,) = scene.claim()
    jobs, runs = scene.kernel.drain_touched()
    assert [(job.job_id, before, job.transition_seq) for job, before in jobs] == [("job-1", -1, 1)]
    assert [(run.run_id, run.live_jobs) for run in runs] == [("run-1", 1)]
    scene.finish(grant)
    jobs, runs = scene.kernel.drain_touched()
    assert [(job.state, before) for job, before in jobs] == [("SUCCEEDED", 1)]
    assert [run.live_jobs for run in runs] == [0]
    assert scene.kernel.drain_touched() == ([], [])
    scene.apply(EndRun(9, "run-1", "completed"))
    assert [(run.run_id, run.status) for run in scene.kernel.drain_touched()[1]] == [("run-1", "completed")]


def test_reports_of_usage_are_rows_to_write_and_heartbeats_are_not() -> None:
    """PIPE-041"""
    scene = Scene()
    grant = scene.start()
    scene.kernel.drain_touched()
    scene.heartbeat(grant)
    assert scene.kernel.drain_touched() == ([], [])
    scene.usage(grant, cpu_time_ms=1)
    assert [(job.job_id, before) for job, before in scene.kernel.drain_touched()[0]] == [("job-1", 1)]


# -- reuse ---------------------------------------------------------------------------------------------------------


def test_a_reused_step_names_the_job_whose_result_it_took() -> None:
    """X-167"""
    scene = scene_with_run()
    scene.finish(scene.start("old"))
    outcome = scene.apply(ReuseStep(3, "run-1", "step-1", "old", b"\x05" * 32))
    assert body_of(outcome.record) == {
        "kind": "step_reused",
        "run_id": "run-1",
        "step_id": "step-1",
        "job_id": "old",
        "ingredients_digest": b"\x05" * 32,
        **COMMON,
    }
    ended = scene.apply(EndRun(3, "run-1", "completed"))
    assert (body_of(ended.record)["steps_reused"], body_of(ended.record)["job_count"]) == (1, 0)


def test_only_a_succeeded_job_of_the_same_tenant_can_be_reused() -> None:
    """X-149, X-167"""
    scene = scene_with_run()
    scene.fail(scene.start("failed"), category=None)
    scene.apply(Submit(3, verified("foreign", tenant_id="tenant-b")))
    (grant,) = scene.apply(Claim(3, "worker-1")).grants
    scene.finish(grant)
    scene.start("running")
    for job_id in ("failed", "foreign", "running", "nobody"):
        assert code_of(scene.apply(ReuseStep(3, "run-1", "step-1", job_id, bytes(32)))) == "UNKNOWN_JOB"
    assert code_of(scene.apply(ReuseStep(3, "run-2", "step-1", "failed", bytes(32)))) == "UNKNOWN_RUN"


def test_an_element_of_an_array_can_be_reused_although_others_failed() -> None:
    """X-149, X-167: the record names the element; what came of it, the array's report says."""
    scene = scene_with_run()
    scene.fail(scene.start("array"), category=None)
    scene.start("running")
    outcome = scene.apply(ReuseStep(3, "run-1", "step-1[4]", "array", b"\x05" * 32, 2))
    assert body_of(outcome.record)["element"] == 2
    for job_id in ("running", "nobody"):
        assert code_of(scene.apply(ReuseStep(3, "run-1", "step-2", job_id, bytes(32), 0))) == "UNKNOWN_JOB"
    for element in (-1, True, "2", 1 << 64):
        wrong = ReuseStep(3, "run-1", "step-2", "array", bytes(32), element)  # type: ignore[arg-type]
        assert code_of(scene.apply(wrong)) == "INVALID_PARAMS"


def scene_with_ended_run(status: str = "completed", **changes: Any) -> Scene:
    """An earlier run of two jobs, and an open one of the same contract."""
    scene = Scene()
    scene.tick = 3
    scene.apply(replace(START, run_id="run-0", **changes))
    for job_id in ("a", "b"):
        scene.apply(Submit(3, verified(job_id, tenant_id=changes.get("tenant_id", TENANT)), "run-0"))
        scene.finish(scene.apply(Claim(3, "worker-1")).grants[0])
    scene.apply(EndRun(3, "run-0", status))
    assert scene.apply(START).ok
    return scene


def test_a_reused_run_names_the_run_and_binds_the_histories_of_its_jobs() -> None:
    """X-167"""
    scene = scene_with_ended_run()
    outcome = scene.apply(ReuseRun(3, "run-1", "run-0", ("step-b",), b"\x05" * 32))
    (end,) = [record for record in scene.records if record.kind == "run_ended"]
    assert body_of(outcome.record) == {
        "kind": "run_reused",
        "run_id": "run-1",
        "reused_run_id": "run-0",
        "jobs_digest": body_of(end)["jobs_digest"],
        "steps_reused": 1,
        "except_steps": ["step-b"],
        "ingredients_digest": b"\x05" * 32,
        **COMMON,
    }
    scene.apply(ReuseStep(3, "run-1", "step-b", "b", b"\x06" * 32))
    ended = scene.apply(EndRun(3, "run-1", "completed"))
    assert (body_of(ended.record)["steps_reused"], body_of(ended.record)["job_count"]) == (2, 0)


@pytest.mark.parametrize(
    "scene",
    [
        lambda: scene_with_ended_run("failed"),
        lambda: scene_with_ended_run("cancelled"),
        lambda: scene_with_ended_run(contract_digest=b"\x09" * 32),
        lambda: scene_with_ended_run(tenant_id="tenant-b"),
        scene_with_run,
    ],
    ids=["failed", "cancelled", "another contract", "another tenant", "no such run"],
)
def test_only_a_completed_run_of_the_same_tenant_and_contract_can_be_reused(scene: Callable[[], Scene]) -> None:
    """X-149, X-167"""
    assert code_of(scene().apply(ReuseRun(3, "run-1", "run-0", (), bytes(32)))) == "UNKNOWN_RUN"


def test_an_open_run_is_not_reused_and_an_ended_one_reuses_nothing() -> None:
    scene = scene_with_ended_run()
    assert code_of(scene.apply(ReuseRun(3, "run-1", "run-1", (), bytes(32)))) == "UNKNOWN_RUN"
    scene.apply(EndRun(3, "run-1", "completed"))
    assert code_of(scene.apply(ReuseRun(3, "run-1", "run-0", (), bytes(32)))) == "UNKNOWN_RUN"


@pytest.mark.parametrize(
    "change",
    [
        {"except_steps": ("b", "a")},
        {"except_steps": ("a", "a")},
        {"except_steps": ("",)},
        {"except_steps": tuple(f"{number:03}" for number in range(EXCEPTED_STEPS_MAX + 1))},
        {"except_steps": "ab"},
        {"reused_run_id": ""},
        {"ingredients_digest": b"short"},
    ],
)
def test_a_reuse_of_a_run_says_in_order_what_it_excepts(change: dict[str, Any]) -> None:
    scene = scene_with_ended_run()
    outcome = scene.apply(replace(ReuseRun(3, "run-1", "run-0", (), bytes(32)), **change))
    assert (code_of(outcome), outcome.recorded) == ("INVALID_PARAMS", False)


def test_a_reuse_that_excepts_every_step_takes_nothing_and_is_refused() -> None:
    scene = scene_with_ended_run()
    assert code_of(scene.apply(ReuseRun(3, "run-1", "run-0", ("a", "b"), bytes(32)))) == "UNKNOWN_RUN"


def test_an_open_run_that_reused_another_survives_a_checkpoint() -> None:
    scene = scene_with_ended_run()
    command = ReuseRun(3, "run-1", "run-0", (), bytes(32))
    scene.apply(command)
    kernel = restore(checkpoint(scene.kernel), history=scene.history)
    assert checkpoint(kernel) == checkpoint(scene.kernel)
    again = kernel.apply(command)
    assert (again.status, again.records) == ("DEDUPLICATED", [])
    assert kernel.runs["run-1"].steps_reused == 2


# -- owners --------------------------------------------------------------------------------------------------------


def raise_epoch(scene: Scene, epoch: int, settings: KernelConfig | None = None, /, **changes: Any) -> Outcome:
    data = (settings or scene.kernel.config).encode()
    fields = {"tick": 3, "epoch": epoch, "signer_key_id": OWNER_KEY_ID, "config": data, **changes}
    return scene.apply(RaiseEpoch(**fields))


def test_an_epoch_names_its_configuration_and_key_and_signs_what_follows() -> None:
    """PIPE-060, PIPE-084, X-167"""
    scene = Scene()
    outcome = raise_epoch(scene, 1)
    settings = scene.kernel.config
    assert body_of(outcome.record) == {
        "kind": "owner_epoch",
        "epoch": 1,
        "config_digest": sha256(settings.encode()),
        "queue_policy_hash": settings.queue_policy_hash,
        "replay_token": settings.replay_token,
        "orchestrator_version": "UML_OS.Pipeline.Orchestrator_v1",
        "partition_id": 0,
        "tick": 3,
        "signer_key_id": OWNER_KEY_ID,
    }
    assert outcome.record is not None
    assert outcome.record.evidence == settings.encode()
    assert body_of(scene.submit().record)["signer_key_id"] == OWNER_KEY_ID


@pytest.mark.parametrize("epoch", [0, 4, 5])
def test_an_epoch_never_comes_back(epoch: int) -> None:
    """PIPE-060: a second owner is refused"""
    scene = Scene()
    raise_epoch(scene, 5)
    refused = raise_epoch(scene, epoch, signer_key_id=b"\x09" * 32)
    assert code_of(refused) == "NOT_PARTITION_OWNER"
    assert (scene.kernel.epoch, scene.kernel.signer_key_id) == (5, OWNER_KEY_ID)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": 2**64},
        {"epoch": True},
        {"epoch": "2"},
        {"signer_key_id": b"short"},
        {"config": b"junk"},
        {"config": None},
    ],
)
def test_an_epoch_of_wrong_parts_is_refused(change: dict[str, Any]) -> None:
    """PIPE-018, PIPE-060"""
    scene = Scene()
    assert code_of(raise_epoch(scene, 1, **change)) == "INVALID_PARAMS"
    assert scene.kernel.epoch == 0


@pytest.mark.parametrize("change", [{"partitions": 2}, {"tick_ms": 2}, {"epoch_base_ms": 1}])
def test_partitions_and_ticks_are_fixed_for_the_life_of_a_ledger(change: dict[str, Any]) -> None:
    """X-009, X-044"""
    scene = Scene()
    assert code_of(raise_epoch(scene, 1, config(**change))) == "INVALID_PARAMS"


def test_a_new_epoch_may_bring_another_configuration_and_keeps_all_state() -> None:
    """PIPE-119, X-044"""
    scene = Scene(config(queue=queue_of(1, 1)))
    grant = scene.start("job-1")
    scene.submit("job-2")
    scene.fail(grant)
    scene.apply(AdvanceTick(10))
    assert waiting_retries(scene.kernel) == 1
    wider = config(queue=queue_of(5), lease_policies=(LeasePolicy("default", 7, 7),))
    outcome = raise_epoch(scene, 1, wider, tick=11)
    assert [record.kind for record in outcome.records] == ["owner_epoch", "transition"]  # there is room at once
    assert [(grant.job_id, grant.lease_expiry) for grant in scene.apply(Claim(11, "worker-1", 2)).grants] == [
        ("job-2", 18),
        ("job-1", 18),
    ]


@pytest.mark.parametrize(
    "smaller",
    [
        # Each drops one policy the job uses, and one of them keeps its id under another kind of policy.
        KernelConfig(
            lease_policies=(LeasePolicy("other", 1, 1),),
            backoff_schedules=(BackoffSchedule("default", (1,)),),
            quota_policies=(UNLIMITED_QUOTA, quota(cpu_time_budget_ms=9)),
        ),
        KernelConfig(
            lease_policies=(LeasePolicy("default", 1, 1),),
            backoff_schedules=(BackoffSchedule("other", (1,)),),
            quota_policies=(UNLIMITED_QUOTA, quota(cpu_time_budget_ms=9)),
        ),
        config(),
    ],
)
def test_a_configuration_that_drops_a_policy_in_use_is_refused(smaller: KernelConfig) -> None:
    """PIPE-042"""
    budget = quota(cpu_time_budget_ms=9)
    scene = Scene(config(budget))
    scene.submit(quota=budget)
    assert code_of(raise_epoch(scene, 1, smaller)) == "INVALID_PARAMS"
    scene.cancel()
    assert raise_epoch(scene, 1, smaller).ok


# -- trust and erasure ---------------------------------------------------------------------------------------------


def test_trust_changes_follow_each_other_version_by_version() -> None:
    """X-167"""
    scene = Scene()
    outcome = scene.apply(ChangeTrust(3, 1, b"\x06" * 32, b"signed bytes"))
    assert body_of(outcome.record) == {"kind": "trust_changed", "version": 1, "config_digest": b"\x06" * 32, **COMMON}
    assert outcome.record is not None
    assert outcome.record.evidence == b"signed bytes"
    for version in (0, 1, 3):
        assert code_of(scene.apply(ChangeTrust(3, version, bytes(32), b""))) == "CONFLICT"
    assert scene.apply(ChangeTrust(3, 2, bytes(32), b"")).ok
    assert scene.kernel.trust_version == 2


@pytest.mark.parametrize("change", [{"version": True}, {"config_digest": b""}, {"signed_config": "text"}])
def test_a_trust_change_of_wrong_parts_is_refused(change: dict[str, Any]) -> None:
    """PIPE-018"""
    good = ChangeTrust(3, 1, bytes(32), b"")
    assert code_of(Scene().apply(replace(good, **change))) == "INVALID_PARAMS"


def test_an_erasure_names_what_is_gone_in_one_order() -> None:
    """X-167, X-171"""
    outcome = Scene().apply(Erase(3, (b"\x02" * 32, b"\x01" * 32), 0))
    assert body_of(outcome.record) == {
        "kind": "erased",
        "erasure_seq": 0,
        "digests": [b"\x01" * 32, b"\x02" * 32],
        "reason_code": "ERASED_BY_USER",
        **COMMON,
    }


@pytest.mark.parametrize(
    "erasure",
    [
        Erase(0, (), 0),
        Erase(0, (b"short",), 0),
        Erase(0, (bytes(32),), -1),
        Erase(0, (bytes(32),), True),
        Erase(0, (bytes(32),), 0, "lower case"),
        Erase(0, (bytes(32),) * (DIGESTS_PER_ERASED_MAX + 1), 0),
    ],
)
def test_an_erasure_of_nothing_or_too_much_is_refused(erasure: Erase) -> None:
    """PIPE-018"""
    assert code_of(Scene().apply(erasure)) == "INVALID_PARAMS"


def test_the_largest_erasure_fits_into_a_record() -> None:
    outcome = Scene().apply(Erase(0, (b"\xff" * 32,) * DIGESTS_PER_ERASED_MAX, 0))
    assert outcome.record is not None
    assert len(outcome.record.body) < 60 * 1024


def test_every_record_has_exactly_the_fields_of_its_kind() -> None:
    """PIPE-084, X-167"""
    records = [record for seed in range(6) for outcome in walked(seed, 200).outcomes for record in outcome.records]
    scene = scene_with_run()
    scene.finish(scene.start("old"))
    records += scene.apply(ReuseStep(3, "run-1", "step-1", "old", bytes(32))).records
    records += scene_with_ended_run().apply(ReuseRun(3, "run-1", "run-0", (), bytes(32))).records
    assert {record.kind for record in records} == set(RECORD_FIELDS)
    for record in records:
        assert set(body_of(record)) == RECORD_FIELDS[record.kind]
        assert record.hash == sha256(record.body)
