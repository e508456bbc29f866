"""The operators' test vectors: what the contract wants, played step by step."""

from __future__ import annotations

import json
from typing import Any

import pytest

from detent.kernel import AdvanceTick, Evidence, Finish, Heartbeat, Outcome
from tests.golden.make import FOLDER
from tests.kernel.builders import NO_LEASE, Scene, code_of, config, queue_of

VECTORS: list[dict[str, Any]] = json.loads((FOLDER / "transitions.json").read_text(encoding="utf-8"))["vectors"]


def play(scene: Scene, step: dict[str, Any], leases: dict[str, bytes]) -> Outcome:
    """One step of a vector."""
    arguments = dict(step)
    action, job_id = arguments.pop("do"), arguments.pop("job_id", "job-1")
    scene.tick = arguments.pop("tick", scene.tick)
    lease_id = leases.get(job_id, NO_LEASE)
    if action == "submit":
        if "retry_categories" in arguments:
            arguments["retry_categories"] = tuple(arguments["retry_categories"])
        return scene.submit(job_id, **arguments)
    if action == "claim":
        leases.update({grant.job_id: grant.lease_id for grant in scene.claim(**arguments)})
        return scene.outcomes[-1]
    if action == "advance":
        return scene.apply(AdvanceTick(scene.tick))
    if action == "heartbeat":
        return scene.apply(Heartbeat(scene.tick, job_id, lease_id))
    if action == "finish":
        return scene.apply(Finish(scene.tick, job_id, lease_id))
    if action == "fail":
        return scene.apply(Finish(scene.tick, job_id, lease_id, ok=False, reason_code="TASK_FAILED", **arguments))
    if action == "cancel":
        return scene.cancel(job_id, **arguments)
    assert action == "transition"
    if arguments.pop("without_lease", False):
        arguments["evidence"] = Evidence("cancel", "CANCELLED_BY_USER").encode()
    return scene.transition(job_id, arguments.pop("from_state"), arguments.pop("to_state"), **arguments)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]).replace(" ", "-"))
def test_the_kernel_answers_as_the_vector_says(vector: dict[str, Any]) -> None:
    """PIPE-052..PIPE-055, PIPE-064, PIPE-077, PIPE-089..PIPE-091, PIPE-093, PIPE-096, PIPE-116, X-039, X-163"""
    scene = Scene(config(queue=queue_of(*vector.get("queue", [256]))))
    leases: dict[str, bytes] = {}
    outcome = [play(scene, step, leases) for step in vector["steps"]][-1]
    job = scene.job()
    assert {
        "status": outcome.status,
        "code": code_of(outcome),
        "state": job.state,
        "transition_seq": job.transition_seq,
        "attempt_id": job.attempt_id,
        "log": scene.edges(),
    } == vector["expect"]


def test_the_vectors_cover_all_36_pairs_retries_and_cancellations() -> None:
    """PIPE-116"""
    names = [vector["name"] for vector in VECTORS]
    assert len(names) == len(set(names))
    assert sum(" is legal" in name or " is illegal" in name for name in names) == 36
    text = " ".join(names)
    assert all(word in text for word in ("retry", "interruption", "expiry", "cancel", "conflict"))
