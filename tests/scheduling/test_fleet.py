"""The fleet: what it takes in, slots counted from live leases, pools, sets, partitions, checkpoints and its digest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.canon import decode, encode
from detent.errors import InvalidInput, InvariantBroken, Refused
from detent.scheduling.fleet import Fleet
from detent.scheduling.placement import place
from tests.scheduling.fleets import replica, request


def ids(fleet: Fleet) -> list[str]:
    return [status.replica_id for status in fleet]


def active(fleet: Fleet, replica_id: str = "r1") -> int:
    status = fleet.get(replica_id)
    assert status is not None
    return status.placement.active_slots


def test_replicas_stand_in_the_contracts_order() -> None:
    """OC-CORE-1012, OC-CORE-1017, X-089"""
    fleet = Fleet(
        [
            replica("c", free_vram_mb=10, active_slots=1),
            replica("b", free_vram_mb=10),
            replica("a", free_vram_mb=10),
            replica("more-memory-and-more-slots", free_vram_mb=11, active_slots=2),
        ]
    )
    assert ids(fleet) == ["more-memory-and-more-slots", "a", "b", "c"]


def test_packing_stands_in_the_opposite_order() -> None:
    fleet = Fleet(
        [
            replica("big", free_vram_mb=11),
            replica("b", free_vram_mb=10),
            replica("a", free_vram_mb=10),
            replica("busy", free_vram_mb=10, active_slots=1),
        ],
        order="pack",
    )
    assert ids(fleet) == ["busy", "a", "b", "big"]


@pytest.mark.parametrize("wrong", ["", "random", "Pack", None, ["pack"]])
def test_an_unknown_order_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="least-loaded, pack"):
        Fleet(order=wrong)


def test_a_replica_is_registered_once() -> None:
    fleet = Fleet([replica("r1")])
    before = encode(fleet.snapshot())
    refusal = fleet.register(replica("r1", free_vram_mb=5))
    assert isinstance(refusal, Refused)
    assert refusal.code == "INVALID_PARAMS"
    assert "registered already" in refusal.message
    assert encode(fleet.snapshot()) == before
    with pytest.raises(InvalidInput, match="registered already"):
        Fleet([replica("r1"), replica("r1")])


def test_an_unknown_replica_cannot_be_changed() -> None:
    fleet = Fleet()
    for refusal in (fleet.update(replica("r1")), fleet.set_ready("r1", True), fleet.remove("r1")):
        assert isinstance(refusal, Refused)
        assert refusal.code == "INVALID_PARAMS"
    assert len(fleet) == 0


def test_a_report_moves_a_replica_and_leaves_its_leases() -> None:
    fleet = Fleet([replica("r1"), replica("r2", free_vram_mb=900)])
    fleet.lease("r1", "job-1")
    assert fleet.update(replica("r1", free_vram_mb=100)) is None
    assert ids(fleet) == ["r2", "r1"]
    assert active(fleet) == 1


def test_slots_are_the_live_leases_and_what_a_replica_reports_beside_them() -> None:
    """CORE-X017"""
    fleet = Fleet([replica("r1", max_slots=3, active_slots=1)])
    fleet.lease("r1", "job-1")
    fleet.lease("r1", "job-2")
    assert active(fleet) == 3
    with pytest.raises(InvariantBroken, match="no free slot"):
        fleet.lease("r1", "job-3")
    assert fleet.release("job-1")
    assert not fleet.release("job-1")
    assert active(fleet) == 2
    assert fleet.leases() == {"job-2": "r1"}


def test_a_job_holds_one_lease_on_a_known_replica() -> None:
    fleet = Fleet([replica("r1", max_slots=3)])
    fleet.lease("r1", "job-1")
    with pytest.raises(InvariantBroken):
        fleet.lease("r1", "job-1")
    with pytest.raises(InvariantBroken):
        fleet.lease("r2", "job-2")


def test_the_slot_of_a_cancelled_job_stays_taken_until_its_worker_confirms() -> None:
    """CORE-X017, X-092"""
    fleet = Fleet([replica("r1", max_slots=1)])
    fleet.lease("r1", "job-1")
    assert fleet.cancel("job-1", lapse_tick=100)
    assert place(request(), fleet).kind == "waiting"
    assert fleet.lapse(99) == ()
    assert fleet.release("job-1")
    assert place(request(), fleet).replica_id == "r1"
    assert fleet.lapse(100) == ()


def test_the_slot_of_a_cancelled_job_comes_back_when_its_lease_would_have_lapsed() -> None:
    """CORE-X017, X-092"""
    fleet = Fleet([replica("r1", max_slots=3)])
    for number, tick in ((1, 20), (2, 10), (3, 21)):
        fleet.lease("r1", f"job-{number}")
        fleet.cancel(f"job-{number}", lapse_tick=tick)
    assert fleet.lapse(20) == ("job-2", "job-1")
    assert fleet.leases() == {"job-3": "r1"}
    assert active(fleet) == 1
    assert not fleet.cancel("job-1", lapse_tick=30)


def test_a_replica_that_comes_back_finds_its_leases() -> None:
    """CORE-X017"""
    fleet = Fleet([replica("r1", max_slots=1)])
    fleet.lease("r1", "job-1")
    fleet.remove("r1")
    assert "r1" not in fleet
    fleet.register(replica("r1", max_slots=1))
    assert place(request(), fleet).kind == "waiting"
    fleet.release("job-1")
    assert place(request(), fleet).replica_id == "r1"


def test_a_replica_that_lowers_its_limit_below_its_leases_is_full() -> None:
    """CORE-X017"""
    fleet = Fleet([replica("r1", max_slots=2)])
    fleet.lease("r1", "job-1")
    fleet.lease("r1", "job-2")
    fleet.update(replica("r1", max_slots=1))
    assert active(fleet) == 1
    fleet.release("job-1")
    assert place(request(), fleet).kind == "waiting"
    fleet.release("job-2")
    assert place(request(), fleet).kind == "placed"


def test_a_pool_is_ready_when_one_of_its_replicas_is() -> None:
    """CORE-X005"""
    fleet = Fleet(
        [
            replica("r1", pool_id="a", ready=False),
            replica("r2", pool_id="a", ready=True),
            replica("r3", pool_id="b", ready=False),
        ]
    )
    assert fleet.pools() == ["a", "b"]
    assert [fleet.pool_ready(pool) for pool in ("a", "b", "c")] == [True, False, None]
    fleet.set_ready("r2", False)
    fleet.set_ready("r3", True)
    assert [fleet.pool_ready(pool) for pool in ("a", "b")] == [False, True]
    fleet.remove("r3")
    assert fleet.pool_ready("b") is None
    fleet.update(replica("r2", pool_id="c", ready=True))
    assert [fleet.pool_ready(pool) for pool in ("a", "c")] == [False, True]


@pytest.mark.parametrize(
    "changes", [{"engine_version": "2"}, {"sampler_profile_version": "s2"}, {"engine": "vllm"}], ids=str
)
def test_mixed_replicas_never_share_a_set(changes: dict[str, Any]) -> None:
    """OC-CORE-1031b"""
    fleet = Fleet([replica("r1"), replica("r2")])
    before = encode(fleet.snapshot())
    for refusal in (fleet.register(replica("r3", **changes)), fleet.update(replica("r2", **changes))):
        assert isinstance(refusal, Refused)
        assert "pinned" in refusal.message
    assert encode(fleet.snapshot()) == before
    assert fleet.register(replica("r3", replica_set_id="set-2", **changes)) is None


def test_a_set_is_pinned_as_long_as_it_has_another_member() -> None:
    """OC-CORE-1031b"""
    fleet = Fleet([replica("r1"), replica("r2")])
    fleet.remove("r2")
    assert fleet.update(replica("r1", engine_version="2")) is None
    assert isinstance(fleet.register(replica("r2")), Refused)
    assert fleet.register(replica("r2", engine_version="2")) is None


def test_a_fleet_takes_no_replica_of_another_partition() -> None:
    """X-045"""
    left, right = (Fleet(partition_id=number, partitions=2) for number in (0, 1))
    mine, theirs = replica("r1", partition_id=0), replica("r2", partition_id=1)
    assert isinstance(left.register(theirs), Refused)
    assert isinstance(right.register(mine), Refused)
    assert left.register(mine) is None
    assert right.register(theirs) is None
    assert ids(left) == ["r1"]
    assert ids(right) == ["r2"]
    assert left.pools() == right.pools() == ["pool-a"]
    with pytest.raises(InvalidInput, match="partition_id"):
        Fleet(partition_id=2, partitions=2)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["register", "update", "ready", "remove", "lease", "cancel", "release", "lapse"]),
        st.integers(0, 5),
        st.integers(0, 9),
        st.integers(0, 3),
    ),
    max_size=60,
)


def change(fleet: Fleet, step: tuple[str, int, int, int], tick: int) -> None:
    """Apply one random change, leaving out what the owner would never ask for."""
    what, who, job, value = step
    replica_id, job_id = f"r{who}", f"job-{job}"
    status = replica(replica_id, free_vram_mb=value * 100, max_slots=1 + value % 3, ready=value != 1)
    if what == "register":
        fleet.register(status)
    elif what == "update":
        fleet.update(status)
    elif what == "ready":
        fleet.set_ready(replica_id, bool(value % 2))
    elif what == "remove":
        fleet.remove(replica_id)
    elif what == "lease":
        known = fleet.get(replica_id)
        if known and job_id not in fleet.leases() and known.placement.active_slots < known.max_slots:
            fleet.lease(replica_id, job_id)
    elif what == "cancel":
        fleet.cancel(job_id, tick + value)
    elif what == "release":
        fleet.release(job_id)
    else:
        fleet.lapse(tick)


@given(CHANGES)
def test_a_fleet_rebuilt_from_replicas_and_live_leases_is_the_same_fleet(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """CORE-X017, X-092"""
    fleet = Fleet()
    for tick, step in enumerate(steps):
        change(fleet, step, tick)
        again = Fleet.restore(decode(encode(fleet.snapshot())))
        assert again.snapshot() == fleet.snapshot()
        assert again.digest() == fleet.digest()
        assert list(again) == list(fleet)
        assert [again.pool_ready(pool) for pool in ("pool-a", "x")] == [
            fleet.pool_ready(pool) for pool in ("pool-a", "x")
        ]
    for status in fleet:
        leases = sum(1 for replica_id in fleet.leases().values() if replica_id == status.replica_id)
        assert status.placement.active_slots == min(leases, status.max_slots)


@given(CHANGES)
def test_a_restored_fleet_goes_on_as_if_nothing_had_happened(steps: list[tuple[str, int, int, int]]) -> None:
    """CORE-X017"""
    whole, halves = Fleet(), Fleet()
    for tick, step in enumerate(steps):
        change(whole, step, tick)
        change(halves, step, tick)
        if tick == len(steps) // 2:
            halves = Fleet.restore(halves.snapshot())
    assert encode(whole.snapshot()) == encode(halves.snapshot())
    assert whole.digest() == halves.digest()


def test_the_digest_sees_every_change_and_no_history() -> None:
    """X-181"""
    fleet = Fleet([replica("r1"), replica("r2")])
    first = fleet.digest()
    seen = {first}
    changes: list[Callable[[], object]] = [
        lambda: fleet.lease("r1", "job-1"),
        lambda: fleet.set_ready("r2", False),
        lambda: fleet.update(replica("r2", free_vram_mb=1)),
        lambda: fleet.remove("r2"),
        lambda: fleet.remove("r1"),
    ]
    for change_it in changes:
        change_it()
        assert fleet.digest() not in seen
        seen.add(fleet.digest())
    assert fleet.digest() == Fleet().digest()
    fleet.release("job-1")
    fleet.register(replica("r2"))
    fleet.register(replica("r1"))
    assert fleet.digest() == first


def test_the_digest_of_many_replicas_does_not_depend_on_who_came_first() -> None:
    """X-181"""
    replicas = [replica(f"r{number:03}") for number in range(600)]
    assert Fleet(replicas).digest() == Fleet(reversed(replicas)).digest()
    assert Fleet(replicas).digest() != Fleet(replicas[1:]).digest()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"order": "random"},
        {"replicas": {}},
        {"replicas": [1]},
        {"leases": [["job-1", "r1"]]},
        {"leases": [["job-1", "r1", None], ["job-1", "r1", None]]},
        {"leases": [["", "r1", None]]},
        {"leases": [["job-1", "r1", -1]]},
        {"leases": [["job-2", "r1", None], ["job-1", "r1", None]]},
        {"extra": 1},
    ],
    ids=str,
)
def test_a_snapshot_that_no_fleet_gave_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Fleet.restore({**Fleet([replica("r1")]).snapshot(), **changes})
