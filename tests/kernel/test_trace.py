"""The trace: a header, one event for each transition asked for, an end; and when two traces may be compared."""

from __future__ import annotations

import cbor2
import pytest

from detent.canon import decode, sha256
from detent.errors import InvalidInput
from detent.kernel import IterEvent, run_end, run_header
from detent.kernel.outcome import STATUSES
from detent.kernel.trace import (
    TraceOrigin,
    check_comparable,
    encode_trace,
    run_commit_record_hash,
    trace_difference,
)
from tests.kernel.builders import Scene, config, queue_of, quota, scene_in
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
    commit = run_commit_record_hash("run-1", LOG_HASH, 3, settings.replay_token)
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


def test_a_trace_is_a_sequence_of_canonical_items() -> None:
    """PIPE-110, PIPE-122"""
    scene = scene_in("SUCCEEDED")
    lines = [run_header(scene.kernel.config), *(event.to_map() for event in scene.events)]
    data = encode_trace(lines)
    assert data == b"".join(cbor2.dumps(line, canonical=True) for line in lines)


# -- comparing -----------------------------------------------------------------------------------------------------


ORIGIN = TraceOrigin(b"\x01" * 32, ("job-1", "job-2"), frozenset({b"\x02" * 64}))


def test_traces_of_one_policy_arrival_and_signatures_are_comparable() -> None:
    """PIPE-114"""
    check_comparable(ORIGIN, TraceOrigin(*ORIGIN))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"queue_policy_hash": bytes(32)}, "queue policies"),
        ({"arrivals": ("job-2", "job-1")}, "order of arrival"),
        ({"arrivals": ("job-1",)}, "order of arrival"),
        ({"manifest_signatures": frozenset({bytes(64)})}, "signatures"),
    ],
)
def test_traces_that_differ_in_one_of_the_three_are_not_compared(change: dict[str, object], text: str) -> None:
    """PIPE-114"""
    with pytest.raises(InvalidInput, match=text):
        check_comparable(ORIGIN, ORIGIN._replace(**change))  # type: ignore[arg-type]


def story(*, refusal: bool = False, priority: int = 5, failing: bool = False) -> list[IterEvent]:
    scene = Scene(config(quota(cpu_time_budget_ms=1), queue=queue_of(9)))
    grant = scene.start("job-1")
    scene.submit("job-2", priority=priority)
    if refusal:
        scene.transition("job-1", "QUEUED", "FAILED")
    (scene.fail if failing else scene.finish)(grant)
    scene.claim()
    return scene.events


def test_only_committed_events_count_when_traces_are_compared() -> None:
    """PIPE-114, X-058: a refusal in between shifts ``t`` and changes nothing"""
    assert trace_difference(story(), story(refusal=True)) is None
    assert trace_difference(story(), story()) is None


def test_the_first_event_that_differs_is_named_by_its_index() -> None:
    """PIPE-114, PIPE-118"""
    assert trace_difference(story(), story(failing=True)) == 1
    assert trace_difference(story(), story()[:-1]) == 2
    assert trace_difference([], story()) == 0
