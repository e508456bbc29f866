"""Placement against a plain model: filter every replica one after the other, then sort what is left."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode
from detent.scheduling import index
from detent.scheduling.decisions import STAGES
from detent.scheduling.fleet import Fleet
from detent.scheduling.placement import place, recompute, stages
from detent.scheduling.sessions import Sessions
from detent.scheduling.types import ReplicaStatus, TaskRequest
from tests.scheduling.fleets import needs, replica, request

MASKS = ["gpu0", "gpu1", "gpu0,gpu1", None]
REPLICAS: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    pool_id=st.sampled_from(["a", "b"]),
    engine=st.sampled_from(["llama", "generic"]),
    free_vram_mb=st.integers(0, 3),
    ctx_max_supported=st.sampled_from([100, 200]),
    features=st.sampled_from([(), ("x",), ("x", "y")]),
    ready=st.sampled_from([True, True, True, False]),
    device_mask=st.sampled_from(MASKS),
    max_slots=st.integers(1, 2),
    model_id=st.sampled_from(["m", "m", "n"]),
    sampler_profile_version=st.sampled_from(["s1", "s2"]),
)
REQUESTS = st.builds(
    request,
    requirements=st.one_of(
        st.none(),
        st.builds(
            needs,
            model_id=st.sampled_from(["m", "m", "n"]),
            ctx_max=st.sampled_from([100, 200]),
            extensions=st.sampled_from([(), ("x",)]),
        ),
    ),
    pool=st.sampled_from([None, None, "a", "b"]),
    device_mask=st.sampled_from(MASKS),
    engine=st.sampled_from([None, None, "llama"]),
    sampler_profile_version=st.sampled_from([None, None, "s1"]),
    session_id=st.sampled_from([None, "s"]),
    vram_mb=st.sampled_from([None, 1, 2]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 7), REPLICAS),
        st.tuples(st.just("ready"), st.integers(0, 7), st.booleans()),
        st.tuples(st.just("remove"), st.integers(0, 7), st.none()),
        st.tuples(st.just("place"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 15), st.integers(0, 9)),
        st.tuples(st.just("release"), st.integers(0, 15), st.none()),
        st.tuples(st.just("good"), st.integers(0, 7), st.none()),
    ),
    max_size=60,
)


def status_of(number: int, changes: dict[str, Any]) -> ReplicaStatus:
    """A replica in a set of its own kind, so that no set is mixed."""
    set_id = f"{changes['engine']}-{changes['sampler_profile_version']}"
    return replica(f"r{number}", replica_set_id=set_id, model_digest=None, **changes)


def removed_by(status: ReplicaStatus, asked: TaskRequest) -> str | None:
    """The first filter, in the contract's order and words, that removes a replica."""
    placement, wanted = status.placement, asked.requirements
    inside = status.device_mask is not None and set(status.device_mask.split(",")) <= set(
        (asked.device_mask or "").split(",")
    )
    model = placement.engine == "generic" if wanted is None else status.model_id == wanted.model_id
    engine = asked.engine is None or placement.engine == asked.engine
    sampler = asked.sampler_profile_version in (None, status.sampler_profile_version)
    tests = {
        "pin": asked.pin is None or placement.pool_id == asked.pin.pool_id,
        "readiness": status.ready,
        "device_mask": asked.device_mask is None or inside,
        "engine_model": model and engine and sampler,
        "context": wanted is None or placement.ctx_max_supported >= wanted.ctx_max,
        "features": wanted is None or set(wanted.extensions) <= set(placement.features),
        "free_slot": placement.active_slots < status.max_slots and placement.free_vram_mb >= (asked.vram_mb or 0),
    }
    return next((name for name, passed in tests.items() if not passed), None)


def sort_key(status: ReplicaStatus, order: str) -> tuple[int, int, str]:
    vram, slots = status.placement.free_vram_mb, status.placement.active_slots
    return (-vram, slots, status.replica_id) if order == "least-loaded" else (vram, -slots, status.replica_id)


