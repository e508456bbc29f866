"""Placement by table: each filter, their order, affinity, masks, packing, and what the decision says of it."""

from __future__ import annotations

from typing import Any

import pytest

from detent.errors import InvalidInput
from detent.kernel import partition_of
from detent.scheduling.decisions import STAGES, Decision
from detent.scheduling.fleet import Fleet
from detent.scheduling.placement import Remembered, place, stages
from detent.scheduling.sessions import Sessions
from tests.scheduling.fleets import generic, needs, replica, request


def counted(decision: Decision) -> dict[str, int]:
    return {stage: count for stage, count in zip(STAGES, decision.counts, strict=True) if count}


def sessions_of(replica_id: str, session_id: str = "s", *, affinity: bool = True) -> Sessions:
    sessions = Sessions(affinity=affinity)
    sessions.succeeded(session_id, replica_id)
    return sessions


def test_the_filters_run_in_the_contracts_order() -> None:
    """CORE-X019"""
    names = ("pin", "readiness", "device_mask", "engine_model", "context", "features", "free_slot", "affinity")
    assert names == STAGES


@pytest.mark.parametrize(
    ("changes", "stage"),
    [
        ({"pool_id": "pool-b", "ready": False}, "pin"),
        ({"ready": False, "device_mask": "gpu9"}, "readiness"),
        ({"device_mask": "gpu9", "model_id": "other"}, "device_mask"),
        ({"model_id": "other", "ctx_max_supported": 1}, "engine_model"),
        ({"ctx_max_supported": 4095, "features": ()}, "context"),
        ({"features": (), "active_slots": 2}, "features"),
        ({"active_slots": 2}, "free_slot"),
        ({}, "affinity"),
    ],
)
def test_a_replica_is_counted_by_the_first_filter_that_removes_it(changes: dict[str, Any], stage: str) -> None:
    """CORE-X019, X-085"""
    asked = request(
        pool="pool-a", device_mask="gpu0", session_id="s", requirements=needs(extensions=("mmproj",)), engine="llama"
    )
    loser = replica("loser", **{"features": ("mmproj",), "free_vram_mb": 9999, **changes})
    fleet = Fleet([replica("winner", features=("mmproj",)), loser])
    decision = place(asked, fleet, sessions_of("winner"))
    assert decision.replica_id == "winner"
    assert counted(decision) == {stage: 1}
    removed = {one.replica_id: one.removed_by for one in stages(asked, fleet)}
    assert removed == {"winner": None, "loser": None if stage == "affinity" else stage}


def test_only_ready_replicas_are_chosen() -> None:
    """OC-CORE-1010"""
    fleet = Fleet([replica("r1", ready=False)])
    decision = place(request(), fleet)
    assert (decision.kind, decision.reason, decision.replica_id) == ("waiting", "NOT_READY", None)
    fleet.set_ready("r1", True)
    assert place(request(), fleet).replica_id == "r1"


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("gpu0", "one"),
        ("gpu1", None),
        ("gpu0,gpu1", "both"),
        ("gpu0,gpu1,gpu2", "both"),
        (None, "both"),
        ("gpu9", None),
    ],
)
def test_a_replica_is_inside_a_mask_when_all_its_devices_are(mask: str | None, expected: str | None) -> None:
    """OC-CORE-1011a"""
    fleet = Fleet(
        [
            replica("one", device_mask="gpu0"),
            replica("both", device_mask="gpu0,gpu1", free_vram_mb=2000),
            replica("none", device_mask=None, free_vram_mb=10),
        ]
    )
    assert place(request(device_mask=mask), fleet).replica_id == expected


def test_a_task_waits_rather_than_leave_its_mask() -> None:
    """OC-CORE-1011b"""
    fleet = Fleet([replica("r1", max_slots=1), replica("r2", device_mask="gpu1", free_vram_mb=9999)])
    asked = request(device_mask="gpu0")
    assert place(asked, fleet).replica_id == "r1"
    fleet.lease("r1", "other")
    decision = place(asked, fleet)
    assert (decision.kind, decision.reason) == ("waiting", "NO_FREE_SLOT")
    assert counted(decision) == {"device_mask": 1, "free_slot": 1}
    fleet.release("other")
    assert place(asked, fleet).replica_id == "r1"


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"engine": "llama"}, True),
        ({"engine": "vllm"}, False),
        ({"requirements": needs(model_id="other")}, False),
        ({"requirements": needs(model_digest="sha256:aa")}, True),
        ({"requirements": needs(model_digest="sha256:bb")}, False),
        ({"sampler_profile_version": "s1"}, True),
        ({"sampler_profile_version": "s2"}, False),
    ],
    ids=str,
)
def test_engine_model_and_sampler_must_match_where_they_are_named(changes: dict[str, Any], fits: bool) -> None:
    """OC-CORE-1016c"""
    decision = place(request(**changes), Fleet([replica("r1")]))
    assert decision.replica_id == ("r1" if fits else None)
    assert counted(decision) == ({} if fits else {"engine_model": 1})


