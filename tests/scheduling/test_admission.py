"""Admission: guardrails, pins, the choice of a pool, session budgets; one order of checks, and nothing changed by a "no"."""

from __future__ import annotations

from typing import Any

import pytest

from detent.canon import encode
from detent.kernel import partition_of
from detent.scheduling.admission import Admitted, NotAdmitted, admit
from detent.scheduling.fleet import Fleet
from detent.scheduling.index import Demand, Shape
from detent.scheduling.policy import SchedulingPolicy
from detent.scheduling.sessions import Budgets, Sessions
from detent.scheduling.types import TaskRequest
from tests.scheduling.fleets import generic, needs, replica, request


def admitted(
    asked: TaskRequest, fleet: Fleet, sessions: Sessions | None = None, policy: SchedulingPolicy | None = None
) -> Admitted:
    answer = admit(asked, fleet, sessions or Sessions(), policy)
    assert isinstance(answer, Admitted), answer
    return answer


def refused(
    asked: TaskRequest, fleet: Fleet, sessions: Sessions | None = None, policy: SchedulingPolicy | None = None
) -> NotAdmitted:
    """The refusal, seen to be the same twice and to change nothing."""
    sessions = sessions or Sessions()
    before = encode([fleet.snapshot(), sessions.snapshot()])
    answer = admit(asked, fleet, sessions, policy)
    assert isinstance(answer, NotAdmitted), answer
    assert admit(asked, fleet, sessions, policy) == answer
    assert encode([fleet.snapshot(), sessions.snapshot()]) == before
    assert (answer.decision.kind, answer.decision.reason) == ("refused", answer.code)
    return answer


def test_the_context_is_at_most_the_models() -> None:
    """OC-CORE-1020, X-090"""
    fleet = Fleet([replica()])
    admitted(request(prompt_tokens=4096), fleet)
    answer = refused(request(prompt_tokens=4097), fleet)
    assert (answer.code, answer.details) == ("CTX_TOO_LONG", {"prompt_tokens": 4097, "ctx_max": 4096})


def test_prompt_and_generation_together_are_at_most_the_models_context() -> None:
    """OC-CORE-1021, X-090"""
    fleet = Fleet([replica()])
    admitted(request(prompt_tokens=4000, max_new_tokens=96), fleet)
    answer = refused(request(prompt_tokens=4000, max_new_tokens=97), fleet)
    assert (answer.code, answer.details) == ("TOKEN_BUDGET_EXCEEDED", {"tokens": 4097, "ctx_max": 4096})


def test_a_job_without_a_model_has_no_context_limit() -> None:
    """X-093"""
    assert admitted(request(requirements=None, prompt_tokens=10**6), Fleet([generic()])).pool_id == "pool-a"


def test_a_pin_leads_to_its_pool_although_another_is_better() -> None:
    """OC-CORE-1018a"""
    fleet = Fleet([replica("r1", pool_id="a"), replica("r2", pool_id="b", free_vram_mb=9999)])
    answer = admitted(request(pool="a"), fleet)
    assert (answer.pool_id, answer.decision.reason) == ("a", "PINNED")
    assert admitted(request(), fleet).pool_id == "b"


def test_with_a_pin_the_other_pools_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """OC-CORE-1018b"""
    fleet = Fleet([replica("r1", pool_id="a"), replica("r2", pool_id="b", free_vram_mb=9999)])
    looked: list[str] = []
    matches = Demand._engine_and_model_match

    def watch(self: Demand, shape: Shape) -> bool:
        looked.append(shape.pool_id)
        return matches(self, shape)

    monkeypatch.setattr(Demand, "_engine_and_model_match", watch)
    answer = admitted(request(pool="a"), fleet)
    assert set(looked) == {"a"}
    assert [one.replica_id for one in answer.decision.candidates] == ["r1"]


