"""Metrics: counted as things happen, equal to what the log says, minimal without conflicts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from detent.canon import decode
from detent.kernel import Metrics
from detent.kernel.policy import RULES
from tests.kernel.builders import Scene, config, scene_in
from tests.kernel.walk import walked


def snapshot(scene: Scene) -> dict[str, Any]:
    return scene.kernel.metrics_snapshot()


def test_a_scripted_run_has_the_metrics_computed_by_hand() -> None:
    """PIPE-035, PIPE-036, X-061"""
    scene = Scene()
    for number in range(1, 6):
        scene.submit(f"job-{number}")
    one, two, three, four = scene.claim(4)
    for grant in (one, two, three):
        scene.finish(grant)
    scene.fail(four, category=None)
    scene.submit("job-6")
    scene.cancel("job-5")
    shown = snapshot(scene)
    assert (shown["queue_depth"], shown["job_success_rate"], shown["ambiguous_transitions"]) == (1, 0.6, 0)
    assert shown["jobs"] == {
        "QUEUED": 1, "RUNNING": 0, "RETRYING": 0, "SUCCEEDED": 3, "FAILED": 1, "CANCELED": 1,
    }  # fmt: skip
    assert shown["transitions"] == {
        "QUEUED->RUNNING": 5,
        "RETRYING->QUEUED": 0,
        "RUNNING->CANCELED": 1,
        "RUNNING->FAILED": 1,
        "RUNNING->RETRYING": 0,
        "RUNNING->SUCCEEDED": 3,
    }


def test_the_success_rate_is_zero_before_any_job_has_ended() -> None:
    """PIPE-035, X-061"""
    assert Metrics().job_success_rate() == 0.0
    assert snapshot(scene_in("RUNNING"))["job_success_rate"] == 0.0


def test_a_clean_run_has_no_ambiguity_and_every_refused_request_adds_one() -> None:
    """PIPE-007"""
    scene = Scene()
    grant = scene.start()
    assert snapshot(scene)["ambiguous_transitions"] == 0
    scene.transition("job-1", "RUNNING", "FAILED", expected_transition_seq=7)
    assert snapshot(scene)["ambiguous_transitions"] == 1
    scene.transition("job-1", "QUEUED", "SUCCEEDED")
    assert snapshot(scene)["ambiguous_transitions"] == 2
    scene.finish(grant)
    scene.finish(grant)  # a repeat is no ambiguity
    assert snapshot(scene)["ambiguous_transitions"] == 2


@pytest.mark.parametrize("ok", [True, False])
def test_a_stale_or_contradicting_result_leaves_its_event_and_counts(ok: bool) -> None:
    """PIPE-007, PIPE-110: it asked for a transition and got none; the command is recorded, so that a replay counts alike."""
    scene = Scene(config(rules=RULES))
    grant = scene.start()
    scene.finish(grant, ok=ok, reason_code="ENDED")
    again = scene.finish(grant, ok=ok, reason_code="ENDED")
    assert (again.events, snapshot(scene)["ambiguous_transitions"]) == ([], 0), "a repeat is no ambiguity"
    contrary = scene.finish(grant, ok=not ok, reason_code="ENDED")
    (event,) = contrary.events
    assert (event.status, event.reason_code, event.to_state) == (
        "REFUSED",
        "LEASE_INVALID",
        "FAILED" if ok else "SUCCEEDED",
    )
    assert (contrary.recorded, contrary.records, contrary.error is not None) == (True, [], True)
    assert snapshot(scene)["ambiguous_transitions"] == 1
    assert scene.job().state == ("SUCCEEDED" if ok else "FAILED")


def test_under_the_first_rules_a_stale_result_counts_for_nothing() -> None:
    """PIPE-007: as ledgers of before were written, and are replayed."""
    scene = Scene(config())
    grant = scene.start()
    scene.finish(grant)
    assert scene.finish(grant, ok=False, reason_code="ENDED").events == []
    assert snapshot(scene)["ambiguous_transitions"] == 0


@pytest.mark.parametrize("seed", range(8))
def test_the_counters_are_those_of_the_log(seed: int) -> None:
    """PIPE-036"""
    walk = walked(seed, 150)
    records = [record for outcome in walk.outcomes for record in outcome.records]
    bodies = [decode(record.body) for record in records if record.kind == "transition"]
    states = Counter({"QUEUED": sum(record.kind == "submitted" for record in records)})
    for body in bodies:
        states[body["from_state"]] -= 1
        states[body["to_state"]] += 1
    shown: dict[str, Any] = walk.kernel.metrics_snapshot()
    assert shown["jobs"] == {state: states[state] for state in shown["jobs"]}
    edges = Counter(f"{body['from_state']}->{body['to_state']}" for body in bodies)
    assert shown["transitions"] == {edge: edges[edge] for edge in shown["transitions"]}
    assert shown["queue_depth"] == states["QUEUED"]


def test_counters_survive_a_checkpoint() -> None:
    """PIPE-036, PIPE-123"""
    metrics = walked(1, 150).kernel.metrics
    assert Metrics.from_list(metrics.to_list()) == metrics
