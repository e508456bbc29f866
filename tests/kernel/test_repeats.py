"""Asked again after an unknown outcome: usage, reuse and erasure are counted once and answered as the first time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.kernel import (
    EndRun,
    Erase,
    Finish,
    Outcome,
    ReportUsage,
    ReuseRun,
    ReuseStep,
    StartRun,
    checkpoint,
    encode_commands,
    restore,
)
from detent.kernel.policy import RULE_LE_ALL_RETRY
from tests.kernel.builders import TENANT, Scene, body_of, code_of, config, quota

CPU = quota(cpu_time_budget_ms=5)
CPU_RETRY = quota(cpu_time_budget_ms=5, evaluation_rule_id=RULE_LE_ALL_RETRY)
DIGEST = b"\x05" * 32


def repeated(scene: Scene, command: Any, first: Outcome) -> None:
    """The same again, also by a kernel restored since: the first answer, nothing recorded, no byte changed."""
    for kernel in (scene.kernel, restore(checkpoint(scene.kernel), history=scene.history)):
        before = checkpoint(kernel)
        again = kernel.apply(replace(command, tick=kernel.tick))
        assert (again.status, again.refusal, again.recorded) == ("DEDUPLICATED", None, False)
        assert again.record == first.record
        assert again.job is None or first.job is None or again.job.job_id == first.job.job_id
        assert checkpoint(kernel) == before


# -- usage -------------------------------------------------------------------------------------------------------------


def test_a_report_of_usage_counts_once_however_often_it_is_sent() -> None:
    """X-173, PIPE-097"""
    scene = Scene()
    grant = scene.start()
    one = ReportUsage(0, "job-1", grant.lease_id, 0, 8, 1, 2, 3, 4)
    repeated(scene, one, scene.apply(one))
    two = ReportUsage(0, "job-1", grant.lease_id, 1, cpu_time_ms=4)
    repeated(scene, two, scene.apply(two))
    repeated(scene, one, Outcome())
    assert scene.live().usage.to_list() == [8, 8, 1, 2, 3, 8]


@pytest.mark.parametrize("policy", [CPU, CPU_RETRY])
def test_a_report_that_ended_its_attempt_is_answered_by_the_record_that_did(policy: Any) -> None:
    """X-173, PIPE-104"""
    scene = Scene(config(CPU, CPU_RETRY))
    grant = scene.start(quota=policy)
    report = ReportUsage(0, "job-1", grant.lease_id, 0, cpu_time_ms=6)
    first = scene.apply(report)
    assert body_of(first.record)["reason_code"] == "QUOTA_CPU_TIME"
    repeated(scene, report, first)


@pytest.mark.parametrize("ending", [{"ok": True}, {"ok": False, "category": "INTERNAL_ERROR", "reason_code": "BAD"}])
def test_a_report_repeated_after_the_result_is_still_a_repeat(ending: dict[str, Any]) -> None:
    """X-173"""
    scene = Scene()
    grant = scene.start()
    report = ReportUsage(0, "job-1", grant.lease_id, 0, cpu_time_ms=6)
    first = scene.apply(report)
    scene.apply(Finish(0, "job-1", grant.lease_id, **ending))
    repeated(scene, report, first)


def test_another_report_under_a_number_that_is_taken_is_a_conflict() -> None:
    """X-035: the same key with other contents"""
    scene = Scene()
    grant = scene.start()
    scene.usage(grant, cpu_time_ms=1)
    outcome = scene.usage(grant, report_no=0, cpu_time_ms=2)
    assert (code_of(outcome), outcome.recorded) == ("CONFLICT", False)
    assert scene.live().usage.cpu_time_ms == 1


def test_a_report_that_leaves_one_out_is_refused_with_the_number_that_is_due() -> None:
    """What a lost report said would be missing for good."""
    scene = Scene()
    grant = scene.start()
    outcome = scene.usage(grant, report_no=1, cpu_time_ms=1)
    assert code_of(outcome) == "CONFLICT"
    assert outcome.refusal is not None
    assert outcome.refusal.details["expected_report_no"] == 0
    assert scene.live().usage.cpu_time_ms == 0


def test_each_lease_counts_its_own_reports() -> None:
    scene = Scene()
    first = scene.start()
    scene.usage(first, cpu_time_ms=1)
    scene.fail(first)
    scene.at(10)
    (second,) = scene.claim()
    assert scene.usage(second, report_no=0, cpu_time_ms=1).status == "COMMITTED"
    assert scene.live().usage.cpu_time_ms == 2
    assert code_of(scene.usage(first, report_no=0, cpu_time_ms=1)) == "LEASE_INVALID"
    scene.finish(second)
    assert code_of(scene.usage(first, report_no=0, cpu_time_ms=1)) == "LEASE_INVALID"
    assert code_of(scene.usage(second, report_no=1, cpu_time_ms=1)) == "LEASE_INVALID"


@pytest.mark.parametrize("number", [-1, 2**64, True, None, "0"])
def test_a_report_without_a_number_is_refused(number: Any) -> None:
    """PIPE-018"""
    scene = Scene()
    grant = scene.start()
    outcome = scene.apply(ReportUsage(0, "job-1", grant.lease_id, number, cpu_time_ms=1))
    assert code_of(outcome) == "INVALID_PARAMS"


def test_a_report_that_could_not_be_recorded_is_refused() -> None:
    """PIPE-025: an integer below -2^63 has no recorded form"""
    scene = Scene()
    grant = scene.start()
    scene.usage(grant, bytes_allocated=2**64 - 1)
    assert code_of(scene.usage(grant, bytes_allocated=-(2**63) - 1)) == "INVALID_PARAMS"
    assert scene.usage(grant, bytes_allocated=-(2**63)).ok
    encode_commands([*scene.commands[:-2], scene.commands[-1]])
    checkpoint(scene.kernel)


# -- reuse -------------------------------------------------------------------------------------------------------------


def scene_with_result() -> Scene:
    scene = Scene()
    for job_id in ("old", "older"):
        scene.finish(scene.start(job_id))
    scene.apply(StartRun(0, TENANT, "run-1", "nightly", DIGEST, DIGEST, DIGEST, "op"))
    return scene


def test_a_step_is_reused_once_however_often_it_is_asked_for() -> None:
    """X-173, X-167"""
    scene = scene_with_result()
    commands = [ReuseStep(0, "run-1", f"step-{number}", "old", DIGEST) for number in range(3)]
    first = [scene.apply(command) for command in commands]
    for command, outcome in zip(commands, first, strict=True):
        repeated(scene, command, outcome)
    assert scene.kernel.runs["run-1"].steps_reused == 3
    ended = scene.apply(EndRun(0, "run-1", "completed"))
    assert body_of(ended.record)["steps_reused"] == 3
    repeated(scene, commands[1], first[1])
    assert code_of(scene.apply(ReuseStep(0, "run-1", "step-9", "old", DIGEST))) == "UNKNOWN_RUN"


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("change", [{"job_id": "older"}, {"ingredients_digest": bytes(32)}, {"element": 0}])
def test_a_step_takes_no_second_result(change: dict[str, Any], ended: bool) -> None:
    """X-035"""
    scene = scene_with_result()
    reuse = ReuseStep(0, "run-1", "step", "old", DIGEST)
    scene.apply(reuse)
    if ended:
        scene.apply(EndRun(0, "run-1", "completed"))
    outcome = scene.apply(replace(reuse, **change))
    assert (code_of(outcome), outcome.recorded) == ("CONFLICT", False)


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_is_reused_once_and_from_one_run(ended: bool) -> None:
    """X-035, X-173"""
    scene = Scene()
    for run_id in ("old", "older", "new"):
        scene.apply(StartRun(0, TENANT, run_id, "nightly", DIGEST, DIGEST, DIGEST, "op"))
        if run_id != "new":
            scene.finish(scene.start(f"job-{run_id}", run_id=run_id))
            scene.apply(EndRun(0, run_id, "completed"))
    reuse = ReuseRun(0, "new", "old", (), DIGEST)
    first = scene.apply(reuse)
    if ended:
        scene.apply(EndRun(0, "new", "completed"))
    repeated(scene, reuse, first)
    for change in ({"reused_run_id": "older"}, {"except_steps": ("step",)}, {"ingredients_digest": bytes(32)}):
        outcome = scene.apply(replace(reuse, **change))
        assert (code_of(outcome), outcome.recorded) == ("CONFLICT", False)


def test_the_same_step_id_in_another_run_is_another_step() -> None:
    scene = scene_with_result()
    scene.apply(StartRun(0, TENANT, "run-2", "nightly", DIGEST, DIGEST, DIGEST, "op"))
    for run_id in ("run-1", "run-2"):
        assert scene.apply(ReuseStep(0, run_id, "step", "old", DIGEST)).status == "COMMITTED"


# -- erasure -----------------------------------------------------------------------------------------------------------


def test_an_erasure_is_recorded_once_and_may_be_wished_for_again() -> None:
    """X-173: content can come back, so the number tells a repeat from a new wish"""
    scene = Scene()
    commands = [Erase(0, (DIGEST, bytes(32)), number) for number in range(3)]
    first = [scene.apply(command) for command in commands]
    assert [body_of(outcome.record)["erasure_seq"] for outcome in first] == [0, 1, 2]
    for command, outcome in zip(commands, first, strict=True):
        repeated(scene, command, outcome)


@pytest.mark.parametrize("change", [{"digests": (DIGEST,)}, {"reason_code": "OTHER"}, {"expected_erasures": 5}])
def test_another_erasure_under_a_number_that_is_taken_is_a_conflict(change: dict[str, Any]) -> None:
    """X-035"""
    scene = Scene()
    scene.apply(Erase(0, (DIGEST, bytes(32)), 0))
    outcome = scene.apply(replace(Erase(0, (DIGEST, bytes(32)), 0), **change))
    assert (code_of(outcome), outcome.recorded) == ("CONFLICT", False)
    assert outcome.refusal is not None
    assert outcome.refusal.details["stored_erasures"] == 1


def test_erasures_are_recorded_in_the_first_partition_only() -> None:
    outcome = Scene(config(partitions=2, partition_id=1)).apply(Erase(0, (DIGEST,), 0))
    assert code_of(outcome) == "NOT_PARTITION_OWNER"
