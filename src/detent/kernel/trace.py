"""The trace: a run header, one event for each transition asked for, a run end (section 7 of the contract).

The trace keeps the order in which things happened; the transition log is ordered by job. Neither needs the other to be
checked: replaying the recorded commands gives the same trace again.

The equivalence procedure: an exact comparison of two transition logs (PIPE-118, PIPE-120).

The contract knows one level, E0: exact identity, for the transition decisions and for the transition log. A decision is
what a trace event says of a committed transition; the log is the bytes of the records. A trace holds decisions alone, so
a log that is read from a trace can be compared by its decisions and by the hash over all records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from detent.canon import PRNG_FAMILY, encode, sha256
from detent.canon.late import NamedTuple
from detent.canon.show import show
from detent.kernel.identity import ORCHESTRATOR_VERSION
from detent.kernel.policy import (
    NUMERIC_POLICY_ID,
    ORDERING_POLICY_ID,
    PARALLEL_POLICY_ID,
    KernelConfig,
)


class IterEvent(NamedTuple):
    """One request for a transition and its outcome (X-058)."""

    t: int
    tick: int
    job_id: str
    from_state: str
    to_state: str
    status: str
    transition_seq: int
    attempt_id: int
    quota_policy_hash: bytes
    quota_verdict: str
    reason_code: str | None
    batch_id: bytes | None
    dispatch: bool
    replay_token: bytes

    def to_map(self) -> dict[str, object]:
        """The event as a trace line."""
        return {"kind": "iter", **self._asdict()}


def run_header(config: KernelConfig, t: int = 0) -> dict[str, object]:
    """The first line of a trace: all that a replay needs beside the commands (PIPE-011, PIPE-111).

    ``t`` numbers the `iter` events: here it is that of the first one to follow, in `run_end` one more than that of the last.
    """
    return {
        "kind": "run_header",
        "t": t,
        "orchestrator_version": ORCHESTRATOR_VERSION,
        "queue_policy_hash": config.queue_policy_hash,
        "seed": config.seed,
        "prng_family": PRNG_FAMILY,
        "numeric_policy_id": NUMERIC_POLICY_ID,
        "ordering_policy_id": ORDERING_POLICY_ID,
        "parallel_policy_id": PARALLEL_POLICY_ID,
        "environment_policy_hash": config.environment_policy_hash,
        "replay_token": config.replay_token,
    }


def run_end(
    config: KernelConfig, t: int, log_hash: bytes, run_commit_record_hash: bytes | None = None
) -> dict[str, object]:
    """The last line of a trace (PIPE-113)."""
    end: dict[str, object] = {
        "kind": "run_end",
        "t": t,
        "transition_log_hash": log_hash,
        "replay_token": config.replay_token,
    }
    if run_commit_record_hash is not None:
        end["run_commit_record_hash"] = run_commit_record_hash
    return end


def run_commit(run_id: str, log_hash: bytes, job_count: int, replay_token: bytes) -> dict[str, object]:
    """The commit record of a run that has ended, as a trace line (X-059)."""
    return {
        "kind": "run_commit",
        "run_id": run_id,
        "transition_log_hash": log_hash,
        "job_count": job_count,
        "replay_token": replay_token,
    }


def run_commit_record_hash(record: Mapping[str, object]) -> bytes:
    """The hash that names a commit record: over its four fields, without the kind of the line (X-059)."""
    return sha256(encode({name: value for name, value in record.items() if name != "kind"}))


class TraceOrigin(NamedTuple):
    """What must agree before two traces may be compared (PIPE-114)."""

    orchestrator_version: str
    table_digest: str
    ledger: str
    run_id: str | None
    """The run that was traced; None for a whole ledger."""
    queue_policies: tuple[bytes, ...]
    """The `queue_policy_hash` in force at the committed transitions, in order, without repeats in a row."""
    jobs: int
    arrivals: bytes
    """Digest of the job ids in the order in which they were submitted."""
    manifest_signatures: bytes
    """Digest of the jobs' signed manifests, in the same order."""


class OriginDigest:
    """Gathers a `TraceOrigin` from a ledger, one job and one transition at a time, without holding them."""

    __slots__ = ("_arrivals", "_policies", "_signatures", "jobs")

    def __init__(self) -> None:
        self.jobs = 0
        self._policies: list[bytes] = []
        self._arrivals = hashlib.sha256(b"detent/trace-arrivals/v1\0")
        self._signatures = hashlib.sha256(b"detent/trace-signatures/v1\0")

    def arrive(self, job_id: str, signed_manifest: bytes) -> None:
        """Take the next job that was submitted, with its signed manifest."""
        self.jobs += 1
        self._arrivals.update(encode(job_id))
        self._signatures.update(encode(signed_manifest))

    def decide(self, queue_policy_hash: bytes) -> None:
        """Take the policy under which the next transition was committed."""
        if self._policies[-1:] != [queue_policy_hash]:
            self._policies.append(queue_policy_hash)

    @property
    def arrivals(self) -> bytes:
        """Digest of the job ids so far."""
        return self._arrivals.digest()

    @property
    def manifest_signatures(self) -> bytes:
        """Digest of the signed manifests so far."""
        return self._signatures.digest()

    @property
    def queue_policies(self) -> tuple[bytes, ...]:
        """The policies so far."""
        return tuple(self._policies)


def incomparable(left: TraceOrigin, right: TraceOrigin) -> str | None:
    """Why two traces differ before the first decision: another version, ledger, policy, arrival or manifest; None: they may be compared."""
    for name, what in (
        ("orchestrator_version", "they were written by different versions of the orchestrator"),
        ("table_digest", "their states and transitions are not the same"),
        ("ledger", "they belong to different ledgers"),
        ("run_id", "they are about different runs"),
        ("jobs", "they have a different number of jobs"),
        ("arrivals", "they have different jobs or another order of arrival"),
        ("manifest_signatures", "their job manifests carry different signatures"),
        ("queue_policies", "they were decided under different queue policies"),
    ):
        ours, theirs = getattr(left, name), getattr(right, name)
        if ours != theirs:
            shown = "" if isinstance(ours, bytes | tuple) else f" ({show(ours)} and {show(theirs)})"
            return what + shown
    return None


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
        """The place of the entry in the canonical order."""
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
