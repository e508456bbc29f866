"""Replicas, requests and fleets for the tests: every field has a default, so a test names only what it is about."""

from __future__ import annotations

from typing import Any

from detent.scheduling.types import ModelRequirements, Pin, PlacementInput, ReplicaStatus, TaskRequest

PLACEMENT: dict[str, Any] = {
    "replica_id": "r1",
    "pool_id": "pool-a",
    "engine": "llama",
    "engine_version": "1.0",
    "free_vram_mb": 1000,
    "active_slots": 0,
    "ctx_max_supported": 4096,
    "features": (),
}
STATUS: dict[str, Any] = {
    "ready": True,
    "device_mask": "gpu0",
    "replica_set_id": "set-1",
    "max_slots": 2,
    "model_id": "m",
    "model_digest": "sha256:aa",
    "sampler_profile_version": "s1",
    "partition_id": 0,
}
NEEDS: dict[str, Any] = {
    "model_id": "m",
    "model_digest": None,
    "ctx_max": 4096,
    "quant": None,
    "streaming": True,
    "extensions": (),
}


def replica(replica_id: str = "r1", **changes: Any) -> ReplicaStatus:
    """A ready replica of pool-a that serves the model ``m`` on gpu0, but for the changes."""
    placement = {**PLACEMENT, "replica_id": replica_id}
    placement.update({name: changes.pop(name) for name in list(changes) if name in PLACEMENT})
    return ReplicaStatus(PlacementInput(**placement), **{**STATUS, **changes})


def generic(replica_id: str = "g1", **changes: Any) -> ReplicaStatus:
    """A replica that runs jobs without a model."""
    plain = {
        "engine": "generic",
        "replica_set_id": "plain",
        "model_id": None,
        "model_digest": None,
        "device_mask": None,
    }
    return replica(replica_id, **{**plain, **changes})


def needs(**changes: Any) -> ModelRequirements:
    """The requirements of the model ``m``, but for the changes."""
    return ModelRequirements(**{**NEEDS, **changes})


def request(job_id: str = "job-1", *, pool: str | None = None, **changes: Any) -> TaskRequest:
    """A request for the model ``m``, pinned to ``pool`` if there is one, but for the changes."""
    pin = None if pool is None else Pin(pool)
    return TaskRequest(job_id, **{"requirements": needs(), "pin": pin, **changes})
