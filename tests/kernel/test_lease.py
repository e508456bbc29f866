"""Leases: when they start, how a heartbeat extends them, when they are lost."""

from __future__ import annotations

import pytest

from detent.errors import InvariantBroken
from detent.kernel import Claim, Heartbeat, LeasePolicy, Resume
from tests.kernel.builders import NO_LEASE, Scene, code_of, config, evidence_of, scene_in


def test_a_lease_starts_with_the_dispatch_and_lasts_its_time() -> None:
    """PIPE-043, PIPE-058, PIPE-088"""
    scene = Scene()
    scene.tick = 7
    grant = scene.start()
    job = scene.live()
    assert (grant.lease_expiry, job.lease_expiry, job.heartbeat_tick, job.lease_holder) == (107, 107, 7, "worker-1")


@pytest.mark.parametrize(("tick", "state"), [(106, "RUNNING"), (107, "RETRYING"), (108, "RETRYING")])
def test_a_lease_is_lost_at_its_expiry_tick_and_not_before(tick: int, state: str) -> None:
    """PIPE-088, PIPE-089"""
    scene = Scene()
    scene.tick = 7
    scene.start()
    scene.at(tick)
    assert scene.job().state == state


@pytest.mark.parametrize(("tick", "code", "expiry"), [(99, None, 159), (100, "LEASE_INVALID", None)])
def test_a_heartbeat_counts_until_the_tick_before_expiry(tick: int, code: str | None, expiry: int | None) -> None:
    """PIPE-073, PIPE-074, X-057"""
    scene = Scene()
    grant = scene.start()
    scene.tick = tick
    assert code_of(scene.heartbeat(grant)) == code
    assert scene.job().lease_expiry == expiry


def test_a_heartbeat_never_shortens_a_lease() -> None:
    """PIPE-074: max(old expiry, tick + extension)"""
    scene = Scene()
    grant = scene.start()
    expiries = []
    for tick in (1, 39, 40, 41, 90):
        scene.tick = tick
        answer = scene.heartbeat(grant).heartbeat
        assert answer is not None
        assert answer.extended
        expiries.append(answer.lease_expiry)
    assert expiries == [100, 100, 100, 101, 150]


@pytest.mark.parametrize(
    ("beside", "granted", "extended"),
    [(LeasePolicy("remote", 300, 400), 300, 450), (LeasePolicy("remote", 9, 9), 100, 110), (None, 100, 110)],
    ids=["longer", "shorter", "not configured"],
)
def test_of_the_leases_of_a_job_and_of_a_claim_the_longer_one_counts(
    beside: LeasePolicy | None, granted: int, extended: int
) -> None:
    scene = Scene(config(lease_policies=(LeasePolicy("default", 100, 60), *([] if beside is None else [beside]))))
    assert scene.submit("job-1").ok
    (grant,) = scene.apply(Claim(0, "w-1/boot", 1, lease="remote")).grants
    assert (grant.lease_expiry, scene.live().lease_expiry) == (granted, granted)
    scene.tick = 50
    answer = scene.apply(Heartbeat(50, "job-1", grant.lease_id, lease="remote")).heartbeat
    assert answer is not None
    assert answer.lease_expiry == extended
    scene.apply(Resume(60, (("job-1", grant.lease_id, "remote"),)))
    assert scene.live().lease_expiry == extended + 10, "a stall of the owner does not shorten it"
    scene.at(extended + 9)
    assert scene.job().state == "RUNNING"
    scene.at(extended + 10)
    assert scene.job().state == "RETRYING"
    assert code_of(scene.apply(Heartbeat(scene.tick, "job-1", grant.lease_id, lease=""))) == "INVALID_PARAMS"


def test_a_heartbeat_at_the_tick_of_the_last_one_counts() -> None:
    """X-057: granting is heartbeat 0, and only an older tick changes nothing"""
    scene = Scene(config(lease_policies=(LeasePolicy("default", 10, 50),)))
    outcome = scene.heartbeat(scene.start())
    assert outcome.heartbeat is not None
    assert (outcome.heartbeat.extended, outcome.heartbeat.lease_expiry) == (True, 50)


def test_a_heartbeat_moves_no_sequence_and_writes_no_record() -> None:
    """PIPE-073, X-057"""
    scene = Scene()
    grant = scene.start()
    scene.tick = 50
    outcome = scene.heartbeat(grant)
    assert (outcome.records, outcome.events, outcome.recorded) == ([], [], True)
    assert outcome.heartbeat == ("job-1", grant.lease_id, 50, 110, True)
    assert scene.job().transition_seq == 1


