"""The trace: a run header, one event for each transition asked for, a run end (section 7 of the contract).

The trace keeps the order in which things happened; the transition log is ordered by job. Neither needs the other to be
checked: replaying the recorded commands gives the same trace again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from detent.canon import PRNG_FAMILY, encode, sha256
from detent.errors import InvalidInput
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

    ``t`` numbers the `iter` events: here it is that of the first one to follow, in `run_end` their number.
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


def run_commit_record_hash(run_id: str, log_hash: bytes, job_count: int, replay_token: bytes) -> bytes:
    """The hash a run commit record is named by, where one is written (X-059)."""
    body = {"run_id": run_id, "transition_log_hash": log_hash, "job_count": job_count, "replay_token": replay_token}
    return sha256(encode(body))


def encode_trace(lines: Iterable[Mapping[str, object]]) -> bytes:
    """A trace as a CBOR sequence, one item for each line."""
    return b"".join(encode(dict(line)) for line in lines)


class TraceOrigin(NamedTuple):
    """What must agree before two traces may be compared (PIPE-114)."""

    queue_policy_hash: bytes
    arrivals: tuple[str, ...]
    """Job ids in the order in which they were submitted."""
    manifest_signatures: frozenset[bytes]


def check_comparable(left: TraceOrigin, right: TraceOrigin) -> None:
    """Refuse to compare traces that different policies, arrivals or manifests would have made different anyway."""
    if left.queue_policy_hash != right.queue_policy_hash:
        raise InvalidInput("the traces were made under different queue policies")
    if left.arrivals != right.arrivals:
        raise InvalidInput("the traces have different jobs or another order of arrival")
    if left.manifest_signatures != right.manifest_signatures:
        raise InvalidInput("the traces' job manifests carry different signatures")


def trace_difference(left: Iterable[IterEvent], right: Iterable[IterEvent]) -> int | None:
    """Index of the first committed event in which two comparable traces differ; None when they agree.

    ``t`` does not count: it also numbers the refusals in between, and only what was committed is compared (X-058).
    """
    pairs = [[event for event in events if event.status == "COMMITTED"] for events in (left, right)]
    for index, (one, other) in enumerate(zip(*pairs, strict=False)):
        if one[1:] != other[1:]:
            return index
    shorter, longer = sorted(map(len, pairs))
    return None if shorter == longer else shorter
