"""The equivalence procedure: an exact comparison of two transition logs (PIPE-118, PIPE-120)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple


class LogEntry(NamedTuple):
    """One transition record with its place in the canonical order."""

    job_id: str
    transition_seq: int
    body: bytes


class LogDifference(NamedTuple):
    """The first place where two logs are not the same bytes."""

    job_id: str
    transition_seq: int
    problem: str


def canonical_order(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """A log in its canonical order: by the UTF-8 bytes of the job id, then by sequence (PIPE-027)."""
    return sorted(entries, key=lambda entry: (entry.job_id.encode("utf-8"), entry.transition_seq))


def compare_logs(left: Iterable[LogEntry], right: Iterable[LogEntry]) -> LogDifference | None:
    """The first difference of two logs, each in canonical order; None when they are identical."""
    for one, other in zip_longest(left, right):
        if one is None or other is None:
            present = other if one is None else one
            side = "left" if one is None else "right"
            return LogDifference(present.job_id, present.transition_seq, f"missing on the {side}")
        if one[:2] != other[:2]:
            first = min(one, other, key=lambda entry: (entry.job_id.encode("utf-8"), entry.transition_seq))
            side = "right" if first is one else "left"
            return LogDifference(first.job_id, first.transition_seq, f"missing on the {side}")
        if one.body != other.body:
            return LogDifference(one.job_id, one.transition_seq, "other bytes")
    return None
