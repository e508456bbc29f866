"""The kernel and a small model of it, written from the contract, answer every command alike."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import Refused
from detent.kernel import Kernel
from tests.kernel.builders import TENANT, waiting_retries
from tests.kernel.model import ENDED, Model
from tests.kernel.walk import NUMBER_MAX, NUMBERS_PER_STEP, Numbers, Walk, numbers_from, walk_config

STEPS = st.lists(st.tuples(*[st.integers(0, NUMBER_MAX)] * NUMBERS_PER_STEP), min_size=1, max_size=60)


def kernel_view(kernel: Kernel, job_ids: list[str]) -> dict[str, Any]:
    """All the kernel shows of its state, in the model's words."""
    jobs = {}
    for job_id in job_ids:
        state = kernel.query(TENANT, job_id)
        assert not isinstance(state, Refused)
        jobs[job_id] = (
            state.state,
            state.transition_seq,
            state.attempt_id,
            state.reason_code,
            state.lease_id,
            state.lease_expiry,
            state.ready_tick,
            state.ever_dispatched,
        )
    snapshot: Any = kernel.queue.snapshot()
    metrics: dict[str, Any] = kernel.metrics_snapshot()
    return {
        "tick": kernel.tick,
        "jobs": jobs,
        "queue": [job_id for _, line in snapshot[1] for _, job_id in line],
        "next_due": kernel.next_due(),
        "waiting": waiting_retries(kernel),
        "states": {state: count for state, count in metrics["jobs"].items() if count},
        "edges": {edge: count for edge, count in metrics["transitions"].items() if count},
        "queue_depth": metrics["queue_depth"],
        "ambiguous": metrics["ambiguous_transitions"],
    }


def model_view(model: Model) -> dict[str, Any]:
    states: dict[str, int] = {}
    for job in model.jobs.values():
        states[job["state"]] = states.get(job["state"], 0) + 1
    names = ("state", "seq", "attempt", "reason", "lease", "expiry", "ready", "dispatched")
    return {
        "tick": model.tick,
        "jobs": {job_id: tuple(job[name] for name in names) for job_id, job in model.jobs.items()},
        "queue": model.order(),
        "next_due": min((due for due, _ in model.due()), default=None),
        "waiting": sum(job["waiting"] for job in model.jobs.values()),
        "states": states,
        "edges": {f"{source}->{target}": count for (source, target), count in model.edges.items()},
        "queue_depth": len(model.line),
        "ambiguous": model.ambiguous,
    }


def run_both(settings_number: int, steps: list[Numbers]) -> Model:
    walk = Walk(walk_config(settings_number))
    model = Model(walk.kernel.config)
    for numbers in steps:
        command, outcome = walk.step(numbers)
        answer = (outcome.status, outcome.refusal.code if outcome.refusal else None)
        assert answer == model.apply(command), command
        assert kernel_view(walk.kernel, list(model.jobs)) == model_view(model), command
        walk.kernel.check()
    return model


@given(st.integers(0, 31), STEPS)
def test_kernel_and_model_agree_on_drawn_walks(settings_number: int, steps: list[Numbers]) -> None:
    """PIPE-028, PIPE-037, PIPE-055, PIPE-058, PIPE-082, PIPE-090, PIPE-096, X-042, X-056, X-065"""
    run_both(settings_number, steps)


@pytest.mark.parametrize("seed", range(64))
def test_kernel_and_model_agree_on_long_walks(seed: int) -> None:
    """PIPE-027, PIPE-047, PIPE-056, PIPE-064, PIPE-073, PIPE-077, PIPE-101, PIPE-104, X-039, X-043, X-163, X-164"""
    run_both(seed, numbers_from(seed, 150))


def test_long_walks_reach_every_edge_and_every_end() -> None:
    """A walk that never left QUEUED would prove nothing."""
    models = [run_both(seed, numbers_from(seed, 150)) for seed in range(100, 116)]
    edges = {edge for model in models for edge in model.edges}
    reasons = {job["reason"] for model in models for job in model.jobs.values() if job["state"] in ENDED}
    assert len(edges) == 6
    assert {"COMPLETED", "ENDED", "LEASE_EXPIRED", "CANCELLED_BY_USER", "QUOTA_CPU_TIME"} <= reasons
    assert any(job["interruptions"] and job["failures"] for model in models for job in model.jobs.values())
