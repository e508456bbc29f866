"""Failure records: made by one operator, numbered by the trace, the same on every replay."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import decode
from detent.errors import InvariantBroken
from detent.kernel import ErrorRecord, Finish, Heartbeat, Outcome, emit_error, partition_state
from detent.kernel.partition_state import TERMINAL_NAMES
from detent.kernel.table import TERMINAL
from tests.kernel.builders import NO_LEASE, Scene, code_of, config, quota, scene_in
from tests.kernel.walk import walked


def error_of(outcome: Outcome) -> ErrorRecord:
    assert outcome.error is not None
    return outcome.error


def test_a_failure_record_has_its_five_parts() -> None:
    """PIPE-038"""
    scene = scene_in("RUNNING")
    scene.tick = 44
    outcome = scene.transition("job-1", "QUEUED", "SUCCEEDED")
    record = decode(error_of(outcome).encode())
    assert isinstance(record, dict)
    assert set(record) == {"kind", "operator", "t", "failure_code", "failure_operator", "replay_token", "diagnostics"}
    assert (record["kind"], record["operator"]) == ("error", "UML_OS.Error.Emit_v1")
    assert record["failure_code"] == "CONTRACT_VIOLATION"
    assert record["failure_operator"] == "UML_OS.Pipeline.JobTransition_v1"
    assert record["replay_token"] == scene.kernel.config.replay_token
    assert record["diagnostics"]["tick"] == 44
    assert "QUEUED->SUCCEEDED" in record["diagnostics"]["message"]


def five_events() -> Scene:
    """A scene with exactly five events in its trace."""
    scene = Scene()
    scene.start("job-1")
    scene.at(100)
    scene.at(110)
    (grant,) = scene.claim()
    scene.finish(grant)
    assert len(scene.events) == 5
    return scene


def test_a_failure_after_five_events_has_t_5_whether_or_not_it_leaves_an_event() -> None:
    """PIPE-038, X-060"""
    silent = five_events().apply(Finish(110, "job-9", NO_LEASE))
    assert (error_of(silent).t, silent.events) == (5, [])
    traced = five_events().transition("job-1", "RUNNING", "FAILED", expected_transition_seq=99)
    assert (error_of(traced).t, [event.t for event in traced.events]) == (5, [5])


def test_the_t_of_a_denial_is_that_of_the_denied_event() -> None:
    """X-060: what the denial led to comes after it, what was due came before"""
    budget = quota(cpu_time_budget_ms=1)
    scene = Scene(config(budget))
    scene.start("job-2")
    scene.tick = 50
    scene.start("job-1", quota=budget)
    scene.live("job-1").usage.cpu_time_ms = 2
    scene.tick = 100  # the lease of job-2 runs out first
    outcome = scene.transition("job-1", "RUNNING", "SUCCEEDED")
    assert [(event.t, event.status) for event in outcome.events] == [
        (2, "COMMITTED"),
        (3, "DENIED_QUOTA"),
        (4, "COMMITTED"),
    ]
    assert error_of(outcome).t == 3


def test_every_refusal_goes_through_the_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """PIPE-039"""
    calls: list[str] = []

    def spy(t: int, failure_code: str, *rest: Any) -> ErrorRecord:
        calls.append(failure_code)
        return emit_error(t, failure_code, *rest)

    monkeypatch.setattr(partition_state, "emit_error", spy)
    refusals = [code_of(outcome) for seed in range(4) for outcome in walked(seed, 120).outcomes if not outcome.ok]
    assert calls == refusals
    assert len(set(calls)) >= 7


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_has_a_failure_record_exactly_when_it_is_a_refusal(seed: int) -> None:
    """PIPE-012, PIPE-038"""
    for outcome in walked(seed, 120).outcomes:
        assert (outcome.error is None) == (outcome.refusal is None)
        if outcome.error is not None and outcome.refusal is not None:
            assert outcome.error.failure_code == outcome.refusal.code


@pytest.mark.parametrize(
    ("operator", "outcome"),
    [
        ("JobSubmit_v1", scene_in("QUEUED").submit(priority=9)),
        ("JobTransition_v1", scene_in("QUEUED").transition("job-1", "QUEUED", "FAILED")),
        ("JobHeartbeat_v1", scene_in("QUEUED").apply(Heartbeat(0, "job-1", NO_LEASE))),
        ("JobCancel_v1", scene_in("FAILED").cancel()),
    ],
)
def test_a_failure_names_the_operator_that_failed(operator: str, outcome: Outcome) -> None:
    """PIPE-038"""
    assert error_of(outcome).failure_operator == f"UML_OS.Pipeline.{operator}"


# -- aborts --------------------------------------------------------------------------------------------------------


def test_a_sequence_that_is_used_up_aborts_and_writes_nothing() -> None:
    """PIPE-025, PIPE-033, X-062: nothing recovers from it"""
    scene = Scene()
    grant = scene.start()
    scene.live().transition_seq = 2**64 - 1
    before = (scene.live().encode(), dict(scene.history.records))
    for _ in range(2):
        with pytest.raises(InvariantBroken, match="used up"):
            scene.kernel.apply(Finish(0, "job-1", grant.lease_id))
    assert (scene.live().encode(), scene.history.records) == before


def test_the_kernel_itself_cannot_make_an_illegal_move() -> None:
    """PIPE-033, PIPE-055"""
    scene = scene_in("QUEUED")
    with pytest.raises(InvariantBroken, match="QUEUED->SUCCEEDED"):
        scene.kernel.move(Outcome(), scene.live(), "SUCCEEDED", b"\xa0", kind="result", reason="X")
    assert scene.job().state == "QUEUED"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("state", "SUCCEEDED", "still in memory"),
        ("ready_tick", 5, "ready tick"),
        ("failures", 1, "do not add up"),
        ("lease_id", NO_LEASE, None),
    ],
)
def test_the_check_after_a_command_finds_a_state_that_cannot_be(name: str, value: Any, text: str | None) -> None:
    """PIPE-033, PIPE-058"""
    scene = scene_in("RUNNING")
    setattr(scene.live(), name, value)
    if text is None:
        scene.kernel.check()
        return
    with pytest.raises(InvariantBroken, match=text):
        scene.kernel.check()


def test_the_reducers_names_of_the_ends_are_the_tables() -> None:
    """PIPE-051"""
    assert TERMINAL_NAMES == TERMINAL