def test_a_replica_must_support_the_models_context() -> None:
    """OC-CORE-1016a, X-090"""
    fleet = Fleet([replica("r1", ctx_max_supported=4096)])
    assert place(request(requirements=needs(ctx_max=4096)), fleet).kind == "placed"
    assert counted(place(request(requirements=needs(ctx_max=4097)), fleet)) == {"context": 1}


@pytest.mark.parametrize(
    ("extensions", "fits"), [((), True), (("a",), True), (("a", "b"), True), (("c",), False), (("a", "b", "c"), False)]
)
def test_required_extensions_are_a_subset_of_the_features(extensions: tuple[str, ...], fits: bool) -> None:
    """OC-CORE-1016b"""
    decision = place(request(requirements=needs(extensions=extensions)), Fleet([replica("r1", features=("a", "b"))]))
    assert counted(decision) == ({} if fits else {"features": 1})


def test_a_job_without_a_model_runs_on_a_generic_replica_only() -> None:
    """X-093"""
    fleet = Fleet([replica("model", free_vram_mb=9999)])
    asked = request(requirements=None)
    assert counted(place(asked, fleet)) == {"engine_model": 1}
    fleet.register(generic("small", free_vram_mb=1))
    fleet.register(generic("large", free_vram_mb=2))
    assert place(asked, fleet).replica_id == "large"
    assert place(request(requirements=None, engine="llama"), fleet).kind == "waiting"
    assert place(request(), fleet).replica_id == "model"


def test_most_free_memory_decides_before_fewest_slots() -> None:
    """OC-CORE-1012, OC-CORE-1017, X-089"""
    fleet = Fleet([replica("busy", free_vram_mb=1001), replica("idle", free_vram_mb=1000)])
    fleet.lease("busy", "other")
    assert place(request(), fleet).replica_id == "busy"
    fleet.update(replica("busy", free_vram_mb=1000))
    assert place(request(), fleet).replica_id == "idle"
    fleet.release("other")
    assert place(request(), fleet).replica_id == "busy"


def test_packing_takes_the_least_free_memory_that_fits() -> None:
    replicas = [replica("tight", free_vram_mb=300), replica("right", free_vram_mb=500), replica("wide")]
    fleet = Fleet(replicas, order="pack")
    assert place(request(vram_mb=400), fleet).replica_id == "right"
    assert place(request(vram_mb=300), fleet).replica_id == "tight"
    assert place(request(), fleet).replica_id == "tight"
    assert place(request(vram_mb=501), fleet).replica_id == "wide"
    assert place(request(vram_mb=400), Fleet(replicas)).replica_id == "wide"


def test_a_job_that_says_its_need_waits_until_that_much_memory_is_free() -> None:
    fleet = Fleet([replica("r1", free_vram_mb=300)])
    decision = place(request(vram_mb=301), fleet)
    assert (decision.reason, counted(decision)) == ("NO_FREE_SLOT", {"free_slot": 1})
    fleet.update(replica("r1", free_vram_mb=301))
    assert place(request(vram_mb=301), fleet).replica_id == "r1"


def test_a_session_stays_where_it_last_succeeded() -> None:
    """OC-CORE-1013, X-085"""
    fleet = Fleet([replica("best", free_vram_mb=9999), replica("last"), replica("third", free_vram_mb=1)])
    decision = place(request(session_id="s"), fleet, sessions_of("last"))
    assert (decision.replica_id, decision.reason, decision.last_good) == ("last", "SESSION_AFFINITY", "last")
    assert counted(decision) == {"affinity": 2}
    assert [(one.replica_id, one.removed_by) for one in decision.candidates] == [
        ("last", None),
        ("best", "affinity"),
        ("third", "affinity"),
    ]
    assert place(request(session_id="t"), fleet, sessions_of("last")).replica_id == "best"
    assert place(request(), fleet, sessions_of("last")).replica_id == "best"


