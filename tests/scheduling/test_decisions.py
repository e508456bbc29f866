"""Decision records: bounded, canonical, made again from their inputs, and told in plain words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detent.canon import encode, sha256
from detent.errors import CODES, InvalidInput, InvariantBroken, Refused
from detent.kernel import Evidence
from detent.scheduling import decisions
from detent.scheduling.admission import admit
from detent.scheduling.decisions import (
    DECISION_BYTES_MAX,
    KINDS,
    Candidate,
    Decision,
    evicted,
    refused,
    waits_behind,
)
from detent.scheduling.explain import explain_lines
from detent.scheduling.fleet import Fleet
from detent.scheduling.placement import place, recompute
from detent.scheduling.queues import Position
from detent.scheduling.sessions import Budgets, Sessions
from tests.scheduling.fleets import needs, replica, request

PLACE = Position(priority=5, arrival=41, place=3, before=7)


def fleet() -> Fleet:
    return Fleet(
        [
            replica("best", free_vram_mb=3000),
            replica("second", free_vram_mb=2000),
            replica("full", free_vram_mb=9000, active_slots=2),
            replica("off", ready=False),
            replica("elsewhere", device_mask="gpu1"),
        ]
    )


def examples() -> dict[str, Decision]:
    """One decision of each kind."""
    sessions = Sessions(defaults=Budgets(tokens=50))
    asked = request(session_id="s", device_mask="gpu0", prompt_tokens=20)
    answers = [admit(asked, fleet(), sessions), admit(replace(asked, prompt_tokens=60), fleet(), sessions)]
    return {
        "admitted": answers[0].decision,
        "refused": answers[1].decision,
        "evicted": evicted("job-1", "DROPPED_LRU", "job-2", PLACE),
        "placed": place(asked, fleet(), sessions),
        "waiting": replace(place(asked, Fleet([replica("off", ready=False)]), sessions), queue=PLACE),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_decision_comes_back_from_its_bytes(kind: str) -> None:
    decision = examples()[kind]
    assert decision.kind == kind
    assert Decision.decode(decision.encode()) == decision
    assert Decision.decode(decision.encode()).encode() == decision.encode()
    assert decision.digest() == sha256(decision.encode())


def test_a_decision_justifies_a_dispatch_by_its_digest() -> None:
    """CORE-X012"""
    decision = examples()["placed"]
    evidence = Evidence("dispatch", "DISPATCHED", replica_id=decision.replica_id, detail_digest=decision.digest())
    assert evidence.fault() is None


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "guessed"},
        {"version": 2},
        {"version": True},
        {"extra": 1},
        {"counts": {"pin": 1}},
        {"counts": None},
        {"candidates": [["r1"]]},
        {"candidates": 1},
        {"queue": {"priority": 1}},
        {"facts": []},
        {"facts": {"tick": True}},
        {"message": ""},
        {"message": 5},
        {"job_id": 5},
        {"reason": b"x"},
        {"replica_id": 5},
        {"order": 5},
        {"fleet_digest": "x"},
        {"candidate_count": "x"},
        {"feasible_unready": True},
        {"budget_left": {"tokens": "many"}},
        {"candidates": [["r1", 1, 1, "luck"]]},
        {"candidates": [["r1", "1", 1, None]]},
        {"candidates": [[5, 1, 1, None]]},
        {"counts": dict.fromkeys(decisions.STAGES, "1")},
        {"queue": {"priority": "5", "arrival": 1, "place": 1, "before": 1}},
    ],
    ids=str,
)
def test_what_is_no_decision_is_not_read(changes: dict[str, Any]) -> None:
    body = {**examples()["placed"].to_map(), **changes}
    with pytest.raises(InvalidInput):
        Decision.from_map(body)
    with pytest.raises(InvalidInput):
        Decision.decode(encode(body))


@pytest.mark.parametrize("name", ["kind", "job_id", "reason", "version"])
def test_a_decision_without_a_head_is_not_read(name: str) -> None:
    body = examples()["placed"].to_map()
    del body[name]
    with pytest.raises(InvalidInput):
        Decision.from_map(body)


def test_a_decision_about_ten_thousand_replicas_stays_small() -> None:
    """X-181"""
    name = "replica-with-a-name-as-long-as-it-may-be".ljust(195, "x")
    wide = Fleet(
        replica(f"{name}{number:05}", pool_id="p" * 200, ready=number % 7 > 0, device_mask=f"gpu{number % 8}")
        for number in range(10_000)
    )
    asked = request("j" * 200, session_id="s" * 200, requirements=needs(extensions=()), pool="p" * 200)
    sessions = Sessions(defaults=Budgets(2**64 - 1, 2**64 - 1, 2**64 - 1))
    sessions.succeeded("s" * 200, f"{name}09999")
    placed, answer = place(asked, wide, sessions), admit(asked, wide, sessions)
    assert len(placed.candidates) == 16
    assert placed.candidate_count + sum(placed.counts[:-1]) == 10_000
    for decision in (placed, answer.decision):
        assert len(replace(decision, queue=PLACE, message="m" * 400).encode()) < DECISION_BYTES_MAX == 8192


def test_a_refusal_keeps_a_bounded_part_of_what_it_was_told() -> None:
    """X-181"""
    details = {f"name-{number}": "x" * 5000 for number in range(50)} | {"a-list": [1], "a-number": 7}
    decision = refused("job-1", Refused("QUEUE_FULL", "m" * 5000, details))
    assert len(decision.encode()) < DECISION_BYTES_MAX
    assert len(decision.message) == 400
    assert len(decision.facts) == 15
    assert dict(decision.facts)["a-number"] == 7
    assert Decision.decode(decision.encode()) == decision


def test_a_decision_beyond_the_bound_is_our_own_mistake() -> None:
    """X-181"""
    with pytest.raises(InvariantBroken, match="8192"):
        Decision("placed", "job-1", "x", candidates=tuple(Candidate("r" * 200, 1, 1) for _ in range(100))).encode()


def test_a_placement_made_again_from_its_inputs_has_the_same_bytes() -> None:
    """X-181"""
    wide, sessions = fleet(), Sessions()
    sessions.succeeded("s", "second")
    for asked in (request(), request(session_id="s"), request(pool="pool-a"), request(device_mask="gpu9")):
        decision = place(asked, wide, sessions)
        again = recompute(asked, wide.snapshot(), last_good=decision.last_good)
        assert again.encode() == decision.encode()
    wide.lease("best", "job-9")
    assert recompute(request(), wide.snapshot()).fleet_digest != place(request(), fleet()).fleet_digest


def test_an_admission_is_told_in_words() -> None:
    assert explain_lines(examples()["admitted"]) == [
        "Job job-1 was admitted to pool pool-a: the best replica that could run it is there.",
        "5 replicas were looked at: 1 not ready, 1 outside the device mask, 1 without room now; 2 could take it.",
        "Of those not ready, 1 could otherwise take it.",
        "Their order: most free memory first, then fewest taken slots, then name.",
        "  1. best: 3000 MB free, 0 slots taken",
        "  2. second: 2000 MB free, 0 slots taken",
        "  3. full: 9000 MB free, 2 slots taken, without room now",
        "Its session had left: 50 tokens.",
    ]


def test_a_placement_is_told_in_words() -> None:
    assert explain_lines(examples()["placed"])[::4] == [
        "Job job-1 was placed on replica best of pool pool-a: it came first in order.",
        "  1. best: 3000 MB free, 0 slots taken, chosen",
    ]
    sessions = Sessions()
    sessions.succeeded("s", "second")
    lines = explain_lines(place(request(session_id="s"), fleet(), sessions))
    assert lines[0] == "Job job-1 was placed on replica second of pool pool-a: its session last succeeded there."
    assert lines[1].startswith("5 replicas were looked at: 1 not ready, ")
    assert "2 passed over, because the session stays where it last succeeded; 3 could take it." in lines[1]
    assert lines[4] == "  1. second: 2000 MB free, 0 slots taken, chosen"
    assert lines[5].endswith(
        "3000 MB free, 0 slots taken, passed over, because the session stays where it last succeeded"
    )


def test_a_wait_is_told_in_words() -> None:
    assert explain_lines(examples()["waiting"]) == [
        "Job job-1 waits: no replica that could take it is ready.",
        "1 replica was looked at: 1 not ready; 0 could take it.",
        "Of those not ready, 1 could otherwise take it.",
        "It was number 3 in class 5, with 7 jobs before it.",
    ]
    assert explain_lines(waits_behind("job-1", "pool-a", PLACE)) == [
        "Job job-1 waits in pool pool-a: earlier jobs of its class go first.",
        "It was number 3 in class 5, with 7 jobs before it.",
    ]


def test_refusal_and_eviction_are_told_in_words() -> None:
    told = examples()
    assert explain_lines(told["refused"]) == [
        "Job job-1 was refused (SESSION_BUDGET_EXCEEDED): the tokens budget of session 's' has 50 left, 60 are needed.",
        "Its session had left: 50 tokens.",
    ]
    assert explain_lines(told["evicted"]) == [
        "Job job-1 lost its place in the queue to job job-2 (DROPPED_LRU: dropped to make room, oldest first).",
        "It was number 3 in class 5, with 7 jobs before it.",
    ]


def test_a_decision_of_a_later_version_is_told_as_far_as_it_goes() -> None:
    """An unknown reason or a missing fact is no crash in front of the user."""
    for kind in KINDS:
        (line,) = explain_lines(Decision(kind, "job-1", "SOMETHING_NEW"))
        assert "job-1" in line
        assert "SOMETHING_NEW" in line or kind == "placed"


def test_more_candidates_than_are_shown_are_told_of() -> None:
    wide = Fleet(replica(f"r{number:02}") for number in range(20))
    assert explain_lines(place(request(), wide))[-1] == "  and 4 more that could have taken it"


def test_every_reason_has_words() -> None:
    """CORE-X012"""
    for reason in (decisions.NO_FREE_SLOT, decisions.NOT_READY, decisions.NO_FEASIBLE_REPLICA, decisions.NOT_FIRST):
        assert reason not in explain_lines(Decision("waiting", "job-1", reason))[0]
    for reason in (decisions.PINNED, decisions.BEST_POOL, decisions.FEASIBLE_POOL):
        assert reason not in explain_lines(Decision("admitted", "job-1", reason, pool_id="a"))[0]
    assert set(decisions.KINDS) == set(examples())
    for order in ("least-loaded", "pack"):
        assert "then name" in explain_lines(place(request(), Fleet([replica()], order=order)))[2]
    assert {"DROPPED_LRU", "SHED_LOW_PRIORITY", "LEASE_EXPIRED", "WATCHDOG_IDLE"} <= set(CODES)
