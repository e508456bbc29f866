from __future__ import annotations

from typing import Any

import pytest

from detent.errors import Refused
from detent.jobs import EnvelopeInvalid, Environment, Limits, Plan, check_plan, read_payload
from detent.jobs.bounds import DEFAULT_BOUNDS
from detent.jobs.payload import ARTIFACTS_MAX, ENVELOPE_BYTES_MAX, OUTPUT_KB_MAX
from detent.jobs.result import METADATA_BYTES_MAX, URI_CHARS_MAX
from tests.jobs.envelopes import EXECUTE

NAMES = ("timeout_ms", "cpu_ms", "memory_mb", "max_output_kb", "max_artifacts")


def test_the_limits_are_the_five_of_the_contract_with_its_values() -> None:
    """JOB-036"""
    assert tuple(Limits.model_fields) == NAMES
    assert Limits().model_dump() == {
        "timeout_ms": 30000,
        "cpu_ms": 30000,
        "memory_mb": 512,
        "max_output_kb": 256,
        "max_artifacts": 50,
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, 1.0, "1", True, None, 2**64])
def test_a_limit_is_a_positive_integer_within_bounds(name: str, value: Any) -> None:
    """JOB-036"""
    with pytest.raises(EnvelopeInvalid) as caught:
        read_payload({**EXECUTE, "limits": {name: value}})
    assert caught.value.details["path"] == f"limits.{name}"


@pytest.mark.parametrize("name", NAMES)
def test_limits_above_the_plan_are_refused_by_name(name: str) -> None:
    """JOB-038, X-032"""
    plan = Plan(limits=Limits())
    assert check_plan(Limits(), Environment(), plan) is None
    most = getattr(Limits(), name)
    refused = check_plan(Limits.model_validate({name: most + 1}), Environment(), plan)
    assert isinstance(refused, Refused)
    assert refused.code == "PLAN_EXCEEDED"
    message = f"limits.{name} is {most + 1}; the plan 'default' allows {most}"
    fault = {"path": f"limits.{name}", "message": message, "asked": most + 1, "allowed": most}
    assert refused.details["errors"] == [fault]


def test_network_access_needs_the_plans_grant_and_an_explicit_wish() -> None:
    """JOB-041"""
    asked = Environment(network_access="enabled")
    refused = check_plan(Limits(), asked, Plan())
    assert isinstance(refused, Refused)
    assert refused.details["path"] == "environment.network_access"
    assert check_plan(Limits(), asked, Plan(network_access=True)) is None
    assert Environment().network_access == "disabled"


def test_units_are_powers_of_1024() -> None:
    """X-025"""
    assert (Limits().memory_bytes, Limits().output_bytes) == (512 * 2**20, 256 * 2**10)


def test_an_envelope_has_room_for_every_bound_at_its_maximum() -> None:
    """JOB-006, JOB-057: six bytes is the longest escape of a byte of text."""
    text = 3 * OUTPUT_KB_MAX * 1024
    logs = DEFAULT_BOUNDS.max_log_entries * (DEFAULT_BOUNDS.max_log_message_bytes + 200)
    artifacts = ARTIFACTS_MAX * (METADATA_BYTES_MAX + URI_CHARS_MAX + 1000)
    assert 6 * (text + logs + DEFAULT_BOUNDS.max_log_message_bytes) + artifacts < ENVELOPE_BYTES_MAX