@pytest.mark.parametrize(
    "changes",
    [{"ready": False}, {"active_slots": 2}, {"device_mask": "gpu1"}, {"model_id": "other"}, {"pool_id": "pool-b"}],
    ids=str,
)
def test_a_session_moves_on_when_its_replica_cannot_take_it(changes: dict[str, Any]) -> None:
    """OC-CORE-1013, X-085"""
    fleet = Fleet([replica("best"), replica("last", **changes)])
    decision = place(request(session_id="s", device_mask="gpu0", pool="pool-a"), fleet, sessions_of("last"))
    assert (decision.replica_id, decision.reason) == ("best", "FIRST_IN_ORDER")


def test_affinity_can_be_switched_off() -> None:
    """OC-CORE-1013"""
    fleet = Fleet([replica("best", free_vram_mb=9999), replica("last")])
    assert place(request(session_id="s"), fleet, sessions_of("last", affinity=False)).replica_id == "best"


def test_affinity_does_not_reach_into_another_partition() -> None:
    """X-030"""
    job = next(name for name in map(str, range(100)) if partition_of(name, 2) == 0)
    mine = Fleet([replica("mine", partition_id=0)], partition_id=0, partitions=2)
    theirs = Fleet([replica("theirs", partition_id=1)], partition_id=1, partitions=2)
    decision = place(request(job, session_id="s"), mine, Remembered("theirs"))
    assert (decision.replica_id, decision.reason) == ("mine", "FIRST_IN_ORDER")
    with pytest.raises(InvalidInput, match="another partition") as caught:
        place(request(job), theirs)
    assert caught.value.code == "NOT_PARTITION_OWNER"


def test_the_pool_a_job_was_admitted_to_binds_it_like_a_pin() -> None:
    """OC-CORE-1018a, OC-CORE-1019b, X-087"""
    fleet = Fleet([replica("r1", pool_id="a"), replica("r2", pool_id="b", free_vram_mb=9999)])
    assert place(request(pool="a"), fleet).replica_id == "r1"
    assert place(request(), fleet, pool_id="a").replica_id == "r1"
    assert place(request(), fleet).replica_id == "r2"
    fleet.set_ready("r1", False)
    decision = place(request(), fleet, pool_id="a")
    assert (decision.kind, decision.reason, decision.pool_id) == ("waiting", "NOT_READY", "a")
    assert counted(decision) == {"pin": 1, "readiness": 1}


def test_a_decision_says_why_no_replica_took_the_job() -> None:
    """CORE-X012"""
    assert place(request(), Fleet()).reason == "NO_FEASIBLE_REPLICA"
    fleet = Fleet([replica("other", model_id="other"), replica("off", ready=False)])
    decision = place(request(), fleet)
    assert (decision.reason, decision.feasible_unready) == ("NOT_READY", 1)
    fleet.update(replica("off", ready=False, model_id="other"))
    assert place(request(), fleet).reason == "NO_FEASIBLE_REPLICA"


def test_a_decision_shows_the_best_sixteen_and_counts_the_rest() -> None:
    """CORE-X012, X-181"""
    fleet = Fleet(replica(f"r{number:02}", free_vram_mb=1000 - number) for number in range(20))
    fleet.register(replica("full", active_slots=2, free_vram_mb=5000))
    decision = place(request(), fleet)
    assert [one.replica_id for one in decision.candidates] == [f"r{number:02}" for number in range(16)]
    assert decision.candidates[3] == ("r03", 997, 0, None)
    assert decision.candidate_count == 20
    assert counted(decision) == {"free_slot": 1}


def test_those_that_lacked_only_room_are_shown_after_those_that_had_it() -> None:
    """CORE-X012"""
    fleet = Fleet([replica("open"), replica("full", active_slots=2, free_vram_mb=5000)])
    shown = [(one.replica_id, one.removed_by) for one in place(request(), fleet).candidates]
    assert shown == [("open", None), ("full", "free_slot")]


def test_placing_changes_nothing() -> None:
    fleet = Fleet([replica("r1"), replica("r2")])
    before = fleet.snapshot()
    first = place(request(), fleet)
    assert place(request(), fleet) == first
    assert fleet.snapshot() == before
