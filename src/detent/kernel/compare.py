"""The equivalence procedure: an exact comparison of two transition logs (PIPE-118, PIPE-120).

The contract knows one level, E0: exact identity, for the transition decisions and for the transition log. A decision is
what a trace event says of a committed transition; the log is the bytes of the records. A trace holds decisions alone, so
a log that is read from a trace can be compared by its decisions and by the hash over all records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

E0: Final = "E0"
"""Exact identity."""
DIFFERENT: Final = "different"

DECISION_FIELDS: Final = (
    "from_state",
    "to_state",
    "attempt_id",
    "tick",
    "reason_code",
    "dispatch",
    "quota_verdict",
    "quota_policy_hash",
    "batch_id",
    "replay_token",
)
"""What a trace event says of a committed transition, beside its job and its number."""


class LogEntry(NamedTuple):
    """One committed transition with its place in the canonical order: by the UTF-8 bytes of the job id, then by number (PIPE-027)."""

    job_id: str
    transition_seq: int
    fields: Mapping[str, object]
    """The record's fields and the replay token it was committed under; of a trace, those of the event."""
    body: bytes | None
    """The record's bytes; None where only the decision is known."""

    @property
    def place(self) -> tuple[bytes, int]:
        """Where the entry stands in the canonical order."""
        return self.job_id.encode("utf-8"), self.transition_seq


class LogDifference(NamedTuple):
    """The first place where two logs are not the same."""

    job_id: str
    transition_seq: int
    field: str | None
    """The first field that differs; None when one of the logs lacks the whole transition."""
    left: object
    right: object
    missing: str | None = None
    """The side that lacks the transition."""


class LogComparison(NamedTuple):
    """The verdict on each of the two things that are held to E0."""

    decisions: LogDifference | None
    """The first decision that differs."""
    log: LogDifference | None
    """The first record that differs, in any field."""


def compare_logs(left: Iterable[LogEntry], right: Iterable[LogEntry]) -> LogComparison:
    """Compare two logs, each in canonical order, up to the first decision that differs."""
    in_record = None
    ours, theirs = iter(left), iter(right)
    one, other = next(ours, None), next(theirs, None)
    while one is not None and other is not None and one.place == other.place:
        if one.body is None or one.body != other.body:
            found = _field_difference(one, other, DECISION_FIELDS)
            if found is not None:
                return LogComparison(found, in_record or found)
            in_record = in_record or _record_difference(one, other)
        one, other = next(ours, None), next(theirs, None)
    lonely = [(entry, lacks) for entry, lacks in ((one, "right"), (other, "left")) if entry is not None]
    if not lonely:
        return LogComparison(None, in_record)
    entry, lacks = min(lonely, key=lambda pair: pair[0].place)
    missing = LogDifference(entry.job_id, entry.transition_seq, None, None, None, lacks)
    return LogComparison(missing, in_record or missing)


def _record_difference(one: LogEntry, other: LogEntry) -> LogDifference | None:
    """What two records differ in that took the same decision; None where only the decisions are known."""
    if one.body is None or other.body is None:
        return None
    rest = sorted((one.fields.keys() | other.fields.keys()) - {*DECISION_FIELDS})
    found = _field_difference(one, other, rest)
    return found or LogDifference(one.job_id, one.transition_seq, "encoding", one.body, other.body)


def _field_difference(one: LogEntry, other: LogEntry, names: Iterable[str]) -> LogDifference | None:
    for name in names:
        left, right = one.fields.get(name), other.fields.get(name)
        if left != right:
            return LogDifference(one.job_id, one.transition_seq, name, left, right)
    return None