@pytest.mark.parametrize(
    ("pool", "settings", "code"),
    [
        ("nowhere", {}, "INVALID_PARAMS"),
        ("a", {"pinning_allowed": False}, "INVALID_PARAMS"),
        ("off", {"pinning_allowed": False}, "INVALID_PARAMS"),
        ("off", {}, "POOL_UNREADY"),
    ],
)
def test_a_pin_that_cannot_be_followed_is_refused_and_never_replaced(
    pool: str, settings: dict[str, object], code: str
) -> None:
    """OC-CORE-1019a, OC-CORE-1019b, X-087"""
    fleet = Fleet([replica("r1", pool_id="a"), replica("r2", pool_id="off", ready=False)])
    answer = refused(request(pool=pool), fleet, policy=SchedulingPolicy.from_settings(settings))
    assert (answer.code, answer.details["pool_id"]) == (code, pool)


def test_a_pinned_pool_that_can_never_run_the_model_is_refused() -> None:
    """OC-CORE-1016c, OC-CORE-1019b"""
    fleet = Fleet([replica("r1", pool_id="a", model_id="other"), replica("r2", pool_id="b")])
    answer = refused(request(pool="a"), fleet)
    assert (answer.code, answer.details) == ("NO_FEASIBLE_POOL", {"removed_by": "engine_model", "pool_id": "a"})


def test_a_pinned_pool_whose_right_replica_is_off_waits_there() -> None:
    """OC-CORE-1018a, X-087"""
    fleet = Fleet(
        [
            replica("r1", pool_id="a", model_id="other"),
            replica("r2", pool_id="a", ready=False),
            replica("r3", pool_id="b"),
        ]
    )
    assert admitted(request(pool="a"), fleet).pool_id == "a"


@pytest.mark.parametrize(
    ("replicas", "pool", "reason"),
    [
        ([replica("r1", pool_id="b", free_vram_mb=9), replica("r2", pool_id="a")], "a", "BEST_POOL"),
        ([replica("r1", pool_id="b"), replica("r2", pool_id="a", free_vram_mb=9)], "b", "BEST_POOL"),
        ([replica("r1", pool_id="b"), replica("r2", pool_id="a", active_slots=1)], "b", "BEST_POOL"),
        ([replica("r2", pool_id="a"), replica("r1", pool_id="b")], "b", "BEST_POOL"),
        ([replica("r1", pool_id="b", active_slots=2), replica("r2", pool_id="a", free_vram_mb=9)], "b", "BEST_POOL"),
        ([replica("r1", pool_id="b", ready=False), replica("r2", pool_id="c", free_vram_mb=9)], "c", "BEST_POOL"),
        ([replica("r1", pool_id="b", ready=False), replica("r2", pool_id="a", ready=False)], "a", "FEASIBLE_POOL"),
        (
            [replica("r1", pool_id="b", ready=False), replica("r2", pool_id="a", ready=False, model_id="x")],
            "b",
            "FEASIBLE_POOL",
        ),
    ],
)
def test_without_a_pin_the_best_replica_chooses_the_pool(replicas: list[Any], pool: str, reason: str) -> None:
    """CORE-X015, X-086"""
    answer = admitted(request(), Fleet(replicas))
    assert (answer.pool_id, answer.decision.reason) == (pool, reason)


def test_packing_chooses_the_pool_where_the_job_fits_most_tightly() -> None:
    replicas = [
        replica("r1", pool_id="a", free_vram_mb=100),
        replica("r2", pool_id="b", free_vram_mb=500),
        replica("r3", pool_id="c", free_vram_mb=900),
    ]
    fleet = Fleet(replicas, order="pack")
    assert admitted(request(vram_mb=400), fleet).pool_id == "b"
    assert admitted(request(vram_mb=50), fleet).pool_id == "a"
    assert admitted(request(vram_mb=5000), fleet).pool_id == "a"
    assert admitted(request(vram_mb=400), Fleet(replicas)).pool_id == "c"


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({"device_mask": "gpu7"}, "device_mask"),
        ({"requirements": needs(model_id="other")}, "engine_model"),
        ({"engine": "vllm"}, "engine_model"),
        ({"requirements": needs(model_digest="sha256:ff")}, "engine_model"),
        ({"requirements": None}, "engine_model"),
        ({"requirements": needs(ctx_max=4097)}, "context"),
        ({"requirements": needs(extensions=("mmproj",))}, "features"),
    ],
    ids=str,
)
def test_what_no_replica_could_ever_run_is_refused_with_the_filter_that_stopped_it(
    changes: dict[str, Any], stage: str
) -> None:
    """OC-CORE-1016a, OC-CORE-1016b, OC-CORE-1016c, X-086"""
    for fleet in (Fleet([replica()]), Fleet([replica(ready=False)])):
        answer = refused(request(**changes), fleet)
        assert (answer.code, answer.details) == ("NO_FEASIBLE_POOL", {"removed_by": stage})


