"""Two logs are compared byte by byte, and the first difference is named."""

from __future__ import annotations

import pytest

from detent.kernel import LogDifference, LogEntry, canonical_order, compare_logs

LOG = [
    LogEntry("job-1", 0, b"a"),
    LogEntry("job-1", 1, b"b"),
    LogEntry("job-2", 0, b"c"),
    LogEntry("job-\u00e9", 0, b"d"),
    LogEntry("job-\U0001f600", 0, b"e"),
]


def test_equal_logs_have_no_difference() -> None:
    """PIPE-118, PIPE-120"""
    assert compare_logs(LOG, list(LOG)) is None
    assert compare_logs([], []) is None


def test_canonical_order_is_by_the_bytes_of_the_id_and_then_by_number() -> None:
    """PIPE-027"""
    many = [LogEntry("job-1", seq, b"") for seq in (10, 9, 2)]
    assert [entry.transition_seq for entry in canonical_order(many)] == [2, 9, 10]
    assert canonical_order(reversed(LOG)) == LOG


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (LOG, LOG[:-1], LogDifference("job-\U0001f600", 0, "missing on the right")),
        (LOG[:-1], LOG, LogDifference("job-\U0001f600", 0, "missing on the left")),
        (LOG, LOG[:1] + LOG[2:], LogDifference("job-1", 1, "missing on the right")),
        (LOG[1:], LOG, LogDifference("job-1", 0, "missing on the left")),
        (LOG, [*LOG[:2], LogEntry("job-2", 0, b"C"), *LOG[3:]], LogDifference("job-2", 0, "other bytes")),
        (LOG[:3], LOG[:2] + LOG[3:4], LogDifference("job-2", 0, "missing on the right")),
        ([], LOG, LogDifference("job-1", 0, "missing on the left")),
    ],
)
def test_the_first_difference_is_named(left: list[LogEntry], right: list[LogEntry], expected: LogDifference) -> None:
    """PIPE-118, PIPE-120"""
    assert compare_logs(left, right) == expected