def test_a_heartbeat_older_than_the_last_changes_nothing() -> None:
    """X-057"""
    scene = Scene()
    grant = scene.start()
    scene.tick = 50
    scene.heartbeat(grant)
    outcome = scene.heartbeat(grant, tick=49)
    assert outcome.heartbeat is not None
    assert (outcome.heartbeat.extended, outcome.heartbeat.lease_expiry, outcome.recorded) == (False, 110, False)
    assert scene.kernel.tick == 50


@pytest.mark.parametrize("state", ["QUEUED", "RETRYING", "SUCCEEDED", "FAILED", "CANCELED"])
def test_a_heartbeat_for_a_job_that_does_not_run_is_refused(state: str) -> None:
    """PIPE-073"""
    scene = scene_in(state)
    before = scene.job()
    lease_id = scene.bodies()[0]["lease_id"] if state != "QUEUED" else NO_LEASE
    assert code_of(scene.apply(Heartbeat(0, "job-1", lease_id))) == "LEASE_INVALID"
    assert scene.job() == before


def test_a_heartbeat_under_a_wrong_or_former_lease_is_refused() -> None:
    """PIPE-073"""
    scene = Scene()
    first = scene.start()
    scene.at(100)
    scene.at(110)
    (second,) = scene.claim()
    assert first.lease_id != second.lease_id
    expiry = scene.job().lease_expiry
    for lease_id in (first.lease_id, NO_LEASE):
        assert code_of(scene.apply(Heartbeat(120, "job-1", lease_id))) == "LEASE_INVALID"
    assert scene.job().lease_expiry == expiry
    assert code_of(scene.apply(Heartbeat(120, "job-2", second.lease_id))) == "UNKNOWN_JOB"


def test_a_beating_worker_keeps_its_lease_as_long_as_it_beats() -> None:
    """PIPE-058, PIPE-080"""
    scene = Scene()
    grant = scene.start()
    for tick in range(50, 1000, 50):
        scene.tick = tick
        assert scene.heartbeat(grant).ok
    scene.tick = 1009
    assert scene.finish(grant).ok
    assert scene.edges() == ["QUEUED->RUNNING", "RUNNING->SUCCEEDED"]


def test_an_expired_lease_leads_through_retrying_back_to_the_queue() -> None:
    """PIPE-080, PIPE-089, PIPE-110"""
    scene = Scene()
    scene.start()
    expired = scene.at(100)
    ready = scene.at(110)
    assert scene.edges() == ["QUEUED->RUNNING", "RUNNING->RETRYING", "RETRYING->QUEUED"]
    lost = evidence_of(expired.records[0])
    assert (lost.kind, lost.reason_code, lost.lease_id) == ("expiry", "LEASE_EXPIRED", scene.bodies()[0]["lease_id"])
    again = evidence_of(ready.records[0])
    assert (again.kind, again.reason_code) == ("retry_ready", "RETRY_READY")


def test_leases_named_in_a_resume_outlive_the_owners_own_stall() -> None:
    """X-180: after an hour of suspension no live worker loses its lease"""
    scene = Scene()
    alive = scene.start("job-1")
    scene.start("job-2")
    outcome = scene.apply(Resume(3_600_000, (("job-1", alive.lease_id), ("job-2", NO_LEASE), ("job-9", NO_LEASE))))
    assert scene.job("job-1").lease_expiry == 3_600_060
    assert scene.job("job-2").state == "RETRYING"
    assert [record.job_id for record in outcome.records] == ["job-2"]


def test_a_resume_without_heartbeats_is_only_time_passing() -> None:
    """X-180"""
    scene = Scene()
    scene.start()
    scene.apply(Resume(100))
    assert (scene.job().state, scene.kernel.tick) == ("RETRYING", 100)


def test_a_lease_that_would_end_beyond_64_bits_is_an_abort() -> None:
    """PIPE-025"""
    scene = Scene(config(lease_policies=(LeasePolicy("default", 2**64 - 1, 1),)))
    scene.tick = 1
    scene.submit()
    with pytest.raises(InvariantBroken, match="64 bits"):
        scene.claim()


def test_a_running_job_always_has_lease_and_heartbeat() -> None:
    """PIPE-058: the check after each command finds a job that has not"""
    for name in ("lease_id", "lease_expiry", "heartbeat_tick"):
        scene = Scene()
        scene.start()
        setattr(scene.live(), name, None)
        with pytest.raises(InvariantBroken, match="lease does not fit"):
            scene.kernel.check()