def test_without_any_replica_nothing_is_feasible() -> None:
    """X-086"""
    assert refused(request(), Fleet()).code == "NO_FEASIBLE_POOL"


def test_a_session_without_budget_is_refused_and_the_budget_named() -> None:
    """OC-CORE-1023a, OC-CORE-1023b"""
    sessions = Sessions()
    sessions.open("s", Budgets(tokens=100, cost=5))
    fleet = Fleet([replica()])
    asked = request(session_id="s", prompt_tokens=60)
    assert admitted(asked, fleet, sessions).decision.budget_left == (("cost", 5), ("tokens", 100))
    assert sessions.debit(asked) is None
    answer = refused(request("job-2", session_id="s", prompt_tokens=60), fleet, sessions)
    assert (answer.code, answer.details["budget"]) == ("SESSION_BUDGET_EXCEEDED", "tokens")
    assert answer.decision.budget_left == (("cost", 5), ("tokens", 40))


def test_workflow_and_ordered_work_is_admitted_as_not_evictable() -> None:
    """X-031"""
    fleet = Fleet([generic()])
    for kind, evictable in (("task", True), ("inference", True), ("action", False), ("seq", False)):
        assert admitted(request(requirements=None, job_kind=kind), fleet).evictable is evictable


def test_the_class_is_passed_on() -> None:
    """X-010"""
    assert admitted(request(priority=9), Fleet([replica()])).priority == 9


def test_of_several_faults_the_first_in_order_is_told() -> None:
    """OC-CORE-1019a"""
    fleet = Fleet([replica("r1", pool_id="off", ready=False)])
    sessions = Sessions(defaults=Budgets(tokens=0))
    faulty: dict[str, Any] = {
        "prompt_tokens": 5000,
        "max_new_tokens": 1,
        "pool": "off",
        "session_id": "s",
        "requirements": needs(model_id="other"),
    }
    codes = [refused(request(**faulty), fleet, sessions).code]
    faulty["prompt_tokens"] = 4096
    codes.append(refused(request(**faulty), fleet, sessions).code)
    faulty["max_new_tokens"] = 0
    codes.append(refused(request(**faulty), fleet, sessions).code)
    fleet.set_ready("r1", True)
    codes.append(refused(request(**faulty), fleet, sessions).code)
    faulty["requirements"] = needs()
    codes.append(refused(request(**faulty), fleet, sessions).code)
    assert codes == [
        "CTX_TOO_LONG",
        "TOKEN_BUDGET_EXCEEDED",
        "POOL_UNREADY",
        "NO_FEASIBLE_POOL",
        "SESSION_BUDGET_EXCEEDED",
    ]


def test_a_job_of_another_partition_is_not_admitted() -> None:
    """X-045"""
    fleet = Fleet([replica(partition_id=1)], partition_id=1, partitions=2)
    names = {partition_of(name, 2): name for name in map(str, range(20))}
    assert refused(request(names[0]), fleet).code == "NOT_PARTITION_OWNER"
    assert admitted(request(names[1]), fleet).pool_id == "pool-a"


def test_an_admission_made_again_from_snapshots_has_the_same_bytes() -> None:
    """X-181"""
    fleet = Fleet([replica("r1"), replica("r2", pool_id="b", active_slots=1), replica("r3", ready=False)])
    fleet.lease("r1", "other")
    sessions = Sessions(defaults=Budgets(tokens=100))
    sessions.debit(request("other", session_id="s", prompt_tokens=30))
    for asked in (
        request(session_id="s", prompt_tokens=70),
        request(session_id="s", prompt_tokens=71),
        request(device_mask="gpu9"),
    ):
        first = admit(asked, fleet, sessions)
        again = admit(asked, Fleet.restore(fleet.snapshot()), Sessions.restore(sessions.snapshot()))
        assert again == first
        assert again.decision.encode() == first.decision.encode()
