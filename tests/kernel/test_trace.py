"""The trace: a header, one event for each transition asked for, an end; and when two traces may be compared."""

from __future__ import annotations

import cbor2
import pytest

from detent.canon import decode, sha256
from detent.kernel import run_end, run_header
from detent.kernel.outcome import STATUSES
from detent.kernel.trace import (
    OriginDigest,
    TraceOrigin,
    incomparable,
    run_commit,
    run_commit_record_hash,
)
from tests.kernel.builders import Scene, config, scene_in
from tests.kernel.walk import walked

LOG_HASH = b"\x44" * 32


def test_the_header_holds_all_that_a_replay_needs() -> None:
    """PIPE-001, PIPE-011, PIPE-111"""
    settings = config(seed=9)
    header = run_header(settings)
    assert header == {
        "kind": "run_header",
        "t": 0,
        "orchestrator_version": "UML_OS.Pipeline.Orchestrator_v1",
        "queue_policy_hash": settings.queue_policy_hash,
        "seed": 9,
        "prng_family": "Philox4x32-10",
        "numeric_policy_id": "numeric/uint64-binary64-abort/v1",
        "ordering_policy_id": "ordering/job-id-transition-seq/v1",
        "parallel_policy_id": "parallel/priority-then-fifo/v1",
        "environment_policy_hash": settings.environment_policy_hash,
        "replay_token": settings.replay_token,
    }


def test_an_event_has_the_fields_of_the_contract() -> None:
    """PIPE-112, X-058"""
    (event,) = scene_in("RUNNING").events
    assert set(event.to_map()) == {
        "kind", "job_id", "from_state", "to_state", "status", "t", "tick", "transition_seq", "attempt_id",
        "quota_policy_hash", "quota_verdict", "reason_code", "batch_id", "dispatch", "replay_token",
    }  # fmt: skip
    assert (event.to_map()["kind"], event.from_state, event.to_state, event.status) == (
        "iter",
        "QUEUED",
        "RUNNING",
        "COMMITTED",
    )


def test_the_end_has_the_log_hash_and_only_if_given_the_commit_record() -> None:
    """PIPE-113, X-059"""
    settings = config()
    plain = run_end(settings, 7, LOG_HASH)
    assert plain == {
        "kind": "run_end",
        "t": 7,
        "transition_log_hash": LOG_HASH,
        "replay_token": settings.replay_token,
    }
    record = {
        "run_id": "run-1",
        "transition_log_hash": LOG_HASH,
        "job_count": 3,
        "replay_token": settings.replay_token,
    }
    line = run_commit("run-1", LOG_HASH, 3, settings.replay_token)
    assert line == {"kind": "run_commit", **record}
    commit = run_commit_record_hash(line)
    assert commit == sha256(cbor2.dumps(record, canonical=True))
    assert run_end(settings, 7, LOG_HASH, commit) == {**plain, "run_commit_record_hash": commit}


@pytest.mark.parametrize("seed", range(8))
def test_every_transition_leaves_exactly_one_committed_event(seed: int) -> None:
    """PIPE-012, PIPE-110"""
    walk = walked(seed, 120)
    events = [event for outcome in walk.outcomes for event in outcome.events]
    records = [record for outcome in walk.outcomes for record in outcome.records if record.kind == "transition"]
    committed = [event for event in events if event.status == "COMMITTED"]
    bodies = [decode(record.body) for record in records]
    shared = ("job_id", "from_state", "to_state", "transition_seq", "attempt_id", "tick", "batch_id", "dispatch",
              "reason_code", "quota_verdict", "quota_policy_hash")  # fmt: skip
    assert [{name: getattr(event, name) for name in shared} for event in committed] == [
        {name: body[name] for name in shared} for body in bodies
    ]
    assert [event.t for event in events] == list(range(len(events))) == list(range(walk.kernel.trace_length))


def test_every_status_an_event_can_have_is_one_of_six() -> None:
    """X-058"""
    seen = {event.status for seed in range(24) for outcome in walked(seed, 150).outcomes for event in outcome.events}
    assert seen == set(STATUSES)
    assert set(STATUSES) == {"COMMITTED", "DEDUPLICATED", "DENIED_QUOTA", "CONFLICT", "CONTRACT_VIOLATION", "REFUSED"}


def test_all_lines_of_a_trace_carry_the_same_token() -> None:
    """PIPE-012, X-051"""
    scene = Scene()
    grant = scene.start()
    scene.transition("job-1", "QUEUED", "FAILED")
    error = scene.outcomes[-1].error
    scene.finish(grant)
    lines = [run_header(scene.kernel.config), *(event.to_map() for event in scene.events)]
    lines.append(run_end(scene.kernel.config, len(scene.events), LOG_HASH))
    assert error is not None
    assert {line["replay_token"] for line in lines} | {error.replay_token} == {scene.kernel.config.replay_token}


# -- comparing -----------------------------------------------------------------------------------------------------


ORIGIN = TraceOrigin("v1", "table", "ledger", None, (b"\x01" * 32,), 2, b"\x02" * 32, b"\x03" * 32)


def test_traces_of_one_policy_arrival_and_signatures_are_comparable() -> None:
    """PIPE-114"""
    assert incomparable(ORIGIN, TraceOrigin(*ORIGIN)) is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"orchestrator_version": "v2"}, "different versions of the orchestrator ('v1' and 'v2')"),
        ({"table_digest": "other"}, "states and transitions"),
        ({"ledger": "another"}, "different ledgers ('ledger' and 'another')"),
        ({"run_id": "run-1"}, "different runs"),
        ({"queue_policies": (bytes(32),)}, "queue policies"),
        ({"jobs": 3}, "number of jobs (2 and 3)"),
        ({"arrivals": bytes(32)}, "order of arrival"),
        ({"manifest_signatures": bytes(32)}, "signatures"),
    ],
)
def test_traces_that_differ_in_their_origin_are_not_compared(change: dict[str, object], text: str) -> None:
    """PIPE-114"""
    assert text in str(incomparable(ORIGIN, ORIGIN._replace(**change)))  # type: ignore[arg-type]


def test_the_origin_tells_apart_other_jobs_another_order_and_other_manifests() -> None:
    """PIPE-114"""

    def digested(*arrivals: tuple[str, bytes]) -> tuple[bytes, bytes]:
        origin = OriginDigest()
        for arrival in arrivals:
            origin.arrive(*arrival)
        return origin.arrivals, origin.manifest_signatures

    plain = digested(("a", b"1"), ("b", b"2"))
    assert plain == digested(("a", b"1"), ("b", b"2"))
    assert plain[0] != digested(("b", b"2"), ("a", b"1"))[0]
    assert plain[1] != digested(("a", b"1"), ("b", b"3"))[1]
    assert digested(("ab", b""))[0] != digested(("a", b""), ("b", b""))[0]
