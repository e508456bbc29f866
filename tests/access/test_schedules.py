"""Schedules as a fold of records: what makes one, halts it and ends it, and what counts for nothing."""

from __future__ import annotations

from typing import Any

from detent.access.schedules import Schedules, inputs_named

INPUTS = bytes(range(32))
MADE: dict[str, Any] = {
    "name": "nightly",
    "schedule": {"every": "1h"},
    "inputs": INPUTS,
    "options": {"force": True},
    "since_ms": 1_000,
}


def told(
    schedules: Schedules, action: str, parameters: dict[str, Any] | None = None, *, at_ms: int = 0, **changes: Any
) -> bool:
    record = {
        "action": f"schedule.{action}",
        "object_id": "sch_a",
        "tenant_id": "team",
        "principal_id": "p_ann",
        "outcome_code": "OK",
        **changes,
    }
    return schedules.apply(record, {"parameters": parameters or {}, "reason": "why"}, at_ms=at_ms)


def test_a_schedule_is_what_the_records_add_up_to() -> None:
    schedules = Schedules()
    assert told(schedules, "create", MADE, at_ms=900)
    one = schedules.schedule("team", "sch_a")
    assert one is not None
    assert (one.name, one.rule, one.inputs, one.options) == ("nightly", {"every": "1h"}, INPUTS, {"force": True})
    assert (one.made_by, one.created_ms, one.since_ms, one.paused_ms) == ("p_ann", 900, 1_000, None)
    assert told(schedules, "pause", at_ms=2_000)
    assert [one.paused_ms for one in schedules.of("team")] == [2_000]
    assert told(schedules, "resume", {"since_ms": 3_000}, at_ms=2_990)
    (one,) = schedules
    assert (one.paused_ms, one.since_ms) == (None, 3_000)
    assert told(schedules, "delete")
    assert list(schedules) == []


def test_a_schedule_belongs_to_its_workspace_and_another_cannot_change_it() -> None:
    schedules = Schedules()
    told(schedules, "create", MADE)
    assert schedules.schedule("other", "sch_a") is None
    assert schedules.of("other") == []
    for action in ("pause", "delete", "failed", "create"):
        assert not told(schedules, action, {**MADE, "tick_ms": 1}, tenant_id="other")
    (one,) = schedules
    assert (one.workspace, one.paused_ms, one.failure) == ("team", None, None)


def test_what_was_refused_or_cannot_be_read_counts_for_nothing() -> None:
    schedules = Schedules()
    assert not told(schedules, "create", MADE, outcome_code="FORBIDDEN")
    for name in MADE:
        assert not told(schedules, "create", {**MADE, name: None}), name
    assert not told(schedules, "create", {**MADE, "inputs": b"short"})
    assert not told(schedules, "create", MADE, tenant_id=None)
    told(schedules, "create", MADE)
    assert not told(schedules, "create", {**MADE, "name": "another"})
    assert not told(schedules, "delete", outcome_code="OUTCOME_UNKNOWN")
    told(schedules, "pause")
    assert not told(schedules, "pause")
    assert not told(schedules, "resume", {"since_ms": "now"})
    (one,) = schedules
    assert (one.name, one.paused_ms) == ("nightly", 0)


def test_a_failure_is_kept_with_its_code_until_the_schedule_is_resumed() -> None:
    schedules = Schedules()
    told(schedules, "create", MADE)
    assert told(schedules, "failed", {"tick_ms": 7_000}, at_ms=7_100, outcome_code="CONTENT_GONE")
    (one,) = schedules
    assert one.failure is not None
    assert (one.failure.code, one.failure.reason, one.failure.at_ms, one.failure.tick_ms) == (
        *("CONTENT_GONE", "why"),
        *(7_100, 7_000),
    )
    told(schedules, "pause")
    told(schedules, "resume", {"since_ms": 8_000})
    assert [one.failure for one in schedules] == [None]


def test_the_record_of_a_creation_names_what_is_run_and_no_other_record_does() -> None:
    record = {"action": "schedule.create", "outcome_code": "OK"}
    assert inputs_named(record, {"parameters": MADE}) == INPUTS
    assert inputs_named({**record, "outcome_code": "CONFLICT"}, {"parameters": MADE}) is None
    assert inputs_named({**record, "action": "key.create"}, {"parameters": MADE}) is None
    assert inputs_named(record, {}) is None
