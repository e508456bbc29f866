"""Table A.5: every check of a transition request has its code, and of two faults the earlier check decides."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from detent.kernel import (
    Evidence,
    Kernel,
    KernelConfig,
    MemoryHistory,
    Outcome,
    RaiseEpoch,
    Record,
    evidence_ref,
    lease_key,
)
from tests.kernel.builders import (
    OWNER_KEY_ID,
    TENANT,
    Scene,
    body_of,
    code_of,
    config,
    quota,
    scene_in,
)

OTHER_LEASE = b"\x5a" * 32
BUDGET = quota(cpu_time_budget_ms=5)


def over_quota_scene() -> Scene:
    """A running job without a retry left whose budget is spent; epoch 1."""
    scene = Scene(config(BUDGET))
    scene.apply(RaiseEpoch(0, 1, OWNER_KEY_ID, scene.kernel.config.encode()))
    scene.start(quota=BUDGET, max_retries=0)
    # No command leads here, because spending the budget ends the attempt at once; the check must hold all the same.
    scene.live().usage.cpu_time_ms = 6
    return scene


def failed(lease_id: bytes | None, category: str | None = "INTERNAL_ERROR") -> bytes:
    return Evidence("result", "TASK_FAILED", lease_id, category=category).encode()


# Each check with requests that fail it, as changes to a request that would be granted: RUNNING->FAILED by a result.
FAULTS: dict[int, list[dict[str, Any]]] = {
    1: [{"attempt_id": -1}, {"expected_transition_seq": 1.0}, {"evidence": b"junk"}],
    2: [{"to_state": "RUNNING"}, {"from_state": "SUCCEEDED"}],
    3: [{"tenant_id": "tenant-b"}],
    4: [{"epoch": 0}],
    5: [{"expected_transition_seq": 0}],
    6: [{"expected_transition_seq": 2}],
    7: [{"attempt_id": 1}],
    8: [
        {"from_state": "QUEUED", "to_state": "RUNNING", "evidence": Evidence("dispatch", "GO", None, "worker").encode()}
    ],
    9: [{"evidence": failed(OTHER_LEASE)}],
    10: [{"to_state": "RETRYING"}],
    11: [{"to_state": "SUCCEEDED"}],
}
CODES = {
    1: "INVALID_PARAMS",
    2: "CONTRACT_VIOLATION",
    3: "UNKNOWN_JOB",
    4: "NOT_PARTITION_OWNER",
    5: "CONFLICT",
    6: "CONFLICT",
    7: "CONFLICT",
    8: "CONTRACT_VIOLATION",
    9: "LEASE_INVALID",
    10: "RETRIES_EXHAUSTED",
    11: "QUOTA_CPU_TIME",
}


def pairs_of_faults() -> list[tuple[int, int, dict[str, Any]]]:
    """Requests with two faults at once, wherever two faults fit into one request."""
    found = []
    for first, second in combinations(FAULTS, 2):
        for one in FAULTS[first]:
            other = next((other for other in FAULTS[second] if not one.keys() & other.keys()), None)
            if other is not None:
                found.append((first, second, {**one, **other}))
                break
    return found


PAIRS = pairs_of_faults()


def ask(scene: Scene, changes: dict[str, Any]) -> Outcome:
    evidence = failed(scene.live().lease_id)
    return scene.transition("job-1", "RUNNING", "FAILED", **{"evidence": evidence, **changes})


def test_the_request_without_a_fault_is_granted() -> None:
    """PIPE-070: also over quota, because a job must be able to fail"""
    assert ask(over_quota_scene(), {}).ok


@pytest.mark.parametrize("number", FAULTS)
def test_every_check_has_its_code_and_writes_nothing(number: int) -> None:
    """PIPE-037, PIPE-071, X-056"""
    for changes in FAULTS[number]:
        scene = over_quota_scene()
        before = scene.live().encode()
        outcome = ask(scene, changes)
        assert code_of(outcome) == CODES[number]
        if number < 11:  # a denied success ends the attempt over its quota
            job = scene.live()
            job.conflicts = 0
            assert (outcome.records, job.encode()) == ([], before)


@pytest.mark.parametrize(("first", "second", "changes"), PAIRS)
def test_of_two_faults_the_earlier_check_decides(first: int, second: int, changes: dict[str, Any]) -> None:
    """PIPE-071, X-056"""
    assert code_of(ask(over_quota_scene(), changes)) == CODES[first], second


def test_nearly_every_pair_of_faults_fits_into_one_request() -> None:
    """What is missing cannot be asked at once: two sequences, two targets, two pieces of evidence."""
    missing = set(combinations(FAULTS, 2)) - {(first, second) for first, second, _ in PAIRS}
    assert missing == {(2, 8), (5, 6), (8, 9), (8, 10), (8, 11), (10, 11)}


def test_a_state_that_is_not_the_jobs_is_a_violation_before_its_lease_and_quota_are_looked_at() -> None:
    """PIPE-071, X-056: the pairs (8, 9) and (8, 11), which need evidence of their own"""
    scene = over_quota_scene()
    evidence = Evidence("dispatch", "GO", OTHER_LEASE, "worker").encode()
    outcome = ask(scene, {"from_state": "QUEUED", "to_state": "RUNNING", "evidence": evidence})
    assert code_of(outcome) == "CONTRACT_VIOLATION"


# -- check 1: arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt_id": 1.5},
        {"attempt_id": True},
        {"attempt_id": 2**64},
        {"expected_transition_seq": -1},
        {"expected_transition_seq": None},
        {"from_state": "running"},
        {"to_state": None},
        {"to_state": ["FAILED"]},
        {"tenant_id": ""},
        {"job_id": 5},
        {"epoch": "1"},
        {"evidence": "text"},
        {"evidence": b""},
        {"evidence": bytearray(b"\xa0")},
        {"evidence": Evidence("rumour", "HEARD").encode()},
        {"evidence": Evidence("result", "lower case").encode()},
        {"evidence": Evidence("result", "OK", b"short").encode()},
        {"evidence": Evidence("result", "OK", category="not ok").encode()},
        {"evidence": Evidence("result", "OK", replica_id="\n").encode()},
        {"evidence": Evidence("result", "A" * 65).encode()},
        {"evidence": b"\xa1dkindfresult"},
        {"evidence": b"\x60" * 5000},
        {"evidence_ref": "sha256:" + "00" * 32},
        {"evidence_ref": 7},
    ],
)
def test_wrong_arguments_are_refused_and_leave_no_trace(changes: dict[str, Any]) -> None:
    """PIPE-018, X-064"""
    outcome = ask(over_quota_scene(), changes)
    assert code_of(outcome) == "INVALID_PARAMS"
    assert (outcome.events, outcome.records, outcome.recorded) == ([], [], False)


# -- evidence ------------------------------------------------------------------------------------------------------


def test_a_reference_to_missing_evidence_is_refused() -> None:
    """PIPE-081, X-064"""
    for seq in (0, 1, 2**64 - 1):
        changes = {"evidence": None, "evidence_ref": "sha256:" + "00" * 32, "expected_transition_seq": seq}
        assert code_of(ask(over_quota_scene(), changes)) == "INVALID_PARAMS"


def test_the_past_is_asked_only_for_records_that_can_exist() -> None:
    """X-168: a store need not hold numbers of 64 bits"""

    class Wary(MemoryHistory):
        def record(self, job_id: str, transition_seq: int) -> Record | None:
            assert transition_seq < 2
            return super().record(job_id, transition_seq)

    scene = Scene(kernel=Kernel(config(), history=Wary()))
    scene.start()
    for seq in (1, 2, 2**63, 2**64 - 1):
        for evidence in (None, Evidence("cancel", "BECAUSE").encode()):
            scene.transition("job-1", "RUNNING", "CANCELED", expected_transition_seq=seq, evidence=evidence)


def test_a_repeat_may_name_its_evidence_by_reference_alone() -> None:
    """PIPE-066, PIPE-081, X-064"""
    scene = over_quota_scene()
    evidence = failed(scene.live().lease_id)
    committed = ask(scene, {"evidence": evidence, "evidence_ref": evidence_ref(evidence)})
    repeat = scene.transition(
        "job-1", "RUNNING", "FAILED", expected_transition_seq=1, evidence=None, evidence_ref=evidence_ref(evidence)
    )
    assert (repeat.status, repeat.record) == ("DEDUPLICATED", committed.record)


@pytest.mark.parametrize(
    ("from_state", "to_state", "kind"),
    [
        ("QUEUED", "RUNNING", "result"),
        ("QUEUED", "RUNNING", "cancel"),
        ("RUNNING", "SUCCEEDED", "cancel"),
        ("RUNNING", "SUCCEEDED", "interrupted"),
        ("RUNNING", "CANCELED", "result"),
        ("RUNNING", "FAILED", "retry_ready"),
        ("RUNNING", "RETRYING", "watchdog"),
        ("RETRYING", "QUEUED", "dispatch"),
    ],
)
def test_evidence_of_a_kind_that_does_not_fit_the_move_is_refused(from_state: str, to_state: str, kind: str) -> None:
    """X-064"""
    scene = scene_in(from_state)
    evidence = Evidence(kind, "BECAUSE", scene.live().lease_id, "worker-1").encode()
    assert code_of(scene.transition("job-1", from_state, to_state, evidence=evidence)) == "INVALID_PARAMS"


def test_a_dispatch_names_the_replica_it_goes_to() -> None:
    """X-064"""
    scene = scene_in("QUEUED")
    evidence = Evidence("dispatch", "DISPATCHED").encode()
    assert code_of(scene.transition("job-1", "QUEUED", "RUNNING", evidence=evidence)) == "INVALID_PARAMS"


def test_a_record_resolves_to_its_evidence_and_repeats_what_it_says() -> None:
    """PIPE-081, X-064"""
    scene = scene_in("RUNNING")
    detail = b"\x11" * 32
    evidence = Evidence("result", "OUT_OF_MEMORY", scene.live().lease_id, detail_digest=detail)
    record = scene.transition("job-1", "RUNNING", "FAILED", evidence=evidence.encode()).record
    body = body_of(record)
    assert record is not None
    assert record.evidence is not None
    assert Evidence.decode(record.evidence) == evidence
    assert body["evidence_ref"] == evidence_ref(record.evidence)
    assert (body["reason_code"], body["lease_id"], body["dispatch"]) == ("OUT_OF_MEMORY", evidence.lease_id, False)


# -- checks 3 and 4: job and owner ---------------------------------------------------------------------------------


def test_a_job_that_was_never_submitted_is_unknown() -> None:
    """PIPE-071"""
    scene = Scene()
    assert code_of(scene.transition("job-1", "QUEUED", "RUNNING")) == "UNKNOWN_JOB"


def test_an_owner_that_has_been_replaced_moves_nothing() -> None:
    """PIPE-060, PIPE-062"""
    scene = scene_in("QUEUED")
    scene.apply(RaiseEpoch(0, 4, OWNER_KEY_ID, scene.kernel.config.encode()))
    for epoch in (3, 5):
        assert code_of(scene.transition("job-1", "QUEUED", "RUNNING", epoch=epoch)) == "NOT_PARTITION_OWNER"
    assert scene.job().state == "QUEUED"
    assert scene.transition("job-1", "QUEUED", "RUNNING", epoch=4).ok


def test_a_job_that_hashes_to_another_partition_is_not_ours_even_if_we_know_it() -> None:
    """PIPE-061, PIPE-062"""
    scene = scene_in("SUCCEEDED")
    other = Kernel(KernelConfig(partitions=7, partition_id=3), history=scene.history)
    outcome = other.apply(scene_in("RUNNING").commands[-1])
    assert outcome.refusal is None  # an empty claim
    foreign = Scene(kernel=other)
    outcome = foreign.transition("job-1", "QUEUED", "RUNNING", expected_transition_seq=2)
    assert code_of(outcome) == "NOT_PARTITION_OWNER"


# -- checks 5 to 7: repeats and conflicts --------------------------------------------------------------------------


def test_the_same_request_three_times_is_one_record_and_three_equal_answers() -> None:
    """PIPE-064..PIPE-066, X-035"""
    scene = scene_in("RUNNING")
    lease_id = scene.live().lease_id
    requests = [
        scene.transition("job-1", "RUNNING", "SUCCEEDED", expected_transition_seq=1, evidence=failed(lease_id, None))
        for _ in range(3)
    ]
    assert [outcome.status for outcome in requests] == ["COMMITTED", "DEDUPLICATED", "DEDUPLICATED"]
    assert requests[0].record == requests[1].record == requests[2].record
    assert [outcome.job for outcome in requests] == [scene.job()] * 3
    assert scene.edges() == ["QUEUED->RUNNING", "RUNNING->SUCCEEDED"]


def test_a_repeat_is_recognised_long_after_other_records() -> None:
    """PIPE-066"""
    scene = scene_in("QUEUED")
    first = scene.transition("job-1", "QUEUED", "RUNNING")
    scene.at(100)
    scene.at(110)
    scene.claim()
    evidence = Evidence("dispatch", "DISPATCHED", lease_key(TENANT, "job-1", 0, 0), "worker-1").encode()
    repeat = scene.transition("job-1", "QUEUED", "RUNNING", attempt_id=0, expected_transition_seq=0, evidence=evidence)
    assert (repeat.status, repeat.record) == ("DEDUPLICATED", first.record)
    assert [(event.status, event.transition_seq, event.attempt_id) for event in repeat.events] == [
        ("DEDUPLICATED", 0, 0)
    ]


@pytest.mark.parametrize(
    ("to_state", "reason"), [("SUCCEEDED", "COMPLETED"), ("FAILED", "OTHER_REASON"), ("RETRYING", "TASK_FAILED")]
)
def test_the_same_key_for_another_request_is_a_conflict_with_diagnostics(to_state: str, reason: str) -> None:
    """PIPE-067, X-035"""
    scene = scene_in("RUNNING")
    lease_id = scene.live().lease_id
    scene.transition("job-1", "RUNNING", "FAILED", evidence=failed(lease_id))
    evidence = Evidence("result", reason, lease_id, category="INTERNAL_ERROR").encode()
    outcome = scene.transition("job-1", "RUNNING", to_state, expected_transition_seq=1, evidence=evidence)
    assert (outcome.status, code_of(outcome), outcome.records) == ("CONFLICT", "CONFLICT", [])
    assert outcome.refusal is not None
    assert outcome.refusal.details == {
        "job_id": "job-1",
        "expected_transition_seq": 1,
        "stored_transition_seq": 2,
        "committed_state": "FAILED",
        "retry_after_ms": 10,
        "retry_after_ticks": 10,
    }


@pytest.mark.parametrize(("offset", "code"), [(-1, "CONFLICT"), (0, None), (1, "CONFLICT")])
def test_only_the_stored_sequence_commits(offset: int, code: str | None) -> None:
    """PIPE-064, PIPE-065"""
    scene = scene_in("RUNNING")
    outcome = scene.transition("job-1", "RUNNING", "FAILED", expected_transition_seq=1 + offset)
    assert code_of(outcome) == code
    assert scene.job().transition_seq == (2 if code is None else 1)


def test_of_two_writers_with_the_same_expectation_one_commits() -> None:
    """PIPE-065, PIPE-067"""
    scene = scene_in("RUNNING")
    lease_id = scene.live().lease_id
    answers = [
        scene.transition("job-1", "RUNNING", to_state, expected_transition_seq=1, evidence=failed(lease_id))
        for to_state in ("SUCCEEDED", "FAILED")
    ]
    assert [code_of(outcome) for outcome in answers] == [None, "CONFLICT"]
    assert scene.edges()[1:] == ["RUNNING->SUCCEEDED"]


def test_another_attempt_is_a_conflict_that_says_so() -> None:
    """PIPE-071, X-056"""
    outcome = scene_in("RUNNING").transition("job-1", "RUNNING", "FAILED", attempt_id=1)
    assert code_of(outcome) == "CONFLICT"
    assert outcome.refusal is not None
    assert outcome.refusal.details["detail"] == "ATTEMPT_MISMATCH"
    assert outcome.refusal.details["stored_attempt_id"] == 0


def test_conflicts_are_told_the_schedule_entry_by_their_number() -> None:
    """PIPE-068, X-066"""
    scene = scene_in("RUNNING")
    waits = []
    for _ in range(4):
        outcome = scene.transition("job-1", "RUNNING", "FAILED", expected_transition_seq=9)
        assert outcome.refusal is not None
        waits.append(outcome.refusal.details["retry_after_ms"])
    assert waits == [10, 20, 40, 40]
    scene.transition("job-1", "RUNNING", "RETRYING")
    outcome = scene.transition("job-1", "RUNNING", "FAILED", expected_transition_seq=9)
    assert outcome.refusal is not None
    assert outcome.refusal.details["retry_after_ms"] == 10  # a commit starts the count anew


def test_a_conflict_about_an_ended_job_is_answered_after_its_schedule_is_gone() -> None:
    """PIPE-067"""
    scene = scene_in("SUCCEEDED")
    later = Scene(kernel=Kernel(KernelConfig(backoff_schedules=config().backoff_schedules), history=scene.history))
    gone = Scene(kernel=Kernel(KernelConfig(lease_policies=config().lease_policies), history=scene.history))
    object.__setattr__(gone.kernel.config, "backoffs", {})
    for other, known in ((later, True), (gone, False)):
        outcome = other.transition("job-1", "RUNNING", "FAILED", expected_transition_seq=9)
        assert code_of(outcome) == "CONFLICT"
        assert outcome.refusal is not None
        assert ("retry_after_ms" in outcome.refusal.details) == known


# -- checks 9 to 12 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to_state", ["SUCCEEDED", "FAILED", "RETRYING"])
@pytest.mark.parametrize("lease_id", [None, OTHER_LEASE])
def test_a_result_leaves_running_only_by_the_active_lease(to_state: str, lease_id: bytes | None) -> None:
    """PIPE-073, X-056"""
    scene = scene_in("RUNNING")
    outcome = scene.transition("job-1", "RUNNING", to_state, evidence=failed(lease_id))
    assert (code_of(outcome), scene.job().state) == ("LEASE_INVALID", "RUNNING")
    assert [event.status for event in outcome.events] == ["REFUSED"]


@pytest.mark.parametrize(("kind", "to_state"), [("cancel", "CANCELED"), ("watchdog", "FAILED")])
def test_a_cancel_or_watchdog_needs_no_lease_but_may_not_name_another(kind: str, to_state: str) -> None:
    """X-056, X-064"""
    for lease_id, code in ((OTHER_LEASE, "LEASE_INVALID"), (None, None)):
        scene = scene_in("RUNNING")
        evidence = Evidence(kind, "WATCHDOG_IDLE", lease_id).encode()
        assert code_of(scene.transition("job-1", "RUNNING", to_state, evidence=evidence)) == code


@pytest.mark.parametrize(("kind", "to_state"), [("expiry", "RETRYING"), ("expiry", "FAILED"), ("quota", "CANCELED")])
def test_expiry_and_quota_are_the_kernels_own_to_decide(kind: str, to_state: str) -> None:
    """X-056"""
    scene = scene_in("RUNNING")
    evidence = Evidence(kind, "LEASE_EXPIRED", scene.live().lease_id).encode()
    assert code_of(scene.transition("job-1", "RUNNING", to_state, evidence=evidence)) == "LEASE_INVALID"


def test_a_dispatch_may_not_name_another_lease_than_it_grants() -> None:
    """PIPE-087, X-064"""
    scene = scene_in("QUEUED")
    evidence = Evidence("dispatch", "DISPATCHED", OTHER_LEASE, "worker-1").encode()
    assert code_of(scene.transition("job-1", "QUEUED", "RUNNING", evidence=evidence)) == "LEASE_INVALID"
    evidence = Evidence("dispatch", "DISPATCHED", None, "worker-1").encode()
    assert scene.transition("job-1", "QUEUED", "RUNNING", evidence=evidence).ok


@pytest.mark.parametrize(
    ("max_retries", "category", "code"),
    [
        (2, "INTERNAL_ERROR", None),
        (0, "INTERNAL_ERROR", "RETRIES_EXHAUSTED"),
        (2, "ValueError", "NOT_RETRYABLE"),
        (2, None, "NOT_RETRYABLE"),
    ],
)
def test_a_retry_needs_a_retryable_reason_and_a_retry_left(
    max_retries: int, category: str | None, code: str | None
) -> None:
    """PIPE-090, X-056, X-164"""
    scene = scene_in("RUNNING", max_retries=max_retries)
    evidence = failed(scene.live().lease_id, category)
    assert code_of(scene.transition("job-1", "RUNNING", "RETRYING", evidence=evidence)) == code


def test_a_retry_is_requeued_by_the_kernel_and_not_before_its_time() -> None:
    """PIPE-096"""
    scene = scene_in("RETRYING")
    assert code_of(scene.transition("job-1", "RETRYING", "QUEUED")) == "NOT_RETRYABLE"
    scene.at(9)
    assert code_of(scene.transition("job-1", "RETRYING", "QUEUED")) == "NOT_RETRYABLE"
    scene.tick = 10
    late = scene.transition("job-1", "RETRYING", "QUEUED", attempt_id=0, expected_transition_seq=2)
    assert (late.status, late.record) == ("DEDUPLICATED", late.records[0])  # time had done it just before


# -- push and pull -------------------------------------------------------------------------------------------------


def test_a_dispatch_by_request_and_a_claim_write_the_same_record() -> None:
    """X-007"""
    pushed, pulled = Scene(), Scene()
    for scene in (pushed, pulled):
        scene.submit()
        scene.tick = 3
    by_request = pushed.transition("job-1", "QUEUED", "RUNNING")
    by_claim = pulled.claim()
    assert pushed.records == pulled.records
    assert by_request.grants == by_claim
    assert len(pushed.kernel.queue) == len(pulled.kernel.queue) == 0
