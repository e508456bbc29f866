"""The scheduling policy: its defaults, its bytes, and what it refuses to be configured with."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from detent.canon import decode, encode
from detent.errors import InvalidInput
from detent.kernel import QueuePolicy
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.sessions import Budgets


def test_the_defaults_are_those_of_the_decisions() -> None:
    policy = SchedulingPolicy()
    assert policy.to_map() == {
        "version": 1,
        "capacities": [256] * 10,
        "capacity_total": 2560,
        "admission_policy": "reject",
        "placement_order": "least-loaded",
        "pinning_allowed": True,
        "session_affinity": True,
        "session_budgets": {"tokens": None, "time_ms": None, "cost": None},
        "watchdog_wall_ms": None,
        "watchdog_idle_ms": 60_000,
        "workflow_priority_cap": 10,
    }
    assert policy.queue_policy() == QueuePolicy()
    assert SchedulingPolicy.from_settings({}) == policy


def test_the_map_says_all_of_a_policy() -> None:
    policy = SchedulingPolicy.from_settings(
        {
            "capacity": {"10": 3, "1": 5},
            "admission_policy": "drop-lru",
            "placement_order": "pack",
            "session_budgets": {"tokens": 7},
            "watchdog_wall_ms": 9,
            "watchdog_idle_ms": 0,
            "workflow_priority_cap": 4,
            "pinning_allowed": False,
        }
    )
    assert policy.capacity() == {**dict.fromkeys(range(1, 11), 256), 10: 3, 1: 5}
    assert policy.capacity_total == 8 * 256 + 8
    assert (policy.watchdog_wall_ms, policy.watchdog_idle_ms) == (9, None)
    assert policy.session_budgets == Budgets(tokens=7)
    assert SchedulingPolicy.from_map(decode(encode(policy.to_map()))) == policy
    assert SchedulingPolicy.decode(policy.encode()) == policy
    with pytest.raises(InvalidInput, match="canonical"):
        SchedulingPolicy.decode(policy.encode() + b"\x00")
    assert policy.queue_policy() == QueuePolicy(256, 2056, "drop-lru")


def test_every_setting_changes_the_hash() -> None:
    changes: dict[str, Any] = {
        "capacities": (1, *[256] * 9),
        "capacity_total": 9,
        "capacity_per_tenant": 9,
        "admission_policy": "shed-low-priority",
        "placement_order": "pack",
        "pinning_allowed": False,
        "session_affinity": False,
        "session_budgets": Budgets(cost=1),
        "watchdog_wall_ms": 1,
        "watchdog_idle_ms": None,
        "workflow_priority_cap": 9,
    }
    assert set(changes) == {entry.name for entry in fields(SchedulingPolicy)}
    hashes = {replace(SchedulingPolicy(), **{name: value}).hash() for name, value in changes.items()}
    assert len(hashes | {SchedulingPolicy().hash()}) == len(changes) + 1


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"admission_policy": "drop"}, "reject, drop-lru, shed-low-priority"),
        ({"admission_policy": None}, "admission_policy"),
        ({"placement_order": "random"}, "least-loaded, pack"),
        ({"placement_order": ["pack"]}, "placement_order"),
        ({"capacity": 0}, "capacity must be at least 1"),
        ({"capacity": -1}, "capacity"),
        ({"capacity": True}, "capacity"),
        ({"capacity": 1.5}, "capacity"),
        ({"capacity": {"11": 1}}, "no class '11'"),
        ({"capacity": {"0": 1}}, "no class '0'"),
        ({"capacity": {"3": 0}}, "class 3"),
        ({"capacity_total": 0}, "capacity_total"),
        ({"capacity_total": -5}, "capacity_total"),
        ({"pinning_allowed": 1}, "pinning_allowed"),
        ({"session_affinity": "no"}, "session_affinity"),
        ({"session_budgets": {"tokens": -1}}, "tokens"),
        ({"session_budgets": {"euros": 1}}, "session_budgets"),
        ({"session_budgets": 5}, "session_budgets"),
        ({"watchdog_wall_ms": -1}, "watchdog_wall_ms"),
        ({"watchdog_idle_ms": "60s"}, "watchdog_idle_ms"),
        ({"workflow_priority_cap": 0}, "workflow_priority_cap"),
        ({"workflow_priority_cap": 11}, "workflow_priority_cap"),
        ({"workflow_priority_cap": True}, "workflow_priority_cap"),
        ({"pining_allowed": True}, "no setting 'pining_allowed'"),
        ({"capacities": [1] * 10}, "no setting 'capacities'"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(settings: dict[str, object], text: str) -> None:
    """OC-CORE-1002a"""
    with pytest.raises(InvalidInput, match=text) as caught:
        SchedulingPolicy.from_settings(settings)
    assert caught.value.code == "INVALID_PARAMS"


@pytest.mark.parametrize("name", SchedulingPolicy().to_map())
def test_a_stored_policy_has_every_field_and_no_other(name: str) -> None:
    stored = SchedulingPolicy().to_map()
    with pytest.raises(InvalidInput, match=f"lacks {name}"):
        SchedulingPolicy.from_map({key: value for key, value in stored.items() if key != name})
    with pytest.raises(InvalidInput, match="unknown fields"):
        SchedulingPolicy.from_map({**stored, "extra": 1})
    wrong: Any
    for wrong in ("?", 1.5, [], {}, b""):
        with pytest.raises(InvalidInput):
            SchedulingPolicy.from_map({**stored, name: wrong})


def test_a_bound_for_each_tenant_is_part_of_the_policy_only_where_there_is_one() -> None:
    """Ledgers written before there was such a bound keep their `queue_policy_hash`."""
    plain, bound = SchedulingPolicy(), SchedulingPolicy.from_settings({"capacity_per_tenant": 7})
    assert "capacity_per_tenant" not in plain.to_map()
    assert bound.to_map() == {**plain.to_map(), "capacity_per_tenant": 7}
    assert SchedulingPolicy.decode(bound.encode()) == bound
    assert bound.hash() != plain.hash()
    for wrong in (0, -1, True, "7"):
        with pytest.raises(InvalidInput):
            SchedulingPolicy.from_settings({"capacity_per_tenant": wrong})
    with pytest.raises(InvalidInput):
        SchedulingPolicy.from_map({**plain.to_map(), "capacity_per_tenant": None})
