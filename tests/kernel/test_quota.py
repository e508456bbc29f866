"""The resource ledger of a job, and what its budgets allow."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import Refused
from detent.kernel import QuotaPolicy, ReportUsage, Usage
from detent.kernel.policy import RULE_LE_ALL_RETRY, UNLIMITED_QUOTA
from detent.kernel.quota import add_usage, quota_verdict
from tests.kernel.builders import Scene, code_of, config, edges_of, quota

COUNTERS = ("io_bytes_read", "io_bytes_written", "gpu_time_ms", "cpu_time_ms")
CPU = quota(cpu_time_budget_ms=5)
CPU_RETRY = quota(cpu_time_budget_ms=5, evaluation_rule_id=RULE_LE_ALL_RETRY)
CODES = {
    "gpu_time_ms": ("gpu_time_budget_ms", "QUOTA_GPU_TIME"),
    "cpu_time_ms": ("cpu_time_budget_ms", "QUOTA_CPU_TIME"),
    "io_bytes_read": ("io_bytes_budget", "QUOTA_IO_BYTES"),
    "io_bytes_written": ("io_bytes_budget", "QUOTA_IO_BYTES"),
    "peak_bytes": ("memory_bytes_budget", "QUOTA_MEMORY_BYTES"),
}


def report(**deltas: Any) -> ReportUsage:
    return ReportUsage(0, "job-1", bytes(32), 0, **deltas)


def spend(scene: Scene, policy: QuotaPolicy, amount: int = 6, **changes: Any) -> None:
    """Start job-1 under a budget and report what it used."""
    scene.usage(scene.start(quota=policy, **changes), cpu_time_ms=amount)


# -- ledger --------------------------------------------------------------------------------------------------------


def test_the_ledger_has_the_six_counters_of_the_contract() -> None:
    """PIPE-097"""
    names = ["bytes_allocated", "peak_bytes", "io_bytes_read", "io_bytes_written", "gpu_time_ms", "cpu_time_ms"]
    assert list(asdict(Usage())) == names
    assert Usage(1, 2, 3, 4, 5, 6).to_list() == [1, 2, 3, 4, 5, 6]


def test_reports_add_up_over_all_attempts() -> None:
    """PIPE-097, PIPE-098, X-049"""
    scene = Scene()
    grant = scene.start()
    scene.usage(grant, bytes_allocated=100, io_bytes_read=1, io_bytes_written=2, gpu_time_ms=3, cpu_time_ms=4)
    scene.usage(grant, bytes_allocated=-60, io_bytes_read=10, cpu_time_ms=40)
    scene.fail(grant)
    scene.at(10)
    (again,) = scene.claim()
    outcome = scene.usage(again, bytes_allocated=30, gpu_time_ms=7)
    assert outcome.recorded
    assert scene.live().usage.to_list() == [70, 100, 11, 2, 10, 44]


def test_a_finished_attempt_says_what_it_used_and_gives_its_memory_back() -> None:
    """PIPE-097, PIPE-098: over all attempts, beside what they reported before."""
    scene = Scene()
    grant = scene.start()
    scene.usage(grant, bytes_allocated=100, cpu_time_ms=4)
    scene.fail(grant, used=(50, 1, 2, 3, 40))
    scene.at(10)
    (again,) = scene.claim()
    assert scene.finish(again, used=(30, 10, 0, 7, 0)).ok
    assert scene.kernel.history.ended_job(again.job_id).usage.to_list() == [100, 150, 11, 2, 10, 44]  # type: ignore[union-attr]


@pytest.mark.parametrize("ok", [True, False])
def test_an_end_that_goes_over_a_budget_ends_the_attempt_over_quota(ok: bool) -> None:
    """PIPE-101, PIPE-103, PIPE-104: whatever the attempt itself says, and without a retry."""
    scene = Scene(config(quota(cpu_time_budget_ms=10)))
    grant = scene.start(quota_policy_hash=quota(cpu_time_budget_ms=10).hash())
    outcome = scene.finish(grant, ok=ok, category=None if ok else "INTERNAL_ERROR", used=(0, 0, 0, 0, 11))
    assert code_of(outcome) == "QUOTA_CPU_TIME"
    assert outcome.job is not None
    assert (outcome.job.state, outcome.job.reason_code) == ("FAILED", "QUOTA_CPU_TIME")


@pytest.mark.parametrize("wrong", [(), (1, 2, 3, 4), (0, 0, 0, 0, -1), (0, 0, 0, 0, 1.5), [0] * 5, (2**64, 0, 0, 0, 0)])
def test_an_end_that_says_anything_but_counts_is_refused(wrong: Any) -> None:
    """PIPE-025, PIPE-098"""
    scene = Scene()
    grant = scene.start()
    before = scene.live().encode()
    outcome = scene.finish(grant, used=wrong)
    assert (code_of(outcome), outcome.recorded) == ("INVALID_PARAMS", False)
    assert scene.live().encode() == before


DELTAS = st.fixed_dictionaries(
    {"bytes_allocated": st.integers(-50, 50), **{name: st.integers(0, 2**63) for name in COUNTERS}}
)


@given(st.lists(DELTAS, max_size=12))
def test_the_peak_is_the_running_maximum_and_counters_never_shrink(reports: list[dict[str, int]]) -> None:
    """PIPE-025, PIPE-098"""
    usage, allocated, peak = Usage(), 0, 0
    for deltas in reports:
        after = add_usage(usage, report(**deltas))
        fits = allocated + deltas["bytes_allocated"] >= 0
        fits &= all(getattr(usage, name) + deltas[name] < 2**64 for name in COUNTERS)
        assert isinstance(after, Usage) == fits
        if isinstance(after, Usage):
            allocated += deltas["bytes_allocated"]
            peak = max(peak, allocated)
            assert (after.bytes_allocated, after.peak_bytes) == (allocated, peak)
            assert all(getattr(after, name) == getattr(usage, name) + deltas[name] for name in COUNTERS)
            usage = after


@pytest.mark.parametrize("wrong", [-1, 1.5, float("nan"), float("inf"), True, "1", None])
@pytest.mark.parametrize("name", [*COUNTERS, "bytes_allocated"])
def test_a_report_of_anything_but_a_count_is_refused_and_adds_nothing(name: str, wrong: Any) -> None:
    """PIPE-018, PIPE-023, PIPE-098"""
    scene = Scene()
    grant = scene.start()
    before = scene.live().encode()
    outcome = scene.usage(grant, **{name: wrong})
    assert (code_of(outcome), outcome.recorded) == ("INVALID_PARAMS", False)
    assert scene.live().encode() == before


def test_a_counter_that_would_leave_64_bits_is_refused_and_not_clamped() -> None:
    """PIPE-025"""
    scene = Scene()
    grant = scene.start()
    assert scene.usage(grant, cpu_time_ms=2**64 - 1).ok
    assert code_of(scene.usage(grant, cpu_time_ms=1)) == "INVALID_PARAMS"
    assert scene.live().usage.cpu_time_ms == 2**64 - 1


def test_usage_under_a_lease_that_is_not_active_is_refused() -> None:
    """PIPE-073"""
    scene = Scene()
    grant = scene.start()
    scene.fail(grant)
    assert code_of(scene.usage(grant, cpu_time_ms=1)) == "LEASE_INVALID"
    assert code_of(scene.usage(grant._replace(job_id="job-2"), cpu_time_ms=1)) == "UNKNOWN_JOB"
    assert scene.live().usage == Usage()


# -- verdict -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("counter", CODES)
def test_a_budget_allows_equality_and_nothing_more(counter: str) -> None:
    """PIPE-103, PIPE-106"""
    budget, code = CODES[counter]
    for limit in (0, 7):
        policy = quota(**{budget: limit})
        assert quota_verdict(replace(Usage(), **{counter: limit}), policy) == "OK"
        assert quota_verdict(replace(Usage(), **{counter: limit + 1}), policy) == code


def test_reading_and_writing_share_one_budget() -> None:
    """PIPE-106"""
    policy = quota(io_bytes_budget=10)
    assert quota_verdict(Usage(io_bytes_read=4, io_bytes_written=6), policy) == "OK"
    assert quota_verdict(Usage(io_bytes_read=5, io_bytes_written=6), policy) == "QUOTA_IO_BYTES"


def test_the_largest_budget_means_no_limit_even_beyond_it() -> None:
    """PIPE-106, X-049: the sum of two 64-bit counters can be larger than 64 bits"""
    full = Usage(2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1)
    assert quota_verdict(full, UNLIMITED_QUOTA) == "OK"


def test_of_several_violations_the_first_in_the_fixed_order_is_named() -> None:
    """PIPE-103"""
    usage = Usage(9, 9, 9, 9, 9, 9)
    budgets = [(1, 1, 1, 1), (9, 1, 1, 1), (9, 9, 1, 1), (9, 9, 18, 1), (9, 9, 18, 9)]
    verdicts = [quota_verdict(usage, QuotaPolicy(*limits)) for limits in budgets]
    assert verdicts == ["QUOTA_GPU_TIME", "QUOTA_CPU_TIME", "QUOTA_IO_BYTES", "QUOTA_MEMORY_BYTES", "OK"]


# -- what follows a violation --------------------------------------------------------------------------------------


def test_a_running_job_over_its_budget_fails_at_once_and_is_not_retried() -> None:
    """PIPE-104, X-018"""
    scene = Scene(config(CPU))
    spend(scene, CPU, 5)
    assert scene.job().state == "RUNNING"
    scene = Scene(config(CPU))
    spend(scene, CPU, 6)
    assert (scene.job().state, scene.job().reason_code) == ("FAILED", "QUOTA_CPU_TIME")
    assert scene.edges() == ["QUEUED->RUNNING", "RUNNING->FAILED"]
    assert scene.bodies()[-1]["quota_verdict"] == "QUOTA_CPU_TIME"


def test_the_configuration_may_choose_canceled_instead() -> None:
    """X-018"""
    scene = Scene(config(CPU, on_quota_running="cancel"))
    spend(scene, CPU)
    assert (scene.job().state, scene.job().reason_code) == ("CANCELED", "QUOTA_CPU_TIME")


def test_a_rule_that_allows_it_gives_one_retry_which_the_spent_budget_denies() -> None:
    """PIPE-104, PIPE-105, X-018, X-049"""
    scene = Scene(config(CPU_RETRY))
    spend(scene, CPU_RETRY)
    assert scene.job().state == "RETRYING"
    scene.at(10)
    assert scene.claim() == []
    assert (scene.job().state, scene.job().reason_code) == ("CANCELED", "QUOTA_CPU_TIME")
    assert scene.edges().count("RUNNING->RETRYING") == 1


def test_a_denied_dispatch_is_traced_and_the_job_is_canceled_undispatched() -> None:
    """PIPE-101, PIPE-102, PIPE-105, X-018"""
    scene = Scene(config(CPU_RETRY))
    spend(scene, CPU_RETRY)
    scene.at(10)
    denied = scene.transition("job-1", "QUEUED", "RUNNING")
    assert (denied.status, code_of(denied)) == ("DENIED_QUOTA", "QUOTA_CPU_TIME")
    assert [(event.status, event.to_state, event.quota_verdict) for event in denied.events] == [
        ("DENIED_QUOTA", "RUNNING", "QUOTA_CPU_TIME"),
        ("COMMITTED", "RUNNING", "QUOTA_CPU_TIME"),
        ("COMMITTED", "CANCELED", "QUOTA_CPU_TIME"),
    ]
    assert edges_of(denied.records) == ["QUEUED->RUNNING", "RUNNING->CANCELED"]
    assert [body["dispatch"] for body in scene.bodies()[-2:]] == [False, False]
    assert denied.grants == []


def test_a_denied_success_commits_no_success_and_ends_the_attempt() -> None:
    """PIPE-101, PIPE-105, X-018"""
    for by_request in (True, False):
        scene = Scene(config(CPU))
        grant = scene.start(quota=CPU)
        scene.live().usage.cpu_time_ms = 6
        denied = scene.transition("job-1", "RUNNING", "SUCCEEDED") if by_request else scene.finish(grant)
        assert (denied.status, code_of(denied)) == ("DENIED_QUOTA", "QUOTA_CPU_TIME")
        assert [(event.status, event.to_state) for event in denied.events] == [
            ("DENIED_QUOTA", "SUCCEEDED"),
            ("COMMITTED", "FAILED"),
        ]
        assert edges_of(denied.records) == ["RUNNING->FAILED"]
        assert denied.job is not None
        assert denied.job.state == "FAILED"


def test_a_denied_job_does_not_use_up_the_claim() -> None:
    """X-018: no job stays stuck behind one that may not run"""
    scene = Scene(config(CPU_RETRY))
    spend(scene, CPU_RETRY)
    scene.at(10)
    scene.submit("job-2")
    assert [grant.job_id for grant in scene.claim()] == ["job-2"]
    assert scene.job("job-1").state == "CANCELED"


def test_a_job_over_its_budget_can_always_be_canceled_and_failed() -> None:
    """X-001, X-018: moves to FAILED and CANCELED are never denied"""
    for command in ("cancel", "fail"):
        scene = Scene(config(CPU))
        grant = scene.start(quota=CPU)
        scene.live().usage.cpu_time_ms = 6
        outcome = scene.cancel() if command == "cancel" else scene.fail(grant)
        assert outcome.ok
        assert scene.bodies()[-1]["quota_verdict"] == "QUOTA_CPU_TIME"


def test_every_event_and_record_names_policy_and_verdict() -> None:
    """PIPE-102"""
    scene = Scene(config(CPU))
    spend(scene, CPU)
    assert {event.quota_policy_hash for event in scene.events} == {CPU.hash()}
    assert [event.quota_verdict for event in scene.events] == ["OK", "QUOTA_CPU_TIME"]
    assert [body["quota_policy_hash"] for body in scene.bodies()] == [CPU.hash()] * 2


def test_a_refusal_of_usage_is_a_value_and_not_an_exception() -> None:
    """PIPE-023"""
    assert isinstance(add_usage(Usage(), report(cpu_time_ms=-1)), Refused)
