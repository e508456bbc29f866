"""The end of an attempt: what a result leads to, and what a repeated or late one is told."""

from __future__ import annotations

from typing import Any

import pytest

from detent.kernel import Finish
from tests.kernel.builders import NO_LEASE, Scene, body_of, code_of, edges_of, evidence_of

DETAIL = b"\x77" * 32


def test_a_result_ends_the_job_with_its_digest_as_evidence() -> None:
    """PIPE-080, PIPE-081, PIPE-084"""
    scene = Scene()
    grant = scene.start()
    outcome = scene.finish(grant, detail_digest=DETAIL)
    assert edges_of(outcome.records) == ["RUNNING->SUCCEEDED"]
    evidence = evidence_of(outcome.record)
    assert (evidence.kind, evidence.lease_id, evidence.detail_digest) == ("result", grant.lease_id, DETAIL)
    assert (scene.job().state, scene.job().lease_id) == ("SUCCEEDED", None)
    assert scene.kernel.jobs == {}


@pytest.mark.parametrize("ok", [True, False])
def test_the_same_result_again_gets_the_same_record(ok: bool) -> None:
    """PIPE-066, X-035"""
    scene = Scene()
    grant = scene.start()
    answers = [scene.finish(grant, ok=ok, reason_code="ENDED") for _ in range(3)]
    assert [outcome.status for outcome in answers] == ["COMMITTED", "DEDUPLICATED", "DEDUPLICATED"]
    assert answers[0].record == answers[1].record == answers[2].record
    assert not answers[1].recorded
    assert [outcome.job for outcome in answers] == [scene.job()] * 3


def test_a_repeat_is_recognised_while_the_next_attempt_runs() -> None:
    """PIPE-066"""
    scene = Scene()
    grant = scene.start()
    failed = scene.fail(grant)
    scene.at(10)
    scene.claim()
    assert (scene.fail(grant).status, scene.outcomes[-1].record) == ("DEDUPLICATED", failed.record)
    assert scene.job().state == "RUNNING"


@pytest.mark.parametrize("ok", [True, False])
def test_success_and_failure_with_the_same_evidence_are_not_the_same_result(ok: bool) -> None:
    """PIPE-067, X-035"""
    scene = Scene()
    grant = scene.start()
    scene.finish(grant, ok=ok, reason_code="ENDED")
    contrary = scene.finish(grant, ok=not ok, reason_code="ENDED")
    assert (code_of(contrary), contrary.records) == ("LEASE_INVALID", [])
    assert scene.job().state == ("SUCCEEDED" if ok else "FAILED")


@pytest.mark.parametrize("change", [{"reason_code": "OTHER"}, {"detail_digest": DETAIL}, {"category": "ValueError"}])
def test_another_result_for_a_closed_attempt_is_too_late(change: dict[str, Any]) -> None:
    """PIPE-067, X-065"""
    scene = Scene()
    grant = scene.start()
    scene.fail(grant)
    late = scene.fail(grant, **change)
    assert (code_of(late), late.records, late.recorded) == ("LEASE_INVALID", [], False)


def test_a_result_under_a_lost_lease_is_too_late_even_while_the_job_runs_again() -> None:
    """PIPE-073, X-065"""
    scene = Scene()
    lost = scene.start()
    scene.at(100)
    scene.at(110)
    (active,) = scene.claim()
    assert code_of(scene.finish(lost)) == "LEASE_INVALID"
    assert scene.finish(active).ok
    assert body_of(scene.records[-1])["attempt_id"] == 1


def test_results_for_unknown_or_unstarted_jobs_are_refused() -> None:
    """PIPE-073"""
    scene = Scene()
    scene.submit()
    assert code_of(scene.apply(Finish(0, "job-1", NO_LEASE))) == "LEASE_INVALID"
    assert code_of(scene.apply(Finish(0, "job-2", NO_LEASE))) == "UNKNOWN_JOB"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "watchdog"},
        {"kind": "interrupted"},
        {"kind": "expiry", "ok": False},
        {"kind": "quota", "ok": False},
        {"kind": "cancel", "ok": False},
        {"kind": "dispatch", "ok": False},
        {"kind": "nonsense", "ok": False},
        {"ok": 1},
        {"reason_code": "lower"},
        {"category": "lower"},
        {"detail_digest": b"short"},
    ],
)
def test_a_result_that_is_none_is_refused_and_the_attempt_goes_on(wrong: dict[str, Any]) -> None:
    """X-064: also success by anything but a result"""
    scene = Scene()
    grant = scene.start()
    assert code_of(scene.finish(grant, **wrong)) == "INVALID_PARAMS"
    assert scene.job().state == "RUNNING"


def test_a_whole_life_reads_as_the_procedure_of_the_contract() -> None:
    """PIPE-080"""
    scene = Scene()
    scene.submit()
    scene.claim()
    scene.at(100)  # no heartbeat arrives
    scene.at(110)
    (grant,) = scene.claim()
    for tick in (150, 200, 240):
        scene.tick = tick
        assert scene.heartbeat(grant).ok
    final = scene.finish(grant)
    assert scene.edges() == [
        "QUEUED->RUNNING",
        "RUNNING->RETRYING",
        "RETRYING->QUEUED",
        "QUEUED->RUNNING",
        "RUNNING->SUCCEEDED",
    ]
    assert final.job is not None
    assert (final.job.state, final.job.attempt_id, final.job.transition_seq) == ("SUCCEEDED", 1, 5)