def check(asked: TaskRequest, fleet: Fleet, sessions: Sessions, replicas: dict[str, ReplicaStatus]) -> str | None:
    """Hold one placement against the model; returns the replica chosen."""
    decision = place(asked, fleet, sessions)
    fates = {replica_id: removed_by(status, asked) for replica_id, status in replicas.items()}
    passed = sorted(
        (status for replica_id, status in replicas.items() if fates[replica_id] is None),
        key=lambda status: sort_key(status, fleet.order),
    )
    chosen = passed[0].replica_id if passed else None
    last = sessions.last_good("s") if asked.session_id else None
    kept = any(status.replica_id == last for status in passed)
    if kept:
        chosen = last
    counts = {stage: sum(1 for fate in fates.values() if fate == stage) for stage in STAGES}
    counts["affinity"] = len(passed) - 1 if kept else 0
    assert decision.replica_id == chosen
    assert dict(zip(STAGES, decision.counts, strict=True)) == counts
    assert decision.candidate_count == len(passed)
    assert {one.replica_id: one.removed_by for one in stages(asked, fleet)} == fates
    assert recompute(asked, decode(encode(fleet.snapshot())), last_good=last).encode() == decision.encode()
    shown = [one.replica_id for one in decision.candidates if one.removed_by != "free_slot"]
    ranked = [status.replica_id for status in passed]
    assert shown == ([chosen, *(name for name in ranked if name != chosen)] if kept else ranked)[:16]
    return chosen


@pytest.mark.parametrize("order", ["least-loaded", "pack"])
@given(first=st.lists(REPLICAS, min_size=5, max_size=8), asked=st.lists(REQUESTS, min_size=3, max_size=3), steps=STEPS)
def test_placement_is_filter_then_sort_whatever_happened_before(
    order: str, first: list[dict[str, Any]], asked: list[TaskRequest], steps: list[tuple[str, int, Any]]
) -> None:
    """OC-CORE-1010, OC-CORE-1011a, OC-CORE-1012, OC-CORE-1016a, OC-CORE-1016b, OC-CORE-1017, CORE-X017, CORE-X019"""
    fleet, sessions = Fleet(map(status_of, range(8), first), order=order), Sessions()
    leases = 0
    for tick, (what, number, value) in enumerate(steps):
        if what == "put":
            status = status_of(number, value)
            assert (fleet.update if f"r{number}" in fleet else fleet.register)(status) is None
        elif what == "ready":
            fleet.set_ready(f"r{number}", value)
        elif what == "remove":
            fleet.remove(f"r{number}")
        elif what == "cancel":
            fleet.cancel(f"job-{number}", tick + value)
        elif what == "release":
            fleet.release(f"job-{number}")
        elif what == "good":
            sessions.succeeded("s", f"r{number}")
        fleet.lapse(tick)
        replicas = {status.replica_id: status for status in fleet}
        if what == "place":
            chosen = check(asked[number], fleet, sessions, replicas)
            if chosen is not None and value:
                fleet.lease(chosen, f"job-{leases}")
                leases += 1
    for one in asked:
        check(one, fleet, sessions, {status.replica_id: status for status in fleet})


@given(first=st.lists(REPLICAS, min_size=3, max_size=8), asked=REQUESTS, steps=STEPS)
def test_two_fleets_fed_the_same_give_the_same_bytes(
    first: list[dict[str, Any]], asked: TaskRequest, steps: list[tuple[str, int, Any]]
) -> None:
    """One of them is asked at every step, the other only at the end: what was asked leaves no trace."""
    often, once = (Fleet(map(status_of, range(8), first)) for _ in range(2))
    sessions = Sessions()
    for what, number, value in steps:
        for fleet in (often, once):
            if what == "put":
                (fleet.update if f"r{number}" in fleet else fleet.register)(status_of(number, value))
            elif what == "ready":
                fleet.set_ready(f"r{number}", value)
            elif what == "remove":
                fleet.remove(f"r{number}")
        place(asked, often, sessions)
    assert place(asked, often, sessions).encode() == place(asked, once, sessions).encode()


@pytest.mark.parametrize(("views", "log"), [(1, 4096), (64, 6), (1, 3)])
def test_a_view_that_was_forgotten_or_fell_behind_is_built_again(
    views: int, log: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of the caches change no answer."""
    monkeypatch.setattr(index, "VIEWS_MAX", views)
    monkeypatch.setattr(index, "LOG_MAX", log)
    fleet, sessions = Fleet(replica(f"r{number:03}") for number in range(120)), Sessions()
    asked = [request(vram_mb=need) for need in (None, 500, 1500)]
    for step in range(40):
        fleet.update(replica(f"r{step * 7 % 120:03}", free_vram_mb=step * 40, ready=step % 5 != 0))
        if step % 4 == 0:
            check(asked[step % 3], fleet, sessions, {status.replica_id: status for status in fleet})
            assert len(fleet.index._views) <= views
            assert len(fleet.index._log) <= log


def test_what_no_replica_looks_like_any_more_is_forgotten() -> None:
    """A replica that reports another limit every time leaves no trail."""
    fleet = Fleet([replica("r1")])
    for limit in range(4096, 6096):
        fleet.update(replica("r1", ctx_max_supported=limit))
        assert place(request(), fleet).replica_id == "r1"
    (view,) = fleet.index._views.values()
    assert len(view.verdicts) < 200
