"""Two logs are compared transition by transition, and the first difference is named."""

from __future__ import annotations

import pytest

from detent.canon import encode
from detent.kernel import LogComparison, LogDifference, LogEntry, compare_logs


def entry(job_id: str, seq: int, *, exact: bool = True, **changes: object) -> LogEntry:
    fields = {"from_state": "QUEUED", "to_state": "RUNNING", "reason_code": "DISPATCHED", "evidence_ref": "e"} | changes
    return LogEntry(job_id, seq, fields, encode(fields) if exact else None)


LOG = [entry("job-1", 0), entry("job-1", 1), entry("job-2", 0), entry("job-\u00e9", 0), entry("job-\U0001f600", 0)]


def test_equal_logs_have_no_difference() -> None:
    """PIPE-118, PIPE-120"""
    assert compare_logs(LOG, list(LOG)) == LogComparison(None, None)
    assert compare_logs([], []) == LogComparison(None, None)


@pytest.mark.parametrize(
    ("left", "right", "job_id", "seq", "lacks"),
    [
        (LOG, LOG[:-1], "job-\U0001f600", 0, "right"),
        (LOG[:-1], LOG, "job-\U0001f600", 0, "left"),
        (LOG, LOG[:1] + LOG[2:], "job-1", 1, "right"),
        (LOG[1:], LOG, "job-1", 0, "left"),
        (LOG[:3], LOG[:2] + LOG[3:4], "job-2", 0, "right"),
        ([], LOG, "job-1", 0, "left"),
    ],
)
def test_a_transition_that_one_log_lacks_is_named(
    left: list[LogEntry], right: list[LogEntry], job_id: str, seq: int, lacks: str
) -> None:
    """PIPE-027, PIPE-120: the earlier one, by the bytes of the id and then by number"""
    found = LogDifference(job_id, seq, None, None, None, lacks)
    assert compare_logs(left, right) == LogComparison(found, found)


def test_a_decision_that_differs_is_named_by_its_field_and_both_values() -> None:
    """PIPE-118, PIPE-120"""
    other = [*LOG[:2], entry("job-2", 0, reason_code="RETRY_READY"), *LOG[3:]]
    found = LogDifference("job-2", 0, "reason_code", "DISPATCHED", "RETRY_READY")
    assert compare_logs(LOG, other) == LogComparison(found, found)


def test_a_record_may_differ_where_the_decision_is_the_same() -> None:
    """PIPE-118: both are held to E0, each by itself"""
    other = [entry("job-1", 0, evidence_ref="f"), *LOG[1:]]
    assert compare_logs(LOG, other) == LogComparison(None, LogDifference("job-1", 0, "evidence_ref", "e", "f"))


def test_of_a_trace_only_the_decisions_are_compared() -> None:
    """X-058"""
    decisions = [entry(job_id, seq, exact=False, evidence_ref=None) for job_id, seq, _, _ in LOG]
    assert compare_logs(LOG, decisions) == LogComparison(None, None)
    decisions[1] = entry("job-1", 1, exact=False, to_state="FAILED")
    found = LogDifference("job-1", 1, "to_state", "RUNNING", "FAILED")
    assert compare_logs(LOG, decisions) == LogComparison(found, found)
